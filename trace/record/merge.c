// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each CPU has a lane: the events that were taken out of its ring, and the losses of which its
 * counter tells. The oldest head of all lanes is next; while a lane has heads older than those of
 * all others, they follow without another look at the others.
 */
#include <bpf/libbpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "merge.h"

#define SLACK_NS 2000000ull
#define STUCK_NS 100000000ull
#define LANE_EVENTS 256
#define NEVER UINT64_MAX

/**
 * struct lane - events of a CPU
 * @ring: its ring
 * @events: taken from the ring; their CPU and span stay
 * @at: next of them
 * @count: number of them
 * @last_ns: time of the last that was given out
 * @lost: events that were lost and told
 * @loss: a loss to be told, if its number is not 0
 * @stuck_ns: since when the ring begins with an unfinished event, 0 if it does not
 */
struct lane {
	struct ring *ring;
	struct merge_event events[LANE_EVENTS];
	unsigned int at;
	unsigned int count;
	uint64_t last_ns;
	uint64_t lost;
	struct merge_event loss;
	uint64_t stuck_ns;
};

/**
 * struct merge - all lanes
 * @programs: the rings' owner
 * @rings: libbpf's
 * @lanes: by CPU
 * @missing: missing events of all CPUs to be told
 * @told: the loss or the missing events that were given out
 * @limit_ns: events up to this time can be given out
 * @last_ns: time of the last event given out
 * @late: number of late events
 * @best: lane whose heads are the oldest, up to @best_until
 * @best_until: time of the oldest head of the others
 * @until_ns: up to this time, events of @best are next
 * @is_full: a ring was more than half full
 * @is_last: no event follows
 */
struct merge {
	const struct programs *programs;
	struct ring_buffer *rings;
	struct lane *lanes;
	struct merge_event missing;
	struct merge_event told;
	uint64_t limit_ns;
	uint64_t last_ns;
	uint64_t late;
	struct lane *best;
	uint64_t best_until;
	uint64_t until_ns;
	bool is_full;
	bool is_last;
};

uint64_t merge_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int take(void *context, void *data, size_t bytes)
{
	struct lane *lane = context;

	if (bytes == sizeof(struct raw_event))
		lane->events[lane->count++].raw = *(struct raw_event *)data;
	return 0;
}

static bool add_ring(struct merge *merge, unsigned int cpu)
{
	int ring = programs_ring(merge->programs, cpu);
	struct lane *lane = &merge->lanes[cpu];

	if (merge->rings) {
		if (ring_buffer__add(merge->rings, ring, take, lane))
			return false;
	} else {
		merge->rings = ring_buffer__new(ring, take, lane, NULL);
		if (!merge->rings)
			return false;
	}
	lane->ring = ring_buffer__ring(merge->rings, cpu);
	lane->loss.cpu = cpu;
	for (unsigned int at = 0; at < LANE_EVENTS; at++)
		lane->events[at].cpu = cpu;
	return true;
}

struct merge *merge_new(const struct programs *programs, struct trace_error *error)
{
	struct merge *merge = calloc(1, sizeof(*merge));
	unsigned int cpus = programs_cpus(programs);

	if (merge)
		merge->lanes = calloc(cpus, sizeof(*merge->lanes));
	if (merge && merge->lanes) {
		merge->programs = programs;
		merge->missing.cpu = MERGE_EVERY_CPU;
		for (unsigned int cpu = 0; cpu < cpus; cpu++) {
			if (!add_ring(merge, cpu))
				break;
			if (cpu + 1 == cpus)
				return merge;
		}
	}
	snprintf(error->text, sizeof(error->text),
		 "no memory for the events of %u CPUs: name a smaller ring with --ring-kib", cpus);
	merge_free(merge);
	return NULL;
}

void merge_free(struct merge *merge)
{
	if (!merge)
		return;
	ring_buffer__free(merge->rings);
	free(merge->lanes);
	free(merge);
}

/* ---- fill ---- */

/* A ring that begins with an unfinished event holds back all younger events, but not for long. */
static void note_stuck(struct merge *merge, struct lane *lane, uint64_t now)
{
	if (lane->count || !ring__avail_data_size(lane->ring)) {
		lane->stuck_ns = 0;
		return;
	}
	if (!lane->stuck_ns)
		lane->stuck_ns = now;
	if (now - lane->stuck_ns < STUCK_NS && lane->last_ns < merge->limit_ns)
		merge->limit_ns = lane->last_ns;
}

static void refill(struct lane *lane)
{
	lane->at = 0;
	lane->count = 0;
	ring__consume_n(lane->ring, LANE_EVENTS);
}

