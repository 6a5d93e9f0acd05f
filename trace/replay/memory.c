// SPDX-License-Identifier: GPL-2.0-only
/* See memory.h. */
#include <xsmmu/slot.h>

#include "checks.h"
#include "replay.h"
#include "memory.h"
#include "table.h"
#include "tally.h"

/*
 * Physical pages: below FIRST_LARGE single pages, by their folio's number; in a raw recording, by
 * their page frame number. From FIRST_LARGE on, MEMORY_SPAN_MAX pages for each larger folio.
 */
#define FIRST_LARGE	(1ULL << 39)
#define LARGE_FOLIOS	(1u << 23)

u64 memory_unmap;

static struct pool folios;
static struct table by_key, by_page;

void memory_init(void)
{
	folios = POOL_OF(struct folio);
}

/* Never 0. A larger folio has another key than its first page. */
static u64 key_of(u64 identity, u32 pages)
{
	return identity ^ (pages - 1) * 0x9e3779b97f4a7c15ULL;
}

static u64 page_for(u32 folio, u64 identity, u32 pages)
{
	if (pages > 1) {
		if (folio >= LARGE_FOLIOS)
			replay_stop("more than %u buffers of several pages are mapped at once", LARGE_FOLIOS);
		return FIRST_LARGE + ((u64)folio << MEMORY_SPAN_LG2);
	}
	if (replay.options.raw && identity && identity < FIRST_LARGE / 2) {
		*table_at(&by_page, identity) = folio;
		return identity;
	}
	/* Apart from page frame numbers. */
	return replay.options.raw ? FIRST_LARGE / 2 + folio : folio;
}

u32 memory_folio(u64 identity, u32 pages)
{
	u64 key = identity ? key_of(identity, pages) : 0;
	u32 number = key ? (u32)table_get(&by_key, key) : 0;
	struct folio *folio;

	if (number)
		return number;
	number = pool_take(&folios);
	folio = memory_at(number);
	folio->key = key;
	folio->pages = pages;
	folio->page = page_for(number, identity, pages);
	if (key)
		*table_at(&by_key, key) = number;
	return number;
}

struct folio *memory_at(u32 folio)
{
	return pool_at(&folios, folio);
}

u64 memory_phys(u32 folio)
{
	return memory_at(folio)->page << XS_PAGE_LG2;
}

u32 memory_of(u64 phys)
{
	u64 page = phys >> XS_PAGE_LG2;

	if (page >= FIRST_LARGE)
		return (u32)((page - FIRST_LARGE) >> MEMORY_SPAN_LG2);
	if (!replay.options.raw)
		return (u32)page;
	return page >= FIRST_LARGE / 2 ? (u32)(page - FIRST_LARGE / 2) :
					 (u32)table_get(&by_page, page);
}

void memory_put(u32 number)
{
	struct folio *folio = memory_at(number);

	if (folio->live || folio->holds || folio->users)
		return;
	if (folio->out)
		checks_freed(number);
	if (folio->pending)
		return;
	if (folio->key)
		table_delete(&by_key, folio->key);
	if (replay.options.raw && folio->page < FIRST_LARGE / 2)
		table_delete(&by_page, folio->page);
	pool_put(&folios, number);
}

/* ---- references, for the engine ---- */

xs_ref_t xs_ref_of(u64 phys)
{
	u32 folio = memory_of(phys);

	return memory_at(folio)->unheld ? XS_REF_UNHELD : (xs_ref_t)((u64)folio << 3);
}

static u32 folio_of(xs_ref_t ref)
{
	return (u32)((u64)ref >> 3);
}

u32 xs_ref_span(xs_ref_t ref, u64 phys)
{
	const struct folio *folio = memory_at(folio_of(ref));

	return folio->pages - (u32)((phys >> XS_PAGE_LG2) - folio->page);
}

/* The driver has its own reference until its unmap returns, so a hold never fails. */
bool xs_ref_hold(xs_ref_t ref)
{
	struct folio *folio = memory_at(folio_of(ref));

	if (!folio->holds++)
		gauge_add(&tally.held, folio->pages);
	return true;
}

void xs_ref_release(xs_ref_t ref)
{
	struct folio *folio = memory_at(folio_of(ref));

	if (!folio->holds)
		replay_violated(2, "a page is released that is not held");
	if (--folio->holds)
		return;
	gauge_add(&tally.held, -(s64)folio->pages);
	if (folio->pending && !(memory_unmap && folio->unmap == memory_unmap))
		replay_violated(2, "a page goes back to the allocator while %u translations of it may be cached",
				folio->pending);
	memory_put(folio_of(ref));
}
