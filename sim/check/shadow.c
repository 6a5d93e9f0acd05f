// SPDX-License-Identifier: GPL-2.0-only
/* Records the state that the events imply; see check.h. */
#include "check.h"

struct shadow shadow;

/* ---- deferred pages, by CPU, in the order in which their unmaps returned ---- */

static void list_add(u32 page, u32 cpu)
{
	struct shadow_page *at = &shadow.pages[page];

	at->older = shadow.cpus[cpu].newest;
	at->newer = 0;
	if (at->older)
		shadow.pages[at->older].newer = (u16)page;
	else
		shadow.cpus[cpu].oldest = (u16)page;
	shadow.cpus[cpu].newest = (u16)page;
	shadow.cpus[cpu].pages++;
	shadow.cpus[cpu].claimed += at->maps > 0;
}

static void list_remove(u32 page)
{
	const struct shadow_page *at = &shadow.pages[page];

	if (at->newer)
		shadow.pages[at->newer].older = at->older;
	else
		shadow.cpus[at->cpu].newest = at->older;
	if (at->older)
		shadow.pages[at->older].newer = at->newer;
	else
		shadow.cpus[at->cpu].oldest = at->newer;
	shadow.cpus[at->cpu].pages--;
	shadow.cpus[at->cpu].claimed -= at->maps > 0;
}

u32 shadow_oldest(void)
{
	u32 oldest = 0;

	for (u32 i = 0; i <= SIM_CPUS; i++) {
		u32 page = shadow.cpus[i].oldest;

		/* The map may have made it a driver's again. */
		while (page && shadow.pages[page].maps)
			page = shadow.pages[page].newer;
		if (page && (!oldest ||
			     shadow.pages[page].returned < shadow.pages[oldest].returned))
			oldest = page;
	}
	return oldest;
}

/* ---- blocks ---- */

static struct shadow_block *block_of(u32 page)
{
	return &shadow.blocks[page / BLOCK_PAGES];
}

/* An unmapped page of a block is flushed, or stuck. The window has no blocks. */
static void end_dead(u32 page)
{
	if (!sim_is_window(page))
		block_of(page)->dead--;
}

/* ---- events ---- */

static void handed(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++)
		shadow.pages[i].state = event->b ? SHADOW_RESERVED : SHADOW_MAPPED;
}

static void dropped(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++)
		shadow.pages[i].state = SHADOW_FREE;
}

static void entry(const struct sim_event *event)
{
	for (u32 i = 0; i < event->pages; i++) {
		struct shadow_page *page = &shadow.pages[event->page + i];
		u32 memory = event->a + i;

		page->memory = memory;
		page->serial = entry_serial(event->b);
		page->prot = event->b & ENTRY_PROT;
		page->generation = memory < SIM_MEMORY ? shadow.memory[memory].generation : 0;
		page->removed = 0;
		page->covered = 0;
		page->told = false;
		page->named = 0;
		page->out = false;
		shadow.entries += sim_is_window(event->page + i);
		page->state = page->state == SHADOW_RESERVED ? SHADOW_MAPPED : SHADOW_PLACED;
	}
}

static void undone(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		struct shadow_page *page = &shadow.pages[i];

		page->memory = EV_NO_MEMORY;
		page->serial = 0;
		page->state = page->state == SHADOW_MAPPED ? SHADOW_RESERVED : SHADOW_FREE;
	}
}

void shadow_has_begun(u32 at, u64 begun_ns)
{
	struct shadow_cpu *cpu = &shadow.cpus[at];

	if (!cpu->waits || begun_ns < cpu->begun_ns)
		cpu->begun_ns = begun_ns;
	cpu->waits = true;
}

static void unmap(const struct sim_event *event)
{
	if (event->b & UNMAP_TWICE)
		shadow.twice = true;
	for (u32 cpu = 0; cpu < sim.config.cpus; cpu++)
		if (cpu == event->cpu || event->b & UNMAP_TWICE)
			shadow_has_begun(cpu, event->now_ns);
	shadow.cpus[event->cpu].unmapping += event->pages;
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		struct shadow_page *page = &shadow.pages[i];

		page->state = SHADOW_UNMAPPING;
		page->call = event->a;
		page->cpu = event->cpu;
		page->how = (u8)event->b;
		page->begun = shadow.number;
		page->begun_ns = event->now_ns;
		page->returned = shadow.number;
		block_of(i)->dead++;
	}
}

