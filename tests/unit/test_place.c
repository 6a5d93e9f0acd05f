// SPDX-License-Identifier: GPL-2.0-only
/*
 * Placement of mappings: IOVA footprint, limits, high and full spaces, memory that is given
 * back, and the engine's list of mappings.
 */
#include "unit_world.h"

#define LAST	(~0ULL)
#define LOW	(1ULL << 32)
#define NEAR	(XS_PAGE_BYTES << XS_NEAR_LG2)

/* For tests with more mappings than fit on the stack. */
static struct mapping many[8192];

static struct world *begin(const struct xs_policy *policy, u32 blocks, u32 cpus,
			   u64 start)
{
	struct world_config config = { .blocks = blocks, .cpus = cpus,
				       .policy = policy, .start = start };

	test_relax();
	return world_new(&config, 0);
}

/*
 * A mapping with one reference, so that the unmap waits for a flush under all policies but
 * strict.
 */
static struct mapping map(struct world *world, u32 pages, u64 last)
{
	struct mapping mapping = { .pages = pages, .prot = PROT_READ_,
				   .kind = pages > 1 ? MEMORY_FOLIO :
						       MEMORY_COUNTED };

	CHECK(driver_map(world, &mapping, last));
	return mapping;
}

static struct xs_block *block_at(struct world *world, u64 iova)
{
	struct xs_block *block;

	xs_enter();
	block = xs_space_block(&world->engine.space, iova >> XS_PAGE_LG2);
	xs_exit();
	return block;
}

/* ---- footprint ---- */

static u32 size_of(u32 pages)
{
	u32 lg2 = 0;

	while (1u << lg2 < pages)
		lg2++;
	return lg2;
}

/*
 * Per CPU and size in use: partial blocks that are not searched yet, the holes of blocks that
 * are not partial, and an open block. Per CPU a free-block cache.
 */
#define FOOTPRINT_SIZE	((XS_PARTIAL_SLACK * 3 / 2 + 1) * XS_BLOCK_PAGES)
#define FOOTPRINT_CPU	(XS_EMPTY_BLOCKS * XS_BLOCK_PAGES)

/* At most twice the pages in use at once, per size, plus a constant. */
static void check_footprint(const struct world *world, const u64 *most)
{
	u64 pages = world->cpus * FOOTPRINT_CPU;

	for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++)
		if (most[lg2])
			pages += 2 * most[lg2] + world->cpus * FOOTPRINT_SIZE;
	CHECK(world->engine.space.taken * XS_BLOCK_PAGES <= pages);
}

struct footprint {
	struct world *world;
	u64 random;
	u32 count;
	u64 live[XS_SIZES];	/* including deferred pages */
	u64 most[XS_SIZES];
	u64 deferred[XS_SIZES];
};

static void footprint_map(struct footprint *run, u32 pages)
{
	u32 lg2 = size_of(pages);

	many[run->count++] = map(run->world, pages, LAST);
	run->live[lg2] += 1u << lg2;
	if (run->live[lg2] > run->most[lg2])
		run->most[lg2] = run->live[lg2];
}

static void footprint_unmap(struct footprint *run, u32 at)
{
	u32 lg2 = size_of(many[at].pages);

	driver_unmap(run->world, &many[at], false);
	run->deferred[lg2] += 1u << lg2;
	many[at] = many[--run->count];
}

static void footprint_flush(struct footprint *run)
{
	xs_engine_flush(&run->world->engine, XS_FLUSH_EXPLICIT);
	for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++) {
		run->live[lg2] -= run->deferred[lg2];
		run->deferred[lg2] = 0;
	}
}

/*
 * Mixed lifetimes: tides of many mappings, some of which stay for the next tides, on one or two
 * CPUs, unmapped on the same CPU or on the other.
 */
static void footprint_seed(u64 seed)
{
	struct footprint run = { .random = seed };
	u32 large = (u32)(seed % 4), cpus = 1 + (u32)(seed / 4 % 2);
	u32 high = large ? 1000 : 3000;
	bool rising = true;

	test_replay(seed, 0);
	run.world = begin(xs_policy_find(seed % 2 ? "fused" : "fands"),
			  WORLD_BLOCKS_MAX, cpus, 0);
	for (u32 step = 0; step < 12 * high && !test_failed(); step++) {
		u32 pages = 1;

		test_replay(seed, step);
		if (test_below(&run.random, 10) < large)
			pages = 1 + test_below(&run.random, 8);
		if (step % 64 == 0)
			test_be_cpu(test_below(&run.random, cpus));
		if (run.count == (rising ? high : high / 5))
			rising = !rising;
		if (test_below(&run.random, 16) ? rising : !rising)
			footprint_map(&run, pages);
		else if (run.count)
			footprint_unmap(&run, test_below(&run.random,
							 run.count));
		if (step % 64 == 0)
			footprint_flush(&run);
		check_footprint(run.world, run.most);
	}
	while (run.count && !test_failed())
		footprint_unmap(&run, run.count - 1);
	test_be_cpu(0);
	if (test_failed())
		world_free(run.world);
	else
		world_end(run.world);
}

static void footprint(void)
{
	test_seeds(8, footprint_seed);
}

#define WORST_PAGES	(100 * XS_BLOCK_PAGES)

/*
 * The worst case: in @percent of the blocks the driver keeps a page, in the other blocks so
 * many pages that the blocks are just not partial; then the driver maps as much as before,
 * again and again.
 */
static void check_worst(u32 percent, u32 kept)
{
	struct world *world = begin(xs_policy_find("fused"), WORLD_BLOCKS_MAX,
				    1, 0);
	u64 most[XS_SIZES] = { WORST_PAGES };
	u32 count = 0;

	for (u32 round = 0; round < 8 && !test_failed(); round++) {
		while (count < WORST_PAGES)
			many[count++] = map(world, 1, LAST);
		check_footprint(world, most);
		for (u32 at = count; at--;) {
			u64 page = many[at].iova >> XS_PAGE_LG2;
			u64 block = page / XS_BLOCK_PAGES;

			if (page % XS_BLOCK_PAGES <
			    (block * 37 % 100 < percent ? 1 : kept))
				continue;
			driver_unmap(world, &many[at], false);
			many[at] = many[--count];
		}
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	}
	while (count)
		driver_unmap(world, &many[--count], false);
	world_end(world);
}

static void worst(void)
{
	check_worst(30, XS_BLOCK_PAGES - XS_LIST_MIN_FREE + 1);
	check_worst(45, XS_BLOCK_PAGES - XS_LIST_MIN_FREE + 1);
	check_worst(30, XS_BLOCK_PAGES / 2 + 1);
}

/* Holes of pages are used again: a ring of mappings, every eighth kept for ever. */
static void holes(void)
{
	struct world *world = begin(xs_policy_find("fused"), WORLD_BLOCKS_MAX,
				    1, 0);
	u32 kept = 0;

	for (u32 round = 0; round < 600 && !test_failed(); round++) {
		struct mapping some[16];

		for (u32 i = 0; i < 16; i++)
			some[i] = map(world, 1, LAST);
		for (u32 i = 0; i < 16; i++)
			if (i || kept >= 200)
				driver_unmap(world, &some[i], false);
			else
				many[kept++] = some[i];
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	}
	/* As a bound: 215 pages at once are four blocks. */
	CHECK(world->engine.space.taken <= 2 * 4 + XS_PARTIAL_SLACK * 3 / 2 + 3);
	while (kept)
		driver_unmap(world, &many[--kept], false);
	world_end(world);
}

/* Load moves from CPU to CPU, and some mappings of each CPU stay. */
static void check_moves(const struct xs_policy *policy)
{
	struct world *world = begin(policy, 640, TEST_CPUS, 0);
	u32 kept = 0, peak = 0, cached = 16;

	for (u32 cpu = 0; cpu < TEST_CPUS && !test_failed(); cpu++) {
		u32 count = kept;

		test_be_cpu(cpu);
		while (count < kept + 40 * XS_BLOCK_PAGES)
			many[count++] = map(world, 1, LAST);
		peak = count;
		for (u32 i = kept; i < count; i++)
			if ((many[i].iova >> XS_PAGE_LG2) % XS_BLOCK_PAGES)
				driver_unmap(world, &many[i], false);
			else
				many[kept++] = many[i];
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
		test_relax();
	}
	/*
	 * Twice the pages at once, plus each CPU's free-block cache, partial blocks and cached
	 * IOVAs; with page placement a CPU keeps more of the latter.
	 */
	if (policy->placement == XS_PLACE_PAGE)
		cached += XS_CACHE_PAGES / XS_BLOCK_PAGES;
	CHECK(world->engine.space.taken <=
	      2 * peak / XS_BLOCK_PAGES + TEST_CPUS * cached);
	while (kept)
		driver_unmap(world, &many[--kept], false);
	world_end(world);
}

