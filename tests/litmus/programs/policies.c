// SPDX-License-Identifier: GPL-2.0-only
/*
 * The policy changes during unmaps: when the change returns, no deferred page is below the new
 * level, and no CPU uses the old row.
 */
#include "programs.h"

#define PAGES	3

static u64 iovas[PAGES];

static void begin(const char *policy)
{
	world_begin(policy);
	for (u32 i = 0; i < PAGES; i++)
		iovas[i] = world_map_page(i);
	/* So that the next unmap takes the fast path. */
	world_unmap(world_map_page(PAGES));
}

static void begin_lazy(void)
{
	begin("lazy");
}

static void begin_xsmmu(void)
{
	begin("xsmmu");
}

static void begin_strict(void)
{
	begin("strict");
}

static void unmap(void)
{
	world_unmap(iovas[0]);
	world_unmap(iovas[1]);
}

/* Beside two changes: a second unmap would have a hundred times as many states. */
static void unmap_one(void)
{
	world_unmap(iovas[0]);
}

static void unmap_promised(void)
{
	world_unmap_promised(iovas[0]);
	xs_engine_flush_explicit(&engine, false);
	ex_assert(world_is_gone(0));
}

static void set_strict(void)
{
	world_set("strict");
}

static void set_xsmmu(void)
{
	world_set("xsmmu");
}

static void set_twice(void)
{
	world_set("strict");
	world_set("fused");
}

static void nothing_deferred(void)
{
	for (u32 cpu = 0; cpu < LITMUS_CPUS; cpu++)
		ex_assert(xs_batch_is_empty(&engine.cpus[cpu]->batch));
}

static void strict(void)
{
	nothing_deferred();
	world_check(PAGES - 2);
}

static void strict_promised(void)
{
	nothing_deferred();
	world_check(PAGES - 1);
}

/* Deferred pages are held. */
static void held(void)
{
	struct xs_batch *batch = &engine.cpus[0]->batch;

	for (u64 at = batch->tail; at < batch->head.word; at++)
		ex_assert(xs_ref_can_be_held(xs_batch_record(batch, at)->ref));
	world_check(PAGES - 2);
}

static void sound(void)
{
	world_check(PAGES - 2);
}

static void sound_one(void)
{
	world_check(PAGES - 1);
}

static const struct ex_program to_strict = {
	.name = "policy_to_strict", .setup = begin_xsmmu, .threads = { unmap, set_strict },
	.finish = strict, .dependencies = world_dependencies
};
static const struct ex_program to_strict_promised = {
	.name = "policy_to_strict_promised", .setup = begin_xsmmu,
	.threads = { unmap_promised, set_strict }, .finish = strict_promised,
	.dependencies = world_dependencies
};
static const struct ex_program to_held = {
	.name = "policy_to_held", .setup = begin_lazy, .threads = { unmap, set_xsmmu },
	.finish = held, .dependencies = world_dependencies
};
static const struct ex_program from_strict = {
	.name = "policy_from_strict", .setup = begin_strict,
	.threads = { unmap, set_xsmmu }, .finish = sound, .dependencies = world_dependencies
};
static const struct ex_program twice = {
	.name = "policy_twice", .setup = begin_xsmmu, .threads = { unmap_one, set_twice },
	.finish = sound_one, .dependencies = world_dependencies
};

const struct ex_program *const policy_programs[] = {
	&to_strict, &to_strict_promised, &to_held, &from_strict, &twice, NULL
};
