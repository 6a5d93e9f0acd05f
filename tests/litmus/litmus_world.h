/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The backend of the litmus programs; the programs contain the whole engine.
 *
 * Plain words record the engine's actions on each IOVA page and on the memory behind. A later
 * action must therefore be ordered after an earlier action; otherwise the explorer finds a data
 * race.
 */
#ifndef LITMUS_WORLD_H
#define LITMUS_WORLD_H

#include <xsmmu/engine.h>

#define LITMUS_CPUS	3
#define LITMUS_BLOCKS	64

extern struct xs_engine engine;

/* Make an engine with this policy; from setup(), first. */
void world_begin(const char *policy);

/* Dependencies that Linux preserves, see litmus_world.c. */
extern const struct ex_dependency world_dependencies[];

/* The module's inline paths for one page: path.c. */
u64 path_map_one(u64 phys);
void path_unmap_one(u64 iova);
void path_unmap_one_deferred(u64 iova);

/* Change to the policy @name. */
void world_set(const char *name);

/* Give a CPU's local pages back. Let a CPU have another block open for single pages. */
void world_back_local(u32 cpu);
void world_open(u32 cpu, struct xs_block *block);

/* Map page @phys of memory; unmap, also as a batch-aware driver does. */
u64 world_map_page(u32 phys);
void world_unmap(u64 iova);
void world_unmap_promised(u64 iova);

/*
 * Several CPUs may map page @phys at once: from setup(). Only world_use() looks at the page; it has
 * no references that are counted.
 */
void world_share(u32 phys);

/*
 * Page @phys of memory has references, drivers have @refs at first: from setup(). A reference more,
 * unless the memory is free; a reference less: nothing reaches a page without a reference. The
 * number, from finish().
 */
void world_own(u32 phys, u32 refs);
bool world_get(u32 phys);
void world_put(u32 phys);
u64 world_refs(u32 phys);

/* A device uses the mapping of page @phys at @iova, which is not unmapped. */
void world_use(u64 iova, u32 phys);

/*
 * Map page @phys of memory without the flush that a device needs before use. world_is_usable()
 * returns whether the flush has been made for the page at @iova; fails as a data race unless
 * the caller is ordered after the flush.
 */
u64 world_map_unflushed(u32 phys);
bool world_is_usable(u64 iova);

/*
 * Has page @phys become unreachable for devices, in the page table and in all caches? Fails as
 * a data race unless the caller is ordered after the flush.
 */
bool world_is_gone(u32 phys);

/* Does page @phys of memory have the page's own bytes? A wrong copy may have come back. */
bool world_memory_is_own(u32 phys);

/* Does a timer of CPU @cpu run? The timer fires. Both are relaxed. */
bool world_timer_runs(u32 cpu);
void world_timer_fires(u32 cpu);

/* The end of a poll on the running CPU, which the backend reports if it has been asked. */
void world_poll(void);

/* Set the clock to @ns; allow the engine to warn with @text. */
void world_set_clock(u64 ns);
void world_expect(const char *text);

/* From now on, unmaps may name parts of mappings; the backend removes the pages one by one. */
void world_tears(void);

/* The next removal of the page at @iova fails: from setup(). */
void world_stick(u64 iova);

/* From now on, the backend refuses maps. */
void world_refuse(void);

/*
 * From finish(): every deferred page has a timer, and the page's CPU is polled; after a drain,
 * nothing is held and the statistics balance, with @mapped pages mapped.
 */
void world_check(u32 mapped);

#endif
