// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pool: a bounce buffer belongs to one buffer at a time, is copied back before the next
 * buffer gets the bounce buffer, and is unused when the chunk is freed.
 */
#include "programs.h"

#define KIND	(XS_DIRECTION_BOTH * XS_BOUNCE_SIZES + XS_BOUNCE_SIZES - 1)	/* of whole pages */
#define START	(1ULL << 31)

static struct xs_pool pool;
static u64 known;
static u64 handed[3];

static u64 map(u32 phys)
{
	u64 iova;

	xs_enter();
	iova = xs_pool_map(&pool, (u64)phys << XS_PAGE_LG2, XS_PAGE_BYTES, XS_DIRECTION_BOTH, ~0ULL,
			   0, true);
	xs_exit();
	return iova;
}

static bool unmap(u64 iova)
{
	bool found;

	xs_enter();
	found = xs_pool_unmap(&pool, iova, true);
	xs_exit();
	return found;
}

/* A pool without a chunk, with a request for a chunk. */
static void begin_empty(void)
{
	world_begin("copy");
	ex_assert(xs_pool_init(&pool, engine.ops, engine.backend, START, LITMUS_CPUS,
			       engine.counts));
	xs_pool_limit(&pool, 1);
	ex_assert(!map(1));
	world_set_clock(1000 + 2 * XS_POOL_DRY_NS);
	handed[0] = handed[1] = handed[2] = 0;
	known = 0;
}

static void begin_chunk(void)
{
	begin_empty();
	xs_pool_grow(&pool);
	known = map(1);
	ex_assert(known);
}

/* The bounce buffer of page 1 of memory is the only one; CPUs 0 and 1 share the area. */
static void begin_full(void)
{
	struct xs_block *open;

	begin_chunk();
	open = pool.cpus[0]->open[KIND];
	pool.cpus[1]->open[KIND] = open;
	xs_a64_swap(&open->free, 0);
	for (u32 cpu = 0; cpu < 2; cpu++)
		pool.cpus[cpu]->dry_ns[KIND] = ~0ULL;
}

/* Two bounce buffers are left. */
static void begin_two(void)
{
	begin_full();
	xs_a64_swap(&pool.cpus[0]->open[KIND]->free, 3ULL << 62);
}

/* Mapped buffers can be unmapped once, and each buffer then has the right bytes. */
static void end(void)
{
	for (u32 i = 0; i < 3; i++)
		if (handed[i])
			unmap(handed[i]);
	for (u32 i = 1; i < 4; i++)
		ex_assert(world_memory_is_own(i));
}

static void unmap_known(void)
{
	unmap(known);
}

static void map_into_hole(void)
{
	handed[ex_thread()] = map(2);
}

static const struct ex_program reuse = {
	.name = "pool_reuse", .setup = begin_full, .threads = { unmap_known, map_into_hole },
	.finish = end
};

/* A repeated unmap meets the next buffer of the bounce buffer, and unmaps that buffer. */
static void unmap_and_map(void)
{
	if (unmap(known))
		handed[0] = map(2);
}

static const struct ex_program twice = {
	.name = "pool_twice", .setup = begin_full, .threads = { unmap_and_map, unmap_known },
	.finish = end
};

/* Each CPU gets another bounce buffer. */
static void map_own(void)
{
	handed[ex_thread()] = map(2 + ex_thread());
}

static void end_two(void)
{
	ex_assert(handed[0] && handed[1] && handed[0] != handed[1]);
	end();
}

static const struct ex_program two = {
	.name = "pool_two", .setup = begin_two, .threads = { map_own, map_own },
	.finish = end_two
};

/* A bad unmap looks into a chunk that was just added. */
static void grow(void)
{
	xs_pool_grow(&pool);
}

static void bad_unmap(void)
{
	ex_assert(!unmap(START));
	xs_enter();
	ex_assert(!xs_pool_sync(&pool, START, 1, true));
	xs_exit();
}

static const struct ex_program grows_bad_unmap = {
	.name = "pool_grows_bad_unmap", .setup = begin_empty, .threads = { grow, bad_unmap },
	.finish = end
};

/* A map looks into the new chunk, too. */
static void map_and_unmap(void)
{
	u64 iova = map(2);

	if (iova)
		ex_assert(unmap(iova));
}

static const struct ex_program grows = {
	.name = "pool_grows", .setup = begin_empty, .threads = { grow, map_and_unmap },
	.finish = end
};

/* A chunk goes while bad unmaps look into the chunk, and maps may take a bounce buffer there. */
static void begin_idle(void)
{
	begin_chunk();
	unmap(known);
}

static void trim(void)
{
	xs_pool_trim(&pool, 0);
}

static void bad_unmap_known(void)
{
	ex_assert(!unmap(known));
}

static const struct ex_program trims_bad_unmap = {
	.name = "pool_trims_bad_unmap", .setup = begin_idle, .threads = { trim, bad_unmap_known },
	.finish = end
};
static const struct ex_program trims = {
	.name = "pool_trims", .setup = begin_idle, .threads = { map_and_unmap, trim },
	.finish = end
};

const struct ex_program *const pool_programs[] = {
	&reuse, &twice, &two, &grows_bad_unmap, &grows, &trims_bad_unmap, &trims, NULL
};
