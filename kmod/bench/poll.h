/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A poll: one real NAPI poll, run on demand.
 *
 * The NAPI belongs to a net device that is never registered, so nobody sends to it; all the rest
 * is the kernel's own path: napi_schedule(), NET_RX softirq, our poll function, the tracepoint
 * napi_poll. Modules that do work at the end of a poll hang on that tracepoint. This one adds a
 * probe of its own at the lowest priority: it runs when all others are done, and its time stamp
 * closes the poll.
 */
#ifndef XSMMU_LAB_POLL_H
#define XSMMU_LAB_POLL_H

#include <linux/completion.h>
#include <linux/netdevice.h>
#include <linux/types.h>

/**
 * struct lab_poll - the NAPI of one device
 * @returned: lab_clock() as the last thing in the poll function
 * @probed: lab_clock() when all other probes on napi_poll had returned; what lies between the two
 *	is what others did at the end of the poll, and some 20 instructions of the kernel's own
 *
 * The stamps are those of the last poll and stable until the next lab_poll_start().
 */
struct lab_poll {
	u64 returned;
	u64 probed;

	struct net_device *netdev;
	struct napi_struct napi;
	struct completion done;
	void (*work)(void *context);
	void *context;
};

int lab_poll_create(struct lab_poll *poll);
void lab_poll_destroy(struct lab_poll *poll);

/**
 * lab_poll_enter() - get ready to poll
 * @poll: not entered
 *
 * Attaches the probe; only for the time of a run, so that other workloads do not pay for it.
 * Pairs with lab_poll_leave(). Process context, may sleep. Return: 0 or a negative errno.
 */
int lab_poll_enter(struct lab_poll *poll);
void lab_poll_leave(struct lab_poll *poll);

/**
 * lab_poll_start() - run @work in a NAPI poll
 * @poll: entered, no poll under way
 * @work: called once, in softirq context
 * @context: for @work
 *
 * As a rule the poll has ended on return, but the kernel may put it off to ksoftirqd: call
 * lab_poll_wait(). Process context; preemption may be off.
 */
void lab_poll_start(struct lab_poll *poll, void (*work)(void *context), void *context);

/* Wait until the poll and all probes on it have ended. Process context, may sleep. */
void lab_poll_wait(struct lab_poll *poll);

#endif
