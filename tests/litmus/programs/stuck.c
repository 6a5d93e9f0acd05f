// SPDX-License-Identifier: GPL-2.0-only
/*
 * A removal fails, with a concurrent retry: memory and IOVA stay out of use until a removal
 * succeeds, and come back once.
 */
#include "programs.h"

static u64 stuck;	/* phys 0; the removal fails */
static u64 known;	/* phys 1 */
static u32 pages;

/* Both pages are deferred on CPU 0, and are not neighbours. */
static void begin_deferred(const char *policy)
{
	u64 between;

	world_begin(policy);
	stuck = world_map_page(0);
	between = world_map_page(2);
	known = world_map_page(1);
	world_unmap(between);
	xs_engine_flush(&engine, XS_FLUSH_EXPLICIT);
	world_unmap(stuck);
	world_unmap(known);
	world_stick(stuck);
}

static void begin_blocks(void)
{
	begin_deferred("fused");
}

static void begin_ranges(void)
{
	begin_deferred("xsmmu");
}

static void drain(void)
{
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
}

/* Freed pages may be handed out at once. */
static void retry_and_map(void)
{
	xs_engine_retry(&engine);
	world_map_page(3);
}

static void all_gone(void)
{
	ex_assert(!xs_engine_retry(&engine));
	ex_assert(world_is_gone(0));
	world_map_page(4);
	world_check(2);
}

static const struct ex_program blocks = {
	.name = "stuck_blocks", .setup = begin_blocks, .threads = { drain, retry_and_map },
	.finish = all_gone, .dependencies = world_dependencies
};
static const struct ex_program pieces = {
	.name = "stuck_ranges", .setup = begin_ranges, .threads = { drain, retry_and_map },
	.finish = all_gone, .dependencies = world_dependencies
};

/* The unmap itself flushes one page or an extent of whole blocks. */
static void begin_unmap(u32 pages_)
{
	world_begin("strict");
	pages = pages_;
	stuck = xs_engine_map(&engine, 0, pages, 3, ~0ULL);
	ex_assert(stuck);
	world_stick(stuck);
}

static void begin_unmap_one(void)
{
	begin_unmap(1);
}

static void begin_unmap_run(void)
{
	begin_unmap(XS_BLOCK_PAGES + 1);
}

static void unmap_stuck(void)
{
	ex_assert(!xs_engine_unmap(&engine, stuck, pages, true));
}

static void retry(void)
{
	xs_engine_retry(&engine);
}

static void all_back(void)
{
	ex_assert(!xs_engine_retry(&engine));
	for (u32 i = 0; i < pages; i++)
		ex_assert(world_is_gone(i));
	world_check(0);
}

static const struct ex_program unmap_one = {
	.name = "stuck_unmap", .setup = begin_unmap_one, .threads = { unmap_stuck, retry },
	.finish = all_back
};
static const struct ex_program unmap_run = {
	.name = "stuck_run", .setup = begin_unmap_run, .threads = { unmap_stuck, retry },
	.finish = all_back
};

const struct ex_program *const stuck_programs[] = {
	&blocks, &pieces, &unmap_one, &unmap_run, NULL
};
