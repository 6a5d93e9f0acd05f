// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unflushed maps of a batch-aware driver: when the driver's flush of maps returns, a device may
 * use the mappings, whichever CPU has flushed them.
 */
#include "programs.h"

static u64 told;
static u64 first;	/* is mapped on CPU 0, and not flushed */

static void begin(void)
{
	world_begin("fused");
	told = 0;
	first = world_map_unflushed(1);
}

static void all_flushed(void)
{
	xs_engine_flush_maps(&engine, true);
	ex_assert(world_is_usable(first));
	if (told)
		ex_assert(world_is_usable(told));
	world_check(told ? 2 : 1);
}

static void map_and_tell(void)
{
	xs_store_release(&told, world_map_unflushed(2));
}

/* The driver's thread has migrated here. */
static void flush_told(void)
{
	u64 iova = xs_load_acquire(&told);

	if (!iova)
		return;
	xs_engine_flush_maps(&engine, true);
	ex_assert(world_is_usable(iova));
}

static void flush_all(void)
{
	xs_engine_flush_maps(&engine, true);
	ex_assert(world_is_usable(first));
}

/* The driver's thread stays on the CPU. */
static void map_and_flush(void)
{
	u64 iova = world_map_unflushed(2);

	xs_engine_flush_maps(&engine, false);
	ex_assert(world_is_usable(iova));
	told = iova;
}

static void map_in_interrupt(void)
{
	u64 iova = world_map_unflushed(3);

	xs_engine_flush_maps(&engine, false);
	ex_assert(world_is_usable(iova));
}

static void own_flushed(void)
{
	xs_engine_flush_maps(&engine, true);
	world_check(3);
}

static const struct ex_program everywhere = {
	.name = "maps_everywhere", .setup = begin,
	.threads = { map_and_tell, flush_told, flush_all }, .finish = all_flushed
};
static const struct ex_program own = {
	.name = "maps_own", .setup = begin, .threads = { map_and_flush, flush_all },
	.interrupts = { map_in_interrupt }, .finish = own_flushed
};

const struct ex_program *const map_programs[] = { &everywhere, &own, NULL };
