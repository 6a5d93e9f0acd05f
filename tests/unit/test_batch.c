// SPDX-License-Identifier: GPL-2.0-only
/*
 * The log of a CPU's unmaps, and the extents and ranges that a flush makes of the log, against
 * brute force.
 */
#include "unit_world.h"

/* ---- extents ---- */

#define EXTENTS_PAGES	8192	/* of the model */

static struct {
	u64 runs[XS_BATCH_RECORDS];
	bool pages[EXTENTS_PAGES];
	struct xs_range ranges[128];
} b;

/* Make disjoint extents, in any order; returns the number of extents. */
static u32 make_runs(u64 *random, u32 wanted, u64 base, u32 long_ones)
{
	u32 count = 0;

	for (u32 i = 0; i < EXTENTS_PAGES; i++)
		b.pages[i] = false;
	for (u32 tries = 0; tries < 4 * wanted && count < wanted; tries++) {
		u32 pages = test_below(random, 100) < long_ones ?
			    1 + test_below(random, 300) : 1;
		u32 page = test_below(random, EXTENTS_PAGES - pages);
		u32 free = 0;

		while (free < pages && !b.pages[page + free])
			free++;
		if (free < pages)
			continue;
		for (u32 i = 0; i < pages; i++)
			b.pages[page + i] = true;
		b.runs[count++] = (base + page) << 16 | pages;
	}
	return count;
}

/* Sorted, disjoint, and exactly the pages of the model. */
static void check_joined(u32 count, u64 base)
{
	u64 next = 0;

	for (u32 i = 0; i < count; i++) {
		u64 page = xs_extent_page(b.runs[i]) - base;
		u64 end = page + xs_extent_pages(b.runs[i]);

		if (!CHECK(page < end && end <= EXTENTS_PAGES) ||
		    !CHECK(!i || page > next))
			return;
		for (; next < page; next++)
			CHECK(!b.pages[next]);
		for (; next < end; next++)
			CHECK(b.pages[next]);
	}
	for (; next < EXTENTS_PAGES; next++)
		CHECK(!b.pages[next]);
}

static u64 some_base(u64 seed)
{
	static const u64 bases[] = { 0, 1ULL << 20, (1ULL << 40) - EXTENTS_PAGES };

	return bases[seed % 3];
}

static void joins_seed(u64 seed)
{
	u64 random = seed, base = some_base(seed);
	u32 count = make_runs(&random, test_below(&random, XS_BATCH_RECORDS + 1),
			      base, test_below(&random, 40));

	test_replay(seed, 0);
	check_joined(xs_extents_join(b.runs, count), base);
}

/* Maps that were unmapped and made again: extents may overlap or contain each other. */
static void joins_overlapping_seed(u64 seed)
{
	u64 random = seed, base = some_base(seed);
	u32 count = make_runs(&random, test_below(&random, XS_UNFLUSHED_EXTENTS), base,
			      40);
	u32 more = test_below(&random, XS_UNFLUSHED_EXTENTS);

	test_replay(seed, 0);
	for (u32 i = 0; i < more; i++) {
		u32 pages = 1 + (u32)test_below(&random, 64);
		u32 page = (u32)test_below(&random, EXTENTS_PAGES - 64);

		for (u32 j = 0; j < pages; j++)
			b.pages[page + j] = true;
		b.runs[count++] = (base + page) << 16 | pages;
	}
	check_joined(xs_extents_join(b.runs, count), base);
}

static void joins(void)
{
	CHECK(!xs_extents_join(b.runs, 0));
	test_seeds(300, joins_seed);
	test_seeds(300, joins_overlapping_seed);
}

/* ---- ranges ---- */

/* Is a page of this block of the model set? */
static bool block_is_set(u32 block)
{
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		if (b.pages[block * XS_BLOCK_PAGES + i])
			return true;
	return false;
}

/* Returns the least number of aligned powers of two that cover exactly the set blocks. */
static u32 fewest(u32 first, u32 blocks)
{
	u32 set = 0;

	for (u32 i = 0; i < blocks; i++)
		set += block_is_set(first + i);
	if (!set || set == blocks)
		return set != 0;
	return fewest(first, blocks / 2) +
	       fewest(first + blocks / 2, blocks / 2);
}

#define BLOCKS	(EXTENTS_PAGES / XS_BLOCK_PAGES)

