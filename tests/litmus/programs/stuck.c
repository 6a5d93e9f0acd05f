// SPDX-License-Identifier: GPL-2.0-only
/*
 * A removal fails, and is tried again meanwhile: memory and IOVA are out of use until it
 * has not failed, and come back once.
 */
#include "programs.h"

static u64 stuck;	/* phys 0, whose removal fails */
static u64 known;	/* phys 1 */

/* Both are deferred on CPU 0, and not neighbours. */
static void begin_deferred(const char *policy)
{
	u64 between;

	world_begin(policy);
	stuck = world_map_page(0);
	between = world_map_page(2);
	known = world_map_page(1);
	world_unmap(between);
	xs_engine_sync(&engine, XS_SYNC_EXPLICIT);
	world_unmap(stuck);
	world_unmap(known);
	world_stick(stuck);
}

static void begin_blocks(void)
{
	begin_deferred("fused");
}

static void begin_pieces(void)
{
	begin_deferred("xsmmu");
}

static void drain(void)
{
	xs_engine_sync(&engine, XS_SYNC_DRAIN);
}

/* Whatever comes back may be handed out at once. */
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
	.name = "stuck_pieces", .setup = begin_pieces, .threads = { drain, retry_and_map },
	.finish = all_gone, .dependencies = world_dependencies
};

const struct ex_program *const stuck_programs[] = { &blocks, &pieces, NULL };
