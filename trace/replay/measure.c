// SPDX-License-Identifier: GPL-2.0-only
/* See measure.h. */
#include "replay.h"
#include "measure.h"

static void advance(struct gauge *gauge)
{
	gauge->area += (double)gauge->now * (double)(replay.now_ns - gauge->since_ns);
	gauge->since_ns = replay.now_ns;
}

void gauge_add(struct gauge *gauge, s64 change)
{
	advance(gauge);
	if (change < 0 && gauge->now < (u64)-change)
		engine_broken("a number of pages falls below 0");
	gauge->now += (u64)change;
	if (gauge->now > gauge->max)
		gauge->max = gauge->now;
}

void gauge_average(struct gauge *gauge)
{
	advance(gauge);
	gauge->mean = replay.now_ns ? gauge->area / (double)replay.now_ns : (double)gauge->now;
}

#define SUBS	(1u << TIMES_SUBS_LG2)

static u32 bucket_of(u64 ns)
{
	u32 shift;

	if (ns < SUBS)
		return (u32)ns;
	shift = xs_log2(ns) - TIMES_SUBS_LG2;
	return (shift << TIMES_SUBS_LG2) + (u32)(ns >> shift);
}

static u64 bucket_last(u32 bucket)
{
	u32 shift = bucket >> TIMES_SUBS_LG2;

	if (bucket < 2 * SUBS)
		return bucket;
	shift--;
	return (((u64)(bucket & (SUBS - 1)) + SUBS + 1) << shift) - 1;
}

void times_add(struct times *times, u64 ns, u64 count)
{
	times->buckets[bucket_of(ns)] += count;
	times->count += count;
	if (ns > times->max_ns)
		times->max_ns = ns;
}

u64 times_between(const struct times *times, u32 lg2)
{
	u32 first = lg2 ? bucket_of(1ULL << lg2) : 0;
	u32 end = lg2 < 63 ? bucket_of(2ULL << lg2) : TIMES_BUCKETS;
	u64 count = 0;

	for (u32 i = first; i < end; i++)
		count += times->buckets[i];
	return count;
}

u64 times_quantile(const struct times *times, double share)
{
	u64 seen = 0, last;

	for (u32 i = 0; i < TIMES_BUCKETS; i++) {
		seen += times->buckets[i];
		if (times->buckets[i] && (double)seen >= share * (double)times->count) {
			last = bucket_last(i);
			return last < times->max_ns ? last : times->max_ns;
		}
	}
	return 0;
}
