/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The world of the litmus programs, with the whole engine in it.
 *
 * What the engine does to an IOVA page, or to the page of memory behind it, is
 * kept in plain words. So it is not enough that one thing is done after another:
 * it has to be ordered, or the explorer finds a data race.
 */
#ifndef LITMUS_WORLD_H
#define LITMUS_WORLD_H

#include <xsmmu/engine.h>

#define LITMUS_CPUS	3
#define LITMUS_BLOCKS	64

extern struct xs_engine engine;

/* An engine with this policy; from setup(), first. */
void world_begin(const char *policy);

/* What Linux keeps in order by a dependency, see litmus_world.c. */
extern const struct ex_dependency world_dependencies[];

/* The ways that the module takes for one page: path.c. */
u64 path_map_one(u64 phys);
void path_unmap_one(u64 iova);
void path_unmap_one_deferred(u64 iova);

/* Map page @phys of memory; unmap, also as a batch-aware driver does. */
u64 world_map_page(u32 phys);
void world_unmap(u64 iova);
void world_unmap_promised(u64 iova);

/*
 * Map page @phys of memory without the flush that a device needs before it uses it. Has
 * that been, of the page at @iova? Fails, as a data race, unless the caller is behind it.
 */
u64 world_map_unflushed(u32 phys);
bool world_is_usable(u64 iova);

/*
 * Is the device's way to page @phys gone, in the page table and in all caches?
 * Fails, as a data race, unless whoever asks is behind that.
 */
bool world_is_gone(u32 phys);

/* Has page @phys of memory its own bytes? A copy of another page's may have come back. */
bool world_memory_is_own(u32 phys);

/* Has CPU @cpu a timer that runs? It fires. Both are relaxed. */
bool world_timer_runs(u32 cpu);
void world_timer_fires(u32 cpu);

/* From now on it is @ns, and the engine may say what is in @text. */
void world_set_clock(u64 ns);
void world_expect(const char *text);

/* Unmaps may name pages of mappings from now on, which the world removes one by one. */
void world_tears(void);

/* The next removal of the page at @iova fails: from setup(). */
void world_stick(u64 iova);

/*
 * From finish(): what is deferred on a CPU has a timer; when all is drained
 * nothing is held, and the accounts balance, with @mapped pages mapped.
 */
void world_check(u32 mapped);

#endif
