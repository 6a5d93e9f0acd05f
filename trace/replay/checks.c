// SPDX-License-Identifier: GPL-2.0-only
/* See checks.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "check_world.h"
#include "checks.h"
#include "memory.h"
#include "numbers.h"
#include "replay.h"
#include "world.h"

/* Of sim/check/check.h, which has another shadow than the world's. */
void check_begin(void);
void check_event(const struct sim_event *event);
enum xs_level check_observed_level(void);

/* IOVA pages that the device tries again after their unmap, in turn. */
#define TRIED	64u

/* Page-table pages of an invalidation that the checkers see; all are covered alike. */
#define TABLES	64u

/*
 * struct unmapping - an unmap that has not ended
 * @number:	of the first page
 * @folios:	memory of each page
 */
struct unmapping {
	u32 number;
	u32 pages;
	u32 serial;
	bool now;
	u32 *folios;
};

/* Unmaps of a CPU that wait for the driver's flush. */
struct waiting {
	struct unmapping *unmaps;
	u32 count;
	u32 room;
};

struct world *checks_world;
struct sim_world sim;

/*
 * @cpus:	the checkers' number of a CPU, plus 1; 0: none yet
 * @calls:	running calls of the engine; @causes: flushes that the call may do; @since: event
 *		before the call
 * @single:	page of the window that the running map may get, 0: none
 * @map:	number of the running map, 0: none
 * @entries:	of each numbered page: serial, and ACCESS_WRITE if a device may write
 * @removed:	extents removed since the last invalidation; @tables: page-table pages freed by this
 * @asked:	the invalidation of the running call that was not reported as a flush
 * @out:	folios that drivers or the engine have
 */
static struct {
	u8 *cpus;
	u64 events, accesses;
	u64 time_ns;
	u32 calls, causes;
	u64 since;
	u32 single;
	u64 map, map_began_ns;
	u32 entry_serial, unmap_serial;
	u64 entries[SIM_PAGES];
	struct xs_range *removed;
	u32 removed_count, removed_room;
	u32 tables;
	struct sim_flush asked;
	struct unmapping unmap;
	struct waiting *waiting;
	u64 tried[TRIED];
	u32 tried_at;
	u64 out;
	u64 maps, mapped_pages, unmaps, unmapped_pages;
	u64 commands_page, commands_domain;
	u64 flushes[XS_FLUSH_COUNT];
} state;

void sim_fail(const char *checker, const char *format, ...)
{
	char text[200];
	va_list words;

	va_start(words, format);
	vsnprintf(text, sizeof(text), format, words);
	va_end(words);
	replay_violated(0, "checker %s: %s", checker, text);
}

static u8 cpu_number(u32 cpu)
{
	u32 most = sim.window ? SIM_WINDOW_CPUS : SIM_CPUS;

	if (!state.cpus[cpu]) {
		if (sim.config.cpus == most)
			replay_stop("drivers run on more than %u CPUs, too many for the checkers: replay without --check",
				    most);
		state.cpus[cpu] = (u8)++sim.config.cpus;
	}
	return (u8)(state.cpus[cpu] - 1);
}

static void tell(enum sim_event_kind kind, u32 page, u32 pages, u32 a, u64 b)
{
	struct sim_event event = {
		.kind = (u8)kind, .cpu = cpu_number(running_cpu), .page = page, .pages = pages,
		.a = a, .b = b, .now_ns = replay.now_ns, .calls = state.calls,
	};

	state.events++;
	check_event(&event);
}

/* ---- memory ---- */

/* Returns the page of memory that a folio is to the checkers. */
static u32 memory_number(u32 folio)
{
	if (folio >= SIM_MEMORY)
		replay_stop("more than %u buffers are in use at once, too many for the checkers: replay without --check",
			    SIM_MEMORY);
	return folio;
}

void checks_take(u32 folio)
{
	struct folio *at = memory_at(folio);

	if (at->out)
		return;
	/* Registers of a device never go back to the allocator. */
	at->out = !at->registers;
	state.out += at->out;
	tell(EV_ALLOCATED, 0, 1, memory_number(folio), 0);
}

void checks_freed(u32 folio)
{
	memory_at(folio)->out = false;
	state.out--;
	tell(EV_FREED, 0, 1, memory_number(folio), 0);
}

static bool in_window(u64 page)
{
	return page >= checks_world->shadow.identity;
}

static u32 folio_in_window(u64 page)
{
	return memory_of((page - checks_world->shadow.identity) << XS_PAGE_LG2);
}

/* Returns the number of a page that is in use. */
static u32 number_at(u64 page)
{
	return number_of(page, in_window(page) ? folio_in_window(page) : 0);
}

/* ---- calls of the engine ---- */

