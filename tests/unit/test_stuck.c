// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stuck pages: the backend fails to remove pages that the driver has unmapped. The tests' world
 * checks that no IOVA of a stuck page is mapped again, and that memory which can be held is not
 * freed before the removal.
 */
#include "unit_world.h"

#define LAST	(~0ULL)
#define MAPPINGS	8
#define FAILS_FOR_EVER	(1ULL << 40)

/*
 * A mapping of each size and kind of memory that the engine treats differently; and a second
 * page, for which a block is open where the policy places by blocks.
 */
static const struct mapping shapes[MAPPINGS] = {
	{ .pages = 1, .kind = MEMORY_COUNTED, .prot = PROT_READ_ },
	{ .pages = 1, .kind = MEMORY_COUNTED, .prot = PROT_WRITE_ },
	{ .pages = 4, .kind = MEMORY_COUNTED, .prot = PROT_READ_ },
	{ .pages = 5, .kind = MEMORY_FOLIO, .prot = PROT_READ_ | PROT_WRITE_ },
	{ .pages = 7, .kind = MEMORY_FOLIO, .prot = PROT_READ_, .parts = 1 },
	{ .pages = 1, .kind = MEMORY_SLAB, .prot = PROT_READ_ },
	{ .pages = XS_BLOCK_PAGES, .kind = MEMORY_FOLIO, .prot = PROT_WRITE_ },
	{ .pages = 2 * XS_BLOCK_PAGES + 3, .kind = MEMORY_COUNTED,
	  .prot = PROT_READ_ },
};

static struct world *begin(const struct xs_policy *policy)
{
	const struct world_config config = {
		.blocks = 64, .cpus = 2, .policy = policy, .remembers = true,
	};

	return world_new(&config, 0);
}

/* Removals succeed again: nothing is stuck from here on. */
static void mend(struct world *world)
{
	world->removal_fails_in = 0;
	world->removals_to_fail = 0;
	/* A removal may take long: the retry runs outside of calls of the engine. */
	world->removes_outside = true;
	CHECK(!xs_engine_retry(&world->engine));
	world->removes_outside = false;
	CHECK(!xs_engine_stuck_pages(&world->engine));
	world->stuck_pages = 0;
}

/* Unmap all, some with an immediate flush and some as the policy says, then flush. */
static void unmap_all(struct world *world, const struct mapping *mappings,
		      u64 seed)
{
	for (u32 i = 0; i < MAPPINGS; i++)
		driver_unmap(world, &mappings[i], seed >> i & 1);
	world_poll(world);
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
}

/* Map and unmap all shapes; the removal @nth fails, and all after it or none. */
static bool run_round(struct world *world, u64 nth, u64 more, u64 seed)
{
	struct mapping mappings[MAPPINGS];
	u64 removals;

	for (u32 i = 0; i < MAPPINGS; i++) {
		mappings[i] = shapes[i];
		CHECK(driver_map(world, &mappings[i], LAST));
	}
	removals = world->removals;
	world->removal_fails_in = nth;
	world->removals_to_fail = more;
	unmap_all(world, mappings, seed);
	CHECK(xs_engine_stuck_pages(&world->engine) == world->stuck_pages);
	return world->removals - removals >= nth;
}

/* Fail each single removal, and all removals from each on. */
static void check_each_removal(struct world *world, u64 seed)
{
	bool failed = true;

	for (u64 nth = 1; failed && !test_failed(); nth++) {
		for (u64 more = 0; more <= FAILS_FOR_EVER;
		     more += FAILS_FOR_EVER) {
			failed = run_round(world, nth, more, seed);
			CHECK(!failed || world->stuck_pages);
			/* Pages stay stuck as long as the backend fails. */
			if (more && failed)
				CHECK(xs_engine_retry(&world->engine) ==
				      world->stuck_pages);
			CHECK(run_round(world, 0, 0, ~seed));
			mend(world);
		}
	}
}

static void each_removal(void)
{
	for (u32 i = 0; i < xs_policy_count; i++) {
		for (u64 seed = 0; seed < 1 << MAPPINGS; seed += 21) {
			struct world *world = begin(&xs_policies[i]);

			check_each_removal(world, seed);
			world_end(world);
		}
	}
}

