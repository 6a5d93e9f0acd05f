// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Unmaps that match no mapping; see tear.h. */
#include <xsmmu/claim.h>
#include <xsmmu/place.h>
#include <xsmmu/stuck.h>
#include <xsmmu/flush.h>
#include <xsmmu/tear.h>

/* ---- finding mappings ---- */

/* Size of the untorn mapping that begins at @page of @leaf; 0 if there is none. */
static u32 xs_mapping_at(struct xs_leaf *leaf, u64 page)
{
	struct xs_block *block = xs_leaf_block(leaf, page);
	u32 at = page & (XS_BLOCK_PAGES - 1);
	u64 extent = at ? 0 : xs_a64_read(&block->extent_pages);
	xs_slot_t *slots = xs_load_acquire(&leaf->slots);
	u64 slot, joined = xs_a64_read(&block->joined);

	/* A stuck extent was unmapped. */
	if (extent)
		return extent & XS_EXTENT_STUCK ? 0 : (u32)extent;
	if (!slots || (joined | xs_a64_read(&block->stuck)) >> at & 1)
		return 0;
	slot = xs_a64_read(&slots[xs_slot_at(page)]);
	if (xs_slot_is_one(slot))
		return 1;
	if (!xs_slot_is_many(slot))
		return 0;
	/* Without a second page the mapping is not published, or is claimed. */
	joined = at < XS_BLOCK_PAGES - 1 ? joined >> (at + 1) : 0;
	return joined & 1 ? 1 + xs_mask_extent(joined) : 0;
}

static u64 xs_leaf_page(const struct xs_leaf *leaf)
{
	return leaf->blocks[0].iova >> XS_PAGE_LG2;
}

bool xs_leaf_mapping(struct xs_leaf *leaf, u64 from, u64 end,
		  struct xs_found *found)
{
	u64 page = from & ~(u64)(XS_BLOCK_PAGES - 1);
	u64 first = xs_leaf_page(leaf);
	u32 pages;

	found->torn = 0;
	found->page = end;
	for (struct xs_torn *torn = leaf->torn; torn; torn = torn->next) {
		if (torn->page >= found->page ||
		    torn->page + torn->pages <= from)
			continue;
		found->torn = torn;
		found->page = torn->page;
		found->pages = torn->pages;
	}
	if (page < first)
		page = first;
	for (; page < found->page && page < first + XS_LEAF_PAGES;
	     page += pages ? pages : 1) {
		pages = xs_mapping_at(leaf, page);
		if (!pages || page + pages <= from)
			continue;
		found->torn = 0;
		found->page = page;
		found->pages = pages;
		return true;
	}
	return found->torn;
}

/*
 * Finds the mapping of whole blocks that has @page and begins before the block of @page. The
 * start of the mapping is a multiple of a power of two no less than the mapping's size.
 */
static bool xs_find_extent(struct xs_engine *engine, u64 page,
			   struct xs_found *found)
{
	u64 block = page >> XS_BLOCK_LG2;

	for (block &= block - 1; block; block &= block - 1) {
		u64 first = block << XS_BLOCK_LG2;
		struct xs_leaf *leaf = xs_tree_leaf(&engine->space.tree, first);

		if (leaf && xs_leaf_mapping(leaf, first, first + 1, found) &&
		    found->page == first && first + found->pages > page)
			return true;
	}
	return false;
}

/*
 * Finds the first mapping that has pages of [@from, @end), or begins before @from and has page
 * @from. The range is inside a leaf, which bounds the search. The lock is held. Entered.
 */
static bool xs_find(struct xs_engine *engine, u64 from, u64 end,
		    struct xs_found *found)
{
	struct xs_leaf *leaf = xs_tree_leaf(&engine->space.tree, from);

	if (xs_find_extent(engine, from, found))
		return true;
	return leaf && xs_leaf_mapping(leaf, from, end, found);
}

static u64 xs_leaf_end(u64 page)
{
	return (page | (XS_LEAF_PAGES - 1)) + 1;
}