/* Aligned powers of two that cover the set blocks, no block twice. */
static void check_cover(u32 found, u64 base)
{
	static u8 covered[BLOCKS];

	for (u32 i = 0; i < BLOCKS; i++)
		covered[i] = 0;
	for (u32 i = 0; i < found; i++) {
		u64 page = b.ranges[i].page, pages = b.ranges[i].pages;

		CHECK(pages >= XS_BLOCK_PAGES && !(pages & (pages - 1)));
		CHECK(!(page & (pages - 1)));
		for (u64 at = page - base; at < page - base + pages;
		     at += XS_BLOCK_PAGES)
			if (CHECK(at < EXTENTS_PAGES))
				covered[at / XS_BLOCK_PAGES]++;
	}
	for (u32 i = 0; i < BLOCKS; i++)
		CHECK(covered[i] == block_is_set(i));
}

static void check_ranges(u32 count, u64 base, u32 max)
{
	u32 least = fewest(0, BLOCKS);
	u32 found;

	count = xs_extents_join(b.runs, count);
	found = xs_extents_ranges(b.runs, count, b.ranges, max);
	/* Halves wait for each other: at most one of each size is pending. */
	if (found == max + 1) {
		CHECK(least + 7 > max);
		return;
	}
	CHECK(found == least && found <= max);
	check_cover(found, base);
}

/* Every set of 12 blocks, with one page or all pages of each block. */
static void ranges_of_all_sets(void)
{
	for (u32 set = 1; set < 1u << 12 && !test_failed(); set++) {
		u32 count = 0;

		for (u32 i = 0; i < EXTENTS_PAGES; i++)
			b.pages[i] = false;
		for (u32 block = 0; block < 12; block++) {
			u32 pages = set * block % 7 ? XS_BLOCK_PAGES : 3;
			u64 page = block * XS_BLOCK_PAGES;

			if (!(set >> block & 1))
				continue;
			for (u32 i = 0; i < pages; i++)
				b.pages[page + i] = true;
			b.runs[count++] = page << 16 | pages;
		}
		check_ranges(count, 0, 1 + set % 7);
		check_ranges(count, 0, 32);
		if (!(set % 64))
			test_relax();
	}
}

static void ranges_seed(u64 seed)
{
	u64 random = seed, base = some_base(seed);
	u32 count = make_runs(&random, 1 + test_below(&random, 40), base,
			      test_below(&random, 101));

	test_replay(seed, 0);
	check_ranges(count, base, 1 + test_below(&random, 100));
}

static void ranges_of_random_sets(void)
{
	test_seeds(2000, ranges_seed);
}

/* ---- the log ---- */

static struct xs_batch *batch_new(void)
{
	struct xs_batch *batch = test_alloc(sizeof(*batch));

	batch->records = test_alloc(XS_BATCH_RECORDS * sizeof(*batch->records));
	return batch;
}

static void batch_free(struct xs_batch *batch)
{
	test_free(batch->records);
	test_free(batch);
}

static void keys(void)
{
	static const u64 pages[] = { 1, 64, 1ULL << 20, (1ULL << 40) - 1 };

	CHECK(!xs_key_is_valid(XS_KEY_FREE) && !xs_key_is_valid(XS_KEY_TAKEN));
	for (u32 i = 0; i < 4; i++)
		for (u32 whole = 0; whole <= XS_BLOCK_PAGES; whole++)
			for (u32 part = 1; part <= XS_BLOCK_PAGES; part++) {
				u64 key = xs_key_of(pages[i], whole, part);

				CHECK(xs_key_is_valid(key));
				CHECK(xs_key_page(key) == pages[i]);
				CHECK(xs_key_mapping_pages(key) == whole);
				CHECK(xs_key_pages(key) == part);
			}
}

/* The fast path: up to the limit, and only written records. */
static void append_fast(void)
{
	struct xs_batch *batch = batch_new();

	CHECK(xs_batch_is_empty(batch));
	xs_enter();
	CHECK(!xs_batch_append_fast(batch, 7, XS_REF_NONE));
	batch->limit = 5;
	for (u64 i = 0; i < 5; i++)
		CHECK(xs_batch_append_fast(batch, 7 + i, XS_REF_NONE));
	CHECK(!xs_batch_append_fast(batch, 12, XS_REF_NONE));
	xs_exit();
	CHECK(xs_batch_pages(batch) == 5 && !xs_batch_is_empty(batch));
	for (u64 i = 0; i < XS_BATCH_RECORDS; i++) {
		u64 key = i < 5 ? xs_key_of(7 + i, 1, 1) : XS_KEY_FREE;

		CHECK(xs_batch_record(batch, i)->key == key);
	}
	batch_free(batch);
}

