// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Unmapping: claim the mapping, hold its pages, and defer; or flush at once.
 *
 * Only the claim's owner sees the slots of the mapping until the pages are flushed. An unmap
 * that finds no such mapping is bad: the call is counted and reported, and xs_tear() removes
 * the named pages.
 */
#include <xsmmu/claim.h>
#include <xsmmu/place.h>
#include <xsmmu/stuck.h>
#include <xsmmu/flush.h>
#include <xsmmu/tear.h>

/* Kinds of unmap. */
enum xs_unmap {
	XS_UNMAP_DEFER,		/* as the policy says */
	XS_UNMAP_NOW,
	XS_UNMAP_FAILED_MAP,	/* now, after a failed map left some pages mapped */
	XS_UNMAP_PROMISE,	/* by a batch-aware driver, which keeps the pages */
};

static void xs_count_unmap(struct xs_engine *engine, u32 pages)
{
	xs_count(engine->counts, unmaps, 1);
	if (pages > 1)
		xs_count(engine->counts, unmap_extra_pages, pages - 1);
}

/* ---- claiming ---- */

/*
 * True if a mapping of exactly @pages pages, more than one, begins at @page. @joined: pages of
 * the block that continue a mapping.
 */
static bool xs_is_joined(u64 joined, u64 page, u32 pages)
{
	u64 inner = xs_block_mask(page + 1, pages - 1);
	u64 edges = xs_block_mask(page, 1);

	if ((page & (XS_BLOCK_PAGES - 1)) + pages < XS_BLOCK_PAGES)
		edges |= xs_block_mask(page + pages, 1);
	return (joined & inner) == inner && !(joined & edges);
}

/*
 * The joined pages tell where a larger mapping begins and ends, so the claim changes them: a
 * later mapping of another size at the same page is left alone, and never looks vacant to its
 * own unmap.
 */
static bool xs_claim_many(struct xs_engine *engine, struct xs_claim *claim)
{
	struct xs_block *block = xs_space_block(&engine->space, claim->page);
	u64 joined;

	/* Another call may be detaching the leaf of a bad unmap. */
	if (!block || (claim->page & (XS_BLOCK_PAGES - 1)) + claim->pages >
			      XS_BLOCK_PAGES)
		return false;
	joined = xs_a64_read(&block->joined);
	do {
		if (!xs_is_joined(joined, claim->page, claim->pages))
			return false;
	} while (!xs_a64_try_acquire(&block->joined, &joined,
				     joined & ~xs_block_mask(claim->page,
							     claim->pages)));
	claim->first = xs_a64_read(claim->slots);
	xs_a64_set(claim->slots, XS_SLOT_VACANT);
	return true;
}

static bool xs_claim(struct xs_engine *engine, struct xs_claim *claim)
{
	claim->slots = xs_space_slot(&engine->space, claim->page);
	if (!claim->slots || !claim->pages)
		return false;
	if (claim->pages > 1)
		return xs_claim_many(engine, claim);
	claim->first = xs_a64_read(claim->slots);
	do {
		if (!xs_slot_is_one(claim->first))
			return false;
	} while (!xs_slot_claim(claim->slots, &claim->first));
	return true;
}

/*
 * Reference at page @at of a claim. *@span: pages that the reference keeps, with the following
 * pages that have no reference of their own.
 */
static xs_ref_t xs_claim_ref(const struct xs_claim *claim, u32 at, u32 *span)
{
	u64 slot = at ? xs_a64_read(&claim->slots[at]) : claim->first;
	xs_ref_t ref = xs_slot_ref(slot);

	*span = claim->pages > 1 ? xs_slot_span(slot) : 1;
	while (at + *span < claim->pages) {
		slot = xs_a64_read(&claim->slots[at + *span]);
		if (xs_slot_ref(slot) != XS_REF_NONE)
			break;
		*span += xs_slot_span(slot);
	}
	return ref;
}

