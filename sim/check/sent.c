// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a sync sends is what docs/levels.md says of its policy, and no more; and a map
 * that finds no IOVA takes from all CPUs what they have only once in a while.
 */
#include "check.h"

/* Each range covers a block at least: the domain is for what ranges are too many for. */
static bool fits(const struct sim_sync *sync, const struct shadow_policy *policy)
{
	u32 most = check_row_of(policy->number).sends;

	if (most == SENDS_SET)
		most = policy->ranges;
	if (sync->ranges)
		return sync->ranges <= most && sync->ranges <= sync->blocks;
	return sync->blocks > most;
}

static u32 ranges_of_maps(const struct shadow_policy *policy)
{
	return check_row_of(policy->number).sends == SENDS_DOMAIN ? 1 : policy->ranges;
}

static void check_commands(const struct sim_sync *sync)
{
	if (sync->cause == XS_SYNC_UNMAP) {
		if (sync->ranges != 1)
			sim_fail("sent", "an unmap that syncs asks for %u ranges", sync->ranges);
		return;
	}
	/* What could not be removed is asked for, too, and is in no block here. */
	if (!sync->refused && !fits(sync, &shadow.now) && !fits(sync, &shadow.before))
		sim_fail("sent", "%u ranges are asked for, of pages in %u blocks, under policy %u (at most %u)",
			 sync->ranges, sync->blocks, shadow.now.number, shadow.now.ranges);
	if (!sync->exact)
		sim_fail("sent", "a range is larger than what was unmapped, or needs more commands");
}

/*
 * What is between maps may be in the range of all of them. And a map syncs those before
 * it only when they are as many, or of as many pages, as can be written down; the map of
 * a task that was interrupted may be one of them.
 */
static void check_map_sync(const struct sim_event *event)
{
	const struct shadow_policy *now = &shadow.now, *before = &shadow.before;
	const struct sim_unsynced *unsynced = (const struct sim_unsynced *)(size_t)event->b;
	u32 most = ranges_of_maps(now);

	if (most < ranges_of_maps(before))
		most = ranges_of_maps(before);
	if (event->pages > most)
		sim_fail("sent", "maps are synced in %u ranges, under policy %u at most %u",
			 event->pages, now->number, most);
	if (event->a && unsynced->maps < XS_UNSYNCED_RUNS && unsynced->pages < 0xffff)
		sim_fail("sent", "a map syncs %u maps, of %llu pages, which nobody has asked for",
			 unsynced->maps, (unsigned long long)unsynced->pages);
}

#define RECLAIM_NS	10000000

/* Could maps have decided to, between begin and first sync, so long after each other? */
static bool are_apart(const struct shadow_reclaim *a, const struct shadow_reclaim *b)
{
	return (s64)(b->synced_ns - a->began_ns) >= RECLAIM_NS ||
	       (s64)(a->synced_ns - b->began_ns) >= RECLAIM_NS;
}

static void check_reclaim(const struct sim_event *event, const struct sim_sync *sync)
{
	const struct shadow_reclaim next = {
		sync->map, sync->map_began_ns, event->now_ns, 1ULL << sync->cpu
	};
	u32 count = sizeof(shadow.reclaims) / sizeof(shadow.reclaims[0]);

	if (sync->cpu == event->cpu || !sync->map)
		return;
	for (u32 i = 0; i < count; i++) {
		struct shadow_reclaim *at = &shadow.reclaims[i];

		if (at->map == next.map) {
			if (at->cpus & next.cpus)
				sim_fail("sent", "a map has synced CPU %u twice", sync->cpu);
			at->cpus |= next.cpus;
			return;
		}
		if (at->map && !are_apart(at, &next))
			sim_fail("sent", "maps have synced other CPUs twice in %llu ns",
				 (unsigned long long)(next.synced_ns - at->began_ns));
	}
	shadow.reclaims[shadow.reclaim++ % count] = next;
}

void check_sent(const struct sim_event *event)
{
	const struct sim_sync *sync = (const struct sim_sync *)(size_t)event->b;

	if (event->kind == EV_MAP_SYNC) {
		check_map_sync(event);
		return;
	}
	check_commands(sync);
	check_reclaim(event, sync);
}
