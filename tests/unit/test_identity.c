// SPDX-License-Identifier: GPL-2.0-only
/*
 * Identity placement. The tests' world checks that no entry is written over another or over a
 * cached translation, that only unmapped pages are removed, each once, and that held memory stays.
 */
#include "unit_world.h"

#define LAST	(~0ULL)
#define COUNTED	{ .pages = 1, .kind = MEMORY_COUNTED, .prot = PROT_READ_ }

static struct world *begin(const struct xs_policy *policy)
{
	const struct world_config config = {
		.blocks = 256, .cpus = 3, .policy = policy, .remembers = true, .identity = true,
	};

	test_be_cpu(0);
	return world_new(&config, 0);
}

static struct mapping map(struct world *world, enum memory_kind kind, u32 prot)
{
	struct mapping mapping = { .pages = 1, .kind = kind, .prot = prot };

	CHECK(driver_map(world, &mapping, LAST));
	driver_check(world, &mapping);
	return mapping;
}

static struct mapping map_again(struct world *world, const struct mapping *of)
{
	struct mapping mapping;

	CHECK(driver_map_again(world, &mapping, of, LAST));
	driver_check(world, &mapping);
	return mapping;
}

static bool is_identity(const struct world *world, const struct mapping *mapping)
{
	return mapping->iova == ((world->engine.identity.first + mapping->page) << XS_PAGE_LG2);
}

/* Entries written, entries removed and commands sent since the last call. */
struct work {
	u64 writes;
	u64 removals;
	u64 commands;
};

static struct work work_of(struct world *world)
{
	struct work work = {
		world_stats(world)->counts.identity_writes, world->removals,
		world->sent_page + world->sent_domain,
	};

	return work;
}

static bool did(struct world *world, struct work *before, u64 writes, u64 removals, u64 commands)
{
	struct work now = work_of(world);
	bool right = now.writes - before->writes == writes &&
		     now.removals - before->removals == removals &&
		     now.commands - before->commands == commands;

	*before = now;
	return right;
}

static void addresses(void)
{
	struct world *world = begin(xs_policy_find("strict-identity"));
	struct mapping one = map(world, MEMORY_COUNTED, PROT_READ_);
	struct mapping many = { .pages = 4, .kind = MEMORY_FOLIO, .prot = PROT_WRITE_ };
	struct mapping low = COUNTED, unflushed = COUNTED;

	CHECK(is_identity(world, &one));
	CHECK(driver_map(world, &many, LAST) && !is_identity(world, &many));
	/* The device does not reach the window. */
	CHECK(driver_map(world, &low, WORLD_WINDOW * XS_PAGE_BYTES - 1));
	CHECK(!is_identity(world, &low));
	/* Another mapping of the page would not wait for the flush. */
	unflushed.deferred = true;
	CHECK(driver_map(world, &unflushed, LAST) && !is_identity(world, &unflushed));
	xs_engine_flush_maps(&world->engine, false);
	CHECK(world_stats(world)->counts.identity_misses == 2);
	driver_unmap(world, &one, false);
	driver_unmap(world, &many, false);
	driver_unmap(world, &low, false);
	driver_unmap(world, &unflushed, false);
	world_end(world);
}

/* Mappings of a page share the entry, which goes with the last. */
static void shares(const struct xs_policy *policy, bool deferred)
{
	struct world *world = begin(policy);
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_);
	struct work work = work_of(world);
	struct mapping second = map_again(world, &first), third = map_again(world, &first);

	CHECK(second.iova == first.iova && third.iova == first.iova);
	CHECK(did(world, &work, 0, 0, 0));
	driver_unmap(world, &first, false);
	driver_check(world, &second);
	driver_unmap(world, &third, true);
	driver_check(world, &second);
	CHECK(did(world, &work, 0, 0, 0));
	driver_unmap_only(world, &second, false);
	CHECK(did(world, &work, 0, !deferred, !deferred));
	CHECK(world_reachable(world, second.iova) == deferred);
	driver_free(world, &second);
	world_poll(world);
	CHECK(!world_reachable(world, second.iova));
	CHECK(did(world, &work, 0, deferred, deferred));
	CHECK(world_stats(world)->counts.kept_unmaps == 2);
	world_end(world);
}

static void shared(void)
{
	shares(xs_policy_find("strict-identity"), false);
	shares(xs_policy_find("fused-identity"), true);
}

/* The entry has the permission of its first mapping until the flush. */
static void permissions(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_);
	struct mapping both = first, other;

	both.prot = PROT_READ_ | PROT_WRITE_;
	other = map_again(world, &both);
	CHECK(!is_identity(world, &other));
	driver_check(world, &first);
	driver_unmap(world, &other, false);
	/* Unmapped, and translations may be cached. */
	driver_unmap_only(world, &first, false);
	other = map_again(world, &both);
	CHECK(!is_identity(world, &other));
	driver_unmap(world, &other, false);
	world_poll(world);
	other = map_again(world, &both);
	CHECK(is_identity(world, &other));
	driver_unmap(world, &other, false);
	driver_free(world, &first);
	world_end(world);
}

/* A page that is mapped again before its flush costs nothing, whatever flushes come. */
static void revival(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_), again = first;
	struct work work = work_of(world);
	u64 let_go;

	for (u32 i = 0; i < 100; i++) {
		driver_unmap_only(world, &again, false);
		again = map_again(world, &first);
		CHECK(is_identity(world, &again));
		driver_free(world, &again);
	}
	CHECK(did(world, &work, 0, 0, 0));
	/* One record and one reference stand for all unmaps. */
	CHECK(world_stats(world)->counts.kept_unmaps == 99);
	CHECK(world->memory[first.page].refs == 2);
	let_go = world->let_go;
	world_poll(world);
	CHECK(world->let_go == let_go + 1);
	CHECK(did(world, &work, 0, 0, 0));
	driver_check(world, &again);
	/* The record is gone: the next unmap needs another. */
	driver_unmap(world, &again, false);
	CHECK(world->memory[first.page].refs == 1);
	world_poll(world);
	CHECK(did(world, &work, 0, 1, 1) && !world_reachable(world, again.iova));
	world_end(world);
}