/* Pages that a slot stands for; 1 if an earlier slot stands for the page. */
static u32 xs_claim_step(u64 slot)
{
	return xs_slot_is_vacant(slot) ? 1 : xs_slot_span(slot);
}

/* Makes the remaining slots of the claim vacant; many are vacant already. */
static void xs_claim_end(const struct xs_claim *claim)
{
	u32 at = claim->pages > 1 ? xs_claim_step(claim->first) : 1;

	while (at < claim->pages) {
		u64 slot = xs_a64_read(&claim->slots[at]);

		xs_a64_set(&claim->slots[at], XS_SLOT_VACANT);
		at += xs_claim_step(slot);
	}
}

/* ---- holding ---- */

/*
 * How the memory of a claim is kept until its flush. XS_HELD_LATER: the driver keeps the
 * memory, and the slot of each page, a mapping of its own, remembers how the page can be held
 * (xs_slot_vacant_with_ref()).
 */
enum xs_held { XS_HELD_NOT, XS_HELD, XS_HELD_LATER };

/* Releases the references held for the first @pages pages of the claim. */
static void xs_claim_release(const struct xs_claim *claim, u32 pages)
{
	u32 span;

	for (u32 at = 0; at < pages; at += span) {
		xs_ref_t ref = xs_claim_ref(claim, at, &span);

		if (xs_ref_can_be_held(ref))
			xs_ref_release(ref);
	}
}

/*
 * Holds all pages of the claim until their flush, or none. Returns false if a page cannot be
 * held or is free by now, or if the claim needs too many references. Some drivers free a buffer
 * before its unmap (igb, after a transmit). *@count: number of references, and of pages
 * without.
 */
static bool xs_claim_hold(const struct xs_claim *claim, u32 *count)
{
	u32 span, refs = 0;

	*count = 0;
	for (u32 at = 0; at < claim->pages; at += span) {
		xs_ref_t ref = xs_claim_ref(claim, at, &span);
		bool held = ref == XS_REF_NONE;

		if (xs_ref_can_be_held(ref))
			held = refs++ < XS_HOLDS_MAX &&
			       (xs_ref_hold_fast(ref) || xs_ref_hold(ref));
		if (!held) {
			xs_claim_release(claim, at);
			return false;
		}
		++*count;
	}
	return true;
}

/* ---- deferring ---- */

/*
 * Marks pages as dead, if the policy flushes empty blocks. Returns the block if the mark has
 * made it empty; the caller flushes the block when the pages are in the batch. An open block is
 * empty only if all its pages are handed out.
 */
static struct xs_block *xs_mark_dead(struct xs_engine *engine,
				     const struct xs_policy *policy, u64 page,
				     u64 mask)
{
	struct xs_block *block;
	u64 dead, free;

	if (xs_likely(!xs_flushes_on(policy, XS_FLUSH_BLOCK)))
		return 0;
	block = xs_space_block(&engine->space, page);
	dead = xs_a64_or(&block->dead, mask) | mask;
	free = xs_a64_read(&block->free);
	if ((dead | free | xs_a64_read(&block->reserved)) != XS_BLOCK_ALL ||
	    (free && xs_a64_read(&block->open)))
		return 0;
	return block;
}

/* Clears the marks of pages that are flushed at once. */
static xs_noinline void xs_unmark_dead(struct xs_engine *engine,
				       const struct xs_policy *policy,
				       const struct xs_claim *claim)
{
	if (xs_flushes_on(policy, XS_FLUSH_BLOCK))
		xs_a64_andnot(&xs_space_block(&engine->space, claim->page)->dead,
			      xs_block_mask(claim->page, claim->pages));
}

