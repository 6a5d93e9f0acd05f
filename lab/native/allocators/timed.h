/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timed run: each thread maps a ring of buffers, hands some of them to other threads, unmaps
 * the others and those that it was given, and begins again. Only maps and unmaps are timed.
 *
 * A buffer is named by its IOVA with its pages in the lowest bits.
 */
#ifndef ALLOCATORS_TIMED_H
#define ALLOCATORS_TIMED_H

#include <pthread.h>

#include "../engine/backend.h"
#include "../engine/mailbox.h"
#include "iova.h"

#define POLLS_MAX	8192u	/* recorded by a thread; later polls are not */
#define PARKED_PART	10u	/* one buffer in so many is parked */

/**
 * struct timed_options - options of a run
 * @allocator: allocator
 * @cpus: CPU of the machine for each thread; several threads may share a CPU
 * @count: number of threads
 * @shared: some threads share a CPU
 * @elsewhere: percentage of buffers that another thread unmaps
 * @ring: buffers of a ring
 * @kept: mappings of a page that are made before the run, and stay
 * @pages: size of every buffer; 0: as @sizes says
 * @sizes: one buffer in 16 has 2 to 64 pages, all others one page
 * @mixed: one buffer in ten lives 100 rings on average
 * @warm_ms: duration before the measurement
 * @ms: duration of the measurement
 */
struct timed_options {
	const struct iova_allocator *allocator;
	int cpus[NATIVE_CPUS];
	u32 count;
	bool shared;
	u32 elsewhere;
	u32 ring;
	u32 kept;
	u32 pages;
	bool sizes;
	bool mixed;
	u32 warm_ms;
	u32 ms;
};

enum timed_phase { TIMED_WARM, TIMED_MEASURE, TIMED_STOP };

/**
 * struct waits - waits of a thread for locks, during the measurement
 * @count: number
 * @longest_ns: the longest
 */
struct waits {
	u64 count;
	u64 longest_ns;
} NATIVE_LINE;

/**
 * struct poller - a thread; others read when it waits at the barrier
 * @thread: thread
 * @id: number, counted from 0
 * @drawn: state of the random numbers
 * @ring: buffers of the ring
 * @sizes: size of each
 * @unmaps: buffers to unmap in this poll
 * @parked: long-lived buffers, 0 where there is none
 * @parked_count: their number
 * @kept: buffers that stay
 * @kept_count: number of @kept
 * @polls: recorded polls
 * @pair_ps: time to map and unmap a buffer, for each recorded poll
 * @maps: buffers mapped in the recorded polls
 * @unmapped: buffers unmapped in the recorded polls
 * @handed: buffers handed to other threads in the recorded polls
 * @ns: duration of the measurement
 * @cpu_ns: CPU time of the thread in it
 */
struct poller {
	pthread_t thread;
	u32 id;
	u64 drawn;
	u64 *ring;
	u32 *sizes;
	u64 *unmaps;
	u64 *parked;
	u32 parked_count;
	u64 *kept;
	u32 kept_count;
	u32 polls;
	u64 *pair_ps;
	u64 maps;
	u64 unmapped;
	u64 handed;
	u64 ns;
	u64 cpu_ns;
} NATIVE_LINE;

/**
 * struct timed - the run of this program
 * @options: options; constant
 * @state: the allocator's
 * @pollers: threads
 * @mailboxes: from thread i to thread j at [i * count + j]
 * @barrier: for all threads and the main thread
 * @phase: enum timed_phase, written by the main thread
 */
struct timed {
	struct timed_options options;
	void *state;
	struct poller *pollers;
	struct mailbox *mailboxes;
	pthread_barrier_t barrier;
	u32 phase NATIVE_LINE;
};

extern struct timed timed;
extern struct waits timed_waits[NATIVE_CPUS];

/* The thread of a poller. */
void *poller_main(void *poller);

/* Unmap all buffers that the calling thread knows of. */
void poller_drain(struct poller *poller);

#endif
