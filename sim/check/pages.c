// SPDX-License-Identifier: GPL-2.0-only
/*
 * Invariant 2: at level held, a memory page does not go back to the allocator while a stale
 * translation of the page may exist.
 */
#include "check.h"

/*
 * If the driver freed the memory before the unmap, there was nothing to hold, and the unmap must
 * not be deferred. But if another owner has had the memory since, and freed it, too, the unmap may
 * hold a page of that owner.
 */
static void check_left(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		const struct shadow_page *page = &shadow.pages[i];

		if (shadow_is_left(page, event) && page->serial &&
		    shadow.level >= XS_LEVEL_HELD && page->memory < SIM_MEMORY &&
		    !shadow.memory[page->memory].out &&
		    shadow.memory[page->memory].generation - page->generation < 2)
			sim_fail("pages", "the unmap of IOVA page %u is deferred though memory page %u is free",
				 i, page->memory);
	}
}

static void check_freed(const struct sim_event *event)
{
	for (u32 i = event->a; i < event->a + event->pages; i++)
		if (shadow.memory[i].promised)
			sim_fail("pages", "memory page %u is free while devices may reach it", i);
}

/* A device reached a page with another owner that was promised to be held. */
static void check_access(const struct sim_event *event)
{
	const struct shadow_page *page = &shadow.pages[event->page];

	if (((page->state == SHADOW_DEFERRED && page->level >= XS_LEVEL_HELD) ||
	     page->kept) &&
	    page->generation != shadow.memory[page->memory].generation)
		sim_fail("pages", "device %u reaches memory page %u of another owner", event->cpu,
			 event->a);
}

void check_pages(const struct sim_event *event)
{
	if (event->kind == EV_UNMAPPED)
		check_left(event);
	else if (event->kind == EV_FREED)
		check_freed(event);
	else
		check_access(event);
}