static void moves(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++)
		check_moves(&xs_policies[i]);
}

/*
 * On the running CPU: fill so many blocks with pages, then unmap all pages but one of each of
 * the first @emptied blocks. Returns the number of remaining mappings in many[].
 */
static u32 leave_pages(struct world *world, u32 blocks, u32 emptied)
{
	u32 count = 0, kept = 0;

	while (count < blocks * XS_BLOCK_PAGES)
		many[count++] = map(world, 1, LAST);
	for (u32 i = 0; i < count; i++)
		if (i < emptied * XS_BLOCK_PAGES &&
		    (many[i].iova >> XS_PAGE_LG2) % XS_BLOCK_PAGES)
			driver_unmap(world, &many[i], false);
		else
			many[kept++] = many[i];
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	return kept;
}

/* Load moves to a CPU with a lower number, which takes the remaining pages one by one. */
static void moves_back(void)
{
	struct world *world = begin(xs_policy_find("fused"), 200, 4, 0);
	u32 kept;
	u64 before;

	test_be_cpu(1);
	kept = leave_pages(world, 40, 40);
	before = world->engine.space.taken;
	test_be_cpu(0);
	for (u32 i = 0; i < 8 * (XS_BLOCK_PAGES - 1); i++)
		many[kept++] = map(world, 1, LAST);
	/* A search visits each other CPU once, then opens a fresh block. */
	CHECK(world->engine.space.taken <= before + 3);
	while (kept)
		driver_unmap(world, &many[--kept], false);
	world_end(world);
}

/*
 * Another CPU does not take blocks of a CPU with few partial blocks, because that CPU may
 * continue to map.
 */
static void left_alone(void)
{
	struct world *world = begin(xs_policy_find("fused"), 200, 2, 0);
	u32 kept;
	u64 before;

	test_be_cpu(1);
	kept = leave_pages(world, 40, 10);
	before = world->engine.space.taken;
	test_be_cpu(0);
	for (u32 i = 0; i < 4 * XS_BLOCK_PAGES; i++)
		many[kept++] = map(world, 1, LAST);
	CHECK(world->engine.space.taken == before + 4);
	while (kept)
		driver_unmap(world, &many[--kept], false);
	world_end(world);
}

/* ---- failing maps ---- */

/* A map that finds no IOVA flushes all CPUs, but at most once in 10 ms. */
static void starved(void)
{
	struct world *world = begin(xs_policy_find("fused"), 32, 4, 0);
	struct mapping mapping = { .pages = 1 };

	for (u32 round = 0; round < 3; round++) {
		u64 failures = world_stats(world)->map_failures;
		u64 flushes;

		for (u32 cpu = 1; cpu < 4; cpu++) {
			test_be_cpu(cpu);
			many[cpu] = map(world, 1, LAST);
			driver_unmap(world, &many[cpu], false);
		}
		test_be_cpu(0);
		flushes = world->invalidations;
		CHECK(!driver_map(world, &mapping, XS_BLOCK_BYTES - 1));
		CHECK(world->invalidations == flushes + 3);
		for (u32 i = 0; i < 100; i++) {
			test_be_cpu(1);
			many[1] = map(world, 1, LAST);
			driver_unmap(world, &many[1], false);
			test_be_cpu(0);
			CHECK(!driver_map(world, &mapping, XS_BLOCK_BYTES - 1));
			CHECK(!xs_engine_alloc_block(&world->engine, 64,
						     XS_BLOCK_BYTES - 1));
			/* Do not fire timers: a timer would flush, too. */
			world->now_ns += 90000;
		}
		CHECK(world->invalidations <= flushes + 4);
		CHECK(world_stats(world)->map_failures == failures + 101);
		world->now_ns += 10000000;
		for (u32 cpu = 0; cpu < 4; cpu++)
			world_fire(world, cpu);
	}
	world_end(world);
}

/* The whole space is in batches and magazines of other CPUs: a map gets all of the space. */
static void reclaims(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++) {
		struct world *world = begin(&xs_policies[i], 40, 4, 0);
		u32 count = 0;

		for (; count < 39 * XS_BLOCK_PAGES; count++) {
			test_be_cpu(count / XS_BLOCK_PAGES % 4);
			many[count] = map(world, 1, LAST);
		}
		for (u32 j = 0; j < count; j++) {
			test_be_cpu(j / 3 % 4);
			driver_unmap(world, &many[j], false);
		}
		test_be_cpu(0);
		world_advance(world, 20000000);
		/* Only one place has so many contiguous, aligned pages. */
		many[0] = map(world, 16 * XS_BLOCK_PAGES, LAST);
		world_advance(world, 20000000);
		many[1] = map(world, 8 * XS_BLOCK_PAGES, LAST);
		driver_unmap(world, &many[0], false);
		driver_unmap(world, &many[1], false);
		world_end(world);
	}
}

/* Maps pages on CPU 0 until none is left. Returns their number. A reclaim round may begin. */
static u32 map_all(struct world *world)
{
	struct mapping mapping = { .pages = 1, .prot = PROT_READ_ };
	u32 count = 0;

	test_be_cpu(0);
	world->now_ns += 20000000;
	while (driver_map(world, &mapping, LAST))
		many[count++] = mapping;
	return count;
}

/* The next map may begin a reclaim round. */
static void unmap_many(struct world *world, u32 count)
{
	while (count)
		driver_unmap(world, &many[--count], true);
	world->now_ns += 20000000;
}

/* Each CPU maps and unmaps a page, and then is idle, with the other pages of the block. */
static void be_idle(struct world *world)
{
	struct mapping mapping;

	for (u32 cpu = 0; cpu < world->cpus; cpu++) {
		test_be_cpu(cpu);
		mapping = map(world, 1, LAST);
		driver_unmap(world, &mapping, true);
	}
}

static u32 cpus_with_local(const struct world *world)
{
	u32 count = 0;

	for (u32 cpu = 0; cpu < world->cpus; cpu++)
		count += world->engine.cpus[cpu]->local != 0;
	return count;
}

/* Allocates and gives up a driver's own block; there is no second one. */
static void take_own(struct world *world)
{
	u64 own;

	test_be_cpu(0);
	world->now_ns += 20000000;
	own = xs_engine_alloc_block(&world->engine, XS_BLOCK_PAGES, LAST);
	CHECK(own && !xs_engine_alloc_block(&world->engine, XS_BLOCK_PAGES, LAST));
	xs_engine_drop_in_block(&world->engine, own, XS_BLOCK_PAGES);
}

static void take_pages(struct world *world)
{
	unmap_many(world, map_all(world));
}

/*
 * A space has as many blocks as there are CPUs. After a map has found no IOVA and the backend has
 * trimmed, the pages of idle CPUs can be mapped, until the policy is set again.
 */
static void check_recalled(const char *name, void (*take)(struct world *world))
{
	const struct xs_policy *policy = xs_policy_find(name);
	struct xs_tuning tuning = xs_tuning_default(policy);
	struct world *world = begin(policy, 4, 4, LOW);
	u32 mode;

	for (u32 round = 0; round < 2; round++) {
		be_idle(world);
		CHECK(cpus_with_local(world) == 4 && !world->surplus);
		take(world);
		CHECK(world->surplus == 1);
		mode = world->engine.mode;
		world_trim(world, false);
		CHECK(world->engine.mode == (mode & ~XS_MODE_LOCAL) && !world->engine.recall_due);
		CHECK(!cpus_with_local(world) && !world->engine.space.taken);
		unmap_many(world, map_all(world));
		be_idle(world);
		CHECK(!cpus_with_local(world));
		CHECK(map_all(world) == 4 * XS_BLOCK_PAGES && !world->surplus);
		unmap_many(world, 4 * XS_BLOCK_PAGES);
		world_set_policy(world, policy, &tuning);
		world->surplus = 0;
	}
	world_end(world);
}