/* A reservation sets the start time of each group that begins within. */
static void reserve(void)
{
	struct xs_batch *batch = batch_new();

	CHECK(xs_batch_alloc_records(batch, 1, 1, 100) == 0);
	CHECK(xs_batch_alloc_records(batch, 3, 60, 200) == 1);
	CHECK(xs_batch_pages(batch) == 61);
	CHECK(*xs_batch_began_ns(batch, 0) == 100);
	CHECK(xs_batch_alloc_records(batch, XS_BATCH_GROUP, XS_BATCH_GROUP, 300) == 4);
	CHECK(*xs_batch_began_ns(batch, XS_BATCH_GROUP - 1) == 100);
	CHECK(*xs_batch_began_ns(batch, XS_BATCH_GROUP) == 300);
	CHECK(xs_batch_pages(batch) == 61 + XS_BATCH_GROUP);
	CHECK(xs_batch_has_room(batch, XS_BATCH_RECORDS - XS_BATCH_GROUP - 4));
	CHECK(!xs_batch_has_room(batch, XS_BATCH_RECORDS - XS_BATCH_GROUP - 3));
	CHECK(xs_batch_contiguous(1020, 1030) == 4 && xs_batch_contiguous(1024, 1030) == 6);
	batch_free(batch);
}

/*
 * The limit is the end of the group, or one before the batch is full, so that the unmap that
 * fills the batch takes the slow path.
 */
static void limit_seed(u64 seed)
{
	struct xs_batch *batch = batch_new();
	u64 random = seed;
	u32 most = 1 + test_below(&random, XS_BATCH_MAX_PAGES);
	u64 tail = test_below(&random, 5000);

	test_replay(seed, 0);
	batch->tail = tail;
	xs_a64_set(&batch->head, tail);
	while (xs_batch_pages(batch) < most && !test_failed()) {
		u32 count = 1 + test_below(&random, 3);
		u32 pages = count + test_below(&random, seed % 3 * 20 + 1);
		u64 before;

		if (!xs_batch_has_room(batch, count))
			break;
		xs_batch_alloc_records(batch, count, pages, 1);
		xs_batch_set_limit(batch, most);
		if (xs_batch_pages(batch) >= most) {
			CHECK(batch->limit <= xs_a64_read(&batch->head));
			break;
		}
		before = xs_a64_read(&batch->head);
		xs_enter();
		while (xs_batch_append_fast(batch, 1, XS_REF_NONE))
			;
		xs_exit();
		CHECK(xs_batch_pages(batch) < most);
		CHECK(xs_batch_pages(batch) == most - 1 ||
		      xs_a64_read(&batch->head) % XS_BATCH_GROUP == 0);
		CHECK((before - 1) / XS_BATCH_GROUP ==
		      (xs_a64_read(&batch->head) - 1) / XS_BATCH_GROUP);
	}
	CHECK(xs_a64_read(&batch->head) - tail <= XS_BATCH_RECORDS);
	batch_free(batch);
}

static void limit(void)
{
	test_seeds(300, limit_seed);
}

/* ---- records that are not written yet ---- */

/* An unmap that is interrupted after reserving a record: of one page, without a hold. */
static u64 begin_unmap(struct world *world, const struct mapping *mapping)
{
	struct xs_batch *batch = &world->engine.cpus[0]->batch;
	xs_slot_t *slot = xs_space_slot(&world->engine.space,
					mapping->iova >> XS_PAGE_LG2);
	u64 page = (mapping->iova >> XS_PAGE_LG2) - world->first_page;
	u64 found = xs_a64_read(slot);
	u64 head = xs_a64_read(&batch->head);

	CHECK(xs_slot_claim(slot, &found));
	CHECK(head < batch->limit && xs_a64_try(&batch->head, &head, head + 1));
	xs_count(world->engine.counts, unmaps, 1);
	world->owner[page] &= ~(u64)OWNER_MAPPED;
	world->unmapped_ns[page] = world->now_ns;
	return head;
}