/* A map fails, and the backend can neither complete nor undo the map. */
static void check_failed_map(struct world *world, const struct mapping *shape,
			     bool recovers)
{
	struct mapping mapping = *shape, other;

	world->maps_not_undone = true;
	world->map_fails_in = 1;
	world->removal_fails_in = 1;
	world->removals_to_fail = FAILS_FOR_EVER;
	if (recovers)
		world->removal_fails_in = world->removals_to_fail = 0;
	/* The driver frees the memory after the failed map. Some pages may not be mapped. */
	world->removes_none = true;
	CHECK(!driver_map(world, &mapping, LAST));
	world->removes_none = false;
	CHECK(!world->map_fails_in);
	CHECK(xs_engine_stuck_pages(&world->engine) ==
	      (recovers ? 0 : shape->pages));
	world->maps_not_undone = false;
	for (u32 i = 0; i < 2 * XS_BLOCK_PAGES; i++) {
		other = shapes[0];
		CHECK(driver_map(world, &other, LAST));
		driver_unmap(world, &other, true);
	}
	mend(world);
}

static void failed_maps(void)
{
	for (u32 i = 0; i < xs_policy_count; i++) {
		struct world *world = begin(&xs_policies[i]);

		for (u32 at = 0; at < MAPPINGS; at++) {
			if (shapes[at].kind == MEMORY_SLAB)
				continue;
			check_failed_map(world, &shapes[at], false);
			check_failed_map(world, &shapes[at], true);
		}
		world_end(world);
	}
}

/* No unmap finds a mapping where pages are stuck. */
static void no_mapping(void)
{
	struct world *world = begin(xs_policy_find("strict"));
	struct xs_engine *engine = &world->engine;

	for (u32 at = 0; at < MAPPINGS; at++) {
		struct mapping mapping = shapes[at];
		u64 bad_unmaps = world_stats(world)->counts.bad_unmaps;
		u64 iova = 0;
		u32 left;

		CHECK(driver_map(world, &mapping, LAST));
		world->removal_fails_in = 1;
		world->removals_to_fail = FAILS_FOR_EVER;
		driver_unmap(world, &mapping, true);
		CHECK(xs_engine_stuck_pages(engine) == mapping.pages);
		for (u32 pages = 1; pages <= mapping.pages; pages++)
			CHECK(!xs_engine_unmap(engine, mapping.iova, pages,
					       pages & 1));
		CHECK(world_stats(world)->counts.bad_unmaps ==
		      bad_unmaps + mapping.pages);
		CHECK(world_warnings() == mapping.pages);
		CHECK(xs_engine_stuck_pages(engine) == mapping.pages);
		CHECK(!xs_engine_next_mapping(engine, &iova, &left));
		mend(world);
	}
	world_end(world);
}

/*
 * Mappings of each shape and kind, by a batch-aware driver, in one flush whose removals all
 * fail.
 */
static void check_aware(struct world *world, u32 first)
{
	struct mapping mappings[MAPPINGS];

	for (u32 i = 0; i < MAPPINGS; i++) {
		mappings[i] = shapes[(first + i) % MAPPINGS];
		CHECK(driver_map(world, &mappings[i], LAST));
	}
	world->removal_fails_in = 1;
	world->removals_to_fail = FAILS_FOR_EVER;
	driver_unmap_aware(world, mappings, MAPPINGS, first % 2);
	CHECK(xs_engine_stuck_pages(&world->engine) == world->stuck_pages);
	CHECK(world->stuck_pages);
	mend(world);
}

static void aware(void)
{
	for (u32 i = 0; i < xs_policy_count; i++) {
		struct world *world = begin(&xs_policies[i]);

		for (u32 first = 0; first < MAPPINGS; first++)
			check_aware(world, first);
		world_end(world);
	}
}

/* A batch-aware driver's page is removed in the unmap, because there is no memory for a batch. */
static void aware_no_batch(void)
{
	for (u32 i = 0; i < 2 * xs_policy_count; i++) {
		struct world *world = begin(&xs_policies[i / 2]);
		struct mapping mapping = shapes[0];

		/* Unmap on the fast path or on the slow path. */
		world->last_serial += i % 2;
		CHECK(driver_map(world, &mapping, LAST));
		world->removal_fails_in = 1;
		world->alloc_fails_in = 1;
		driver_unmap_aware(world, &mapping, 1, false);
		world->alloc_fails_in = 0;
		CHECK(xs_engine_stuck_pages(&world->engine) == 1);
		mend(world);
		world_end(world);
	}
}

