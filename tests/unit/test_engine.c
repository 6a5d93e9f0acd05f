// SPDX-License-Identifier: GPL-2.0-only
/* Tests of each flush point, each hold and each refusal of the engine, separately. */
#include "unit_world.h"

#define LAST	(~0ULL)

/* For tests with more mappings than fit on the stack. */
static struct mapping many[2048];

static struct world *begin(const char *policy, u32 blocks, u32 cpus)
{
	struct world_config config = { .blocks = blocks, .cpus = cpus,
				       .policy = xs_policy_find(policy) };

	return world_new(&config, 0);
}

static struct mapping map(struct world *world, u32 pages, enum memory_kind kind)
{
	struct mapping mapping = { .pages = pages, .kind = kind,
				   .prot = PROT_READ_ | PROT_WRITE_ };

	CHECK(driver_map(world, &mapping, LAST));
	return mapping;
}

static bool flushes_on(const struct xs_policy *policy, enum xs_flush_point point)
{
	return policy->flushes & XS_FLUSH_BIT(point);
}

/* Run @check with a fresh world of @blocks blocks for each policy. */
static void each_policy_with(u32 blocks,
			     void (*check)(struct world *world,
					   const struct xs_policy *policy))
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++) {
		struct world_config config = {
			.blocks = blocks, .cpus = 2, .policy = &xs_policies[i],
		};
		struct world *world = world_new(&config, 0);

		check(world, &xs_policies[i]);
		world_end(world);
	}
}

static void each_policy(void (*check)(struct world *world,
				      const struct xs_policy *policy))
{
	each_policy_with(32, check);
}

/* ---- flush points ---- */

static void check_unmap(struct world *world, const struct xs_policy *policy)
{
	struct mapping mapping = map(world, 3, MEMORY_COUNTED);

	driver_check(world, &mapping);
	driver_unmap(world, &mapping, false);
	CHECK(driver_reachable(world, &mapping) !=
	      flushes_on(policy, XS_FLUSH_UNMAP));
	CHECK(xs_engine_live_pages(&world->engine) == 0);
}

static void unmap(void)
{
	each_policy(check_unmap);
}

static void check_now(struct world *world, const struct xs_policy *policy)
{
	struct mapping one = map(world, 1, MEMORY_COUNTED);
	struct mapping other = map(world, 1, MEMORY_COUNTED);

	driver_unmap(world, &other, false);
	driver_unmap(world, &one, true);
	CHECK(!driver_reachable(world, &one));
	CHECK(driver_reachable(world, &other) !=
	      flushes_on(policy, XS_FLUSH_UNMAP));
}

static void unmap_now_only(void)
{
	each_policy(check_now);
}

static void check_poll(struct world *world, const struct xs_policy *policy)
{
	struct mapping mapping = map(world, 1, MEMORY_COUNTED);

	driver_unmap(world, &mapping, false);
	test_be_cpu(1);
	xs_engine_poll(&world->engine);
	test_be_cpu(0);
	CHECK(driver_reachable(world, &mapping) !=
	      flushes_on(policy, XS_FLUSH_UNMAP));
	world_poll(world);
	CHECK(driver_reachable(world, &mapping) ==
	      !(flushes_on(policy, XS_FLUSH_UNMAP) ||
		flushes_on(policy, XS_FLUSH_POLL)));
	CHECK(world_stats(world)->flushes[XS_FLUSH_POLL] ==
	      flushes_on(policy, XS_FLUSH_POLL));
}

static void poll(void)
{
	each_policy(check_poll);
}

/* A batch's timer also serves later batches: few timers are started, and a drain starts none. */
static void check_timers(struct world *world, const struct xs_policy *policy)
{
	for (u32 i = 0; i < 100; i++) {
		struct mapping mapping = map(world, 1, MEMORY_COUNTED);

		driver_unmap(world, &mapping, false);
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	}
	CHECK(world->timers == !flushes_on(policy, XS_FLUSH_UNMAP));
}

static void timers(void)
{
	each_policy(check_timers);
}

/* The end of a poll reports the state after the poll's own flush. */
static void check_poll_says(struct world *world, const struct xs_policy *policy)
{
	struct mapping mapping = map(world, 1, MEMORY_COUNTED);
	bool empty;

	driver_unmap(world, &mapping, false);
	empty = xs_engine_poll(&world->engine);
	CHECK(empty == (flushes_on(policy, XS_FLUSH_POLL) ||
			flushes_on(policy, XS_FLUSH_UNMAP)));
	CHECK(empty != driver_reachable(world, &mapping));
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	CHECK(xs_engine_poll(&world->engine));
}

static void poll_says(void)
{
	each_policy(check_poll_says);
}

/* The bound counts from the first unmap, even after a poll flushed an earlier unmap. */
static void check_time(struct world *world, const struct xs_policy *policy)
{
	u64 window_ns = policy->window_us * 1000ULL;
	struct mapping first = map(world, 1, MEMORY_COUNTED);
	struct mapping second = map(world, 1, MEMORY_COUNTED);

	driver_unmap(world, &first, false);
	world_advance(world, window_ns / 2);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	driver_unmap(world, &second, false);
	world_advance(world, window_ns / 2 + window_ns / 4);
	CHECK(driver_reachable(world, &second) !=
	      flushes_on(policy, XS_FLUSH_UNMAP));
	world_advance(world, window_ns / 4);
	CHECK(!driver_reachable(world, &second));
	CHECK(world_stats(world)->flushes[XS_FLUSH_TIME] ==
	      flushes_on(policy, XS_FLUSH_TIME));
	/* No timer runs without deferred pages. */
	world_advance(world, 2 * window_ns);
	CHECK(!world->cpu[0].deadline_ns);
}

static void time_bound(void)
{
	each_policy(check_time);
}

/* A shorter window applies to the next unmap, whatever timer is running. */
static void check_shorter(struct world *world, const struct xs_policy *policy)
{
	struct xs_tuning tuning = xs_tuning_default(policy);
	struct mapping mapping = map(world, 1, MEMORY_COUNTED);

	driver_unmap(world, &mapping, false);
	tuning.window_us = 7;
	world_set_policy(world, policy, &tuning);
	CHECK(!driver_reachable(world, &mapping));
	mapping = map(world, 1, MEMORY_COUNTED);
	driver_unmap(world, &mapping, false);
	world_advance(world, 7000);
	CHECK(!driver_reachable(world, &mapping));
}

static void shorter_window(void)
{
	each_policy(check_shorter);
}

/* A longer window also applies to the next unmap: the pages wait until the window ends. */
static void check_longer(struct world *world, const struct xs_policy *policy)
{
	struct xs_tuning tuning = xs_tuning_default(policy);
	bool waits = !flushes_on(policy, XS_FLUSH_UNMAP);
	struct mapping mapping;

	tuning.window_us *= 10;
	world_set_policy(world, policy, &tuning);
	mapping = map(world, 1, MEMORY_COUNTED);
	driver_unmap(world, &mapping, false);
	world_advance(world, tuning.window_us * 500ULL);
	CHECK(driver_reachable(world, &mapping) == waits);
	world_advance(world, tuning.window_us * 500ULL);
	CHECK(!driver_reachable(world, &mapping));
}

static void longer_window(void)
{
	each_policy(check_longer);
}

/* Unmaps of all CPUs, in the same block or not. */
static void check_explicit(struct world *world, const struct xs_policy *policy)
{
	struct mapping mappings[8];

	(void)policy;
	for (u32 i = 0; i < 8; i++) {
		test_be_cpu(i & 1);
		mappings[i] = map(world, 1 + i, MEMORY_FOLIO);
	}
	for (u32 i = 0; i < 8; i++) {
		test_be_cpu(i >> 1 & 1);
		driver_unmap(world, &mappings[i], false);
	}
	test_be_cpu(0);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	world_check_flushed(world);
}

static void explicit_flush(void)
{
	each_policy(check_explicit);
}

/*
 * If all drivers are batch-aware, an ordinary unmap flushes at once under a policy that waits
 * for the drivers' flushes; batch-aware unmaps are deferred.
 */
static void check_all_aware(struct world *world, const struct xs_policy *policy)
{
	struct xs_tuning tuning = xs_tuning_default(policy);
	bool waits = xs_policy_waits(policy);

	tuning.batch_aware = true;
	world_set_policy(world, policy, &tuning);
	for (u32 i = 0; i < 6; i++) {
		struct mapping mapping = map(world, 1 + i / 2 * 3,
					     MEMORY_COUNTED);
		bool strict = waits || flushes_on(policy, XS_FLUSH_UNMAP);

		driver_unmap(world, &mapping, false);
		CHECK(driver_reachable(world, &mapping) != strict);
		mapping = map(world, 1 + i / 2 * 3, MEMORY_FOLIO);
		driver_unmap_deferred(world, &mapping);
		CHECK(driver_reachable(world, &mapping) !=
		      flushes_on(policy, XS_FLUSH_UNMAP));
		xs_engine_flush_explicit(&world->engine, i % 2);
		CHECK(driver_reachable(world, &mapping) ==
		      (!waits && !flushes_on(policy, XS_FLUSH_UNMAP)));
		driver_free(world, &mapping);
	}
	tuning.batch_aware = false;
	world_set_policy(world, policy, &tuning);
	many[0] = map(world, 1, MEMORY_COUNTED);
	driver_unmap(world, &many[0], false);
	CHECK(driver_reachable(world, &many[0]) !=
	      flushes_on(policy, XS_FLUSH_UNMAP));
}

