/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Common parts of the ring workloads (receive, transmit, storage): counts, and a meter for the
 * measured part of a run.
 *
 * The meter includes all instructions of the CPU in the measured part: polls, the work of other
 * modules at the ends of polls, the stack and the application between polls, timers, the
 * scheduler's tick. So a policy pays for work that it defers to a timer. Ticks are not subtracted:
 * with a tick in some four million instructions they cost all policies the same.
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

/* Counts of a run. Counts after RING_COMMON_COUNTS are of receive only. */
enum ring_count {
	RING_PACKETS,		/* storage: requests */
	RING_BYTES,
	RING_PAGES_MAPPED,	/* IOVA pages that mappings cover, as the IOMMU counts pages */
	RING_PAGES_UNMAPPED,
	RING_FLUSHES,		/* the driver's own */
	RING_COMMON_COUNTS,
	RING_CACHE_REUSED = RING_COMMON_COUNTS,	/* pages that a refill took from the cache */
	RING_CACHE_BUSY,	/* pages that a refill did not get: the stack had the oldest page */
	RING_CACHE_FULL,	/* released pages that found the cache full */
	RING_POOL_RECYCLED,	/* pages that left the cache and stayed in the page pool */
	RING_COUNTS,
};

/**
 * struct ring_meter - counts and cost of a run
 * @dev: the device
 * @name: of the workload, for log lines
 * @clock: identified by ring_meter_open()
 * @fail: the @fail-th allocation or mapping from now fails; 0: none fails
 * @counts: since the run began
 * @poll_ticks: since the run began, inside polls and at their ends
 * @start: reading at the begin of the measured part
 * @spent: growth of the reading in the measured part
 */
struct ring_meter {
	struct lab_device *dev;
	const char *name;
	struct lab_clock clock;
	u32 fail;
	u64 counts[RING_COUNTS];
	u64 poll_ticks;
	struct ring_reading {
		u64 counts[RING_COUNTS];
		u64 ticks, poll_ticks, ns;
		u64 allocated_pages, freed_pages;	/* by the machine's page allocator */
	} start, spent;
};

/**
 * ring_fails() - whether the next allocation or mapping of the run must fail
 * @meter: the meter; see @fail
 *
 * Context: the run's task or poll.
 * Return: true once in a run with @fail.
 */
static inline bool ring_fails(struct ring_meter *meter)
{
	return unlikely(meter->fail) && !--meter->fail;
}

/**
 * ring_pages() - number of IOVA pages that a mapping covers
 * @addr: address of the mapping
 * @bytes: size of the mapping in bytes
 *
 * Context: any.
 * Return: number of pages of PAGE_SIZE.
 */
static inline u32 ring_pages(dma_addr_t addr, u32 bytes)
{
	return DIV_ROUND_UP(offset_in_page(addr) + bytes, PAGE_SIZE);
}

/**
 * ring_flush() - flush deferred unmaps, and count the flush
 * @meter: the meter
 *
 * Context: any.
 */
static inline void ring_flush(struct ring_meter *meter)
{
	xsmmu_flush(&meter->dev->pdev->dev);
	meter->counts[RING_FLUSHES]++;
}

/**
 * ring_flush_maps() - flush unflushed maps
 * @meter: the meter
 *
 * To be called before a driver would tell the device of mapped buffers. Does nothing after ordinary
 * maps.
 *
 * Context: any.
 */
static inline void ring_flush_maps(const struct ring_meter *meter)
{
	xsmmu_flush_maps(&meter->dev->pdev->dev);
}

/**
 * ring_needs_batch_aware() - refuse a parameter that only a batch-aware driver may use
 * @dev: device of the run
 * @name: of the workload
 * @release: value of the parameter, for the log line
 *
 * Context: process.
 * Return: 0, or -EINVAL after a log line.
 */
int ring_needs_batch_aware(const struct lab_device *dev, const char *name, const char *release);

/**
 * ring_meter_open() - prepare a meter for polls and measurements
 * @meter: zeroed
 * @dev: device of the run
 * @name: of the workload
 *
 * Waits until timers of earlier runs have expired. Pairs with ring_meter_close().
 *
 * Context: process, may sleep.
 * Return: 0, or a negative errno after a log line.
 */
int ring_meter_open(struct ring_meter *meter, struct lab_device *dev, const char *name);

/**
 * ring_meter_close() - end the use of a meter
 * @meter: opened
 *
 * Context: process, may sleep.
 */
void ring_meter_close(struct ring_meter *meter);

/**
 * ring_meter_poll() - run a function in a NAPI poll
 * @meter: opened
 * @work: function to run
 * @context: argument of @work
 *
 * Returns when the poll and all probes on the poll have ended.
 *
 * Context: process, may sleep.
 */
void ring_meter_poll(struct ring_meter *meter, void (*work)(void *context), void *context);

/**
 * ring_meter_start() - begin the measured part of a run
 * @meter: opened
 *
 * Context: process.
 */
void ring_meter_start(struct ring_meter *meter);

/**
 * ring_meter_stop() - end the measured part of a run
 * @meter: started
 *
 * Context: process.
 */
void ring_meter_stop(struct ring_meter *meter);

/**
 * ring_meter_print() - print counts and costs as a JSON object
 * @meter: stopped
 * @release: the run's parameter, as a word
 * @count: number of counts to print: RING_COMMON_COUNTS or RING_COUNTS
 * @result: buffer to print to
 *
 * Context: process.
 */
void ring_meter_print(const struct ring_meter *meter, const char *release, u32 count,
		      struct seq_buf *result);

#endif