/* First page at or after @page with a leaf; ~0 if there is none. */
static u64 xs_next_leaf_page(struct xs_engine *engine, u64 page)
{
	struct xs_leaf *leaf;

	xs_enter();
	leaf = xs_tree_next_leaf(&engine->space.tree, &page);
	xs_exit();
	return leaf ? page : ~0ULL;
}

/* ---- records ---- */

static size_t xs_torn_bytes(u32 pages)
{
	return sizeof(struct xs_torn) + ((u64)pages + 63) / 64 * sizeof(u64);
}

/* Makes a record of a mapping that is about to be claimed; NULL without memory. */
static struct xs_torn *xs_torn_new(struct xs_engine *engine,
				   const struct xs_found *found)
{
	struct xs_torn *torn =
		xs_ops(engine)->alloc(xs_backend(engine),
				      xs_torn_bytes(found->pages), XS_ANY_CPU,
				      true);

	if (!torn)
		return 0;
	torn->page = found->page;
	torn->pages = found->pages;
	torn->unnamed = found->pages;
	return torn;
}

static void xs_torn_free(struct xs_engine *engine, struct xs_torn *torn)
{
	if (torn)
		xs_ops(engine)->free(xs_backend(engine), torn,
				     xs_torn_bytes(torn->pages));
}

void xs_leaf_free_torn(struct xs_tree *tree, struct xs_leaf *leaf)
{
	while (leaf->torn) {
		struct xs_torn *torn = leaf->torn;

		leaf->torn = torn->next;
		tree->ops->free(tree->backend, torn, xs_torn_bytes(torn->pages));
	}
}

void xs_tears_free(struct xs_engine *engine)
{
	while (engine->tears.done) {
		struct xs_torn *torn = engine->tears.done;

		engine->tears.done = torn->next_done;
		if (torn->failed)
			xs_torn_free(engine, torn);
	}
}

/* The list for a record. The lock is held. Entered. */
static struct xs_torn **xs_torn_list(struct xs_engine *engine,
				     const struct xs_torn *torn)
{
	return &xs_tree_leaf(&engine->space.tree, torn->page)->torn;
}

static void xs_torn_add(struct xs_engine *engine, struct xs_torn *torn)
{
	struct xs_torn **list = xs_torn_list(engine, torn);

	torn->next = *list;
	*list = torn;
}

/* Takes a record off its list; harmless if done before. */
static void xs_torn_take(struct xs_engine *engine, const struct xs_torn *torn)
{
	struct xs_torn **at = xs_torn_list(engine, torn);

	while (*at && *at != torn)
		at = &(*at)->next;
	if (*at)
		*at = torn->next;
}

/* The whole mapping is removed: devices reach none of the remaining pages. */
static void xs_torn_gone(struct xs_engine *engine, struct xs_torn *torn)
{
	if (!torn->gone)
		engine->tears.unnamed -= torn->unnamed;
	torn->gone = true;
}

static void xs_torn_done(struct xs_engine *engine, struct xs_torn *torn)
{
	xs_torn_gone(engine, torn);
	torn->unnamed = 0;
	if (torn->done)
		return;
	torn->done = true;
	torn->next_done = engine->tears.done;
	engine->tears.done = torn;
}

/* An unmap has named the mapping's pages in [@from, @end). */
static void xs_torn_name(struct xs_engine *engine, struct xs_torn *torn,
			 u64 from, u64 end)
{
	u32 at = from > torn->page ? (u32)(from - torn->page) : 0;
	u32 stop = end - torn->page < torn->pages ? (u32)(end - torn->page) :
						    torn->pages;
	u32 before = torn->unnamed;

	torn->meant |= from >= torn->page;
	while (at < stop) {
		u64 *named = &torn->named[at / 64];
		u32 count = 64 - at % 64 < stop - at ? 64 - at % 64 : stop - at;
		u64 mask = xs_mask_of(at % 64, count);

		torn->unnamed -= xs_popcount(mask & ~*named);
		*named |= mask;
		at += count;
	}
	if (!torn->gone)
		engine->tears.unnamed -= before - torn->unnamed;
	if (!torn->unnamed)
		xs_torn_done(engine, torn);
}