static void all_aware(void)
{
	each_policy(check_all_aware);
}

/*
 * A batch-aware driver's unmaps: nothing is held, and nothing is reachable after the driver's
 * flush on the same CPU, although another CPU batched the block.
 */
static void check_aware(struct world *world, const struct xs_policy *policy)
{
	struct mapping one = map(world, 1, MEMORY_COUNTED);
	struct mapping slab = map(world, 1, MEMORY_SLAB);
	struct mapping some = map(world, 5, MEMORY_FOLIO);
	bool waits = xs_policy_waits(policy);

	test_be_cpu(1);
	driver_unmap_deferred(world, &one);
	test_be_cpu(0);
	driver_unmap_deferred(world, &slab);
	CHECK(driver_reachable(world, &slab) !=
	      flushes_on(policy, XS_FLUSH_UNMAP));
	CHECK(world->memory[one.page].refs == 1);
	driver_unmap_deferred(world, &some);
	xs_engine_flush_explicit(&world->engine, false);
	if (xs_policy_level(policy, true) == XS_LEVEL_STRICT)
		CHECK(!driver_reachable(world, &slab) &&
		      !driver_reachable(world, &some));
	CHECK(!!world_stats(world)->flushes[XS_FLUSH_EXPLICIT] == waits);
	xs_engine_flush_explicit(&world->engine, true);
	if (waits)
		world_check_flushed(world);
	driver_free(world, &one);
	driver_free(world, &slab);
	driver_free(world, &some);
}

static void aware(void)
{
	each_policy(check_aware);
}

/* Each page of a driver's block is unmapped separately; the last unmap frees the block. */
static void check_own_block(struct world *world, const struct xs_policy *policy)
{
	struct mapping page = { .pages = 1, .kind = MEMORY_COUNTED,
				.prot = PROT_READ_ };
	u64 first, other;

	(void)policy;
	first = xs_engine_alloc_block(&world->engine, 10, LAST);
	CHECK(first && first % XS_BLOCK_BYTES == 0);
	CHECK(!xs_engine_alloc_block(&world->engine, 64, XS_BLOCK_BYTES - 1));
	for (u32 i = 0; i < 10; i += 2) {
		struct mapping *at = &many[i];

		*at = page;
		CHECK(driver_map_at(world, at, first + i * XS_PAGE_BYTES));
		driver_check(world, at);
	}
	for (u32 i = 1; i < 10; i += 2)
		xs_engine_drop_in_block(&world->engine,
					first + i * XS_PAGE_BYTES, 1);
	for (u32 i = 0; i < 10; i += 4)
		driver_unmap(world, &many[i], false);
	for (u32 i = 2; i < 10; i += 4)
		driver_unmap_aware(world, &many[i], 1, false);
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	other = xs_engine_alloc_block(&world->engine, 64, LAST);
	CHECK(other && other % XS_BLOCK_BYTES == 0);
	xs_engine_drop_in_block(&world->engine, other, 64);
	world->map_fails_in = 1;
	first = xs_engine_alloc_block(&world->engine, 1, LAST);
	CHECK(!driver_map_at(world, &page, first));
	xs_engine_drop_in_block(&world->engine, first, 1);
}

static void own_block(void)
{
	each_policy(check_own_block);
}

/*
 * Map all pages of a block in one call, and unmap any set in another call; some pages
 * separately.
 */
static void check_block_at_once(struct world *world,
				const struct xs_policy *policy)
{
	static const u32 runs[] = { 1, 4, 64 };
	u64 mask = 0xfff0ffff0f0f0ff0;
	bool waits = xs_policy_waits(policy);

	for (u32 i = 0; i < 3; i++) {
		u64 iova = xs_engine_alloc_block(&world->engine, 64, LAST);

		CHECK(driver_map_block(world, many, 64, runs[i], iova) == 64);
		for (u32 at = 0; at < 64; at++)
			driver_check(world, &many[at]);
		driver_unmap_deferred(world, &many[0]);
		driver_unmap_block_deferred(world, many, mask);
		driver_unmap_block_deferred(world, many, ~mask & ~1ULL);
		CHECK(xs_engine_live_pages(&world->engine) == 0);
		CHECK(!world_warnings());
		driver_unmap_block_deferred(world, many, 6);
		CHECK(world_warnings() || !waits);
		xs_engine_flush_explicit(&world->engine, false);
		if (waits)
			world_check_flushed(world);
		for (u32 at = 0; at < 64; at++)
			driver_free(world, &many[at]);
		driver_unmap_block_deferred(world, many, 1);
		CHECK(world_warnings());
		CHECK(xs_engine_live_pages(&world->engine) == 0);
	}
}

static void block_at_once(void)
{
	each_policy(check_block_at_once);
}

/* The backend refuses a part: pages before the refused part are mapped. */
static void check_block_refused(struct world *world,
				const struct xs_policy *policy)
{
	for (u64 n = 1; n <= 17 && !test_failed(); n++) {
		u64 iova = xs_engine_alloc_block(&world->engine, 64, LAST);
		u32 done;

		world->map_fails_in = n;
		done = driver_map_block(world, many, 64, 4, iova);
		CHECK(done == (n < 17 ? 4 * (n - 1) : 64));
		world->map_fails_in = 0;
		CHECK(xs_engine_live_pages(&world->engine) == done);
		if (done)
			driver_unmap_block_deferred(world, many,
						    XS_BLOCK_ALL >> (64 - done));
		xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
		for (u32 at = 0; at < done; at++)
			driver_free(world, &many[at]);
		/* Unmapped pages cannot be unmapped. */
		if (done < 64) {
			xs_engine_unmap(&world->engine,
					iova + done * XS_PAGE_BYTES, 1, false);
			CHECK(world_warnings());
			xs_engine_drop_in_block(&world->engine,
						iova + done * XS_PAGE_BYTES,
						64 - done);
		}
	}
	xs_engine_retire_cpu(&world->engine, 0);
	CHECK(!world->engine.space.taken ||
	      policy->placement == XS_PLACE_PAGE);
}

static void block_refused(void)
{
	each_policy(check_block_refused);
}

/* Unmapping the last page of a block flushes the block if the policy requires. */
static void check_block(struct world *world, const struct xs_policy *policy)
{
	struct mapping *mappings = many;
	u32 deferred = 0;

	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		mappings[i] = map(world, 1, MEMORY_COUNTED);
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++) {
		driver_unmap(world, &mappings[i], false);
		deferred += driver_reachable(world, &mappings[i]);
	}
	CHECK(world_stats(world)->flushes[XS_FLUSH_BLOCK] ==
	      flushes_on(policy, XS_FLUSH_BLOCK));
	if (flushes_on(policy, XS_FLUSH_BLOCK)) {
		world_check_flushed(world);
		CHECK(deferred == XS_BLOCK_PAGES - 1);
		CHECK(world->sent_page == 1 && !world->sent_domain);
	}
}

static void block_empty_(void)
{
	each_policy(check_block);
}

/* Only that block is flushed: other deferred pages wait, and need no command. */
static void check_block_only(struct world *world, const struct xs_policy *policy)
{
	bool waits = !flushes_on(policy, XS_FLUSH_UNMAP);
	struct mapping other = map(world, 33, MEMORY_FOLIO);

	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		many[i] = map(world, 1, MEMORY_COUNTED);
	driver_unmap(world, &other, false);
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		driver_unmap(world, &many[i], false);
	CHECK(driver_reachable(world, &other) == waits);
}

static void block_only(void)
{
	each_policy(check_block_only);
}

/* A driver's block is empty when all of the driver's pages are unmapped. */
static void check_block_part(struct world *world, const struct xs_policy *policy)
{
	u64 iova = xs_engine_alloc_block(&world->engine, 10, LAST);

	for (u32 i = 0; i < 10; i++) {
		many[i] = (struct mapping) { .pages = 1, .prot = PROT_READ_,
					     .kind = MEMORY_COUNTED };
		CHECK(driver_map_at(world, &many[i],
				    iova + i * XS_PAGE_BYTES));
	}
	for (u32 i = 0; i < 10; i++)
		driver_unmap(world, &many[i], false);
	CHECK(world_stats(world)->flushes[XS_FLUSH_BLOCK] ==
	      flushes_on(policy, XS_FLUSH_BLOCK));
}

static void block_part(void)
{
	each_policy(check_block_part);
}

/* Pages dead under one policy do not count under the next policy. */
static void block_after_change(void)
{
	const struct xs_policy *fands = xs_policy_find("fands");
	const struct xs_policy *fused = xs_policy_find("fused");
	struct xs_tuning tuning = xs_tuning_default(fands);
	struct world *world = begin("fands", 2, 1);

	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		many[i] = map(world, 1, MEMORY_COUNTED);
	for (u32 i = 1; i < XS_BLOCK_PAGES; i++)
		driver_unmap(world, &many[i], false);
	world_set_policy(world, fused, &tuning);
	world_set_policy(world, fands, &tuning);
	for (u32 i = 1; i < XS_BLOCK_PAGES; i++)
		many[i] = map(world, 1, MEMORY_COUNTED);
	for (u32 i = 0; i < XS_BLOCK_PAGES - 1; i++)
		driver_unmap(world, &many[i], false);
	CHECK(!world_stats(world)->flushes[XS_FLUSH_BLOCK]);
	driver_unmap(world, &many[XS_BLOCK_PAGES - 1], false);
	CHECK(world_stats(world)->flushes[XS_FLUSH_BLOCK] == 1);
	world_end(world);
}