static void recalled(void)
{
	check_recalled("fused", take_pages);
	check_recalled("fands", take_own);
}

/* A free block does not help a mapping of two blocks. */
static void recalled_for_blocks(void)
{
	struct world *world = begin(xs_policy_find("fused"), 3, 2, LOW);
	struct mapping large = { .pages = 2 * XS_BLOCK_PAGES, .prot = PROT_READ_ };

	be_idle(world);
	test_be_cpu(0);
	CHECK(!driver_map(world, &large, LAST) && world->surplus == 1);
	world_trim(world, false);
	world->now_ns += 20000000;
	CHECK(driver_map(world, &large, LAST));
	driver_unmap(world, &large, true);
	world_end(world);
}

static void refuse_memory(struct world *world)
{
	world->alloc_fails_in = 1;
}

/* A map that lacks memory and not a block leaves other CPUs their local pages. */
static void not_recalled(void)
{
	struct world *world = begin(xs_policy_find("fused"), WORLD_BLOCKS_MAX, 2, LOW);
	struct mapping mapping = { .pages = 4 * XS_LEAF_PAGES, .prot = PROT_READ_ };

	be_idle(world);
	test_be_cpu(0);
	world->allocating = refuse_memory;
	CHECK(!driver_map(world, &mapping, LAST) && !world->surplus);
	world->allocating = NULL;
	world_trim(world, true);
	/* CPU 0 has given up its own. */
	CHECK(cpus_with_local(world) == 1 && world->engine.cpus[1]->local);
	world_end(world);
}

/* Maps that no IOVA of the space would fit leave CPUs their local pages. */
static void not_recalled_in_vain(void)
{
	struct world *world = begin(xs_policy_find("fused"), 64, 2, LOW);
	struct mapping large = { .pages = 65 * XS_BLOCK_PAGES, .prot = PROT_READ_ };
	struct mapping low = { .pages = 1, .prot = PROT_READ_ };

	be_idle(world);
	test_be_cpu(0);
	CHECK(!driver_map(world, &large, LAST) && !world->surplus);
	CHECK(!driver_map(world, &low, LOW - 1) && !world->surplus);
	world_trim(world, true);
	CHECK(world->engine.mode & XS_MODE_LOCAL);
	world_end(world);
}

static void cache_on(struct world *world, u32 cpu, u32 blocks, u32 pages);

/* A round that a map begins as another map ends the last one is not lost. */
static void end_the_round(struct world *world)
{
	struct mapping lone = { .pages = 1 };

	world->ticking = NULL;
	/* The first may find the depots full. */
	for (u32 i = 0; i < 3 && xs_a64_read(&world->engine.reclaim_at); i++)
		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	CHECK(!xs_a64_read(&world->engine.reclaim_at));
	world->now_ns += 1;
}

static void reclaims_begin_at_the_end(void)
{
	struct world *world = begin(xs_policy_find("strict"), 80, 4, 0);
	struct mapping lone = { .pages = 1 };

	/* More than a map takes out of the depots. */
	for (u32 cpu = 0; cpu < 4; cpu++)
		cache_on(world, cpu, 18, 1);
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	CHECK(xs_a64_read(&world->engine.reclaim_at) == 4);
	cache_on(world, 1, 17, 2);
	world->now_ns += 9999999;
	world->ticking = end_the_round;
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	CHECK(!xs_cache_count(&world->engine.cpus[1]->magazines[1]));
	world_end(world);
}

/* A map takes cached IOVAs from some CPUs, and the next map continues with the next CPUs. */
static void reclaims_in_turn(void)
{
	struct world *world = begin(xs_policy_find("fused"), 64, TEST_CPUS, 0);
	struct mapping lone = { .pages = 1 };
	u64 flushes;

	for (u32 round = 0; round < 3; round++) {
		world->now_ns += 10000000;
		for (u32 cpu = 0; cpu < TEST_CPUS; cpu++) {
			test_be_cpu(cpu);
			many[cpu] = map(world, 1, LAST);
			driver_unmap(world, &many[cpu], false);
		}
		test_be_cpu(0);
		flushes = world->invalidations;
		/* The map's own CPU is flushed in any case. */
		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
		CHECK(world->invalidations == flushes + TEST_CPUS / 2);
		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
		CHECK(world->invalidations == flushes + TEST_CPUS);
		many[0] = map(world, 1, LAST);
		driver_unmap(world, &many[0], false);
		test_be_cpu(1);
		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
		CHECK(world->invalidations == flushes + TEST_CPUS);
		test_be_cpu(0);
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	}
	world_end(world);
}

/* Magazines with IOVAs, of all CPUs and the depot of pages. */
static u32 magazines(const struct world *world)
{
	u32 count = world->engine.depots[0].full.count;

	for (u32 cpu = 0; cpu < TEST_CPUS; cpu++) {
		const struct xs_cache *cache = &world->engine.cpus[cpu]->magazines[0];

		count += cache->full.count;
		count += cache->loaded && cache->loaded->count;
		count += cache->previous && cache->previous->count;
	}
	return count;
}

/*
 * A map takes a few magazines out of depots. Each CPU's magazines go to the depots once in a
 * round, and the round ends when the depots are empty.
 */
static void reclaims_in_parts(void)
{
	struct world *world = begin(xs_policy_find("strict"), 160, TEST_CPUS, 0);
	struct mapping lone = { .pages = 1 };
	u32 count = 0, left, next;

	for (u32 cpu = 0; cpu < TEST_CPUS; cpu++) {
		test_be_cpu(cpu);
		for (u32 i = 0; i < 18 * XS_MAGAZINE_ITEMS; i++)
			many[count++] = map(world, 1, LAST);
		while (count)
			driver_unmap(world, &many[--count], false);
	}
	/* The map itself takes a magazine from a depot, and finds no page below the limit. */
	for (left = magazines(world); left > 1 && !test_failed(); left = next) {
		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
		next = magazines(world);
		CHECK(next == (left < 64 ? 1 : left - 64));
	}
	/* What a CPU caches then stays until the next round. */
	many[0] = map(world, 1, LAST);
	driver_unmap(world, &many[0], false);
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1) && magazines(world));
	world->now_ns += 10000000;
	for (u32 i = 0; i < 2; i++)
		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	CHECK(!magazines(world) && !world->engine.space.taken);
	world_end(world);
}

/* @cpu caches the IOVAs of @blocks blocks, in magazines of @pages pages; CPU 0 runs next. */
static void cache_on(struct world *world, u32 cpu, u32 blocks, u32 pages)
{
	u32 count = 0;

	test_be_cpu(cpu);
	while (count * pages < blocks * XS_BLOCK_PAGES)
		many[count++] = map(world, pages, LAST);
	while (count)
		driver_unmap(world, &many[--count], false);
	test_be_cpu(0);
}

/* A map gets what other CPUs cache, also if an earlier round has left magazines in a depot. */
static void reclaims_later(void)
{
	struct world *world = begin(xs_policy_find("strict"), 80, XS_RECLAIM_CPUS, 0);
	struct mapping large = { .pages = 1 };

	for (u32 round = 0; round < 3; round++) {
		for (u32 cpu = 0; cpu < XS_RECLAIM_CPUS; cpu++)
			cache_on(world, cpu, 17, 1);
		/* No page is so low. */
		CHECK(!driver_map(world, &large, XS_BLOCK_BYTES - 1));
		CHECK(world->engine.depots[0].full.count);
		world_advance(world, 20000000);
		cache_on(world, 1, 17, 1);
		cache_on(world, 1, 17, 2);
		/* Only one place has so many contiguous, aligned pages. */
		large = map(world, 32 * XS_BLOCK_PAGES, LAST);
		driver_unmap(world, &large, false);
		world_advance(world, 20000000);
		large.pages = 1;
	}
	world_end(world);
}