static void end_unmap(struct world *world, const struct mapping *mapping,
		      u64 record)
{
	struct xs_batch *batch = &world->engine.cpus[0]->batch;

	xs_record_write(xs_batch_record(batch, record),
			xs_key_of(mapping->iova >> XS_PAGE_LG2, 1, 1),
			XS_REF_NONE);
}

static struct mapping map_one(struct world *world)
{
	struct mapping mapping = { .pages = 1, .prot = PROT_READ_,
				   .kind = MEMORY_COUNTED };

	CHECK(driver_map(world, &mapping, ~0ULL));
	return mapping;
}

/*
 * Each flush takes all records except those in flight, and the first flush after a record is
 * written takes that record. @count: records in flight at once, among others.
 */
static void check_kept(const struct xs_policy *policy, u32 count)
{
	struct world_config config = { .blocks = 32, .cpus = 2,
				       .policy = policy };
	struct world *world = world_new(&config, 0);
	struct xs_batch *batch = &world->engine.cpus[0]->batch;
	struct mapping flying[4], others[9];
	u64 records[4];

	for (u32 i = 0; i < 9; i++)
		others[i] = map_one(world);
	for (u32 i = 0; i < count; i++)
		flying[i] = map_one(world);
	driver_unmap(world, &others[0], false);
	for (u32 i = 0; i < count; i++) {
		records[i] = begin_unmap(world, &flying[i]);
		driver_unmap(world, &others[1 + 2 * i], false);
		driver_unmap(world, &others[2 + 2 * i], false);
	}
	for (u32 round = 0; round < 4; round++) {
		if (round % 2)
			world_advance(world, policy->window_us * 1000ULL);
		else
			xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
		for (u32 i = 0; i < 1 + 2 * count; i++)
			CHECK(!driver_reachable(world, &others[i]));
		for (u32 i = 0; i < count; i++)
			CHECK(world_reachable(world, flying[i].iova));
		CHECK(!xs_batch_is_empty(batch));
		CHECK(world->cpu[0].deadline_ns > world->now_ns);
	}
	/* The first record last, so that another record is behind. */
	for (u32 i = count; i--;) {
		end_unmap(world, &flying[i], records[i]);
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
		CHECK(!world_reachable(world, flying[i].iova));
		CHECK(!i == xs_batch_is_empty(batch));
		driver_free(world, &flying[i]);
	}
	for (u32 i = 1 + 2 * count; i < 9; i++)
		driver_unmap(world, &others[i], false);
	world_end(world);
}

static void kept(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++)
		if (!(xs_policies[i].flushes & XS_FLUSH_BIT(XS_FLUSH_UNMAP)))
			for (u32 count = 1; count <= 4; count++)
				check_kept(&xs_policies[i], count);
}

/* A record in flight and a ring that fills up behind: further unmaps are not deferred. */
static void kept_full(void)
{
	struct world_config config = { .blocks = 64, .cpus = 1,
				       .policy = xs_policy_find("fused") };
	struct world *world = world_new(&config, 0);
	struct mapping first = map_one(world), flying = map_one(world), lone;
	struct xs_batch *batch = &world->engine.cpus[0]->batch;
	u64 record, began_ns;
	u32 immediate = 0;

	driver_unmap(world, &first, false);
	record = begin_unmap(world, &flying);
	began_ns = *xs_batch_began_ns(batch, record);
	for (u32 i = 0; i < 2 * XS_BATCH_RECORDS && !test_failed(); i++) {
		lone = map_one(world);
		driver_unmap(world, &lone, false);
		immediate += !driver_reachable(world, &lone);
		if (i % 100 == 0)
			xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
		world->now_ns += 10;
		CHECK(*xs_batch_began_ns(batch, record) == began_ns);
	}
	CHECK(immediate > XS_BATCH_RECORDS / 2);
	end_unmap(world, &flying, record);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	driver_free(world, &flying);
	world_check_flushed(world);
	world_end(world);
}

/*
 * A record left by a policy change is flushed by the next poll if the new policy flushes at
 * polls, even if a poll under the old policy came for nothing since the batch began.
 */
static void kept_poll(void)
{
	struct world_config config = { .blocks = 32, .cpus = 2,
				       .policy = xs_policy_find("fands") };
	const struct xs_policy *polls = xs_policy_find("xsmmu");
	struct xs_tuning tuning = xs_tuning_default(polls);
	struct world *world = world_new(&config, 0);
	struct mapping first = map_one(world), flying = map_one(world);
	u64 record;

	driver_unmap(world, &first, false);
	world_poll(world);
	CHECK(driver_reachable(world, &first));
	record = begin_unmap(world, &flying);
	test_be_cpu(1);
	xs_engine_set(&world->engine, polls, &tuning);
	test_be_cpu(0);
	end_unmap(world, &flying, record);
	world_poll(world);
	CHECK(!world_reachable(world, flying.iova));
	driver_free(world, &flying);
	world_end(world);
}

