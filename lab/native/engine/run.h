/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A run: each CPU polls a ring of pages, as the workload `micro` of the lab does: map all pages
 * of the ring, unmap them, end the poll. Pages that another CPU unmaps go through mailboxes.
 */
#ifndef NATIVE_RUN_H
#define NATIVE_RUN_H

#include <pthread.h>

#include "backend.h"
#include "driver.h"
#include "mailbox.h"

#define POLLS_MAX	16384u	/* recorded by a CPU; later polls are not */
#define CALIBRATIONS	2	/* before and after the polls */

/**
 * struct run_options - options of a run
 * @policy: policy
 * @cpus: numbers of the machine's CPUs, one for each thread
 * @count: number of CPUs
 * @elsewhere: percentage of pages that another CPU unmaps
 * @ring: pages of a ring
 * @bytes: size of buffers to copy; 0: whole pages, which are mapped
 * @warm_ms: duration before the measurement
 * @ms: duration of the measurement
 * @aware: the driver is batch-aware
 */
struct run_options {
	const struct xs_policy *policy;
	int cpus[NATIVE_CPUS];
	u32 count;
	u32 elsewhere;
	u32 ring;
	u32 bytes;
	u32 warm_ms;
	u32 ms;
	bool aware;
};

enum run_phase { RUN_WARM, RUN_MEASURE, RUN_STOP };

/**
 * struct worker - a CPU of a run; its thread writes, and others read when the thread waits
 * @thread: thread
 * @id: number of the CPU, counted from 0
 * @phys: physical address of the first page of the ring
 * @iovas: IOVA of each page of the ring
 * @unmaps: IOVAs to unmap in this poll
 * @drawn: state of the random numbers
 * @maps: maps, from the start of the thread
 * @unmapped: unmaps, likewise
 * @handed: pages handed to other CPUs, likewise
 * @steady: polls since the last poll with a buffer that should have been copied and was mapped
 * @polls: recorded polls
 * @map_ps: time to map a page, for each recorded poll
 * @unmap_ps: time to unmap a page, likewise; the end of the poll is included
 * @recorded_copies: copied buffers of the recorded polls
 * @recorded_unmaps: unmaps of the recorded polls
 * @began_commands: commands of the CPU before the first recorded poll
 * @ended_commands: commands of the CPU after the last recorded poll
 * @began_ns: start of the first recorded poll
 * @ended_ns: end of the last recorded poll
 * @began_cpu_ns: CPU time of the thread at @began_ns
 * @ended_cpu_ns: CPU time of the thread at @ended_ns
 * @cmpxchg_ps: calibrations: time of a locked compare and swap that depends on the last one
 * @clock_ps: calibrations: time to read the clock
 */
struct worker {
	pthread_t thread;
	u32 id;
	u64 phys;
	u64 *iovas;
	u64 *unmaps;
	u64 drawn;
	u64 maps;
	u64 unmapped;
	u64 handed;
	u32 steady;
	u32 polls;
	u64 *map_ps;
	u64 *unmap_ps;
	u64 recorded_copies;
	u64 recorded_unmaps;
	u64 began_commands;
	u64 ended_commands;
	u64 began_ns;
	u64 ended_ns;
	u64 began_cpu_ns;
	u64 ended_cpu_ns;
	u64 cmpxchg_ps[CALIBRATIONS];
	u64 clock_ps[CALIBRATIONS];
} NATIVE_LINE;

/**
 * struct run - the run of this program
 * @options: options; constant
 * @engine: engine
 * @workers: CPUs
 * @mailboxes: from CPU i to CPU j at [i * count + j]; NULL if no page is unmapped elsewhere
 * @limit_ns: time at which workers end the program; constant while they run
 * @barrier: for all workers and the main thread
 * @phase: enum run_phase, written by the main thread
 * @grow_lock: held by the CPU that adds chunks to the pool
 */
struct run {
	struct run_options options;
	struct xs_engine *engine;
	struct worker *workers;
	struct mailbox *mailboxes;
	u64 limit_ns;
	pthread_barrier_t barrier;
	u32 phase NATIVE_LINE;
	pthread_mutex_t grow_lock NATIVE_LINE;
};

extern struct run run;

/* Zeroed memory that starts on a line. */
void *run_alloc(size_t count, size_t bytes);

/* Returns the mailbox from one CPU to another. */
static inline struct mailbox *run_mailbox(u32 from, u32 to)
{
	return &run.mailboxes[(size_t)from * run.options.count + to];
}

/* Unmap a page or a copy. */
void worker_unmap(u64 iova);

/* The thread of a worker. */
void *worker_main(void *worker);

/* Do the run, and print a line of JSON. */
void run_do(void);

#endif
