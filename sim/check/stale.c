// SPDX-License-Identifier: GPL-2.0-only
/*
 * Invariant 3: when a flush returns, no stale translation of the flushed pages exists. Checked
 * in two ways: a device never reaches memory through a stale translation, and each page
 * reported as flushed was removed and then invalidated.
 */
#include "check.h"

static void check_flushed(u32 at)
{
	const struct shadow_page *page = &shadow.pages[at];

	if (page->state != SHADOW_UNMAPPING && page->state != SHADOW_DEFERRED &&
	    page->state != SHADOW_STUCK)
		sim_fail("stale", "IOVA page %u is flushed but was not unmapped", at);
	if (!page->removed)
		sim_fail("stale", "IOVA page %u is flushed but was not removed", at);
	if (page->covered < page->removed && shadow.all_covered < page->removed)
		sim_fail("stale", "IOVA page %u is flushed but no invalidation covers it", at);
}

void check_stale(const struct sim_event *event)
{
	const struct shadow_page *page = &shadow.pages[event->page];

	if (event->kind == EV_FLUSHED) {
		for (u32 i = event->page; i < event->page + event->pages; i++)
			check_flushed(i);
		return;
	}
	if (page->state == SHADOW_FREE)
		sim_fail("stale", "device %u reaches memory page %u by IOVA page %u after its flush",
			 event->cpu, event->a, event->page);
	else if ((u32)event->b != page->serial)
		sim_fail("stale", "device %u reaches memory page %u by IOVA page %u as it was mapped before",
			 event->cpu, event->a, event->page);
}
