// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reported level is never stronger than observed. Nothing stale is left when the unmap
 * returns under strict, when the caller asked for a flush, or when the mapping is large.
 */
#include "check.h"

static void check_left(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		const struct shadow_page *page = &shadow.pages[i];

		if (!shadow_is_left(page, event))
			continue;
		/* Another unmap of the page of the window may have been the last. */
		if (page->may_stay)
			continue;
		if (event->b || event->pages > BLOCK_PAGES)
			sim_fail("level", "IOVA page %u is left by an unmap that flushes at once", i);
		if (shadow.level == XS_LEVEL_STRICT)
			sim_fail("level", "IOVA page %u is deferred, and the level is strict", i);
		if (page->how & UNMAP_MANY && !(page->how & UNMAP_AWARE) &&
		    shadow.level == XS_LEVEL_HELD && shadow.changed < page->begun)
			sim_fail("level", "IOVA page %u is deferred, and held by more than %u references",
				 i, XS_HOLDS_MAX);
	}
}

/* A batch-aware driver's unmap waits for the driver's own flush only where the policy allows. */
static void check_aware(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		const struct shadow_page *page = &shadow.pages[i];

		if (shadow_is_left(page, event) && shadow.points & POINT_UNMAP &&
		    !shadow.changing && shadow.changed < page->begun)
			sim_fail("level", "IOVA page %u is left by a batch-aware driver's unmap, and each unmap flushes",
				 i);
	}
}

static void see(const struct sim_event *event)
{
	struct shadow_page *page = &shadow.pages[event->page];

	if (page->state != SHADOW_DEFERRED)
		return;
	if (page->maps) {
		page->reached = true;
		return;
	}
	shadow.landed_after = true;
	if (page->owned &&
	    shadow.memory[page->memory].generation != page->generation)
		shadow.landed_reused = true;
}

void check_level(const struct sim_event *event)
{
	if (event->kind == EV_UNMAPPED)
		check_left(event);
	else if (event->kind == EV_LEFT)
		check_aware(event);
	else
		see(event);
}

enum xs_level check_observed_level(void)
{
	if (!shadow.landed_after)
		return XS_LEVEL_STRICT;
	return shadow.landed_reused ? XS_LEVEL_BOUNDED : XS_LEVEL_HELD;
}
