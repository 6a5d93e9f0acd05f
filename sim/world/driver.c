// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver maps memory, lets devices use the mapping, and frees memory right after the unmap,
 * on any CPU, in tasks and in interrupts.
 */
#include <string.h>

#include "sim.h"

/* ---- map ---- */

static u32 any_size(void)
{
	/* Sizes at the border between two kinds of mapping. */
	if (!sim_draw(4))
		return XS_BLOCK_PAGES - sim_draw(2);
	return 2 + sim_draw(1 + sim_draw(XS_BLOCK_PAGES - 1));
}

static void choose_size(struct sim_mapping *mapping)
{
	mapping->pages = 1;
	if (sim_chance(sim.config.multi))
		mapping->pages = any_size();
	if (sim_chance(sim.config.large))
		mapping->pages = XS_BLOCK_PAGES + 1 +
				 (sim_draw(4) ? sim_draw(sim.config.blocks * 16) : 0);
	mapping->scattered = mapping->pages > 1 && sim_chance(sim.config.scatter);
	mapping->part_count = mapping->scattered ? 1 + sim_draw(SIM_PARTS) : 1;
}

u32 driver_kind(void)
{
	u32 at = sim_draw(sim.config.kinds[0] + sim.config.kinds[1] + sim.config.kinds[2] +
			  sim.config.kinds[3]);
	u32 kind = 0;

	while (at >= sim.config.kinds[kind])
		at -= sim.config.kinds[kind++];
	return kind;
}

static void drop_memory(const struct sim_mapping *mapping, u32 parts)
{
	for (u32 i = 0; i < parts; i++)
		memory_drop(mapping->memory[i], mapping->part_pages[i], mapping->kind[i]);
}

/* Choose how many pages between two parts of a range stay unfilled: none, some, or all. */
static void choose_gap(struct sim_mapping *mapping)
{
	if (!mapping->scattered || sim_draw(2))
		return;
	mapping->gap_pages = 1 + sim_draw(1 + sim_draw(mapping->pages));
	if (mapping->gap_pages > mapping->pages)
		mapping->gap_pages = mapping->pages;
	if (mapping->part_count > mapping->pages - mapping->gap_pages)
		mapping->part_count = mapping->pages - mapping->gap_pages;
	mapping->gap_part = sim_draw(mapping->part_count + 1);
}

/* Take memory for each part. */
static bool take_memory(struct sim_mapping *mapping)
{
	u32 rest, parts;

	choose_gap(mapping);
	rest = mapping->pages - mapping->gap_pages;
	if (mapping->part_count > rest)
		mapping->part_count = rest;
	parts = mapping->part_count;
	for (u32 i = 0; i < parts; i++) {
		u32 pages = i + 1 < parts ? 1 + sim_draw(rest - (parts - i - 1)) : rest;

		mapping->kind[i] = mapping->pages > XS_BLOCK_PAGES ? MEMORY_PERMANENT :
								     (u8)driver_kind();
		if (!memory_take(pages, mapping->kind[i], &mapping->memory[i])) {
			drop_memory(mapping, i);
			return false;
		}
		mapping->part_pages[i] = pages;
		rest -= pages;
	}
	return true;
}

void driver_tell_mapped(u32 page, u32 pages, u32 memory, u32 prot)
{
	prot |= sim.config.first_stage ? ENTRY_READ : 0;
	sim_event(EV_MAPPED, sim_cpu_now(), page, pages, memory, prot);
}

static void tell_mapped(const struct sim_mapping *mapping, u32 page, u32 part)
{
	driver_tell_mapped(page, mapping->part_pages[part], mapping->memory[part], mapping->prot);
}

/*
 * A mapping that is unmapped twice, or three times, while no step that maps runs: a late unmap
 * would undo a new mapping at the same IOVAs, and no engine can tell the two apart. The end of
 * the last call reports the unmap.
 */
static struct {
	struct sim_mapping mapping;
	bool running;
	bool now;
	u32 serial;
	u32 callers;
	u32 inside;
	u32 warnings;
	u32 winner;
} twice;

void driver_tell_handed(u32 page, u32 pages, u64 last, bool reserved)
{
	if (twice.running)
		sim_fail("accounts", "a map runs beside unmaps of one mapping");
	sim_me->handed_page = page;
	sim_event(EV_HANDED, sim_cpu_now(), page, pages, last == ~0ULL ? ~0u : sim_page_of(last),
		  reserved);
}

static void count_map(const struct sim_mapping *mapping)
{
	sim.maps++;
	sim.mapped_pages += mapping->pages;
}