/* The same for dead pages of a mapping across a block boundary, in both blocks. */
static void blocks_after_change(void)
{
	const struct xs_policy *fused = xs_policy_find("fused");
	struct xs_tuning tuning = xs_tuning_default(fused);
	struct world *world = begin("fands", 4, 1);
	struct xs_block *blocks[2];

	for (u32 i = 0; i < 2 * XS_BLOCK_PAGES; i++)
		many[i] = map(world, 1, MEMORY_COUNTED);
	xs_enter();
	for (u32 i = 0; i < 2; i++)
		blocks[i] = xs_space_block(&world->engine.space,
					   (many[0].iova >> XS_PAGE_LG2) +
					   i * XS_BLOCK_PAGES);
	xs_exit();
	for (u32 i = XS_BLOCK_PAGES - 10; i < XS_BLOCK_PAGES + 10; i++)
		driver_unmap(world, &many[i], false);
	CHECK(xs_a64_read(&blocks[0]->dead) && xs_a64_read(&blocks[1]->dead));
	world_set_policy(world, fused, &tuning);
	CHECK(!xs_a64_read(&blocks[0]->dead) && !xs_a64_read(&blocks[1]->dead));
	for (u32 i = 0; i < 2 * XS_BLOCK_PAGES; i++)
		if (i < XS_BLOCK_PAGES - 10 || i >= XS_BLOCK_PAGES + 10)
			driver_unmap(world, &many[i], false);
	world_end(world);
}

/* The batch is flushed at the threshold. */
static void check_full(struct world *world, const struct xs_policy *policy)
{
	struct xs_tuning tuning = xs_tuning_default(policy);
	struct mapping mappings[5];

	tuning.batch_pages = 4 * XS_BLOCK_PAGES;
	world_set_policy(world, policy, &tuning);
	for (u32 i = 0; i < 5; i++)
		mappings[i] = map(world, XS_BLOCK_PAGES, MEMORY_FOLIO);
	for (u32 i = 0; i < 5; i++) {
		CHECK(!world_stats(world)->flushes[XS_FLUSH_FULL] || i == 4);
		driver_unmap(world, &mappings[i], false);
	}
	CHECK(flushes_on(policy, XS_FLUSH_UNMAP) ||
	      flushes_on(policy, XS_FLUSH_BLOCK) ||
	      world_stats(world)->flushes[XS_FLUSH_FULL] == 1);
}

static void full(void)
{
	each_policy(check_full);
}

/*
 * No flush exceeds the threshold plus one mapping, whatever the sizes, even where single blocks
 * are flushed in between.
 */
static void check_most(struct world *world, const struct xs_policy *policy)
{
	static const u32 limits[] = { 1, 2, 60, 128, 1024 };
	struct xs_tuning tuning = xs_tuning_default(policy);
	u64 random = 1;

	for (u32 i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		tuning.batch_pages = limits[i];
		world_set_policy(world, policy, &tuning);
		world->flushed_pages_max = 0;
		for (u32 round = 0; round < 60; round++) {
			for (u32 j = 0; j < 20; j++)
				many[j] = map(world, 1 + test_below(&random,
					      64u >> test_below(&random, 7)),
					      MEMORY_PERMANENT);
			for (u32 j = 0; j < 20; j++)
				driver_unmap(world, &many[j], false);
			test_relax();
		}
		CHECK(world->flushed_pages_max <
		      limits[i] + XS_BLOCK_PAGES);
	}
}

static void most(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++) {
		struct world *world = begin(xs_policies[i].name,
					    128, 1);

		check_most(world, &xs_policies[i]);
		world_end(world);
	}
}

/* Write the ring around several times, with contiguous records that wrap and others. */
static void ring(void)
{
	struct world *world = begin("fused", WORLD_BLOCKS_MAX, 1);
	u64 random = 1;

	for (u32 round = 0; round < 200 && !test_failed(); round++) {
		u32 count = 1 + test_below(&random, 200);

		for (u32 i = 0; i < count; i++)
			many[i] = map(world, test_below(&random, 10) ? 1 : 5,
				      i % MEMORY_KINDS);
		for (u32 i = 0; i < count; i++)
			driver_unmap(world, &many[i], false);
		if (test_below(&random, 3)) {
			xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
			world_check_flushed(world);
		}
		test_relax();
	}
	world_end(world);
}

/* ---- commands of a flush ---- */

static void commands(void)
{
	static const struct {
		const char *policy;
		u32 blocks, page, domain;
	} rows[] = {
		{ "lazy", 1, 0, 1 },  { "xsmmu", 3, 0, 1 },
		{ "fused", 1, 1, 0 }, { "fused", 8, 1, 0 },
		{ "fused", 9, 2, 0 }, { "fused", 15, 4, 0 },
	};

	for (u32 row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct world *world = begin(rows[row].policy, 64, 1);
		struct mapping *mappings = many;

		/* Up to an aligned block: first fit hands out contiguous addresses. */
		for (u32 i = 0; i < 7; i++)
			mappings[i] = map(world, 64, MEMORY_FOLIO);
		for (u32 i = 7; i < 7 + rows[row].blocks; i++)
			mappings[i] = map(world, 64, MEMORY_FOLIO);
		for (u32 i = 7; i < 7 + rows[row].blocks; i++)
			driver_unmap(world, &mappings[i], false);
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
		CHECK(world->sent_page == rows[row].page);
		CHECK(world->sent_domain == rows[row].domain);
		for (u32 i = 0; i < 7; i++)
			driver_unmap(world, &mappings[i], true);
		world_end(world);
	}
}

/*
 * Unmap half of each of @blocks scattered blocks, and check the commands. Neighbouring IOVAs
 * stay mapped, so no ranges join.
 */
static void check_scattered(const char *policy, u32 blocks, u32 commands_max,
			    u32 page, u32 domain)
{
	struct world *world = begin(policy, 128, 1);
	struct xs_tuning tuning =
		xs_tuning_default(xs_policy_find(policy));
	u32 done = 0;

	tuning.range_commands_max = commands_max;
	world_set_policy(world, xs_policy_find(policy), &tuning);
	for (u32 i = 0; i < 4 * blocks; i++)
		many[i] = map(world, XS_BLOCK_PAGES / 2, MEMORY_FOLIO);
	for (u32 i = 0; i < 4 * blocks; i++)
		if (many[i].iova / XS_BLOCK_BYTES % 2 &&
		    many[i].iova % XS_BLOCK_BYTES && done < blocks) {
			driver_unmap(world, &many[i], false);
			many[i].pages = 0;
			done++;
		}
	CHECK(done == blocks);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	world_check_flushed(world);
	CHECK(world->sent_page == page && world->sent_domain == domain);
	for (u32 i = 0; i < 4 * blocks; i++)
		if (many[i].pages)
			driver_unmap(world, &many[i], false);
	world_end(world);
}

/* More ranges than allowed become one domain command, where the policy allows. */
static void scattered(void)
{
	check_scattered("fused", 4, 4, 4, 0);
	check_scattered("fused", 5, 4, 0, 1);
	check_scattered("fused", 10, 4, 0, 1);
	check_scattered("fused", 10, 10, 10, 0);
	check_scattered("fused", XS_RANGES_MAX, XS_RANGES_MAX, XS_RANGES_MAX, 0);
	check_scattered("fands", 10, 4, 10, 0);
	check_scattered("fands", 10, 1, 10, 0);
	check_scattered("fands", XS_RANGES_MAX, 4, XS_RANGES_MAX, 0);
	check_scattered("lazy", 1, 4, 0, 1);
	check_scattered("xsmmu", 10, 32, 0, 1);
}

/*
 * The pages of a whole page table are never removed at once, because the next map would need a
 * new table. The world checks this under all policies.
 */
static void check_table(struct world *world, const struct xs_policy *policy)
{
	(void)policy;
	for (u32 i = 0; i < 20; i++)
		many[i] = map(world, XS_BLOCK_PAGES, MEMORY_FOLIO);
	for (u32 i = 0; i < 20; i++)
		driver_unmap(world, &many[i], false);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	world_check_flushed(world);
	/* A single mapping of a whole table is removed by one call. */
	many[0] = map(world, 2 * TABLE_PAGES, MEMORY_COUNTED);
	driver_check(world, &many[0]);
	driver_unmap(world, &many[0], false);
}

static void whole_table(void)
{
	each_policy_with(4 * TABLE_PAGES / XS_BLOCK_PAGES, check_table);
}