/* ---- tearing ---- */

/* Claims a mapping without a record. */
static bool xs_claim_found(struct xs_engine *engine,
			   const struct xs_found *found, struct xs_claim *claim)
{
	claim->page = found->page;
	claim->pages = found->pages;
	return found->pages > XS_BLOCK_PAGES ?
		xs_space_claim_extent(&engine->space, found->page << XS_PAGE_LG2,
				      found->pages) :
		xs_claim_mapping(engine, claim);
}

/* Result of taking a mapping: gone meanwhile, recorded, or claimed without memory for a record. */
enum xs_tear_result { XS_TEAR_GONE, XS_TEAR_RECORD, XS_TEAR_ALL };

/* Takes a mapping and notes which pages are named. The lock is held. */
static enum xs_tear_result xs_tear_take(struct xs_engine *engine,
					struct xs_found *found, u64 from,
					u64 end, struct xs_claim *claim)
{
	struct xs_torn *torn = found->torn;

	if (!torn) {
		torn = xs_torn_new(engine, found);
		if (!xs_claim_found(engine, found, claim)) {
			xs_torn_free(engine, torn);
			return XS_TEAR_GONE;
		}
		if (!torn)
			return XS_TEAR_ALL;
		if (claim->pages <= XS_BLOCK_PAGES)
			xs_claim_vacate(claim);
		engine->tears.unnamed += torn->pages;
		xs_torn_add(engine, torn);
	}
	xs_torn_name(engine, torn, from, end);
	torn->removing++;
	found->torn = torn;
	return XS_TEAR_RECORD;
}

/* Records are done: the backend must call xs_engine_trim(). */
static void xs_tear_tell_done(struct xs_engine *engine)
{
	if (xs_ops(engine)->surplus)
		xs_ops(engine)->surplus(xs_backend(engine));
}

/*
 * Makes a torn mapping stuck that the backend could not remove completely (stuck.h);
 * xs_engine_retry() removes the mapping. @returns: the driver's call has not returned, so the
 * memory can be held. Entered.
 */
static void xs_torn_stick(struct xs_engine *engine, u64 page, u32 pages,
			  bool returns)
{
	xs_claim_count(engine, pages);
	if (pages > XS_BLOCK_PAGES) {
		xs_stuck_mark_extent(engine, page << XS_PAGE_LG2, pages);
		return;
	}
	if (returns)
		xs_stuck_hold(engine, page, pages);
	else
		xs_stuck_set_ref(engine, page, pages, XS_REF_NONE);
	xs_stuck_mark(engine, page, pages);
}

/*
 * Handles a torn mapping that the backend could not remove completely: the mapping is stuck. No
 * unmap finds the record any more, and xs_engine_mend() frees only the record. Entered.
 */
static void xs_tear_failed(struct xs_engine *engine, struct xs_torn *torn)
{
	xs_flags_t flags = xs_lock_irqsave(&engine->tears.lock);
	bool first = !torn->failed;

	torn->failed = true;
	xs_torn_done(engine, torn);
	xs_torn_take(engine, torn);
	xs_unlock_irqrestore(&engine->tears.lock, flags);
	if (first)
		xs_torn_stick(engine, torn->page, torn->pages, true);
	xs_tear_tell_done(engine);
}

/*
 * Handles the result of a removal: the backend has removed the whole mapping, or found no page
 * to remove. If removals can fail, the latter means success only if an earlier call has removed
 * the mapping: a concurrent removal may have failed without a trace in the backend. Returns
 * false if XS_REMOVED_ALL is not reliable.
 */