void checks_call(u32 causes)
{
	static const struct sim_flush nothing = { .nothing = true, .exact = true };

	state.since = state.events;
	state.asked = nothing;
	state.causes = causes;
	state.calls++;
}

void checks_return(void)
{
	state.calls--;
	state.map = 0;
}

static void flush_begin(enum sim_call call, enum xs_flush_point cause)
{
	checks_call(XS_FLUSH_BIT(cause));
	tell(EV_CALL, cpu_number(running_cpu), 0, call, 0);
}

static void flush_end(enum sim_call call)
{
	checks_return();
	tell(EV_RETURN, cpu_number(running_cpu), 0, call, 0);
}

void checks_poll(void)
{
	flush_begin(CALL_POLL, XS_FLUSH_POLL);
}

void checks_poll_end(void)
{
	flush_end(CALL_POLL);
}

void checks_drain(void)
{
	flush_begin(CALL_FLUSH, XS_FLUSH_DRAIN);
}

void checks_drain_end(void)
{
	flush_end(CALL_FLUSH);
}

/* A page that is flushed too late is found by the shadow; one that never is, here at any time. */
void checks_time(void)
{
	if (replay.now_ns - state.time_ns < replay.options.tuning.window_us * 1000ULL / 16)
		return;
	state.time_ns = replay.now_ns;
	tell(EV_TIME, 0, 0, 1, 0);
}

/* ---- the device ---- */

/* The device reaches the page, if a translation of it may be cached. */
static void reach(u64 page)
{
	u32 folio = shadow_folio(&checks_world->shadow, page), number;

	if (!folio)
		return;
	number = number_at(page);
	state.accesses++;
	tell(EV_ACCESS, number, 1, memory_number(folio), state.entries[number]);
}

/* The device tries one of the pages that were unmapped last. */
static void try_again(void)
{
	u64 page = state.tried[state.tried_at++ % TRIED];

	if (page)
		reach(page);
}

/* ---- maps ---- */

void checks_map(u32 pages, u32 single)
{
	checks_call(XS_FLUSH_BIT(XS_FLUSH_FULL));
	numbers_expect(pages);
	state.map = replay.number;
	state.map_began_ns = replay.now_ns;
	state.single = sim.window && single ? number_of(0, single) : 0;
	if (state.single)
		tell(EV_MAP, state.single, 1, 0, 0);
}

/* Reserved pages are in use before they have an entry. */
static u32 reserve(u64 page, u32 pages)
{
	u32 number = numbers_use(page, 0);

	for (u64 at = page; at < page + pages;) {
		u32 some = XS_BLOCK_PAGES - (u32)(at % XS_BLOCK_PAGES);

		some = some < page + pages - at ? some : (u32)(page + pages - at);
		numbers_use(at, some);
		at += some;
	}
	return number;
}

void checks_handed(u64 page, u32 pages, bool reserved)
{
	u32 number = reserved ? reserve(page, pages) : number_at(page);

	checks_return();
	state.maps++;
	state.mapped_pages += pages;
	tell(EV_HANDED, number, pages, ~0u, reserved);
	if (state.single)
		tell(EV_MAP_END, state.single, 1, 0, in_window(page));
	state.single = 0;
}

void checks_mapped(u64 page, u32 pages, u32 folio, u32 prot)
{
	u32 number = number_at(page);

	for (u32 i = 0; i < pages; i++)
		tell(EV_MAPPED, number + i, 1, memory_number(folio), prot);
	memory_at(folio)->users += pages;
	reach(page);
	try_again();
}

/* ---- unmaps ---- */

/* References that hold the memory of the mapping: one for each folio in it. */
static u32 references(const struct unmapping *unmap)
{
	u32 count = 0, last = 0;

	for (u32 i = 0; i < unmap->pages; last = unmap->folios[i++])
		count += unmap->folios[i] != last && !memory_at(unmap->folios[i])->registers;
	return count;
}

static bool has_unheld(const struct unmapping *unmap)
{
	for (u32 i = 0; i < unmap->pages; i++)
		if (memory_at(unmap->folios[i])->unheld)
			return true;
	return false;
}

static u32 how_of(const struct unmapping *unmap)
{
	u32 how = UNMAP_ROOM;

	if (references(unmap) > XS_HOLDS_MAX)
		how |= UNMAP_MANY;
	else if (!has_unheld(unmap))
		how |= UNMAP_HOLDABLE;
	if (unmap->now)
		how |= UNMAP_NOW;
	else if (replay.options.aware)
		how |= UNMAP_AWARE;
	return how;
}