/* Unmaps a page here, maps it again, and unmaps it on CPU 1, where the caller is afterwards. */
static struct mapping unmap_on_both(struct world *world, const struct mapping *first)
{
	struct mapping again;

	driver_unmap_only(world, first, false);
	again = map_again(world, first);
	driver_free(world, first);
	test_be_cpu(1);
	driver_unmap(world, &again, false);
	return again;
}

/* The record of another CPU does not stand for an unmap: this CPU's flush must have the page. */
static void elsewhere(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_), again;
	struct work work = work_of(world);

	again = unmap_on_both(world, &first);
	CHECK(world->memory[first.page].refs == 2);
	world_poll(world);
	CHECK(did(world, &work, 0, 1, 1) && !world_reachable(world, again.iova));
	CHECK(world->memory[first.page].refs == 1);
	/* The other record finds nothing to remove, also while the page is mapped again. */
	again = map_again(world, &first);
	test_be_cpu(0);
	world_poll(world);
	CHECK(did(world, &work, 1, 0, 0));
	driver_check(world, &again);
	CHECK(world->memory[first.page].refs == 1);
	driver_unmap(world, &again, false);
	world_end(world);
}

/*
 * Unmapped here, revived and unmapped there, and this CPU flushes first: the page is the other
 * CPU's, whose driver may wait for its own flush only.
 */
static void flushed_elsewhere(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_), again;
	struct work work = work_of(world);

	again = unmap_on_both(world, &first);
	test_be_cpu(0);
	world_poll(world);
	CHECK(did(world, &work, 0, 0, 0) && world_reachable(world, again.iova));
	CHECK(world->memory[first.page].refs == 1);
	test_be_cpu(1);
	world_poll(world);
	CHECK(did(world, &work, 0, 1, 1) && !world_reachable(world, again.iova));
	CHECK(!world->memory[first.page].refs);
	world_end(world);
}

static struct mapping *nested_of;

/* An interrupt in the middle of a write or a removal of the entry: the page is BUSY. */
static void nest(struct world *world)
{
	struct mapping nested;

	world->removing = NULL;
	CHECK(driver_map_again(world, &nested, nested_of, LAST));
	CHECK(!is_identity(world, &nested));
	driver_check(world, &nested);
	driver_unmap(world, &nested, true);
}

static void nest_in_map(struct world *world, u64 iova)
{
	world->mapping = NULL;
	nest(world);
}

static void busy(void)
{
	struct world *world = begin(xs_policy_find("strict-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_), again;

	nested_of = &first;
	world->removing = nest;
	driver_unmap_only(world, &first, false);
	CHECK(!world_reachable(world, first.iova));
	world->mapping = nest_in_map;
	CHECK(driver_map_again(world, &again, &first, LAST) && is_identity(world, &again));
	driver_check(world, &again);
	driver_unmap(world, &again, false);
	driver_free(world, &first);
	world_end(world);
}

static void refused(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping mapping = COUNTED, again;
	u64 live;

	world->maps_fail = true;
	CHECK(!driver_map(world, &mapping, LAST));
	world->maps_not_undone = true;
	CHECK(!driver_map(world, &mapping, LAST));
	world->maps_fail = false;
	CHECK(world_stats(world)->map_failures == 2);
	live = world_stats(world)->counts.maps - world_stats(world)->counts.unmaps;
	CHECK(!live);
	mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	again = map_again(world, &mapping);
	CHECK(is_identity(world, &again));
	driver_unmap(world, &again, false);
	driver_unmap_only(world, &mapping, true);
	world->maps_fail = true;
	world->maps_not_undone = false;
	CHECK(!driver_map_again(world, &again, &mapping, LAST));
	world->maps_fail = false;
	again = map_again(world, &mapping);
	CHECK(is_identity(world, &again));
	driver_unmap(world, &again, true);
	world->maps_not_undone = true;
	/* An interrupt does not share what is mapped in part, and about to be removed. */
	nested_of = &mapping;
	world->removing = nest;
	world->map_fails_in = 1;
	CHECK(!driver_map_again(world, &again, &mapping, LAST) && !world->removing);
	driver_free(world, &mapping);
	world_end(world);
}

static void mend(struct world *world)
{
	world->removes_outside = true;
	CHECK(!xs_engine_retry(&world->engine));
	world->removes_outside = false;
	CHECK(!xs_engine_stuck_pages(&world->engine));
}

/* A page that cannot be removed keeps its memory, and is mapped in a block meanwhile. */
static void check_stuck(const struct xs_policy *policy, bool now, bool aware)
{
	struct world *world = begin(policy);
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_), again;
	struct xs_stats *sum = test_alloc(sizeof(*sum));

	world->removal_fails_in = 1;
	if (aware) {
		driver_unmap_aware(world, &first, 1, false);
	} else {
		driver_unmap(world, &first, now);
		world_poll(world);
	}
	CHECK(xs_engine_stuck_pages(&world->engine) == 1);
	CHECK(world_reachable(world, first.iova) && world->memory[first.page].refs == 1);
	CHECK(!xs_engine_leak_check(&world->engine, sum));
	again = map_again(world, &first);
	CHECK(!is_identity(world, &again));
	driver_unmap(world, &again, true);
	mend(world);
	CHECK(!world_reachable(world, first.iova) && !world->memory[first.page].refs);
	test_free(sum);
	world_end(world);
}

static void stuck(void)
{
	check_stuck(xs_policy_find("strict-identity"), false, false);
	check_stuck(xs_policy_find("fused-identity"), false, false);
	check_stuck(xs_policy_find("fused-identity"), true, false);
	check_stuck(xs_policy_find("fused-identity"), false, true);
}

/* Of two records of a stuck page, one hands over its reference. */
static void check_stuck_twice(bool other)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_);

	unmap_on_both(world, &first);
	world->removal_fails_in = 1;
	world_poll(world);
	CHECK(xs_engine_stuck_pages(&world->engine) == 1);
	test_be_cpu(0);
	/* The other record does not count as stuck, also beside one that does. */
	if (other) {
		struct mapping second = map(world, MEMORY_COUNTED, PROT_READ_);

		driver_unmap(world, &second, false);
		world->removal_fails_in = 1;
	}
	world_poll(world);
	CHECK(world->memory[first.page].refs == 1);
	CHECK(xs_engine_stuck_pages(&world->engine) == 1ULL + other);
	mend(world);
	CHECK(!world->memory[first.page].refs);
	world_end(world);
}

