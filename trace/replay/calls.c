// SPDX-License-Identifier: GPL-2.0-only
/* See calls.h. */
#include <stdlib.h>

#include "calls.h"
#include "checks.h"
#include "kernel.h"
#include "mappings.h"
#include "memory.h"
#include "path.h"
#include "replay.h"
#include "tally.h"
#include "world.h"

#define PAGE		XS_PAGE_BYTES

/* Folios of one unmap that are looked at afterwards. */
#define FOLIOS		64u

u32 part_pages(const struct part *part)
{
	u64 pages = ((part->offset & (PAGE - 1)) + part->bytes + PAGE - 1) >> XS_PAGE_LG2;

	return part->bytes && part->bytes <= (u64)MEMORY_SPAN_MAX << XS_PAGE_LG2 &&
	       pages <= MEMORY_SPAN_MAX ? (u32)pages : 0;
}

static void no_iova(void)
{
	replay_violated(0, "the engine has no IOVA left");
}

static u32 folio_of(const struct part *part)
{
	bool registers = part->flags & TRACE_MMIO;
	u32 folio = memory_folio(registers ? 0 : part->page, part_pages(part));

	memory_at(folio)->registers = registers;
	/* Memory in use does not become, or stop being, slab memory. */
	if (!memory_at(folio)->live)
		memory_at(folio)->unheld = part->flags & TRACE_UNHELD;
	return folio;
}

/* ---- copies: kmod/dma/bounce.c ---- */

/* As may_be_shared(). */
static bool may_be_shared(const struct part *part, bool listed)
{
	bool whole = !((part->offset | part->bytes) & (PAGE - 1));
	bool writes = (part->flags & TRACE_DIRECTION) == 2;

	return whole && (!writes || listed || !(part->flags & TRACE_SKIP_SYNC));
}

static enum xs_direction direction_of(const struct part *part)
{
	static const enum xs_direction directions[] = {
		XS_DIRECTION_BOTH, XS_DIRECTION_READ, XS_DIRECTION_WRITE, XS_DIRECTION_BOTH,
	};

	return directions[part->flags & TRACE_DIRECTION];
}

/* Returns the IOVA, or 0 if the buffer is not copied. */
static u64 copy_one(struct world *world, const struct part *part, u32 folio, bool listed, bool row)
{
	if (may_be_shared(part, listed) || part->flags & TRACE_MMIO ||
	    part->bytes > world->engine->tuning.copy_bytes)
		return 0;
	return xs_pool_map(&world->engine->pool, memory_phys(folio) + (part->offset & (PAGE - 1)),
			   (u32)part->bytes, direction_of(part), ~0ULL,
			   row ? (u32)PAGE - 1 : 0, !(part->flags & TRACE_SKIP_SYNC));
}

/* Copies a part for a mapping. Returns false if the part is not copied. */
static bool copy(struct world *world, u32 number, const struct part *part, bool listed, bool row)
{
	u32 folio = folio_of(part);
	u64 iova = copy_one(world, part, folio, listed, row);
	struct mapping *mapping = mapping_at(number);

	if (!iova) {
		memory_put(folio);
		return false;
	}
	memory_at(folio)->live++;
	mapping->way = WAY_COPIED;
	mapping->iova = iova;
	mapping->pages = part_pages(part);
	mapping->folio = folio;
	return true;
}

static void uncopy(struct world *world, const struct mapping *mapping)
{
	if (!xs_pool_unmap(&world->engine->pool, mapping->iova, true))
		replay_violated(0, "the engine does not know the copy at IOVA 0x%llx",
				(unsigned long long)mapping->iova);
	memory_at(mapping->folio)->live--;
	memory_put(mapping->folio);
}

static void uncopy_list(struct world *world, u32 number)
{
	for (; number; number = mapping_at(number)->rest)
		uncopy(world, mapping_at(number));
}

/* As place_of(): the entries are contiguous pages for the device. */
static bool is_row(const struct part *parts, u32 count)
{
	for (u32 i = 0; i < count; i++)
		if ((i && parts[i].offset & (PAGE - 1)) ||
		    (i < count - 1 && (parts[i].offset + parts[i].bytes) & (PAGE - 1)))
			return false;
	return count > 1;
}