/* ---- the identity window ---- */

/* Page of memory that the window has, if a mapping of it can be there; SIM_WINDOW if none is. */
static u32 memory_in_window(const struct sim_mapping *mapping)
{
	return mapping->pages == 1 && mapping->memory[0] < sim.window_pages ? mapping->memory[0] :
									      SIM_WINDOW;
}

/* The page that the mapping has in the window; NULL if the mapping is not there. */
static struct sim_window_page *page_in_window(const struct sim_mapping *mapping)
{
	u32 page = sim_page_of(mapping->iova);

	return sim_is_window(page) ? &sim.in_window[page - sim.window] : NULL;
}

/* A driver may not map the memory now, because of a bad unmap. */
static bool is_locked(const struct sim_mapping *mapping)
{
	u32 memory = memory_in_window(mapping);

	return memory < SIM_WINDOW && memory - sim.locked < sim.locked_pages;
}

static void tell_map_begin(u32 memory)
{
	if (memory == SIM_WINDOW)
		return;
	sim.in_window[memory].calls++;
	sim_event(EV_MAP, sim_cpu_now(), sim.window + memory, 1, 0, 0);
}

/* After EV_HANDED, if the driver has got a mapping. */
static void tell_map_end(u32 memory, const struct sim_mapping *mapping)
{
	bool here = mapping->iova && page_in_window(mapping);

	if (memory == SIM_WINDOW)
		return;
	sim.in_window[memory].calls--;
	sim.in_window[memory].mappings += here;
	sim_event(EV_MAP_END, sim_cpu_now(), sim.window + memory, 1, 0, here);
}

/* ---- maps of one part, and of several ---- */

/* Without a flush, devices learn of the mapping from the caller. */
static bool map_whole(struct sim_mapping *mapping, u64 last, bool flush)
{
	u64 phys = (u64)mapping->memory[0] << XS_PAGE_LG2;
	u32 memory = memory_in_window(mapping);

	sim_map_begin(mapping->pages);
	tell_map_begin(memory);
	if (!flush)
		mapping->iova = xs_engine_map_unflushed(&sim.engine, phys, mapping->pages,
							mapping->prot | XS_MAP_UNFLUSHED, last);
	else if (mapping->pages == 1)
		mapping->iova = path_map_one(&sim.engine, phys, mapping->prot, last);
	else
		mapping->iova = xs_engine_map(&sim.engine, phys, mapping->pages, mapping->prot,
					      last);
	sim_map_end(mapping->pages);
	if (mapping->iova)
		driver_tell_handed(sim_page_of(mapping->iova), mapping->pages, last, false);
	tell_map_end(memory, mapping);
	if (!mapping->iova) {
		sim.map_failures++;
		return false;
	}
	if (flush)
		tell_mapped(mapping, sim_page_of(mapping->iova), 0);
	count_map(mapping);
	return true;
}

/* Returns the gap before part @part, 0 if there is none. */
static u32 gap_before(const struct sim_mapping *mapping, u32 part)
{
	return mapping->gap_part == part ? mapping->gap_pages : 0;
}

static int fill_part(struct sim_mapping *mapping, u32 page, u32 part)
{
	int error;

	sim_map_begin(0);
	error = xs_engine_fill(&sim.engine, sim_iova_of(page),
			       (u64)mapping->memory[part] << XS_PAGE_LG2,
			       mapping->part_pages[part], mapping->prot);
	sim_map_end(0);
	if (!error)
		tell_mapped(mapping, page, part);
	return error;
}

/* Fill a large range part by part. */
static int fill_large(struct sim_mapping *mapping, u32 page)
{
	int error = 0;

	for (u32 i = 0; i < mapping->part_count && !error; i++) {
		page += gap_before(mapping, i);
		error = fill_part(mapping, page, i);
		page += mapping->part_pages[i];
	}
	xs_engine_publish(&sim.engine, mapping->iova, mapping->pages);
	return error;
}

/* Fill a small range with one call. */
static int fill_each(struct sim_mapping *mapping, u32 page)
{
	u64 phys[XS_BLOCK_PAGES];
	u32 at = 0;
	int error;

	for (u32 i = 0; i <= mapping->part_count; i++) {
		for (u32 gap = gap_before(mapping, i); gap; gap--)
			phys[at++] = XS_PHYS_NONE;
		for (u32 j = 0; i < mapping->part_count && j < mapping->part_pages[i]; j++)
			phys[at++] = (u64)(mapping->memory[i] + j) << XS_PAGE_LG2;
	}
	sim_map_begin(0);
	error = xs_engine_fill_each(&sim.engine, sim_iova_of(page), phys, mapping->pages,
				    mapping->prot);
	sim_map_end(0);
	for (u32 i = 0; i < mapping->part_count && !error; i++) {
		page += gap_before(mapping, i);
		tell_mapped(mapping, page, i);
		page += mapping->part_pages[i];
	}
	return error;
}

