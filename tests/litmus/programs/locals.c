// SPDX-License-Identifier: GPL-2.0-only
/*
 * The local pages of CPU 0: a task and an interrupt map while another CPU closes blocks or changes
 * the placement. No page is mapped twice, and none is lost.
 */
#include <xsmmu/block.h>
#include <xsmmu/flush.h>
#include <xsmmu/place.h>

#include "programs.h"

#define FIRST	4	/* local page */

static struct xs_block *full;
static u64 used;	/* pages of the block */

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

/* All other pages of the block are in use, as if mapped: after one map, a map opens another block. */
static void begin_last(void)
{
	begin(1);
	full = engine.cpus[0]->open[0];
	used = xs_a64_swap(&full->free, 0);
}

/* A change to block placement is under way. A change that begins anew has more states. */
static void begin_changing(void)
{
	struct xs_policy *row = &engine.rows[0];

	begin(0);
	ex_assert(engine.policy == row);
	row->placement = XS_PLACE_PAGE;
	engine.mode &= ~XS_MODE_LOCAL;
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

static void map0_and_map2(void)
{
	map0();
	map2();
}

/* Not at a page of the block that is in use. */
static void map_unused(u32 phys)
{
	u64 iova = world_map_page(phys);

	ex_assert(iova - full->iova >= XS_BLOCK_BYTES ||
		  !(used & xs_block_mask(iova >> XS_PAGE_LG2, 1)));
}

static void map0_unused(void)
{
	map_unused(0);
}

static void map_twice_unused(void)
{
	map_unused(1);
	map_unused(2);
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

/* The placement changes, and the caches of all CPUs are drained. */
static void set_xsmmu(void)
{
	world_set("xsmmu");
}

static void set_twice(void)
{
	world_set("xsmmu");
	world_set("fused");
}

/* A map has found no IOVA. Takes the local pages of both CPUs, for a map of its own. */
static void recall(void)
{
	engine.recall_due = true;
	xs_engine_trim(&engine);
	map1();
}

static void recall_and_set(void)
{
	engine.recall_due = true;
	xs_engine_trim(&engine);
	world_set("fused");
}

static void set_fused(void)
{
	world_set("fused");
}

static void two(void)
{
	world_check(2);
}

/* The pages that were in use come back first. */
static void three(void)
{
	struct xs_cpu *cpu = engine.cpus[0];
	xs_flags_t flags = xs_cpu_lock_any(cpu);

	xs_place_back_block(&engine, cpu, full, used);
	xs_cpu_unlock_any(cpu, flags);
	world_check(3);
}

static void one_without_local(void)
{
	ex_assert(!engine.cpus[0]->local);
	world_check(1);
}

static void two_without_local(void)
{
	ex_assert(!engine.cpus[0]->local && !engine.cpus[1]->local);
	world_check(2);
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
/* The interrupt takes the last local page, and opens another block. */
static const struct ex_program interrupt_opens = {
	.name = "local_interrupt_opens", .setup = begin_last, .threads = { map0_unused },
	.interrupts = { map_twice_unused }, .finish = three,
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
static const struct ex_program moves_to_blocks = {
	.name = "local_moves_to_blocks", .setup = begin_changing,
	.threads = { map0_and_map2, set_fused }, .finish = two,
	.dependencies = world_dependencies
};
static const struct ex_program recalled = {
	.name = "local_recalled", .setup = begin_two, .threads = { map0, recall },
	.finish = two_without_local,
	.dependencies = world_dependencies
};
static const struct ex_program recalled_and_set = {
	.name = "local_recalled_and_set", .setup = begin_two, .threads = { map0, recall_and_set },
	.finish = one,
	.dependencies = world_dependencies
};
const struct ex_program *const local_programs[] = {
	&interrupt, &interrupt_last, &interrupt_opens, &interrupt_drain, &closes,
	&closes_and_maps, &moves, &moves_twice, &moves_to_blocks, &recalled,
	&recalled_and_set, NULL
};