/* @count: references of the claim, if held; otherwise 1. */
static bool xs_claim_defer(struct xs_engine *engine,
			   const struct xs_policy *policy,
			   const struct xs_claim *claim, enum xs_held held,
			   u32 count, bool promise)
{
	struct xs_block *empty =
		xs_mark_dead(engine, policy, claim->page,
			     xs_block_mask(claim->page, claim->pages));
	xs_flags_t flags;
	struct xs_cpu *cpu;
	u32 span = claim->pages;
	u64 record;
	bool room;

	cpu = xs_cpu_lock(engine, &flags);
	room = xs_flush_alloc_records(engine, cpu, count, claim->pages, &record);
	for (u32 at = 0; room && at < claim->pages; at += span) {
		xs_ref_t ref = held == XS_HELD_LATER ? XS_REF_UNHELD :
							XS_REF_NONE;

		if (held == XS_HELD)
			ref = xs_claim_ref(claim, at, &span);
		xs_record_write(xs_batch_record(&cpu->batch, record++),
				xs_key_of(claim->page + at,
					  at ? 0 : claim->pages, span), ref);
	}
	if (room) {
		xs_claim_end(claim);
		if (promise)
			xs_a64_set_release(&cpu->batch.promised, 1);
		xs_flush_if_full(engine, cpu);
	}
	xs_cpu_unlock(cpu, flags);
	if (xs_unlikely(!room))
		xs_unmark_dead(engine, policy, claim);
	else if (empty)
		xs_flush_block(engine, empty);
	return room;
}

/*
 * Handles a claim that the backend could not remove: holds the memory if possible, and keeps
 * the IOVAs.
 */
static xs_noinline void xs_claim_stick(struct xs_engine *engine,
				       const struct xs_claim *claim,
				       enum xs_held held)
{
	u32 span, count;

	if (held == XS_HELD_NOT && xs_claim_hold(claim, &count))
		held = XS_HELD;
	if (held == XS_HELD_LATER)
		xs_stuck_hold(engine, claim->page, claim->pages);
	for (u32 at = 0; held != XS_HELD_LATER && at < claim->pages; at += span) {
		xs_ref_t ref = XS_REF_NONE;

		span = 1;
		if (held == XS_HELD)
			ref = xs_claim_ref(claim, at, &span);
		xs_stuck_set_ref(engine, claim->page + at, span, ref);
	}
	xs_count(engine->counts, immediate_pages, -(u64)claim->pages);
	xs_stuck_mark(engine, claim->page, claim->pages);
}

/* Releases a claim that is removed and invalidated. */
static xs_inline void xs_claim_let_go(struct xs_engine *engine,
				      const struct xs_policy *policy,
				      const struct xs_claim *claim,
				      enum xs_held held)
{
	if (held == XS_HELD)
		xs_claim_release(claim, claim->pages);
	xs_claim_end(claim);
	xs_place_back(engine, policy, claim->page, claim->pages);
}

/*
 * Flushes and releases a claim before the return. Returns false if the backend could not remove
 * it.
 */
static xs_inline bool xs_claim_flush(struct xs_engine *engine,
				     const struct xs_policy *policy,
				     const struct xs_claim *claim,
				     enum xs_held held)
{
	if (xs_unlikely(!xs_flush_now(engine, claim->page, claim->pages))) {
		xs_claim_stick(engine, claim, held);
		return false;
	}
	xs_claim_let_go(engine, policy, claim, held);
	return true;
}

/* The same for rare cases. */
static xs_noinline bool xs_claim_now(struct xs_engine *engine,
				     const struct xs_policy *policy,
				     const struct xs_claim *claim,
				     enum xs_held held)
{
	return xs_claim_flush(engine, policy, claim, held);
}

/* The same after a failed map that left some pages mapped. */
static bool xs_claim_failed_map(struct xs_engine *engine,
				const struct xs_policy *policy,
				const struct xs_claim *claim)
{
	if (!xs_flush_failed_map(engine, claim->page, claim->pages)) {
		xs_claim_stick(engine, claim, XS_HELD_NOT);
		return false;
	}
	xs_claim_let_go(engine, policy, claim, XS_HELD_NOT);
	return true;
}