/* Contiguous pages of one page-table page are removed by one call. */
static void one_removal(void)
{
	struct world_config config = { .blocks = 32, .cpus = 1,
				       .policy = xs_policy_find("fused") };
	struct world *world = world_new(&config, 0);
	u64 first, end;

	for (u32 i = 0; i < 12; i++)
		many[i] = map(world, XS_BLOCK_PAGES, MEMORY_FOLIO);
	first = many[0].iova / XS_PAGE_BYTES;
	end = first + 12 * XS_BLOCK_PAGES;
	CHECK(many[11].iova / XS_PAGE_BYTES == end - XS_BLOCK_PAGES);
	for (u32 i = 0; i < 12; i++)
		driver_unmap(world, &many[i], false);
	CHECK(!world->removals);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	CHECK(world->removals ==
	      (end - 1) / TABLE_PAGES - first / TABLE_PAGES + 1);
	world_end(world);
}

/* Each kind of flush counts under the right cause, and only there. */
static void check_causes(struct world *world, const struct xs_policy *policy)
{
	const struct xs_stats *sum;
	u64 flushes[XS_FLUSH_COUNT] = { 0 }, deferred = 0;

	for (u32 i = 0; i < 5; i++) {
		many[i] = map(world, 1 + i, MEMORY_FOLIO);
		driver_unmap(world, &many[i], i % 2);
		flushes[XS_FLUSH_UNMAP] += !driver_reachable(world, &many[i]);
		deferred += driver_reachable(world, &many[i]);
	}
	CHECK(flushes[XS_FLUSH_UNMAP] ==
	      (flushes_on(policy, XS_FLUSH_UNMAP) ? 5 : 2));
	many[0] = map(world, 200, MEMORY_COUNTED);
	driver_unmap(world, &many[0], false);
	flushes[XS_FLUSH_UNMAP]++;
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	flushes[XS_FLUSH_DRAIN] += deferred > 0;
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	sum = world_stats(world);
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		CHECK(sum->flushes[i] == flushes[i]);
	CHECK(sum->counts.immediate == flushes[XS_FLUSH_UNMAP]);
	CHECK(sum->flushed_pages == (deferred ? 1 + 3 + 5 : 0));
}

static void causes(void)
{
	each_policy(check_causes);
}

/* A backend may send more commands than requested: the statistics count the sent commands. */
static void check_sends(struct world *world, const struct xs_policy *policy)
{
	(void)policy;
	for (u32 i = 0; i < 12; i++) {
		world->sends = i % 3;
		many[0] = map(world, 1 + i * 7, MEMORY_FOLIO);
		driver_unmap(world, &many[0], i % 2);
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	}
	CHECK(world->sent_global >= 4 && world->sent_domain >= 4);
}

static void sends(void)
{
	each_policy(check_sends);
}

/* A backend with only the mandatory operations. */
static void bare(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++) {
		struct world_config config = {
			.blocks = WORLD_BLOCKS_MAX, .cpus = 1, .bare = true,
			.policy = &xs_policies[i],
		};
		struct world *world = world_new(&config, 0);

		test_relax();
		world->engine.space.empty_min = 0;
		for (u32 j = 0; j < 200; j++)
			many[j] = map(world, 1 + j % 100, MEMORY_PERMANENT);
		for (u32 j = 0; j < 200; j++)
			driver_unmap(world, &many[j], j % 5 == 0);
		xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
		xs_engine_retire_cpu(&world->engine, 0);
		world_trim(world, true);
		world_end(world);
	}
}

/* A map of zero pages fails. */
static void check_nothing(struct world *world, const struct xs_policy *policy)
{
	(void)policy;
	CHECK(!xs_engine_map(&world->engine, 0, 0, PROT_READ_, LAST));
	CHECK(!xs_engine_alloc_iova(&world->engine, 0, LAST));
	CHECK(world_warnings() == 2);
	CHECK(world_stats(world)->counts.bad_unmaps == 2);
	CHECK(!xs_engine_live_pages(&world->engine));
}

static void nothing(void)
{
	each_policy(check_nothing);
}

/* An engine that starts with tunables uses them at once. */
static void tuned(void)
{
	struct xs_tuning tuning = { .window_us = 5000, .batch_pages = 700,
				    .range_commands_max = 32, .batch_aware = true };
	struct world_config config = { .blocks = 64, .cpus = 1,
				       .policy = xs_policy_find("fused"),
				       .tuning = &tuning };
	struct world *world = world_new(&config, 0);
	struct mapping mapping;

	CHECK(world->engine.policy->ranges_max == 32);
	mapping = map(world, 1, MEMORY_COUNTED);
	driver_unmap(world, &mapping, false);
	/* An engine with batch-aware drivers. */
	world_check_flushed(world);
	world_end(world);
}

/* ---- holds ---- */

static void check_hold(struct world *world, const struct xs_policy *policy)
{
	struct mapping mapping = map(world, XS_HOLDS_MAX, MEMORY_COUNTED);
	bool held = policy->hold == XS_HOLD_PAGES;

	driver_unmap(world, &mapping, false);
	for (u32 i = 0; i < XS_HOLDS_MAX; i++)
		CHECK(world->memory[mapping.page + i].refs == held);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	for (u32 i = 0; i < XS_HOLDS_MAX; i++)
		CHECK(!world->memory[mapping.page + i].refs);
}

static void hold(void)
{
	each_policy(check_hold);
}

/* A mapping that needs more references is flushed at once, mapped in one call or in parts. */
static void check_holds_max(struct world *world, const struct xs_policy *policy)
{
	/* In parts, 5 of 7 pages are filled. */
	static const struct { u32 pages, parts; } rows[] = {
		{ 5, 0 }, { 64, 0 }, { 64, 1 }, { 7, 2 }, { 7, 3 }, { 16, 3 },
	};

	for (u32 row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct mapping mapping = { .pages = rows[row].pages,
					   .parts = rows[row].parts,
					   .prot = PROT_READ_,
					   .kind = MEMORY_COUNTED };

		CHECK(driver_map(world, &mapping, LAST));
		driver_check(world, &mapping);
		driver_unmap(world, &mapping, false);
		CHECK(policy->hold == XS_HOLD_IOVA ||
		      !driver_reachable(world, &mapping));
		for (u32 i = 0; i < mapping.pages; i++)
			CHECK(!world->memory[mapping.page + i].refs);
	}
}

static void holds_max(void)
{
	each_policy(check_holds_max);
}

/* A policy that holds flushes memory that cannot be held at once. */
static void check_slab(struct world *world, const struct xs_policy *policy)
{
	struct mapping slab = map(world, 2, MEMORY_SLAB);
	struct mapping permanent = map(world, 2, MEMORY_PERMANENT);
	bool strict = flushes_on(policy, XS_FLUSH_UNMAP);

	driver_unmap(world, &slab, false);
	driver_unmap(world, &permanent, false);
	CHECK(driver_reachable(world, &slab) ==
	      (policy->hold == XS_HOLD_IOVA && !strict));
	CHECK(driver_reachable(world, &permanent) == !strict);
}

static void slab(void)
{
	each_policy(check_slab);
}

/*
 * Ranges filled in parts, with gaps: held from the unmap on, as mapped in one call, and
 * deferred whatever the gaps.
 */
static void check_reserved(struct world *world, const struct xs_policy *policy,
			   u32 pages, u32 parts)
{
	struct mapping mapping = { .pages = pages, .parts = parts,
				   .prot = PROT_READ_, .kind = MEMORY_FOLIO };
	bool strict = flushes_on(policy, XS_FLUSH_UNMAP);
	bool held = policy->hold == XS_HOLD_PAGES;

	CHECK(driver_map(world, &mapping, LAST));
	driver_check(world, &mapping);
	driver_unmap(world, &mapping, false);
	CHECK(driver_reachable(world, &mapping) != strict);
	CHECK(!!world->memory[mapping.page].refs == held);
	if (pages > 8)
		CHECK(world->memory[mapping.page + pages / 2].refs == held);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	CHECK(!world->memory[mapping.page].refs);
}

