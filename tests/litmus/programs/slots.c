// SPDX-License-Identifier: GPL-2.0-only
/*
 * Several CPUs unmap one mapping at once, a driver bug: exactly one unmap gets the mapping,
 * with the reference that the map has written.
 */
#include <xsmmu/claim.h>

#include "programs.h"

static u64 handed;	/* the IOVA, passed between the driver's threads */
static u64 known;
static bool tried[3];
static u32 pages;

static void begin(u32 pages_)
{
	world_begin("fused");
	world_expect("an unmap that matches no mapping");
	world_tears();
	pages = pages_;
	handed = 0;
	tried[0] = tried[1] = tried[2] = false;
}

static void begin_one(void)
{
	begin(1);
}

static void begin_many(void)
{
	begin(3);
}

static void map(void)
{
	u64 iova = xs_engine_map(&engine, 0, pages, 3, ~0ULL);

	ex_assert(iova);
	xs_store_release(&handed, iova);
}

static void unmap(void)
{
	u64 iova = xs_load_acquire(&handed);

	if (!iova)
		return;
	tried[ex_thread()] = true;
	xs_engine_unmap(&engine, iova, pages, false);
}

/* All pages except one, and one page in the middle. */
static void unmap_wrong(void)
{
	u64 iova = xs_load_acquire(&handed);

	if (!iova)
		return;
	xs_engine_unmap(&engine, iova, pages - 1, false);
	xs_engine_unmap(&engine, iova + XS_PAGE_BYTES, 1, false);
}

static void once(void)
{
	world_check(tried[0] || tried[1] ? 0 : pages);
}

static const struct ex_program one = {
	.name = "slot_one", .setup = begin_one, .threads = { unmap, unmap, map },
	.finish = once
};
static const struct ex_program many = {
	.name = "slot_many", .setup = begin_many, .threads = { unmap, unmap, map },
	.finish = once
};
static const struct ex_program many_wrong = {
	.name = "slot_many_wrong", .setup = begin_many,
	.threads = { unmap, unmap_wrong, map }, .finish = once
};

/*
 * The IOVA comes back at once, and another CPU with the same open block takes the IOVA: slot
 * and translation then belong to the new mapping.
 */
static void begin_reuse(void)
{
	struct xs_block *open;

	world_begin("fused");
	known = world_map_page(0);
	open = engine.cpus[0]->open[0];
	world_open(1, open);
	/* All other pages are in use, as if mapped. */
	engine.cpus[0]->local = 0;
	xs_a64_swap(&open->free, 0);
}

static void unmap_now(void)
{
	xs_engine_unmap(&engine, known, 1, true);
	ex_assert(world_is_gone(0));
}

static void map_and_unmap(void)
{
	u64 iova = world_map_page(1);

	world_unmap(iova);
}

static void all_gone(void)
{
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
	ex_assert(world_is_gone(0) && world_is_gone(1));
}

static const struct ex_program reuse = {
	.name = "slot_reuse", .setup = begin_reuse,
	.threads = { unmap_now, map_and_unmap }, .finish = all_gone
};

/* The same with two pages, which are taken from the block itself. */
static void begin_reuse_two(void)
{
	struct xs_block *open;

	begin(2);
	known = xs_engine_map(&engine, 0, 2, 3, ~0ULL);
	open = engine.cpus[0]->open[1];
	engine.cpus[1]->open[1] = open;
	xs_a64_swap(&open->free, 0);
}

static void unmap_two_now(void)
{
	ex_assert(xs_engine_unmap(&engine, known, 2, true));
}

static void map_and_unmap_two(void)
{
	u64 iova = xs_engine_map(&engine, 2 * XS_PAGE_BYTES, 2, 3, ~0ULL);

	ex_assert(iova && xs_engine_unmap(&engine, iova, 2, true));
}

static void two_gone(void)
{
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
	for (u32 i = 0; i < 4; i++)
		ex_assert(world_is_gone(i));
}

static const struct ex_program reuse_two = {
	.name = "slot_reuse_two", .setup = begin_reuse_two,
	.threads = { unmap_two_now, map_and_unmap_two }, .finish = two_gone
};

/*
 * A repeated unmap meets a mapping of another size at the same IOVA that begins with the same
 * page of memory. The mapping looks the same at first, and stays.
 */
static void begin_again(void)
{
	begin(3);
	known = xs_engine_map(&engine, 0, pages, 3, ~0ULL);
	handed = 0;
}

static void unmap_and_map_more(void)
{
	if (xs_engine_unmap(&engine, known, pages, true))
		handed = xs_engine_map(&engine, 0, pages + 1, 3, ~0ULL);
}

