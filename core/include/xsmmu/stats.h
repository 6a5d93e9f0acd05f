/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Statistics: mapped, deferred and flushed pages, commands sent, and lifetimes of stale
 * translations. Each CPU writes its own statistics; readers add up all CPUs, so parts of a sum
 * taken under load may be from different times.
 *
 * No map, unmap or flush depends on a counter. Two slow paths do: xs_engine_retry() returns at once
 * while no page is counted as stuck, and the module orphans a group instead of detaching the group
 * while xs_engine_live_pages() is above 0. A leak check compares the counters with the state of the
 * blocks.
 *
 * Exposure is a histogram with XS_EXPOSURE_SUBS buckets for each power of two of ns. The upper
 * bound of a bucket is at most 25 % above its members, and all buckets, each printed on a line,
 * fit a page of sysfs.
 */
#ifndef XSMMU_STATS_H
#define XSMMU_STATS_H

#include <xsmmu/policy.h>
#include <xsmmu/backend.h>

#define XS_EXPOSURE_SUB_LG2	2
#define XS_EXPOSURE_SUBS	(1u << XS_EXPOSURE_SUB_LG2)
#define XS_EXPOSURE_MAX_LG2	37	/* 2^37 ns = 137 s; counts longer times too */
#define XS_EXPOSURE_BUCKETS \
	((XS_EXPOSURE_MAX_LG2 - XS_EXPOSURE_SUB_LG2 + 1) * XS_EXPOSURE_SUBS)

struct xs_cpu;

/* Counters of the map and unmap paths, without a lock. */
struct xs_counts {
	struct xs_cpu *cpu;	/* CPU of the counters; constant */
	u64 maps;		/* successful map calls */
	u64 map_extra_pages;	/* mapped pages after the first of each call */
	u64 unmaps;
	u64 unmap_extra_pages;
	u64 immediate;		/* unmaps flushed before their return, */
	u64 immediate_pages;	/* their pages */
	u64 immediate_page;	/* and commands, by kind */
	u64 immediate_domain;
	u64 immediate_global;
	u64 bad_unmaps;		/* unmaps that match no mapping, and other misuse */
	u64 stuck_pages;	/* unmapped, and not removed by the backend */
	u64 kept_unmaps;	/* of pages that stay present: mapped, or deferred before */
	u64 identity_writes;	/* maps that wrote the entry of a page of the identity window */
	u64 identity_misses;	/* single pages placed in a block, as the window did not serve */
	u64 copied_maps;	/* buffers copied into a pool, */
	u64 copied_unmaps;
	u64 copied_bytes;	/* both directions, syncs included */
	u64 copy_misses;	/* no bounce buffer was free: mapped without a copy */
};

/**
 * xs_counts_mapped - pages mapped
 * @counts: counters
 *
 * Context: any.
 * Return: number of pages.
 */
static inline u64 xs_counts_mapped(const struct xs_counts *counts)
{
	return counts->maps + counts->map_extra_pages;
}

/**
 * xs_counts_unmapped - pages unmapped
 * @counts: counters
 *
 * Context: any.
 * Return: number of pages.
 */
static inline u64 xs_counts_unmapped(const struct xs_counts *counts)
{
	return counts->unmaps + counts->unmap_extra_pages;
}

/*
 * Statistics. The CPU's lock guards the statistics of a CPU, except @counts. Immediate flushes are
 * in @flushes, @commands_* and @exposure of a sum only.
 */
struct xs_stats {
	struct xs_counts counts;
	u64 flushed_pages;	/* deferred pages with a finished flush */
	u64 map_failures;	/* no IOVA, no memory or refused by the backend */
	u64 unstuck_pages;	/* stuck pages removed by a retry; read without the lock */
	u64 flushes[XS_FLUSH_COUNT];	/* flushes by cause */
	u64 commands_page;	/* invalidation commands sent, by kind */
	u64 commands_domain;
	u64 commands_global;
	u64 exposure_max_ns;
	u64 exposure[XS_EXPOSURE_BUCKETS];	/* in unmapped pages */
};

/**
 * xs_stats_expose - count the exposure of unmapped pages
 * @stats: statistics
 * @ns: exposure
 * @pages: number of pages
 *
 * Context: lock of @stats.
 */
void xs_stats_expose(struct xs_stats *stats, u64 ns, u64 pages);

/**
 * xs_stats_bucket_last_ns - largest exposure that a bucket counts
 * @bucket: index of the bucket
 *
 * Context: any.
 * Return: time in ns.
 */
u64 xs_stats_bucket_last_ns(u32 bucket);

/**
 * xs_counts_add - add counters that other CPUs may be changing
 * @into: sum
 * @from: counters
 *
 * Context: any.
 */
void xs_counts_add(struct xs_counts *into, const struct xs_counts *from);

/**
 * xs_stats_add_immediate - add immediate flushes to the flushes, commands and exposure of a sum
 * @into: sum
 * @counts: counters of the immediate flushes, which expose no page
 *
 * Context: any.
 */
void xs_stats_add_immediate(struct xs_stats *into,
			    const struct xs_counts *counts);

/**
 * xs_stats_add - add statistics, field by field; exposure_max_ns is the maximum
 * @into: sum
 * @from: statistics
 *
 * Context: lock of @from.
 */
void xs_stats_add(struct xs_stats *into, const struct xs_stats *from);

#endif