static void note_loss(struct lane *lane, const struct raw_cpu *counts, uint64_t since)
{
	uint64_t lost = __atomic_load_n(&counts->lost, __ATOMIC_ACQUIRE);

	if (lost == lane->lost)
		return;
	if (!lane->loss.raw.bytes)
		lane->loss.span_ns = counts->lost_ns > since ? counts->lost_ns - since : 0;
	else
		lane->loss.span_ns += counts->lost_ns - lane->loss.raw.ns;
	lane->loss.raw.kind = TRACE_LOST;
	lane->loss.raw.ns = counts->lost_ns;
	lane->loss.raw.bytes += lost - lane->lost;
	lane->lost = lost;
}

void merge_fill(struct merge *merge, bool last)
{
	uint64_t before = merge->limit_ns, now = merge_now();
	size_t half = programs_ring_bytes(merge->programs) / 2;

	merge->is_last = last;
	merge->is_full = false;
	merge->limit_ns = last ? NEVER : now - SLACK_NS;
	for (unsigned int cpu = 0; cpu < programs_cpus(merge->programs); cpu++) {
		struct lane *lane = &merge->lanes[cpu];

		if (ring__avail_data_size(lane->ring) > half)
			merge->is_full = true;
		if (lane->at == lane->count)
			refill(lane);
		note_loss(lane, programs_cpu(merge->programs, cpu), before);
		if (!last)
			note_stuck(merge, lane, now);
	}
	merge->best = NULL;
}

void merge_miss(struct merge *merge, uint64_t ns, uint64_t span_ns, uint64_t events)
{
	/* Two gaps that were not told yet become one, of unknown number if one has none. */
	if (merge->missing.raw.kind) {
		span_ns += merge->missing.span_ns;
		events = events && merge->missing.raw.bytes ? events + merge->missing.raw.bytes : 0;
	}
	merge->missing.raw.kind = TRACE_LOST;
	merge->missing.raw.ns = ns;
	merge->missing.raw.bytes = events;
	merge->missing.span_ns = span_ns;
	merge->best = NULL;
}

/* ---- next ---- */

static uint64_t head_ns(const struct lane *lane)
{
	uint64_t ns = lane->at < lane->count ? lane->events[lane->at].raw.ns : NEVER;

	return lane->loss.raw.bytes && lane->loss.raw.ns < ns ? lane->loss.raw.ns : ns;
}

static void find_best(struct merge *merge)
{
	uint64_t best = NEVER;

	merge->best = NULL;
	merge->best_until = NEVER;
	for (unsigned int cpu = 0; cpu < programs_cpus(merge->programs); cpu++) {
		uint64_t ns = head_ns(&merge->lanes[cpu]);

		if (ns < best) {
			merge->best_until = best;
			merge->best = &merge->lanes[cpu];
			best = ns;
		} else if (ns < merge->best_until) {
			merge->best_until = ns;
		}
	}
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Gives out a loss or missing events, which are then told. */
static struct merge_event *tell(struct merge *merge, struct merge_event *event)
{
	merge->told = *event;
	event->raw.kind = 0;
	event->raw.bytes = 0;
	merge->best = NULL;
	return &merge->told;
}

/* The next event of all lanes, NULL if there is none; sets @best and @until_ns. */
static struct merge_event *find_next(struct merge *merge)
{
	struct lane *lane = merge->best;
	uint64_t head;

	if (lane && lane->at == lane->count)
		refill(lane);
	find_best(merge);
	lane = merge->best;
	head = lane ? head_ns(lane) : NEVER;
	if (merge->missing.raw.kind && merge->missing.raw.ns <= smaller(head, merge->limit_ns))
		return tell(merge, &merge->missing);
	if (!lane || head > merge->limit_ns)
		return NULL;
	if (lane->loss.raw.bytes && lane->loss.raw.ns == head)
		return tell(merge, &lane->loss);
	merge->until_ns = smaller(merge->best_until, merge->limit_ns);
	if (lane->loss.raw.bytes)
		merge->until_ns = smaller(merge->until_ns, lane->loss.raw.ns - 1);
	if (merge->missing.raw.kind)
		merge->until_ns = smaller(merge->until_ns, merge->missing.raw.ns - 1);
	return &lane->events[lane->at++];
}

const struct merge_event *merge_next(struct merge *merge)
{
	struct lane *lane = merge->best;
	struct merge_event *event;

	if (lane && lane->at < lane->count && lane->events[lane->at].raw.ns <= merge->until_ns)
		event = &lane->events[lane->at++];
	else
		event = find_next(merge);
	if (!event)
		return NULL;
	if (merge->best)
		merge->best->last_ns = event->raw.ns;
	if (event->raw.ns < merge->last_ns) {
		/* An entry of a list that an interrupt has split is where it belongs: behind its
		 * list. */
		merge->late += event->raw.kind != TRACE_ENTRY;
		event->raw.ns = merge->last_ns;
	}
	merge->last_ns = event->raw.ns;
	return event;
}

uint64_t merge_late(const struct merge *merge)
{
	return merge->late;
}

uint64_t merge_lost(const struct merge *merge, unsigned int cpu)
{
	return merge->lanes[cpu].lost;
}

bool merge_is_full(const struct merge *merge)
{
	return merge->is_full;
}