static void stuck_twice(void)
{
	check_stuck_twice(false);
	check_stuck_twice(true);
}

/* Memory that cannot be held is flushed at once; memory that is never freed is not held. */
static void kinds(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping slab = map(world, MEMORY_SLAB, PROT_READ_);
	struct mapping permanent = map(world, MEMORY_PERMANENT, PROT_READ_);
	struct mapping counted = map(world, MEMORY_COUNTED, PROT_READ_);
	struct work work = work_of(world);

	driver_unmap(world, &slab, false);
	CHECK(did(world, &work, 0, 1, 1));
	driver_unmap(world, &permanent, false);
	CHECK(did(world, &work, 0, 0, 0));
	/* The driver has freed the memory before its unmap. */
	world->frees_early = true;
	driver_free(world, &counted);
	driver_unmap_only(world, &counted, false);
	CHECK(did(world, &work, 0, 1, 1));
	world_end(world);
}

/* A batch-aware driver keeps its pages: its record holds nothing, and stands for no other unmap. */
static void aware(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct xs_tuning tuning = xs_tuning_default(xs_policy_find("fused-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_), again;
	struct work work = work_of(world);

	CHECK(driver_unmap_deferred(world, &first));
	CHECK(did(world, &work, 0, 0, 0) && world->memory[first.page].refs == 1);
	again = map_again(world, &first);
	driver_free(world, &first);
	driver_unmap(world, &again, false);
	CHECK(world->memory[first.page].refs == 1);
	xs_engine_flush_explicit(&world->engine, false);
	CHECK(did(world, &work, 0, 1, 1) && !world->memory[first.page].refs);
	/* The driver's flush covers an unmap for which an older record would stand. */
	first = map(world, MEMORY_COUNTED, PROT_READ_);
	again = map_again(world, &first);
	driver_unmap(world, &again, false);
	driver_unmap_only(world, &first, false);
	again = map_again(world, &first);
	driver_unmap_deferred(world, &again);
	xs_engine_flush_explicit(&world->engine, false);
	CHECK(!world_reachable(world, first.iova));
	driver_free(world, &first);
	driver_free(world, &again);
	tuning.batch_aware = true;
	world_set_policy(world, xs_policy_find("fused-identity"), &tuning);
	first = map(world, MEMORY_COUNTED, PROT_READ_);
	again = map_again(world, &first);
	driver_unmap_deferred(world, &again);
	driver_unmap_deferred(world, &first);
	xs_engine_flush_explicit(&world->engine, true);
	CHECK(!world_reachable(world, first.iova));
	driver_free(world, &first);
	driver_free(world, &again);
	/* An ordinary unmap of such a driver is not deferred. */
	first = map(world, MEMORY_COUNTED, PROT_READ_);
	driver_unmap_only(world, &first, false);
	CHECK(!world_reachable(world, first.iova));
	driver_free(world, &first);
	world_end(world);
}

/* Mappings outlive changes of the placement, in both directions. */
static void changes(void)
{
	struct world *world = begin(xs_policy_find("fused"));

	for (u32 i = 0; i < 2 * xs_policy_count; i++) {
		const struct xs_policy *other = &xs_policies[i % xs_policy_count];
		const struct xs_policy *policy = xs_policy_find(
			i < xs_policy_count ? "fused-identity" : "strict-identity");
		struct xs_tuning tuning = xs_tuning_default(policy);
		struct mapping mine[3], theirs[3];

		world_set_policy(world, policy, &tuning);
		for (u32 at = 0; at < 3; at++)
			mine[at] = map(world, MEMORY_COUNTED, PROT_READ_);
		driver_unmap(world, &mine[0], false);
		tuning = xs_tuning_default(other);
		world_set_policy(world, other, &tuning);
		CHECK(!world_reachable(world, mine[0].iova));
		for (u32 at = 0; at < 3; at++)
			theirs[at] = map(world, MEMORY_COUNTED, PROT_READ_);
		CHECK(is_identity(world, &mine[1]));
		CHECK(is_identity(world, &theirs[0]) == (other->placement == XS_PLACE_IDENTITY));
		driver_unmap(world, &mine[1], false);
		driver_unmap(world, &theirs[0], false);
		world_poll(world);
		driver_unmap(world, &theirs[1], false);
		driver_unmap(world, &mine[2], false);
		tuning = xs_tuning_default(policy);
		world_set_policy(world, policy, &tuning);
		driver_unmap(world, &theirs[2], false);
	}
	world_end(world);
}

static void bad_unmaps(const struct xs_policy *policy)
{
	struct world *world = begin(policy);
	struct mapping mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	u64 below = mapping.iova - XS_PAGE_BYTES, window = mapping.iova -
		    mapping.page * XS_PAGE_BYTES;

	for (u32 how = 0; how < TEAR_WAYS; how++) {
		/* Never mapped; no words; outside the memory; and of no page. */
		CHECK(!driver_tear(world, below, 1, how) && world_warnings() == 1);
		CHECK(!driver_tear(world, window, 1, how) && world_warnings() == 1);
		CHECK(!driver_tear(world, 1ULL << 50, 1, how) && world_warnings() == 1);
		CHECK(!driver_tear(world, mapping.iova, 0, how) && world_warnings() == 1);
	}
	driver_check(world, &mapping);
	driver_unmap_only(world, &mapping, false);
	/* Twice. */
	CHECK(!xs_engine_unmap(&world->engine, mapping.iova, 1, false));
	CHECK(!xs_engine_unmap(&world->engine, mapping.iova, 1, true));
	path_unmap_one(&world->engine, mapping.iova);
	path_unmap_one_deferred(&world->engine, mapping.iova);
	CHECK(world_warnings() == 4);
	driver_free(world, &mapping);
	/* Several pages: each is unmapped, at once. */
	mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(!driver_tear(world, mapping.iova - XS_PAGE_BYTES, 3, 0) && world_warnings() == 1);
	CHECK(!world_reachable(world, mapping.iova));
	driver_is_torn(world, &mapping);
	driver_free(world, &mapping);
	/* More pages than there are. */
	mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(!driver_tear(world, window, ~0u, 0) && world_warnings() == 1);
	driver_is_torn(world, &mapping);
	driver_free(world, &mapping);
	/* From below the window on. */
	mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(!driver_tear(world, window - XS_PAGE_BYTES, ~0u, 0) && world_warnings() == 1);
	CHECK(!world_reachable(world, mapping.iova));
	driver_is_torn(world, &mapping);
	driver_free(world, &mapping);
	CHECK(world_stats(world)->counts.bad_unmaps == 19);
	world_end(world);
}

/* Unmaps @iova, of which nothing is mapped, in one of five ways. */
static void unmap_again(struct world *world, u64 iova, u32 how)
{
	if (how == 0)
		xs_engine_unmap(&world->engine, iova, 1, false);
	else if (how == 1)
		xs_engine_unmap(&world->engine, iova, 1, true);
	else if (how == 2)
		path_unmap_one(&world->engine, iova);
	else if (how == 3)
		path_unmap_one_deferred(&world->engine, iova);
	else
		xs_engine_unmap(&world->engine, iova, 2, false);
}

/* A second unmap flushes the first before it returns, wherever the record is. */
static void unmapped_twice(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));

	for (u32 how = 0; how < 5; how++) {
		for (u32 cpu = 0; cpu < 2; cpu++) {
			struct mapping mapping = map(world, MEMORY_COUNTED, PROT_READ_);

			driver_unmap_only(world, &mapping, false);
			CHECK(world_reachable(world, mapping.iova));
			test_be_cpu(cpu);
			unmap_again(world, mapping.iova, how);
			test_be_cpu(0);
			CHECK(!world_reachable(world, mapping.iova) && world_warnings() == 1);
			driver_free(world, &mapping);
		}
	}
	world_end(world);
}

