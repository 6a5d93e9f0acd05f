// SPDX-License-Identifier: GPL-2.0-only
/* See queue.h. */
#include "count.h"
#include "model.h"
#include "queue.h"
#include "run.h"
#include "walk.h"

#define COMMANDS	65536u
#define ALL		(~0ULL)

/*
 * struct command - a command that the hardware has not come to
 * @first, @last: IOVA pages, inclusive; @last is ALL for the domain
 */
struct command {
	u64 first, last;
};

static struct command commands[COMMANDS];
static u32 oldest, count;
static u64 lock_free_ns, queue_free_ns;
static u64 *granted_ns;	/* time at which each CPU has got, or gets, the lock */

void queue_init(void)
{
	granted_ns = model_new(model.params.cores, sizeof(*granted_ns));
	lock_free_ns = queue_free_ns = 0;
	oldest = count = 0;
}

static u64 later(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* Returns for how long the running CPU holds the lock, which it asks for at @ns. */
static u64 hold_ns(u64 ns)
{
	const struct model_params *params = &model.params;
	u64 waiters = 0;

	for (u64 i = 0; i < params->cores; i++)
		waiters += i != running_cpu && granted_ns[i] > ns;
	if (waiters <= params->lock_waiters)
		return params->lock_hold_ns;
	return params->lock_hold_ns + (waiters - params->lock_waiters) * params->lock_waiter_ns;
}

/* Adds a command for IOVA pages @first to @last; returns the end of the CPU's wait. */
static u64 send(u64 ns, u64 first, u64 last)
{
	const struct model_params *params = &model.params;
	u64 hold = hold_ns(ns), locked = later(ns, lock_free_ns), begin, end;

	granted_ns[running_cpu] = locked;
	lock_free_ns = locked + hold;
	begin = later(locked, queue_free_ns);
	queue_free_ns = begin + params->command_busy_ns;
	end = later(lock_free_ns, begin + params->command_wait_ns);
	counts.locked_ns += end - ns;
	if (count == COMMANDS)
		model_broken("more than %u commands in the queue", COMMANDS);
	commands[(oldest + count++) % COMMANDS] = (struct command) { first, last };
	run_at(begin, RUN_COMMAND, 0);
	return end;
}

void queue_run(void)
{
	const struct command *command = &commands[oldest];

	oldest = (oldest + 1) % COMMANDS;
	count--;
	if (command->last == ALL)
		walk_drop_all();
	else
		walk_drop(command->first, command->last);
	if (model.params.hint == HINT_DROPPED)
		walk_drop_tables();
	walk_stall(model.now_ns + model.params.command_stall_ns);
	if (model.params.command_restarts)
		walk_restart(model.now_ns);
}

u64 queue_send_pages(u64 ns, u64 page, u64 pages)
{
	u64 last = page + pages - 1;
	u64 rest = page == last ? 0 : (2ULL << xs_log2(page ^ last)) - 1;

	counts.commands_page++;
	return send(ns, page & ~rest, last | rest);
}

u64 queue_send_domain(u64 ns)
{
	counts.commands_domain++;
	return send(ns, 0, ALL);
}
