// SPDX-License-Identifier: GPL-2.0-only
/*
 * The magazines of two CPUs, their depot, a drain of a CPU by another, and a drain of the depot. No
 * item is out twice, and none is lost. A magazine has a single item here.
 */
#include <xsmmu/flush.h>
#include <xsmmu/magazine.h>

#include "programs.h"

#define ITEMS	4

static struct xs_depot depot;
static struct xs_cache caches[LITMUS_CPUS];
static u64 out[ITEMS];	/* plain: who has an item must be ordered after who had it before */
static u64 mine[ITEMS - 1];	/* items that thread 1 has taken out */

static void take_out(void *unused, u64 item)
{
	ex_assert(item < ITEMS && !out[item]);
	out[item] = 1;
}

static bool take(u64 *item)
{
	xs_flags_t flags;
	struct xs_cpu *cpu;
	bool done;

	xs_enter();
	cpu = xs_cpu_lock(&engine, &flags);
	done = xs_cache_get(&caches[cpu->id], &depot, item);
	xs_cpu_unlock(cpu, flags);
	xs_exit();
	if (done)
		take_out(NULL, *item);
	return done;
}

static void put(u64 item)
{
	xs_flags_t flags;
	struct xs_cpu *cpu;

	out[item] = 0;
	xs_enter();
	cpu = xs_cpu_lock(&engine, &flags);
	ex_assert(xs_cache_put(&caches[cpu->id], &depot, item));
	xs_cpu_unlock(cpu, flags);
	xs_exit();
}

static void drain(u32 cpu)
{
	xs_flags_t flags = xs_cpu_lock_any(engine.cpus[cpu]);

	xs_cache_drain(&caches[cpu], &depot);
	xs_cpu_unlock_any(engine.cpus[cpu], flags);
}

/* CPU 0 has @count items, CPU 1 the others; a CPU keeps @kept magazines beside its two. */
static void begin(u32 count, u32 kept)
{
	world_begin("lazy");
	xs_depot_init(&depot, engine.ops, engine.backend, 1, 2, kept);
	for (u32 cpu = 0; cpu < LITMUS_CPUS; cpu++)
		caches[cpu] = (struct xs_cache){ .loaded = NULL };
	for (u32 item = 0; item < ITEMS; item++) {
		ex_be_cpu(item >= count);
		put(item);
	}
	ex_be_cpu(0);
}

static void begin_mine(void)
{
	begin(ITEMS - 1, 1);
}

/* CPU 1 has taken out all items but CPU 0's, and has empty magazines; so has the depot. */
static void begin_depot(void)
{
	begin(1, 0);
	ex_be_cpu(1);
	for (u32 i = 0; i < ITEMS - 1; i++)
		ex_assert(take(&mine[i]));
	ex_be_cpu(0);
	ex_assert(!depot.full.count && depot.empty.count);
}

/* All items but those that threads have taken out and kept. */
static void end(void)
{
	for (u32 cpu = 0; cpu < LITMUS_CPUS; cpu++)
		drain(cpu);
	xs_depot_drain(&depot, ~0u, take_out, NULL);
	ex_assert(!depot.full.count && !depot.empty.count);
	for (u32 item = 0; item < ITEMS; item++)
		ex_assert(out[item]);
}

static void take_and_put(void)
{
	u64 item;

	if (take(&item))
		put(item);
}

static void take_three(void)
{
	u64 item;

	for (u32 i = 0; i < 3; i++)
		take(&item);
}

static void drain0(void)
{
	drain(0);
}

static void drain1(void)
{
	drain(1);
}

static void take_and_drain(void)
{
	u64 item;

	take(&item);
	drain(0);
}

static void drain0_and_take(void)
{
	u64 item;

	drain(0);
	take(&item);
}

/* A depot is not locked while a whole magazine goes to blocks. */
static void give(void *unused, u64 item)
{
	xs_lock(&depot.lock);
	xs_unlock(&depot.lock);
	take_out(unused, item);
}

static void drain_depot(void)
{
	xs_depot_drain(&depot, 2, give, NULL);
}

static void put_mine(void)
{
	for (u32 i = 0; i < ITEMS - 1; i++)
		put(mine[i]);
}

static const struct ex_program drained = {
	.name = "magazine_drained", .setup = begin_mine, .threads = { take_and_put, drain0_and_take },
	.finish = end
};
static const struct ex_program drained_twice = {
	.name = "magazine_drained_twice", .setup = begin_mine,
	.threads = { take_three, drain0, drain0_and_take }, .finish = end
};
static const struct ex_program depots = {
	.name = "magazine_depot", .setup = begin_depot, .threads = { take_three, put_mine, drain_depot },
	.finish = end
};
static const struct ex_program drains = {
	.name = "magazine_drains", .setup = begin_depot, .threads = { take_and_drain, drain1 },
	.finish = end
};
static const struct ex_program interrupt = {
	.name = "magazine_interrupt", .setup = begin_mine,
	.threads = { drain_depot, drain0_and_take },
	.interrupts = { take_and_put }, .finish = end
};

const struct ex_program *const magazine_programs[] = {
	&drained, &drained_twice, &depots, &drains, &interrupt, NULL
};