static void check_parts(struct world *world, const struct xs_policy *policy)
{
	static const u32 sizes[] = { 1, 2, 3, 4, 7, 8, 16, 33, 62, 63 };

	for (u32 i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (u32 parts = 1; parts < 4; parts++)
			check_reserved(world, policy, sizes[i], parts);
}

static void parts(void)
{
	each_policy(check_parts);
}

/* A reservation filled to the last page, and a reservation left empty. */
static void check_filled(struct world *world, const struct xs_policy *policy)
{
	struct xs_engine *engine = &world->engine;

	for (u32 pages = 1; pages <= XS_BLOCK_PAGES; pages++) {
		struct mapping mapping = map(world, pages, MEMORY_FOLIO);
		u64 phys = (u64)mapping.page << XS_PAGE_LG2;
		u64 each[XS_BLOCK_PAGES], iova, immediate;

		/* Map the same memory at another place. */
		driver_unmap_only(world, &mapping, true);
		iova = xs_engine_alloc_iova(engine, pages, LAST);
		for (u32 i = 0; i < pages; i++)
			each[i] = phys + i * XS_PAGE_BYTES;
		CHECK(iova && !xs_engine_fill_each(engine, iova, each, pages,
						   PROT_READ_ | PROT_WRITE_));
		mapping.iova = iova;
		/* Its neighbour may be the place of before, which is not flushed. */
		mapping.serial = ++world->last_serial;
		for (u32 i = 0; i < pages; i++)
			world->owner[(iova >> XS_PAGE_LG2) + i] =
				mapping.serial * OWNER_SERIAL | OWNER_MAPPED;
		driver_check(world, &mapping);
		driver_unmap(world, &mapping, false);
		for (u32 i = 0; i < pages; i++)
			CHECK(world->memory[mapping.page + i].refs ==
			      (policy->hold == XS_HOLD_PAGES));
		xs_engine_flush(engine, XS_FLUSH_EXPLICIT);
		iova = xs_engine_alloc_iova(engine, pages, LAST);
		xs_engine_publish(engine, iova, pages);
		world->last_serial++;
		for (u32 i = 0; i < pages; i++)
			world->owner[(iova >> XS_PAGE_LG2) + i] =
				world->last_serial * OWNER_SERIAL;
		immediate = world_stats(world)->flushes[XS_FLUSH_UNMAP];
		xs_engine_unmap(engine, iova, pages, false);
		/* There is nothing to hold, so the unmap waits like others. */
		immediate = world_stats(world)->flushes[XS_FLUSH_UNMAP] - immediate;
		CHECK(immediate == flushes_on(policy, XS_FLUSH_UNMAP));
		CHECK(!world_warnings() && !xs_engine_live_pages(engine));
	}
}

static void filled(void)
{
	each_policy(check_filled);
}

static void own(struct world *world, u64 iova, u32 pages, u64 flags)
{
	for (u32 i = 0; i < pages; i++)
		world->owner[(iova >> XS_PAGE_LG2) + i] =
			world->last_serial * OWNER_SERIAL | flags;
}

/* Take pages of memory in many[], no page directly behind the previous page. */
static void take_apart(struct world *world, u32 count)
{
	for (u32 i = count; i--;) {
		many[i] = map(world, 1, MEMORY_COUNTED);
		driver_unmap_only(world, &many[i], true);
	}
	for (u32 i = 1; i < count; i++)
		CHECK(many[i].page != many[i - 1].page + 1);
}

/* The backend refuses one page: pages before the refused page are mapped, the others are not. */
static void check_apart_refused(struct world *world,
				const struct xs_policy *policy)
{
	struct xs_engine *engine = &world->engine;
	u64 failures = world_stats(world)->map_failures;
	u64 phys[4];

	(void)policy;
	take_apart(world, 4);
	for (u32 i = 0; i < 4; i++)
		phys[i] = (u64)many[i].page << XS_PAGE_LG2;
	for (u32 refused = 1; refused <= 4; refused++) {
		u64 iova = xs_engine_alloc_iova(engine, 4, LAST);

		world->map_fails_in = refused;
		CHECK(iova && xs_engine_fill_each(engine, iova, phys, 4,
						  PROT_READ_));
		CHECK(!world->map_fails_in);
		world->last_serial++;
		own(world, iova, 4, 0);
		for (u32 i = 0; i < 4; i++)
			CHECK(world_reachable(world, iova + i * XS_PAGE_BYTES) ==
			      (i + 1 < refused));
		xs_engine_unmap(engine, iova, 4, true);
		CHECK(!world_reachable(world, iova));
	}
	CHECK(world_stats(world)->map_failures == failures + 4);
	CHECK(!xs_engine_live_pages(engine));
	for (u32 i = 0; i < 4; i++)
		driver_free(world, &many[i]);
}

static void apart_refused(void)
{
	each_policy(check_apart_refused);
}

/*
 * Map pages that are not neighbours, with a gap at @gap, if @gap is below @runs. Up to
 * XS_HOLDS_MAX references are held; with more, the unmap flushes.
 */
static void check_apart(struct world *world, const struct xs_policy *policy,
			u32 runs, u32 gap)
{
	bool defers = !flushes_on(policy, XS_FLUSH_UNMAP) &&
		      (policy->hold != XS_HOLD_PAGES || runs <= XS_HOLDS_MAX);
	bool holds = defers && policy->hold == XS_HOLD_PAGES;
	struct xs_engine *engine = &world->engine;
	u64 phys[XS_HOLDS_MAX + 3], iova, at, immediate;
	u32 pages = 0;

	take_apart(world, runs);
	for (u32 i = 0; i < runs; i++) {
		if (i == gap)
			phys[pages++] = XS_PHYS_NONE;
		phys[pages++] = (u64)many[i].page << XS_PAGE_LG2;
	}
	iova = xs_engine_alloc_iova(engine, pages, LAST);
	CHECK(iova && !xs_engine_fill_each(engine, iova, phys, pages,
					   PROT_READ_));
	world->last_serial++;
	own(world, iova, pages, OWNER_MAPPED);
	for (u32 i = 0; i < pages; i++) {
		bool there = phys[i] != XS_PHYS_NONE;

		CHECK(world_access(world, iova + i * XS_PAGE_BYTES, PROT_READ_,
				   &at) == there);
		CHECK(!there || at == phys[i]);
	}
	own(world, iova, pages, 0);
	immediate = world_stats(world)->flushes[XS_FLUSH_UNMAP];
	xs_engine_unmap(engine, iova, pages, false);
	CHECK((world_stats(world)->flushes[XS_FLUSH_UNMAP] == immediate) == defers);
	for (u32 i = 0; i < runs; i++) {
		driver_free(world, &many[i]);
		CHECK(world->memory[many[i].page].refs == holds);
	}
	xs_engine_flush(engine, XS_FLUSH_EXPLICIT);
	for (u32 i = 0; i < runs; i++)
		CHECK(!world->memory[many[i].page].refs);
}

static void check_apart_all(struct world *world, const struct xs_policy *policy)
{
	for (u32 runs = 1; runs <= XS_HOLDS_MAX + 2; runs++)
		for (u32 gap = 0; gap <= runs; gap++)
			check_apart(world, policy, runs, gap);
}

/* Pages that need no reference do not count towards the limit of references. */
static void check_apart_permanent(struct world *world,
				  const struct xs_policy *policy)
{
	u64 phys[2 * XS_HOLDS_MAX], immediate, iova;
	struct xs_engine *engine = &world->engine;
	const u32 pages = 2 * XS_HOLDS_MAX;

	for (u32 i = pages; i--;) {
		many[i] = map(world, 1, i % 2 ? MEMORY_PERMANENT : MEMORY_COUNTED);
		driver_unmap_only(world, &many[i], true);
		phys[i] = (u64)many[i].page << XS_PAGE_LG2;
	}
	for (u32 i = 1; i < pages; i++)
		CHECK(phys[i] != phys[i - 1] + XS_PAGE_BYTES);
	iova = xs_engine_alloc_iova(engine, pages, LAST);
	CHECK(iova && !xs_engine_fill_each(engine, iova, phys, pages,
					   PROT_READ_));
	world->last_serial++;
	own(world, iova, pages, 0);
	immediate = world_stats(world)->flushes[XS_FLUSH_UNMAP];
	xs_engine_unmap(engine, iova, pages, false);
	CHECK((world_stats(world)->flushes[XS_FLUSH_UNMAP] == immediate) ==
	      !flushes_on(policy, XS_FLUSH_UNMAP));
	for (u32 i = 0; i < pages; i++)
		driver_free(world, &many[i]);
	xs_engine_flush(engine, XS_FLUSH_EXPLICIT);
}

static void apart(void)
{
	each_policy(check_apart_all);
	each_policy(check_apart_permanent);
}

/* Map under one policy, unmap under another. */
static void hold_across_policies(void)
{
	for (u32 from = 0; from < xs_policy_count; from++)
		for (u32 to = 0; to < xs_policy_count; to++) {
			struct world *world = begin(xs_policies[from].name,
						    32, 1);
			const struct xs_policy *policy = &xs_policies[to];
			struct xs_tuning tuning = xs_tuning_default(policy);
			struct mapping early = map(world, 3, MEMORY_COUNTED);
			struct mapping late = map(world, 1, MEMORY_COUNTED);

			driver_unmap(world, &early, false);
			world_set_policy(world, policy, &tuning);
			CHECK(!driver_reachable(world, &early));
			driver_check(world, &late);
			driver_unmap(world, &late, false);
			world_end(world);
		}
}

/* ---- sizes, limits and failures ---- */

static void check_sizes(struct world *world, const struct xs_policy *policy)
{
	static const u64 lasts[] = { LAST, 17 * XS_BLOCK_BYTES - 1,
				     17 * XS_BLOCK_BYTES + 4095 };

	(void)policy;
	for (u32 pages = 1; pages <= 200; pages++)
		for (u32 i = 0; i < 3; i++) {
			struct mapping mapping = { .pages = pages,
						   .prot = PROT_READ_,
						   .parts = i };

			/* Let enough time pass that a map may flush all CPUs. */
			world_advance(world, 11000000);
			if (!CHECK(driver_map(world, &mapping, lasts[i])))
				return;
			driver_check(world, &mapping);
			driver_unmap(world, &mapping, false);
		}
}

static void sizes(void)
{
	each_policy(check_sizes);
}

/* Map all IOVAs, give them back and map them again, in each size. */
static void check_exhaustion(struct world *world, const struct xs_policy *policy)
{
	struct mapping *mappings = many;

	(void)policy;
	for (u32 pages = 1; pages <= XS_BLOCK_PAGES && !test_failed();
	     pages *= 2) {
		u32 most = 31 * XS_BLOCK_PAGES / pages;
		u32 count = 0;

		for (;; count++) {
			mappings[count] = (struct mapping){ .pages = pages };
			if (!driver_map(world, &mappings[count], LAST))
				break;
		}
		CHECK(count == most);
	world_advance(world, 20000000);
		for (u32 i = 0; i < count; i++)
			driver_unmap(world, &mappings[i], false);
		world_advance(world, 1);
	}
}

static void exhaustion(void)
{
	each_policy(check_exhaustion);
}

/* The IOMMU driver refuses. */
static void check_refused(struct world *world, const struct xs_policy *policy)
{
	struct mapping mapping = { .prot = PROT_READ_ };
	u64 refused = 0;

	(void)policy;
	for (u32 pages = 1; pages <= 150; pages += 13)
		for (u32 parts = 0; parts < 3; parts++) {
			mapping.pages = pages;
			mapping.parts = parts;
			world->maps_fail = true;
			CHECK(!driver_map(world, &mapping, LAST));
			refused++;
			world->maps_fail = false;
			CHECK(driver_map(world, &mapping, LAST));
			driver_unmap(world, &mapping, false);
		}
	CHECK(world_stats(world)->map_failures == refused);
}

static void refused(void)
{
	each_policy(check_refused);
}

static void no_memory_at_init(void)
{
	struct world_config config = { .blocks = 32, .cpus = 3,
				       .policy = &xs_policies[4] };
	struct world *world = NULL;
	u32 n = 1;

	for (; n < 100 && !world; n++)
		world = world_new(&config, n);
	CHECK(n > 8);
	if (CHECK(world))
		world_end(world);
}

/* Fail the n-th allocation of a busy run, for each n. */
static void check_no_memory(struct world *world, const struct xs_policy *policy)
{
	struct mapping *mappings = many;

	(void)policy;
	for (u32 n = 1; n < 30 && !test_failed(); n++) {
		world->alloc_fails_in = n;
		for (u32 i = 0; i < 30; i++) {
			mappings[i] = (struct mapping){
				.pages = 1u << i % 8, .prot = PROT_WRITE_ };
			if (!driver_map(world, &mappings[i], LAST))
				mappings[i].pages = 0;
		}
		for (u32 i = 0; i < 30; i++)
			if (mappings[i].pages)
				driver_unmap(world, &mappings[i], false);
		world_advance(world, 20000000);
		xs_engine_retire_cpu(&world->engine, 0);
	}
	world->alloc_fails_in = 0;
}

/* Memory that is held and then cannot be deferred is held until the unmap's own flush. */
static void check_no_batch(struct world *world, const struct xs_policy *policy)
{
	struct mapping mapping;

	(void)policy;
	for (u32 pages = 1; pages <= XS_BLOCK_PAGES; pages *= 4) {
		mapping = (struct mapping){ .pages = pages,
					    .prot = PROT_WRITE_ };
		CHECK(driver_map(world, &mapping, LAST));
		world->alloc_fails_in = 1;
		driver_unmap(world, &mapping, false);
		world->alloc_fails_in = 0;
		CHECK(!world->let_go);
		world_check_flushed(world);
	}
}

static void no_batch(void)
{
	each_policy(check_no_batch);
}

/* Pages flushed at once for want of a batch are no longer dead in the block. */
static void no_batch_dead(void)
{
	struct world *world = begin("fands", 4, 1);
	struct mapping mapping = map(world, 3, MEMORY_COUNTED);
	struct xs_block *block;

	xs_enter();
	block = xs_space_block(&world->engine.space,
			       mapping.iova >> XS_PAGE_LG2);
	xs_exit();
	world->alloc_fails_in = 1;
	driver_unmap(world, &mapping, false);
	world->alloc_fails_in = 0;
	CHECK(!world_reachable(world, mapping.iova));
	CHECK(!xs_a64_read(&block->dead));
	world_end(world);
}

static void no_memory(void)
{
	each_policy(check_no_memory);
}

/*
 * A dead mark may outlive the policy if an unmap read the policy twice and did not defer under
 * the next policy: the mark is gone before pages are marked again.
 */
static void marks_left(void)
{
	const struct xs_policy *fands = xs_policy_find("fands");
	const struct xs_policy *fused = xs_policy_find("fused");
	struct xs_tuning of_fands = xs_tuning_default(fands);
	struct xs_tuning of_fused = xs_tuning_default(fused);
	struct world *world = begin("fands", 4, 1);
	struct mapping mapping = map(world, 1, MEMORY_COUNTED);
	struct xs_block *block;

	xs_enter();
	block = xs_space_block(&world->engine.space,
			       mapping.iova >> XS_PAGE_LG2);
	xs_exit();
	world_set_policy(world, fused, &of_fused);
	xs_a64_set(&block->dead, 1);
	world_set_policy(world, fands, &of_fands);
	CHECK(!xs_a64_read(&block->dead));
	driver_unmap(world, &mapping, false);
	world_end(world);
}

/*
 * A sample of all actions of drivers and operators, on two CPUs. Actions that fail for want of
 * memory are left out.
 */
static u32 map_some(struct world *world)
{
	u32 count = 0;

	for (u32 i = 0; i < 48; i++) {
		many[count] = (struct mapping){
			.pages = i % 3 ? 1u << i % 8 : 1,
			.prot = PROT_WRITE_,
			.parts = i % 5 == 4 ? 2 : 0,
			.kind = i % MEMORY_KINDS,
		};
		test_be_cpu(i / 4 % 2);
		count += driver_map(world, &many[count], LAST);
	}
	return count;
}

static void use_block(struct world *world)
{
	struct mapping *mappings = many + 64;
	u64 iova = xs_engine_alloc_block(&world->engine, 64, LAST);
	u32 done;

	if (!iova)
		return;
	done = driver_map_block(world, mappings, 64, 8, iova);
	if (done)
		driver_unmap_block_deferred(world, mappings,
					    XS_BLOCK_ALL >> (64 - done));
	xs_engine_flush_explicit(&world->engine, true);
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	for (u32 i = 0; i < done; i++)
		driver_free(world, &mappings[i]);
	if (done < 64)
		xs_engine_drop_in_block(&world->engine,
					iova + done * XS_PAGE_BYTES, 64 - done);
}

static void use_all(struct world *world, const struct xs_policy *policy)
{
	const struct xs_policy *other = &xs_policies[policy == xs_policies];
	struct xs_tuning tuning = xs_tuning_default(other);
	u32 count = map_some(world);

	use_block(world);
	for (u32 i = 0; i < count; i++) {
		test_be_cpu(i / 3 % 2);
		if (i % 4 == 3)
			driver_unmap_aware(world, &many[i], 1, false);
		else
			driver_unmap(world, &many[i], i % 16 == 5);
		if (i == count / 2)
			world_set_policy(world, other, &tuning);
	}
	test_be_cpu(0);
	xs_engine_retire_cpu(&world->engine, 1);
}

/*
 * Fail each allocation, and each map, one after the other, until nothing is left to fail;
 * world_end() checks that the statistics balance and nothing is left.
 */
static void each_failure(void)
{
	for (u32 i = 0; i < 2 * xs_policy_count && !test_failed(); i++) {
		const struct xs_policy *policy = &xs_policies[i / 2];
		bool left = true;
		u64 n = 1;

		for (; left && !test_failed(); n++) {
			struct world *world = begin(policy->name, 64, 2);
			u64 *fails_in = i & 1 ? &world->map_fails_in :
						&world->alloc_fails_in;

			*fails_in = n;
			use_all(world, policy);
			left = !*fails_in;
			*fails_in = 0;
			world_end(world);
			test_relax();
		}
		CHECK(n > 4);
	}
}

/* ---- CPUs ---- */

static void check_closed(struct world *world, u32 cpu, u32 from_lg2)
{
	for (u32 lg2 = from_lg2; lg2 < XS_SIZES; lg2++)
		CHECK(world->engine.cpus[cpu]->open[lg2] == &world->engine.none);
}

/*
 * A drain closes the CPUs' open blocks: their free pages are available again. Another CPU keeps
 * the block that has its local pages, until it is off-line.
 */
static void check_drain(struct world *world, const struct xs_policy *policy)
{
	bool is_block = policy->placement == XS_PLACE_BLOCK;
	struct mapping mapping;

	for (u32 cpu = 0; cpu < 2; cpu++) {
		test_be_cpu(cpu);
		mapping = map(world, 1, MEMORY_COUNTED);
		driver_unmap(world, &mapping, false);
	}
	test_be_cpu(0);
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	check_closed(world, 0, 0);
	check_closed(world, 1, is_block);
	CHECK((world->engine.cpus[1]->open[0] == &world->engine.none) == !is_block);
	xs_engine_retire_cpu(&world->engine, 1);
	check_closed(world, 1, 0);
}

static void drain(void)
{
	each_policy(check_drain);
}

/* A CPU that went offline leaves nothing behind, and can return. */
static void check_retire(struct world *world, const struct xs_policy *policy)
{
	struct mapping one, two;

	(void)policy;
	test_be_cpu(1);
	one = map(world, 1, MEMORY_COUNTED);
	two = map(world, 1, MEMORY_COUNTED);
	driver_unmap(world, &one, false);
	test_be_cpu(0);
	xs_engine_retire_cpu(&world->engine, 1);
	CHECK(!driver_reachable(world, &one));
	driver_check(world, &two);
	driver_unmap(world, &two, false);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	xs_engine_retire_cpu(&world->engine, 0);
	CHECK(!world->engine.space.taken);
	test_be_cpu(1);
	one = map(world, 1, MEMORY_COUNTED);
	driver_unmap(world, &one, false);
	test_be_cpu(0);
}

static void retire(void)
{
	each_policy(check_retire);
}

/* An engine ends while CPUs cache pages of each other's blocks. */
static void destroy(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++) {
		struct world_config config = { .blocks = 8, .cpus = 2,
					       .policy = &xs_policies[i] };
		struct world *world = world_new(&config, 0);
		struct mapping mapping = map(world, 1, MEMORY_COUNTED);

		test_be_cpu(1);
		driver_unmap(world, &mapping, false);
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
		test_be_cpu(0);
		xs_engine_destroy(&world->engine);
		CHECK(!world->allocations && !world_warnings());
		world_free(world);
	}
}