/* Copies all entries of a list that is small as a whole, or none. */
static bool copy_list(struct world *world, u32 number, const struct part *parts, u32 count)
{
	u64 left = world->engine->tuning.copy_bytes;
	bool row = is_row(parts, count);
	u32 last = number;

	for (u32 i = 0; i < count; i++) {
		if (parts[i].bytes > left)
			return false;
		left -= parts[i].bytes;
	}
	for (u32 i = 0; i < count; i++) {
		const struct mapping *head = mapping_at(number);
		u32 next = i ? mapping_new(head->device, 0, parts[i].bytes, MAPPED_LIST) : number;

		if (copy(world, next, &parts[i], true, row)) {
			if (i)
				mapping_at(last)->rest = next;
			last = next;
			continue;
		}
		if (i) {
			uncopy_list(world, number);
			mapping_at(last)->rest = next;
			mapping_drop_rest(number);
		}
		return false;
	}
	return true;
}

/* ---- maps under a policy ---- */

/* The driver has the pages of a folio. */
static void mapped_folio(struct world *world, u64 iova, u32 folio, u32 pages, u32 prot)
{
	shadow_map(&world->shadow, iova >> XS_PAGE_LG2, folio, pages);
	if (checks_are_on(world))
		checks_mapped(iova >> XS_PAGE_LG2, pages, folio, prot);
}

/* Writes down a mapping of which the engine has returned the IOVA. */
static void mapped(struct world *world, u32 number, u64 iova, u32 folio, u32 pages, u32 prot)
{
	struct mapping *mapping = mapping_at(number);

	mapping->iova = iova;
	mapping->pages = pages;
	mapped_folio(world, iova, folio, pages, prot);
}

/* A driver takes a folio. A flush inside the map must not free it. */
static void take(struct world *world, u32 folio)
{
	memory_at(folio)->live++;
	if (checks_are_on(world))
		checks_take(folio);
}

/* The call that allocates IOVAs. @folio: of a map, of one page; else 0. */
static void map_begins(struct world *world, u32 pages, u32 folio)
{
	if (checks_are_on(world))
		checks_map(pages, pages == 1 ? folio : 0);
}

static void map_returns(struct world *world, u64 iova, u32 pages, bool reserved)
{
	if (!iova)
		no_iova();
	if (checks_are_on(world))
		checks_handed(iova >> XS_PAGE_LG2, pages, reserved);
}

static u64 alloc_iova(struct world *world, u32 pages)
{
	u64 iova;

	map_begins(world, pages, 0);
	iova = xs_engine_alloc_iova(world->engine, pages, ~0ULL);
	map_returns(world, iova, pages, true);
	return iova;
}

/* The call that writes entries at such IOVAs. */
static void fill_begins(struct world *world)
{
	if (checks_are_on(world))
		checks_call(XS_FLUSH_BIT(XS_FLUSH_FULL));
}

static void fill_returns(struct world *world, int error)
{
	if (error)
		no_iova();
	if (checks_are_on(world))
		checks_return();
}

/* Permissions of the kernel's IOMMU_READ and IOMMU_WRITE. */
static u32 prot_of(const struct part *part)
{
	static const u32 prots[] = { 3, 1, 2, 3 };

	return prots[part->flags & TRACE_DIRECTION];
}

/* As map_mmio(): there is no page to hold. */
static u64 map_mmio(struct world *world, const struct part *part, u32 folio, u32 pages)
{
	u64 iova = alloc_iova(world, pages);

	fill_begins(world);
	fill_returns(world, xs_engine_fill(world->engine, iova, memory_phys(folio), pages,
					   prot_of(part)));
	xs_engine_publish(world->engine, iova, pages);
	return iova;
}

static void engine_map(struct world *world, u32 number, const struct part *part)
{
	u32 pages = part_pages(part), folio;
	u64 iova;

	if (world->engine->tuning.copy_bytes && copy(world, number, part, false, false))
		return;
	folio = folio_of(part);
	take(world, folio);
	if (part->flags & TRACE_MMIO) {
		iova = map_mmio(world, part, folio, pages);
	} else {
		map_begins(world, pages, folio);
		iova = path_map(world->engine, memory_phys(folio), pages, prot_of(part));
		map_returns(world, iova, pages, false);
	}
	mapped(world, number, iova, folio, pages, prot_of(part));
	memory_at(folio)->live--;
}

/* Fills a range of more pages than a block, an entry at a time. */
static int fill_parts(struct world *world, u64 iova, const u32 *folios, u32 count, u32 prot)
{
	for (u32 i = 0; i < count; i++) {
		u32 pages = memory_at(folios[i])->pages;
		int error = xs_engine_fill(world->engine, iova, memory_phys(folios[i]), pages,
					   prot);

		if (error)
			return error;
		iova += (u64)pages << XS_PAGE_LG2;
	}
	return 0;
}