static bool map_parts(struct sim_mapping *mapping, u64 last)
{
	int error;
	u32 page;

	sim_map_begin(mapping->pages);
	mapping->iova = xs_engine_alloc_iova(&sim.engine, mapping->pages, last);
	sim_map_end(mapping->pages);
	if (!mapping->iova) {
		sim.map_failures++;
		return false;
	}
	count_map(mapping);
	page = sim_page_of(mapping->iova);
	driver_tell_handed(page, mapping->pages, last, true);
	error = mapping->pages > XS_BLOCK_PAGES ? fill_large(mapping, page) :
						  fill_each(mapping, page);
	if (error) {
		/* Some pages may be held without a complete record of the references. */
		sim.map_failures++;
		mapping->era = ~0ULL;
		driver_unmap(mapping, sim_draw(2));
		return false;
	}
	return true;
}

/* Draw the last byte of a page; often of a block, or below 4 GiB, or near the last mapping. */
u64 driver_limit(void)
{
	u32 page = XS_BLOCK_PAGES + sim_draw(sim.config.blocks * XS_BLOCK_PAGES);

	if (!sim_chance(sim.config.low))
		return ~0ULL;
	if (sim_me->handed_page && !sim_draw(4))
		page = sim_me->handed_page + sim_draw(4);
	else if (sim.config.low_blocks && sim_draw(2))
		page = sim.config.low_blocks * XS_BLOCK_PAGES - 1;
	else if (sim_draw(2))
		page |= XS_BLOCK_PAGES - 1;
	return sim_iova_of(page) + XS_PAGE_BYTES - 1;
}

/* Choose a page that another mapping has, mostly for the same direction; both own the page then. */
static bool share(struct sim_mapping *mapping)
{
	const struct sim_mapping *of;
	u32 part, memory;

	if (!sim.live_count)
		return false;
	of = &sim.live[(sim.live_first + sim_draw(sim.live_count)) % SIM_MAPPINGS];
	if (!of->part_count)
		return false;
	part = sim_draw(of->part_count);
	memory = of->memory[part] + sim_draw(of->part_pages[part]);
	if (memory >= sim.window_pages)
		return false;
	memory_share(memory, of->kind[part]);
	mapping->pages = 1;
	mapping->part_count = 1;
	mapping->memory[0] = memory;
	mapping->part_pages[0] = 1;
	mapping->kind[0] = of->kind[part];
	if (sim_draw(4))
		mapping->prot = of->prot;
	return true;
}

/* Take memory for a mapping of @pages pages in one part; 0: any size. */
static bool prepare(struct sim_mapping *mapping, u32 pages)
{
	const struct sim_mapping fresh = { .era = sim.era };

	*mapping = fresh;
	choose_size(mapping);
	if (pages) {
		mapping->pages = pages;
		mapping->scattered = false;
		mapping->part_count = 1;
	}
	mapping->prot = 1 + sim_draw(3);
	mapping->device = (u8)sim_draw(sim.config.devices);
	if (pages < 2 && !mapping->scattered && sim_chance(sim.config.again) && share(mapping))
		return true;
	return take_memory(mapping);
}

static void put_live(const struct sim_mapping *mapping)
{
	sim.live[(sim.live_first + sim.live_count++) % SIM_MAPPINGS] = *mapping;
}

bool driver_map(u32 pages, u64 last)
{
	struct sim_mapping mapping;
	bool done;

	if (!prepare(&mapping, pages))
		return false;
	sim.in_flight++;
	if (mapping.scattered)
		done = map_parts(&mapping, last);
	else
		done = !is_locked(&mapping) && map_whole(&mapping, last, true);
	sim.in_flight--;
	if (done)
		put_live(&mapping);
	else
		drop_memory(&mapping, mapping.part_count);
	return done;
}

/* ---- unmap ---- */

/*
 * Returns UNMAP_HOLDABLE if the memory can be held now and could be held at the map; UNMAP_MANY
 * for too many references.
 */