/* Defers a page on CPU 0, and flushes it on CPU 1, which stays the running CPU. */
static void flush_elsewhere(struct world *world)
{
	struct mapping mapping;

	test_be_cpu(0);
	mapping = map_one(world);
	driver_unmap(world, &mapping, false);
	CHECK(driver_reachable(world, &mapping));
	test_be_cpu(1);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	CHECK(!driver_reachable(world, &mapping));
}

/*
 * A CPU's timer runs after another CPU's flush until the CPU has ended the group: by the timer,
 * by the next unmap, which begins a group of its own age, by a poll, or off-line. The first
 * unmap of a CPU that comes back begins a group, too.
 */
static void flushed_elsewhere(void)
{
	struct world_config config = { .blocks = 8, .cpus = 2,
				       .policy = xs_policy_find("fused") };
	u64 window_ns = config.policy->window_us * 1000ULL;
	struct world *world = world_new(&config, 0);
	struct xs_batch *batch = &world->engine.cpus[0]->batch;
	struct mapping next = map_one(world), own = map_one(world), back = map_one(world);
	u64 head;

	flush_elsewhere(world);
	world_advance(world, 3 * window_ns);
	CHECK(world->cpu[0].deadline_ns > world->now_ns);
	test_be_cpu(0);
	world_advance(world, window_ns);
	CHECK(!world->cpu[0].deadline_ns);
	CHECK(!(xs_a64_read(&batch->head) % XS_BATCH_GROUP));

	head = xs_a64_read(&batch->head);
	driver_unmap(world, &own, false);
	/* No record of the new group is left out. */
	CHECK(xs_a64_read(&batch->head) == head + 1);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	test_be_cpu(1);
	world_advance(world, window_ns);
	CHECK(!world->cpu[0].deadline_ns);

	flush_elsewhere(world);
	world_advance(world, 3 * window_ns);
	test_be_cpu(0);
	driver_unmap(world, &next, false);
	CHECK(*xs_batch_began_ns(batch, batch->tail) == world->now_ns);
	world_advance(world, window_ns);
	CHECK(!driver_reachable(world, &next));
	CHECK(!world->cpu[0].deadline_ns);

	flush_elsewhere(world);
	test_be_cpu(0);
	CHECK(xs_engine_poll(&world->engine));
	CHECK(!(xs_a64_read(&batch->head) % XS_BATCH_GROUP));

	flush_elsewhere(world);
	xs_engine_retire_cpu(&world->engine, 0);
	world_advance(world, window_ns);
	CHECK(!world->cpu[0].deadline_ns);
	test_be_cpu(0);
	driver_unmap(world, &back, false);
	CHECK(*xs_batch_began_ns(batch, batch->tail) == world->now_ns);
	world_end(world);
}

/*
 * An append in progress on CPU 0 may come after the drain by CPU 1. So the drain starts the timer
 * again, for the new window.
 */
static void drain_of_a_shorter_window(void)
{
	struct world_config config = { .blocks = 8, .cpus = 2,
				       .policy = xs_policy_find("fused") };
	struct xs_tuning tuning = xs_tuning_default(config.policy);
	struct world *world = world_new(&config, 0);
	struct mapping mapping = map_one(world);

	driver_unmap(world, &mapping, false);
	tuning.window_us /= 2;
	test_be_cpu(1);
	world_set_policy(world, config.policy, &tuning);
	CHECK(!driver_reachable(world, &mapping));
	CHECK(world->cpu[0].deadline_ns > world->now_ns);
	CHECK(world->cpu[0].deadline_ns <= world->now_ns + tuning.window_us * 1000ULL);
	test_be_cpu(0);
	world_end(world);
}

/*
 * The timer that another CPU has started fires on that CPU. The batch's CPU starts the timer
 * again for the next batch: after a drain, and after the timer has fired, due or not.
 */