/* A bad unmap from below the window on has the pages that it names, and no other. */
static void bad_from_below(void)
{
	struct world *world = begin(xs_policy_find("strict-identity"));
	struct mapping mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	u64 below = mapping.iova - (mapping.page + 1) * XS_PAGE_BYTES;

	CHECK(!driver_tear(world, below, mapping.page + 1, 0) && world_warnings() == 1);
	driver_check(world, &mapping);
	CHECK(!driver_tear(world, below, mapping.page + 2, 0) && world_warnings() == 1);
	CHECK(!world_reachable(world, mapping.iova));
	driver_is_torn(world, &mapping);
	driver_free(world, &mapping);
	world_end(world);
}

/* A bad unmap that begins in a table without words has the pages of the next table, too. */
static void bad_from_table_below(void)
{
	struct world *world = begin(xs_policy_find("strict-identity"));
	struct mapping mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	u32 at = mapping.page % XS_TABLE_PAGES;

	CHECK(!driver_tear(world, mapping.iova - (at + 1) * XS_PAGE_BYTES, at + 2, 0));
	CHECK(world_warnings() == 1 && !world_reachable(world, mapping.iova));
	driver_is_torn(world, &mapping);
	driver_free(world, &mapping);
	world_end(world);
}

/* Maps two pages of the window. */
static void map_two(struct world *world, struct mapping *lower, struct mapping *upper)
{
	struct mapping other;

	*lower = map(world, MEMORY_COUNTED, PROT_READ_);
	*upper = map(world, MEMORY_COUNTED, PROT_READ_);
	if (lower->iova < upper->iova)
		return;
	other = *lower;
	*lower = *upper;
	*upper = other;
}

/* A batch-aware driver that names a page of the window as its block's loses that page alone. */
static void bad_in_block(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping lower, upper;
	u64 page;

	map_two(world, &lower, &upper);
	driver_note_torn(world, &upper);
	page = upper.iova >> XS_PAGE_LG2;
	xs_engine_unmap_in_block_deferred(&world->engine,
					  upper.iova & ~(XS_BLOCK_PAGES * XS_PAGE_BYTES - 1),
					  1ULL << (page & (XS_BLOCK_PAGES - 1)));
	CHECK(world_warnings() == 1);
	CHECK(world_reachable(world, lower.iova) && !world_reachable(world, upper.iova));
	driver_is_torn(world, &upper);
	driver_free(world, &upper);
	driver_unmap(world, &lower, false);
	world_end(world);
}