/* Unmaps a claim. Returns false if the backend could not remove it. */
static bool xs_claim_unmap(struct xs_engine *engine,
			   const struct xs_policy *policy,
			   const struct xs_claim *claim, enum xs_unmap how)
{
	bool promise = how == XS_UNMAP_PROMISE && xs_policy_waits(policy);
	bool holds = policy->hold == XS_HOLD_PAGES && !promise;
	enum xs_held held = holds ? XS_HELD : XS_HELD_NOT;
	u32 count = 1;

	if (promise && claim->pages == 1) {
		xs_a64_set(claim->slots, xs_slot_vacant_with_ref(claim->first));
		held = XS_HELD_LATER;
	}
	xs_count_unmap(engine, claim->pages);
	if (how == XS_UNMAP_FAILED_MAP)
		return xs_claim_failed_map(engine, policy, claim);
	if (how == XS_UNMAP_NOW || xs_flushes_on(policy, XS_FLUSH_UNMAP) ||
	    (policy->flushes & XS_FLUSH_ORDINARY && !promise) ||
	    (holds && !xs_claim_hold(claim, &count)))
		return xs_claim_now(engine, policy, claim, XS_HELD_NOT);
	return xs_claim_defer(engine, policy, claim, held, count, promise) ||
	       xs_claim_now(engine, policy, claim, held);
}

/* ---- claims for other files ---- */

bool xs_claim_mapping(struct xs_engine *engine, struct xs_claim *claim)
{
	return xs_claim(engine, claim);
}

void xs_claim_vacate(const struct xs_claim *claim)
{
	u32 stop = 0;

	for (u32 at = 0; at < claim->pages; at++) {
		u64 slot = at ? xs_a64_read(&claim->slots[at]) : claim->first;
		u64 vacant = XS_SLOT_VACANT;

		/* A slot that an earlier slot stands for has no information about the mapping. */
		if (at >= stop && !xs_slot_is_vacant(slot)) {
			if (xs_ref_can_be_held(xs_slot_ref(slot)))
				vacant = xs_slot_vacant_with_ref(slot);
			else if (claim->pages > 1)
				stop = at + xs_slot_span(slot);
		}
		xs_a64_set(&claim->slots[at], vacant);
	}
}

int xs_claim_remove_now(struct xs_engine *engine, const struct xs_claim *claim)
{
	bool removed = xs_flush_now(engine, claim->page, claim->pages);

	xs_count_unmap(engine, claim->pages);
	if (claim->pages > XS_BLOCK_PAGES) {
		xs_count(engine->counts, immediate_pages, -(u64)claim->pages);
		xs_stuck_mark_extent(engine, claim->page << XS_PAGE_LG2,
				     claim->pages);
	} else {
		xs_claim_stick(engine, claim, XS_HELD_NOT);
	}
	return removed ? XS_REMOVED_ALL : -XS_ENOMEM;
}

void xs_claim_count(struct xs_engine *engine, u32 pages)
{
	xs_count_unmap(engine, pages);
}

/* ---- any unmap ---- */

static bool xs_unmap_extent(struct xs_engine *engine, u64 iova, u32 pages,
			    enum xs_unmap how)
{
	bool claimed;

	xs_enter();
	claimed = xs_space_claim_extent(&engine->space, iova, pages);
	if (claimed)
		xs_count_unmap(engine, pages);
	xs_exit();
	/* The removal may take long, and no other call knows the extent. */
	if (!claimed)
		return xs_tear(engine, iova, pages);
	return xs_flush_extent(engine, iova, pages, how == XS_UNMAP_FAILED_MAP);
}