static bool xs_torn_removed(struct xs_engine *engine, struct xs_torn *torn,
			    int removed)
{
	xs_flags_t flags = xs_lock_irqsave(&engine->tears.lock);
	bool known;

	torn->removing--;
	known = !engine->remembers || torn->removed ||
		(!torn->failed && !torn->removing);
	if (removed == XS_REMOVED_ALL && known) {
		torn->removed = true;
		xs_torn_gone(engine, torn);
	}
	xs_unlock_irqrestore(&engine->tears.lock, flags);
	return known || removed != XS_REMOVED_ALL;
}

/*
 * Removes the pages of [@from, @end) of a torn mapping. Returns the result of the backend's
 * remove_part(), or -ENOMEM if the result is not reliable. Entered.
 */
static int xs_tear_remove(struct xs_engine *engine,
			  const struct xs_found *found, u64 from, u64 end)
{
	struct xs_range whole = { found->page, found->pages };
	u64 first = from > whole.page ? from : whole.page;
	u64 stop = whole.page + whole.pages;
	struct xs_range part = { first, (end < stop ? end : stop) - first };
	int removed = xs_flush_part(engine, &part, &whole);

	if (!xs_torn_removed(engine, found->torn, removed))
		removed = -XS_ENOMEM;
	if (xs_unlikely(removed < 0))
		xs_tear_failed(engine, found->torn);
	return removed;
}

/*
 * Tears the first mapping that has pages of [@from, @end) in the leaf of @from. Returns false
 * if there is no such mapping. A mapping that is gone by now was unmapped, or mapped anew,
 * meanwhile. *@removed: as xs_tear_remove(). Entered.
 */
static bool xs_tear_next(struct xs_engine *engine, u64 from, u64 end,
			 struct xs_found *found, int *removed)
{
	u64 stop = xs_leaf_end(from);
	enum xs_tear_result result = XS_TEAR_GONE;
	struct xs_claim claim;
	bool any, done;
	xs_flags_t flags = xs_lock_irqsave(&engine->tears.lock);

	any = xs_find(engine, from, end < stop ? end : stop, found);
	if (any)
		result = xs_tear_take(engine, found, from, end, &claim);
	done = engine->tears.done;
	xs_unlock_irqrestore(&engine->tears.lock, flags);
	/* Without memory for a record. */
	if (result == XS_TEAR_ALL)
		*removed = xs_claim_remove_now(engine, &claim);
	else if (result == XS_TEAR_RECORD)
		*removed = xs_tear_remove(engine, found, from, end);
	else
		found->pages = 0;
	if (done)
		xs_tear_tell_done(engine);
	return any;
}

/* Unmaps the pages of the identity window from @page to @end, exclusive, a table after another. */
static void xs_tear_window(struct xs_engine *engine, u64 page, u64 end, struct xs_misuse *misuse)
{
	u64 first = engine->identity.first;
	u64 stop = first + xs_load_acquire(&engine->identity.pages), next;

	if (page < first)
		page = first;
	if (end > stop)
		end = stop;
	for (; page < end; page = next) {
		next = first + ((page - first) | (XS_TABLE_PAGES - 1)) + 1;
		xs_enter();
		xs_identity_unmap_all(engine, page, (next < end ? next : end) - page, misuse);
		xs_exit();
	}
}

bool xs_tear(struct xs_engine *engine, u64 iova, u32 pages)
{
	struct xs_misuse misuse = {
		.what = "an unmap that matches no mapping",
		.iova = iova,
		.pages = pages,
	};
	u64 page = iova >> XS_PAGE_LG2;
	u64 end = page + pages, met = 0;

	if (xs_unlikely(end > engine->identity.first)) {
		xs_tear_window(engine, page, end, &misuse);
		end = engine->identity.first;
	}
	while (page < end) {
		struct xs_found found;
		int removed = 0;
		bool any;

		xs_enter();
		any = xs_tear_next(engine, page, end, &found, &removed);
		xs_exit();
		if (!any) {
			page = xs_next_leaf_page(engine, xs_leaf_end(page));
			continue;
		}
		if (!found.pages) {
			page = (found.page > page ? found.page : page) + 1;
			continue;
		}
		met += (found.page + found.pages < end ?
				found.page + found.pages : end) -
		       (found.page > page ? found.page : page);
		page = found.page + found.pages;
		if (found.page == iova >> XS_PAGE_LG2 && found.pages == pages)
			return removed >= 0;
		if (misuse.mapped_pages) {
			/* A failure among several mappings is reported. */
			if (removed < 0)
				misuse.removed = removed;
			continue;
		}
		misuse.mapped_iova = found.page << XS_PAGE_LG2;
		misuse.mapped_pages = found.pages;
		misuse.removed = removed;
	}
	/* Pages that were unmapped before may wait for a flush. */
	if (met < pages)
		xs_engine_flush(engine, XS_FLUSH_EXPLICIT);
	xs_enter();
	xs_engine_report_misuse(engine, &misuse);
	xs_exit();
	return false;
}

