// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bad unmaps: when the call returns, no device reaches the named pages, and nothing else is
 * removed. The IOVAs stay the driver's until all pages of the mapping are named, or the mapping
 * is unmapped (iova.c).
 */
#include "check.h"

static void check_named(u32 at)
{
	const struct shadow_page *page = &shadow.pages[at];

	/* Some pages of a range have no memory behind them. */
	if (!page->serial || page->state == SHADOW_STUCK)
		return;
	if (page->removed <= page->named)
		sim_fail("torn", "IOVA page %u was named by an unmap that has returned, and is not removed",
			 at);
	if (page->covered < page->removed && shadow.all_covered < page->removed)
		sim_fail("torn", "IOVA page %u was named by an unmap that has returned, and no invalidation covers it",
			 at);
}

/* Gone pages are removed again before the IOVAs get another owner. */
static void check_removed(u32 at)
{
	const struct shadow_page *page = &shadow.pages[at];

	if (!page->named && page->state != SHADOW_FREE)
		sim_fail("torn", "IOVA page %u is removed, and no unmap has named it", at);
}

void check_torn(const struct sim_event *event)
{
	if (event->kind == EV_ACCESS) {
		if (shadow.pages[event->page].out)
			sim_fail("torn", "device %u reaches IOVA page %u, which an unmap has named",
				 event->cpu, event->page);
		return;
	}
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		if (event->kind == EV_NAMED_END)
			check_named(i);
		else
			check_removed(i);
	}
}