static void timer_comes_home(void)
{
	struct world_config config = { .blocks = 8, .cpus = 2,
				       .policy = xs_policy_find("lazy") };
	u64 window_ns = config.policy->window_us * 1000ULL;
	struct world *world = world_new(&config, 0);
	struct mapping mapping = map_one(world);
	u64 timers;

	driver_unmap(world, &mapping, false);
	for (u32 i = 0; i < 3; i++) {
		test_be_cpu(1);
		if (!i)
			xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
		else
			world_advance(world, i * window_ns);
		CHECK(!driver_reachable(world, &mapping));
		CHECK(world->cpu[0].deadline_ns);
		test_be_cpu(0);
		mapping = map_one(world);
		timers = world->timers;
		driver_unmap(world, &mapping, false);
		CHECK(world->timers == timers + 1);
	}
	world_end(world);
}

/* An unmap may be in progress since another CPU's flush: its timer keeps a new window. */
static void timer_of_a_shorter_window(void)
{
	struct world_config config = { .blocks = 8, .cpus = 2,
				       .policy = xs_policy_find("lazy") };
	struct xs_tuning tuning = xs_tuning_default(config.policy);
	struct world *world = world_new(&config, 0);

	flush_elsewhere(world);
	tuning.window_us /= 10;
	xs_engine_set(&world->engine, config.policy, &tuning);
	CHECK(world->cpu[0].deadline_ns <= world->now_ns + tuning.window_us * 1000ULL);
	test_be_cpu(0);
	world_end(world);
}

static struct mapping late;

static void unmap_late(struct world *world)
{
	world->meanwhile = NULL;
	driver_unmap(world, &late, false);
	CHECK(!world_reachable(world, late.iova));
}

/* A smaller batch size takes effect at once, also on the fast path. */
static void smaller(void)
{
	struct world_config config = { .blocks = 8, .cpus = 1,
				       .policy = xs_policy_find("fused") };
	struct xs_tuning tuning = xs_tuning_default(config.policy);
	struct world *world = world_new(&config, 0);
	struct mapping first = map_one(world);

	late = map_one(world);
	driver_unmap(world, &first, false);
	CHECK(driver_reachable(world, &first));
	tuning.batch_pages = 1;
	world->meanwhile = unmap_late;
	xs_engine_set(&world->engine, config.policy, &tuning);
	CHECK(!world->meanwhile);
	world_end(world);
}

static struct mapping between;

static void unmap_between(void *world)
{
	test_interrupts(NULL, NULL);
	driver_unmap(world, &between, false);
	between.pages = 0;
}

/* The same if an unmap under the old size interrupts the change, at any point. */
static void smaller_interrupted(void)
{
	struct world_config config = { .blocks = 8, .cpus = 1,
				       .policy = xs_policy_find("fused") };
	struct xs_tuning tuning = xs_tuning_default(config.policy);
	struct world *world = world_new(&config, 0);

	for (u32 round = 0; round < 300 && !test_failed(); round++) {
		struct mapping first = map_one(world);

		late = map_one(world);
		between = map_one(world);
		driver_unmap(world, &first, false);
		tuning.batch_pages = 1;
		world->meanwhile = unmap_late;
		test_interrupts(unmap_between, world);
		xs_engine_set(&world->engine, config.policy, &tuning);
		test_interrupts(NULL, NULL);
		if (between.pages)
			driver_unmap(world, &between, false);
		tuning.batch_pages = config.policy->batch_pages;
		xs_engine_set(&world->engine, config.policy, &tuning);
		test_relax();
	}
	world_end(world);
}

const struct test batch_tests[] = {
	{ "batch_joins", joins },
	{ "batch_ranges_of_all_sets", ranges_of_all_sets },
	{ "batch_ranges_of_random_sets", ranges_of_random_sets },
	{ "batch_keys", keys },
	{ "batch_append_fast", append_fast },
	{ "batch_reserve", reserve },
	{ "batch_limit", limit },
	{ "batch_kept", kept },
	{ "batch_kept_full", kept_full },
	{ "batch_kept_poll", kept_poll },
	{ "batch_flushed_elsewhere", flushed_elsewhere },
	{ "batch_timer_comes_home", timer_comes_home },
	{ "batch_timer_of_a_shorter_window", timer_of_a_shorter_window },
	{ "batch_drain_of_a_shorter_window", drain_of_a_shorter_window },
	{ "batch_smaller", smaller },
	{ "batch_smaller_interrupted", smaller_interrupted },
	{ NULL, NULL },
};
