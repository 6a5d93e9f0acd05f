// SPDX-License-Identifier: GPL-2.0-only
/* See count.h. */
#include <string.h>

#include "count.h"

#define SUBS_LG2	5
#define SUBS		(1u << SUBS_LG2)
#define BUCKETS		((64 - SUBS_LG2 + 1) << SUBS_LG2)

struct counts counts;

static u64 exposed[BUCKETS];
static u64 exposed_pages;

const char *limit_name(enum limit limit)
{
	static const char *const names[LIMIT_COUNT] = {
		[LIMIT_LINK] = "link",
		[LIMIT_PCIE] = "pcie",
		[LIMIT_WALKS] = "walks",
		[LIMIT_QUEUE] = "queue",
		[LIMIT_LOCK] = "lock",
		[LIMIT_CPU] = "cpu",
		[LIMIT_SENDER] = "sender",
		[LIMIT_DRIVE] = "drive",
	};

	return names[limit];
}

static u32 bucket_of(u64 ns)
{
	u32 shift;

	if (ns < SUBS)
		return (u32)ns;
	shift = xs_log2(ns) - SUBS_LG2;
	return (shift + 1) * SUBS + (u32)(ns >> shift) - SUBS;
}

/* Returns the largest time of a bucket. */
static u64 bucket_last(u32 bucket)
{
	u32 shift;

	if (bucket < SUBS)
		return bucket;
	shift = bucket / SUBS - 1;
	return ((u64)(bucket % SUBS + SUBS + 1) << shift) - 1;
}

void exposure_add(u64 ns, u64 pages)
{
	exposed[bucket_of(ns)] += pages;
	exposed_pages += pages;
}

u64 exposure_quantile(u64 permille)
{
	u64 rank = (exposed_pages * permille + 999) / 1000, below = 0;

	if (!exposed_pages)
		return 0;
	for (u32 i = 0; i < BUCKETS; i++) {
		below += exposed[i];
		if (below >= rank)
			return bucket_last(i);
	}
	return 0;
}

void counts_reset(void)
{
	memset(&counts, 0, sizeof(counts));
	memset(exposed, 0, sizeof(exposed));
	exposed_pages = 0;
}
