// SPDX-License-Identifier: GPL-2.0-only
/* See shadow.h. */
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "replay.h"
#include "shadow.h"
#include "tally.h"

#define CHUNK_LG2	6
#define CHUNK_PAGES	(1u << CHUNK_LG2)
#define TABLE_LG2	9	/* entries of a page-table page */

/*
 * struct shadow_chunk - 64 neighbours
 * @number:	page number / 64
 * @used:	pages that are not clean
 * @next:	next spare chunk
 */
struct shadow_chunk {
	u64 number;
	u32 used;
	struct shadow_chunk *next;
	struct shadow_page pages[CHUNK_PAGES];
};

void shadow_init(struct shadow *shadow, u32 cpus, u64 identity, u64 bound_ns)
{
	memset(shadow, 0, sizeof(*shadow));
	shadow->identity = identity;
	shadow->bound_ns = bound_ns;
	shadow->pending = calloc(cpus, sizeof(*shadow->pending));
	if (!shadow->pending)
		replay_stop("no memory for %u CPUs", cpus);
	gauge_add(&tally.tables, 1);
}

/* ---- look-ups ---- */

static struct shadow_chunk *chunk_new(struct shadow *shadow, u64 number)
{
	struct shadow_chunk *chunk = shadow->spare;

	if (chunk)
		shadow->spare = chunk->next;
	else
		chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		replay_stop("no memory for the shadow page table");
	chunk->number = number;
	*table_at(&shadow->chunks, number) = (u64)chunk;
	return chunk;
}

/* Returns the chunk of a page; NULL if the chunk is clean and not @made. */
static struct shadow_chunk *chunk_of(struct shadow *shadow, u64 page, bool made)
{
	u64 number = page >> CHUNK_LG2;

	if (!shadow->last || shadow->last->number != number) {
		struct shadow_chunk *chunk =
			(struct shadow_chunk *)table_get(&shadow->chunks, number);

		if (!chunk && made)
			chunk = chunk_new(shadow, number);
		if (!chunk)
			return NULL;
		shadow->last = chunk;
	}
	return shadow->last;
}

static struct shadow_page *page_of(struct shadow_chunk *chunk, u64 page)
{
	return &chunk->pages[page & (CHUNK_PAGES - 1)];
}

static bool is_clean(const struct shadow_page *at)
{
	return !at->state && !at->live;
}

/* Call after a page has become clean. Spare chunks are clean. */
static void chunk_put(struct shadow *shadow, struct shadow_chunk *chunk)
{
	if (--chunk->used)
		return;
	table_delete(&shadow->chunks, chunk->number);
	if (shadow->last == chunk)
		shadow->last = NULL;
	chunk->next = shadow->spare;
	shadow->spare = chunk;
}

/* ---- page-table pages ---- */

/* Levels 1 and 2 above the last: 1 GiB and 512 GiB. */
static u64 upper_key(u64 page, u32 level)
{
	return (page >> TABLE_LG2 * (level + 1)) << 2 | level;
}

/* A value counts the tables below, and is never 0. */
static void uppers_add(struct shadow *shadow, u64 page)
{
	for (u32 level = 1; level <= 2; level++) {
		u64 *below = table_at(&shadow->uppers, upper_key(page, level));

		if ((*below)++)
			return;
		gauge_add(&tally.tables, 1);
	}
}

static void uppers_drop(struct shadow *shadow, u64 page)
{
	for (u32 level = 1; level <= 2; level++) {
		u64 *below = table_at(&shadow->uppers, upper_key(page, level));

		if (--*below)
			return;
		*below = 1;
		table_delete(&shadow->uppers, upper_key(page, level));
		gauge_add(&tally.tables, -1);
	}
}

/* A map touches the region of a page-table page. */
static void touch_table(struct shadow *shadow, u64 page)
{
	u64 *touched = table_at(&shadow->tables, page >> TABLE_LG2);
	u32 now = tally_stretch();
	bool is_new = !*touched;

	if (*touched == now)
		return;
	*touched = now;
	tally.regions++;
	if (is_new) {
		gauge_add(&tally.tables, 1);
		uppers_add(shadow, page);
	}
}

static void free_table(struct shadow *shadow, u64 page)
{
	if (!table_get(&shadow->tables, page >> TABLE_LG2))
		return;
	table_delete(&shadow->tables, page >> TABLE_LG2);
	gauge_add(&tally.tables, -1);
	uppers_drop(shadow, page);
}

/* Frees the page-table pages whose whole region is in the range; returns whether there are any. */
static bool free_tables(struct shadow *shadow, u64 page, u64 pages)
{
	u64 size = 1ULL << TABLE_LG2, first = (page + size - 1) >> TABLE_LG2;
	bool any = false;

	for (u64 at = first; at < (page + pages) >> TABLE_LG2; at++) {
		any |= table_get(&shadow->tables, at) != 0;
		free_table(shadow, at << TABLE_LG2);
	}
	return any;
}