static u32 holdable(const struct sim_mapping *mapping)
{
	u32 refs = 0;

	for (u32 i = 0; i < mapping->part_count; i++) {
		if (mapping->kind[i] == MEMORY_SLAB)
			return 0;
		if (mapping->kind[i] == MEMORY_FOLIO)
			refs++;
		else if (mapping->kind[i] != MEMORY_PERMANENT)
			refs += mapping->part_pages[i];
	}
	if (refs > XS_HOLDS_MAX)
		return UNMAP_MANY;
	/* The IOVA of the window tells which page it is. */
	if ((sim.config.remembers || page_in_window(mapping)) && mapping->era != ~0ULL)
		return UNMAP_HOLDABLE;
	return mapping->era == sim.era ? UNMAP_HOLDABLE : 0;
}

u32 driver_unmap_begin(const struct sim_mapping *mapping, u32 how)
{
	struct sim_window_page *shared = page_in_window(mapping);
	u32 page = sim_page_of(mapping->iova);
	u32 serial = ++sim.unmap_serial;

	if (shared) {
		shared->mappings--;
		shared->calls++;
	}
	device_note_stale(page + sim_draw(mapping->pages));
	how |= holdable(mapping) | (sim_me->has_batch ? UNMAP_ROOM : 0);
	sim_event(EV_UNMAP, sim_cpu_now(), page, mapping->pages, serial, how);
	sim.unmapping_pages += mapping->pages;
	return serial;
}

void driver_unmap_end(const struct sim_mapping *mapping, u32 cpu, u32 serial, bool nothing_left)
{
	struct sim_window_page *shared = page_in_window(mapping);

	if (shared)
		shared->calls--;
	sim.unmapping_pages -= mapping->pages;
	sim.unmaps++;
	sim.unmapped_pages += mapping->pages;
	sim_event(EV_UNMAPPED, cpu, sim_page_of(mapping->iova), mapping->pages, serial,
		  nothing_left);
}

static void call_unmap(const struct sim_mapping *mapping, bool now)
{
	sim_call_begin(sim_me->straying ? CAUSES_OF_BAD_UNMAP : CAUSES_OF_UNMAP);
	if (mapping->pages == 1 && !now)
		path_unmap_one(&sim.engine, mapping->iova);
	else
		xs_engine_unmap(&sim.engine, mapping->iova, mapping->pages, now);
	sim_call_end();
}

/* Pages that a bad unmap named while the mapping exists. */
static bool named[SIM_PAGES];

/* A running call has named all pages of the mapping. */
static void tell_gone(const struct sim_mapping *mapping)
{
	u32 page = sim_page_of(mapping->iova);

	memset(named + page, 0, mapping->pages * sizeof(*named));
	sim.unmaps++;
	sim.unmapped_pages += mapping->pages;
	sim.mending += mapping->pages;
	sim_event(EV_GONE, sim_cpu_now(), page, mapping->pages, 0, holdable(mapping));
}

/* The proper unmap of a mapping that bad unmaps have named parts of. */
static void unmap_torn(const struct sim_mapping *mapping, bool now)
{
	u32 page = sim_page_of(mapping->iova);

	sim.unmapping_pages += mapping->pages;
	xs_enter();
	sim_event(EV_NAMED, sim_cpu_now(), page, mapping->pages, 0, 0);
	call_unmap(mapping, now);
	sim_event(EV_NAMED_END, sim_cpu_now(), page, mapping->pages, 0, 0);
	tell_gone(mapping);
	sim.unmapping_pages -= mapping->pages;
	xs_exit();
}

void driver_unmap(const struct sim_mapping *mapping, bool now)
{
	u32 serial;

	if (mapping->named) {
		unmap_torn(mapping, now);
		return;
	}
	serial = driver_unmap_begin(mapping, now ? UNMAP_NOW : 0);
	call_unmap(mapping, now);
	driver_unmap_end(mapping, sim_cpu_now(), serial, now);
}

/* Take the mapping at @index of the ring away from the driver. */
static struct sim_mapping take_live(u32 index)
{
	struct sim_mapping *first = &sim.live[sim.live_first % SIM_MAPPINGS];
	struct sim_mapping *at = &sim.live[(sim.live_first + index) % SIM_MAPPINGS];
	struct sim_mapping taken = *at;

	*at = *first;
	sim.live_first = (sim.live_first + 1) % SIM_MAPPINGS;
	sim.live_count--;
	return taken;
}

/* ---- batch-aware ---- */

#define AWARE_MAX	8u

void driver_flush_maps(bool everywhere)
{
	if (everywhere)
		sim_migrate();
	sim_call_begin(0);
	xs_engine_flush_maps(&sim.engine, everywhere);
	sim_call_end();
	/* With maps of other CPUs in between, either all of the count or none may remain. */
	if (!everywhere && !sim_me->interrupted)
		sim_me->unflushed = (struct sim_unflushed) { 0 };
}

