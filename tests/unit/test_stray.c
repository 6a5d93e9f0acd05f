// SPDX-License-Identifier: GPL-2.0-only
/*
 * Strays: unmaps of what is not mapped so, and calls about blocks that are not the
 * caller's. Each is warned of, counted, and changes nothing.
 */
#include "world.h"

#define LAST	(~0ULL)

/* What there is beside the strays: it must stay as it is. */
static struct {
	struct mapping one;
	struct mapping five;
	struct mapping run;	/* of whole blocks */
	struct mapping deferred;
	u64 own;		/* a driver's block, of 10 pages */
	struct mapping in_own;	/* its page 3 */
	u64 strays;
	s64 live;
} s;

static struct mapping map(struct world *world, u32 pages, enum memory_kind kind)
{
	struct mapping mapping = { .pages = pages, .kind = kind,
				   .prot = PROT_READ_ };

	CHECK(driver_map(world, &mapping, LAST));
	return mapping;
}

static void begin(struct world *world)
{
	s.one = map(world, 1, MEMORY_COUNTED);
	s.five = map(world, 5, MEMORY_FOLIO);
	s.run = map(world, 3 * XS_BLOCK_PAGES + 7, MEMORY_COUNTED);
	s.deferred = map(world, 1, MEMORY_COUNTED);
	s.own = xs_engine_take_block(&world->engine, 10, LAST);
	s.in_own = (struct mapping){ .pages = 1, .prot = PROT_READ_ };
	CHECK(driver_map_at(world, &s.in_own, s.own + 3 * XS_PAGE_BYTES));
	driver_unmap_only(world, &s.deferred, false);
	s.strays = world_ledger(world)->counts.strays;
	s.live = xs_engine_live(&world->engine);
}

/* All of it is as it was, and so many strays have been seen since. */
static void check(struct world *world, u32 strays)
{
	CHECK(world_warnings() == strays);
	s.strays += strays;
	CHECK(world_ledger(world)->counts.strays == s.strays);
	CHECK(xs_engine_live(&world->engine) == s.live);
	driver_check(world, &s.one);
	driver_check(world, &s.five);
	driver_check(world, &s.run);
	driver_check(world, &s.in_own);
}

static void end(struct world *world)
{
	static struct xs_ledger sum;

	CHECK(xs_engine_audit(&world->engine, &sum) == s.live);
	driver_unmap(world, &s.one, false);
	driver_unmap(world, &s.five, false);
	driver_unmap(world, &s.run, false);
	driver_unmap(world, &s.in_own, false);
	driver_free(world, &s.deferred);
	xs_engine_drop_in_block(&world->engine, s.own, 3);
	xs_engine_drop_in_block(&world->engine, s.own + 4 * XS_PAGE_BYTES, 6);
	CHECK(!world_warnings());
	world_end(world);
}

/* In a world of each policy, and in one far above 4 GiB. */
static void each(void (*run)(struct world *world))
{
	for (u32 i = 0; i < 2 * xs_policy_count && !test_failed(); i++) {
		struct world_config config = {
			.blocks = 48, .cpus = 2, .policy = &xs_policies[i / 2],
			.start = i % 2 ? 1ULL << 45 : 0,
		};
		struct world *world = world_new(&config, 0);

		begin(world);
		run(world);
		end(world);
	}
}

/* ---- unmaps ---- */

/* In every way to unmap. */
static void stray(struct world *world, u64 iova, u32 pages)
{
	struct xs_engine *engine = &world->engine;

	CHECK(!xs_engine_unmap(engine, iova, pages, false));
	check(world, 1);
	CHECK(!xs_engine_unmap(engine, iova, pages, true));
	check(world, 1);
	xs_engine_unmap_no_sync(engine, iova, pages);
	check(world, 1);
	if (pages != 1)
		return;
	path_unmap_one(engine, iova);
	check(world, 1);
	path_unmap_one_no_sync(engine, iova);
	check(world, 1);
}

static const u32 sizes[] = { 0, 1, 2, 3, 4, 5, 6, 63, 64, 65, 128, 192, 198, 199,
			     200, 1 << 20, 0x7fffffff, ~0u };

#define SIZES	(sizeof(sizes) / sizeof(sizes[0]))