/*
 * Exposure is never reported too short: CPU 0 unmaps all of a block except the last page, and
 * CPU 1 unmaps the last page long after.
 */
static void check_exposure(struct world *world, const struct xs_policy *policy)
{
	struct mapping *mappings = many;

	(void)policy;
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		mappings[i] = map(world, 1, MEMORY_COUNTED);
	for (u32 i = 0; i < XS_BLOCK_PAGES - 1; i++)
		driver_unmap(world, &mappings[i], false);
	world_advance(world, 500000);
	test_be_cpu(1);
	driver_unmap(world, &mappings[XS_BLOCK_PAGES - 1], false);
	world_advance(world, 300000);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	test_be_cpu(0);
	CHECK(world_stats(world)->exposure_max_ns >= world->exposed_max_ns);
}

static void exposure(void)
{
	each_policy(check_exposure);
}

/* A clock that went back: a page flushed at a time before the unmap counts as never exposed. */
static void clock_back(void)
{
	struct world *world = begin("fused", 4, 1);
	struct mapping mapping = map(world, 1, MEMORY_COUNTED);

	driver_unmap(world, &mapping, false);
	world->now_ns -= 500;
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	CHECK(world_stats(world)->exposure[0] == 1);
	CHECK(!world_stats(world)->exposure_max_ns);
	world_end(world);
}

