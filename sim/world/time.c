// SPDX-License-Identifier: GPL-2.0-only
/*
 * The clock and the timers. Time passes with steps and with waits. A due timer interrupts the
 * first CPU that notices.
 */
#include "sim.h"

/* Longer than any window and delay: older delays excuse nothing. */
#define EPOCH_NS	200000000ULL

static void find_next_timer(void)
{
	sim.next_timer_ns = ~0ULL;
	for (u32 i = 0; i < sim.config.cpus; i++)
		if (sim.cpus[i].deadline_ns && sim.cpus[i].fires_ns < sim.next_timer_ns)
			sim.next_timer_ns = sim.cpus[i].fires_ns;
}

/* Start the timer of @cpu, or make the timer earlier. */
static void arm(u32 cpu, u64 deadline_ns)
{
	struct sim_cpu *at = &sim.cpus[cpu];

	if (at->deadline_ns && at->deadline_ns <= deadline_ns)
		return;
	at->deadline_ns = deadline_ns;
	at->fires_ns = deadline_ns;
	if (sim_fault(FAULT_LATE_TIMER))
		at->fires_ns += sim_draw(sim.config.tuning.window_us * 500);
	find_next_timer();
}

/* Is any timer in a handler, or kept from firing? */
static bool timers_run(void)
{
	if (sim.expiring)
		return false;
	for (u32 i = 0; i < sim.config.cpus; i++)
		if (sim.cpus[i].off)
			return false;
	return true;
}

/* Returns how long the latest timer has been due. */
static u64 latest_ns(void)
{
	u64 latest = 0;

	for (u32 i = 0; i < sim.config.cpus; i++) {
		u64 deadline = sim.cpus[i].deadline_ns;

		if (deadline && deadline + latest < sim.now_ns)
			latest = sim.now_ns - deadline;
	}
	return latest;
}

void time_pass(u64 ns)
{
	u64 off_ns;

	sim.now_ns += ns;
	if (sim.now_ns > sim.epoch_end_ns) {
		sim.epoch_end_ns = sim.now_ns + EPOCH_NS;
		sim.off_old_ns = sim.off_max_ns;
		sim.off_max_ns = 0;
	}
	off_ns = sim.off_max_ns > sim.off_old_ns ? sim.off_max_ns : sim.off_old_ns;
	sim_event(EV_TIME, 0, 0, (u32)off_ns, timers_run(), latest_ns());
}

void time_fire(void)
{
	for (u32 i = 0; i < sim.config.cpus; i++) {
		u64 next;

		if (!sim.cpus[i].deadline_ns || sim.cpus[i].fires_ns > sim.now_ns)
			continue;
		sim.cpus[i].deadline_ns = 0;
		find_next_timer();
		sim.expiring++;
		sim.calls++;
		sim_me->causes = XS_FLUSH_BIT(XS_FLUSH_TIME);
		sim_event(EV_CALL, sim_cpu_now(), i, 0, CALL_EXPIRE, 0);
		next = xs_engine_expire(&sim.engine, i);
		sim.calls--;
		sim_event(EV_RETURN, sim_cpu_now(), i, 0, CALL_EXPIRE, 0);
		sim.expiring--;
		sim.operations++;
		if (next)
			arm(i, next);
	}
}

static bool interrupts_are_on(void)
{
	for (u32 i = 0; i < sim.config.cpus; i++)
		if (sim.cpus[i].off)
			return false;
	return true;
}

/*
 * Let time pass in which only timers run. If a CPU has interrupts off, the whole machine stands
 * still.
 */
void time_jump(void)
{
	u64 end = sim.now_ns + sim_draw(3 * sim.config.tuning.window_us) * 1000ULL;

	while (sim.next_timer_ns <= end && interrupts_are_on()) {
		if (sim.next_timer_ns > sim.now_ns)
			sim.now_ns = sim.next_timer_ns;
		time_fire();
	}
	if (end > sim.now_ns && (interrupts_are_on() || sim_chance(64)))
		time_pass(end - sim.now_ns);
}

u64 time_clock(void *world)
{
	(void)world;
	sim_point();
	return sim.now_ns;
}

void time_deferred(void *world, u32 cpu, bool starts, u64 deadline_ns)
{
	(void)world;
	/* As in Linux, where each CPU has a private list. */
	if (cpu == sim_cpu_now())
		sim.cpus[cpu].poll_due = true;
	if (starts) {
		/* A running timer would fire too late: start the timer again. */
		sim.cpus[cpu].deadline_ns = 0;
		arm(cpu, deadline_ns);
	}
}