void checks_unmap(u64 page, u32 pages, bool now)
{
	struct unmapping *unmap = &state.unmap;

	*unmap = (struct unmapping) {
		.number = number_at(page), .pages = pages, .serial = ++state.unmap_serial,
		.now = now, .folios = malloc(pages * sizeof(*unmap->folios)),
	};
	if (!unmap->folios)
		replay_stop("no memory for an unmap of %u pages", pages);
	for (u32 i = 0; i < pages; i++)
		unmap->folios[i] = shadow_folio(&checks_world->shadow, page + i);
	state.tried[unmap->serial % TRIED] = page;
	tell(EV_UNMAP, unmap->number, pages, unmap->serial, how_of(unmap));
	checks_call(CHECKS_UNMAP);
}

/* The driver gives its memory back. */
static void unmap_ended(const struct unmapping *unmap, bool nothing_left)
{
	state.unmaps++;
	state.unmapped_pages += unmap->pages;
	tell(EV_UNMAPPED, unmap->number, unmap->pages, unmap->serial, nothing_left);
	for (u32 i = 0; i < unmap->pages; i++)
		if (!--memory_at(unmap->folios[i])->users)
			memory_put(unmap->folios[i]);
	free(unmap->folios);
}

static void wait_for_driver(const struct unmapping *unmap)
{
	struct waiting *waiting = &state.waiting[running_cpu];

	tell(EV_LEFT, unmap->number, unmap->pages, unmap->serial, 0);
	if (waiting->count == waiting->room) {
		waiting->room = waiting->room ? 2 * waiting->room : 64;
		waiting->unmaps = realloc(waiting->unmaps,
					  waiting->room * sizeof(*waiting->unmaps));
		if (!waiting->unmaps)
			replay_stop("no memory for %u unmaps", waiting->room);
	}
	waiting->unmaps[waiting->count++] = *unmap;
}

void checks_unmapped(void)
{
	checks_return();
	if (replay.options.aware && !state.unmap.now)
		wait_for_driver(&state.unmap);
	else
		unmap_ended(&state.unmap, state.unmap.now);
	try_again();
}

void checks_batch_ended(void)
{
	bool strict = xs_policy_level(replay.options.policy, true) == XS_LEVEL_STRICT;
	struct waiting *waiting = &state.waiting[running_cpu];

	checks_return();
	for (u32 i = 0; i < waiting->count; i++)
		unmap_ended(&waiting->unmaps[i], strict);
	waiting->count = 0;
	try_again();
}

/* ---- the backend ---- */

void checks_entry(u64 page, u64 phys, u32 pages, u32 prot)
{
	for (u32 i = 0; i < pages; i++) {
		u32 folio = memory_of(phys + i * XS_PAGE_BYTES), number;
		bool is_reserved = !state.map;

		if (in_window(page))
			number = number_of(0, folio);
		else
			number = numbers_use(page + i, !is_reserved);
		state.entries[number] = ++state.entry_serial |
					(prot & ENTRY_WRITE ? ACCESS_WRITE : 0);
		tell(EV_ENTRY, number, 1, memory_number(folio),
		     prot | (u64)state.entry_serial << ENTRY_SERIAL_SHIFT);
	}
}

void checks_remove(u64 page, u64 pages)
{
	if (state.removed_count == state.removed_room) {
		state.removed_room = state.removed_room ? 2 * state.removed_room : 64;
		state.removed = realloc(state.removed,
					state.removed_room * sizeof(*state.removed));
		if (!state.removed)
			replay_stop("no memory for %u removals", state.removed_room);
	}
	state.removed[state.removed_count++] = (struct xs_range) { page, pages };
	for (u64 i = 0; i < pages; i++)
		tell(EV_REMOVED, number_at(page + i), 1, 0, 0);
}

/* A command that covers the removed pages covers the page-table pages that mapped them. */
void checks_table_freed(u64 page)
{
	if (state.tables < TABLES)
		tell(EV_TABLE_UNLINKED, number_at(page), 1, state.tables++, 0);
}

/* A command can cover exactly this range. */
static bool is_exact(const struct xs_range *range)
{
	return !(range->pages & (range->pages - 1)) && !(range->page & (range->pages - 1));
}

/* Writes down what the engine asks for. Extents are in the order of their pages. */
static void note(const struct xs_range *ranges, u32 asked)
{
	u64 end = 0;

	state.asked = (struct sim_flush) {
		.ranges = asked, .since = state.since, .exact = true, .tables = state.tables,
		.page = state.removed_count ? number_at(state.removed->page) : 0,
	};
	for (u32 i = 0; i < asked; i++)
		state.asked.exact &= is_exact(&ranges[i]);
	for (u32 i = 0; i < state.removed_count; i++) {
		const struct xs_range *run = &state.removed[i];
		u64 first = run->page / XS_BLOCK_PAGES;
		u64 last = (run->page + run->pages - 1) / XS_BLOCK_PAGES;

		state.asked.blocks += (u32)(last - first) + 1 - (first + 1 == end);
		end = last + 1;
	}
}