/* Map without a flush; the driver may undo the map again. */
static bool map_unflushed(struct sim_mapping *mapping)
{
	bool done;

	if (!prepare(mapping, sim_draw(2) ? 1 : 1 + sim_draw(2 * XS_BLOCK_PAGES)))
		return false;
	done = !is_locked(mapping) && map_whole(mapping, driver_limit(), false);
	if (done && sim_draw(8))
		return true;
	if (done)
		driver_unmap(mapping, sim_draw(2));
	drop_memory(mapping, mapping->part_count);
	return false;
}

/*
 * The driver undoes unflushed maps, and the CPU gives up cached IOVAs. The next maps get the
 * same IOVAs, also in other sizes.
 */
static void undo_aware(const struct sim_mapping *mappings, u32 count)
{
	for (u32 i = 0; i < count; i++) {
		driver_unmap(&mappings[i], true);
		drop_memory(&mappings[i], mappings[i].part_count);
	}
	sim.in_flight -= count;
	operator_retire(sim_cpu_now());
}

/*
 * Several maps with one flush; devices learn of the mappings only then. See unmap_aware() for
 * the CPU that flushes.
 */
static void map_aware(void)
{
	struct sim_cpu *cpu = &sim.cpus[sim_cpu_now()];
	bool bound = cpu->interrupted || sim_draw(2);
	struct sim_mapping mappings[AWARE_MAX];
	u32 count = 0;

	cpu->bound += bound;
	for (u32 wanted = 1 + sim_draw(AWARE_MAX); wanted; wanted--) {
		if (sim.live_count + sim.in_flight >= sim.config.live_max)
			break;
		sim.in_flight++;
		sim_migrate();
		if (map_unflushed(&mappings[count]))
			count++;
		else
			sim.in_flight--;
		if (count && bound && !sim_draw(4)) {
			undo_aware(mappings, count);
			count = 0;
		}
	}
	driver_flush_maps(!bound);
	cpu->bound -= bound;
	for (u32 i = 0; i < count; i++) {
		tell_mapped(&mappings[i], sim_page_of(mappings[i].iova), 0);
		put_live(&mappings[i]);
	}
	sim.in_flight -= count;
}

struct driver_promise driver_promise_begin(void)
{
	struct driver_promise promise = {
		.weak_periods = sim.weak_periods,
		.strict = !sim.weak,
	};

	return promise;
}

bool driver_promise_end(const struct driver_promise *promise)
{
	return promise->strict && promise->weak_periods == sim.weak_periods;
}

bool driver_unmap_deferred(const struct sim_mapping *mapping, u32 *serial)
{
	struct driver_promise promise = driver_promise_begin();

	*serial = driver_unmap_begin(mapping, UNMAP_AWARE);
	sim_call_begin(CAUSES_OF_UNMAP);
	if (mapping->pages == 1)
		path_unmap_one_deferred(&sim.engine, mapping->iova);
	else
		xs_engine_unmap_deferred(&sim.engine, mapping->iova, mapping->pages);
	sim_call_end();
	sim_event(EV_LEFT, sim_cpu_now(), sim_page_of(mapping->iova), mapping->pages, *serial, 0);
	return driver_promise_end(&promise);
}

void driver_flush(bool everywhere)
{
	if (everywhere)
		sim_migrate();
	sim_call_begin(XS_FLUSH_BIT(XS_FLUSH_EXPLICIT));
	xs_engine_flush_explicit(&sim.engine, everywhere);
	sim_call_end();
}

/*
 * Unmap this mapping and some more with one flush. A task that may migrate must flush on all
 * CPUs; a task bound to a CPU can still be interrupted.
 */
static void unmap_aware(const struct sim_mapping *first)
{
	struct sim_cpu *cpu = &sim.cpus[sim_cpu_now()];
	struct sim_mapping mappings[AWARE_MAX] = { *first };
	u32 wanted = 1 + sim_draw(AWARE_MAX);
	bool bound = cpu->interrupted || sim_draw(2);
	bool strict[AWARE_MAX];
	u32 serials[AWARE_MAX], cpus[AWARE_MAX];
	u32 count = 0;

	cpu->bound += bound;
	do {
		sim_migrate();
		cpus[count] = sim_cpu_now();
		strict[count] = driver_unmap_deferred(&mappings[count], &serials[count]);
		if (++count == wanted || !sim.live_count)
			break;
		mappings[count] = take_live(sim.config.fifo ? 0 : sim_draw(sim.live_count));
		if (mappings[count].named) {
			put_live(&mappings[count]);
			break;
		}
		sim.in_flight++;
	} while (true);
	driver_flush(!bound);
	cpu->bound -= bound;
	for (u32 i = 0; i < count; i++) {
		driver_unmap_end(&mappings[i], cpus[i], serials[i], strict[i]);
		if (i)
			drop_memory(&mappings[i], mappings[i].part_count);
	}
	sim.in_flight -= count - 1;
}