/* ---- broken drivers ---- */

/*
 * A driver that frees memory before the unmap: freed memory cannot be held, so a policy that
 * holds may not defer the unmap.
 */
static void check_early(struct world *world, const struct xs_policy *policy)
{
	struct mapping one = map(world, 1, MEMORY_COUNTED);
	struct mapping three = map(world, 3, MEMORY_COUNTED);
	struct mapping fast[4];

	world->frees_early = true;
	driver_free(world, &one);
	/* With both ways to unmap a page. */
	for (u32 i = 0; i < 4; i++) {
		fast[i] = map(world, 1, MEMORY_COUNTED);
		driver_free(world, &fast[i]);
	}
	for (u32 i = 0; i < 4; i++) {
		driver_unmap_only(world, &fast[i], false);
		CHECK(driver_reachable(world, &fast[i]) ==
		      (policy->hold == XS_HOLD_IOVA &&
		       !flushes_on(policy, XS_FLUSH_UNMAP)));
	}
	world->memory[three.page + 2].refs = 0;
	driver_unmap_only(world, &one, false);
	driver_unmap_only(world, &three, false);
	world->memory[three.page + 2].refs = 1;
	CHECK(driver_reachable(world, &one) ==
	      (policy->hold == XS_HOLD_IOVA &&
	       !flushes_on(policy, XS_FLUSH_UNMAP)));
	CHECK(driver_reachable(world, &one) ==
	      driver_reachable(world, &three));
	driver_free(world, &three);
}

static void freed_before_unmap(void)
{
	each_policy(check_early);
}

/* ---- wrong statistics ---- */

/* Run the leak check with counts that are off by @pages. */
static void check_leaks(struct world *world, s64 pages)
{
	static struct xs_stats sum;

	CHECK(xs_engine_leak_check(&world->engine, &sum) == 4);
	xs_count(world->engine.counts, maps, (u64)pages);
	CHECK(xs_engine_is_balanced(&world->engine) == (4 + pages >= 0));
	CHECK(xs_engine_leak_check(&world->engine, &sum) == -XS_EILSEQ);
	CHECK(world_warnings());
	xs_count(world->engine.counts, maps, (u64)-pages);
}

/* Blocks record handed-out pages, and counts record mapped pages: a leak check compares both. */
static void leak_check(void)
{
	struct world *world = begin("fused", 32, 1);
	struct mapping mappings[4];

	for (u32 i = 0; i < 4; i++)
		mappings[i] = map(world, 1, MEMORY_COUNTED);
	check_leaks(world, 1);
	check_leaks(world, -3);
	check_leaks(world, -5);
	for (u32 i = 0; i < 4; i++)
		driver_unmap(world, &mappings[i], false);
	world_end(world);
}

/* A device that addresses more than the space, but not all 64 bits. */
static void wide_mask(void)
{
	struct world *world = begin("fused", 32, 1);
	struct mapping mapping = { .pages = 1, .prot = PROT_WRITE_ };

	CHECK(driver_map(world, &mapping, (1ULL << 63) - 1));
	driver_unmap(world, &mapping, false);
	world_end(world);
}

static void too_many_cpus(void)
{
	struct world *world = begin("fused", 32, 1);
	struct xs_engine_config config = {
		.ops = world->engine.ops,
		.cpu_count = XS_CPUS_MAX + 1,
		.policy = xs_load(&world->engine.policy),
	};
	static struct xs_engine engine;

	CHECK(xs_engine_init(&engine, &config) == -XS_EINVAL);
	world_end(world);
}

/* ---- unflushed maps ---- */

static struct mapping map_unflushed(struct world *world, u32 pages)
{
	struct mapping mapping = { .pages = pages, .prot = PROT_READ_,
				   .deferred = true };

	CHECK(driver_map(world, &mapping, LAST));
	return mapping;
}

static bool is_flushed(struct world *world, const struct mapping *mapping)
{
	u64 phys;

	return world_access(world, mapping->iova, PROT_READ_, &phys) &&
	       world_access(world, mapping->iova +
			    (mapping->pages - 1) * XS_PAGE_BYTES, PROT_READ_,
			    &phys);
}

/* Check the number of calls, ranges and pages since the last check. */
static void check_map_flushes(struct world *world, u64 calls, u64 ranges,
			      u64 pages)
{
	CHECK(world->map_flushes == calls);
	CHECK(world->map_ranges == ranges);
	CHECK(world->map_pages == pages);
	world->map_flushes = world->map_ranges = world->map_pages = 0;
}

/* Neighbours form one range, whatever the sizes; nothing is flushed twice or without need. */
static void maps_together(void)
{
	struct world *world = begin("fused", 32, 1);
	u32 count = 0;

	for (; count < 10; count++)
		many[count] = map_unflushed(world, 1);
	for (u32 i = 0; i < count; i++)
		CHECK(!is_flushed(world, &many[i]));
	check_map_flushes(world, 0, 0, 0);
	xs_engine_flush_maps(&world->engine, false);
	check_map_flushes(world, 1, 1, 10);
	for (u32 i = 0; i < count; i++)
		driver_check(world, &many[i]);
	xs_engine_flush_maps(&world->engine, false);
	xs_engine_flush_maps(&world->engine, true);
	check_map_flushes(world, 0, 0, 0);
	many[count++] = map_unflushed(world, 64);
	many[count++] = map_unflushed(world, 5);
	many[count++] = map_unflushed(world, 1);
	/* Larger than a block: flushed at once. */
	many[count] = map_unflushed(world, 65);
	driver_check(world, &many[count++]);
	world->maps_fail = true;
	CHECK(!driver_map(world, &(struct mapping){ .pages = 1, .deferred = true },
			  LAST));
	world->maps_fail = false;
	xs_engine_flush_maps(&world->engine, true);
	CHECK(world->map_flushes == 1 && world->map_pages == 70);
	for (u32 i = 0; i < count; i++) {
		driver_check(world, &many[i]);
		driver_unmap(world, &many[i], false);
	}
	world_end(world);
}

/* Maps unmapped before the flush do not matter. */
static void maps_undone(void)
{
	struct world *world = begin("fused", 32, 1);
	struct mapping first = map_unflushed(world, 1), kept = map_unflushed(world, 1);

	driver_unmap(world, &first, true);
	xs_engine_flush_maps(&world->engine, false);
	CHECK(world->map_flushes == 1);
	driver_check(world, &kept);
	first = map_unflushed(world, 3);
	driver_unmap(world, &first, false);
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	driver_unmap(world, &kept, false);
	xs_engine_flush_maps(&world->engine, false);
	CHECK(world->map_flushes == 2);
	world_end(world);
}

/* Map every second page of a block, so that no pages are neighbours. */
static void map_apart(struct world *world, u64 iova, u32 first, u32 end)
{
	for (u32 i = first; i < end; i++) {
		many[i] = (struct mapping){ .pages = 1, .prot = PROT_READ_,
					    .deferred = true };
		CHECK(driver_map_at(world, &many[i],
				    iova + 2 * i * XS_PAGE_BYTES));
	}
}

/*
 * A flush uses as many ranges as the tunables allow, or one range from the first page to the
 * last.
 */
