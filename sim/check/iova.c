// SPDX-License-Identifier: GPL-2.0-only
/* Invariant 1: no IOVA is handed out while a stale translation of it may exist. */
#include "check.h"

static void complain(u32 page, const char *how)
{
	const struct shadow_page *at = &shadow.pages[page];

	if (at->state == SHADOW_STUCK)
		sim_fail("iova", "IOVA page %u is %s while it is stuck", page, how);
	if (at->state == SHADOW_DEFERRED || at->state == SHADOW_UNMAPPING)
		sim_fail("iova", "IOVA page %u is %s while a stale translation of it may exist", page,
			 how);
	sim_fail("iova", "IOVA page %u is %s while it is a driver's", page, how);
}

void check_iova(const struct sim_event *event)
{
	if (sim_is_window(event->page)) {
		check_window(event);
		return;
	}
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		enum shadow_state state = shadow.pages[i].state;

		if (event->kind == EV_ENTRY) {
			if (state != SHADOW_FREE && state != SHADOW_RESERVED)
				complain(i, "mapped");
		} else if (state != (event->b ? SHADOW_FREE : SHADOW_PLACED)) {
			complain(i, "handed out");
		}
	}
}
