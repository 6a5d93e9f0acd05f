/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the ring workloads (receive, transmit, storage) share: counts, and a meter for the stretch
 * of a run that is measured.
 *
 * Measured is all that the CPU executes in that stretch: polls, what other modules do at their
 * ends, the stack and the application between them, timers, the scheduler's tick. A policy that
 * puts work off to a timer is charged for it, and nobody's ticks are taken out: at one in some four
 * million instructions they are the same for all.
 */
#ifndef XSMMU_LAB_RING_H
#define XSMMU_LAB_RING_H

#include <linux/compiler.h>
#include <linux/math.h>
#include <linux/mm.h>
#include <linux/seq_buf.h>
#include <linux/types.h>

#include <xsmmu/dma.h>

#include "clock.h"
#include "testdev.h"

/* Counts of a run. Those after the common ones are of receive only. */
enum ring_count {
	RING_PACKETS,		/* storage: requests */
	RING_BYTES,
	RING_PAGES_MAPPED,	/* pages that a mapping touches, as the IOMMU counts them */
	RING_PAGES_UNMAPPED,
	RING_FLUSHES,		/* the driver's own */
	RING_COMMON_COUNTS,
	RING_CACHE_REUSED = RING_COMMON_COUNTS,	/* pages that a refill took from the cache */
	RING_CACHE_BUSY,	/* pages that it did not get: the stack had the oldest */
	RING_CACHE_FULL,	/* released pages that the cache had no room for */
	RING_POOL_RECYCLED,	/* pages that left the cache and that the page pool kept */
	RING_COUNTS,
};

/**
 * struct ring_meter - counts and cost of a run
 * @dev: the device
 * @name: of the workload, for log lines
 * @clock: identified by ring_meter_open()
 * @fail: if not 0, the next but @fail - 1 allocation or mapping of the run is to fail
 * @counts: since the run began
 * @start: the counts, and what else grows, when the measured stretch began
 * @spent: by how much they grew in it
 */
struct ring_meter {
	struct lab_device *dev;
	const char *name;
	struct lab_clock clock;
	u32 fail;
	u64 counts[RING_COUNTS];
	u64 poll_ticks;		/* since the run began, inside polls and at their ends */
	struct ring_reading {
		u64 counts[RING_COUNTS];
		u64 ticks, poll_ticks, ns;
		u64 allocated_pages, freed_pages;	/* by the machine's page allocator */
	} start, spent;
};

/* Should the next allocation or mapping of the run fail? The answer is yes once, see @fail. */
static inline bool ring_fails(struct ring_meter *meter)
{
	return unlikely(meter->fail) && !--meter->fail;
}

/* IOVA pages that a mapping covers. */
static inline u32 ring_pages(dma_addr_t addr, u32 bytes)
{
	return DIV_ROUND_UP(offset_in_page(addr) + bytes, PAGE_SIZE);
}

static inline void ring_flush(struct ring_meter *meter)
{
	xsmmu_flush(&meter->dev->pdev->dev);
	meter->counts[RING_FLUSHES]++;
}

/* Before the device is told of what was mapped. Nothing after ordinary maps. */
static inline void ring_flush_maps(const struct ring_meter *meter)
{
	xsmmu_flush_maps(&meter->dev->pdev->dev);
}

/* Refuse what only a batch-aware driver may do. Return: 0, or -EINVAL after one log line. */
int ring_needs_batch_aware(const struct lab_device *dev, const char *name, const char *release);

/**
 * ring_meter_open() - get ready to poll and to measure
 * @meter: zeroed
 * @dev: device of the run
 * @name: of the workload
 *
 * Waits for what earlier runs left to timers. Process context. Pairs with ring_meter_close() if it
 * returns 0; otherwise it has left a log line.
 */
int ring_meter_open(struct ring_meter *meter, struct lab_device *dev, const char *name);
void ring_meter_close(struct ring_meter *meter);

/* Run @work in one NAPI poll and wait for it and all probes on it. Process context, may sleep. */
void ring_meter_poll(struct ring_meter *meter, void (*work)(void *context), void *context);

/* The measured stretch. Process context. */
void ring_meter_start(struct ring_meter *meter);
void ring_meter_stop(struct ring_meter *meter);

/**
 * ring_meter_print() - print counts and costs as a JSON object
 * @meter: stopped
 * @release: the run's parameter, as a word
 * @count: how many of the counts: RING_COMMON_COUNTS or RING_COUNTS
 * @result: where to
 */
void ring_meter_print(const struct ring_meter *meter, const char *release, u32 count,
		      struct seq_buf *result);

#endif
