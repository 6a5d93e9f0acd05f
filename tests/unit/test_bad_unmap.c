// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bad unmaps, and calls about blocks that the caller does not own. Each call warns and is
 * counted. Pages that a bad unmap names are unreachable for devices on return; nothing else
 * changes.
 */
#include "unit_world.h"

#define LAST	(~0ULL)

/* Mappings that the bad unmaps must leave unchanged. */
static struct {
	struct mapping one;
	struct mapping five;
	struct mapping run;	/* of whole blocks */
	struct mapping deferred;
	u64 own;		/* a driver's block, of 10 pages */
	struct mapping in_own;	/* page 3 of @own */
	u64 bad_unmaps;
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
	s.own = xs_engine_alloc_block(&world->engine, 10, LAST);
	s.in_own = (struct mapping){ .pages = 1, .prot = PROT_READ_ };
	CHECK(driver_map_at(world, &s.in_own, s.own + 3 * XS_PAGE_BYTES));
	driver_unmap_only(world, &s.deferred, false);
	s.bad_unmaps = world_stats(world)->counts.bad_unmaps;
	s.live = xs_engine_live_pages(&world->engine);
}

/* All mappings are unchanged, and so many bad unmaps have been counted since. */
static void check(struct world *world, u32 bad_unmaps)
{
	CHECK(world_warnings() == bad_unmaps);
	s.bad_unmaps += bad_unmaps;
	CHECK(world_stats(world)->counts.bad_unmaps == s.bad_unmaps);
	CHECK(xs_engine_live_pages(&world->engine) == s.live);
	driver_check(world, &s.one);
	driver_check(world, &s.five);
	driver_check(world, &s.run);
	driver_check(world, &s.in_own);
}

