// SPDX-License-Identifier: GPL-2.0-only
/*
 * A flush sends the commands that docs/levels.md gives for the policy, and no more. A map that
 * finds no IOVA asks all CPUs for cached IOVAs only once in a while.
 */
#include "check.h"

/*
 * Each range covers at least a block: a domain command is allowed only if there are too many
 * ranges.
 */
static bool fits(const struct sim_flush *flush, const struct shadow_policy *policy)
{
	u32 most = check_row_of(policy->number).sends;

	if (most == SENDS_SET)
		most = policy->ranges;
	if (flush->ranges)
		return flush->ranges <= most && flush->ranges <= flush->blocks;
	return flush->blocks > most;
}

static u32 ranges_of_maps(const struct shadow_policy *policy)
{
	return check_row_of(policy->number).sends == SENDS_DOMAIN ? 1 : policy->ranges;
}

static void check_commands(const struct sim_flush *flush)
{
	if (flush->nothing) {
		if (!sim.window || flush->cause == XS_FLUSH_UNMAP)
			sim_fail("sent", "a flush of CPU %u sends nothing", flush->cpu);
		return;
	}
	if (flush->cause == XS_FLUSH_UNMAP) {
		if (flush->ranges != 1)
			sim_fail("sent", "an unmap that flushes asks for %u ranges", flush->ranges);
		return;
	}
	/* Refused pages are in the requested ranges, but not among the counted blocks. */
	if (!flush->refused && !fits(flush, &shadow.now) && !fits(flush, &shadow.before))
		sim_fail("sent", "%u ranges are asked for, of pages in %u blocks, under policy %u (at most %u)",
			 flush->ranges, flush->blocks, shadow.now.number, shadow.now.ranges);
	if (!flush->exact)
		sim_fail("sent", "a range is larger than what was unmapped, or needs more commands");
}

/*
 * A flush of maps may use one range over all maps, including pages in between. A map flushes
 * earlier maps only when the record of maps or pages is full; the map of an interrupted task
 * may be among the earlier maps.
 */
static void check_map_flush(const struct sim_event *event)
{
	const struct shadow_policy *now = &shadow.now, *before = &shadow.before;
	const struct sim_unflushed *unflushed = (const struct sim_unflushed *)(size_t)event->b;
	u32 most = ranges_of_maps(now);

	if (most < ranges_of_maps(before))
		most = ranges_of_maps(before);
	if (event->pages > most)
		sim_fail("sent", "maps are flushed in %u ranges, under policy %u at most %u",
			 event->pages, now->number, most);
	if (event->a && unflushed->maps < XS_UNFLUSHED_EXTENTS && unflushed->pages < 0xffff)
		sim_fail("sent", "a map flushes %u maps, of %llu pages, which nobody has asked for",
			 unflushed->maps, (unsigned long long)unflushed->pages);
}

#define RECLAIM_NS	10000000

/*
 * Could two maps have decided to flush at least RECLAIM_NS apart? A map decides between the
 * map's begin and the map's first flush.
 */
static bool are_apart(const struct shadow_reclaim *a, const struct shadow_reclaim *b)
{
	return (s64)(b->flushed_ns - a->began_ns) >= RECLAIM_NS ||
	       (s64)(a->flushed_ns - b->began_ns) >= RECLAIM_NS;
}

static void check_reclaim(const struct sim_event *event, const struct sim_flush *flush)
{
	const struct shadow_reclaim next = {
		flush->map, flush->map_began_ns, event->now_ns, 1ULL << flush->cpu
	};
	u32 count = sizeof(shadow.reclaims) / sizeof(shadow.reclaims[0]);

	if (flush->cpu == event->cpu || !flush->map)
		return;
	for (u32 i = 0; i < count; i++) {
		struct shadow_reclaim *at = &shadow.reclaims[i];

		if (at->map == next.map) {
			if (at->cpus & next.cpus)
				sim_fail("sent", "a map has flushed CPU %u twice", flush->cpu);
			at->cpus |= next.cpus;
			return;
		}
		if (at->map && !are_apart(at, &next))
			sim_fail("sent", "maps have flushed other CPUs twice in %llu ns",
				 (unsigned long long)(next.flushed_ns - at->began_ns));
	}
	shadow.reclaims[shadow.reclaim++ % count] = next;
}

void check_sent(const struct sim_event *event)
{
	const struct sim_flush *flush = (const struct sim_flush *)(size_t)event->b;

	if (event->kind == EV_MAP_FLUSH) {
		check_map_flush(event);
		return;
	}
	check_commands(flush);
	check_reclaim(event, flush);
}
