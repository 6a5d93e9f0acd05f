/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Drivers at work: each CPU has a ring of mapped buffers and polls it.
 *
 * A poll takes TRAFFIC_POLL buffers from its ring, and unmaps each, or hands it
 * to another CPU that unmaps it in a poll of its own, or parks it, if it is one
 * that lives longer. It unmaps what was parked until now and what others have
 * handed over, flushes, and maps as many buffers as it took.
 *
 * CPUs take turns of a few buffers; the one whose time is least is next.
 */
#ifndef SCALE_TRAFFIC_H
#define SCALE_TRAFFIC_H

#include "heap.h"
#include "path.h"

#define TRAFFIC_POLL	256
#define TRAFFIC_RING	512

enum traffic_life {
	LIFE_SHORT,	/* a ring */
	LIFE_MIXED,	/* one in ten 100 rings, some as long as the run */
	LIFE_AGED,	/* one in ten 100 rings, and in hundred 1,000, and so on */
	LIFE_COUNT
};

/*
 * struct traffic_config
 * @elsewhere:	percentage of buffers that another CPU unmaps
 * @aware:	the driver is batch-aware
 * @sizes:	one mapping in 16 is of 2 to 64 pages, else all are of one
 * @slice:	a turn is of 1 to this many buffers
 * @end:	of the IOVAs
 */
struct traffic_config {
	const struct xs_policy *policy;
	u32 cpus;
	u32 elsewhere;
	bool aware;
	bool sizes;
	enum traffic_life life;
	u32 slice;
	u64 seed;
	u64 end;
};

struct traffic_count {
	u64 maps;
	u64 mapped_pages;
	u64 unmaps;
	u64 unmapped_pages;
	u64 polls;
	u64 completed;		/* by the device and by the driver, in buffers */
	u64 handed;		/* of these to another CPU, which unmaps them */
	u64 expired;		/* timers that fired */
	u64 trims;		/* of the space */
};

extern struct traffic_count traffic_count;

/* Count the instructions of the engine (step.h). */
extern bool traffic_stepping;

struct xs_engine *traffic_begin(const struct traffic_config *config);

/* The next CPU has its turn. */
void traffic_turn(void);

/* Call @tell for each mapping. */
void traffic_each(void (*tell)(const struct packet *packet));

/* Unmap and flush all; the run fails if the engine's accounts do not balance. */
void traffic_end(void);

const char *traffic_life_name(enum traffic_life life);

#endif
