// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocks of a batch-aware driver. The driver takes a block, fills and undoes parts, and gives
 * the block back, one step at a time, on any CPU and on several CPUs at once. Each page is a
 * separate mapping.
 */
#include <string.h>

#include "sim.h"

#define BLOCKS		4u
#define FILL_MAX	8u

/*
 * @page:	first page of the block, 0: no block
 * @pages:	pages that the driver asked for
 * @unused:	bit set of pages neither mapped nor dropped yet; all page sets here are bits
 * @mapped:	bit set of mapped pages; pages of a running call are in neither set
 * @left:	all pages except undone and dropped pages
 * @memory, @kind, @era: of each mapped page
 */
struct own_block {
	u32 page;
	u32 pages;
	u64 unused;
	u64 mapped;
	u64 left;
	u32 memory[XS_BLOCK_PAGES];
	u8 kind[XS_BLOCK_PAGES];
	u64 era[XS_BLOCK_PAGES];
	bool taking;
};

static struct own_block blocks[BLOCKS];

static u64 iova_of(const struct own_block *block, u32 at)
{
	return sim_iova_of(block->page + at);
}

static u64 bits(u32 at, u32 count)
{
	return (~0ULL >> (XS_BLOCK_PAGES - count)) << at;
}

/* Number of contiguous pages of @set from the first set bit on. */
static u32 first_run(u64 set, u32 *at)
{
	*at = xs_ctz(set);
	set = ~(set >> *at);
	return set ? xs_ctz(set) : XS_BLOCK_PAGES;
}

static void take(struct own_block *block)
{
	u32 pages = sim_draw(2) ? XS_BLOCK_PAGES : 1 + sim_draw(XS_BLOCK_PAGES);
	u64 last = driver_limit();
	u64 iova;

	block->taking = true;
	sim_map_begin(0);
	iova = xs_engine_alloc_block(&sim.engine, pages, last);
	sim_map_end(0);
	block->taking = false;
	if (!iova)
		return;
	block->page = sim_page_of(iova);
	block->pages = pages;
	block->unused = bits(0, pages);
	block->mapped = 0;
	block->left = block->unused;
	if (block->page % XS_BLOCK_PAGES)
		sim_fail("exact", "a block begins at IOVA page %u", block->page);
	driver_tell_handed(block->page, pages, last, true);
}

/* Remove pages from the block. Removing the last page ends the block. */
static void gone(struct own_block *block, u64 set)
{
	block->left &= ~set;
	if (!block->left)
		block->page = 0;
}

/* ---- map ---- */

/* Take memory for @pages pages from @at on, contiguous or not. Returns the number of pages. */
static u32 take_memory(struct own_block *block, u32 at, u32 pages)
{
	u8 kind = (u8)driver_kind();
	bool row = kind != MEMORY_FOLIO && sim_draw(2);

	memset(block->kind + at, kind, pages);
	if (row && memory_take(pages, kind, &block->memory[at])) {
		for (u32 i = 1; i < pages; i++)
			block->memory[at + i] = block->memory[at] + i;
		return pages;
	}
	for (u32 i = 0; i < pages; i++)
		if (!memory_take(1, kind, &block->memory[at + i]))
			return i;
	return pages;
}

static void drop_memory(const struct own_block *block, u32 at)
{
	memory_drop(block->memory[at], 1, block->kind[at]);
}

/* Map with one flush for all pages, or with as many flushes as the calls need. */
static u32 map(const struct own_block *block, u32 at, const u64 *phys, u32 pages, u32 prot)
{
	struct sim_cpu *cpu = &sim.cpus[sim_cpu_now()];
	bool bound = cpu->interrupted || sim_draw(2);
	bool once = sim.config.caching && sim_draw(2);
	u32 done;

	cpu->bound += bound;
	sim_map_begin(pages);
	if (once)
		done = xs_engine_map_in_block_unflushed(&sim.engine, iova_of(block, at), phys,
							pages, prot | XS_MAP_UNFLUSHED);
	else
		done = xs_engine_map_in_block(&sim.engine, iova_of(block, at), phys, pages, prot);
	sim_map_end(pages);
	sim.maps += done > 0;
	sim.mapped_pages += done;
	if (once)
		driver_flush_maps(!bound);
	cpu->bound -= bound;
	return done;
}