/* Traffic of ranges of @pages pages: see reclaims_over(). */
static void check_over(u32 pages)
{
	struct world *world = begin(xs_policy_find("strict"), 160, XS_RECLAIM_CPUS, 0);
	const struct xs_engine *engine = &world->engine;
	struct mapping lone = { .pages = pages };
	u32 size = size_of(pages);

	for (u32 cpu = XS_RECLAIM_CPUS; cpu--;)
		cache_on(world, cpu, cpu ? 17 : 81, pages);
	/* No page is so low, and the map takes a magazine. */
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	CHECK(engine->depots[size].full.count > engine->depots[size].full_max);
	world_advance(world, 20000000);
	cache_on(world, 1, 1, pages);
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	CHECK(engine->depots[size].full.count && xs_cache_count(&engine->cpus[1]->magazines[size]));
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	CHECK(!engine->depots[size].full.count && !engine->space.taken);
	/* The round has ended: until the next, maps leave the depots to traffic. */
	cache_on(world, 0, 81, pages);
	for (u32 i = 0; i < 3; i++)
		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	CHECK(engine->depots[size].full.count == engine->depots[size].full_max);
	world_end(world);
}

/* No CPU is visited again while a depot has more than its own magazines. */
static void reclaims_over(void)
{
	check_over(1);
	check_over(2);
}

/* A round that begins while magazines of the last are left visits as many CPUs at once as any. */
static void reclaims_anew(void)
{
	struct world *world = begin(xs_policy_find("strict"), 160, TEST_CPUS, 0);
	const struct xs_engine *engine = &world->engine;
	const struct xs_cache *last = &engine->cpus[TEST_CPUS - 1]->magazines[0];
	struct mapping lone = { .pages = 1 };

	/* More than a map takes out of the depots. */
	for (u32 cpu = TEST_CPUS / 2; cpu < TEST_CPUS; cpu++)
		cache_on(world, cpu, 18, 1);
	for (u32 i = 0; i < 2; i++)
		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	CHECK(xs_a64_read(&engine->reclaim_at) == TEST_CPUS && engine->depots[0].full.count);
	cache_on(world, TEST_CPUS - 1, 1, 1);
	world->now_ns += 10000000;
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1) && xs_cache_count(last));
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1) && !xs_cache_count(last));
	world_end(world);
}

/*
 * A map gets a block that an idle CPU caches, as ranges of @pages pages, while traffic of ranges of
 * @busy pages keeps its depot full: neither the round nor the depot's share of the map's work lasts
 * for ever. The blocks of the traffic have a range each that stays mapped.
 */
static void check_beside_traffic(u32 busy, u32 pages)
{
	struct world *world = begin(xs_policy_find("strict"), 86, 4, 0);
	struct mapping large = { .pages = XS_BLOCK_PAGES }, lone = { .pages = 1 };
	static struct mapping idle[XS_BLOCK_PAGES], stays[84];
	const u32 ranges = XS_BLOCK_PAGES / busy;
	u32 count = 0, tries = 0;

	test_be_cpu(1);
	for (; count * pages < XS_BLOCK_PAGES; count++)
		idle[count] = map(world, pages, LAST);
	test_be_cpu(2);
	for (u32 i = 0; i < 84 * ranges; i++)
		many[i] = map(world, busy, LAST);
	for (u32 i = 0; i < 84 * ranges; i++)
		if (i % ranges)
			driver_unmap(world, &many[i], false);
		else
			stays[i / ranges] = many[i];
	/* A round that has visited all CPUs; no page is so low. */
	test_be_cpu(0);
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	test_be_cpu(1);
	while (count)
		driver_unmap(world, &idle[--count], false);
	do {
		world_advance(world, 20000000);
		cache_on(world, 2, 79, busy);
		CHECK(world->engine.depots[size_of(busy)].full.count >= 60);
	} while (!driver_map(world, &large, LAST) && ++tries < 8);
	CHECK(tries < 8);
	if (tries < 8)
		driver_unmap(world, &large, false);
	for (u32 i = 0; i < 84; i++)
		driver_unmap(world, &stays[i], false);
	world_end(world);
}

static void reclaims_beside_traffic(void)
{
	check_beside_traffic(1, 1);
	check_beside_traffic(1, 2);
	check_beside_traffic(2, 1);
}

static void starve(void *argument, u32 cpu)
{
	struct world *world = argument;

	(void)cpu;
	for (u32 i = 0; i < 3; i++) {
		struct mapping lone = { .pages = 1 };

		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	}
}

/* Maps of half of the CPUs starve at once: the batches of the other half are flushed once. */
static void reclaims_seed(u64 seed)
{
	struct world *world = begin(xs_policy_find(seed % 2 ? "fused" : "lazy"), 64, TEST_CPUS, 0);
	u64 flushes;

	test_replay(seed, 0);
	for (u32 cpu = TEST_CPUS / 2; cpu < TEST_CPUS; cpu++) {
		test_be_cpu(cpu);
		many[cpu] = map(world, 1, LAST);
		driver_unmap(world, &many[cpu], false);
	}
	test_be_cpu(0);
	flushes = world->invalidations;
	if (!test_threads(TEST_CPUS / 2, seed, starve, world))
		test_threads(TEST_CPUS / 2, 0, starve, world);
	test_be_cpu(0);
	CHECK(world->invalidations == flushes + TEST_CPUS / 2);
	CHECK(!world_stats(world)->counts.bad_unmaps);
	world_check_flushed(world);
	world_end(world);
}

static void reclaims_at_once(void)
{
	test_seeds(60, reclaims_seed);
}

/*
 * Every CPU has many listed blocks, none of them below the limit of a map. The search of the map
 * ends after the lists of some CPUs, and the next search continues from there.
 */
static void many_listed(void)
{
	const u32 blocks = 34;
	struct world *world = begin(xs_policy_find("fused"), TEST_CPUS * blocks + 1,
				    TEST_CPUS, 0);
	struct xs_engine *engine = &world->engine;
	const u32 *next = &engine->cpus[0]->search_cpu;
	struct mapping lone = { .pages = 1 };
	static u64 own[TEST_CPUS * 34];
	u32 count = 0, before;

	for (; count < TEST_CPUS * blocks; count++) {
		test_be_cpu(count % TEST_CPUS);
		own[count] = xs_engine_alloc_block(engine, XS_BLOCK_PAGES, LAST);
		xs_engine_drop_in_block(engine, own[count], XS_LIST_MIN_FREE);
	}
	test_be_cpu(0);
	/* These maps end a round of reclaims, so the last map searches once. */
	for (u32 i = 0; i < 2; i++)
		CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	before = *next;
	CHECK(!driver_map(world, &lone, XS_BLOCK_BYTES - 1));
	/* Behind the CPU itself, seven CPUs were searched, and not the eighth, the CPU itself again. */
	CHECK(!before && !*next);
	while (count--)
		xs_engine_drop_in_block(engine, own[count] + XS_LIST_MIN_FREE * XS_PAGE_BYTES,
					XS_BLOCK_PAGES - XS_LIST_MIN_FREE);
	world_end(world);
}

/* IOVAs cached under one placement are not cached under the other. */
static void check_changed(const struct xs_policy *from, const struct xs_policy *to)
{
	struct xs_tuning tuning = xs_tuning_default(to);
	struct world *world = begin(from, WORLD_BLOCKS_MAX, 4, 0);
	u32 count = 0;

	for (u32 cpu = 0; cpu < 4; cpu++) {
		test_be_cpu(cpu);
		for (u32 i = 0; i < 32; i++)
			many[count++] = map(world, 1 + i % 16, LAST);
		for (u32 i = 0; i < 600; i++)
			many[count++] = map(world, 1, LAST);
	}
	/* More than CPUs cache themselves, so that depots have some, too. */
	test_be_cpu(3);
	while (count)
		driver_unmap(world, &many[--count], false);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	test_be_cpu(0);
	world_set_policy(world, to, &tuning);
	if (from->placement != to->placement)
		CHECK(!world->engine.space.taken);
	CHECK(!(world->engine.mode & XS_MODE_LOCAL) == (to->placement != XS_PLACE_BLOCK));
	world_end(world);
}

static void changed(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++)
		for (u32 j = 0; j < xs_policy_count && !test_failed(); j++) {
			test_relax();
			check_changed(&xs_policies[i], &xs_policies[j]);
		}
}

