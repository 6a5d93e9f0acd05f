// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bound: no deferred unmap is older than the window. A timer may come an eighth of the
 * window late; a later timer moves the bound by the same time, and the check is skipped. The
 * time that a CPU had interrupts off is added, as for users.
 */
#include "check.h"

void check_bound(const struct sim_event *event)
{
	u32 oldest;

	if (!event->a)
		return;
	oldest = shadow_oldest();
	if (oldest) {
		const struct shadow_page *page = &shadow.pages[oldest];
		u64 age_ns = event->now_ns - page->returned_ns;

		if (event->b <= page->window_ns / 8 && age_ns > page->window_ns + event->pages)
			sim_fail("bound", "the unmap of IOVA page %u is deferred for %llu ns, its window is %llu",
				 oldest, (unsigned long long)age_ns,
				 (unsigned long long)page->window_ns);
	}
}