static void check_wild(struct world *world)
{
	const u64 wild[] = {
		0, XS_PAGE_BYTES, XS_BLOCK_BYTES - XS_PAGE_BYTES,
		~0ULL, ~0ULL << XS_PAGE_LG2, XS_SPACE_END,
		XS_SPACE_END - XS_PAGE_BYTES, XS_SPACE_END - XS_BLOCK_BYTES,
		1ULL << 63, (1ULL << 40) + XS_PAGE_BYTES,
		(1ULL << 32) - XS_BLOCK_BYTES, 1ULL << 32, 1ULL << 47,
		/* A leaf that is not there, one that is, a block, a page. */
		s.one.iova ^ 1ULL << 30, s.one.iova ^ XS_BLOCK_BYTES << 3,
		s.one.iova ^ XS_PAGE_BYTES << 5, s.own + 10 * XS_PAGE_BYTES,
		s.deferred.iova,
	};

	for (u32 i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
		for (u32 j = 0; j < SIZES && !test_failed(); j++)
			stray(world, wild[i], sizes[j]);
}

static void wild(void)
{
	each(check_wild);
}

/* All sizes but the right one, at the beginning and inside. */
static void check_wrong(struct world *world)
{
	const struct mapping *mappings[] = { &s.one, &s.five, &s.run,
					     &s.in_own };

	for (u32 i = 0; i < 4; i++)
		for (u32 j = 0; j < SIZES && !test_failed(); j++)
			if (sizes[j] != mappings[i]->pages)
				stray(world, mappings[i]->iova, sizes[j]);
	for (u32 at = 1; at < s.five.pages; at++)
		for (u32 pages = 0; pages <= XS_BLOCK_PAGES; pages++)
			stray(world, s.five.iova + at * XS_PAGE_BYTES, pages);
	for (u32 at = 1; at < s.run.pages; at += 21)
		for (u32 j = 0; j < SIZES && !test_failed(); j++)
			stray(world, s.run.iova + at * XS_PAGE_BYTES, sizes[j]);
	stray(world, s.run.iova + 2 * XS_BLOCK_BYTES, XS_BLOCK_PAGES + 7);
	stray(world, s.run.iova + 1, s.run.pages);
	/* Over the end of a block. */
	stray(world, (s.one.iova | (XS_BLOCK_BYTES - 1)) - XS_PAGE_BYTES, 5);
}

static void wrong_size(void)
{
	each(check_wrong);
}

/* What follows, or goes before, is another mapping. */
static void neighbours(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++) {
		struct world_config config = { .blocks = 48, .cpus = 2,
					       .policy = &xs_policies[i] };
		struct world *world = world_new(&config, 0);
		struct mapping mappings[8];

		begin(world);
		for (u32 j = 0; j < 8; j++)
			mappings[j] = map(world, 3, MEMORY_COUNTED);
		s.live += 24;
		for (u32 j = 0; j < 8; j++)
			for (u32 pages = 1; pages <= 16; pages++)
				if (pages != 3)
					stray(world, mappings[j].iova, pages);
		for (u32 j = 0; j < 8; j++) {
			driver_check(world, &mappings[j]);
			driver_unmap(world, &mappings[j], false);
		}
		s.live -= 24;
		end(world);
	}
}

/* ---- twice ---- */

/* Deferred or synced, and then again, in every way. */
static void check_twice(struct world *world)
{
	for (enum memory_kind kind = 0; kind < MEMORY_KINDS; kind++)
		for (u32 i = 0; i < 4 && !test_failed(); i++) {
			static const u32 pages[] = { 1, 6, 64, 70 };
			struct mapping mapping = map(world, pages[i], kind);

			driver_unmap_only(world, &mapping, false);
			stray(world, mapping.iova, mapping.pages);
			xs_engine_sync(&world->engine, XS_SYNC_EXPLICIT);
			stray(world, mapping.iova, mapping.pages);
			xs_engine_sync(&world->engine, XS_SYNC_EXPLICIT);
			/* Of what is counted the driver's reference is left. */
			CHECK(world->memory[mapping.page].refs == 1);
			driver_free(world, &mapping);
		}
}

static void twice(void)
{
	each(check_twice);
}

#define RACERS	4

struct race {
	struct world *world;
	struct mapping mappings[24];
};

static void race_run(void *argument, u32 cpu)
{
	struct race *race = argument;

	for (u32 i = 0; i < 24; i++) {
		const struct mapping *mapping = &race->mappings[i];

		if ((i + cpu) % 3 == 0 && mapping->pages == 1)
			path_unmap_one(&race->world->engine, mapping->iova);
		else
			xs_engine_unmap(&race->world->engine, mapping->iova,
					mapping->pages, (i + cpu) % 7 == 0);
	}
}

