// SPDX-License-Identifier: GPL-2.0-only
/*
 * The identity window (core/include/xsmmu/identity.h): what the shadow records of a page there, and
 * invariants 1 and 5 in their form for the window. The mappings of a page share an entry, so:
 *
 * - an entry is written only where no entry and no stale translation is, and is never changed;
 * - an entry is removed only while no driver has the page, and a removed page is not handed out;
 * - a page is handed out only with its entry, that of this page of memory;
 * - a page may be handed out while it is deferred: the stale translations are those of the entry.
 *
 * A running unmap may already have left the page, and a running map may already have the page, as
 * the events of a call are its begin and its return. So a page is unmapped when its last running
 * unmap returns and no driver has the page; while a map of it runs, the flush of a deferred page is
 * not demanded, but it is if the map returns without the page (@due).
 */
#include "check.h"

/* ---- the shadow ---- */

static u32 number_of(const struct shadow_page *page)
{
	return (u32)(page - shadow.pages);
}

static bool is_last_unmap(const struct shadow_page *page, const struct sim_event *event)
{
	return event->a > page->ended && page->unmaps == 1;
}

bool window_is_left(const struct shadow_page *page, const struct sim_event *event)
{
	return page->state == SHADOW_UNMAPPING && !page->maps && is_last_unmap(page, event);
}

static void handed(struct shadow_page *page)
{
	if (page->state == SHADOW_DEFERRED)
		shadow_undefer(number_of(page));
	shadow_end_left(page);
	page->due = false;
	page->reached = false;
	/* The promise is to the driver that has the page now. */
	if (page->memory < SIM_MEMORY)
		page->generation = shadow.memory[page->memory].generation;
	page->users++;
	page->state = SHADOW_MAPPED;
}

static void unmap(struct shadow_page *page, const struct sim_event *event)
{
	u32 any = UNMAP_NOW | UNMAP_TWICE, how = (u32)event->b;

	for (u32 cpu = 0; cpu < sim.config.cpus; cpu++)
		if (cpu == event->cpu || how & UNMAP_TWICE)
			shadow_has_begun(cpu, event->now_ns);
	shadow.cpus[event->cpu].unmapping++;
	shadow.twice |= how & UNMAP_TWICE;
	shadow.unmaps++;
	page->alone = !page->unmaps;
	if (page->unmaps++) {
		how = (page->how & how) | ((page->how | how) & any);
	} else {
		page->begun = shadow.number;
		page->cpus = 0;
		page->may_stay = false;
		page->last = false;
	}
	page->how = (u8)how;
	page->cpus |= 1u << event->cpu;
	page->cpu = event->cpu;
	page->call = event->a;
	page->begun_ns = event->now_ns;
	page->returned = shadow.number;
	if (!--page->users) {
		page->state = SHADOW_UNMAPPING;
		page->last = true;
	}
}

static void left(struct shadow_page *page, const struct sim_event *event)
{
	shadow.cpus[event->cpu].returned = shadow.number;
	if (!window_is_left(page, event) || page->cpus & (page->cpus - 1))
		return;
	page->left = true;
	shadow.cpus[page->cpu].left++;
}

/* The last running unmap returns, and no driver has the page. */
static void unmapped(struct shadow_page *page, const struct sim_event *event, bool may_stay)
{
	bool one = !(page->cpus & (page->cpus - 1));

	shadow_end_left(page);
	if (page->state == SHADOW_STUCK) {
		if (!page->kept && shadow_is_kept(page, event) &&
		    (page->alone || shadow.level >= XS_LEVEL_HELD))
			shadow_keep(page, page->how);
		return;
	}
	shadow_defer(number_of(page), one ? event->cpu : SIM_CPUS, event);
	page->due = page->maps && !may_stay;
}

static void returned(struct shadow_page *page, const struct sim_event *event)
{
	bool may_stay = !event->b && shadow.level < XS_LEVEL_STRICT;
	bool twice = page->how & UNMAP_TWICE;

	shadow.cpus[twice ? page->cpu : event->cpu].unmapping--;
	shadow.cpus[event->cpu].returned = shadow.number;
	shadow.twice &= !twice;
	if (twice)
		page->cpus = 1u << event->cpu;
	if (event->a <= page->ended)
		return;
	page->may_stay |= may_stay;
	if (--page->unmaps)
		return;
	shadow.kept += page->alone && !page->last;
	if (!page->users)
		unmapped(page, event, page->may_stay);
}

static void map_begun(struct shadow_page *page)
{
	if (!page->maps++ && page->state == SHADOW_DEFERRED)
		shadow.cpus[page->cpu].claimed++;
}

static void map_returned(struct shadow_page *page)
{
	if (--page->maps || page->state != SHADOW_DEFERRED)
		return;
	shadow.cpus[page->cpu].claimed--;
	shadow.landed_after |= page->reached;
	page->due = false;
	page->reached = false;
}

/* Unmaps that still run have left the page: their returns tell nothing. */
void window_flushed(struct shadow_page *page)
{
	shadow_end_left(page);
	page->ended = page->call;
	page->unmaps = 0;
	page->due = false;
	page->reached = false;
	shadow.flushes++;
}

void window_event(const struct sim_event *event)
{
	struct shadow_page *page = &shadow.pages[event->page];

	switch (event->kind) {
	case EV_MAP:
		map_begun(page);
		break;
	case EV_MAP_END:
		map_returned(page);
		break;
	case EV_HANDED:
		handed(page);
		break;
	case EV_MAPPED:
		page->told = true;
		break;
	case EV_UNMAP:
		unmap(page, event);
		break;
	case EV_LEFT:
		left(page, event);
		break;
	case EV_UNMAPPED:
		returned(page, event);
		break;
	}
}

/* ---- the checks ---- */

static void check_entry(const struct sim_event *event)
{
	const struct shadow_page *page = &shadow.pages[event->page];

	if (event->a != event->page - sim.window)
		sim_fail("exact", "page %u of the window is mapped to memory page %u",
			 event->page - sim.window, event->a);
	if (page->state != SHADOW_FREE)
		sim_fail("iova", "an entry is written at IOVA page %u, where one is or may be cached",
			 event->page);
}

static void check_handed(const struct sim_event *event)
{
	const struct shadow_page *page = &shadow.pages[event->page];

	if (page->state == SHADOW_FREE || page->state == SHADOW_STUCK || page->removed)
		sim_fail("iova", "IOVA page %u is handed out, and its entry is removed", event->page);
}

/* The map returns without the page: a page that had to be flushed meanwhile is flushed. */
static void check_map_end(const struct sim_event *event)
{
	const struct shadow_page *page = &shadow.pages[event->page];

	if (!event->b && page->maps == 1 && page->due && page->state == SHADOW_DEFERRED)
		sim_fail("points", "IOVA page %u is left unflushed, and a call that flushes it has returned",
			 event->page);
}

void check_window(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_ENTRY:
		check_entry(event);
		break;
	case EV_HANDED:
		check_handed(event);
		break;
	case EV_MAP_END:
		check_map_end(event);
		break;
	}
}
