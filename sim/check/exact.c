// SPDX-License-Identifier: GPL-2.0-only
/*
 * Invariant 5: a device can do exactly what the mapping allows: range, permissions, nothing
 * else.
 */
#include "check.h"

/* Alignment of a range: the next power of two, at most a block. */
static u32 align_of(u32 pages)
{
	u32 align = 1;

	while (align < pages && align < BLOCK_PAGES)
		align *= 2;
	return align;
}

static void check_handed(const struct sim_event *event)
{
	if (!event->page || event->page % align_of(event->pages))
		sim_fail("exact", "%u pages are placed at IOVA page %u", event->pages, event->page);
	if (event->a && event->page + event->pages - 1 > event->a)
		sim_fail("exact", "IOVA page %u is above the limit %u",
			 event->page + event->pages - 1, event->a);
}

static void check_mapped(const struct sim_event *event)
{
	u32 fixed = sim.config.first_stage ? ENTRY_READ : 0;

	for (u32 i = 0; i < event->pages; i++) {
		const struct shadow_page *page = &shadow.pages[event->page + i];

		if (page->memory != event->a + i)
			sim_fail("exact", "IOVA page %u is mapped to memory page %u, not %u",
				 event->page + i, page->memory, event->a + i);
		if ((page->prot | fixed) != event->b)
			sim_fail("exact", "IOVA page %u is mapped with permissions %u, not %u",
				 event->page + i, page->prot, (u32)event->b);
	}
}

static void check_removed(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		enum shadow_state state = shadow.pages[i].state;

		if (state != SHADOW_UNMAPPING && state != SHADOW_DEFERRED &&
		    state != SHADOW_STUCK)
			sim_fail("exact", "IOVA page %u is removed but was not unmapped", i);
	}
}

/* A stuck page was unmapped, named by a bad unmap, or lost through bad unmaps. */
static void check_stuck(const struct sim_event *event)
{
	bool named = false;

	for (u32 i = event->page; i < event->page + event->pages; i++)
		named |= shadow.pages[i].named;
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		enum shadow_state state = shadow.pages[i].state;

		if (state == SHADOW_STUCK || state == SHADOW_PLACED ||
		    ((state == SHADOW_MAPPED || state == SHADOW_RESERVED) && !named))
			sim_fail("exact", "IOVA page %u is stuck but was not unmapped", i);
	}
}

static bool may(const struct shadow_page *page, bool write)
{
	if (!write && sim.config.first_stage)
		return true;
	return page->prot & (write ? ENTRY_WRITE : ENTRY_READ);
}

static void check_access(const struct sim_event *event)
{
	const struct shadow_page *page = &shadow.pages[event->page];

	if (!may(page, event->b & ACCESS_WRITE))
		sim_fail("exact", "device %u may not do what it does at IOVA page %u", event->cpu,
			 event->page);
}

static void check_refused(const struct sim_event *event)
{
	const struct shadow_page *page = &shadow.pages[event->page];

	if (page->state == SHADOW_MAPPED && page->serial && page->told && !page->named &&
	    may(page, event->a == ENTRY_WRITE))
		sim_fail("exact", "device %u is refused what is mapped at IOVA page %u", event->cpu,
			 event->page);
}

void check_exact(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_HANDED:
		check_handed(event);
		break;
	case EV_MAPPED:
		check_mapped(event);
		break;
	case EV_REMOVED:
		check_removed(event);
		break;
	case EV_STUCK:
		check_stuck(event);
		break;
	case EV_ACCESS:
		check_access(event);
		break;
	case EV_REFUSED:
		check_refused(event);
		break;
	}
}