bool shadow_is_left(const struct shadow_page *page, const struct sim_event *event)
{
	if (sim_is_window((u32)(page - shadow.pages)))
		return window_is_left(page, event);
	return page->state == SHADOW_UNMAPPING && page->call == event->a;
}

/* Is the page's memory of a kind that can be freed, and not freed since the map? */
static bool is_owned(const struct shadow_page *page)
{
	return page->serial && page->memory < SIM_MEMORY &&
	       shadow.memory[page->memory].generation == page->generation;
}

void shadow_end_left(struct shadow_page *page)
{
	shadow.cpus[page->cpu].left -= page->left;
	page->left = false;
}

/*
 * The page's unmap and the driver's flush have returned, or the page is flushed. A page of the
 * window may have several unmaps, which end by their returns.
 */
static void leave_call(struct shadow_page *page)
{
	if (!sim_is_window((u32)(page - shadow.pages)))
		shadow.cpus[page->cpu].unmapping--;
	shadow_end_left(page);
}

/* All pages of a block are unmapped now. */
static void note_empty(u32 page)
{
	if (block_of(page)->dead == BLOCK_PAGES && shadow.empty_count < SHADOW_EMPTY)
		shadow.empty[shadow.empty_count++] = page / BLOCK_PAGES;
}

/* A stuck page's memory must not go back, although the driver gives up the memory now. */
void shadow_keep(struct shadow_page *page, u32 how)
{
	page->kept = sim.config.remembers && how & UNMAP_HOLDABLE && is_owned(page);
	if (page->kept)
		shadow.memory[page->memory].promised++;
}

/*
 * Must a stuck page's memory be held from @event, the unmap's return, on? Not if the policy
 * releases memory before the removal; of a batch-aware driver's mappings, only single pages
 * must be held.
 */
bool shadow_is_kept(const struct shadow_page *page, const struct sim_event *event)
{
	if (page->how & UNMAP_AWARE)
		return event->b && event->pages == 1;
	if (event->pages > BLOCK_PAGES)
		return false;
	return page->how & UNMAP_NOW ||
	       (shadow.level >= XS_LEVEL_HELD && shadow.changed < page->begun);
}

/* The page is deferred from the return of its unmap on. @cpu: SIM_CPUS if it is uncertain. */
void shadow_defer(u32 at, u32 cpu, const struct sim_event *event)
{
	struct shadow_page *page = &shadow.pages[at];

	page->level = shadow.level;
	page->window_ns = shadow.window_ns;
	page->owned = is_owned(page);
	/* Memory that was freed before the unmap is not promised. */
	if (!page->owned && page->level >= XS_LEVEL_HELD)
		page->level = XS_LEVEL_BOUNDED;
	if (page->level >= XS_LEVEL_HELD)
		shadow.memory[page->memory].promised++;
	page->state = SHADOW_DEFERRED;
	page->cpu = (u8)cpu;
	page->returned = shadow.number;
	page->returned_ns = event->now_ns;
	list_add(at, cpu);
}

/* The page is deferred no more. */
void shadow_undefer(u32 at)
{
	struct shadow_page *page = &shadow.pages[at];

	if (page->level >= XS_LEVEL_HELD)
		shadow.memory[page->memory].promised--;
	list_remove(at);
}

static void unmapped(const struct sim_event *event)
{
	if (shadow.pages[event->page].how & UNMAP_TWICE)
		shadow.twice = false;
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		struct shadow_page *page = &shadow.pages[i];

		if (page->state == SHADOW_STUCK && page->call == event->a &&
		    !page->kept && shadow_is_kept(page, event))
			shadow_keep(page, page->how);
		if (!shadow_is_left(page, event))
			continue;
		leave_call(page);
		shadow_defer(i, event->cpu, event);
	}
	note_empty(event->page);
}

static void mapped(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++)
		shadow.pages[i].told = true;
}

static void left(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		struct shadow_page *page = &shadow.pages[i];

		if (!shadow_is_left(page, event))
			continue;
		page->left = true;
		shadow.cpus[page->cpu].left++;
	}
	note_empty(event->page);
}

static void removed(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++)
		shadow.pages[i].removed = shadow.number;
}

static void gone(struct shadow_page *page)
{
	page->state = SHADOW_FREE;
	page->serial = 0;
	page->memory = EV_NO_MEMORY;
	page->named = 0;
	page->out = false;
}