/* ---- the backend's view ---- */

void shadow_write(struct shadow *shadow, u64 page, u64 phys, u64 pages)
{
	u32 folio = memory_of(phys);

	for (u64 i = 0; i < pages; i++) {
		struct shadow_chunk *chunk = chunk_of(shadow, page + i, true);
		struct shadow_page *at = page_of(chunk, page + i);

		/* Larger folios have a range of addresses of their own. */
		if (i)
			folio = memory_of(phys + (i << XS_PAGE_LG2));
		if (at->state & SHADOW_PRESENT)
			replay_violated(1, "an entry is written over at IOVA 0x%llx",
					(unsigned long long)(page + i) << XS_PAGE_LG2);
		if (at->state & SHADOW_STALE)
			replay_violated(1, "IOVA 0x%llx is mapped while a translation of it may be cached",
					(unsigned long long)(page + i) << XS_PAGE_LG2);
		at->state = SHADOW_PRESENT;
		at->folio = folio;
		chunk->used++;
		if (!i || !((page + i) & ((1u << TABLE_LG2) - 1)))
			touch_table(shadow, page + i);
	}
}

static void stale_add(struct shadow *shadow, u64 page, u64 pages)
{
	if (shadow->stale_count == shadow->stale_room) {
		shadow->stale_room = shadow->stale_room ? 2 * shadow->stale_room : 64;
		shadow->stale = realloc(shadow->stale,
					shadow->stale_room * sizeof(*shadow->stale));
		if (!shadow->stale)
			replay_stop("no memory for stale translations");
	}
	shadow->stale[shadow->stale_count++] = (struct xs_range) { page, pages };
}

bool shadow_remove(struct shadow *shadow, u64 page, u64 pages)
{
	for (u64 i = 0; i < pages; i++) {
		struct shadow_chunk *chunk = chunk_of(shadow, page + i, false);
		struct shadow_page *at = chunk ? page_of(chunk, page + i) : NULL;

		if (!at || !(at->state & SHADOW_PRESENT))
			replay_violated(3, "an entry is removed that is not there, at IOVA 0x%llx",
					(unsigned long long)(page + i) << XS_PAGE_LG2);
		if (at->live)
			replay_violated(5, "IOVA 0x%llx is removed while a driver has it mapped",
					(unsigned long long)(page + i) << XS_PAGE_LG2);
		at->state = (u8)((at->state & ~SHADOW_PRESENT) | SHADOW_STALE);
	}
	stale_add(shadow, page, pages);
	return free_tables(shadow, page, pages);
}

static void expose(struct shadow *shadow, struct shadow_page *at)
{
	u64 ns = replay.now_ns - at->unmapped_ns;
	struct folio *folio = memory_at(at->folio);

	times_add(&tally.exposure, ns, 1);
	if (shadow->bound_ns && ns > shadow->bound_ns)
		replay_violated(3, "a page was exposed for %llu ns, and the window is %llu ns",
				(unsigned long long)ns, (unsigned long long)shadow->bound_ns);
	shadow->pending[at->cpu]--;
	shadow->all_pending--;
	gauge_add(&tally.pending, -1);
	folio->pending--;
	memory_put(at->folio);
}

/* No translation of the page is cached any more. Returns false if none was. */
static bool forget(struct shadow *shadow, u64 page)
{
	struct shadow_chunk *chunk = chunk_of(shadow, page, false);
	struct shadow_page *at = chunk ? page_of(chunk, page) : NULL;

	if (!at || !(at->state & SHADOW_STALE))
		return false;
	if (at->state & SHADOW_PENDING)
		expose(shadow, at);
	at->state = 0;
	if (is_clean(at))
		chunk_put(shadow, chunk);
	return true;
}

/* Forgets the pages of an extent that a range covers. Returns their number. */
static u64 forget_range(struct shadow *shadow, const struct xs_range *extent,
			const struct xs_range *range)
{
	u64 end = extent->page + extent->pages, range_end = range->page + range->pages;
	u64 at = extent->page > range->page ? extent->page : range->page, count = 0;

	for (end = end < range_end ? end : range_end; at < end; at++)
		count += forget(shadow, at);
	return count;
}

/* Ranges may cover an extent together. */
static bool forget_extent(struct shadow *shadow, const struct xs_range *extent,
			  const struct xs_range *ranges, u32 count)
{
	u64 covered = 0;

	if (!count)
		return forget_range(shadow, extent, extent);
	for (u32 i = 0; i < count && covered < extent->pages; i++)
		covered += forget_range(shadow, extent, &ranges[i]);
	return covered == extent->pages;
}

void shadow_invalidate(struct shadow *shadow, const struct xs_range *ranges, u32 count)
{
	u32 left = 0;

	for (u32 i = 0; i < shadow->stale_count; i++) {
		struct xs_range extent = shadow->stale[i];

		if (!forget_extent(shadow, &extent, ranges, count))
			shadow->stale[left++] = extent;
	}
	shadow->stale_count = left;
}