/* A bad unmap that reaches into the window by one page. */
static void bad_at_first(void)
{
	struct world *world = begin(xs_policy_find("strict-identity"));
	struct mapping all = { .pages = WORLD_WINDOW_PAGES - 1, .prot = PROT_READ_ }, first;

	CHECK(driver_map(world, &all, LAST) && all.page == 0);
	first = map_again(world, &all);
	CHECK(first.iova == world->engine.identity.first << XS_PAGE_LG2);
	CHECK(!driver_tear(world, first.iova - XS_PAGE_BYTES, 2, 0) && world_warnings() == 1);
	CHECK(!world_reachable(world, first.iova));
	driver_is_torn(world, &first);
	driver_free(world, &first);
	driver_unmap(world, &all, false);
	world_end(world);
}

/* A bad unmap of several pages takes one mapping of a page, and says that another is left. */
static void bad_of_shared(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	struct mapping other = map_again(world, &mapping);
	u64 below = mapping.iova - XS_PAGE_BYTES;

	CHECK(!xs_engine_unmap(&world->engine, below, 2, false) && world_warnings() == 1);
	CHECK(world->misuse_shared && world->misuse_iova == mapping.iova && !world->misuse_removed);
	driver_check(world, &other);
	driver_note_torn(world, &mapping);
	CHECK(!xs_engine_unmap(&world->engine, below, 2, false) && world_warnings() == 1);
	CHECK(!world->misuse_shared && world->misuse_iova == mapping.iova);
	CHECK(!world_reachable(world, mapping.iova));
	CHECK(!xs_engine_unmap(&world->engine, below, 2, false) && world_warnings() == 1);
	CHECK(!world->misuse_iova);
	CHECK(world_stats(world)->counts.bad_unmaps == 3);
	driver_is_torn(world, &mapping);
	driver_free(world, &mapping);
	driver_free(world, &other);
	world_end(world);
}

/* A bad unmap whose page the IOMMU driver cannot remove says so, and the page is stuck. */
static void bad_not_removed(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping mapping = map(world, MEMORY_COUNTED, PROT_READ_);

	driver_note_torn(world, &mapping);
	world->removal_fails_in = 1;
	CHECK(!xs_engine_unmap(&world->engine, mapping.iova - XS_PAGE_BYTES, 2, false));
	CHECK(world_warnings() == 1 && world->misuse_removed < 0);
	CHECK(xs_engine_stuck_pages(&world->engine) == 1);
	mend(world);
	CHECK(!world_reachable(world, mapping.iova));
	driver_is_torn(world, &mapping);
	driver_free(world, &mapping);
	world_end(world);
}

/* Unmaps all pages from @lower to @upper; @first is the first that is mapped. */
static void tear_both(struct world *world, const struct mapping *lower,
		      const struct mapping *upper, const struct mapping *first)
{
	u32 pages = (u32)((upper->iova - lower->iova) >> XS_PAGE_LG2) + 1;

	CHECK(!xs_engine_unmap(&world->engine, lower->iova, pages, false));
	CHECK(world_warnings() == 1 && world->misuse_iova == first->iova);
}

/* What a bad unmap says of its first page holds whatever becomes of the next. */
static void bad_of_shared_and_more(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping lower, upper, other;

	map_two(world, &lower, &upper);
	other = map_again(world, &lower);
	driver_note_torn(world, &upper);
	tear_both(world, &lower, &upper, &lower);
	CHECK(world->misuse_shared && !world->misuse_removed);
	CHECK(!world_reachable(world, upper.iova));
	driver_check(world, &other);
	driver_note_torn(world, &lower);
	tear_both(world, &lower, &upper, &lower);
	CHECK(!world->misuse_shared && !world_reachable(world, lower.iova));
	driver_is_torn(world, &lower);
	driver_is_torn(world, &upper);
	driver_free(world, &lower);
	driver_free(world, &upper);
	driver_free(world, &other);
	world_end(world);
}

static void bad_not_removed_and_more(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping lower, upper, again;

	map_two(world, &lower, &upper);
	driver_note_torn(world, &lower);
	driver_note_torn(world, &upper);
	world->removal_fails_in = 1;
	tear_both(world, &lower, &upper, &lower);
	CHECK(world->misuse_removed < 0 && xs_engine_stuck_pages(&world->engine) == 1);
	CHECK(!world_reachable(world, upper.iova));
	driver_is_torn(world, &upper);
	/* A page that is stuck already does not end the unmap. */
	again = map_again(world, &upper);
	driver_note_torn(world, &again);
	tear_both(world, &lower, &upper, &upper);
	CHECK(world->misuse_removed < 0 && !world_reachable(world, upper.iova));
	driver_is_torn(world, &again);
	mend(world);
	CHECK(!world_reachable(world, lower.iova));
	driver_is_torn(world, &lower);
	driver_free(world, &lower);
	driver_free(world, &upper);
	driver_free(world, &again);
	world_end(world);
}

static void bad(void)
{
	bad_unmaps(xs_policy_find("strict-identity"));
	bad_unmaps(xs_policy_find("fused-identity"));
}

/* A word that counts no further mapping sends the map to a block. */
static void counts(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_), second, third;
	struct xs_identity_table *table =
		&world->engine.identity.tables[first.page >> XS_TABLE_PAGES_LG2];
	xs_atomic64_t *word = &table->words[first.page & (XS_TABLE_PAGES - 1)];

	xs_a64_set(word, xs_a64_read(word) + XS_WORD_COUNT - 2);
	second = map_again(world, &first);
	third = map_again(world, &first);
	CHECK(is_identity(world, &second) && !is_identity(world, &third));
	driver_unmap(world, &second, false);
	xs_a64_set(word, xs_a64_read(word) - XS_WORD_COUNT + 2);
	driver_unmap(world, &third, false);
	driver_unmap(world, &first, false);
	world_end(world);
}

