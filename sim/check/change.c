// SPDX-License-Identifier: GPL-2.0-only
/*
 * A policy change: when the call returns, the new level holds for all pages. Pages unmapped
 * meanwhile, under either policy, are flushed or meet the new policy.
 */
#include "check.h"

/* A page that is deferred when the new level begins. */
static void check_left(u32 at, enum xs_level level)
{
	struct shadow_page *page = &shadow.pages[at];

	if (level == XS_LEVEL_STRICT && page->maps) {
		page->due = true;
		return;
	}
	if (level == XS_LEVEL_STRICT)
		sim_fail("change", "IOVA page %u is deferred, and the level is strict now", at);
	if (level >= XS_LEVEL_HELD && page->owned &&
	    shadow.memory[page->memory].generation != page->generation)
		sim_fail("change", "memory page %u is free while devices may reach it, and the level is held now",
			 page->memory);
}

void check_change(const struct sim_event *event)
{
	if (event->a)
		return;
	for (u32 cpu = 0; cpu <= SIM_CPUS; cpu++)
		for (u32 at = shadow.cpus[cpu].oldest; at; at = shadow.pages[at].newer)
			check_left(at, event->pages);
}
