/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Drivers at work: each CPU polls a ring of mapped buffers.
 *
 * A poll takes TRAFFIC_POLL buffers from the ring. The CPU unmaps each buffer, or hands the
 * buffer to another CPU that unmaps the buffer in a later poll, or parks a long-lived buffer.
 * The poll then unmaps parked buffers that are due and buffers handed over by other CPUs,
 * flushes, and maps as many buffers as were taken.
 *
 * CPUs take turns of one buffer; the CPU with the least time is next.
 */
#ifndef SCALE_TRAFFIC_H
#define SCALE_TRAFFIC_H

#include "heap.h"
#include "path.h"

#define TRAFFIC_POLL	256
#ifndef TRAFFIC_RING
#define TRAFFIC_RING	512
#endif

enum traffic_life {
	LIFE_SHORT,	/* a ring */
	LIFE_MIXED,	/* one in ten 100 rings, some as long as the run */
	LIFE_AGED,	/* one in ten 100 rings, and in hundred 1,000, and so on */
	LIFE_COUNT
};

/*
 * struct traffic_config - traffic of a run
 * @elsewhere:	percentage of buffers that another CPU unmaps
 * @aware:	the driver is batch-aware
 * @sizes:	one mapping in 16 has 2 to 64 pages, all others one page
 * @pages:	size of every mapping, 0: as @sizes says
 * @kept:	mappings of a page that are made before the rings, and stay
 * @end:	end of the IOVA space
 */
struct traffic_config {
	const struct xs_policy *policy;
	u32 cpus;
	u32 elsewhere;
	bool aware;
	bool sizes;
	u32 pages;
	u32 kept;
	enum traffic_life life;
	u64 seed;
	u64 end;
};

struct traffic_count {
	u64 maps;
	u64 mapped_pages;
	u64 unmaps;
	u64 unmapped_pages;
	u64 polls;
	u64 completed;		/* buffers completed by device and driver */
	u64 handed;		/* completed buffers that another CPU unmaps */
};

extern struct traffic_count traffic_count;

/* Count the engine's instructions (step.h). */
extern bool traffic_stepping;

struct xs_engine *traffic_begin(const struct traffic_config *config);

/* Give the next CPU a turn. */
void traffic_turn(void);

/* Call @tell for each mapping. */
void traffic_each(void (*tell)(const struct packet *packet));

/* Unmap and flush all; the run fails if the engine's statistics do not balance. */
void traffic_end(void);

const char *traffic_life_name(enum traffic_life life);

#endif