/* Each page of the window is a mapping of its own. */
static bool xs_unmap_identity(struct xs_engine *engine, u64 iova, u32 pages, enum xs_unmap how)
{
	u64 page = iova >> XS_PAGE_LG2;
	bool unmapped;

	if (xs_unlikely(pages != 1))
		return xs_tear(engine, iova, pages);
	xs_enter();
	if (how == XS_UNMAP_NOW)
		unmapped = xs_identity_unmap_at_once(engine, page);
	else
		unmapped = xs_identity_unmap_one(engine, page, how == XS_UNMAP_PROMISE);
	xs_exit();
	return unmapped;
}

static xs_noinline bool xs_unmap(struct xs_engine *engine, u64 iova, u32 pages,
				 enum xs_unmap how)
{
	struct xs_claim claim = {
		.page = iova >> XS_PAGE_LG2,
		.pages = pages,
	};

	bool unmapped;

	if (xs_unlikely(xs_identity_has(&engine->identity, claim.page)))
		return xs_unmap_identity(engine, iova, pages, how);
	if (pages > XS_BLOCK_PAGES)
		return xs_unmap_extent(engine, iova, pages, how);
	xs_enter();
	unmapped = xs_claim(engine, &claim);
	if (xs_likely(unmapped))
		unmapped = xs_claim_unmap(engine, xs_policy_of(engine), &claim,
					  how);
	else
		unmapped = xs_tear(engine, iova, pages);
	xs_exit();
	return unmapped;
}

bool xs_engine_unmap(struct xs_engine *engine, u64 iova, u32 pages, bool now)
{
	return xs_unmap(engine, iova, pages, now ? XS_UNMAP_NOW : XS_UNMAP_DEFER);
}

bool xs_engine_unmap_failed_map(struct xs_engine *engine, u64 iova, u32 pages)
{
	return xs_unmap(engine, iova, pages, XS_UNMAP_FAILED_MAP);
}

void xs_engine_unmap_deferred(struct xs_engine *engine, u64 iova, u32 pages)
{
	xs_unmap(engine, iova, pages, XS_UNMAP_PROMISE);
}

/* ---- one page ---- */

/*
 * The common path of a single page is a function without calls. Rare cases are tail calls, so
 * that the function saves no register; the callee exits for the caller.
 */
static xs_noinline void xs_unmap_one_any(struct xs_engine *engine, u64 iova,
					 enum xs_unmap how)
{
	xs_unmap(engine, iova & ~(XS_PAGE_BYTES - 1), 1, how);
	xs_exit();
}

/* Handles a claimed page that is already held, or that the driver keeps. */
static xs_noinline void xs_unmap_one_rest(struct xs_engine *engine, u64 page,
					  xs_ref_t ref, bool promise)
{
	const struct xs_policy *policy = xs_policy_of(engine);
	struct xs_claim claim = { .first = xs_slot_one(ref), .page = page,
				  .pages = 1 };
	enum xs_held held = promise ? XS_HELD_LATER : XS_HELD;

	if (!xs_claim_defer(engine, policy, &claim, held, 1, promise))
		xs_claim_now(engine, policy, &claim, held);
	xs_exit();
}

/* Handles a claimed page that cannot be held on the fast path. */
static xs_noinline void xs_unmap_one_unheld(struct xs_engine *engine, u64 page,
					    xs_ref_t ref)
{
	struct xs_claim claim = { .first = xs_slot_one(ref), .page = page,
				  .pages = 1 };

	if (xs_ref_hold(ref)) {
		xs_unmap_one_rest(engine, page, ref, false);
	} else {
		xs_claim_now(engine, xs_policy_of(engine), &claim, XS_HELD_NOT);
		xs_exit();
	}
}

/* Flushes a claimed page before the return. */
static xs_noinline void xs_unmap_one_now(struct xs_engine *engine,
					 const struct xs_policy *policy,
					 u64 page, u64 first)
{
	const struct xs_claim claim = { .first = first, .page = page,
					.pages = 1 };

	xs_claim_flush(engine, policy, &claim, XS_HELD_NOT);
	xs_exit();
}