/* Nothing stays cached of what a CPU has cached that has gone offline. */
static void retired(void)
{
	struct world *world = begin(xs_policy_find("xsmmu"), WORLD_BLOCKS_MAX, 2, 0);

	for (u32 pages = 1; pages <= XS_BLOCK_PAGES && !test_failed(); pages *= 2) {
		u32 count = 0;

		while (count * pages < 2 * XS_CACHE_PAGES)
			many[count++] = map(world, pages, LAST);
		while (count)
			driver_unmap(world, &many[--count], false);
		test_be_cpu(1);
		xs_engine_retire_cpu(&world->engine, 0);
		CHECK(!world->engine.space.taken);
		test_be_cpu(0);
	}
	world_end(world);
}

/* For each size, a depot keeps at most as many pages as a depot of single pages. */
static void depots(void)
{
	struct world *world = begin(xs_policy_find("xsmmu"), WORLD_BLOCKS_MAX,
				    1, 0);

	for (u32 lg2 = 0; lg2 < XS_SIZES && !test_failed(); lg2++) {
		u32 pages = 1u << lg2, count = 0;
		u64 kept;

		test_relax();
		while (count * pages < 9000 && count < 8192)
			many[count++] = map(world, pages, LAST);
		while (count)
			driver_unmap(world, &many[--count], false);
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
		kept = xs_depot_count(&world->engine.depots[lg2]) << lg2;
		CHECK(kept <= 64 * 62 && kept > 64 * 62 / 2);
	}
	world_end(world);
}

/* A CPU always finds the IOVAs in the CPU's own batch, without asking other CPUs. */
static void own_batch(void)
{
	struct world *world = begin(xs_policy_find("fused"), 2, 2, 0);
	struct mapping other;

	test_be_cpu(1);
	other = map(world, 32, LAST);
	driver_unmap(world, &other, false);
	test_be_cpu(0);
	for (u32 round = 0; round < 10 && !test_failed(); round++) {
		struct mapping all = map(world, XS_BLOCK_PAGES, LAST);

		driver_unmap(world, &all, false);
	}
	CHECK(!world_stats(world)->map_failures);
	world_end(world);
}

/*
 * A CPU that claims a block first takes the pages and unlists the block later. A map that finds
 * only such blocks looks at few of them, and fails.
 */
static void claimed(void)
{
	const u32 blocks = 30, looks = 8;
	struct world *world = begin(xs_policy_find("fused"), blocks, 1, 0);
	const u32 *listed = &world->engine.cpus[0]->partial.listed[0];
	u64 free[30] = { 0 };
	struct mapping lone = { .pages = 1 };
	u32 count = 0;

	while (count < (blocks - 1) * XS_BLOCK_PAGES)
		many[count++] = map(world, 1, LAST);
	for (u32 i = 0; i < count; i++)
		if (i % XS_BLOCK_PAGES < XS_LIST_MIN_FREE)
			driver_unmap(world, &many[i], false);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	/* One block is open. */
	CHECK(*listed == blocks - 2);
	for (u32 i = 1; i < blocks; i++)
		free[i] = xs_block_take_all(block_at(world,
						     i * XS_BLOCK_BYTES));
	/* Two searches: CPUs give up cached IOVAs in between. */
	CHECK(!driver_map(world, &lone, LAST));
	CHECK(*listed < blocks - 2 && *listed >= blocks - 2 - 2 * looks);
	for (u32 i = 1; i < blocks; i++)
		CHECK(!xs_block_free(block_at(world, i * XS_BLOCK_BYTES),
				     free[i]));
	lone = map(world, 1, LAST);
	driver_unmap(world, &lone, false);
	while (count--)
		if (count % XS_BLOCK_PAGES >= XS_LIST_MIN_FREE)
			driver_unmap(world, &many[count], false);
	world_end(world);
}

/*
 * A driver's block with a reserved part comes back as a whole, even if the policy caches
 * order-n ranges by then.
 */
static void reserved(void)
{
	const struct xs_policy *pieces = xs_policy_find("xsmmu");
	struct xs_tuning tuning = xs_tuning_default(pieces);
	struct world *world = begin(xs_policy_find("fused"), 2, 1, 0);
	u64 iova = xs_engine_alloc_block(&world->engine, 10, LAST);
	struct mapping lone = { .pages = XS_BLOCK_PAGES };

	for (u32 i = 0; i < 10; i++) {
		many[i] = (struct mapping) { .pages = 1, .prot = PROT_READ_ };
		CHECK(driver_map_at(world, &many[i], iova + i * XS_PAGE_BYTES));
	}
	/* CPUs give up cached IOVAs now, and not soon again. */
	CHECK(!driver_map(world, &lone, LAST));
	world_set_policy(world, pieces, &tuning);
	for (u32 i = 0; i < 10; i++)
		driver_unmap(world, &many[i], false);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	lone = map(world, XS_BLOCK_PAGES, LAST);
	driver_unmap(world, &lone, false);
	world_end(world);
}

/*
 * The backend's pointer of a block is dropped when the block comes back, because a large
 * mapping may be placed there next and free the page-table page.
 */
static void entries(void)
{
	const u32 blocks = 2 * TABLE_PAGES / XS_BLOCK_PAGES, pages = TABLE_PAGES / 512;
	struct world *world = begin(xs_policy_find("fused"), blocks + 1, 1, 0);
	struct mapping large = { .pages = TABLE_PAGES, .prot = PROT_READ_ };
	u32 count = 0;

	for (u32 round = 0; round < 2; round++) {
		while (count < (blocks - 1) * XS_BLOCK_PAGES / pages)
			many[count++] = map(world, pages, LAST);
		CHECK(xs_load(&block_at(world, many[600].iova)->entries));
		while (count)
			driver_unmap(world, &many[--count], false);
		xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
		xs_engine_retire_cpu(&world->engine, 0);
		CHECK(!xs_load(&block_at(world, many[600].iova)->entries));
		CHECK(driver_map(world, &large, LAST));
		driver_unmap(world, &large, false);
	}
	world_end(world);
}

/* The backend may drop the pointer at any time, and stores a new one later. */
static void entries_forgotten(void)
{
	struct world *world = begin(xs_policy_find("fused"), 64, 1,
				    LOW - 20 * XS_BLOCK_BYTES);
	u32 count = 0;

	for (u32 round = 0; round < 2; round++) {
		while (count < (round + 1) * 20 * XS_BLOCK_PAGES)
			many[count++] = map(world, 1, LAST);
		for (u32 i = 0; i < count; i += XS_BLOCK_PAGES)
			CHECK(xs_load(&block_at(world, many[i].iova)->entries) ||
			      i < round * 20 * XS_BLOCK_PAGES);
		xs_space_clear_entries(&world->engine.space);
		for (u32 i = 0; i < count; i++)
			CHECK(!xs_load(&block_at(world, many[i].iova)->entries));
	}
	while (count)
		driver_unmap(world, &many[--count], false);
	world_end(world);
}

/* A driver unmaps a page that is being mapped, and the backend stores the pointer too late. */
static void entries_late(void)
{
	struct world *world = begin(xs_policy_find("fused"), 17, 1, 0);
	struct xs_space *space = &world->engine.space;
	xs_flags_t flags = xs_local_save();
	struct xs_block *block = xs_space_alloc_block(space, LAST);

	xs_space_free_blocks(space, &block, 1);
	xs_store(&block->entries, (void *)world);
	CHECK(xs_space_alloc_block(space, LAST) == block);
	CHECK(!xs_load(&block->entries));
	xs_space_free_blocks(space, &block, 1);
	xs_local_restore(flags);
	world_end(world);
}

/* Blocks that came back in any order are handed out in address order, for few commands. */
static void in_order(void)
{
	static const u32 order[] = { 5, 0, 3, 6, 1, 7, 2, 4 };
	struct world *world = begin(xs_policy_find("fused"), 32, 1, 0);

	for (u32 i = 0; i < 15; i++)
		many[i] = map(world, XS_BLOCK_PAGES, LAST);
	for (u32 i = 0; i < 8; i++) {
		driver_unmap(world, &many[7 + order[i]], false);
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	}
	/* The last block is open. */
	many[14] = map(world, XS_BLOCK_PAGES, LAST);
	CHECK(many[14].iova == 15 * XS_BLOCK_BYTES);
	for (u32 i = 7; i < 14; i++) {
		many[i] = map(world, XS_BLOCK_PAGES, LAST);
		CHECK(many[i].iova == (i + 1) * XS_BLOCK_BYTES);
	}
	for (u32 i = 0; i < 15; i++)
		driver_unmap(world, &many[i], false);
	world_end(world);
}

