/* SPDX-License-Identifier: GPL-2.0-only */
/* Figures of a replay: gauges with a time average, and a histogram of times. */
#ifndef REPLAY_MEASURE_H
#define REPLAY_MEASURE_H

#include <xsmmu/needs.h>

/*
 * struct gauge - a number that changes in the recording's time
 * @now, @max:	present and largest value
 * @area:	sum of value times ns up to @since_ns
 * @mean:	average, by gauge_average()
 */
struct gauge {
	u64 now;
	u64 max;
	double area;
	u64 since_ns;
	double mean;
};

/* Change a gauge. Fails the run if the value would fall below 0. */
void gauge_add(struct gauge *gauge, s64 change);

/* Set the average from time 0 to now. */
void gauge_average(struct gauge *gauge);

/*
 * A histogram with 64 buckets for each power of two of ns, so that a quantile is at most 1/64
 * above the true one. Times below 64 ns have buckets of their own.
 */
#define TIMES_SUBS_LG2	6
#define TIMES_BUCKETS	((64 - TIMES_SUBS_LG2 + 1) << TIMES_SUBS_LG2)

struct times {
	u64 count;
	u64 max_ns;
	u64 buckets[TIMES_BUCKETS];
};

void times_add(struct times *times, u64 ns, u64 count);

/* Returns the number of members from 2^@lg2 ns on and below 2^(@lg2 + 1) ns; of 0, with 0 ns. */
u64 times_between(const struct times *times, u32 lg2);

/* Returns the time that @share of all members, 0 to 1, do not exceed. */
u64 times_quantile(const struct times *times, double share);

#endif