void shadow_check_flushed(const struct shadow *shadow)
{
	if (shadow->stale_count)
		replay_violated(3, "a flush leaves stale translations of %llu pages at IOVA 0x%llx",
				(unsigned long long)shadow->stale->pages,
				(unsigned long long)shadow->stale->page << XS_PAGE_LG2);
}

void shadow_prune(struct shadow *shadow, u64 page, u64 pages)
{
	if (shadow_present(shadow, page, pages))
		replay_violated(4, "page tables are freed that have entries, at IOVA 0x%llx",
				(unsigned long long)page << XS_PAGE_LG2);
	free_tables(shadow, page, pages);
}

/* Returns the pages that have a state of @states. */
static u64 count_pages(struct shadow *shadow, u64 page, u64 pages, u32 states)
{
	u64 count = 0;

	for (u64 at = page; at < page + pages; at++) {
		struct shadow_chunk *chunk = chunk_of(shadow, at, false);

		if (chunk)
			count += (page_of(chunk, at)->state & states) != 0;
		else
			at |= CHUNK_PAGES - 1;
	}
	return count;
}

u64 shadow_present(struct shadow *shadow, u64 page, u64 pages)
{
	return count_pages(shadow, page, pages, SHADOW_PRESENT);
}

u64 shadow_pending(struct shadow *shadow, u64 page, u64 pages)
{
	return count_pages(shadow, page, pages, SHADOW_PENDING);
}

u32 shadow_folio(struct shadow *shadow, u64 page)
{
	struct shadow_chunk *chunk = chunk_of(shadow, page, false);
	const struct shadow_page *at = chunk ? page_of(chunk, page) : NULL;

	return at && at->state ? at->folio : 0;
}

bool shadow_is_clean(struct shadow *shadow, u64 page, u64 pages)
{
	return !count_pages(shadow, page, pages, ~0u);
}

/* ---- the driver's view ---- */

/* In the identity window a page is mapped again before its flush, to the same memory. */
static void revive(struct shadow *shadow, u64 page, struct shadow_page *at)
{
	if (page < shadow->identity)
		replay_violated(1, "IOVA 0x%llx is handed out before it is flushed",
				(unsigned long long)page << XS_PAGE_LG2);
	at->state &= (u8)~SHADOW_PENDING;
	shadow->pending[at->cpu]--;
	shadow->all_pending--;
	gauge_add(&tally.pending, -1);
	memory_at(at->folio)->pending--;
	tally.revived++;
}

void shadow_map(struct shadow *shadow, u64 page, u32 folio, u32 pages)
{
	for (u32 i = 0; i < pages; i++) {
		struct shadow_chunk *chunk = chunk_of(shadow, page + i, false);
		struct shadow_page *at = chunk ? page_of(chunk, page + i) : NULL;

		if (!at || !(at->state & SHADOW_PRESENT) || at->folio != folio)
			replay_violated(5, "a map returns IOVA 0x%llx, which the page table does not map to the memory",
					(unsigned long long)(page + i) << XS_PAGE_LG2);
		if (at->state & SHADOW_PENDING)
			revive(shadow, page + i, at);
		else if (at->live && page < shadow->identity)
			replay_violated(1, "two mappings have IOVA 0x%llx",
					(unsigned long long)(page + i) << XS_PAGE_LG2);
		at->live++;
	}
	shadow->live += pages;
	memory_at(folio)->live += pages;
	gauge_add(&tally.mapped, pages);
}

static void drop(struct shadow *shadow, struct shadow_page *at)
{
	struct folio *folio = memory_at(at->folio);

	folio->live--;
	folio->unmap = memory_unmap;
	if (--at->live)
		return;
	at->state |= SHADOW_PENDING;
	at->unmapped_ns = replay.now_ns;
	at->cpu = (u16)running_cpu;
	shadow->pending[running_cpu]++;
	shadow->all_pending++;
	gauge_add(&tally.pending, 1);
	folio->pending++;
}

u32 shadow_unmap(struct shadow *shadow, u64 page, u32 pages, u32 *folios, u32 room)
{
	u32 count = 0, last = 0;

	for (u32 i = 0; i < pages; i++) {
		struct shadow_chunk *chunk = chunk_of(shadow, page + i, false);
		struct shadow_page *at = chunk ? page_of(chunk, page + i) : NULL;

		if (!at || !at->live)
			replay_stop("the world has lost the mapping at IOVA 0x%llx",
				    (unsigned long long)(page + i) << XS_PAGE_LG2);
		drop(shadow, at);
		if (at->folio != last && count < room)
			folios[count++] = at->folio;
		last = at->folio;
	}
	shadow->live -= pages;
	gauge_add(&tally.mapped, -(s64)pages);
	return count;
}