/*
 * Can the driver free the memory before the unmap? The rest of a folio may have another owner
 * by then.
 */
static bool is_free_to_go(const struct sim_mapping *mapping)
{
	for (u32 i = 0; i < mapping->part_count; i++)
		if (mapping->kind[i] == MEMORY_FOLIO)
			return false;
	return true;
}

/*
 * Map the page of an unmapped mapping again before its flush, mostly in the same direction, as
 * drivers do that recycle their buffers.
 */
static bool recycle(const struct sim_mapping *of)
{
	struct sim_mapping mapping = *of;
	bool done;

	if (memory_in_window(of) == SIM_WINDOW || of->named || twice.running)
		return false;
	sim_migrate();
	if (is_locked(of) || twice.running || sim.live_count + sim.in_flight >= SIM_MAPPINGS)
		return false;
	mapping.era = sim.era;
	if (!sim_draw(4))
		mapping.prot = 1 + sim_draw(3);
	sim.map_steps++;
	done = map_whole(&mapping, driver_limit(), true);
	sim.map_steps--;
	if (done)
		put_live(&mapping);
	return done;
}

static void unmap_index(u32 index, bool now, bool recycles)
{
	struct sim_mapping mapping = take_live(index);
	bool early = !mapping.named && is_free_to_go(&mapping) &&
		     sim_fault(FAULT_FREED_EARLY);

	sim.in_flight++;
	if (early) {
		drop_memory(&mapping, mapping.part_count);
		mapping.era = ~0ULL;
	}
	if (!early && !now && !mapping.named && sim_chance(sim.config.aware))
		unmap_aware(&mapping);
	else
		driver_unmap(&mapping, now);
	if (!early && !(recycles && recycle(&mapping)))
		drop_memory(&mapping, mapping.part_count);
	sim.in_flight--;
}

void driver_unmap_index(u32 index, bool now)
{
	unmap_index(index, now, false);
}

static void unmap(void)
{
	bool now = sim_chance(sim.config.at_once);

	if (sim.live_count)
		unmap_index(sim.config.fifo ? 0 : sim_draw(sim.live_count), now,
			    sim_chance(sim.config.recycle));
}

/* ---- one mapping, unmapped twice, at once or one after the other ---- */

static void twice_call(void)
{
	u32 before = sim_me->warnings;

	twice.callers++;
	sim_me->straying++;
	call_unmap(&twice.mapping, twice.now);
	sim_me->straying--;
	twice.warnings += sim_me->warnings - before;
	if (sim_me->warnings == before)
		twice.winner = sim_cpu_now();
}

/*
 * A further call, where no other call runs, finds the mapping unmapped, and flushes what is
 * deferred.
 */
static bool twice_again(void)
{
	if (sim.calls || sim_draw(2))
		return false;
	twice_call();
	return true;
}

/* All calls have returned. */
static void twice_end(void)
{
	bool again = twice_again();

	if (twice.warnings != twice.callers - 1)
		sim_fail("accounts", "of %u unmaps of one mapping %u have not got it", twice.callers,
			 twice.warnings);
	sim.bad_unmaps += twice.warnings;
	twice.running = false;
	driver_unmap_end(&twice.mapping, twice.winner, twice.serial, twice.now || again);
	drop_memory(&twice.mapping, twice.mapping.part_count);
	sim.in_flight--;
}

static void twice_unmap(void)
{
	twice.inside++;
	twice_call();
	if (!--twice.inside)
		twice_end();
}

void driver_unmap_twice(void)
{
	const struct sim_window_page *shared;

	if (twice.running || sim.map_steps || !sim.live_count)
		return;
	twice.mapping = take_live(sim_draw(sim.live_count));
	shared = page_in_window(&twice.mapping);
	/* The late unmap would undo another mapping of the page. */
	if (twice.mapping.named || (shared && (shared->mappings > 1 || shared->calls))) {
		put_live(&twice.mapping);
		return;
	}
	twice.running = true;
	twice.now = sim_draw(2);
	twice.callers = 0;
	twice.inside = 0;
	twice.warnings = 0;
	sim.in_flight++;
	twice.serial = driver_unmap_begin(&twice.mapping,
					  UNMAP_TWICE | (twice.now ? UNMAP_NOW : 0));
	twice_unmap();
}