/* Without memory for words or tables, pages are placed in blocks. */
static void no_memory(void)
{
	struct world *world = begin(xs_policy_find("strict"));
	struct xs_tuning tuning = xs_tuning_default(xs_policy_find("fused-identity"));
	struct mapping mapping = COUNTED;

	world->alloc_fails_in = 1;
	world_set_policy(world, xs_policy_find("fused-identity"), &tuning);
	mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(!is_identity(world, &mapping) && !world->alloc_fails_in);
	driver_unmap(world, &mapping, false);
	world_set_policy(world, xs_policy_find("strict-identity"), &tuning);
	for (u32 i = 1; i <= 2; i++) {
		world->alloc_fails_in = i;
		mapping = map(world, MEMORY_COUNTED, PROT_READ_);
		CHECK(!is_identity(world, &mapping) && !world->alloc_fails_in);
		driver_unmap(world, &mapping, false);
	}
	mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(is_identity(world, &mapping));
	driver_unmap(world, &mapping, false);
	world_end(world);
}

/* A trim frees the words of pages that are not mapped, and no others. */
static void trim(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	u32 tables = WORLD_WINDOW_PAGES / XS_TABLE_PAGES, kept = 0;
	struct mapping *all = test_alloc(64 * sizeof(*all));
	u64 pruned = world->pruned;

	for (u32 i = 0; i < 64; i++)
		all[i] = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(world->engine.identity.used > tables / 2 && world->engine.identity.used <= tables);
	kept = (u32)world->engine.identity.used;
	world_trim(world, true);
	CHECK(world->engine.identity.used == kept);
	for (u32 i = 1; i < 64; i++)
		driver_unmap(world, &all[i], false);
	/* Not flushed. */
	world_trim(world, true);
	CHECK(world->engine.identity.used == kept);
	world_poll(world);
	world_trim(world, true);
	CHECK(world->engine.identity.used == 1);
	CHECK(world->pruned - pruned >= (u64)(kept - 1) * XS_TABLE_PAGES);
	driver_check(world, &all[0]);
	all[1] = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(is_identity(world, &all[1]));
	driver_unmap(world, &all[0], false);
	driver_unmap(world, &all[1], false);
	test_free(all);
	world_end(world);
}

/* A window with a reserved range is not used. */
static void excluded(void)
{
	struct world *world = begin(xs_policy_find("strict"));
	struct xs_tuning tuning = xs_tuning_default(xs_policy_find("fused-identity"));
	u64 first = world->engine.identity.first << XS_PAGE_LG2;
	u64 bytes = world->engine.identity.size << (XS_TABLE_PAGES_LG2 + XS_PAGE_LG2);
	struct mapping mapping;

	xs_identity_exclude(&world->engine, 0, first - 1);
	xs_identity_exclude(&world->engine, first + bytes, ~0ULL);
	CHECK(world->engine.identity.size);
	xs_identity_exclude(&world->engine, first + bytes - 1, ~0ULL);
	CHECK(!world->engine.identity.size);
	world_set_policy(world, xs_policy_find("fused-identity"), &tuning);
	mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(!is_identity(world, &mapping));
	driver_unmap(world, &mapping, false);
	CHECK(!driver_tear(world, first, 1, 0) && world_warnings() == 1);
	world_end(world);
}

/* The same if the engine begins with identity placement. */
static void excluded_at_first(void)
{
	struct world *world = begin(xs_policy_find("strict-identity"));
	u64 first = world->engine.identity.first << XS_PAGE_LG2;

	xs_identity_exclude(&world->engine, first, first);
	/* Some of the memory is of the former window. */
	for (u32 i = 0; i < 16; i++) {
		struct mapping mapping = map(world, MEMORY_COUNTED, PROT_READ_);

		CHECK(!is_identity(world, &mapping));
		driver_unmap(world, &mapping, false);
	}
	world_end(world);
}

/* Without memory for the rest of an engine, nothing of the window stays behind. */
static void no_memory_at_init(void)
{
	struct world_config config = {
		.blocks = 256, .cpus = 3, .policy = xs_policy_find("strict-identity"),
		.identity = true,
	};
	struct world *world = NULL;

	test_be_cpu(0);
	for (u32 n = 1; n < 100 && !(world && world->engine.identity.pages); n++) {
		if (world)
			world_end(world);
		world = world_new(&config, n);
	}
	if (CHECK(world))
		world_end(world);
}

/* New words ask for a trim. */
static void surplus(void)
{
	struct world *world = begin(xs_policy_find("strict-identity"));
	struct mapping mapping;

	world->engine.identity.kept = -63ULL;
	mapping = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(world->surplus == 1);
	driver_unmap(world, &mapping, false);
	world_trim(world, false);
	CHECK(!world->engine.identity.used && !world->engine.identity.kept);
	world_end(world);
}