static void end(struct world *world)
{
	static struct xs_stats sum;

	CHECK(xs_engine_leak_check(&world->engine, &sum) == s.live);
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

/* Run in a world of each policy, and in a world far above 4 GiB. */
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

/* A bad unmap by every function that unmaps. */
static void bad_unmap(struct world *world, u64 iova, u32 pages)
{
	struct xs_engine *engine = &world->engine;

	CHECK(!xs_engine_unmap(engine, iova, pages, false));
	check(world, 1);
	CHECK(!xs_engine_unmap(engine, iova, pages, true));
	check(world, 1);
	xs_engine_unmap_deferred(engine, iova, pages);
	check(world, 1);
	if (pages != 1)
		return;
	path_unmap_one(engine, iova);
	check(world, 1);
	path_unmap_one_deferred(engine, iova);
	check(world, 1);
}

static const u32 sizes[] = { 0, 1, 2, 3, 4, 5, 6, 63, 64, 65, 128, 192, 198, 199,
			     200, 1 << 20, 0x7fffffff, ~0u };

#define SIZES	(sizeof(sizes) / sizeof(sizes[0]))

/* Does any mapping have some of these pages? */
static bool names_any(const struct world *world, u64 iova, u32 pages)
{
	u64 from = iova >> XS_PAGE_LG2;

	for (u32 i = 0; i < world->end_page; i++) {
		u64 page = world->first_page + i;

		if (world->owner[i] & OWNER_MAPPED && page >= from &&
		    page - from < pages)
			return true;
	}
	return false;
}

static void check_wild(struct world *world)
{
	const u64 wild[] = {
		0, XS_PAGE_BYTES, XS_BLOCK_BYTES - XS_PAGE_BYTES,
		~0ULL, ~0ULL << XS_PAGE_LG2, XS_SPACE_END,
		XS_SPACE_END - XS_PAGE_BYTES, XS_SPACE_END - XS_BLOCK_BYTES,
		1ULL << 63, (1ULL << 40) + XS_PAGE_BYTES,
		(1ULL << 32) - XS_BLOCK_BYTES, 1ULL << 32, 1ULL << 47,
		/* A missing leaf, an existing leaf, a block, a page. */
		s.one.iova ^ 1ULL << 30, s.one.iova ^ XS_BLOCK_BYTES << 3,
		s.one.iova ^ XS_PAGE_BYTES << 5, s.own + 10 * XS_PAGE_BYTES,
		s.deferred.iova,
	};

	for (u32 i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
		for (u32 j = 0; j < SIZES && !test_failed(); j++)
			if (!names_any(world, wild[i], sizes[j]))
				bad_unmap(world, wild[i], sizes[j]);
}

static void wild(void)
{
	each(check_wild);
}

/* The formerly mapped IOVAs are free again, and a new mapping at the same IOVAs works. */
static void check_again(struct world *world, const struct mapping *before)
{
	struct mapping again = map(world, before->pages, MEMORY_COUNTED);

	driver_check(world, &again);
	driver_unmap(world, &again, true);
}

/*
 * Unmap @pages pages from page @at on of a mapping of @mapped pages. The named pages are gone
 * at once; the other pages stay until the mapping is properly unmapped or the driver goes.
 * Until then nobody gets the IOVAs.
 */
static void tear(struct world *world, u32 mapped, enum memory_kind kind, u32 at,
		 u32 pages, u32 how)
{
	struct mapping mapping = map(world, mapped, kind);
	static struct xs_stats sum;

	s.live += mapped;
	CHECK(!driver_tear(world, mapping.iova + at * XS_PAGE_BYTES, pages,
			   how % TEAR_WAYS));
	check(world, 1);
	driver_check(world, &mapping);
	/* In a world with exact_unmap, devices reach none of the other pages. */
	CHECK(xs_engine_torn_pages(&world->engine) ==
	      (world->exact_unmap ? 0 : mapped - pages));
	CHECK(world->exact_unmap != driver_reachable(world, &mapping));
	CHECK(world->misuse_removed == (world->exact_unmap ? XS_REMOVED_ALL : 0));
	xs_engine_mend(&world->engine, false);
	CHECK(xs_engine_leak_check(&world->engine, &sum) == s.live);
	check_again(world, &mapping);
	if (how % 2) {
		driver_unmap(world, &mapping, how % 3);
		xs_engine_mend(&world->engine, false);
	} else {
		driver_note_torn(world, &mapping);
		xs_engine_mend(&world->engine, true);
		driver_is_torn(world, &mapping);
		driver_free(world, &mapping);
	}
	s.live -= mapped;
	CHECK(!xs_engine_torn_pages(&world->engine));
	check(world, 0);
	check_again(world, &mapping);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
}

static const u32 mapped_sizes[] = { 1, 2, 5, 64, 65, 199, 3 * XS_BLOCK_PAGES + 7 };

static void check_wrong(struct world *world)
{
	u64 random = 1;
	u32 how = 0;

	for (u32 i = 0; i < sizeof(mapped_sizes) / sizeof(mapped_sizes[0]); i++) {
		u32 mapped = mapped_sizes[i];
		u32 steps = mapped < 8 ? mapped : 8;

		for (u32 j = 0; j < steps; j++)
			for (u32 k = 0; k < steps && !test_failed(); k++) {
				u32 at = mapped < 8 || !j ? j : test_below(&random, mapped);
				u32 rest = mapped - at;
				u32 pages = mapped < 8 ? k + 1 :
					    1 + test_below(&random, rest);

				if (pages > rest || (!at && pages == mapped))
					continue;
				tear(world, mapped, how % MEMORY_KINDS,
				     at, pages, how);
				how++;
			}
	}
}

static void wrong_size(void)
{
	each(check_wrong);
}

/* The same in a world where no part of a mapping can be removed alone. */
static void check_exact(struct world *world)
{
	world->exact_unmap = true;
	check_wrong(world);
	world->exact_unmap = false;
}

static void wrong_size_exact(void)
{
	each(check_exact);
}

/* A range that starts before the mapping and is longer: the mapping in between is torn, too. */
static void check_longer(struct world *world)
{
	struct mapping run = map(world, XS_BLOCK_PAGES + 3, MEMORY_COUNTED);
	u32 how = 0;

	s.live += run.pages;
	/* Nothing is mapped behind the mapping up to the end of the second block. */
	for (u32 beyond = 1; beyond <= XS_BLOCK_PAGES - 3; beyond += 20) {
		CHECK(!driver_tear(world, run.iova, run.pages + beyond, how++ % 3));
		check(world, 1);
		xs_engine_mend(&world->engine, false);
		driver_is_torn(world, &run);
		driver_free(world, &run);
		CHECK(!xs_engine_torn_pages(&world->engine));
		run = map(world, XS_BLOCK_PAGES + 3, MEMORY_COUNTED);
	}
	driver_unmap(world, &run, false);
	s.live -= run.pages;
	check(world, 0);
}

static void longer(void)
{
	each(check_longer);
}

/* After the driver has gone, has an unmap that began at @iova unmapped the mapping? */
static bool is_unmapped(const struct world *world, const struct mapping *mapping,
			u64 iova)
{
	u64 page = (mapping->iova >> XS_PAGE_LG2) - world->first_page;
	u32 named = 0;

	for (u32 i = 0; i < mapping->pages; i++)
		named += !!(world->owner[page + i] & OWNER_TORN);
	return named == mapping->pages ||
	       iova - mapping->iova < mapping->pages * XS_PAGE_BYTES;
}

/*
 * A bad unmap over several mappings. When the driver goes, the first mapping and wholly named
 * mappings are unmapped; partly named mappings remain.
 */
static void neighbours_seed(u64 seed)
{
	struct world_config config = {
		.blocks = 48, .cpus = 2,
		.policy = &xs_policies[seed % xs_policy_count],
	};
	struct world *world = world_new(&config, 0);
	struct mapping mappings[8];
	u64 first = ~0ULL, end = 0;
	bool gone[8];

	for (u32 i = 0; i < 8; i++) {
		mappings[i] = map(world, seed % 2 ? 3 : 1 + i % 4 * 5, MEMORY_COUNTED);
		first = mappings[i].iova < first ? mappings[i].iova : first;
		end = mappings[i].iova > end ? mappings[i].iova : end;
	}
	first += XS_PAGE_BYTES;
	CHECK(!driver_tear(world, first, (u32)((end - first) >> XS_PAGE_LG2) + 2,
			   seed % 3));
	CHECK(world_warnings() == 1);
	for (u32 i = 0; i < 8; i++) {
		gone[i] = is_unmapped(world, &mappings[i], first);
		if (gone[i])
			driver_note_torn(world, &mappings[i]);
	}
	xs_engine_mend(&world->engine, true);
	for (u32 i = 0; i < 8; i++) {
		if (gone[i]) {
			driver_is_torn(world, &mappings[i]);
			driver_free(world, &mappings[i]);
		} else {
			driver_check(world, &mappings[i]);
			driver_unmap(world, &mappings[i], false);
		}
	}
	xs_engine_mend(&world->engine, true);
	world_end(world);
}

static void neighbours(void)
{
	test_seeds(60, neighbours_seed);
}

/* Bad unmaps of parts in any order, some twice: the last one ends the mapping, once. */
static void parts_seed(u64 seed)
{
	struct world_config config = {
		.blocks = 64, .cpus = 2,
		.policy = &xs_policies[seed % xs_policy_count],
	};
	struct world *world = world_new(&config, 0);
	u32 pages = 2 + test_below(&seed, seed % 2 ? 62 : 300);
	bool named[XS_BLOCK_PAGES * 5] = { false };
	struct mapping mapping;
	u32 live = pages;

	world->exact_unmap = seed % 3 == 0;
	mapping = map(world, pages, seed % MEMORY_KINDS);
	for (u32 i = 0; live; i++) {
		u32 at = test_below(&seed, pages);
		u32 some = 1 + test_below(&seed, pages - at);

		if (!at && some == pages)
			some--;
		CHECK(xs_engine_live_pages(&world->engine) == pages);
		CHECK(!driver_tear(world, mapping.iova + at * XS_PAGE_BYTES, some, i % 3));
		CHECK(world_warnings() == 1);
		for (u32 j = at; j < at + some; j++) {
			live -= !named[j];
			named[j] = true;
		}
		CHECK(xs_engine_torn_pages(&world->engine) ==
		      (world->exact_unmap ? 0 : live));
		driver_check(world, &mapping);
		if (live)
			xs_engine_mend(&world->engine, false);
	}
	/* Until then nobody gets the IOVAs. */
	CHECK(xs_engine_live_pages(&world->engine) == pages);
	xs_engine_mend(&world->engine, false);
	CHECK(!xs_engine_live_pages(&world->engine));
	driver_is_torn(world, &mapping);
	driver_free(world, &mapping);
	xs_engine_mend(&world->engine, true);
	world_end(world);
}

static void parts(void)
{
	test_seeds(100, parts_seed);
}

/* Record @mapping as unmapped in the world; @flags: additional OWNER_*. */
static void disown(struct world *world, const struct mapping *mapping, u64 flags)
{
	u64 page = (mapping->iova >> XS_PAGE_LG2) - world->first_page;

	for (u32 i = 0; i < mapping->pages; i++)
		world->owner[page + i] = mapping->serial * OWNER_SERIAL | flags;
}

/* All stuck pages are removed, and nothing is left of them. */
static void retry(struct world *world, const struct mapping *mapping)
{
	CHECK(!xs_engine_retry(&world->engine));
	CHECK(!xs_engine_stuck_pages(&world->engine));
	world->stuck_pages = 0;
	driver_is_torn(world, mapping);
}

/*
 * Without memory for a record, the whole mapping is removed, and the IOVAs stay in use until
 * all calls that may be mapping there have ended.
 */
static void check_no_memory(struct world *world)
{
	for (u32 pages = 2; pages <= 130; pages += 63) {
		struct mapping mapping = map(world, pages, MEMORY_COUNTED);

		s.live += pages;
		world->alloc_fails_in = 1;
		disown(world, &mapping, OWNER_REFUSED);
		CHECK(!xs_engine_unmap(&world->engine, mapping.iova, 1, false));
		s.live -= pages;
		check(world, 1);
		CHECK(world->misuse_removed == XS_REMOVED_ALL);
		CHECK(!driver_reachable(world, &mapping));
		CHECK(!xs_engine_torn_pages(&world->engine));
		CHECK(xs_engine_stuck_pages(&world->engine) == pages);
		driver_free(world, &mapping);
		retry(world, &mapping);
	}
}

/* The same with a failing removal: the backend learns of stuck pages. */
static void check_no_memory_failing(struct world *world)
{
	struct mapping mapping = map(world, 2, MEMORY_COUNTED);

	disown(world, &mapping, 0);
	world->alloc_fails_in = 1;
	world->removal_fails_in = 1;
	CHECK(!xs_engine_unmap(&world->engine, mapping.iova, 1, false));
	check(world, 1);
	CHECK(world->misuse_removed < 0);
	CHECK(xs_engine_stuck_pages(&world->engine) == 2);
	retry(world, &mapping);
	driver_free(world, &mapping);
}

static void no_memory(void)
{
	each(check_no_memory);
	each(check_no_memory_failing);
}

static void check_failed(struct world *world, u32 bad_unmaps)
{
	CHECK(world_warnings() == bad_unmaps);
	driver_check(world, &s.one);
}

/* ---- proper unmaps beside a bad unmap ---- */

static struct mapping late;
static bool late_no_memory;

/* Between the look-up of a bad unmap and its claim. */
static void unmap_late(struct world *world)
{
	world->allocating = NULL;
	world->alloc_fails_in = late_no_memory;
	driver_unmap(world, &late, true);
}

/*
 * A bad unmap finds a mapping that is properly unmapped before the bad unmap claims it: the
 * proper unmap has the mapping, and the bad unmap has found nothing.
 */
static void check_late(struct world *world)
{
	/* By pages, the unmap would take three locks below the bad unmap's. */
	if (world->engine.policy->placement != XS_PLACE_BLOCK)
		return;
	for (u32 i = 0; i < 4; i++) {
		/* From the mapping's first page, or from the page before. */
		u64 before = i % 2 * XS_PAGE_BYTES;
		struct mapping first = map(world, 5, MEMORY_COUNTED);

		late = map(world, 5, MEMORY_COUNTED);
		CHECK(!names_any(world, late.iova - before, !!before));
		late_no_memory = i / 2;
		world->allocating = unmap_late;
		CHECK(!xs_engine_unmap(&world->engine, late.iova - before, 3, true));
		CHECK(!world->allocating && !world->alloc_fails_in);
		CHECK(!xs_engine_torn_pages(&world->engine));
		CHECK(!xs_engine_stuck_pages(&world->engine));
		check_again(world, &late);
		driver_check(world, &first);
		driver_unmap(world, &first, true);
		check(world, 1);
	}
}

static void lates(void)
{
	each(check_late);
}

/*
 * A removal of named pages fails. The mapping is stuck at once, whatever the driver does next,
 * until the backend removes the pages. Memory is held if the engine knows how.
 */
static void check_failing(struct world *world)
{
	static const u32 torn_sizes[] = { 4, XS_BLOCK_PAGES, XS_BLOCK_PAGES + 6 };
	bool holds = world->engine.mode & XS_MODE_HOLDS;

	for (u32 i = 0; i < 3; i++) {
		u32 pages = torn_sizes[i];
		struct mapping mapping = map(world, pages, i ? MEMORY_FOLIO :
							       MEMORY_COUNTED);
		bool held = holds && pages <= XS_BLOCK_PAGES;
		static struct xs_stats sum;

		disown(world, &mapping, held ? OWNER_PROMISED : 0);
		world->parts_fail = 1;
		CHECK(!xs_engine_unmap(&world->engine, mapping.iova, 3, false));
		check_failed(world, 1);
		s.bad_unmaps++;
		CHECK(xs_engine_live_pages(&world->engine) == s.live);
		CHECK(xs_engine_stuck_pages(&world->engine) == pages);
		CHECK(world->stuck_pages == pages);
		CHECK(!xs_engine_torn_pages(&world->engine));
		driver_free(world, &mapping);
		/* No unmap succeeds any more. */
		CHECK(!xs_engine_unmap(&world->engine, mapping.iova, pages, true));
		check_failed(world, 1);
		s.bad_unmaps++;
		xs_engine_mend(&world->engine, false);
		CHECK(xs_engine_stuck_pages(&world->engine) == pages);
		CHECK(xs_engine_leak_check(&world->engine, &sum) == s.live);
		world->removal_fails_in = 1;
		CHECK(xs_engine_retry(&world->engine) == pages);
		retry(world, &mapping);
	}
}

/*
 * The proper unmap runs beside a failing bad unmap of a part: the backend has no record, and
 * removes nothing.
 */
static struct mapping beside;

static void unmap_beside(struct world *world)
{
	world->part_failed = NULL;
	world->records_lost = true;
	CHECK(!xs_engine_unmap(&world->engine, beside.iova, beside.pages, true));
	world->records_lost = false;
}

static void check_failing_beside(struct world *world)
{
	bool exact_unmap = world->exact_unmap;

	/* As virtio-iommu. */
	world->exact_unmap = true;
	world->engine.remembers = true;
	beside = map(world, 4, MEMORY_COUNTED);
	disown(world, &beside, world->engine.mode & XS_MODE_HOLDS ?
			       OWNER_PROMISED : 0);
	world->parts_fail = 1;
	world->part_failed = unmap_beside;
	CHECK(!xs_engine_unmap(&world->engine, beside.iova, 3, false));
	check_failed(world, 1);
	s.bad_unmaps++;
	CHECK(xs_engine_stuck_pages(&world->engine) == 4);
	driver_free(world, &beside);
	xs_engine_mend(&world->engine, false);
	retry(world, &beside);
	world->engine.remembers = false;
	world->exact_unmap = exact_unmap;
}

/* The same with memory that is free by then: the memory is not held, so nothing is released. */
static void check_failing_freed(struct world *world)
{
	struct mapping mapping = map(world, 4, MEMORY_COUNTED);

	disown(world, &mapping, 0);
	driver_free(world, &mapping);
	world->parts_fail = 1;
	CHECK(!xs_engine_unmap(&world->engine, mapping.iova, 3, false));
	check_failed(world, 1);
	s.bad_unmaps++;
	CHECK(xs_engine_stuck_pages(&world->engine) == 4);
	retry(world, &mapping);
}

/* The same with the proper unmap of a torn mapping: the caller must not free the memory. */
static void check_failing_right(struct world *world)
{
	struct mapping mapping = map(world, 4, MEMORY_COUNTED);

	disown(world, &mapping, 0);
	CHECK(!xs_engine_unmap(&world->engine, mapping.iova, 3, false));
	check_failed(world, 1);
	s.bad_unmaps++;
	world->parts_fail = 1;
	CHECK(!xs_engine_unmap(&world->engine, mapping.iova, 4, true));
	CHECK(!world_warnings());
	CHECK(xs_engine_stuck_pages(&world->engine) == 4);
	retry(world, &mapping);
	driver_free(world, &mapping);
}

/* The same when the IOVAs are to be given back: the repeated removal fails. */
static void check_failing_late(struct world *world)
{
	for (u32 pages = 4; pages <= 70; pages += 66) {
		struct mapping mapping = map(world, pages, MEMORY_COUNTED);

		disown(world, &mapping, 0);
		CHECK(!xs_engine_unmap(&world->engine, mapping.iova, 3, false));
		CHECK(!xs_engine_unmap(&world->engine,
				       mapping.iova + 3 * XS_PAGE_BYTES,
				       pages - 3, false));
		check_failed(world, 2);
		s.bad_unmaps += 2;
		CHECK(!xs_engine_stuck_pages(&world->engine));
		world->parts_fail = 1;
		xs_engine_mend(&world->engine, false);
		CHECK(xs_engine_stuck_pages(&world->engine) == pages);
		/* The driver may have freed the memory. */
		CHECK(world->memory[mapping.page].refs == 1);
		retry(world, &mapping);
		driver_free(world, &mapping);
	}
}

/* The same with the second of two mappings that a bad unmap names. */
static void fail_second(struct world *world)
{
	static u32 records;

	if (++records % 2)
		return;
	world->allocating = NULL;
	world->parts_fail = 1;
}

static void check_failing_second(struct world *world)
{
	struct mapping first = map(world, 8, MEMORY_FOLIO);
	struct mapping second = map(world, 8, MEMORY_FOLIO);
	bool holds = world->engine.mode & XS_MODE_HOLDS;

	CHECK(second.iova == first.iova + 8 * XS_PAGE_BYTES);
	disown(world, &first, 0);
	disown(world, &second, holds ? OWNER_PROMISED : 0);
	world->allocating = fail_second;
	CHECK(!xs_engine_unmap(&world->engine, first.iova + 4 * XS_PAGE_BYTES, 8, true));
	check_failed(world, 1);
	s.bad_unmaps++;
	CHECK(world->misuse_removed < 0);
	CHECK(xs_engine_stuck_pages(&world->engine) == 8);
	driver_free(world, &second);
	retry(world, &second);
	CHECK(xs_engine_unmap(&world->engine, first.iova, 8, true));
	xs_engine_mend(&world->engine, false);
	driver_is_torn(world, &first);
	driver_free(world, &first);
	check(world, 0);
}

static void failing(void)
{
	each(check_failing);
	each(check_failing_second);
	each(check_failing_freed);
	each(check_failing_right);
	each(check_failing_late);
	each(check_failing_beside);
}

/* ---- an engine that knows how to hold pages, whatever the policy ---- */

static struct world *begin_remembering(const struct xs_policy *policy)
{
	struct world_config config = {
		.blocks = 48, .cpus = 2, .policy = policy, .remembers = true,
	};

	return world_new(&config, 0);
}

/* The backend says twice that the whole mapping is removed, and no removal has failed. */
static void removed_twice(void)
{
	for (u32 i = 0; i < xs_policy_count; i++) {
		struct world *world = begin_remembering(&xs_policies[i]);
		struct mapping mapping = map(world, 5, MEMORY_COUNTED);

		world->exact_unmap = true;
		for (u32 at = 0; at < 4; at += 2) {
			CHECK(!driver_tear(world, mapping.iova + at * XS_PAGE_BYTES, 1, at));
			CHECK(world->misuse_removed == XS_REMOVED_ALL);
		}
		CHECK(world_warnings() == 2);
		CHECK(!xs_engine_stuck_pages(&world->engine));
		CHECK(!xs_engine_torn_pages(&world->engine));
		driver_unmap(world, &mapping, true);
		xs_engine_mend(&world->engine, false);
		world_end(world);
	}
}

/* The engine ends while a mapping is torn: in part, or as a whole and not mended. */
static void to_the_end(void)
{
	for (u32 i = 0; i < 2 * xs_policy_count; i++) {
		struct world *world = begin_remembering(&xs_policies[i / 2]);
		struct mapping mapping = map(world, 5, MEMORY_COUNTED);

		CHECK(!driver_tear(world, mapping.iova, 3, 0));
		if (i % 2)
			CHECK(!driver_tear(world, mapping.iova + 3 * XS_PAGE_BYTES, 2, 0));
		CHECK(world_warnings() == 1 + i % 2);
		xs_engine_destroy(&world->engine);
		CHECK(!world->allocations);
		world_free(world);
	}
}

#define LIST	4	/* most pages of a list that is being filled */

static struct {
	u64 iova;
	u32 pages;
	bool unmapped;
} early;

static void unmap_early(struct world *world)
{
	early.unmapped |= xs_engine_unmap(&world->engine, early.iova, early.pages, true);
}

/* The test drives the IOVAs of the list without the world's driver. */
static void own_list(struct world *world, u32 pages, u64 flags)
{
	u64 page = (early.iova >> XS_PAGE_LG2) - world->first_page;

	for (u32 i = 0; i < pages; i++)
		world->owner[page + i] = world->last_serial * OWNER_SERIAL | flags;
}

/*
 * Fill a list of @pages pages of @memory, no two of which are neighbours. A bad unmap of the
 * first @named pages comes before, and when the list has its first slot.
 */
static void fill_early(struct world *world, const struct mapping *memory, u32 pages, u32 named,
		       bool fails)
{
	u64 phys[LIST];

	for (u32 i = 0; i < pages; i++)
		phys[i] = (u64)(memory->page + 2 * i) << XS_PAGE_LG2;
	early.pages = named;
	early.unmapped = false;
	early.iova = xs_engine_alloc_iova(&world->engine, pages, LAST);
	++world->last_serial;
	own_list(world, pages, 0);
	unmap_early(world);
	/* The engine counts the references of several pages before it writes the first slot. */
	world->ref_asked_in = pages > 1 ? pages + 2 : 1;
	world->ref_asked = unmap_early;
	world->map_fails_in = fails;
	CHECK(fails == !!xs_engine_fill_each(&world->engine, early.iova, phys, pages,
					     PROT_READ_));
	CHECK(!world->ref_asked_in && !world->map_fails_in);
}

static void check_early(struct world *world, u32 pages, u32 named, bool fails)
{
	struct mapping memory = map(world, 2 * LIST, MEMORY_COUNTED);

	fill_early(world, &memory, pages, named, fails);
	CHECK(!early.unmapped && world_warnings() == 2);
	CHECK(xs_engine_live_pages(&world->engine) == 2 * LIST + pages);
	own_list(world, pages, fails ? 0 : OWNER_MAPPED);
	for (u32 i = 0; i < pages; i++)
		CHECK(world_reachable(world, early.iova + i * XS_PAGE_BYTES) == !fails);
	own_list(world, pages, 0);
	/* The driver's own unmap finds the list, once. */
	CHECK(xs_engine_unmap(&world->engine, early.iova, pages, fails));
	CHECK(!xs_engine_unmap(&world->engine, early.iova, pages, true));
	CHECK(world_warnings() == 1);
	xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	for (u32 i = 0; i < 2 * LIST; i++)
		CHECK(world->memory[memory.page + i].refs == 1);
	CHECK(xs_engine_live_pages(&world->engine) == 2 * LIST);
	driver_unmap(world, &memory, true);
}

/* A bad unmap comes before a larger list is filled, and between its parts. */
static void check_early_large(struct world *world)
{
	struct mapping memory = map(world, 2, MEMORY_COUNTED);
	u32 pages = 2 * XS_BLOCK_PAGES;

	early.pages = pages;
	early.unmapped = false;
	early.iova = xs_engine_alloc_iova(&world->engine, pages, LAST);
	++world->last_serial;
	own_list(world, pages, 0);
	unmap_early(world);
	for (u32 i = 0; i < 2; i++) {
		CHECK(!xs_engine_fill(&world->engine, early.iova + i * XS_PAGE_BYTES,
				      (u64)(memory.page + i) << XS_PAGE_LG2, 1, PROT_READ_));
		unmap_early(world);
	}
	CHECK(!early.unmapped && world_warnings() == 3);
	xs_engine_publish(&world->engine, early.iova, pages);
	CHECK(xs_engine_unmap(&world->engine, early.iova, pages, true));
	CHECK(!world_warnings());
	driver_unmap(world, &memory, true);
}

/* A bad unmap of a list's IOVAs, or of some of them, comes while the list is filled. */
static void early_unmap(void)
{
	for (u32 i = 0; i < xs_policy_count && !test_failed(); i++) {
		struct world *world = begin_remembering(&xs_policies[i]);

		for (u32 pages = 1; pages <= LIST; pages++)
			for (u32 named = 1; named <= pages; named++) {
				check_early(world, pages, named, false);
				check_early(world, pages, named, true);
			}
		check_early_large(world);
		world_end(world);
	}
}

/*
 * A bad unmap names a page that is about to be mapped, and another page. The map continues and
 * may write an entry after the removal; the entry is removed again before anybody else gets the
 * IOVA.
 */
static void unmap_meanwhile(struct world *world, u64 iova)
{
	u64 beside = iova + XS_PAGE_BYTES;

	world->mapping = NULL;
	if (names_any(world, beside, 1))
		beside = iova - XS_PAGE_BYTES;
	CHECK(!names_any(world, beside, 1));
	if (world->record_fails) {
		world->alloc_fails_in = 1;
		world->owner[(iova >> XS_PAGE_LG2) - world->first_page] =
			++world->last_serial * OWNER_SERIAL | OWNER_REFUSED;
	}
	xs_engine_unmap(&world->engine, beside < iova ? beside : iova, 2, true);
}

/* The same without memory for a record: pages mapped after the removal are stuck. */
static void check_stuck_meanwhile(struct world *world, bool fails)
{
	struct mapping mapping = { .pages = 1, .kind = MEMORY_COUNTED,
				   .prot = PROT_READ_ };
	bool mapped;

	world->mapping = unmap_meanwhile;
	world->record_fails = true;
	world->map_fails_late = fails;
	mapped = driver_map(world, &mapping, LAST);
	world->record_fails = world->map_fails_late = false;
	CHECK(mapped == !fails);
	CHECK(world_warnings() == 1);
	s.bad_unmaps++;
	CHECK(xs_engine_live_pages(&world->engine) == s.live);
	CHECK(xs_engine_stuck_pages(&world->engine) == 1);
	/* Other mappings get other IOVAs. */
	for (u32 i = 0; i < 2 * XS_BLOCK_PAGES; i++) {
		struct mapping other = map(world, 1, MEMORY_COUNTED);

		driver_unmap(world, &other, true);
	}
	if (mapped) {
		disown(world, &mapping, OWNER_REFUSED);
		retry(world, &mapping);
		driver_free(world, &mapping);
	}
	CHECK(!xs_engine_retry(&world->engine));
	world->stuck_pages = 0;
}

static void check_meanwhile(struct world *world)
{
	for (u32 fails = 0; fails < 2; fails++) {
		struct mapping mapping = { .pages = 1, .kind = MEMORY_COUNTED,
					   .prot = PROT_READ_ };
		bool mapped;

		world->mapping = unmap_meanwhile;
		world->map_fails_late = fails;
		mapped = driver_map(world, &mapping, LAST);
		world->map_fails_late = false;
		CHECK(mapped == !fails);
		CHECK(world_warnings() == 1);
		s.bad_unmaps++;
		CHECK(xs_engine_live_pages(&world->engine) == s.live + 1);
		if (mapped)
			driver_note_torn(world, &mapping);
		xs_engine_mend(&world->engine, false);
		CHECK(xs_engine_live_pages(&world->engine) == s.live);
		if (!mapped)
			continue;
		driver_is_torn(world, &mapping);
		driver_free(world, &mapping);
	}
}

static void check_meanwhile_no_memory(struct world *world)
{
	check_stuck_meanwhile(world, false);
	check_stuck_meanwhile(world, true);
}

static void meanwhile(void)
{
	each(check_meanwhile);
	each(check_meanwhile_no_memory);
}

/* ---- twice ---- */

/* Unmap deferred or flushed, and then again, with every function that unmaps. */
static void check_twice(struct world *world)
{
	for (enum memory_kind kind = 0; kind < MEMORY_KINDS; kind++)
		for (u32 i = 0; i < 4 && !test_failed(); i++) {
			static const u32 pages[] = { 1, 6, 64, 70 };
			struct mapping mapping = map(world, pages[i], kind);

			driver_unmap_only(world, &mapping, false);
			bad_unmap(world, mapping.iova, mapping.pages);
			/* Deferred pages are gone, too. */
			CHECK(!driver_reachable(world, &mapping));
			xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
			bad_unmap(world, mapping.iova, mapping.pages);
			xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
			/* Of counted memory only the driver's reference is left. */
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
	u32 arrived;		/* calls that are about to begin, or have begun */
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

/* All CPUs unmap the same mappings at the same time: exactly one unmap of each succeeds. */
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
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	CHECK(world_warnings() == 24 * (RACERS - 1));
	CHECK(world_stats(world)->counts.bad_unmaps == 24 * (RACERS - 1));
	for (u32 i = 0; i < 24; i++)
		driver_free(world, &race.mappings[i]);
	world_end(world);
}

/*
 * Each CPU names a page of one mapping, and every removal fails: the mapping is stuck, and
 * held, once.
 */
static void failing_run(void *argument, u32 cpu)
{
	struct race *race = argument;

	xs_engine_unmap(&race->world->engine,
			race->mappings[0].iova + cpu * XS_PAGE_BYTES, 1, false);
}

static void failing_race_seed(u64 seed)
{
	struct world_config config = {
		.blocks = 16, .cpus = RACERS, .remembers = true,
		.policy = &xs_policies[seed % xs_policy_count],
	};
	static struct race race;
	struct mapping *mapping = &race.mappings[0];

	test_replay(seed, 0);
	race.world = world_new(&config, 0);
	*mapping = map(race.world, RACERS, MEMORY_COUNTED);
	disown(race.world, mapping, 0);
	race.world->parts_fail = RACERS;
	if (!test_threads(RACERS, seed, failing_run, &race))
		test_threads(RACERS, 0, failing_run, &race);
	test_be_cpu(0);
	race.world->parts_fail = 0;
	CHECK(world_warnings() == RACERS);
	CHECK(!xs_engine_live_pages(&race.world->engine));
	CHECK(xs_engine_stuck_pages(&race.world->engine) == RACERS);
	retry(race.world, mapping);
	CHECK(race.world->memory[mapping->page].refs == 1);
	driver_free(race.world, mapping);
	world_end(race.world);
}

/*
 * All CPUs unmap the same page of a driver's block, page by page: exactly one unmap of each page
 * succeeds.
 */
static void block_run(void *argument, u32 cpu)
{
	struct race *race = argument;

	(void)cpu;
	for (u32 i = 0; i < 24; i++) {
		__atomic_fetch_add(&race->arrived, 1, __ATOMIC_RELAXED);
		while (__atomic_load_n(&race->arrived, __ATOMIC_RELAXED) < RACERS * (i + 1))
			test_relax();
		xs_engine_unmap_in_block_deferred(&race->world->engine,
						  race->mappings[0].iova, 1ULL << i);
	}
}

static void block_race_seed(u64 seed)
{
	struct world_config config = {
		.blocks = 16, .cpus = RACERS,
		.policy = &xs_policies[seed % xs_policy_count],
	};
	static struct race race;
	struct world *world = world_new(&config, 0);
	u64 own = xs_engine_alloc_block(&world->engine, 24, LAST);

	test_replay(seed, 0);
	race.world = world;
	race.arrived = 0;
	CHECK(driver_map_block(world, race.mappings, 24, 4, own) == 24);
	for (u32 i = 0; i < 24; i++)
		world->owner[(own >> XS_PAGE_LG2) + i] &= ~(u64)OWNER_MAPPED;
	if (!test_threads(RACERS, seed, block_run, &race))
		test_threads(RACERS, 0, block_run, &race);
	test_be_cpu(0);
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	CHECK(world_warnings() == 24 * (RACERS - 1));
	CHECK(!xs_engine_live_pages(&world->engine));
	for (u32 i = 0; i < 24; i++)
		driver_free(world, &race.mappings[i]);
	world_end(world);
}

static void block_at_once(void)
{
	test_seeds(50, block_race_seed);
}

static void failing_at_once(void)
{
	test_seeds(100, failing_race_seed);
}

static void twice_at_once(void)
{
	test_seeds(50, race_seed);
}

#define TORN		12	/* mappings that all CPUs tear */
#define TEARS		40	/* by each CPU */

struct tearing {
	struct world *world;
	struct mapping mappings[TORN];
	u64 ends[TORN];		/* the proper unmap has begun */
	u64 inside[TORN];	/* running calls that tear the mapping */
	u64 seed;
	bool maps;		/* other mappings are made meanwhile */
};

/* Does a device reach a named page of a mapping before the proper unmap has begun? */
static void check_named(struct tearing *tearing, u32 which, u32 at, u32 pages)
{
	struct mapping part = tearing->mappings[which];

	part.iova += at * XS_PAGE_BYTES;
	part.page += at;
	part.pages = pages;
	if (driver_reachable(tearing->world, &part))
		CHECK(__atomic_load_n(&tearing->ends[which], __ATOMIC_ACQUIRE));
}

/* Never names the last page, so that the mapping is not unmapped before the proper unmap. */
static void tear_once(struct tearing *tearing, u32 which, u64 *random)
{
	u32 at = test_below(random, tearing->mappings[which].pages - 1);
	u32 pages = 1 + test_below(random, tearing->mappings[which].pages - 1 - at);
	u64 iova = tearing->mappings[which].iova + at * XS_PAGE_BYTES;

	__atomic_fetch_add(&tearing->inside[which], 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&tearing->ends[which], __ATOMIC_SEQ_CST)) {
		xs_engine_unmap(&tearing->world->engine, iova, pages, *random % 2);
		check_named(tearing, which, at, pages);
	}
	__atomic_fetch_add(&tearing->inside[which], -1, __ATOMIC_SEQ_CST);
}

/*
 * The proper unmap of a mapping, by CPU 0. A late call would unmap the next mapping at the same
 * IOVA.
 */
static void tear_end(struct tearing *tearing, u32 which)
{
	struct mapping *mapping = &tearing->mappings[which];

	__atomic_store_n(&tearing->ends[which], 1, __ATOMIC_SEQ_CST);
	while (tearing->maps &&
	       __atomic_load_n(&tearing->inside[which], __ATOMIC_SEQ_CST))
		test_relax();
	CHECK(xs_engine_unmap(&tearing->world->engine, mapping->iova,
			      mapping->pages, which % 2));
	xs_engine_mend(&tearing->world->engine, false);
}

static void tear_run(void *argument, u32 cpu)
{
	struct tearing *tearing = argument;
	struct world *world = tearing->world;
	u64 random = tearing->seed * 8 + cpu;

	for (u32 i = 0; i < TEARS && !test_failed(); i++) {
		struct mapping other = { .pages = 1 + test_below(&random, 9),
					 .prot = PROT_READ_ };

		if (cpu == 0 && i % 3 == 2 && i / 3 < TORN) {
			tear_end(tearing, i / 3);
		} else if (cpu == 1 && tearing->maps) {
			if (!driver_map(world, &other, LAST))
				continue;
			driver_check(world, &other);
			driver_unmap(world, &other, i % 2);
		} else {
			tear_once(tearing, test_below(&random, TORN), &random);
		}
	}
}

/*
 * All CPUs tear the same mappings, and one CPU unmaps them properly; other mappings are made at
 * the freed IOVAs.
 */
static void tear_seed(u64 seed)
{
	struct world_config config = {
		.blocks = 64, .cpus = RACERS,
		.policy = &xs_policies[seed % xs_policy_count],
	};
	static struct tearing tearing;
	struct world *world = world_new(&config, 0);

	test_replay(seed, 0);
	tearing = (struct tearing){ .world = world, .seed = seed,
				    .maps = seed / 2 % 2 };
	world->exact_unmap = seed / xs_policy_count % 2;
	for (u32 i = 0; i < TORN; i++) {
		struct mapping *mapping = &tearing.mappings[i];
		u64 page;

		*mapping = map(world, i % 4 ? 2 + i : 65 + i, i % MEMORY_KINDS);
		page = (mapping->iova >> XS_PAGE_LG2) - world->first_page;
		for (u32 j = 0; j < mapping->pages; j++)
			world->owner[page + j] &= ~(u64)OWNER_MAPPED;
	}
	if (!test_threads(RACERS, seed, tear_run, &tearing))
		test_threads(RACERS, 0, tear_run, &tearing);
	test_be_cpu(0);
	for (u32 i = 0; i < TORN && !test_failed(); i++)
		if (!tearing.ends[i])
			tear_end(&tearing, i);
	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	xs_engine_mend(&world->engine, false);
	CHECK(world_stats(world)->counts.bad_unmaps == world_warnings());
	CHECK(!xs_engine_torn_pages(&world->engine));
	for (u32 i = 0; i < TORN; i++)
		driver_free(world, &tearing.mappings[i]);
	world_end(world);
}

static void torn_at_once(void)
{
	test_seeds(60, tear_seed);
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
	/* Zero pages, too many pages, and pages over the end. */
	for (u32 pages = 0; pages <= 70; pages += pages ? 60 : 10) {
		u32 count = pages == 10 ? 11 : pages;

		CHECK(!xs_engine_map_in_block(engine, s.own, phys, count,
					      PROT_READ_));
		check(world, 1);
		xs_engine_drop_in_block(engine, s.own, count);
		check(world, 1);
	}
	CHECK(!xs_engine_alloc_block(engine, 0, LAST));
	check(world, 1);
	CHECK(!xs_engine_alloc_block(engine, XS_BLOCK_PAGES + 1, LAST));
	check(world, 1);
}

static void wrong_blocks(void)
{
	each(check_blocks);
}

/* Pages of a block, some unmapped, each a separate mapping. */
static void check_in_block(struct world *world)
{
	struct mapping mapping = { .pages = 1, .prot = PROT_READ_ };
	struct xs_engine *engine = &world->engine;
	u64 own;

	xs_engine_unmap_in_block_deferred(engine, s.own, 0x7);
	check(world, 3);
	xs_engine_unmap_in_block_deferred(engine, s.own, ~0ULL << 4);
	check(world, 60);
	xs_engine_unmap_in_block_deferred(engine, s.own, 0);
	check(world, 0);
	xs_engine_unmap_in_block_deferred(engine, s.own ^ 1ULL << 30, 0xf);
	check(world, 4);
	xs_engine_unmap_in_block_deferred(engine, -XS_BLOCK_BYTES, 0xf);
	check(world, 4);
	/* Start inside the block: mapped pages are unmapped. */
	xs_engine_unmap_in_block_deferred(engine, s.own + XS_PAGE_BYTES, 0x3);
	check(world, 3);
	own = xs_engine_alloc_block(engine, 2, LAST);
	CHECK(driver_map_at(world, &mapping, own + XS_PAGE_BYTES));
	world->owner[(mapping.iova >> XS_PAGE_LG2) - world->first_page] =
		mapping.serial * OWNER_SERIAL;
	xs_engine_unmap_in_block_deferred(engine, mapping.iova, 1);
	check(world, 1);
	CHECK(!world_reachable(world, mapping.iova));
	driver_free(world, &mapping);
	xs_engine_drop_in_block(engine, own, 1);
	/* A mapping of several pages is not a mapping of single pages. */
	mapping = map(world, 5, MEMORY_COUNTED);
	driver_note_torn(world, &mapping);
	xs_engine_unmap_in_block_deferred(
		engine, mapping.iova & ~(XS_BLOCK_BYTES - 1),
		xs_mask_of(mapping.iova >> XS_PAGE_LG2 & (XS_BLOCK_PAGES - 1), 5));
	s.live += 5;
	check(world, 5);
	s.live -= 5;
	xs_engine_mend(engine, false);
	driver_is_torn(world, &mapping);
	driver_free(world, &mapping);
	check(world, 0);
}

static void in_block(void)
{
	each(check_in_block);
}

const struct test bad_unmap_tests[] = {
	{ "bad_unmap_wild", wild },
	{ "bad_unmap_wrong_size", wrong_size },
	{ "bad_unmap_wrong_size_exact", wrong_size_exact },
	{ "bad_unmap_longer", longer },
	{ "bad_unmap_neighbours", neighbours },
	{ "bad_unmap_parts", parts },
	{ "bad_unmap_no_memory", no_memory },
	{ "bad_unmap_late", lates },
	{ "bad_unmap_removed_twice", removed_twice },
	{ "bad_unmap_to_the_end", to_the_end },
	{ "bad_unmap_failing", failing },
	{ "bad_unmap_early", early_unmap },
	{ "bad_unmap_meanwhile", meanwhile },
	{ "bad_unmap_twice", twice },
	{ "bad_unmap_twice_at_once", twice_at_once, .threads = true },
	{ "bad_unmap_block_at_once", block_at_once, .threads = true },
	{ "bad_unmap_failing_at_once", failing_at_once, .threads = true },
	{ "bad_unmap_torn_at_once", torn_at_once, .threads = true },
	{ "bad_unmap_wrong_blocks", wrong_blocks },
	{ "bad_unmap_in_block", in_block },
	{ NULL, NULL },
};