static void unmap_known(void)
{
	xs_engine_unmap(&engine, known, pages, true);
}

static void none_mapped(void)
{
	world_check(0);
}

static void still_there(void)
{
	if (handed)
		ex_assert(xs_engine_unmap(&engine, handed, pages + 1, true));
	none_mapped();
}

static const struct ex_program many_again = {
	.name = "slot_many_again", .setup = begin_again,
	.threads = { unmap_and_map_more, unmap_known }, .finish = still_there
};

/*
 * The same, and the other mapping is unmapped, too: the proper unmap succeeds, whenever the
 * repeated unmap of the first mapping looks at the slot.
 */
static void unmap_map_more_unmap(void)
{
	u64 iova;

	if (!xs_engine_unmap(&engine, known, pages, true))
		return;
	iova = xs_engine_map(&engine, 0, pages + 1, 3, ~0ULL);
	ex_assert(xs_engine_unmap(&engine, iova, pages + 1, true));
}

/* The claim of the repeated unmap, which leaves pages of other mappings alone here. */
static void claim_known(void)
{
	struct xs_claim claim = { .page = known >> XS_PAGE_LG2, .pages = pages };

	xs_enter();
	if (xs_claim_mapping(&engine, &claim))
		xs_claim_remove_now(&engine, &claim);
	xs_exit();
}

/* A retry gives the IOVAs back. */
static void none_mapped_or_stuck(void)
{
	ex_assert(!xs_engine_retry(&engine));
	none_mapped();
}

static const struct ex_program many_between = {
	.name = "slot_many_between", .setup = begin_again,
	.threads = { unmap_map_more_unmap, claim_known }, .finish = none_mapped_or_stuck
};

/*
 * A repeated unmap meets a mapping of the same size at the same IOVA. The two mappings cannot
 * be told apart; but the repeated unmap must not succeed before the pages are mapped, or the
 * pages would stay mapped for ever.
 */
static void begin_same(u32 pages_)
{
	begin(pages_);
	known = xs_engine_map(&engine, 0, pages, 3, ~0ULL);
}

static void begin_same_many(void)
{
	begin_same(3);
}

static void begin_same_run(void)
{
	begin_same(XS_BLOCK_PAGES + 1);
}

/* A driver's own block, of one page. */
static u64 map_own(void)
{
	u64 iova = xs_engine_alloc_block(&engine, 1, ~0ULL), phys = 0;

	ex_assert(xs_engine_map_in_block(&engine, iova, &phys, 1, 3));
	return iova;
}

static void begin_same_own(void)
{
	begin(1);
	known = map_own();
}

static void unmap_and_map_same(void)
{
	if (xs_engine_unmap(&engine, known, pages, true))
		ex_assert(xs_engine_map(&engine, 0, pages, 3, ~0ULL) == known);
}

static void unmap_and_map_own(void)
{
	if (xs_engine_unmap(&engine, known, 1, true))
		ex_assert(map_own() == known);
}

/*
 * A driver uses a block after giving the block back; the block is the driver's next block
 * meanwhile.
 */
static void begin_own_again(void)
{
	begin_same_own();
	world_expect("a use of a block that is not the driver's own");
}

static void map_in_known(void)
{
	u64 phys = XS_PAGE_BYTES;

	tried[ex_thread()] = xs_engine_map_in_block(&engine, known, &phys, 1, 3);
}

static void unmap_and_map_in_block(void)
{
	ex_assert(xs_engine_unmap(&engine, known, 1, true));
	ex_assert(xs_engine_alloc_block(&engine, 1, ~0ULL) == known);
	map_in_known();
}

static void mapped_once(void)
{
	ex_assert(tried[0] != tried[1]);
	world_check(1);
}

static const struct ex_program own_again = {
	.name = "slot_own_again", .setup = begin_own_again,
	.threads = { unmap_and_map_in_block, map_in_known }, .finish = mapped_once
};

static void undone_by_now(void)
{
	xs_engine_unmap(&engine, known, pages, true);
	none_mapped();
}

static const struct ex_program same_own = {
	.name = "slot_own_same", .setup = begin_same_own,
	.threads = { unmap_and_map_own, unmap_known }, .finish = undone_by_now
};
static const struct ex_program same_many = {
	.name = "slot_many_same", .setup = begin_same_many,
	.threads = { unmap_and_map_same, unmap_known }, .finish = undone_by_now
};
static const struct ex_program same_run = {
	.name = "slot_run_same", .setup = begin_same_run,
	.threads = { unmap_and_map_same, unmap_known }, .finish = undone_by_now
};