static void fill(struct own_block *block)
{
	u32 at, pages = first_run(block->unused, &at), prot = 1 + sim_draw(3), done;
	u64 phys[FILL_MAX];

	pages = 1 + sim_draw(pages < FILL_MAX ? pages : FILL_MAX);
	pages = take_memory(block, at, pages);
	if (!pages)
		return;
	block->unused &= ~bits(at, pages);
	for (u32 i = 0; i < pages; i++) {
		phys[i] = (u64)block->memory[at + i] << XS_PAGE_LG2;
		block->era[at + i] = sim.era;
	}
	done = map(block, at, phys, pages, prot);
	for (u32 i = 0; i < done; i++)
		driver_tell_mapped(block->page + at + i, 1, block->memory[at + i], prot);
	sim.map_failures += done < pages;
	for (u32 i = done; i < pages; i++)
		drop_memory(block, at + i);
	block->unused |= bits(at, pages) & ~(done ? bits(at, done) : 0);
	if (done)
		block->mapped |= bits(at, done);
}

/* Fill the whole block, as for a descriptor of F&S; other CPUs may undo some pages meanwhile. */
static void fill_all(struct own_block *block)
{
	for (u32 tries = 0; block->page && block->unused && tries < XS_BLOCK_PAGES; tries++)
		fill(block);
}

/* ---- unmap ---- */

/* Report each extent of @set, unmapped on @cpu. */
static void tell(const struct own_block *block, enum sim_event_kind kind, u32 cpu, u64 set,
		 u32 serial, u64 b)
{
	u32 at, pages;

	for (; set; set &= ~bits(at, pages)) {
		pages = first_run(set, &at);
		sim_event(kind, cpu, block->page + at, pages, serial, b);
	}
}

static struct sim_mapping mapping_at(const struct own_block *block, u32 at)
{
	const struct sim_mapping mapping = {
		.iova = iova_of(block, at),
		.pages = 1,
		.part_count = 1,
		.kind = { block->kind[at] },
		.era = block->era[at],
	};

	return mapping;
}

/* Unmap one page with the call for ordinary mappings. */
static void undo_one(struct own_block *block, u32 at)
{
	const struct sim_mapping mapping = mapping_at(block, at);

	block->mapped &= ~bits(at, 1);
	driver_unmap(&mapping, sim_draw(2));
	drop_memory(block, at);
	gone(block, bits(at, 1));
}

/* Unmap many pages with one call, then flush. */
static void undo(struct own_block *block, u64 set)
{
	struct sim_cpu *cpu = &sim.cpus[sim_cpu_now()];
	bool bound = cpu->interrupted || sim_draw(2);
	u32 pages = xs_popcount(set), serial = ++sim.unmap_serial;
	struct driver_promise promise;
	u32 at = sim_cpu_now();
	bool strict;

	block->mapped &= ~set;
	device_note_stale(block->page + xs_ctz(set));
	cpu->bound += bound;
	tell(block, EV_UNMAP, at, set, serial, UNMAP_AWARE | (cpu->has_batch ? UNMAP_ROOM : 0));
	sim.unmapping_pages += pages;
	promise = driver_promise_begin();
	sim_call_begin(CAUSES_OF_UNMAP);
	xs_engine_unmap_in_block_deferred(&sim.engine, iova_of(block, 0), set);
	sim_call_end();
	tell(block, EV_LEFT, at, set, serial, 0);
	strict = driver_promise_end(&promise);
	sim.unmapping_pages -= pages;
	sim.unmaps += pages;
	sim.unmapped_pages += pages;
	driver_flush(!bound);
	cpu->bound -= bound;
	tell(block, EV_UNMAPPED, at, set, serial, strict);
	for (u64 rest = set; rest; rest &= rest - 1)
		drop_memory(block, xs_ctz(rest));
	gone(block, set);
}

/* Unmap many pages with a call for each page, then flush. */
static void undo_each(struct own_block *block, u64 set)
{
	struct sim_cpu *cpu = &sim.cpus[sim_cpu_now()];
	bool bound = cpu->interrupted || sim_draw(2);
	u32 serials[XS_BLOCK_PAGES], cpus[XS_BLOCK_PAGES];
	u64 strict = 0;

	block->mapped &= ~set;
	cpu->bound += bound;
	for (u64 rest = set; rest; rest &= rest - 1) {
		struct sim_mapping mapping = mapping_at(block, xs_ctz(rest));

		sim_migrate();
		cpus[xs_ctz(rest)] = sim_cpu_now();
		if (driver_unmap_deferred(&mapping, &serials[xs_ctz(rest)]))
			strict |= rest & -rest;
	}
	driver_flush(!bound);
	cpu->bound -= bound;
	for (u64 rest = set; rest; rest &= rest - 1) {
		struct sim_mapping mapping = mapping_at(block, xs_ctz(rest));

		driver_unmap_end(&mapping, cpus[xs_ctz(rest)], serials[xs_ctz(rest)],
				 strict >> xs_ctz(rest) & 1);
		drop_memory(block, xs_ctz(rest));
	}
	gone(block, set);
}