/* ---- limits ---- */

/* A 32-bit device is served from the reserved low space when all else is full. */
static void low_limit(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++) {
		struct world *world = begin(&xs_policies[i], 60, 1,
					    LOW - 20 * XS_BLOCK_BYTES);
		u32 count = 0, low = 0;

		/* 20 blocks are below 4 GiB; half of them are reserved. */
		for (; count < 50; count++) {
			many[count] = map(world, 40, LAST);
			low += many[count].iova < LOW;
		}
		CHECK(low == 10);
		for (; count < 58; count++)
			many[count] = map(world, 40, LOW - 1);
		many[count++] = map(world, 1, LOW - 1);
		many[count++] = map(world, 3, LOW - 1);
		/* Other devices get the rest when nothing else is left. */
		many[count++] = map(world, 1, LAST);
		while (count--)
			driver_unmap(world, &many[count], false);
		world_end(world);
	}
}

/*
 * Space reserved for a 32-bit device stays reserved, page by page, however often the device
 * maps and unmaps while other devices map and keep pages.
 */
static void low_stays(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++) {
		struct world *world = begin(&xs_policies[i], 60, 1,
					    LOW - 20 * XS_BLOCK_BYTES);
		u32 count = 0, low = 0;

		while (count < 35 * XS_BLOCK_PAGES && !test_failed()) {
			struct mapping lone = map(world, 1, LOW - 1);

			driver_unmap(world, &lone, false);
			for (u32 at = 0; at < 8; at++) {
				many[count] = map(world, 1, LAST);
				low += many[count++].iova < LOW;
			}
			world_poll(world);
		}
		CHECK(low <= 10 * XS_BLOCK_PAGES);
		xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
		CHECK(world->engine.space.low_free >=
		      world->engine.space.low_reserved);
		while (count)
			driver_unmap(world, &many[--count], false);
		world_end(world);
	}
}

/* No partial list has more blocks than are taken, or lists more blocks than the list has. */
static void check_partials(struct world *world)
{
	for (u32 cpu = 0; cpu < world->cpus; cpu++)
		for (u32 i = 0; i < XS_PARTIAL_LISTS; i++) {
			struct xs_partial *partial = &world->engine.cpus[cpu]->partial;

			CHECK(partial->taken[i] <= world->engine.space.taken);
			CHECK(partial->listed[i] <= partial->taken[i]);
		}
}

/*
 * The reservation also holds if a CPU without an open block first maps for the 32-bit device:
 * pages for other devices come from another block.
 */
static void check_low_closed(const struct xs_policy *policy)
{
	struct world *world = begin(policy, 60, 1, LOW - 20 * XS_BLOCK_BYTES);
	u32 count = 0, low = 0;

	while (count < 35 * XS_BLOCK_PAGES && !test_failed()) {
		struct mapping lone;

		if (count % 512 == 0)
			xs_engine_retire_cpu(&world->engine, 0);
		lone = map(world, 1, LOW - 1);
		for (u32 at = 0; at < 8; at++) {
			many[count] = map(world, 1, LAST);
			low += many[count++].iova < LOW;
		}
		driver_unmap(world, &lone, false);
		world_poll(world);
	}
	CHECK(low <= 10 * XS_BLOCK_PAGES);
	check_partials(world);
	while (count)
		driver_unmap(world, &many[--count], false);
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	xs_engine_retire_cpu(&world->engine, 0);
	check_partials(world);
	world_end(world);
}

static void low_closed(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++)
		check_low_closed(&xs_policies[i]);
}

/* Pages of a driver's own reserved-low block come back to the block, and to no other block. */
static void check_low_own(const struct xs_policy *policy)
{
	struct world *world = begin(policy, 60, 1, LOW - 20 * XS_BLOCK_BYTES);
	u32 count = 0;
	u64 iova;

	while (count < 11 * XS_BLOCK_PAGES)
		many[count++] = map(world, 1, LAST);
	iova = xs_engine_alloc_block(&world->engine, XS_BLOCK_PAGES, LOW - 1);
	CHECK(iova && block_at(world, iova)->reserved_low);
	for (u32 at = 0; at < XS_BLOCK_PAGES; at++) {
		many[count + at] = (struct mapping){ .pages = 1 };
		CHECK(driver_map_at(world, &many[count + at],
				    iova + at * XS_PAGE_BYTES));
	}
	for (u32 at = 0; at < XS_BLOCK_PAGES; at++)
		driver_unmap(world, &many[count + at], false);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	for (u32 at = 0; at < 3 * XS_BLOCK_PAGES; at++) {
		many[count] = map(world, 1, LAST);
		CHECK(many[count++].iova >= LOW);
	}
	while (count)
		driver_unmap(world, &many[--count], false);
	world_end(world);
}

static void low_own(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++)
		check_low_own(&xs_policies[i]);
}

/* A CPU that must use another CPU's blocks uses reserved-low blocks last. */
static void low_last(void)
{
	struct world *world = begin(xs_policy_find("fused"), 60, 2,
				    LOW - 20 * XS_BLOCK_BYTES);
	u32 count = 0, low;

	test_be_cpu(1);
	while (count < 50 * XS_BLOCK_PAGES)
		many[count++] = map(world, 1, LAST);
	low = count;
	while (count < low + 450)
		many[count++] = map(world, 1, LOW - 1);
	/* 20 free pages in one block of each kind. */
	for (u32 i = 0; i < 20; i++) {
		driver_unmap(world, &many[i], false);
		driver_unmap(world, &many[low + i], false);
	}
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	test_be_cpu(0);
	for (u32 i = 0; i < 20; i++) {
		many[i] = map(world, 1, LAST);
		CHECK(!block_at(world, many[i].iova)->reserved_low);
	}
	while (count--)
		if (count < low || count >= low + 20)
			driver_unmap(world, &many[count], false);
	world_end(world);
}

/* A block that was reserved low, and is ordinary when taken again, is like any other block. */
static void low_once(void)
{
	struct world *world = begin(xs_policy_find("fused"), 60, 1,
				    LOW - 20 * XS_BLOCK_BYTES);
	struct xs_engine *engine = &world->engine;

	for (u32 i = 0; i < 20; i++)
		many[i] = map(world, XS_BLOCK_PAGES, LOW - 1);
	/* The fourth block is taken again when no other block is left. */
	driver_unmap(world, &many[3], false);
	xs_engine_retire_cpu(engine, 0);
	many[3] = map(world, XS_BLOCK_PAGES, LOW - 1);
	CHECK(block_at(world, many[3].iova)->reserved_low);
	for (u32 i = 0; i < 20; i++)
		driver_unmap(world, &many[i], false);
	xs_engine_retire_cpu(engine, 0);
	CHECK(!engine->space.taken);
	for (u32 i = 0; i < 5; i++) {
		many[i] = map(world, XS_BLOCK_PAGES, LAST);
		CHECK(!block_at(world, many[i].iova)->reserved_low);
	}
	for (u32 i = 0; i < 5; i++)
		driver_unmap(world, &many[i], false);
	world_end(world);
}