/*
 * A page of the window that one driver has freed before its unmap may have become another driver's,
 * who also has the page in the window, and be of a kind that cannot be held.
 */
static bool could_hold(const struct shadow_page *page)
{
	return !sim_is_window((u32)(page - shadow.pages)) || page->how & UNMAP_HOLDABLE;
}

static void stuck(const struct sim_event *event)
{
	shadow.stuck += event->pages;
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		struct shadow_page *page = &shadow.pages[i];

		page->kept = page->state == SHADOW_DEFERRED && page->level >= XS_LEVEL_HELD &&
			     could_hold(page);
		page->out = false;
		if (page->state == SHADOW_DEFERRED)
			shadow_undefer(i);
		else if (page->state == SHADOW_UNMAPPING)
			leave_call(page);
		if (page->state == SHADOW_DEFERRED || page->state == SHADOW_UNMAPPING)
			end_dead(i);
		else
			page->call = 0;
		if (page->kept)
			shadow.memory[page->memory].promised++;
		page->state = SHADOW_STUCK;
	}
}

static void named(const struct sim_event *event)
{
	for (u32 i = event->page; i < event->page + event->pages; i++) {
		struct shadow_page *page = &shadow.pages[i];

		if (event->kind == EV_GONE && page->state == SHADOW_STUCK)
			shadow_keep(page, event->pages <= BLOCK_PAGES ? (u32)event->b : 0);
		else if (event->kind == EV_GONE)
			gone(page);
		else
			page->out = event->kind == EV_NAMED_END &&
				    page->state != SHADOW_STUCK;
		if (event->kind == EV_NAMED)
			page->named = shadow.number;
	}
}

static void flushed(u32 at, u64 now_ns, struct shadow_cpu *runs)
{
	struct shadow_page *page = &shadow.pages[at];

	if (page->state == SHADOW_DEFERRED) {
		u64 exposed_ns = now_ns - page->returned_ns;

		if (exposed_ns)
			shadow.exposed[xs_log2(exposed_ns)]++;
		if (exposed_ns > shadow.exposed_max_ns)
			shadow.exposed_max_ns = exposed_ns;
		if (exposed_ns > runs->flushed_age_ns)
			runs->flushed_age_ns = exposed_ns;
		shadow_undefer(at);
	} else if (page->state == SHADOW_STUCK) {
		shadow.stuck--;
		if (page->kept)
			shadow.memory[page->memory].promised--;
		page->kept = false;
		page->named = 0;
	} else {
		leave_call(page);
	}
	if (page->state != SHADOW_STUCK)
		end_dead(at);
	if (sim_is_window(at))
		window_flushed(page);
	page->state = SHADOW_FREE;
	page->serial = 0;
	page->memory = EV_NO_MEMORY;
}

/* A flush of a batch; unmaps of other CPUs wait while the flush runs. */
static void finished(const struct sim_event *event)
{
	const struct sim_flush *flush = (const struct sim_flush *)(size_t)event->b;
	struct shadow_cpu *cpu = &shadow.cpus[flush->cpu];

	if (flush->cause == XS_FLUSH_UNMAP)
		return;
	if (flush->cause != XS_FLUSH_BLOCK)
		cpu->emptied = flush->since;
	cpu->waits = cpu->pages || cpu->unmapping || shadow.twice || cpu->returned > cpu->emptied;
	shadow.cpus[event->cpu].flushed_age_ns = 0;
}

static void command(const struct sim_event *event)
{
	if (event->a)
		return;
	if (!event->pages)
		shadow.all_covered = shadow.number;
	for (u32 i = event->page; i < event->page + event->pages; i++)
		if (i < SIM_PAGES)
			shadow.pages[i].covered = shadow.number;
	for (u32 i = 0; !event->b && i < shadow.unlinked_count; i++) {
		struct shadow_table *table = &shadow.tables[shadow.unlinked[i]];

		if (!event->pages || (event->page < table->page + table->pages &&
				      table->page < event->page + event->pages))
			table->covered = shadow.number;
	}
}

static void table_event(const struct sim_event *event)
{
	struct shadow_table *table = &shadow.tables[event->a];

	if (event->kind == EV_TABLE_UNLINKED) {
		table->unlinked = shadow.number;
		table->covered = 0;
		table->page = event->page;
		table->pages = event->pages;
		shadow.unlinked[shadow.unlinked_count++] = event->a;
		return;
	}
	for (u32 i = 0; i < shadow.unlinked_count; i++)
		if (shadow.unlinked[i] == event->a)
			shadow.unlinked[i] = shadow.unlinked[--shadow.unlinked_count];
}