/* ---- mending ---- */

/* The driver is gone and takes the mappings for unmapped. */
static void xs_abandon(struct xs_engine *engine)
{
	struct xs_leaf *leaf;
	u64 page = 0;

	do {
		xs_flags_t flags;

		xs_enter();
		flags = xs_lock_irqsave(&engine->tears.lock);
		leaf = xs_tree_next_leaf(&engine->space.tree, &page);
		for (struct xs_torn *torn = leaf ? leaf->torn : 0; torn;
		     torn = torn->next)
			if (torn->meant)
				xs_torn_done(engine, torn);
		xs_unlock_irqrestore(&engine->tears.lock, flags);
		xs_exit();
		page += XS_LEAF_PAGES;
	} while (leaf);
}

/* Takes all done records off the lists of look-ups. Returns the records. */
static struct xs_torn *xs_mend_begin(struct xs_engine *engine)
{
	struct xs_torn *done = 0, *torn;

	do {
		xs_flags_t flags;

		xs_enter();
		flags = xs_lock_irqsave(&engine->tears.lock);
		torn = engine->tears.done;
		if (torn) {
			engine->tears.done = torn->next_done;
			xs_torn_take(engine, torn);
			torn->next_done = done;
			done = torn;
		}
		xs_unlock_irqrestore(&engine->tears.lock, flags);
		xs_exit();
	} while (torn);
	return done;
}

/* Frees the IOVAs of a mapping without a translation. Entered. */
static void xs_mend_back(struct xs_engine *engine, u64 page, u32 pages)
{
	xs_flags_t flags;

	xs_claim_count(engine, pages);
	xs_count(engine->counts, immediate_pages, pages);
	if (pages > XS_BLOCK_PAGES) {
		flags = xs_local_save();
		xs_space_free_extent(&engine->space, page << XS_PAGE_LG2, pages);
		xs_local_restore(flags);
		return;
	}
	/* A map that was torn before its return may have written slots. */
	for (u32 i = 0; i < pages; i++)
		xs_a64_set(xs_space_slot(&engine->space, page + i),
			   XS_SLOT_VACANT);
	xs_place_back(engine, xs_policy_of(engine), page, pages);
}

void xs_engine_mend(struct xs_engine *engine, bool abandoned)
{
	struct xs_torn *torn, *next;

	if (abandoned)
		xs_abandon(engine);
	torn = xs_mend_begin(engine);
	if (!torn)
		return;
	xs_ops(engine)->quiesce(xs_backend(engine));
	for (; torn; torn = next) {
		struct xs_range whole = { torn->page, torn->pages };

		next = torn->next_done;
		xs_enter();
		/* A mapping that has failed before is stuck, and needs no record. */
		if (torn->failed)
			;
		else if (xs_flush_part(engine, &whole, &whole) >= 0)
			xs_mend_back(engine, torn->page, torn->pages);
		else
			xs_torn_stick(engine, torn->page, torn->pages, false);
		xs_torn_free(engine, torn);
		xs_exit();
	}
}

u64 xs_engine_torn_pages(struct xs_engine *engine)
{
	return xs_load(&engine->tears.unnamed);
}