/*
 * Pages of a driver's block, unmapped together; the driver's flush removes none of them, nor
 * does the unmap if there is no memory for a batch.
 */
static void check_in_block(bool no_batch)
{
	static struct mapping mappings[XS_BLOCK_PAGES];

	for (u32 i = 0; i < xs_policy_count; i++) {
		struct world *world = begin(&xs_policies[i]);
		u64 iova = xs_engine_alloc_block(&world->engine, XS_BLOCK_PAGES,
						 LAST);

		CHECK(driver_map_block(world, mappings, XS_BLOCK_PAGES, 4,
				       iova) == XS_BLOCK_PAGES);
		world->removal_fails_in = 1;
		world->removals_to_fail = FAILS_FOR_EVER;
		world->alloc_fails_in = no_batch;
		driver_unmap_block_deferred(world, mappings, XS_BLOCK_ALL);
		world->alloc_fails_in = 0;
		xs_engine_flush_explicit(&world->engine, false);
		xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
		CHECK(xs_engine_stuck_pages(&world->engine) == XS_BLOCK_PAGES);
		for (u32 at = 0; at < XS_BLOCK_PAGES; at++) {
			if (xs_policy_waits(&xs_policies[i]))
				driver_keeps(world, &mappings[at]);
			driver_free(world, &mappings[at]);
		}
		mend(world);
		world_end(world);
	}
}

static void in_block(void)
{
	check_in_block(false);
	check_in_block(true);
}

/*
 * A map in a driver's block fails behind @before pages, and the backend can neither complete
 * nor undo the map's extent of four pages.
 */
static void check_failed_in_block(struct world *world, u32 before, bool recovers)
{
	static struct mapping mappings[XS_BLOCK_PAGES];
	u64 iova = xs_engine_alloc_block(&world->engine, XS_BLOCK_PAGES, LAST);
	u32 rest = before + 4;

	world->maps_not_undone = true;
	world->map_fails_in = before / 4 + 1;
	world->removal_fails_in = recovers ? 0 : 1;
	world->removals_to_fail = recovers ? 0 : FAILS_FOR_EVER;
	CHECK(driver_map_block(world, mappings, XS_BLOCK_PAGES, 4, iova) ==
	      before);
	CHECK(xs_engine_stuck_pages(&world->engine) == (recovers ? 0 : 4));
	world->maps_not_undone = false;
	mend(world);
	for (u32 i = 0; i < before; i++)
		driver_unmap(world, &mappings[i], true);
	/* The last extent of the block leaves no page to the driver. */
	if (rest < XS_BLOCK_PAGES)
		xs_engine_drop_in_block(&world->engine, iova + rest * XS_PAGE_BYTES,
					XS_BLOCK_PAGES - rest);
	CHECK(!xs_engine_live_pages(&world->engine));
}

static void failed_in_block(void)
{
	for (u32 i = 0; i < xs_policy_count; i++) {
		struct world *world = begin(&xs_policies[i]);

		for (u32 before = 0; before < XS_BLOCK_PAGES; before += 20) {
			check_failed_in_block(world, before, false);
			check_failed_in_block(world, before, true);
		}
		world_end(world);
	}
}

/*
 * The last flush of an engine fails, and there is no retry before the end: devices keep access
 * to the pages, so the memory is never given back.
 */
static void to_the_end(void)
{
	for (u32 i = 0; i < xs_policy_count; i++) {
		struct world *world = begin(&xs_policies[i]);
		struct mapping mapping = shapes[0];

		CHECK(driver_map(world, &mapping, LAST));
		world->removal_fails_in = 1;
		world->removals_to_fail = FAILS_FOR_EVER;
		driver_unmap_only(world, &mapping, false);
		xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
		CHECK(xs_engine_stuck_pages(&world->engine) == 1);
		if (world->owner[mapping.iova >> XS_PAGE_LG2] & OWNER_PROMISED) {
			driver_free(world, &mapping);
			xs_engine_destroy(&world->engine);
			CHECK(world->memory[mapping.page].refs == 1);
		} else {
			xs_engine_destroy(&world->engine);
		}
		CHECK(!world->allocations);
		world_free(world);
	}
}

/* ---- failing flushes, concurrent with retries and maps ---- */

#define ROUNDS	60
#define KEPT	12

struct at_once {
	struct world *world;
	u64 seed;
	u32 running;
};