/* ---- bad unmaps: a warning and a count, and the named pages are gone ---- */

static void bad_unmap_outside(void)
{
	u64 iova = sim_iova_of(sim_end_page()) + (sim.window ? XS_TABLE_PAGES * XS_PAGE_BYTES : 0) +
		   (u64)sim_draw(~0u) * XS_PAGE_BYTES;
	u32 pages = 1 + sim_draw(2 * XS_BLOCK_PAGES);

	switch (sim_draw(4)) {
	case 0:
		xs_engine_unmap(&sim.engine, ~0ULL & ~(XS_PAGE_BYTES - 1), pages, sim_draw(2));
		break;
	case 1:
		path_unmap_one(&sim.engine, iova);
		break;
	case 2:
		xs_engine_unmap_deferred(&sim.engine, iova, pages);
		break;
	default:
		xs_engine_drop_in_block(&sim.engine, iova, 1);
	}
}

/* Unmap @pages pages from @at on of a mapping that has more pages. */
static void call_tear(const struct sim_mapping *mapping, u32 at, u32 pages)
{
	u64 iova = mapping->iova + at * XS_PAGE_BYTES;

	switch (pages == 1 ? sim_draw(4) : 2 + sim_draw(2)) {
	case 0:
		path_unmap_one(&sim.engine, iova);
		break;
	case 1:
		path_unmap_one_deferred(&sim.engine, iova);
		break;
	case 2:
		xs_engine_unmap_deferred(&sim.engine, iova, pages);
		break;
	default:
		xs_engine_unmap(&sim.engine, iova, pages, sim_draw(2));
	}
}

/* Unmap some or some more of the mapping's pages. Returns true if the mapping is gone. */
static bool tear(struct sim_mapping *mapping)
{
	u32 at = sim_draw(2) ? sim_draw(mapping->pages) : 0;
	u32 pages = 1 + sim_draw(mapping->pages - at);
	u32 page = sim_page_of(mapping->iova);
	bool all;

	pages -= pages == mapping->pages;
	sim.unmapping_pages += mapping->pages;
	xs_enter();
	sim_event(EV_NAMED, sim_cpu_now(), page + at, pages, 0, 0);
	call_tear(mapping, at, pages);
	sim_event(EV_NAMED_END, sim_cpu_now(), page + at, pages, 0, 0);
	for (u32 i = page + at; i < page + at + pages; i++) {
		mapping->named += !named[i];
		named[i] = true;
	}
	/* A failed removal leaves the whole mapping stuck, without an owner. */
	all = mapping->named == mapping->pages || sim.stuck[page];
	if (all)
		tell_gone(mapping);
	sim.unmapping_pages -= mapping->pages;
	xs_exit();
	device_note_stale(page + at + sim_draw(pages));
	return all;
}

/* Mappings of a range of the window, which a bad unmap names. */
#define LOST_MAX	16u

static struct {
	struct sim_mapping mappings[LOST_MAX];
	u32 count;
} lost;

/* Take all mappings of some pages of the window. Returns false if there are too many. */
static bool lose(u32 page, u32 pages)
{
	lost.count = 0;
	for (u32 i = 0; i < sim.live_count; i++) {
		u32 at = sim_page_of(sim.live[(sim.live_first + i) % SIM_MAPPINGS].iova);

		if (at - page >= pages)
			continue;
		if (lost.count == LOST_MAX)
			return false;
		lost.mappings[lost.count++] = take_live(i);
		/* Another mapping is at this index now, or was before. */
		i = ~0u;
	}
	return true;
}

static void give_back(u32 from)
{
	while (lost.count > from)
		put_live(&lost.mappings[--lost.count]);
}

/* Move a mapping of each page to the front. Returns the number of pages with a mapping. */
static u32 first_of_each(void)
{
	u32 count = 0;

	for (u32 i = 0; i < lost.count; i++) {
		struct sim_mapping mapping = lost.mappings[i];
		bool has = false;

		for (u32 j = 0; j < count; j++)
			has |= lost.mappings[j].iova == mapping.iova;
		if (has)
			continue;
		lost.mappings[i] = lost.mappings[count];
		lost.mappings[count++] = mapping;
	}
	return count;
}

static bool is_used(u32 memory, u32 pages)
{
	u32 calls = 0;

	for (u32 i = 0; i < pages; i++)
		calls += sim.in_window[memory + i].calls;
	return calls;
}