static void check_maps_apart(struct world *world, const struct xs_policy *policy)
{
	u64 iova = xs_engine_alloc_block(&world->engine, 64, LAST);
	bool domain = policy->scope == XS_SCOPE_DOMAIN;
	struct mapping none = { .pages = 1, .prot = PROT_READ_, .deferred = true };

	/* A failed map leaves nothing to flush. */
	world->maps_fail = true;
	CHECK(!driver_map_at(world, &none, iova));
	world->maps_fail = false;
	xs_engine_flush_maps(&world->engine, false);
	check_map_flushes(world, 0, 0, 0);
	map_apart(world, iova, 0, 4);
	xs_engine_flush_maps(&world->engine, false);
	check_map_flushes(world, 1, domain ? 1 : 4, domain ? 7 : 4);
	map_apart(world, iova, 4, 9);
	xs_engine_flush_maps(&world->engine, false);
	check_map_flushes(world, 1, 1, 9);
	for (u32 i = 0; i < 9; i++) {
		driver_check(world, &many[i]);
		driver_unmap(world, &many[i], false);
	}
	for (u32 i = 0; i < 64; i++)
		if (i % 2 || i > 16)
			xs_engine_drop_in_block(&world->engine,
						iova + i * XS_PAGE_BYTES, 1);
}

static void maps_apart(void)
{
	each_policy(check_maps_apart);
}

/*
 * Extents unmapped before the flush lie inside a later, larger extent: the flush covers the
 * whole extent.
 */
static void check_maps_nested(struct world *world, const struct xs_policy *policy)
{
	u64 iova = xs_engine_alloc_block(&world->engine, 64, LAST);
	struct mapping all;

	(void)policy;
	map_apart(world, iova, 0, 5);
	for (u32 i = 0; i < 64; i++) {
		if (i % 2 || i >= 10)
			xs_engine_drop_in_block(&world->engine,
						iova + i * XS_PAGE_BYTES, 1);
		else
			driver_unmap(world, &many[i / 2], true);
	}
	/* Let the block serve another size. */
	xs_engine_retire_cpu(&world->engine, 0);
	all = map_unflushed(world, 64);
	CHECK(all.iova == iova);
	xs_engine_flush_maps(&world->engine, false);
	check_map_flushes(world, 1, 1, 64);
	driver_check(world, &all);
	driver_unmap(world, &all, true);
}

static void maps_nested(void)
{
	each_policy(check_maps_nested);
}

/* Without room for another extent, recorded extents are joined or flushed early. */
static void maps_overflow(void)
{
	struct world *world = begin("fused", 32, 1);
	u64 iova[4];

	for (u32 i = 0; i < 4; i++)
		iova[i] = xs_engine_alloc_block(&world->engine, 64, LAST);
	/* Pages in descending order: each page is an extent, until all are joined. */
	for (u32 i = 0; i < XS_UNFLUSHED_EXTENTS; i++) {
		many[i] = (struct mapping){ .pages = 1, .prot = PROT_READ_,
					    .deferred = true };
		CHECK(driver_map_at(world, &many[i],
				    iova[0] + (63 - i) * XS_PAGE_BYTES));
	}
	map_apart(world, iova[2] - 2 * 64 * XS_PAGE_BYTES, 64, 96);
	check_map_flushes(world, 0, 0, 0);
	map_apart(world, iova[3] - 2 * 96 * XS_PAGE_BYTES, 96, 127);
	check_map_flushes(world, 0, 0, 0);
	for (u32 i = 0; i < 127; i++)
		CHECK(!is_flushed(world, &many[i]));
	map_apart(world, iova[3] - 2 * 96 * XS_PAGE_BYTES, 127, 128);
	CHECK(world->map_flushes == 1 && world->map_ranges == 1);
	CHECK(is_flushed(world, &many[0]) && is_flushed(world, &many[126]));
	CHECK(!is_flushed(world, &many[127]));
	xs_engine_flush_maps(&world->engine, false);
	CHECK(world->map_flushes == 2);
	for (u32 i = 0; i < 128; i++) {
		driver_check(world, &many[i]);
		driver_unmap(world, &many[i], false);
	}
	for (u32 i = 0; i < 64; i++) {
		u64 at = i * XS_PAGE_BYTES;

		if (i % 2) {
			xs_engine_drop_in_block(&world->engine, iova[2] + at, 1);
			xs_engine_drop_in_block(&world->engine, iova[3] + at, 1);
		}
		xs_engine_drop_in_block(&world->engine, iova[1] + at, 1);
	}
	world_end(world);
}

/* A driver that never flushes maps, and unmaps. */
static void maps_never_flushed(void)
{
	struct world *world = begin("strict", 32, 1);

	for (u32 i = 0; i < 2 * 65536 / 64 + 1; i++) {
		struct mapping mapping = map_unflushed(world, 64);

		driver_unmap(world, &mapping, true);
	}
	CHECK(world->map_flushes && world->map_pages <= 2 * 32 * 64 * 64);
	xs_engine_flush_maps(&world->engine, true);
	world_end(world);
}

/* Simulates an extent that has grown to the largest count. */
static void maps_too_many(void)
{
	struct world *world = begin("fused", 32, 1);

	many[0] = map_unflushed(world, 1);
	world->engine.cpus[0]->unflushed.pages = 0xffff;
	many[1] = map_unflushed(world, 1);
	CHECK(world->map_flushes == 1);
	CHECK(is_flushed(world, &many[0]) && !is_flushed(world, &many[1]));
	xs_engine_flush_maps(&world->engine, false);
	CHECK(is_flushed(world, &many[1]));
	for (u32 i = 0; i < 2; i++)
		driver_unmap(world, &many[i], true);
	world_end(world);
}

/* Flush by the CPU that has mapped, and by a CPU that looks on all CPUs. */
static void maps_elsewhere(void)
{
	struct world *world = begin("fused", 32, 2);

	many[0] = map_unflushed(world, 1);
	test_be_cpu(1);
	many[1] = map_unflushed(world, 1);
	xs_engine_flush_maps(&world->engine, false);
	CHECK(!is_flushed(world, &many[0]) && is_flushed(world, &many[1]));
	xs_engine_flush_maps(&world->engine, true);
	CHECK(is_flushed(world, &many[0]));
	check_map_flushes(world, 2, 2, 2);
	for (u32 i = 0; i < 2; i++)
		driver_unmap(world, &many[i], true);
	test_be_cpu(0);
	world_end(world);
}

const struct test engine_tests[] = {
	{ "engine_unmap", unmap },
	{ "engine_unmap_now_only", unmap_now_only },
	{ "engine_poll", poll },
	{ "engine_timers", timers },
	{ "engine_poll_says", poll_says },
	{ "engine_time_bound", time_bound },
	{ "engine_shorter_window", shorter_window },
	{ "engine_longer_window", longer_window },
	{ "engine_explicit_flush", explicit_flush },
	{ "engine_all_aware", all_aware },
	{ "engine_aware", aware },
	{ "engine_own_block", own_block },
	{ "engine_maps_together", maps_together },
	{ "engine_maps_undone", maps_undone },
	{ "engine_maps_apart", maps_apart },
	{ "engine_maps_nested", maps_nested },
	{ "engine_maps_overflow", maps_overflow },
	{ "engine_maps_never_flushed", maps_never_flushed },
	{ "engine_maps_too_many", maps_too_many },
	{ "engine_maps_elsewhere", maps_elsewhere },
	{ "engine_block_at_once", block_at_once },
	{ "engine_block_refused", block_refused },
	{ "engine_block_empty", block_empty_ },
	{ "engine_block_only", block_only },
	{ "engine_block_part", block_part },
	{ "engine_block_after_change", block_after_change },
	{ "engine_blocks_after_change", blocks_after_change },
	{ "engine_full", full },
	{ "engine_most", most },
	{ "engine_ring", ring },
	{ "engine_commands", commands },
	{ "engine_scattered", scattered },
	{ "engine_whole_table", whole_table },
	{ "engine_one_removal", one_removal },
	{ "engine_causes", causes },
	{ "engine_sends", sends },
	{ "engine_bare", bare },
	{ "engine_nothing", nothing },
	{ "engine_tuned", tuned },
	{ "engine_hold", hold },
	{ "engine_holds_max", holds_max },
	{ "engine_slab", slab },
	{ "engine_parts", parts },
	{ "engine_filled", filled },
	{ "engine_apart", apart },
	{ "engine_apart_refused", apart_refused },
	{ "engine_hold_across_policies", hold_across_policies },
	{ "engine_sizes", sizes },
	{ "engine_exhaustion", exhaustion },
	{ "engine_refused", refused },
	{ "engine_no_memory_at_init", no_memory_at_init },
	{ "engine_no_memory", no_memory },
	{ "engine_no_batch", no_batch },
	{ "engine_no_batch_dead", no_batch_dead },
	{ "engine_marks_left", marks_left },
	{ "engine_each_failure", each_failure },
	{ "engine_drain", drain },
	{ "engine_retire", retire },
	{ "engine_destroy", destroy },
	{ "engine_exposure", exposure },
	{ "engine_clock_back", clock_back },
	{ "engine_freed_before_unmap", freed_before_unmap },
	{ "engine_leak_check", leak_check },
	{ "engine_wide_mask", wide_mask },
	{ "engine_too_many_cpus", too_many_cpus },
	{ NULL, NULL },
};
