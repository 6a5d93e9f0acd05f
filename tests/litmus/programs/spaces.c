// SPDX-License-Identifier: GPL-2.0-only
/*
 * Look-ups without a lock, while leaves, slots and nodes come and go: a found object is
 * initialised, and exists while in use.
 */
#include "programs.h"

#define LEAF_BYTES	(XS_LEAF_PAGES * XS_PAGE_BYTES)

static u64 handed, iova;
static bool unmapped;

static void begin(void)
{
	world_begin("fused");
	world_expect("an unmap that matches no mapping");
	handed = 0;
	unmapped = false;
}

/* ---- additions ---- */

/* Returns the IOVA of the next fresh block, the first block of a leaf. */
static void begin_grow(void)
{
	bool flags = ex_irq_save();
	struct xs_block *block;

	begin();
	do {
		block = xs_space_alloc_block(&engine.space, ~0ULL);
		ex_assert(block);
		iova = block->iova + XS_BLOCK_BYTES;
	} while (iova % LEAF_BYTES);
	ex_irq_restore(flags);
}

/* A mapping in a leaf that does not exist yet. */
static void map_far(void)
{
	u64 found = xs_engine_map(&engine, 0, 2, 3, ~0ULL);

	ex_assert(found == iova);
	xs_store_release(&handed, found);
}

/*
 * A driver invents IOVAs of the same leaf, in a block without mappings: the look-ups are like
 * those for mapped pages, and nothing is torn.
 */
static void unmap_wild(void)
{
	xs_engine_unmap(&engine, iova + XS_BLOCK_BYTES, 1, false);
}

static void unmap_wild_two(void)
{
	xs_engine_unmap(&engine, iova + XS_BLOCK_BYTES, 2, false);
}

static void unmap_handed(void)
{
	u64 found = xs_load_acquire(&handed);

	if (found)
		unmapped = xs_engine_unmap(&engine, found, 2, false);
	ex_assert(unmapped == (found != 0));
}

static void grown(void)
{
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
	ex_assert(world_is_gone(0) == unmapped && world_is_gone(1) == unmapped);
}

static const struct ex_program grows = {
	.name = "space_grows", .setup = begin_grow,
	.threads = { map_far, unmap_wild, unmap_handed }, .finish = grown,
	.dependencies = world_dependencies
};
static const struct ex_program grows_two = {
	.name = "space_grows_two", .setup = begin_grow,
	.threads = { map_far, unmap_wild_two, unmap_handed }, .finish = grown,
	.dependencies = world_dependencies
};

/* An extent has a leaf, and no slots. */
static void begin_run(void)
{
	begin_grow();
	world_tears();
	/* IOVA of the first block of a future extent. */
	engine.space.low_reserved = 0;
}

static void reserve_run(void)
{
	u64 found = xs_engine_alloc_iova(&engine, 2 * XS_BLOCK_PAGES, ~0ULL);

	ex_assert(found == iova);
	xs_engine_publish(&engine, found, 2 * XS_BLOCK_PAGES);
}

static void unmap_wild_run(void)
{
	xs_engine_unmap(&engine, iova, 3 * XS_BLOCK_PAGES, false);
}

static const struct ex_program run = {
	.name = "space_run", .setup = begin_run, .threads = { reserve_run, unmap_wild_run }
};

/* A bad unmap looks for mappings in the next leaf, which is about to be added. */
static void begin_across(void)
{
	begin_grow();
	world_tears();
}

static void unmap_across(void)
{
	xs_engine_unmap(&engine, iova - XS_PAGE_BYTES, 2, false);
}

static void torn_or_not(void)
{
	ex_assert(world_is_gone(0) == (xs_engine_torn_pages(&engine) != 0));
	ex_assert(!world_is_gone(1));
}

static const struct ex_program across = {
	.name = "space_across", .setup = begin_across,
	.threads = { map_far, unmap_across }, .finish = torn_or_not,
	.dependencies = world_dependencies
};

/* Above 4 GiB a node must be made, and slots are found through the leaf. */
static void begin_high(void)
{
	begin();
	engine.space.low_reserved = engine.space.low_free;
	iova = 1ULL << (XS_NEAR_LG2 + XS_PAGE_LG2);
}

static const struct ex_program high = {
	.name = "space_high", .setup = begin_high,
	.threads = { map_far, unmap_wild, unmap_handed }, .finish = grown,
	.dependencies = world_dependencies
};
static const struct ex_program high_two = {
	.name = "space_high_two", .setup = begin_high,
	.threads = { map_far, unmap_wild_two, unmap_handed }, .finish = grown,
	.dependencies = world_dependencies
};

/* ---- removals ---- */

/* Leaves are empty, except for the leaf of the open blocks. */
static void begin_trim(void)
{
	begin_grow();
	map_far();
	engine.space.empty_min = 0;
	handed = iova;
}

/* The driver's last unmap in the leaf, followed by the trim. */
static void unmap_and_trim(void)
{
	xs_engine_unmap(&engine, iova, 2, true);
	xs_engine_retire_cpu(&engine, 0);
	xs_engine_trim(&engine);
}

static void map_one(void)
{
	world_unmap(world_map_page(3));
}

static void nothing(void)
{
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
	ex_assert(world_is_gone(0) && world_is_gone(1) && world_is_gone(3));
}

static void unmap_wild_one(void)
{
	world_unmap(iova + XS_BLOCK_BYTES);
}

static const struct ex_program trims = {
	.name = "space_trims", .setup = begin_trim,
	.threads = { unmap_and_trim, unmap_wild }, .finish = nothing,
	.dependencies = world_dependencies
};
static const struct ex_program trims_two = {
	.name = "space_trims_two", .setup = begin_trim,
	.threads = { unmap_and_trim, unmap_wild_two }, .finish = nothing,
	.dependencies = world_dependencies
};
static const struct ex_program trims_one = {
	.name = "space_trims_one", .setup = begin_trim,
	.threads = { unmap_and_trim, unmap_wild_one }, .finish = nothing,
	.dependencies = world_dependencies
};

/* The other CPU has a block of the leaf open, as allowed. */
static void begin_trim_open(void)
{
	begin_trim();
	world_open(1, xs_space_block(&engine.space, iova >> XS_PAGE_LG2));
}

static const struct ex_program trims_open = {
	.name = "space_trims_open", .setup = begin_trim_open,
	.threads = { unmap_and_trim, map_one }, .finish = nothing,
	.dependencies = world_dependencies
};

/*
 * An unmap of one page tears the mapping before the mapping's own unmap takes the rest, or
 * finds nothing: the leaf stays as long as the record in the leaf.
 */
static void begin_trim_torn(void)
{
	begin_trim();
	world_tears();
}

static void unmap_torn(void)
{
	xs_engine_unmap(&engine, iova + XS_PAGE_BYTES, 1, false);
}

static void nothing_torn(void)
{
	xs_engine_mend(&engine, false);
	nothing();
}

static const struct ex_program trims_torn = {
	.name = "space_trims_torn", .setup = begin_trim_torn,
	.threads = { unmap_and_trim, unmap_torn }, .finish = nothing_torn,
	.dependencies = world_dependencies
};

const struct ex_program *const space_programs[] = {
	&grows, &grows_two, &across, &run, &high, &high_two, &trims, &trims_two,
	&trims_one, &trims_open, &trims_torn, NULL
};
