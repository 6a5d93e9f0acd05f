/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The accounts: what was mapped, deferred, flushed and sent, and how long stale
 * translations lived. Each CPU writes its own; readers add them up CPU by CPU,
 * so a sum taken under load may be a moment old in part.
 *
 * They are kept apart from what they account for: the engine never reads them
 * to decide, and a leak check compares them with the state of the blocks.
 *
 * Exposure is kept as a histogram with XS_EXPOSURE_SUBS buckets for each power
 * of two of ns: a bucket's upper bound is at most 25 % above its members, and
 * all of them, printed a line each, fit one page.
 */
#ifndef XSMMU_STATS_H
#define XSMMU_STATS_H

#include <xsmmu/policy.h>
#include <xsmmu/backend.h>

#define XS_EXPOSURE_SUB_LG2	2
#define XS_EXPOSURE_SUBS	(1u << XS_EXPOSURE_SUB_LG2)
#define XS_EXPOSURE_MAX_LG2	37	/* 2^37 ns = 137 s; longer counts there */
#define XS_EXPOSURE_BUCKETS \
	((XS_EXPOSURE_MAX_LG2 - XS_EXPOSURE_SUB_LG2 + 1) * XS_EXPOSURE_SUBS)

struct xs_cpu;

/* What the map and unmap paths count, without a lock. */
struct xs_counts {
	struct xs_cpu *cpu;	/* whose they are; constant */
	u64 maps;		/* successful map calls */
	u64 map_extra_pages;	/* mapped pages after the first of each call */
	u64 unmaps;
	u64 unmap_extra_pages;
	u64 direct;		/* unmaps flushed inside themselves, */
	u64 direct_pages;	/* their pages */
	u64 direct_page;	/* and commands, by kind */
	u64 direct_domain;
	u64 direct_global;
	u64 bad_unmaps;		/* unmaps of what is not mapped so, and the like */
	u64 stuck_pages;	/* unmapped, and not removed by the backend */
	u64 copied_maps;	/* maps of buffers that a pool has copies of, */
	u64 copied_unmaps;
	u64 copied_bytes;	/* both ways, flushes included */
	u64 copy_misses;	/* there was no bounce buffer for one: mapped as others are */
};

static inline u64 xs_counts_mapped(const struct xs_counts *counts)
{
	return counts->maps + counts->map_extra_pages;
}

static inline u64 xs_counts_unmapped(const struct xs_counts *counts)
{
	return counts->unmaps + counts->unmap_extra_pages;
}

/*
 * All accounts; one CPU's are guarded by its lock, but @counts. What is counted as
 * direct is in @flushes, @commands and @exposure of a sum only.
 */
struct xs_stats {
	struct xs_counts counts;
	u64 flushed_pages;	/* deferred ones whose flush is done */
	u64 map_failures;	/* no IOVA, no memory or refused by the backend */
	u64 unstuck_pages;	/* stuck ones that a later try has removed; read without the lock */
	u64 flushes[XS_FLUSH_COUNT];	/* flushes by cause */
	u64 commands_page;	/* invalidation commands sent, by kind */
	u64 commands_domain;
	u64 commands_global;
	u64 exposure_max_ns;
	u64 exposure[XS_EXPOSURE_BUCKETS];	/* in unmapped pages */
};

/* Count @pages unmapped pages that stayed exposed for @ns. */
void xs_stats_expose(struct xs_stats *stats, u64 ns, u64 pages);

/* Largest ns that bucket @bucket counts. */
u64 xs_stats_bucket_last_ns(u32 bucket);

/* Add @from, which others may be counting in, to @into. */
void xs_counts_add(struct xs_counts *into, const struct xs_counts *from);

/*
 * Add what @counts has of flushes inside unmaps, which nobody has been exposed to,
 * to the flushes, commands and exposure of @into.
 */
void xs_stats_add_direct(struct xs_stats *into,
			 const struct xs_counts *counts);

/* Add @from to @into, field by field; the larger exposure_max_ns stays. */
void xs_stats_add(struct xs_stats *into, const struct xs_stats *from);

#endif
