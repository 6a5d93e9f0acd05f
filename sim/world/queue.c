// SPDX-License-Identifier: GPL-2.0-only
/*
 * The invalidation queue. The IOMMU executes commands in order, some time after their
 * submission. To wait for completion, a CPU queues a wait command behind the other commands and
 * polls for the wait command's completion.
 */
#include "sim.h"

#define QUEUE_MAX	64u

enum what { WHAT_OTHER, WHAT_IOMMU, WHAT_DEVICE, WHAT_WAIT };

struct command {
	enum what what;
	bool hint;
	u32 device;
	u32 page;
	u32 pages;	/* 0: all */
	u64 ticket;
};

static struct command queue[QUEUE_MAX];
static u32 head, count;
static u64 last_ticket, done_ticket, drops;

void queue_begin(void)
{
	head = 0;
	count = 0;
	last_ticket = 0;
	done_ticket = 0;
	drops = 0;
}

void queue_hardware(void)
{
	const struct command *command = &queue[head];

	if (!count)
		return;
	head = (head + 1) % QUEUE_MAX;
	count--;
	switch (command->what) {
	case WHAT_IOMMU:
		cache_invalidate_iommu(command->page, command->pages, command->hint);
		sim_event(EV_COMMAND, 0, command->page, command->pages, 0, command->hint);
		break;
	case WHAT_DEVICE:
		if (sim_fault(FAULT_LOST)) {
			count = 0;
			drops++;
			return;
		}
		cache_invalidate_device(command->device, command->page, command->pages);
		sim_event(EV_COMMAND, 0, command->page, command->pages, 1 + command->device, 0);
		break;
	case WHAT_WAIT:
		done_ticket = command->ticket;
		break;
	case WHAT_OTHER:
		break;
	}
}

/* Wait a moment before the next look. */
static void wait(void)
{
	sim.now_ns += 50;
	if (sim_fault(FAULT_SLOW)) {
		sim.now_ns += sim_draw(20000);
		sim_turn();
	} else {
		queue_hardware();
	}
	if (sim_chance(sim.config.wait_turn))
		sim_turn();
	else
		sim_point();
}

static void append(const struct command *command)
{
	queue[(head + count++) % QUEUE_MAX] = *command;
}

/* Returns the ticket of the command; tickets follow the order of the queue. */
static u64 submit(struct command *command)
{
	static const struct command other = { .what = WHAT_OTHER };

	if (sim_fault(FAULT_QUEUE_FULL))
		while (count < sim.config.queue)
			append(&other);
	while (count >= sim.config.queue)
		wait();
	command->ticket = ++last_ticket;
	append(command);
	return last_ticket;
}

/* Returns the ticket of the wait command behind the range's command. */
static u64 submit_range(u32 page, u32 pages, bool hint)
{
	struct command command = { WHAT_IOMMU, hint, 0, page, pages, 0 };

	submit(&command);
	command.what = WHAT_DEVICE;
	for (; command.device < sim.config.ats; command.device++)
		submit(&command);
	command.what = WHAT_WAIT;
	return submit(&command);
}

/* Widen a range to a naturally aligned power of two of pages. */
static void align(const struct xs_range *range, u32 *page, u32 *pages)
{
	u64 last = range->page + range->pages - 1;
	u32 lg2 = 0;

	while (range->page >> lg2 != last >> lg2)
		lg2++;
	*page = (u32)(range->page >> lg2 << lg2);
	*pages = 1u << lg2;
}

/* Invalidate the range with one command, NULL: everything; wait for completion. */
void queue_flush(const struct xs_range *range, bool hint)
{
	u32 page = 0, pages = 0;
	u64 ticket, before;

	if (range)
		align(range, &page, &pages);
	do {
		before = drops;
		ticket = submit_range(page, pages, hint);
		while (done_ticket < ticket && drops == before)
			wait();
	} while (drops != before);
}
