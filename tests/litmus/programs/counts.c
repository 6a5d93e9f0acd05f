// SPDX-License-Identifier: GPL-2.0-only
/* No unmap is counted without its map, whichever CPUs count them and whenever they are read. */
#include "programs.h"

static u64 handed;	/* the IOVA, passed between the driver's threads */
static u32 pages;

static void begin(u32 pages_)
{
	world_begin("fused");
	pages = pages_;
	handed = 0;
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
	xs_store_release(&handed, xs_engine_map(&engine, 0, pages, 3, ~0ULL));
}

static void unmap(void)
{
	u64 iova = xs_load_acquire(&handed);

	if (iova)
		xs_engine_unmap(&engine, iova, pages, false);
}

static void weigh(void)
{
	ex_assert(xs_engine_is_balanced(&engine));
}

static const struct ex_program one = {
	.name = "counts_one", .setup = begin_one, .threads = { map, unmap, weigh }
};
static const struct ex_program many = {
	.name = "counts_many", .setup = begin_many, .threads = { map, unmap, weigh }
};

const struct ex_program *const count_programs[] = { &one, &many, NULL };