/* With a limit inside open, cached and partial blocks. */
static void limit_seed(u64 seed)
{
	const struct xs_policy *policy = &xs_policies[seed % xs_policy_count];
	struct world *world = begin(policy, 40, 2, seed % 2 ?
				    LOW - 16 * XS_BLOCK_BYTES : 0);
	u64 random = seed, start = world->first_page << XS_PAGE_LG2;
	u32 count = 0;

	for (u32 step = 0; step < 1500 && !test_failed(); step++) {
		struct mapping *mapping = &many[count];
		u32 pages = 1 + test_below(&random,
					   1 + (64u >> test_below(&random, 9)));
		u64 last = start + (2 + test_below(&random, 38)) *
				   XS_BLOCK_BYTES - 1 -
			   test_below(&random, 3) * XS_PAGE_BYTES;

		test_replay(seed, step);
		test_be_cpu(test_below(&random, 2));
		*mapping = (struct mapping){ .pages = pages };
		if (test_below(&random, 5) > 2 && count < 300) {
			/* The driver checks the limit. */
			count += driver_map(world, mapping, last);
		} else if (count) {
			u32 at = test_below(&random, count);

			driver_unmap(world, &many[at], false);
			many[at] = many[--count];
		}
		world_advance(world, 1000 * test_below(&random, 900));
	}
	while (count && !test_failed())
		driver_unmap(world, &many[--count], false);
	test_be_cpu(0);
	if (test_failed())
		world_free(world);
	else
		world_end(world);
}

static void limits(void)
{
	test_seeds(20, limit_seed);
}

/* ---- high spaces ---- */

static void check_far(const struct xs_policy *policy, u64 start)
{
	static const u32 pages[] = { 1, 3, 64, 65, 1000, 1024, 2500 };
	struct world *world = begin(policy, WORLD_BLOCKS_MAX, 2, start);

	for (u32 round = 0; round < 3; round++) {
		for (u32 i = 0; i < 7; i++) {
			struct mapping mapping = {
				.pages = pages[i], .prot = PROT_WRITE_,
				.parts = round, .kind = MEMORY_COUNTED,
			};

			test_be_cpu(i % 2);
			CHECK(driver_map(world, &mapping, LAST));
			CHECK(mapping.iova >= start);
			driver_check(world, &mapping);
			test_be_cpu(i / 2 % 2);
			driver_unmap(world, &mapping, false);
		}
		/* There is nothing below the space. */
		many[0] = (struct mapping){ .pages = 1 };
		if (start)
			CHECK(!driver_map(world, &many[0], start - 1));
		world_advance(world, 20000000);
		world_check_flushed(world);
		world_trim(world, true);
	}
	test_be_cpu(0);
	world_end(world);
}

static void far(void)
{
	static const u64 starts[] = {
		0, LOW, LOW - 100 * XS_BLOCK_BYTES, 1ULL << 42, 1ULL << 45,
		NEAR - 100 * XS_BLOCK_BYTES,
		(1ULL << 45) + 3 * XS_BLOCK_BYTES,
		XS_SPACE_END - WORLD_BLOCKS_MAX * XS_BLOCK_BYTES,
	};

	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++)
		for (u32 j = 0; j < sizeof(starts) / sizeof(starts[0]); j++)
			check_far(&xs_policies[i], starts[j]);
}

/* ---- memory that is given back ---- */

/*
 * All blocks are used and given back: the engine reports a surplus, and the descriptions of the
 * blocks are freed, except for a few. Page-table pages are pruned, too.
 */
static void trim(void)
{
	for (u32 i = 0; i < 2 * xs_policy_count && !test_failed(); i++) {
		const struct xs_policy *policy = &xs_policies[i / 2];
		u64 start = i % 2 ? 1ULL << 45 : 0;
		struct world *world = begin(policy, 200, 1, start);
		u64 before = 0, most, leaves;
		u32 count = 0;

		world->engine.space.empty_min = 2;
		for (u32 round = 0; round < 3; round++) {
			for (count = 0; count < 190; count++)
				many[count] = map(world, 50, LAST);
			test_relax();
			most = world->allocations;
			leaves = world->engine.space.tree.leaves;
			world->surplus = 0;
			while (count--)
				driver_unmap(world, &many[count], false);
			xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
			xs_engine_retire_cpu(&world->engine, 0);
			world_advance(world, 20000000);
			/* Magazines may keep blocks in use, but not with 50 pages. */
			CHECK(world->surplus == 1);
			world_trim(world, false);
			CHECK(world->engine.space.tree.empty <= 2 + (start != 0));
			CHECK(world->engine.space.tree.leaves < leaves / 2);
			CHECK(world->allocations < most - leaves);
			CHECK(world->pruned >= (leaves - 6) * XS_LEAF_PAGES);
			CHECK(!round || world->allocations == before);
			before = world->allocations;
			world->pruned = 0;
			world_trim(world, true);
			CHECK(world->allocations == before && !world->pruned);
		}
		world_end(world);
	}
}

/*
 * More leaves are empty than one step of a trim handles: the trim continues until only the
 * spare leaves are left.
 */
static void trim_many(void)
{
	struct world *world = begin(xs_policy_find("fused"), WORLD_BLOCKS_MAX,
				    1, 0);
	struct xs_engine *engine = &world->engine;
	u32 count = WORLD_BLOCKS_MAX - 1;

	engine->space.empty_min = 3;
	for (u32 i = 0; i < count; i++)
		many[i].iova = xs_engine_alloc_block(engine, 1, LAST);
	CHECK(engine->space.tree.leaves >= XS_DETACH_MAX + 4);
	while (count--)
		xs_engine_drop_in_block(engine, many[count].iova, 1);
	xs_engine_retire_cpu(engine, 0);
	CHECK(!engine->space.taken && world->surplus == 1);
	world_trim(world, false);
	CHECK(engine->space.tree.empty == 3);
	world_end(world);
}

/*
 * A CPU may have a block open that another CPU claimed and gave back, and whose leaf is freed
 * then. The first CPU found the block on a list while the block was in the free-block cache.
 */
static void check_trim_open(u32 lg2)
{
	struct world *world = begin(xs_policy_find("fused"), 64, 2, LOW);
	struct xs_engine *engine = &world->engine;
	struct mapping mapping = map(world, 1u << lg2, LAST);
	struct xs_block *block = block_at(world, mapping.iova);

	engine->space.empty_min = 0;
	CHECK(engine->cpus[0]->open[lg2] == block);
	/* Simulates the result of an interleaving: CPU 1 has the block open, too. */
	engine->cpus[1]->open[lg2] = block;
	driver_unmap(world, &mapping, false);
	xs_engine_retire_cpu(engine, 0);
	CHECK(!engine->space.taken && engine->cpus[1]->open[lg2] == block);
	world_trim(world, true);
	if (!CHECK(engine->cpus[1]->open[lg2] != block)) {
		world_free(world);
		return;
	}
	test_be_cpu(1);
	mapping = map(world, 1u << lg2, LAST);
	driver_unmap(world, &mapping, false);
	test_be_cpu(0);
	world_end(world);
}

/* A CPU's local pages may be the last pages of a block that another CPU has closed. */
static void local_shared(void)
{
	struct world *world = begin(xs_policy_find("fused"), 64, 2, LOW);
	struct xs_engine *engine = &world->engine;
	struct mapping mapping = map(world, 1, LAST);
	struct xs_block *block = block_at(world, mapping.iova);

	CHECK(engine->cpus[0]->open[0] == block && engine->cpus[0]->local);
	/* Simulates the result of an interleaving: CPU 1 has the block open, too. */
	engine->cpus[1]->open[0] = block;
	xs_engine_retire_cpu(engine, 1);
	driver_unmap(world, &mapping, true);
	CHECK(!xs_a64_read(&block->open) && engine->space.taken == 1);
	xs_engine_retire_cpu(engine, 0);
	CHECK(!engine->space.taken);
	world_end(world);
}

static void trim_open(void)
{
	for (u32 lg2 = 0; lg2 < XS_SIZES && !test_failed(); lg2++)
		check_trim_open(lg2);
}

static u64 runs[400];

/* A world with a space above all near leaves, where large mappings take whole leaves. */
static struct world *begin_large(void)
{
	struct world *world = begin(xs_policy_find("fused"), 64, 1, 0);
	struct xs_space *space = &world->engine.space;

	/* The original space is unused. */
	xs_space_destroy(space);
	CHECK(!xs_space_init(space, world->engine.ops, world->engine.backend, NEAR,
			     4 * NEAR));
	return world;
}

static u64 alloc_extent_of(struct world *world, u32 pages)
{
	xs_flags_t flags = xs_local_save();
	u64 iova = xs_space_alloc_extent(&world->engine.space, pages, LAST);

	xs_local_restore(flags);
	return iova;
}

static void give_run(struct world *world, u64 iova, u32 pages)
{
	xs_flags_t flags = xs_local_save();

	xs_space_free_extent(&world->engine.space, iova, pages);
	xs_local_restore(flags);
}