/* The same with a list: no unmap finds the list before all its pages are mapped. */
static u64 map_list(void)
{
	const u64 phys[] = { 0, XS_PAGE_BYTES, 2 * XS_PAGE_BYTES };
	u64 found = xs_engine_alloc_iova(&engine, pages, ~0ULL);

	ex_assert(found);
	if (pages > XS_BLOCK_PAGES) {
		ex_assert(!xs_engine_fill(&engine, found, 0, 1, 3));
		ex_assert(!xs_engine_fill(&engine, found + XS_PAGE_BYTES, XS_PAGE_BYTES, pages - 1,
					  3));
		xs_engine_publish(&engine, found, pages);
	} else {
		ex_assert(!xs_engine_fill_each(&engine, found, phys, pages, 3));
	}
	return found;
}

static void begin_list(u32 pages_)
{
	begin(pages_);
	/* Without local pages, the list begins at the block's first free page, each time. */
	world_back_local(0);
	known = map_list();
	world_back_local(0);
}

static void begin_list_one(void)
{
	begin_list(1);
}

static void begin_list_many(void)
{
	begin_list(3);
}

static void begin_list_run(void)
{
	begin_list(XS_BLOCK_PAGES + 1);
}

static void unmap_and_map_list(void)
{
	if (xs_engine_unmap(&engine, known, pages, true))
		ex_assert(map_list() == known);
}

static const struct ex_program list_one = {
	.name = "slot_list_one", .setup = begin_list_one,
	.threads = { unmap_and_map_list, unmap_known }, .finish = undone_by_now
};
static const struct ex_program list_many = {
	.name = "slot_list_many", .setup = begin_list_many,
	.threads = { unmap_and_map_list, unmap_known }, .finish = undone_by_now
};
static const struct ex_program list_run = {
	.name = "slot_list_run", .setup = begin_list_run,
	.threads = { unmap_and_map_list, unmap_known }, .finish = undone_by_now
};

/*
 * Bad unmaps name pages of a mapping while the proper unmap runs: the proper unmap gets the
 * mapping, in any order, and nothing is left afterwards.
 */
static void begin_torn(void)
{
	begin(3);
	known = xs_engine_map(&engine, 0, pages, 3, ~0ULL);
}

static void unmap_right(void)
{
	ex_assert(xs_engine_unmap(&engine, known, pages, true));
	for (u32 i = 0; i < pages; i++)
		ex_assert(world_is_gone(i));
}

static void tear_one(void)
{
	ex_assert(!xs_engine_unmap(&engine, known + XS_PAGE_BYTES, 1, false));
}

static void nothing_left(void)
{
	world_check(0);
	for (u32 i = 0; i < pages; i++)
		ex_assert(world_is_gone(i));
}

static const struct ex_program torn = {
	.name = "slot_torn", .setup = begin_torn,
	.threads = { unmap_right, tear_one }, .finish = nothing_left
};

/* The last page of a torn mapping is named while the IOVAs are about to be given back. */
static void begin_mend(void)
{
	begin_torn();
	tear_one();
}

static void tear_rest(void)
{
	xs_engine_unmap(&engine, known, 1, false);
	ex_assert(world_is_gone(0));
	xs_engine_unmap(&engine, known + 2 * XS_PAGE_BYTES, 1, false);
	ex_assert(world_is_gone(2));
}

static void mend(void)
{
	xs_engine_mend(&engine, false);
}

static const struct ex_program torn_mend = {
	.name = "slot_torn_mend", .setup = begin_mend,
	.threads = { tear_rest, mend }, .finish = nothing_left
};

/*
 * The first removal of a page fails while the mapping is torn, unmapped and mended: the IOVAs
 * come back once, when no page is mapped any more.
 */
static void begin_torn_stuck(void)
{
	begin_torn();
	world_stick(known + XS_PAGE_BYTES);
}

static void unmap_rest(void)
{
	xs_engine_unmap(&engine, known, pages, true);
}

static void nothing_stuck(void)
{
	xs_engine_mend(&engine, false);
	ex_assert(!xs_engine_retry(&engine));
	nothing_left();
}

static const struct ex_program torn_stuck = {
	.name = "slot_torn_stuck", .setup = begin_torn_stuck,
	.threads = { unmap_rest, tear_one, mend }, .finish = nothing_stuck
};

const struct ex_program *const slot_programs[] = {
	&one, &many, &many_wrong, &reuse, &reuse_two, &many_again, &many_between, &same_own,
	&own_again, &same_many, &same_run, &list_one, &list_many, &list_run, &torn, &torn_mend,
	&torn_stuck, NULL
};
