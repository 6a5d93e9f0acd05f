/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rings of all CPUs as one sequence in the order of time, in memory that does not grow.
 *
 * An event has its time a moment before its place in the ring. So an event is given out once the
 * rings have been read after its time plus SLACK, which is longer than that moment but for a
 * stopped CPU; an event that comes later than a younger one was given out gets that one's time, and
 * is counted.
 */
#ifndef RECORD_MERGE_H
#define RECORD_MERGE_H

#include <stdbool.h>
#include <stdint.h>

#include "programs.h"
#include "trace.h"

#define MERGE_EVERY_CPU 0xffffu

struct merge;

/**
 * struct merge_event - an event of the sequence
 * @raw: the event; of kind TRACE_LOST, @bytes is the number and @span_ns the time before
 * @span_ns: see @raw
 * @cpu: CPU, or MERGE_EVERY_CPU
 */
struct merge_event {
	struct raw_event raw;
	uint64_t span_ns;
	uint16_t cpu;
};

/* NULL without memory; @error says so. */
struct merge *merge_new(const struct programs *programs, struct trace_error *error);
void merge_free(struct merge *merge);

/* Reads the rings, and losses; @last: nothing comes after, so all of it is given out. */
void merge_fill(struct merge *merge, bool last);

/* Notes that an unknown (0) or known number of events of all CPUs is missing before the time @ns.
 */
void merge_miss(struct merge *merge, uint64_t ns, uint64_t span_ns, uint64_t events);

/* The next event, which is valid until the next call; NULL if there is none before the next
 * merge_fill(). */
const struct merge_event *merge_next(struct merge *merge);

/* Number of events that were given a later time. */
uint64_t merge_late(const struct merge *merge);
/* Number of lost events of a CPU. */
uint64_t merge_lost(const struct merge *merge, unsigned int cpu);
/* Whether a ring was more than half full at the last merge_fill(). */
bool merge_is_full(const struct merge *merge);

uint64_t merge_now(void);

#endif