/* What a detach would report. */
static void leaks(void)
{
	struct world *world = begin(xs_policy_find("strict-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_);
	struct mapping again = map_again(world, &first);
	struct xs_stats *sum = test_alloc(sizeof(*sum));
	u64 iova = 0;
	u32 pages = 0;

	CHECK(xs_engine_next_mapping(&world->engine, &iova, &pages));
	CHECK(iova == first.iova && pages == 1);
	iova += XS_PAGE_BYTES;
	CHECK(!xs_engine_next_mapping(&world->engine, &iova, &pages));
	CHECK(xs_engine_leak_check(&world->engine, sum) == 2);
	driver_unmap(world, &first, false);
	driver_unmap(world, &again, false);
	test_free(sum);
	world_end(world);
}

/* After a seal no map shares an entry, and each unmap finds its mapping. */
static void seals(void)
{
	struct world *world = begin(xs_policy_find("fused-identity"));
	struct mapping first = map(world, MEMORY_COUNTED, PROT_READ_), other, again;
	struct mapping deferred = map(world, MEMORY_COUNTED, PROT_READ_);

	other = map_again(world, &first);
	driver_unmap_only(world, &deferred, false);
	world->maps_fail = true;
	xs_identity_seal(&world->engine);
	CHECK(!driver_map_again(world, &again, &first, LAST));
	CHECK(!driver_map_again(world, &again, &deferred, LAST));
	driver_free(world, &deferred);
	world->maps_fail = false;
	deferred = map_again(world, &first);
	CHECK(!is_identity(world, &deferred));
	driver_unmap(world, &deferred, false);
	driver_unmap(world, &first, false);
	driver_check(world, &other);
	driver_unmap(world, &other, false);
	world_poll(world);
	deferred = map(world, MEMORY_COUNTED, PROT_READ_);
	CHECK(is_identity(world, &deferred));
	driver_unmap(world, &deferred, false);
	world_end(world);
}

/* ---- any sequence ---- */

#define LIVE	48
#define STEPS	600

struct churn {
	struct world *world;
	u64 random;
	struct mapping live[LIVE];
	bool is_live[LIVE];
	u32 live_count;
};

static void churn_map(struct churn *churn, u32 at)
{
	struct mapping *mapping = &churn->live[at];
	u32 of = test_below(&churn->random, LIVE);

	mapping->kind = test_below(&churn->random, MEMORY_KINDS);
	mapping->prot = 1 + test_below(&churn->random, 3);
	mapping->pages = test_below(&churn->random, 8) ? 1 : 1 + test_below(&churn->random, 9);
	/* A page of its own, or the page of another mapping, in any direction. */
	if (churn->is_live[of] && churn->live[of].pages == 1 && test_below(&churn->random, 2)) {
		struct mapping other = churn->live[of];

		if (!test_below(&churn->random, 3))
			other.prot = mapping->prot;
		churn->is_live[at] = driver_map_again(churn->world, mapping, &other, LAST);
	} else {
		churn->is_live[at] = driver_map(churn->world, mapping, LAST);
	}
	if (churn->is_live[at])
		driver_check(churn->world, mapping);
}

static void churn_unmap(struct churn *churn, u32 at)
{
	u32 how = test_below(&churn->random, 8);

	churn->is_live[at] = false;
	if (how == 0)
		driver_unmap_aware(churn->world, &churn->live[at], 1, false);
	else
		driver_unmap(churn->world, &churn->live[at], how == 1);
}

/* The policy with identity placement for a seed. */
static const struct xs_policy *begun_with(u64 seed)
{
	return xs_policy_find(seed & 1 ? "fused-identity" : "strict-identity");
}

static void churn_change(struct churn *churn)
{
	u32 which = test_below(&churn->random, xs_policy_count + 6);
	const struct xs_policy *policy = which < xs_policy_count ? &xs_policies[which] :
					 begun_with(which);
	struct xs_tuning tuning = xs_tuning_default(policy);

	world_set_policy(churn->world, policy, &tuning);
}

static void churn_step(struct churn *churn)
{
	u32 at = test_below(&churn->random, LIVE);
	u32 what = test_below(&churn->random, 100);

	test_be_cpu(test_below(&churn->random, 3));
	if (what < 80 && churn->is_live[at])
		churn_unmap(churn, at);
	else if (what < 80)
		churn_map(churn, at);
	else if (what < 88)
		world_poll(churn->world);
	else if (what < 92)
		world_advance(churn->world, test_below(&churn->random, 400000));
	else if (what < 94)
		churn_change(churn);
	else if (what < 96)
		world_trim(churn->world, true);
	else if (what < 98)
		xs_engine_flush_explicit(&churn->world->engine, true);
	else
		world_check(churn->world, 10000000);
}

static void churn_seed(u64 seed)
{
	struct churn *churn = test_alloc(sizeof(*churn));

	churn->random = seed;
	churn->world = begin(begun_with(seed));
	for (u32 step = 0; step < STEPS && !test_failed(); step++) {
		test_replay(seed, step);
		churn_step(churn);
	}
	for (u32 at = 0; at < LIVE && !test_failed(); at++)
		if (churn->is_live[at])
			driver_unmap(churn->world, &churn->live[at], false);
	if (test_failed())
		world_free(churn->world);
	else
		world_end(churn->world);
	test_free(churn);
}

static void churns(void)
{
	test_seeds(150, churn_seed);
}

/* ---- several CPUs ---- */

#define PLACES	12
#define SHARES	3

/*
 * A page with its mappings. The CPU that takes the pointer out of its place owns the page: so CPUs
 * map, revive and unmap pages of their own, and a page moves between CPUs.
 */
struct page {
	struct mapping of;
	struct mapping mapped[SHARES];
	u32 count;
};

struct together {
	struct world *world;
	u64 seed;
	struct page *pages[PLACES];
};

static struct page *exchange(struct together *all, u64 *random, struct page *page)
{
	return __atomic_exchange_n(&all->pages[test_below(random, PLACES)], page,
				   __ATOMIC_ACQ_REL);
}

/* The driver's own reference of the page is in @of. */
static struct page *page_new(struct world *world, u64 *random)
{
	struct page *page = test_alloc(sizeof(*page));
	struct mapping mapping = {
		.pages = 1, .kind = test_below(random, 8) ? MEMORY_COUNTED : MEMORY_SLAB,
		.prot = 1 + test_below(random, 3),
	};

	if (CHECK(driver_map(world, &mapping, LAST)))
		driver_unmap_only(world, &mapping, false);
	page->of = mapping;
	return page;
}

static void page_unmap(struct world *world, u64 *random, struct page *page)
{
	struct mapping *mapping = &page->mapped[--page->count];
	u32 how = test_below(random, 8);

	if (how < 2)
		driver_unmap_aware(world, mapping, 1, how);
	else
		driver_unmap(world, mapping, how == 2);
}

static void page_use(struct world *world, u64 *random, struct page *page)
{
	if (page->count && (page->count == SHARES || test_below(random, 2))) {
		page_unmap(world, random, page);
		return;
	}
	if (CHECK(driver_map_again(world, &page->mapped[page->count], &page->of, LAST)))
		driver_check(world, &page->mapped[page->count++]);
}

static void page_end(struct world *world, u64 *random, struct page *page)
{
	while (page->count && !test_failed())
		page_unmap(world, random, page);
	driver_free(world, &page->of);
	test_free(page);
}

/* What a CPU does with a page that it takes. */
static void page_step(struct together *all, u64 *random)
{
	struct page *page = exchange(all, random, NULL);

	if (!page)
		page = page_new(all->world, random);
	for (u32 times = 1 + test_below(random, 4); times && !test_failed(); times--)
		page_use(all->world, random, page);
	if (!test_below(random, 6)) {
		page_end(all->world, random, page);
		return;
	}
	page = exchange(all, random, page);
	if (page)
		page_end(all->world, random, page);
}

static void operate(struct together *all, u64 *random)
{
	struct world *world = all->world;
	u32 what = test_below(random, 10);
	const struct xs_policy *policy = &xs_policies[test_below(random, xs_policy_count)];
	struct xs_tuning tuning;

	if (what < 3) {
		world_trim(world, true);
	} else if (what < 6) {
		policy = what == 3 ? policy : begun_with(test_below(random, 2));
		tuning = xs_tuning_default(policy);
		tuning.batch_aware = !test_below(random, 4);
		world_set_policy(world, policy, &tuning);
	} else if (what < 8) {
		world_settle(world);
	} else {
		__atomic_fetch_add(&world->now_ns, test_below(random, 300000), __ATOMIC_RELAXED);
	}
}

static void run(void *argument, u32 id)
{
	struct together *all = argument;
	u64 random = all->seed * TEST_CPUS + id;

	for (u32 step = 0; step < 1500 && !test_failed(); step++) {
		u32 what = test_below(&random, 100);

		test_replay(all->seed, step);
		if (what < 70)
			page_step(all, &random);
		else if (what < 80)
			world_poll(all->world);
		else if (what < 90)
			world_fire(all->world, id);
		else if (what < 94)
			xs_engine_flush(&all->world->engine, XS_FLUSH_EXPLICIT);
		else if (!id)
			operate(all, &random);
		if (step % 256 == 0)
			test_relax();
	}
}

static bool together(u64 seed, bool by_turns)
{
	struct together *all = test_alloc(sizeof(*all));
	u64 random = seed;
	bool done;

	all->seed = seed;
	all->world = begin(begun_with(seed));
	done = test_threads(3, by_turns ? seed : 0, run, all);
	test_be_cpu(0);
	for (u32 i = 0; i < PLACES && !test_failed(); i++)
		if (all->pages[i])
			page_end(all->world, &random, all->pages[i]);
	if (test_failed())
		world_free(all->world);
	else
		world_end(all->world);
	test_free(all);
	return done;
}

static void freely_seed(u64 seed)
{
	together(seed, false);
}

static void freely(void)
{
	test_seeds(12, freely_seed);
}

static void by_turns_seed(u64 seed)
{
	test_replay(seed, 0);
	together(seed, true);
}

static void by_turns(void)
{
	test_seeds(40, by_turns_seed);
}

const struct test identity_tests[] = {
	{ "identity_addresses", addresses },
	{ "identity_shared", shared },
	{ "identity_permissions", permissions },
	{ "identity_revival", revival },
	{ "identity_elsewhere", elsewhere },
	{ "identity_flushed_elsewhere", flushed_elsewhere },
	{ "identity_busy", busy },
	{ "identity_refused", refused },
	{ "identity_stuck", stuck },
	{ "identity_stuck_twice", stuck_twice },
	{ "identity_kinds", kinds },
	{ "identity_aware", aware },
	{ "identity_changes", changes },
	{ "identity_bad_unmaps", bad },
	{ "identity_unmapped_twice", unmapped_twice },
	{ "identity_bad_from_below", bad_from_below },
	{ "identity_bad_from_table_below", bad_from_table_below },
	{ "identity_bad_in_block", bad_in_block },
	{ "identity_bad_at_first", bad_at_first },
	{ "identity_bad_of_shared", bad_of_shared },
	{ "identity_bad_not_removed", bad_not_removed },
	{ "identity_bad_of_shared_and_more", bad_of_shared_and_more },
	{ "identity_bad_not_removed_and_more", bad_not_removed_and_more },
	{ "identity_counts", counts },
	{ "identity_no_memory", no_memory },
	{ "identity_trim", trim },
	{ "identity_surplus", surplus },
	{ "identity_excluded", excluded },
	{ "identity_excluded_at_first", excluded_at_first },
	{ "identity_no_memory_at_init", no_memory_at_init },
	{ "identity_leaks", leaks },
	{ "identity_seals", seals },
	{ "identity_churn", churns },
	{ "identity_threads", freely, .threads = true },
	{ "identity_threads_by_turns", by_turns, .threads = true },
	{ NULL, NULL },
};
