// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a sync sends is what README.md says of its policy, and no more; and a map
 * that finds no IOVA takes from all CPUs what they have only once in a while.
 */
#include "check.h"

/* One domain command, so many ranges at most, or as many as the operator has set. */
#define SENDS_DOMAIN	0u
#define SENDS_RANGES	32u
#define SENDS_SET	(~0u)

/* In the order of EV_POLICY's numbers. */
static const u32 sends[] = {
	SENDS_RANGES,	/* strict: what was left when it began */
	SENDS_DOMAIN,	/* lazy */
	SENDS_RANGES,	/* fands */
	SENDS_DOMAIN,	/* xsmmu */
	SENDS_SET,	/* fused */
};

/* Each range covers a block at least: the domain is for what ranges are too many for. */
static bool fits(const struct sim_sync *sync, const struct shadow_policy *policy)
{
	u32 most = sends[policy->number];

	if (most == SENDS_SET)
		most = policy->ranges;
	if (sync->ranges)
		return sync->ranges <= most && sync->ranges <= sync->blocks;
	return sync->blocks > most;
}

static void check_commands(const struct sim_sync *sync)
{
	if (sync->cause == XS_SYNC_UNMAP) {
		if (sync->ranges != 1)
			sim_fail("sent", "an unmap that syncs asks for %u ranges", sync->ranges);
		return;
	}
	if (!fits(sync, &shadow.now) && !fits(sync, &shadow.before))
		sim_fail("sent", "%u ranges are asked for, of pages in %u blocks, under policy %u (at most %u)",
			 sync->ranges, sync->blocks, shadow.now.number, shadow.now.ranges);
	if (!sync->exact)
		sim_fail("sent", "a range is larger than what was unmapped, or needs more commands");
}

#define RECLAIM_NS	10000000u

static void check_reclaim(const struct sim_event *event, const struct sim_sync *sync)
{
	if (sync->cpu == event->cpu || !sync->map_began_ns)
		return;
	if (sync->map_began_ns != shadow.reclaimed_ns) {
		shadow.reclaiming_ns = shadow.reclaimed_ns;
		shadow.reclaimed_ns = sync->map_began_ns;
	}
	if (shadow.reclaiming_ns && event->now_ns - shadow.reclaiming_ns < RECLAIM_NS)
		sim_fail("sent", "maps have synced other CPUs twice in %llu ns",
			 (unsigned long long)(event->now_ns - shadow.reclaiming_ns));
}

void check_sent(const struct sim_event *event)
{
	const struct sim_sync *sync = (const struct sim_sync *)(size_t)event->b;

	check_commands(sync);
	check_reclaim(event, sync);
}