static void drop_unused(struct own_block *block)
{
	u64 set = block->unused;
	u32 at, pages;

	block->unused = 0;
	for (u64 rest = set; rest; rest &= ~bits(at, pages)) {
		pages = first_run(rest, &at);
		sim_event(EV_DROPPED, sim_cpu_now(), block->page + at, pages, 0, 0);
		sim_call_begin(0);
		xs_engine_drop_in_block(&sim.engine, iova_of(block, at), pages);
		sim_call_end();
	}
	gone(block, set);
}

static void detach(struct own_block *block)
{
	if (block->unused)
		drop_unused(block);
	if (block->mapped && sim_draw(2))
		undo(block, block->mapped);
	else if (block->mapped)
		undo_each(block, block->mapped);
}

/* ---- bad unmaps and bad drops ---- */

/*
 * Map or drop a page again that is already mapped or gone. One unused page is set aside
 * meanwhile, so that the block stays alive.
 */
static void bad_unmap(struct own_block *block)
{
	static const u64 phys[2] = { SIM_MEMORY << XS_PAGE_LG2, SIM_MEMORY << XS_PAGE_LG2 };
	u64 kept = block->mapped & -block->mapped;
	u64 set = kept | ~block->left;
	u32 at;

	if (!kept)
		return;
	at = xs_ctz(sim_draw(2) ? kept : set);
	block->mapped &= ~kept;
	sim_me->straying++;
	sim.bad_unmaps++;
	sim_call_begin(0);
	if (sim_draw(2))
		xs_engine_drop_in_block(&sim.engine, iova_of(block, at), 1);
	else if (xs_engine_map_in_block(&sim.engine, iova_of(block, at), phys,
					1 + (at + 1 < XS_BLOCK_PAGES && sim_draw(2)), 3))
		sim_fail("exact", "a page of a block is mapped twice");
	sim_call_end();
	sim_me->straying--;
	block->mapped |= kept;
}

/* Unmap a page that was never mapped, or whose map the backend refused. */
static void bad_unmap_unmap(struct own_block *block)
{
	u32 at = xs_ctz(block->unused);

	block->unused &= ~bits(at, 1);
	sim_me->straying++;
	sim.bad_unmaps++;
	sim_call_begin(CAUSES_OF_BAD_UNMAP);
	if (sim_draw(2))
		xs_engine_unmap(&sim.engine, iova_of(block, at), 1, sim_draw(2));
	else
		xs_engine_unmap_in_block_deferred(&sim.engine, iova_of(block, 0), bits(at, 1));
	sim_call_end();
	sim_me->straying--;
	block->unused |= bits(at, 1);
}

/* ---- steps ---- */

static u64 draw_some(u64 set)
{
	u64 some = (u64)sim_draw(~0u) << 32;

	some |= sim_draw(~0u);
	return set & some;
}

static void go_on(struct own_block *block)
{
	u64 some = draw_some(block->mapped);

	switch (sim_draw(5)) {
	case 0:
		if (some)
			undo(block, some);
		break;
	case 1:
		if (some)
			undo_one(block, xs_ctz(some));
		break;
	case 2:
		if (sim_draw(4))
			detach(block);
		else if (block->unused && sim_draw(2))
			bad_unmap_unmap(block);
		else
			bad_unmap(block);
		break;
	default:
		if (block->unused)
			fill(block);
	}
}

void block_step(void)
{
	struct own_block *block = &blocks[sim_draw(BLOCKS)];

	if (block->page) {
		go_on(block);
	} else if (!block->taking) {
		take(block);
		if (sim_draw(2))
			fill_all(block);
	}
}

void block_begin(void)
{
	memset(blocks, 0, sizeof(blocks));
}

void block_end(void)
{
	for (u32 i = 0; i < BLOCKS; i++)
		if (blocks[i].page)
			detach(&blocks[i]);
}