/* As map_segments() and map_contiguous(). */
static u64 engine_fill(struct world *world, const u32 *folios, u32 count, u32 pages, u32 prot)
{
	u64 iova = alloc_iova(world, pages);
	u64 phys[XS_BLOCK_PAGES];
	u32 at = 0;
	int error;

	fill_begins(world);
	if (pages > XS_BLOCK_PAGES) {
		error = fill_parts(world, iova, folios, count, prot);
		xs_engine_publish(world->engine, iova, pages);
	} else {
		for (u32 i = 0; i < count; i++)
			for (u32 j = 0; j < memory_at(folios[i])->pages; j++)
				phys[at++] = memory_phys(folios[i]) + j * PAGE;
		error = xs_engine_fill_each(world->engine, iova, phys, pages, prot);
	}
	fill_returns(world, error);
	return iova;
}

/* ---- the kernel's path ---- */

static u64 kernel_take(struct world *world, u64 pages)
{
	u64 page = kernel_alloc(world->kernel, pages);

	if (kernel_taken(world->kernel) > tally.taken)
		tally.taken = kernel_taken(world->kernel);
	return page;
}

static u64 kernel_fill(struct world *world, const u32 *folios, u32 count, u32 pages)
{
	u64 page = kernel_take(world, pages), at = page;

	for (u32 i = 0; i < count; i++) {
		u32 more = memory_at(folios[i])->pages;

		shadow_write(&world->shadow, at, memory_phys(folios[i]), more);
		at += more;
	}
	return page << XS_PAGE_LG2;
}

/* ---- maps ---- */

/* Maps parts to one range, on either side. */
static void map_parts(struct world *world, u32 number, const struct part *parts, u32 count)
{
	u32 *folios = malloc(count * sizeof(*folios));
	struct mapping *mapping = mapping_at(number);
	u32 pages = 0;
	u64 iova, at;

	if (!folios)
		replay_stop("no memory for a list of %u entries", count);
	for (u32 i = 0; i < count; i++) {
		folios[i] = folio_of(&parts[i]);
		/* Two entries may be the same folio. */
		take(world, folios[i]);
		pages += part_pages(&parts[i]);
	}
	iova = world->engine ? engine_fill(world, folios, count, pages, prot_of(parts)) :
			       kernel_fill(world, folios, count, pages);
	mapping->iova = at = iova;
	mapping->pages = pages;
	for (u32 i = 0; i < count; i++) {
		u32 more = memory_at(folios[i])->pages;

		mapped_folio(world, at, folios[i], more, prot_of(parts));
		memory_at(folios[i])->live--;
		at += (u64)more << XS_PAGE_LG2;
	}
	free(folios);
}

void call_map(struct world *world, u32 number, const struct part *part)
{
	if (world->engine)
		engine_map(world, number, part);
	else
		map_parts(world, number, part, 1);
	tally_map(part_pages(part));
}

/* As map_segment(): a list of one entry. */
static void map_segment(struct world *world, u32 number, const struct part *part, u32 pages)
{
	u32 folio = folio_of(part);
	u64 iova;

	take(world, folio);
	map_begins(world, pages, folio);
	iova = xs_engine_map(world->engine, memory_phys(folio), pages, prot_of(part), ~0ULL);
	map_returns(world, iova, pages, false);
	mapped(world, number, iova, folio, pages, prot_of(part));
	memory_at(folio)->live--;
}

void call_map_list(struct world *world, u32 number, const struct part *parts, u32 count)
{
	u32 pages = 0;

	for (u32 i = 0; i < count; i++)
		pages += part_pages(&parts[i]);
	tally_map(pages);
	if (world->engine && world->engine->tuning.copy_bytes &&
	    copy_list(world, number, parts, count))
		return;
	mapping_at(number)->way = WAY_MAPPED;
	if (world->engine && count == 1)
		map_segment(world, number, parts, pages);
	else
		map_parts(world, number, parts, count);
}

void call_alloc(struct world *world, u32 number, const struct part *part)
{
	map_parts(world, number, part, 1);
	tally_map(part_pages(part));
}

void call_range(struct world *world, u32 number)
{
	struct mapping *mapping = mapping_at(number);
	struct part part = { 0, mapping->bytes, (u32)(mapping->address & (PAGE - 1)), 0 };

	if (world->engine)
		return;
	mapping->pages = part_pages(&part);
	mapping->iova = kernel_take(world, mapping->pages) << XS_PAGE_LG2;
}

/* Tests whether a part can be linked at a page of a range: there is room, and nothing is there. */
static bool has_room(struct world *world, const struct mapping *range, u64 at, u32 pages)
{
	return at + pages <= range->pages &&
	       shadow_is_clean(&world->shadow, (range->iova >> XS_PAGE_LG2) + at, pages);
}