static void call_lose(u64 iova, u32 pages)
{
	switch (sim_draw(pages == 1 ? 4 : 2)) {
	case 0:
		xs_engine_unmap_deferred(&sim.engine, iova, pages);
		break;
	case 1:
		xs_engine_unmap(&sim.engine, iova, pages, sim_draw(2));
		break;
	case 2:
		path_unmap_one(&sim.engine, iova);
		break;
	case 3:
		path_unmap_one_deferred(&sim.engine, iova);
		break;
	}
}

/* Draw a page of memory, often one that is mapped, with three pages behind it in the window. */
static u32 any_in_window(void)
{
	const struct sim_mapping *at;

	if (sim.live_count) {
		at = &sim.live[(sim.live_first + sim_draw(sim.live_count)) % SIM_MAPPINGS];
		if (memory_in_window(at) < sim.window_pages - 3)
			return at->memory[0];
	}
	return sim_draw(sim.window_pages - 3);
}

/*
 * Unmap several pages of the window, or a page that is not mapped. Of each page, a mapping is lost,
 * and the call is its unmap, at once. Nobody may map or unmap the pages meanwhile, because nobody
 * could tell which mapping is lost.
 */
static void bad_unmap_in_window(void)
{
	u32 memory = any_in_window(), pages = 1 + sim_draw(4), count;
	u32 serials[LOST_MAX];

	if (sim.locked_pages || is_used(memory, pages) ||
	    (pages == 1 && sim.in_window[memory].mappings)) {
		bad_unmap_outside();
		return;
	}
	if (!lose(sim.window + memory, pages)) {
		give_back(0);
		bad_unmap_outside();
		return;
	}
	sim.locked = memory;
	sim.locked_pages = pages;
	sim.in_flight += lost.count;
	count = first_of_each();
	for (u32 i = 0; i < count; i++)
		serials[i] = driver_unmap_begin(&lost.mappings[i], UNMAP_NOW);
	call_lose(sim_iova_of(sim.window + memory), pages);
	for (u32 i = 0; i < count; i++)
		driver_unmap_end(&lost.mappings[i], sim_cpu_now(), serials[i], true);
	sim.locked_pages = 0;
	sim.in_flight -= lost.count;
	for (u32 i = 0; i < count; i++)
		drop_memory(&lost.mappings[i], lost.mappings[i].part_count);
	give_back(count);
}

static void tear_any(void)
{
	struct sim_mapping mapping = take_live(sim_draw(sim.live_count));
	bool gone = false;

	/* Most mappings have one page and cannot be torn: look for a larger mapping. */
	for (u32 looks = 8; looks && mapping.pages == 1; looks--) {
		put_live(&mapping);
		mapping = take_live(sim_draw(sim.live_count));
	}
	if (mapping.pages == 1) {
		put_live(&mapping);
		bad_unmap_outside();
		return;
	}
	sim.in_flight++;
	gone = tear(&mapping);
	/* Unmap part of the mapping again, possibly the same pages. */
	while (!gone && sim_draw(3)) {
		sim.bad_unmaps++;
		gone = tear(&mapping);
	}
	sim.in_flight--;
	if (gone)
		drop_memory(&mapping, mapping.part_count);
	else
		put_live(&mapping);
}

void driver_bad_unmap(void)
{
	sim_me->straying++;
	sim.bad_unmaps++;
	sim_call_begin(CAUSES_OF_BAD_UNMAP);
	if (sim.window && sim_draw(2))
		bad_unmap_in_window();
	else if (!sim.live_count || !sim_draw(4))
		bad_unmap_outside();
	else
		tear_any();
	sim_call_end();
	sim_me->straying--;
}

/* ---- steps ---- */

bool driver_step_mapping(u32 step)
{
	if (twice.running) {
		if (twice.callers == 1 && step != STEP_LOOK) {
			twice_unmap();
			return true;
		}
		if (step == STEP_MAP || step == STEP_BLOCK)
			return true;
	}
	if (step == STEP_MAP && sim.live_count + sim.in_flight >= sim.config.live_max)
		step = STEP_UNMAP;
	switch (step) {
	case STEP_MAP:
		sim.map_steps++;
		if (sim.config.caching && sim_chance(sim.config.aware))
			map_aware();
		else
			driver_map(0, driver_limit());
		sim.map_steps--;
		return true;
	case STEP_UNMAP:
		unmap();
		return true;
	case STEP_BLOCK:
		sim.map_steps++;
		block_step();
		sim.map_steps--;
		return true;
	}
	return false;
}

void driver_start(void)
{
	lost.count = 0;
	memset(named, 0, sizeof(named));
	twice.running = false;
}
