// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocks of a batch-aware driver: taken, filled and undone in parts, and given
 * back, a step at a time on any CPU. Each page is a mapping of its own.
 */
#include <string.h>

#include "world.h"

#define BLOCKS		4u
#define FILL_MAX	8u

/*
 * @page:	the first one, 0: none
 * @unused:	neither mapped yet nor dropped; bits, as all sets of pages here
 * @memory, @kind: of each mapped page
 */
struct own_block {
	u32 page;
	u64 unused;
	u64 mapped;
	u32 memory[XS_BLOCK_PAGES];
	u8 kind[XS_BLOCK_PAGES];
	bool busy;
};

static struct own_block blocks[BLOCKS];

static u64 iova_of(const struct own_block *block, u32 at)
{
	return (u64)(block->page + at) << XS_PAGE_LG2;
}

static u64 bits(u32 at, u32 count)
{
	return (~0ULL >> (XS_BLOCK_PAGES - count)) << at;
}

/* How many pages of @set follow each other from its first one on. */
static u32 first_run(u64 set, u32 *at)
{
	*at = xs_ctz(set);
	set = ~(set >> *at);
	return set ? xs_ctz(set) : XS_BLOCK_PAGES;
}

static void take(struct own_block *block)
{
	u32 pages = 1 + sim_draw(XS_BLOCK_PAGES);
	u64 last = driver_limit();
	u64 iova;

	sim_call_begin();
	iova = xs_engine_take_block(&sim.engine, pages, last);
	sim_call_end();
	if (!iova)
		return;
	block->page = (u32)(iova >> XS_PAGE_LG2);
	block->unused = bits(0, pages);
	block->mapped = 0;
	if (block->page % XS_BLOCK_PAGES)
		sim_fail("exact", "a block begins at IOVA page %u", block->page);
	sim_event(EV_HANDED, sim_cpu_now(), block->page, pages, (u32)(last >> XS_PAGE_LG2), 1);
}

/* ---- map ---- */

/* Memory for @pages pages from @at on, in a row or not. Returns for how many. */
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

static void fill(struct own_block *block)
{
	u32 at, pages = first_run(block->unused, &at), prot = 1 + sim_draw(3), done;
	u64 phys[FILL_MAX];

	pages = 1 + sim_draw(pages < FILL_MAX ? pages : FILL_MAX);
	pages = take_memory(block, at, pages);
	if (!pages)
		return;
	for (u32 i = 0; i < pages; i++)
		phys[i] = (u64)block->memory[at + i] << XS_PAGE_LG2;
	sim_call_begin();
	done = xs_engine_map_in_block(&sim.engine, iova_of(block, at), phys, pages, prot);
	sim_call_end();
	for (u32 i = 0; i < done; i++)
		driver_tell_mapped(block->page + at + i, 1, block->memory[at + i], prot);
	sim.map_failures += done < pages;
	for (u32 i = done; i < pages; i++)
		drop_memory(block, at + i);
	if (!done)
		return;
	block->unused &= ~bits(at, done);
	block->mapped |= bits(at, done);
	sim.maps++;
	sim.mapped_pages += done;
}

/* ---- unmap ---- */

/* Tell of each run of @set. Returns how many there are. */
static u32 tell(const struct own_block *block, enum sim_event_kind kind, u64 set, u32 serial, u64 b)
{
	u32 runs = 0, at, pages;

	for (; set; set &= ~bits(at, pages)) {
		pages = first_run(set, &at);
		sim_event(kind, sim_cpu_now(), block->page + at, pages, serial, b);
		runs++;
	}
	return runs;
}

/* One page, as if it had been mapped without a block. */
static void undo_one(struct own_block *block, u32 at)
{
	const struct sim_mapping mapping = { .iova = iova_of(block, at), .pages = 1 };

	block->mapped &= ~bits(at, 1);
	driver_unmap(&mapping, sim_draw(2));
	drop_memory(block, at);
}

/*
 * Many pages with one call, and their sync. A policy that does not wait for that
 * makes an unmap of each run; if it was being changed, which is not known.
 */
static void undo(struct own_block *block, u64 set)
{
	struct sim_cpu *cpu = &sim.cpus[sim_cpu_now()];
	bool bound = cpu->interrupted || sim_draw(2);
	u32 pages = xs_popcount(set), serial = ++sim.unmap_serial, runs;
	struct driver_promise promise;

	block->mapped &= ~set;
	device_note_stale(block->page + xs_ctz(set));
	cpu->bound += bound;
	runs = tell(block, EV_UNMAP, set, serial, 0);
	promise = driver_promise_begin();
	sim_call_begin();
	xs_engine_unmap_in_block_no_sync(&sim.engine, iova_of(block, 0), set);
	sim_call_end();
	driver_promise_end(&promise);
	sim.unmaps += promise.waits ? 1 : runs;
	sim.unmaps_spread += promise.steady ? 0 : runs - 1;
	sim.unmapped_pages += pages;
	sim_call_begin();
	xs_engine_sync_explicit(&sim.engine, !bound);
	sim_call_end();
	cpu->bound -= bound;
	tell(block, EV_UNMAPPED, set, serial, promise.strict);
	for (; set; set &= set - 1)
		drop_memory(block, xs_ctz(set));
}

static void give_back(struct own_block *block)
{
	u32 at, pages;

	for (u64 set = block->unused; set; set &= ~bits(at, pages)) {
		pages = first_run(set, &at);
		sim_event(EV_DROPPED, sim_cpu_now(), block->page + at, pages, 0, 0);
		sim_call_begin();
		xs_engine_drop_in_block(&sim.engine, iova_of(block, at), pages);
		sim_call_end();
	}
	block->unused = 0;
	if (block->mapped)
		undo(block, block->mapped);
	block->page = 0;
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
		give_back(block);
		break;
	default:
		if (block->unused)
			fill(block);
	}
}

void block_step(void)
{
	struct own_block *block = &blocks[sim_draw(BLOCKS)];

	if (block->busy)
		return;
	block->busy = true;
	if (block->page)
		go_on(block);
	else
		take(block);
	block->busy = false;
}

void block_begin(void)
{
	memset(blocks, 0, sizeof(blocks));
}

void block_end(void)
{
	for (u32 i = 0; i < BLOCKS; i++)
		if (blocks[i].page)
			give_back(&blocks[i]);
}
