// SPDX-License-Identifier: GPL-2.0-only
/* Counts and time; see tally.h. */
#include <string.h>

#include "hash_map.h"
#include "tally.h"

u32 scale_cpu;
struct tally tally;
bool tally_on;

static bool started;
static u64 clocks[SCALE_CPUS];

/* Transfers by instruction. */
static struct map sites = MAP_OF(u64);

/* Intervals in which a lock was held: the last ones, with the holder. */
#define HOLDS 8

struct hold {
	u64 taken_ns;
	u64 dropped_ns;
	u32 cpu;
};

struct holds {
	struct hold at[HOLDS];
	u32 next;
};

static struct map locks_held = MAP_OF(struct holds);

void tally_start(void)
{
	memset(&tally, 0, sizeof(tally));
	started = true;
}

bool tally_started(void)
{
	return started;
}

u64 tally_now(void)
{
	return clocks[scale_cpu];
}

void tally_spend(u64 ns)
{
	clocks[scale_cpu] += ns;
}

u32 tally_next_cpu(u32 cpus)
{
	u32 next = 0;

	for (u32 i = 1; i < cpus; i++)
		if (clocks[i] < clocks[next])
			next = i;
	return next;
}

void tally_event(enum line_class class, enum line_event event, u64 pc)
{
	if (event == LINE_HIT)
		tally_spend(TALLY_ACCESS_NS);
	else
		tally_spend(event == LINE_COLD ? TALLY_COLD_NS : TALLY_TRANSFER_NS);
	tally.events[class][event]++;
	if (pc && started && line_is_transfer(event))
		++*(u64 *)map_at(&sites, pc);
}

enum line_event tally_read(struct line *line, enum line_class class, u64 pc)
{
	enum line_event event = line_read(line, scale_cpu);

	tally_event(class, event, pc);
	return event;
}

enum line_event tally_write(struct line *line, enum line_class class, u64 pc)
{
	enum line_event event = line_write(line, scale_cpu);

	tally_event(class, event, pc);
	return event;
}

/* Returns the time at which another CPU drops the lock, 0: the lock is free. */
static u64 busy_until(const struct holds *holds)
{
	u64 now = tally_now();

	for (u32 i = 0; i < HOLDS; i++)
		if (holds->at[i].cpu != scale_cpu && holds->at[i].taken_ns <= now &&
		    now < holds->at[i].dropped_ns)
			return holds->at[i].dropped_ns;
	return 0;
}

void tally_lock(struct tally_locks *locks, u64 address, bool fetched)
{
	struct holds *holds = map_at(&locks_held, address);
	u64 start = tally_now(), until;

	while ((until = busy_until(holds)))
		clocks[scale_cpu] = until;
	locks->taken++;
	locks->fetched += fetched;
	locks->waits += tally_now() != start;
	if (tally_now() - start > locks->longest_ns)
		locks->longest_ns = tally_now() - start;
	holds->at[holds->next] = (struct hold) { tally_now(), 0, scale_cpu };
}

void tally_unlock(u64 address)
{
	struct holds *holds = map_at(&locks_held, address);

	holds->at[holds->next].dropped_ns = tally_now();
	holds->next = (holds->next + 1) % HOLDS;
}

/* ---- stretches ---- */

struct tally_stretches tally_stretches;

void tally_stretch_begin(struct tally_stretch *stretch)
{
	if (stretch->depth++)
		return;
	stretch->accesses = tally.accesses;
	stretch->flushes = tally.flushes;
}

void tally_stretch_end(struct tally_stretch *stretch)
{
	u64 accesses = tally.accesses - stretch->accesses;
	u64 flushes = tally.flushes - stretch->flushes;

	if (!stretch->depth)
		scale_fail("a stretch ends that has not begun");
	if (--stretch->depth)
		return;
	if (accesses > stretch->most_accesses)
		stretch->most_accesses = accesses;
	if (flushes > stretch->most_flushes)
		stretch->most_flushes = flushes;
}

void tally_sites(void (*tell)(u64 pc, u64 transfers))
{
	for (u64 i = 0; sites.size_lg2 && i < 1ULL << sites.size_lg2; i++)
		if (sites.keys[i])
			tell(sites.keys[i] - 1, ((u64 *)sites.values)[i]);
}
