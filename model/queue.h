/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The IOMMU's queue of invalidation commands. A command is five numbers: what it evicts, the wait
 * of its CPU (command_wait_ns), how long it occupies the queue (command_busy_ns), how long it keeps
 * walks from starting (command_stall_ns), and how long its CPU holds the lock of the queue as a
 * function of the CPUs that wait for the lock (lock_hold_ns, lock_waiters, lock_waiter_ns).
 *
 * The lock goes to CPUs in the order in which they come. Evictions and stall happen when the
 * hardware comes to the command, an event: the calling CPU may be some us ahead of the model's
 * time. With command_restarts, walks in progress begin again.
 */
#ifndef MODEL_QUEUE_H
#define MODEL_QUEUE_H

#include <xsmmu/needs.h>

void queue_init(void);

/* The hardware takes the next command from the queue: caches lose what the command names. */
void queue_run(void);

/**
 * queue_send_pages - send a page-selective command and wait
 * @ns: time of the running CPU
 * @page: first IOVA page
 * @pages: number of pages; the command covers an aligned power of two that has all
 *
 * Walk caches are dropped unless the point's hint is to keep them.
 *
 * Return: time at which the wait ends.
 */
u64 queue_send_pages(u64 ns, u64 page, u64 pages);

/**
 * queue_send_domain - send a domain-selective command and wait
 * @ns: time of the running CPU
 *
 * Walk caches are dropped unless the point's hint is to keep them.
 *
 * Return: time at which the wait ends.
 */
u64 queue_send_domain(u64 ns);

#endif