static xs_inline bool xs_slot_claim_for(xs_slot_t *slot, u64 *found,
					bool promise)
{
	return promise ? xs_slot_claim_with_ref(slot, found) :
			 xs_slot_claim(slot, found);
}

/*
 * xs_engine_unmap_one*() under a policy that holds no pages, flushes inside the unmap, flushes
 * empty blocks, or has identity placement. Exits. A function for each @how.
 */
static xs_inline void xs_unmap_one_bare_how(struct xs_engine *engine, u64 iova,
					    enum xs_unmap how)
{
	u64 page = iova >> XS_PAGE_LG2;
	const struct xs_policy *policy = xs_policy_of(engine);
	bool promise = how == XS_UNMAP_PROMISE && xs_policy_waits(policy);
	bool now = policy->flushes & (XS_FLUSH_BIT(XS_FLUSH_UNMAP) |
				      XS_FLUSH_ORDINARY) && !promise;
	struct xs_block *empty;
	struct xs_batch *batch;
	xs_slot_t *slot;
	u64 found;

	if (xs_identity_has(&engine->identity, page)) {
		xs_identity_unmap_one(engine, page, how == XS_UNMAP_PROMISE);
		xs_exit();
		return;
	}
	slot = xs_space_slot(&engine->space, page);
	found = slot ? xs_a64_read(slot) : XS_SLOT_VACANT;
	if (xs_unlikely(!xs_slot_is_one(found)) ||
	    (policy->hold == XS_HOLD_PAGES && !now && !promise) ||
	    xs_unlikely(!xs_slot_claim_for(slot, &found, promise))) {
		xs_unmap_one_any(engine, iova, how);
		return;
	}
	xs_count(engine->counts, unmaps, 1);
	if (now) {
		xs_unmap_one_now(engine, policy, page, found);
		return;
	}
	empty = xs_mark_dead(engine, policy, page, xs_block_mask(page, 1));
	batch = &xs_count_cpu(engine->counts)->batch;
	if (xs_unlikely(!xs_batch_append_fast(batch, page,
					      promise ? XS_REF_UNHELD :
							XS_REF_NONE))) {
		xs_unmap_one_rest(engine, page, XS_REF_NONE, promise);
		return;
	}
	if (promise)
		xs_a64_set_release(&batch->promised, 1);
	if (empty)
		xs_flush_block(engine, empty);
	xs_exit();
}

static xs_noinline xs_no_canary void xs_unmap_one_bare(struct xs_engine *engine,
						       u64 iova)
{
	xs_unmap_one_bare_how(engine, iova, XS_UNMAP_DEFER);
}

static xs_noinline xs_no_canary void
xs_unmap_one_bare_deferred(struct xs_engine *engine, u64 iova)
{
	xs_unmap_one_bare_how(engine, iova, XS_UNMAP_PROMISE);
}

/* Handles a page of the identity window that is held and needs a record. Exits. */
static xs_noinline void xs_unmap_one_identity_rest(struct xs_engine *engine, u64 page, xs_ref_t ref)
{
	xs_identity_defer(engine, page, ref, false);
	xs_exit();
}

/*
 * xs_engine_unmap_one() under a policy that holds pages and has identity placement: a function
 * without calls for the last mapping of a page. Exits.
 */
