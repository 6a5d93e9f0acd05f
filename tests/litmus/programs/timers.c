// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deferred pages of a CPU have a running timer, and the end of the CPU's next poll flushes them,
 * whatever flushes, fires or polls meanwhile; world_check() verifies.
 */
#include "programs.h"

#define PAGES	2
#define LATER	100000000ULL	/* beyond any window */

static u64 iovas[PAGES];

/* Nothing is deferred: the next unmap arms the timer. */
static void begin_empty(void)
{
	world_begin("xsmmu");
	for (u32 i = 0; i < PAGES; i++)
		iovas[i] = world_map_page(i);
}

/* A page is deferred, and the timer runs. */
static void begin_armed(void)
{
	begin_empty();
	world_unmap(world_map_page(PAGES));
	ex_assert(world_timer_runs(0));
}

static void begin_due(void)
{
	begin_armed();
	world_set_clock(LATER);
}

static void unmap0(void)
{
	world_unmap(iovas[0]);
}

static void unmap1(void)
{
	world_unmap(iovas[1]);
}

static void unmap_two(void)
{
	unmap0();
	unmap1();
}

static void drain(void)
{
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
}

static void poll(void)
{
	world_poll();
}

static void fire(void)
{
	if (world_timer_runs(0))
		world_timer_fires(0);
}

/* The CPU's timer fires on the other CPU while an unmap may still be under way. */
static void drain_and_fire(void)
{
	drain();
	fire();
}

static void fire_twice(void)
{
	fire();
	fire();
}

/* Leaves the running timer alone. */
static void flush(void)
{
	xs_engine_flush(&engine, XS_FLUSH_EXPLICIT);
}

static void flush_and_fire(void)
{
	flush();
	fire();
}

static void none(void)
{
	world_check(0);
}

static void one(void)
{
	world_check(1);
}

static const struct ex_program first = {
	.name = "timer_first", .setup = begin_empty, .threads = { unmap_two, drain },
	.finish = none, .dependencies = world_dependencies
};
static const struct ex_program drained = {
	.name = "timer_drained", .setup = begin_armed, .threads = { unmap_two, drain },
	.finish = none, .dependencies = world_dependencies
};
static const struct ex_program due = {
	.name = "timer_due", .setup = begin_due, .threads = { unmap_two, fire },
	.finish = none, .dependencies = world_dependencies
};
static const struct ex_program due_interrupt = {
	.name = "timer_due_interrupt", .setup = begin_due, .threads = { unmap0, fire },
	.interrupts = { unmap1 }, .finish = none, .dependencies = world_dependencies
};
static const struct ex_program early = {
	.name = "timer_early", .setup = begin_armed, .threads = { unmap0, fire, drain },
	.finish = one, .dependencies = world_dependencies
};
static const struct ex_program polled = {
	.name = "timer_polled", .setup = begin_due, .threads = { unmap0, fire },
	.interrupts = { poll }, .finish = one, .dependencies = world_dependencies
};

static const struct ex_program drained_fires = {
	.name = "timer_drained_fires", .setup = begin_armed,
	.threads = { unmap_two, drain_and_fire }, .finish = none,
	.dependencies = world_dependencies
};
/*
 * The world's timers are relaxed. In Linux, a lock keeps the flush's reads before the timer that
 * the flush starts, and so before the stores of an unmap that this timer has interrupted. And it
 * does not matter whether the flush sees these stores: it leaves a record that is not valid, and
 * releases only records with its mark.
 */
static const struct ex_dependency interrupt_dependencies[] = {
	{ "load &batch->limit", "store &batch->limit = 0" },
	{ "read &batch->head", "try_local &batch->head <- head + 1" },
	{ "load &record->key", "store_release &record->key = key" },
	{ NULL, NULL }
};

/* The timer fires in the middle of an unmap whose limit another CPU has set to 0. */
static const struct ex_program drained_interrupt = {
	.name = "timer_drained_interrupt", .setup = begin_armed,
	.threads = { unmap0, drain }, .interrupts = { fire }, .finish = one,
	.dependencies = interrupt_dependencies
};
/* A poll in the middle of an unmap whose limit another CPU has set to 0. */
static const struct ex_program drained_polled = {
	.name = "timer_drained_polled", .setup = begin_armed,
	.threads = { unmap0, drain }, .interrupts = { poll }, .finish = one,
	.dependencies = world_dependencies
};

/* The timer fires again, on the other CPU, while an unmap may still be under way. */
static const struct ex_program due_twice = {
	.name = "timer_due_twice", .setup = begin_due, .threads = { unmap0, fire_twice },
	.finish = one, .dependencies = world_dependencies
};
static const struct ex_program flushed_fires = {
	.name = "timer_flushed_fires", .setup = begin_armed,
	.threads = { unmap0, flush_and_fire }, .finish = one,
	.dependencies = world_dependencies
};

/* Each of two CPUs finds records, and one of them gets the lock after the other's flush. */
static const struct ex_program flushed_twice = {
	.name = "timer_flushed_twice", .setup = begin_armed,
	.threads = { unmap0, flush, flush }, .finish = one,
	.dependencies = world_dependencies
};

const struct ex_program *const timer_programs[] = {
	&first, &drained, &due, &due_interrupt, &early, &polled, &drained_fires,
	&drained_interrupt, &drained_polled, &due_twice, &flushed_fires,
	&flushed_twice, NULL
};