/* Map, unmap and map again: freed pages are handed out at once. */
static void fail_some(struct at_once *at_once, u32 cpu)
{
	u64 random = at_once->seed * TEST_CPUS + cpu;
	struct world *world = at_once->world;
	struct mapping kept[KEPT] = { { 0 } };

	for (u32 i = 0; i < ROUNDS && !test_failed(); i++) {
		struct mapping *mapping = &kept[test_below(&random, KEPT)];

		if (mapping->iova && test_below(&random, 2)) {
			driver_unmap_deferred(world, mapping);
			xs_engine_flush_explicit(&world->engine, false);
			driver_free(world, mapping);
		} else if (mapping->iova) {
			driver_unmap(world, mapping, false);
		}
		mapping->pages = test_below(&random, 4) ? 1 : 3;
		mapping->kind = MEMORY_COUNTED;
		mapping->prot = PROT_READ_;
		if (!CHECK(driver_map(world, mapping, LAST)))
			mapping->iova = 0;
		if (!test_below(&random, 3))
			__atomic_store_n(&world->removal_fails_in,
					 1 + test_below(&random, 4),
					 __ATOMIC_RELAXED);
	}
	for (u32 i = 0; i < KEPT; i++)
		if (kept[i].iova)
			driver_unmap(world, &kept[i], false);
}

static void at_once_run(void *argument, u32 cpu)
{
	struct at_once *at_once = argument;

	if (cpu) {
		fail_some(at_once, cpu);
		__atomic_fetch_add(&at_once->running, -1, __ATOMIC_RELAXED);
		return;
	}
	while (__atomic_load_n(&at_once->running, __ATOMIC_RELAXED) &&
	       !test_failed()) {
		xs_engine_retry(&at_once->world->engine);
		test_relax();
		test_point();
	}
}

/*
 * Returns a policy that defers unmaps of unmodified drivers, so that no unmap reports a failed
 * removal.
 */
static const struct xs_policy *deferring(u64 seed)
{
	static const char *const names[] = { "xsmmu", "lazy", "fands", "fused" };

	return xs_policy_find(names[seed % 4]);
}

static void at_once_seed(u64 seed)
{
	struct world_config config = {
		.blocks = 16, .cpus = TEST_CPUS, .policy = deferring(seed),
		.remembers = true,
	};
	struct at_once *at_once = test_alloc(sizeof(*at_once));

	test_replay(seed, 0);
	at_once->seed = seed;
	at_once->running = TEST_CPUS - 1;
	at_once->world = world_new(&config, 0);
	if (seed % 8 == 0 ||
	    !test_threads(TEST_CPUS, seed, at_once_run, at_once))
		test_threads(TEST_CPUS, 0, at_once_run, at_once);
	test_be_cpu(0);
	at_once->world->removal_fails_in = 0;
	xs_engine_flush(&at_once->world->engine, XS_FLUSH_DRAIN);
	if (test_failed()) {
		world_free(at_once->world);
	} else {
		mend(at_once->world);
		world_end(at_once->world);
	}
	test_free(at_once);
}

static void at_once(void)
{
	test_seeds(120, at_once_seed);
}

/*
 * An unmap is in progress, and slots behind the first slot still name the memory: there is no
 * mapping.
 */
static void none_is_mapped(struct world *world)
{
	u64 iova = 0;
	u32 pages;

	CHECK(!xs_engine_next_mapping(&world->engine, &iova, &pages));
}

static void claimed(void)
{
	struct world *world = begin(xs_policy_find("strict"));

	world->removing = none_is_mapped;
	for (u32 i = 0; i < MAPPINGS; i++) {
		struct mapping mapping = shapes[i];

		CHECK(driver_map(world, &mapping, LAST));
		driver_unmap(world, &mapping, false);
	}
	world_end(world);
}

const struct test stuck_tests[] = {
	{ "stuck_each_removal", each_removal },
	{ "stuck_failed_maps", failed_maps },
	{ "stuck_claimed_is_no_mapping", claimed },
	{ "stuck_is_no_mapping", no_mapping },
	{ "stuck_aware", aware },
	{ "stuck_aware_no_batch", aware_no_batch },
	{ "stuck_in_block", in_block },
	{ "stuck_failed_in_block", failed_in_block },
	{ "stuck_to_the_end", to_the_end },
	{ "stuck_at_once", at_once, .threads = true },
	{ NULL, NULL },
};
