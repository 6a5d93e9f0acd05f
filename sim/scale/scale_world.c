// SPDX-License-Identifier: GPL-2.0-only
/*
 * The backend of the engine. Page tables and the IOMMU's queue exist only as
 * the lines that a kernel's code would access:
 *
 *   map, remove   a write to each line of eight page-table entries
 *   invalidate    for each command, a write to the line of the queue's lock
 *                 and tail, and a wait for the command's completion
 *
 * Nothing is translated: the simulated world (sim/world) looks for mistakes.
 */
#include "allocator.h"
#include "arena.h"
#include "hash_map.h"
#include "tally.h"
#include "scale_world.h"

#define ENTRIES_LG2	3	/* page-table entries of a line */

struct world_cpu world_cpus[SCALE_CPUS];
bool world_trim_wanted;

static struct map table_lines = MAP_OF(struct line);
static struct line queue_line;

/* Stands for the address of the queue's lock; never an address of the engine. */
#define QUEUE_LOCK	1

static void touch_entries(u64 page, u64 pages)
{
	tally_spend(TALLY_CALL_NS);
	for (u64 at = page >> ENTRIES_LG2; at <= (page + pages - 1) >> ENTRIES_LG2; at++)
		tally_write(map_at(&table_lines, at), LINE_TABLE, 0);
}

static int world_map(void *world, void **entries, u64 iova, u64 phys, u32 pages, u32 prot)
{
	(void)world;
	(void)entries;
	(void)phys;
	(void)prot;
	if (tally_on)
		touch_entries(iova >> XS_PAGE_LG2, pages);
	return 0;
}

static int world_remove(void *world, xs_gather_t *gather, u64 iova, u64 pages)
{
	(void)world;
	gather->pages += pages;
	if (tally_on)
		touch_entries(iova >> XS_PAGE_LG2, pages);
	return 0;
}

static void send_command(void)
{
	enum line_event event;

	if (!tally_on)
		return;
	event = line_write(&queue_line, scale_cpu);
	tally_lock(&tally.queue, QUEUE_LOCK, line_is_transfer(event));
	tally_event(LINE_QUEUE, event, 0);
	tally_spend(TALLY_CALL_NS);
	tally_unlock(QUEUE_LOCK);
	tally_spend(TALLY_COMMAND_NS);
}

static void world_invalidate(void *world, xs_gather_t *gather, const struct xs_range *ranges,
			     u32 count, struct xs_commands *sent)
{
	(void)world;
	(void)ranges;
	gather->pages = 0;
	tally.flushes++;
	for (u32 i = 0; i < (count ? count : 1); i++)
		send_command();
	tally.commands_page += count;
	tally.commands_domain += !count;
	sent->page += count;
	sent->domain += !count;
}

static void world_gather_init(xs_gather_t *gather)
{
	gather->pages = 0;
}

static u64 world_clock(void *world)
{
	(void)world;
	return tally_now();
}

static void world_deferred(void *world, u32 cpu, bool arm, u64 deadline_ns)
{
	(void)world;
	if (cpu == scale_cpu)
		world_cpus[cpu].deferred = true;
	if (arm)
		world_cpus[cpu].deadline_ns = deadline_ns;
}

/* NUMA placement is not modelled. */
static void *world_alloc(void *world, size_t bytes, u32 cpu, bool atomic)
{
	(void)world;
	(void)cpu;
	(void)atomic;
	return arena_alloc(bytes);
}

static void world_free(void *world, void *memory, size_t bytes)
{
	(void)world;
	arena_free(memory, bytes);
}

/* Calls never interrupt each other here, so there is nothing to wait for. */
static void world_quiesce(void *world)
{
	(void)world;
}

static void world_surplus(void *world)
{
	(void)world;
	world_trim_wanted = true;
}

static void world_misuse(void *world, const struct xs_misuse *misuse)
{
	(void)world;
	scale_fail(misuse->what);
}

const struct xs_backend_ops world_ops = {
	.map = world_map,
	.remove = world_remove,
	.invalidate = world_invalidate,
	.gather_init = world_gather_init,
	.clock = world_clock,
	.deferred = world_deferred,
	.alloc = world_alloc,
	.free = world_free,
	.quiesce = world_quiesce,
	.surplus = world_surplus,
	.misuse = world_misuse,
};

xs_counts_t *xs_counts_new(void)
{
	return arena_alloc(SCALE_CPUS * SCALE_COUNTS_BYTES);
}

void xs_counts_free(xs_counts_t *counts)
{
	arena_free(counts, SCALE_CPUS * SCALE_COUNTS_BYTES);
}

_Static_assert(sizeof(struct xs_counts) <= SCALE_COUNTS_BYTES, "raise SCALE_COUNTS_BYTES");

struct xs_engine *world_engine(const struct xs_policy *policy, u32 cpus, u64 end)
{
	struct xs_engine_config config = {
		.ops = &world_ops,
		.start = XS_PAGE_BYTES,
		.end = end,
		.cpu_count = cpus,
		.policy = policy,
		.identity = end,
		.memory_pages = MEMORY_PAGES,
	};
	struct xs_engine *engine = arena_alloc(sizeof(*engine));

	if (xs_engine_init(engine, &config))
		scale_fail("the engine does not start");
	return engine;
}