static void alloc_extents(struct world *world, u32 first, u32 end)
{
	for (u32 i = first; i < end; i++)
		runs[i] = alloc_extent_of(world, XS_LEAF_PAGES);
}

static void free_extents(struct world *world, u32 first, u32 end)
{
	for (u32 i = first; i < end; i++)
		give_run(world, runs[i], XS_LEAF_PAGES);
}

static void check_trimmed(const struct world *world)
{
	CHECK(world->engine.space.tree.empty == world->engine.space.empty_min);
}

/* There is no surplus while more than half of the leaves are used. */
static void trim_half(void)
{
	struct world *world = begin_large();

	alloc_extents(world, 0, 100);
	free_extents(world, 0, 48);
	CHECK(!world->surplus);
	free_extents(world, 48, 60);
	CHECK(world->surplus == 1);
	free_extents(world, 60, 100);
	CHECK(world->surplus == 1);
	world_end(world);
}

/* A trim that finds nothing any more: the backend hears of the next surplus. */
static void trim_late(void)
{
	struct world *world = begin_large();

	for (u32 round = 0; round < 2; round++) {
		alloc_extents(world, 0, 40);
		world_trim(world, false);
		CHECK(!world->surplus);
		free_extents(world, 0, 40);
		CHECK(world->surplus == 1);
	}
	world_trim(world, false);
	check_trimmed(world);
	world_end(world);
}

/*
 * The same if a surplus remains at the end of the trim: leaves are empty, but inside a mapping
 * of whole leaves.
 */
static void trim_inside(void)
{
	struct world *world = begin_large();
	u64 all;

	alloc_extents(world, 0, 40);
	free_extents(world, 0, 40);
	CHECK(world->surplus == 1);
	all = alloc_extent_of(world, 1u << XS_NEAR_LG2);
	CHECK(all == NEAR);
	world_trim(world, false);
	CHECK(!world->surplus);
	give_run(world, all, 1u << XS_NEAR_LG2);
	CHECK(world->surplus == 1);
	world_trim(world, false);
	check_trimmed(world);
	world_end(world);
}

/* Empty leaves lie behind more used leaves than a trim scans in one step. */
static void trim_behind(void)
{
	struct world *world = begin_large();

	alloc_extents(world, 0, 400);
	free_extents(world, 300, 400);
	world_trim(world, true);
	check_trimmed(world);
	free_extents(world, 0, 300);
	world_end(world);
}

static void give_passed(struct world *world)
{
	world->meanwhile = NULL;
	free_extents(world, 0, 200);
}

/* While a trim waits, leaves behind the scan become empty: the trim frees them, too. */
static void trim_passed(void)
{
	struct world *world = begin_large();

	alloc_extents(world, 0, 400);
	free_extents(world, 340, 400);
	world->meanwhile = give_passed;
	world_trim(world, true);
	CHECK(!world->meanwhile);
	check_trimmed(world);
	free_extents(world, 200, 340);
	world_end(world);
}

/* ---- list of mappings ---- */

/* The engine lists exactly the existing mappings, each once and in order. */
static void check_named(struct world *world, u32 count)
{
	u64 iova = 0, pages = 0, named = 0;
	u32 found;

	for (; xs_engine_next_mapping(&world->engine, &iova, &found); named++) {
		u32 at = 0;

		while (at < count && many[at].iova != iova)
			at++;
		if (!CHECK(at < count) || !CHECK(many[at].pages == found))
			return;
		pages += found;
		iova += found * XS_PAGE_BYTES;
	}
	CHECK(named == count);
	CHECK(pages == world_mapped_pages(world));
	CHECK((s64)pages == xs_engine_live_pages(&world->engine));
}

static void named_seed(u64 seed)
{
	static struct xs_stats sum;
	const struct xs_policy *policy = &xs_policies[seed % xs_policy_count];
	struct world *world = begin(policy, 100, 2, seed % 3 << 44);
	u64 random = seed, iova = LAST;
	u32 count = 0, pages;

	for (u32 step = 0; step < 300 && !test_failed(); step++) {
		struct mapping *mapping = &many[count];

		test_replay(seed, step);
		*mapping = (struct mapping){
			.pages = 1 + test_below(&random, 300u >>
						test_below(&random, 9)),
			.parts = test_below(&random, 3),
			.kind = test_below(&random, MEMORY_KINDS),
		};
		if (test_below(&random, 5) > 1 && count < 100) {
			count += driver_map(world, mapping, LAST);
		} else if (count) {
			u32 at = test_below(&random, count);

			driver_unmap(world, &many[at], test_below(&random, 2));
			many[at] = many[--count];
		}
		check_named(world, count);
		CHECK(xs_engine_leak_check(&world->engine, &sum) ==
		      xs_engine_live_pages(&world->engine));
	}
	CHECK(!xs_engine_next_mapping(&world->engine, &iova, &pages));
	while (count && !test_failed())
		driver_unmap(world, &many[--count], false);
	if (test_failed())
		world_free(world);
	else
		world_end(world);
}

static void named(void)
{
	test_seeds(30, named_seed);
}

/* Pages of a driver's block count as the block's, until each page is mapped. */
static void named_own(void)
{
	struct world *world = begin(xs_policy_find("fused"), 40, 1, 0);
	static struct xs_stats sum;
	u64 iova = xs_engine_alloc_block(&world->engine, 20, LAST);

	for (u32 i = 0; i < 20 && !test_failed(); i++) {
		many[i] = (struct mapping){ .pages = 1 };
		check_named(world, i);
		CHECK(xs_engine_leak_check(&world->engine, &sum) == i);
		CHECK(driver_map_at(world, &many[i], iova + i * XS_PAGE_BYTES));
	}
	for (u32 i = 20; i--;) {
		check_named(world, i + 1);
		driver_unmap_aware(world, &many[i], 1, false);
	}
	check_named(world, 0);
	world_end(world);
}

const struct test place_tests[] = {
	{ "place_footprint", footprint },
	{ "place_worst", worst },
	{ "place_holes", holes },
	{ "place_moves", moves },
	{ "place_moves_back", moves_back },
	{ "place_left_alone", left_alone },
	{ "place_starved", starved },
	{ "place_reclaims", reclaims },
	{ "place_recalled", recalled },
	{ "place_recalled_for_blocks", recalled_for_blocks },
	{ "place_not_recalled", not_recalled },
	{ "place_not_recalled_in_vain", not_recalled_in_vain },
	{ "place_reclaims_at_end", reclaims_begin_at_the_end },
	{ "place_reclaims_in_turn", reclaims_in_turn },
	{ "place_reclaims_in_parts", reclaims_in_parts },
	{ "place_reclaims_later", reclaims_later },
	{ "place_reclaims_over", reclaims_over },
	{ "place_reclaims_anew", reclaims_anew },
	{ "place_reclaims_beside", reclaims_beside_traffic },
	{ "place_reclaims_at_once", reclaims_at_once, .threads = true },
	{ "place_many_listed", many_listed },
	{ "place_changed", changed },
	{ "place_retired", retired },
	{ "place_depots", depots },
	{ "place_own_batch", own_batch },
	{ "place_claimed", claimed },
	{ "place_entries", entries },
	{ "place_entries_forgotten", entries_forgotten },
	{ "place_entries_late", entries_late },
	{ "place_reserved", reserved },
	{ "place_in_order", in_order },
	{ "place_low_limit", low_limit },
	{ "place_low_stays", low_stays },
	{ "place_low_closed", low_closed },
	{ "place_low_own", low_own },
	{ "place_low_last", low_last },
	{ "place_low_once", low_once },
	{ "place_limits", limits },
	{ "place_far", far },
	{ "place_local_shared", local_shared },
	{ "place_trim", trim },
	{ "place_trim_many", trim_many },
	{ "place_trim_open", trim_open },
	{ "place_trim_half", trim_half },
	{ "place_trim_late", trim_late },
	{ "place_trim_inside", trim_inside },
	{ "place_trim_behind", trim_behind },
	{ "place_trim_passed", trim_passed },
	{ "place_named", named },
	{ "place_named_own", named_own },
	{ NULL, NULL },
};