static xs_noinline xs_no_canary void xs_unmap_one_identity(struct xs_engine *engine, u64 iova)
{
	u64 page = iova >> XS_PAGE_LG2;
	xs_counts_t *counts = engine->counts;
	struct xs_cpu *cpu = xs_count_cpu(counts);
	u64 pending = xs_word_cpu(cpu->id, false);
	xs_atomic64_t *word = xs_identity_word(&engine->identity, page);
	xs_ref_t ref;
	u64 found;

	if (xs_unlikely(!word))
		goto any;
	found = xs_a64_read(word);
	if (xs_unlikely((found & (XS_WORD_STATE | XS_WORD_COUNT)) != (XS_WORD_PRESENT | 1)))
		goto any;
	if ((found & XS_WORD_CPU) == pending) {
		if (xs_unlikely(!xs_a64_try(word, &found, found - 1)))
			goto any;
		xs_count(counts, unmaps, 1);
		xs_count(counts, kept_unmaps, 1);
		xs_exit();
		return;
	}
	/* Before the word, see xs_identity_unmap_deferred(). */
	ref = xs_ref_of(xs_identity_phys(&engine->identity, page));
	if (xs_unlikely(!xs_ref_can_be_held(ref)) || xs_unlikely(!xs_ref_hold_fast(ref)))
		goto any;
	if (xs_unlikely(!xs_a64_try(word, &found, ((found - 1) & ~XS_WORD_CPU) | pending))) {
		xs_ref_release(ref);
		goto any;
	}
	xs_count(counts, unmaps, 1);
	if (xs_unlikely(!xs_batch_append_fast(&cpu->batch, page, ref))) {
		xs_unmap_one_identity_rest(engine, page, ref);
		return;
	}
	xs_exit();
	return;
any:
	xs_unmap_one_any(engine, iova, XS_UNMAP_DEFER);
}

/* xs_engine_unmap() of a single page, at any address in the page. */
static xs_inline void xs_engine_unmap_one(struct xs_engine *engine, u64 iova)
{
	u64 page = iova >> XS_PAGE_LG2;
	xs_counts_t *counts = engine->counts;
	struct xs_batch *batch;
	xs_slot_t *slots;
	xs_ref_t ref;
	u64 found;
	u32 mode;

	xs_enter();
	mode = xs_load(&engine->mode);
	if (xs_unlikely(!(mode & XS_MODE_HELD))) {
		if (mode & XS_MODE_IDENTITY)
			xs_unmap_one_identity(engine, iova);
		else
			xs_unmap_one_bare(engine, iova);
		return;
	}
	slots = xs_space_slots(&engine->space, page);
	if (xs_unlikely(!slots))
		goto any;
	xs_prefetchw(&slots[xs_slot_at(page)]);
	found = xs_a64_read(&slots[xs_slot_at(page)]);
	if (xs_unlikely(found & (XS_SLOT_MANY | XS_SLOT_KIND)))
		goto any;
	ref = (xs_ref_t)(size_t)found;
	if (xs_unlikely(!xs_slot_claim(&slots[xs_slot_at(page)], &found)))
		goto any;
	xs_count(counts, unmaps, 1);
	if (xs_unlikely(!xs_ref_hold_fast(ref))) {
		xs_unmap_one_unheld(engine, page, ref);
		return;
	}
	batch = &xs_count_cpu(counts)->batch;
	if (xs_unlikely(!xs_batch_append_fast(batch, page, ref))) {
		xs_unmap_one_rest(engine, page, ref, false);
		return;
	}
	xs_exit();
	return;
any:
	xs_unmap_one_any(engine, iova, XS_UNMAP_DEFER);
}