/* Tells of the removed pages that a command covers; others mean nothing to the checkers. */
static void command(const struct xs_range *range, bool hint)
{
	for (u32 i = 0; i < state.removed_count; i++) {
		const struct xs_range *run = &state.removed[i];
		u64 at = run->page > range->page ? run->page : range->page;
		u64 end = run->page + run->pages, range_end = range->page + range->pages;

		for (end = end < range_end ? end : range_end; at < end; at++)
			tell(EV_COMMAND, number_at(at), 1, 0, hint);
	}
}

void checks_invalidate(const struct xs_range *ranges, u32 asked, u32 count,
		       const struct xs_commands *sent)
{
	note(ranges, asked);
	state.commands_page += sent->page;
	state.commands_domain += sent->domain;
	if (sent->domain)
		tell(EV_COMMAND, 0, 0, 0, false);
	for (u32 i = 0; i < count && sent->page; i++)
		command(&ranges[i], !state.tables);
	for (u32 i = 0; i < state.removed_count; i++) {
		const struct xs_range *run = &state.removed[i];

		for (u64 at = run->page; at < run->page + run->pages; at++) {
			tell(EV_FLUSHED, number_at(at), 1, 0, 0);
			if (!in_window(at))
				numbers_end(at, 1);
		}
	}
	while (state.tables)
		tell(EV_TABLE_FREED, 0, 0, --state.tables, 0);
	state.removed_count = 0;
}

void checks_flushed(u32 cpu, u32 cause, u32 pages, u32 ranges, const struct xs_commands *sent,
		    u64 oldest_ns)
{
	static const struct sim_flush nothing = { .nothing = true, .exact = true };
	struct sim_flush flush = state.asked;

	state.asked = nothing;
	if (cause >= XS_FLUSH_COUNT || !pages || ranges != flush.ranges)
		sim_fail("accounts", "a flush of CPU %u, cause %u, flushed %u pages", cpu, cause,
			 pages);
	state.flushes[cause]++;
	flush.cause = cause;
	flush.causes = state.causes;
	flush.cpu = cpu_number(cpu);
	flush.pages = pages;
	flush.sent = *sent;
	flush.age_ns = oldest_ns;
	flush.map = state.map;
	flush.map_began_ns = state.map_began_ns;
	flush.since = state.since;
	tell(EV_FLUSH, 0, 0, 0, (u64)(size_t)&flush);
}

/* ---- begin and end ---- */

void checks_begin(struct world *world)
{
	const struct replay_options *options = &replay.options;
	bool has_window = options->policy->placement == XS_PLACE_IDENTITY;
	u32 cpus = options->cpus;

	checks_world = world;
	state.cpus = calloc(cpus, sizeof(*state.cpus));
	state.waiting = calloc(cpus, sizeof(*state.waiting));
	if (!state.cpus || !state.waiting)
		replay_stop("no memory for %u CPUs", cpus);
	sim.window = has_window ? SIM_PAGES / 2 : 0;
	sim.config.blocks = (has_window ? SIM_PAGES / 2 : SIM_PAGES) / XS_BLOCK_PAGES;
	sim.config.table_lg2 = SIM_TABLE_LG2;
	numbers_init(sim.window);
	check_begin();
	tell(EV_POLICY, (u32)(options->policy - xs_policies),
	     xs_policy_level(options->policy, options->aware), 0,
	     options->tuning.window_us * 1000ULL | (u64)options->tuning.batch_pages << 40 |
		     (u64)options->tuning.range_commands_max << 56);
}

/* Copied buffers are not in the shadow: the engine's own counts stand for them. */
void checks_end(u64 live)
{
	static struct xs_stats stats;
	s64 counted = xs_engine_leak_check(checks_world->engine, &stats);
	struct sim_accounts accounts = {
		.leak_check = counted,
		.maps = state.maps,
		.mapped_pages = state.mapped_pages,
		.unmaps = state.unmaps,
		.unmapped_pages = state.unmapped_pages,
		.live_pages = state.mapped_pages - state.unmapped_pages +
			      stats.counts.copied_maps - stats.counts.copied_unmaps,
		.copied_maps = stats.counts.copied_maps,
		.copied_unmaps = stats.counts.copied_unmaps,
		.commands_page = state.commands_page,
		.commands_domain = state.commands_domain,
		.flushes = state.flushes,
		.stuck = xs_engine_stuck_pages(checks_world->engine),
		.memory_out = state.out,
		.end = !live,
		.stats = &stats,
	};

	tell(EV_ACCOUNTS, 0, 0, 0, (u64)(size_t)&accounts);
}

u64 checks_events(void)
{
	return state.events;
}

u64 checks_accesses(void)
{
	return state.accesses;
}

const char *checks_level(void)
{
	return xs_level_name(check_observed_level());
}
