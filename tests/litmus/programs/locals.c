// SPDX-License-Identifier: GPL-2.0-only
/*
 * The local pages of CPU 0: a task and an interrupt map while another CPU closes blocks or changes
 * the placement. No page is mapped twice, and none is lost.
 */
#include "programs.h"

#define FIRST	4	/* local page */

/* CPU 0 has @count local pages; all others are free in the block. */
static void begin(u32 count)
{
	struct xs_cpu *cpu;
	bool flags;

	world_begin("fused");
	world_back_local(0);
	flags = ex_irq_save();
	cpu = engine.cpus[0];
	cpu->local = xs_mask_of(FIRST, count);
	xs_a64_andnot(&cpu->open[0]->free, cpu->local);
	ex_irq_restore(flags);
}

static void begin_one(void)
{
	begin(1);
}

static void begin_two(void)
{
	begin(2);
}

static void map0(void)
{
	world_map_page(0);
}

static void map1(void)
{
	world_map_page(1);
}

/* Of the other CPU, from the same block. */
static void map2(void)
{
	world_map_page(2);
}

static void drain(void)
{
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
}

/* An interrupt that finds no other IOVA takes those that the CPU has cached. */
static void drain_and_map(void)
{
	drain();
	map1();
}

static void set(const char *name)
{
	const struct xs_policy *policy = xs_policy_find(name);
	struct xs_tuning tuning = xs_tuning_default(policy);

	tuning.batch_pages = XS_BATCH_RECORDS;
	xs_engine_set(&engine, policy, &tuning);
}

/* The placement changes, and the caches of all CPUs are drained. */
static void set_xsmmu(void)
{
	set("xsmmu");
}

static void set_twice(void)
{
	set("xsmmu");
	set("fused");
}

static void two(void)
{
	world_check(2);
}


static void one_without_local(void)
{
	ex_assert(!engine.cpus[0]->local);
	world_check(1);
}

static void one(void)
{
	world_check(1);
}

static const struct ex_program interrupt = {
	.name = "local_interrupt", .setup = begin_two, .threads = { map0 },
	.interrupts = { map1 }, .finish = two,
	.dependencies = world_dependencies
};
static const struct ex_program interrupt_last = {
	.name = "local_interrupt_last", .setup = begin_one, .threads = { map0 },
	.interrupts = { map1 }, .finish = two,
	.dependencies = world_dependencies
};
static const struct ex_program interrupt_drain = {
	.name = "local_interrupt_drain", .setup = begin_one, .threads = { map0 },
	.interrupts = { drain_and_map }, .finish = two,
	.dependencies = world_dependencies
};
static const struct ex_program closes = {
	.name = "local_closes", .setup = begin_one, .threads = { map0, drain },
	.interrupts = { map1 }, .finish = two,
	.dependencies = world_dependencies
};
static const struct ex_program closes_and_maps = {
	.name = "local_closes_and_maps", .setup = begin_one, .threads = { map0, drain, map2 },
	.finish = two,
	.dependencies = world_dependencies
};
static const struct ex_program moves = {
	.name = "local_moves", .setup = begin_two, .threads = { map0, set_xsmmu },
	.finish = one_without_local,
	.dependencies = world_dependencies
};
static const struct ex_program moves_twice = {
	.name = "local_moves_twice", .setup = begin_two, .threads = { map0, set_twice },
	.finish = one,
	.dependencies = world_dependencies
};
const struct ex_program *const local_programs[] = {
	&interrupt, &interrupt_last, &interrupt_drain, &closes, &closes_and_maps, &moves,
	&moves_twice, NULL
};