/* xs_engine_unmap_deferred() of a single page, at any address in the page. */
static xs_inline void xs_engine_unmap_one_deferred(struct xs_engine *engine,
						   u64 iova)
{
	u64 page = iova >> XS_PAGE_LG2;
	xs_counts_t *counts = engine->counts;
	struct xs_batch *batch;
	xs_slot_t *slots;
	u64 found;

	xs_enter();
	if (xs_unlikely(!(xs_load(&engine->mode) & XS_MODE_PROMISE))) {
		xs_unmap_one_bare_deferred(engine, iova);
		return;
	}
	slots = xs_space_slots(&engine->space, page);
	if (xs_unlikely(!slots))
		goto any;
	xs_prefetchw(&slots[xs_slot_at(page)]);
	found = xs_a64_read(&slots[xs_slot_at(page)]);
	/* The driver keeps the page. The slot remembers how a stuck page can be held. */
	if (xs_unlikely(!xs_slot_is_one(found)) ||
	    xs_unlikely(!xs_slot_claim_with_ref(&slots[xs_slot_at(page)], &found)))
		goto any;
	xs_count(counts, unmaps, 1);
	batch = &xs_count_cpu(counts)->batch;
	if (xs_unlikely(!xs_batch_append_fast(batch, page, XS_REF_UNHELD))) {
		xs_unmap_one_rest(engine, page, XS_REF_NONE, true);
		return;
	}
	xs_a64_set_release(&batch->promised, 1);
	xs_exit();
	return;
any:
	xs_unmap_one_any(engine, iova, XS_UNMAP_PROMISE);
}

/* ---- many pages of a driver's block ---- */

/* Claims a mapping of a single page; the slot remembers how the page can be held. */
static bool xs_claim_one_with_ref(struct xs_engine *engine, u64 page)
{
	xs_slot_t *slot = xs_space_slot(&engine->space, page);
	u64 found = slot ? xs_a64_read(slot) : XS_SLOT_VACANT;

	do {
		if (!xs_slot_is_one(found))
			return false;
	} while (!xs_slot_claim_with_ref(slot, &found));
	return true;
}

/* Claims the mapped pages of @mask, each a mapping of a single page. */
static u64 xs_claim_each(struct xs_engine *engine, u64 page, u64 mask)
{
	u64 claimed = 0;

	for (u64 rest = mask; rest; rest &= rest - 1) {
		u64 at = page + xs_ctz(rest);

		if (xs_likely(xs_claim_one_with_ref(engine, at)))
			claimed |= rest & -rest;
		else
			xs_tear(engine, at << XS_PAGE_LG2, 1);
	}
	return claimed;
}

/* Defers pages of a batch-aware driver's block, as extents. */
static void xs_defer_each(struct xs_engine *engine,
			  const struct xs_policy *policy, u64 page, u64 mask)
{
	while (mask) {
		u32 at = xs_ctz(mask);
		u32 extent = xs_mask_extent(mask);
		struct xs_claim claim = { .page = page + at, .pages = 1 };

		/* Each page is a mapping, but the record is that of a single mapping. */
		claim.slots = xs_space_slot(&engine->space, claim.page);
		claim.first = xs_slot_many(XS_REF_UNHELD, extent);
		claim.pages = extent;
		mask &= ~xs_mask_of(at, extent);
		if (!xs_claim_defer(engine, policy, &claim, XS_HELD_LATER, 1,
				    true))
			xs_claim_now(engine, policy, &claim, XS_HELD_LATER);
	}
}

void xs_engine_unmap_in_block_deferred(struct xs_engine *engine, u64 iova,
				       u64 mask)
{
	u64 page = iova >> XS_PAGE_LG2;
	const struct xs_policy *policy;

	xs_enter();
	policy = xs_policy_of(engine);
	if (page & (XS_BLOCK_PAGES - 1)) {
		xs_engine_report_ignored(engine, iova, "an unmap of a block that begins elsewhere");
		for (; mask; mask &= mask - 1)
			xs_unmap(engine, iova + xs_ctz(mask) * XS_PAGE_BYTES, 1,
				 XS_UNMAP_NOW);
	} else if (xs_policy_waits(policy)) {
		mask = xs_claim_each(engine, page, mask);
		if (mask) {
			xs_count(engine->counts, unmaps, xs_popcount(mask));
			xs_defer_each(engine, policy, page, mask);
		}
	} else {
		for (; mask; mask &= mask - 1)
			xs_unmap(engine, iova + xs_ctz(mask) * XS_PAGE_BYTES, 1,
				 XS_UNMAP_PROMISE);
	}
	xs_exit();
}
