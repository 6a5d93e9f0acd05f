// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs: scheduling, interrupts, locks and draws.
 *
 * A CPU is a coroutine that takes one step after the other. A CPU yields when a countdown of
 * points ends (sim_turn()), when another CPU has a wanted lock, and after each step. A lock's
 * owner can always continue, so a wait ends.
 */
#include <string.h>

#include "coroutine.h"
#include "sim.h"

u32 sim_points_left;
static u64 outside_points;
u64 *sim_points = &outside_points;

static struct coroutine outside;
static struct coroutine coroutines[SIM_CPUS];
static struct coroutine *running[SIM_CPUS];	/* of each CPU; a migration exchanges two */
struct sim_cpu *sim_me;
static void (*task)(void);		/* NULL: take steps */

#define me sim_me

/* ---- draws ---- */

static const u8 *bytes;
static const u8 *bytes_end;
bool sim_from_bytes;

static u64 mix(u64 z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

u32 sim_draw_byte(u32 limit)
{
	u32 value = 0;

	for (u32 rest = limit - 1; rest; rest >>= 8) {
		if (bytes == bytes_end) {
			/*
			 * Input is used up inside a step: the step's own stream serves the
			 * rest.
			 */
			sim_from_bytes = false;
			return sim_draw(limit);
		}
		value = value << 8 | *bytes++;
	}
	return value % limit;
}

/* ---- steps ---- */

static struct sim_run run;

static bool is_skipped(u64 step)
{
	return run.skipped && run.skipped[step / 8] >> (step % 8) & 1;
}

static bool is_over(u64 step)
{
	if (sim.operations >= run.operations)
		return true;
	if (run.bytes && bytes == bytes_end)
		return true;
	return run.skipped && step >= run.skipped_steps;
}

/*
 * Limit of the points that a task passes in a step, without interrupts, or at the end of a run. A
 * call of the engine that does not end passes more; a healthy step passes at most a million.
 */
#define STEP_POINTS_MAX	(1u << 26)

static void begin_points(void)
{
	me->step_since_points = me->points;
}

static void check_points(void)
{
	u64 points = me->points - me->step_since_points;

	if (points > sim.step_most_points)
		sim.step_most_points = points;
	if (points > STEP_POINTS_MAX)
		sim_fail("bound", "CPU %u has passed %llu points in a step that does not end",
			 (u32)(me - sim.cpus), (unsigned long long)points);
}

bool sim_step_begin(void)
{
	do {
		if (is_over(sim.steps))
			return false;
		me->step = sim.steps++;
	} while (is_skipped(me->step));
	me->stream = mix(run.seed ^ mix(me->step + 1));
	begin_points();
	return true;
}

/* ---- scheduling ---- */

/* Continue the coroutine of @cpu; NULL: the caller of cpus_run(). */
static void go_on(struct sim_cpu *cpu)
{
	struct coroutine *from = me ? running[me - sim.cpus] : &outside;

	/* On return, the coroutine that switched back has set both, maybe to another CPU. */
	me = cpu;
	sim_points = me ? &me->points : &outside_points;
	coroutine_switch(from, me ? running[me - sim.cpus] : &outside);
}

static void cpu_main(void);

static void go_on_cpu(u32 cpu)
{
	if (me == &sim.cpus[cpu])
		return;
	if (!sim.cpus[cpu].started) {
		sim.cpus[cpu].started = true;
		coroutine_begin(running[cpu], cpu_main);
	}
	go_on(&sim.cpus[cpu]);
}

/* Pick any CPU that can continue. Returns SIM_CPUS if all CPUs are done. */
static u32 pick(void)
{
	bool over = task || is_over(sim.steps);
	u32 cpu = sim_draw(sim.config.cpus);

	for (u32 i = 0; i < sim.config.cpus; i++) {
		if (sim.cpus[cpu].busy || (!over && sim.cpus[cpu].online))
			return cpu;
		cpu = (cpu + 1) % sim.config.cpus;
	}
	return SIM_CPUS;
}

static void give_way(void)
{
	u32 cpu = pick();

	if (cpu == SIM_CPUS)
		go_on(NULL);
	else
		go_on_cpu(cpu);
}

static void cpu_main(void)
{
	for (;;) {
		me->busy = true;
		begin_points();
		if (task)
			task();
		else if (sim_step_begin())
			operator_step();
		check_points();
		me->busy = false;
		give_way();
	}
}

void cpus_begin(const struct sim_run *of)
{
	run = *of;
	sim_from_bytes = of->bytes;
	bytes = of->bytes;
	bytes_end = of->bytes + (of->bytes ? of->byte_count : 0);
	me = NULL;
	for (u32 i = 0; i < SIM_CPUS; i++) {
		running[i] = &coroutines[i];
		sim.cpus[i].online = i < sim.config.cpus;
		sim.cpus[i].stream = mix(of->seed + i);
	}
}

void cpus_run(void (*only)(void))
{
	task = only;
	sim_points_left = only ? STEP_POINTS_MAX : 1;
	go_on_cpu(0);
}

void cpus_stop(void)
{
	if (me)
		go_on(NULL);
}

u32 sim_cpu_now(void)
{
	return me ? (u32)(me - sim.cpus) : 0;
}

/* ---- migration ---- */

/* Returns a CPU that is between two steps; the running CPU if there is no other. */
static struct sim_cpu *find_idle(void)
{
	u32 cpu = sim_draw(sim.config.cpus);

	for (u32 i = 0; i < sim.config.cpus; i++) {
		if (sim.cpus[cpu].online && !sim.cpus[cpu].busy)
			return &sim.cpus[cpu];
		cpu = (cpu + 1) % sim.config.cpus;
	}
	return me;
}

/* Make the task of @from the task of @to. */
static void give_task(struct coroutine *task, const struct sim_cpu *from, struct sim_cpu *to)
{
	running[to - sim.cpus] = task;
	to->started = from->started;
	to->busy = from->busy;
	to->stream = from->stream;
	to->step = from->step;
	to->step_since_points = to->points - (from->points - from->step_since_points);
}

void sim_migrate(void)
{
	struct sim_cpu *from = me, *to;
	struct coroutine *mine, *idle;
	struct sim_cpu before;

	if (me->bound || me->interrupted || !sim_fault(FAULT_MIGRATE))
		return;
	to = find_idle();
	if (to == from)
		return;
	before = *to;
	mine = running[from - sim.cpus];
	idle = running[to - sim.cpus];
	give_task(mine, from, to);
	give_task(idle, &before, from);
	me = to;
	sim_points = &me->points;
}

/* ---- turns and interrupts ---- */

static void interrupt(void (*handler)(void))
{
	struct sim_cpu before = *me;

	if (me->off || me->interrupted)
		return;
	me->interrupted = true;
	me->straying = 0;
	me->map = 0;
	begin_points();
	handler();
	me->interrupted = false;
	me->stream = before.stream;
	me->step = before.step;
	me->step_since_points = before.step_since_points + (me->points - before.points);
	me->straying = before.straying;
	me->warnings = before.warnings;
	me->causes = before.causes;
	me->map = before.map;
	me->map_began_ns = before.map_began_ns;
}

void sim_interrupt_if_due(void)
{
	if (sim.now_ns >= sim.next_timer_ns && !me->off && !me->interrupted)
		interrupt(time_fire);
}

void sim_turn(void)
{
	check_points();
	if (sim.calm || task) {
		sim_points_left = STEP_POINTS_MAX;
		return;
	}
	sim_points_left = 1 + sim_draw(2 * sim.config.turn);
	switch (sim_draw(8)) {
	case 0:
		device_look();
		break;
	case 1:
		queue_hardware();
		if (sim_fault(FAULT_EVICT))
			cache_evict();
		break;
	case 2:
		interrupt(operator_interrupt);
		break;
	case 3:
		sim_interrupt_if_due();
		break;
	default:
		give_way();
	}
}

/* ---- locks ---- */

/* A CPU holds at most a CPU's lock, and below that the depot's or the space's lock. */
#define LOCKS_MAX	2

static void take(xs_lock_t *lock)
{
	u32 self = (u32)(me - sim.cpus) + 1;

	sim_point();
	if (++me->locks > LOCKS_MAX)
		sim_fail("world", "CPU %u takes a third lock", self - 1);
	while (lock->owner) {
		if (lock->owner == self)
			sim_fail("world", "CPU %u takes a lock that it has", self - 1);
		go_on_cpu(lock->owner - 1);
	}
	lock->owner = self;
}

static void drop(xs_lock_t *lock)
{
	if (lock->owner != (u32)(me - sim.cpus) + 1)
		sim_fail("world", "CPU %u drops a lock that it has not", (u32)(me - sim.cpus));
	lock->owner = 0;
	me->locks--;
	sim_point();
}

void xs_lock_init(xs_lock_t *lock)
{
	lock->owner = 0;
}

xs_flags_t xs_local_save(void)
{
	if (!me->off) {
		me->off_since_ns = sim.now_ns;
		me->off_since_points = me->points;
		me->off_since_events = sim.events;
		me->off_pages = 0;
	}
	return me->off++;
}

/*
 * Limits of the work without interrupts, in any world and under any tuning: a full batch, one
 * more mapping, and the report of all flushed pages to their blocks. A point is an access to
 * shared data, a lock, or a call of the backend.
 */
#define OFF_PAGES_MAX	(2 * (XS_BATCH_MAX_PAGES + XS_BLOCK_PAGES))
#define OFF_POINTS_MAX	(8 * OFF_PAGES_MAX)
#define OFF_STUCK_MAX	(12 * OFF_PAGES_MAX)	/* a flush tests each page for being stuck */

static void check_off(void)
{
	u64 most = sim.config.fault[FAULT_REMOVE] ? OFF_STUCK_MAX : OFF_POINTS_MAX;
	u64 points = me->points - me->off_since_points;

	if (points > sim.off_most_points)
		sim.off_most_points = points;
	if (me->off_pages > sim.off_most_pages)
		sim.off_most_pages = me->off_pages;
	if (points > most || me->off_pages > OFF_PAGES_MAX)
		sim_fail("bound", "CPU %u had no interrupts for %llu points and %u pages", (u32)(me - sim.cpus),
			 (unsigned long long)points, me->off_pages);
}

void xs_local_restore(xs_flags_t flags)
{
	u64 off_ns = sim.now_ns - me->off_since_ns;

	if (--me->off != flags)
		sim_fail("world", "interrupts are restored out of order");
	if (!flags)
		check_off();
	if (flags || off_ns <= sim.off_max_ns)
		return;
	sim.off_max_ns = off_ns;
}

xs_flags_t xs_lock_irqsave(xs_lock_t *lock)
{
	xs_flags_t flags = xs_local_save();

	take(lock);
	return flags;
}

void xs_unlock_irqrestore(xs_lock_t *lock, xs_flags_t flags)
{
	drop(lock);
	xs_local_restore(flags);
}

void xs_lock(xs_lock_t *lock)
{
	if (!me->off)
		sim_fail("world", "xs_lock() is called with interrupts on");
	take(lock);
}

void xs_unlock(xs_lock_t *lock)
{
	drop(lock);
}

void xs_assert_locked(xs_lock_t *lock)
{
	if (lock->owner != (u32)(me - sim.cpus) + 1)
		sim_fail("world", "CPU %u has not the lock that it needs", (u32)(me - sim.cpus));
}

/* ---- calls of the engine, and waits for their end ---- */

void xs_enter(void)
{
	me->entered++;
	sim_point();
}

void xs_exit(void)
{
	sim_point();
	if (!me->entered)
		sim_fail("world", "CPU %u leaves what it has not entered", (u32)(me - sim.cpus));
	if (!--me->entered)
		me->exits++;
}

/* A grace period may last longer than a window; timers fire meanwhile. */
static void grace_pass(void)
{
	u32 causes = me->causes;

	if (sim_fault(FAULT_JUMP))
		time_jump();
	me->causes = causes;
}

/* Run every CPU that is inside a call until that call has returned. */
void cpus_quiesce(void *world)
{
	(void)world;
	if (me->entered || me->off)
		sim_fail("world", "CPU %u waits for itself", (u32)(me - sim.cpus));
	grace_pass();
	for (u32 i = 0; i < sim.config.cpus; i++) {
		u64 exits = sim.cpus[i].exits;

		while (sim.cpus[i].entered && sim.cpus[i].exits == exits)
			go_on_cpu(i);
	}
}

u32 xs_cpu_id(void)
{
	if (!me->off && !me->entered)
		sim_fail("world", "the CPU is asked for where the caller may be moved");
	return (u32)(me - sim.cpus);
}