/* All unmap the same at the same time: one each does it. */
static void race_seed(u64 seed)
{
	struct world_config config = {
		.blocks = 64, .cpus = RACERS,
		.policy = &xs_policies[seed % xs_policy_count],
	};
	static struct race race;
	struct world *world = world_new(&config, 0);

	test_replay(seed, 0);
	race.world = world;
	for (u32 i = 0; i < 24; i++) {
		struct mapping *mapping = &race.mappings[i];
		u64 page;

		*mapping = map(world, i % 4 ? 1 : 1 + i * 3, i % MEMORY_KINDS);
		page = mapping->iova >> XS_PAGE_LG2;
		for (u32 j = 0; j < mapping->pages; j++)
			world->owner[page + j] &= ~(u64)OWNER_MAPPED;
	}
	if (!test_threads(RACERS, seed, race_run, &race))
		test_threads(RACERS, 0, race_run, &race);
	test_be_cpu(0);
	xs_engine_sync(&world->engine, XS_SYNC_DRAIN);
	CHECK(world_warnings() == 24 * (RACERS - 1));
	CHECK(world_ledger(world)->counts.strays == 24 * (RACERS - 1));
	for (u32 i = 0; i < 24; i++)
		driver_free(world, &race.mappings[i]);
	world_end(world);
}

static void twice_at_once(void)
{
	test_seeds(50, race_seed);
}

/* ---- blocks of a driver ---- */

static void check_blocks(struct world *world)
{
	static const u64 phys[XS_BLOCK_PAGES];
	struct xs_engine *engine = &world->engine;
	const u64 wrong[] = {
		s.one.iova, s.five.iova, s.run.iova, s.in_own.iova,
		s.own + 10 * XS_PAGE_BYTES, s.own ^ XS_BLOCK_BYTES << 2,
		s.own ^ 1ULL << 30, 0, ~0ULL, XS_SPACE_END,
	};

	for (u32 i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(!xs_engine_map_in_block(engine, wrong[i], phys, 1,
					      PROT_READ_));
		check(world, 1);
		xs_engine_drop_in_block(engine, wrong[i], 1);
		check(world, 1);
	}
	/* None, too many, and over the end. */
	for (u32 pages = 0; pages <= 70; pages += pages ? 60 : 10) {
		u32 count = pages == 10 ? 11 : pages;

		CHECK(!xs_engine_map_in_block(engine, s.own, phys, count,
					      PROT_READ_));
		check(world, 1);
		xs_engine_drop_in_block(engine, s.own, count);
		check(world, 1);
	}
	CHECK(!xs_engine_take_block(engine, 0, LAST));
	check(world, 1);
	CHECK(!xs_engine_take_block(engine, XS_BLOCK_PAGES + 1, LAST));
	check(world, 1);
}

static void wrong_blocks(void)
{
	each(check_blocks);
}

/* Pages of a block, some of which are not mapped, each a mapping of its own. */
static void check_in_block(struct world *world)
{
	struct xs_engine *engine = &world->engine;

	xs_engine_unmap_in_block_no_sync(engine, s.own, 0x7);
	check(world, 3);
	xs_engine_unmap_in_block_no_sync(engine, s.own, ~0ULL << 4);
	check(world, 60);
	xs_engine_unmap_in_block_no_sync(engine, s.own, 0);
	check(world, 0);
	xs_engine_unmap_in_block_no_sync(engine, s.own + XS_PAGE_BYTES, 0x7);
	CHECK(world_warnings());
	s.strays = world_ledger(world)->counts.strays;
	check(world, 0);
	xs_engine_unmap_in_block_no_sync(engine, s.own ^ 1ULL << 30, 0xf);
	check(world, 4);
	xs_engine_unmap_in_block_no_sync(engine, -XS_BLOCK_BYTES, 0xf);
	check(world, 4);
	/* No mapping of many is one of its pages'. */
	xs_engine_unmap_in_block_no_sync(
		engine, s.five.iova & ~(XS_BLOCK_BYTES - 1),
		XS_BLOCK_ALL & ~xs_mask_of((u32)(s.one.iova >> XS_PAGE_LG2 & 63),
					   1));
	CHECK(world_warnings() >= 63);
	s.strays = world_ledger(world)->counts.strays;
	check(world, 0);
}

static void in_block(void)
{
	each(check_in_block);
}

const struct test stray_tests[] = {
	{ "stray_wild", wild },
	{ "stray_wrong_size", wrong_size },
	{ "stray_neighbours", neighbours },
	{ "stray_twice", twice },
	{ "stray_twice_at_once", twice_at_once, .threads = true },
	{ "stray_wrong_blocks", wrong_blocks },
	{ "stray_in_block", in_block },
	{ NULL, NULL },
};
