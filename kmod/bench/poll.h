/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A real NAPI poll, run on demand.
 *
 * The NAPI belongs to a net device that is never registered, so nobody sends packets to it.
 * All else is the kernel's own path: napi_schedule(), NET_RX softirq, the poll function, the
 * tracepoint napi_poll. Modules that work at the end of a poll use this tracepoint. The probe
 * of this file has the lowest priority: it runs after all other probes, and its time stamp
 * ends the poll.
 */
#ifndef XSMMU_LAB_POLL_H
#define XSMMU_LAB_POLL_H

#include <linux/completion.h>
#include <linux/netdevice.h>
#include <linux/types.h>

/**
 * struct lab_poll - the NAPI of one device
 * @returned: lab_clock() at the end of the poll function
 * @probed: lab_clock() when all other probes on napi_poll had returned. The difference to @returned
 *	is the work of others at the end of the poll, and some 20 instructions of the kernel
 * @netdev: unregistered
 * @napi: the NAPI
 * @done: completed when the poll has ended
 * @work: function of the current poll
 * @context: argument of @work
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

/**
 * lab_poll_create() - make the NAPI and its net device
 * @poll: zeroed
 *
 * Context: process; sleeps.
 * Return: 0 or -ENOMEM.
 */
int lab_poll_create(struct lab_poll *poll);

/**
 * lab_poll_destroy() - undo lab_poll_create()
 * @poll: not entered
 *
 * Context: process; sleeps.
 */
void lab_poll_destroy(struct lab_poll *poll);

/**
 * lab_poll_enter() - get ready to poll
 * @poll: not entered
 *
 * Registers the probe, only for the time of a run, so that other workloads do not pay for it.
 *
 * Context: process; may sleep.
 * Return: 0 or a negative errno.
 */
int lab_poll_enter(struct lab_poll *poll);

/**
 * lab_poll_leave() - undo lab_poll_enter()
 * @poll: entered, no poll under way
 *
 * Context: process; sleeps.
 */
void lab_poll_leave(struct lab_poll *poll);

/**
 * lab_poll_start() - run @work in a NAPI poll
 * @poll: entered, no poll under way
 * @work: called once, in softirq context
 * @context: argument of @work
 *
 * Usually the poll has ended on return, but the kernel may defer the poll to ksoftirqd: call
 * lab_poll_wait().
 *
 * Context: process; preemption may be off.
 */
void lab_poll_start(struct lab_poll *poll, void (*work)(void *context), void *context);

/**
 * lab_poll_wait() - wait until the poll and all probes on it have ended
 * @poll: a started poll
 *
 * Context: process; sleeps.
 */
void lab_poll_wait(struct lab_poll *poll);

#endif