/*
 * The new level holds for all pages still deferred; check/change.c checks which pages may be
 * deferred.
 */
static void renew(void)
{
	for (u32 cpu = 0; cpu <= SIM_CPUS; cpu++)
		for (u32 at = shadow.cpus[cpu].oldest; at; at = shadow.pages[at].newer) {
			struct shadow_page *page = &shadow.pages[at];

			page->window_ns = shadow.window_ns;
			if (page->level < XS_LEVEL_HELD && shadow.level >= XS_LEVEL_HELD &&
			    page->owned) {
				page->level = shadow.level;
				shadow.memory[page->memory].promised++;
			}
		}
}

/*
 * During a change, the weaker level and the longer window hold, and flush points of both
 * policies count.
 */
static void policy(const struct sim_event *event)
{
	struct shadow_policy next = {
		.number = event->page,
		.level = event->pages,
		.ranges = RANGES_OF(event->b),
		.batch = BATCH_OF(event->b),
	};
	u32 points = check_row_of(next.number).points;
	bool changing = event->a;

	shadow.before = changing ? shadow.now : next;
	shadow.now = next;
	shadow.points = changing ? shadow.points & points : points;
	if (!changing || next.level < shadow.level)
		shadow.level = next.level;
	if (!changing || WINDOW_OF(event->b) > shadow.window_ns)
		shadow.window_ns = WINDOW_OF(event->b);
	for (u32 cpu = 0; cpu < sim.config.cpus; cpu++)
		for (u32 i = 0; i < shadow.calling[cpu]; i++)
			shadow.call_points[cpu][i] &= shadow.points;
	shadow.changing = changing;
	shadow.changed = shadow.number;
	shadow.empty_count = 0;
	if (!changing)
		renew();
}

static void memory(const struct sim_event *event)
{
	for (u32 i = event->a; i < event->a + event->pages; i++) {
		shadow.memory[i].out = event->kind == EV_ALLOCATED;
		shadow.memory[i].generation += event->kind == EV_FREED;
	}
}

/* Events of the page table and of the IOMMU. */
static void hardware(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_ENTRY:
		entry(event);
		break;
	case EV_UNDONE:
		undone(event);
		break;
	case EV_REMOVED:
	case EV_PART_REMOVED:
		removed(event);
		break;
	case EV_TABLE_UNLINKED:
	case EV_TABLE_FREED:
		table_event(event);
		break;
	case EV_COMMAND:
		command(event);
		break;
	}
}

/* Events of a mapping. */
static void mapping(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_HANDED:
		handed(event);
		break;
	case EV_DROPPED:
		dropped(event);
		break;
	case EV_MAPPED:
		mapped(event);
		break;
	case EV_UNMAP:
		unmap(event);
		break;
	case EV_UNMAPPED:
		unmapped(event);
		break;
	case EV_LEFT:
		left(event);
		break;
	}
}

void shadow_event(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_POLICY:
		policy(event);
		break;
	case EV_ALLOCATED:
	case EV_FREED:
		memory(event);
		break;
	case EV_HANDED:
	case EV_DROPPED:
	case EV_MAPPED:
	case EV_UNMAP:
	case EV_UNMAPPED:
	case EV_LEFT:
	case EV_MAP:
	case EV_MAP_END:
		if (sim_is_window(event->page))
			window_event(event);
		else
			mapping(event);
		break;
	case EV_NAMED:
	case EV_NAMED_END:
	case EV_GONE:
		named(event);
		break;
	case EV_STUCK:
		stuck(event);
		break;
	case EV_FLUSHED:
		for (u32 i = event->page; i < event->page + event->pages; i++)
			flushed(i, event->now_ns, &shadow.cpus[event->cpu]);
		break;
	case EV_FLUSH:
		finished(event);
		break;
	case EV_CALL:
		shadow.call_points[event->cpu][shadow.calling[event->cpu]] = shadow.points;
		shadow.called[event->cpu][shadow.calling[event->cpu]++] = shadow.number;
		break;
	case EV_RETURN:
		shadow.calling[event->cpu]--;
		break;
	default:
		hardware(event);
		break;
	}
}
