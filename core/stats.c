// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Statistics and the exposure histogram; see stats.h. */
#include <xsmmu/stats.h>

/*
 * Below XS_EXPOSURE_SUBS each ns has a bucket. Above, the bits after the leading bit select a
 * bucket of the power of two.
 */
static u32 xs_bucket_of(u64 ns)
{
	u32 shift, bucket;

	if (ns < XS_EXPOSURE_SUBS)
		return (u32)ns;
	shift = xs_log2(ns) - XS_EXPOSURE_SUB_LG2;
	bucket = ((shift + 1) << XS_EXPOSURE_SUB_LG2) +
		 (u32)(ns >> shift) - XS_EXPOSURE_SUBS;
	if (bucket >= XS_EXPOSURE_BUCKETS)
		bucket = XS_EXPOSURE_BUCKETS - 1;
	return bucket;
}

u64 xs_stats_bucket_last_ns(u32 bucket)
{
	u32 shift;

	if (bucket < XS_EXPOSURE_SUBS)
		return bucket;
	shift = (bucket >> XS_EXPOSURE_SUB_LG2) - 1;
	return (((u64)(bucket & (XS_EXPOSURE_SUBS - 1)) + XS_EXPOSURE_SUBS + 1)
		       << shift) - 1;
}

void xs_stats_expose(struct xs_stats *stats, u64 ns, u64 pages)
{
	stats->exposure[xs_bucket_of(ns)] += pages;
	if (ns > stats->exposure_max_ns)
		stats->exposure_max_ns = ns;
}

void xs_counts_add(struct xs_counts *into, const struct xs_counts *from)
{
	/* In the opposite order of counting: a page is unmapped before it is flushed. */
	into->immediate += xs_load_acquire(&from->immediate);
	into->immediate_pages += xs_load_acquire(&from->immediate_pages);
	into->kept_unmaps += xs_load_acquire(&from->kept_unmaps);
	into->unmaps += xs_load_acquire(&from->unmaps);
	into->unmap_extra_pages += xs_load_acquire(&from->unmap_extra_pages);
	into->maps += xs_load(&from->maps);
	into->map_extra_pages += xs_load(&from->map_extra_pages);
	into->immediate_page += xs_load(&from->immediate_page);
	into->immediate_domain += xs_load(&from->immediate_domain);
	into->immediate_global += xs_load(&from->immediate_global);
	into->bad_unmaps += xs_load(&from->bad_unmaps);
	into->identity_writes += xs_load(&from->identity_writes);
	into->identity_misses += xs_load(&from->identity_misses);
	into->stuck_pages += xs_load(&from->stuck_pages);
	into->copied_unmaps += xs_load_acquire(&from->copied_unmaps);
	into->copied_maps += xs_load(&from->copied_maps);
	into->copied_bytes += xs_load(&from->copied_bytes);
	into->copy_misses += xs_load(&from->copy_misses);
}

void xs_stats_add_immediate(struct xs_stats *into,
			    const struct xs_counts *counts)
{
	into->flushes[XS_FLUSH_UNMAP] += counts->immediate;
	into->commands_page += counts->immediate_page;
	into->commands_domain += counts->immediate_domain;
	into->commands_global += counts->immediate_global;
	if (counts->immediate_pages)
		xs_stats_expose(into, 0, counts->immediate_pages);
}

void xs_stats_add(struct xs_stats *into, const struct xs_stats *from)
{
	xs_counts_add(&into->counts, &from->counts);
	into->flushed_pages += from->flushed_pages;
	into->map_failures += from->map_failures;
	into->unstuck_pages += from->unstuck_pages;
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		into->flushes[i] += from->flushes[i];
	into->commands_page += from->commands_page;
	into->commands_domain += from->commands_domain;
	into->commands_global += from->commands_global;
	for (u32 i = 0; i < XS_EXPOSURE_BUCKETS; i++)
		into->exposure[i] += from->exposure[i];
	if (from->exposure_max_ns > into->exposure_max_ns)
		into->exposure_max_ns = from->exposure_max_ns;
}