void call_link(struct world *world, u32 number, u32 range, const struct part *part)
{
	struct mapping *whole = mapping_at(range);
	struct mapping *mapping = mapping_at(number);
	u64 at = (mapping->address >> XS_PAGE_LG2) - (whole->address >> XS_PAGE_LG2);
	u32 folio;

	if (world->engine || !range || !has_room(world, whole, at, part_pages(part))) {
		call_map(world, number, part);
		return;
	}
	folio = folio_of(part);
	mapping->way = WAY_IN_RANGE;
	mapping->range = range;
	whole->links++;
	mapping->pages = part_pages(part);
	mapping->iova = whole->iova + at * PAGE;
	shadow_write(&world->shadow, mapping->iova >> XS_PAGE_LG2, memory_phys(folio),
		     mapping->pages);
	shadow_map(&world->shadow, mapping->iova >> XS_PAGE_LG2, folio, mapping->pages);
	tally_map(mapping->pages);
}

/* ---- unmaps ---- */

static void engine_unmap(struct world *world, const struct mapping *mapping)
{
	bool now = mapping->kind == MAPPED_COHERENT;

	if (now) {
		if (!xs_engine_unmap(world->engine, mapping->iova, mapping->pages, true))
			replay_violated(3, "memory cannot be freed");
	} else if (replay.options.aware) {
		path_unmap_deferred(world->engine, mapping->iova, mapping->pages);
		world_batch(world);
	} else {
		path_unmap(world->engine, mapping->iova, mapping->pages);
	}
}

void call_unmap(struct world *world, u32 number)
{
	struct mapping mapping = *mapping_at(number);
	u32 folios[FOLIOS], count;

	if (mapping.way == WAY_COPIED) {
		u32 pages = 0;

		for (u32 at = number; at; at = mapping_at(at)->rest)
			pages += mapping_at(at)->pages;
		uncopy_list(world, number);
		tally_unmap(pages);
		return;
	}
	if (mapping.way == WAY_IN_RANGE)
		mapping_at(mapping.range)->links--;
	if (checks_are_on(world))
		checks_unmap(mapping.iova >> XS_PAGE_LG2, mapping.pages,
			     mapping.kind == MAPPED_COHERENT);
	memory_unmap = tally.unmaps + 1;
	count = shadow_unmap(&world->shadow, mapping.iova >> XS_PAGE_LG2, mapping.pages, folios,
			     FOLIOS);
	if (world->engine)
		engine_unmap(world, &mapping);
	else
		kernel_unmap(world->kernel, mapping.iova >> XS_PAGE_LG2, mapping.pages,
			     mapping.way != WAY_IN_RANGE);
	memory_unmap = 0;
	world_unmapped(world, mapping.iova >> XS_PAGE_LG2, mapping.pages,
		       mapping.kind == MAPPED_COHERENT, folios, count);
	if (checks_are_on(world))
		checks_unmapped();
	tally_unmap(mapping.pages);
}

/* Pages of the first @bytes of a range. */
static u32 range_pages(const struct mapping *range, u64 bytes)
{
	struct part part = { 0, bytes, (u32)(range->address & (PAGE - 1)), 0 };

	return bytes ? part_pages(&part) : 0;
}

bool call_is_whole(struct world *world, u32 number, u64 bytes)
{
	const struct mapping *range = mapping_at(number);
	u64 page = range->iova >> XS_PAGE_LG2;
	u32 pages = range_pages(range, bytes);

	return pages && shadow_present(&world->shadow, page, range->pages) == pages &&
	       shadow_present(&world->shadow, page, pages) == pages;
}

/* As dma_iova_destroy(). */
void call_unmap_range(struct world *world, u32 number, u64 bytes)
{
	struct mapping *range = mapping_at(number);
	u64 page = range->iova >> XS_PAGE_LG2;
	u32 folios[FOLIOS], count, pages = range_pages(range, bytes);

	count = shadow_unmap(&world->shadow, page, pages, folios, FOLIOS);
	kernel_unmap(world->kernel, page, pages, true);
	world_unmapped(world, page, pages, false, folios, count);
	tally_unmap(pages);
	range->links = 0;
}

void call_free_range(struct world *world, u32 number)
{
	const struct mapping *range = mapping_at(number);

	kernel_free(world->kernel, range->iova >> XS_PAGE_LG2, range->pages);
}

void call_sync(struct world *world, u32 number, u64 bytes, bool to_device)
{
	const struct mapping *mapping = mapping_at(number);

	if (mapping->way != WAY_COPIED)
		return;
	if (bytes > mapping->bytes)
		bytes = mapping->bytes;
	xs_pool_sync(&world->engine->pool, mapping->iova, (u32)bytes, to_device);
}
