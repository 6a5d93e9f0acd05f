/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Stuck pages: the driver has unmapped them, and the backend could not remove them
 * from the page table. Devices may reach them, so the engine fails closed:
 *
 *   - the IOVA is not handed out again: its bit in the block's `free` stays clear, and
 *     an extent of blocks stays taken;
 *   - the memory is not given back where the engine can hold it. The engine takes
 *     the reference when the removal fails, if the policy has not taken it before;
 *   - the accounts have the pages as unmapped and not flushed, and as stuck.
 *
 * xs_engine_retry() asks the backend to remove stuck pages again, and lets go of those
 * that are gone. It waits for all calls before that: what a call has marked is its own until
 * it has returned. So it needs no lock against them, and removes with interrupts on.
 *
 * Two more kinds of pages get stuck: those of a torn mapping that could not be removed, and
 * all pages of one that there was no memory to keep a record of, although they are removed:
 * a call that still maps them has to be waited for (tear.h).
 *
 * The block's word `stuck` has a bit for each stuck page. The slot of a stuck page has
 * the page's reference, or XS_REF_NONE, in the form of a mapping of many. The page is
 * not joined to a neighbour, so no unmap can claim it.
 */
#ifndef XSMMU_STUCK_H
#define XSMMU_STUCK_H

#include <xsmmu/engine.h>

/* In extent_pages of a block: the backend could not remove the extent. */
#define XS_EXTENT_STUCK	(1ULL << 32)

/*
 * The backend could not remove @pages pages from page @page on, all of small mappings:
 * mark them, count them, and tell the backend. Entered.
 */
void xs_stuck_mark(struct xs_engine *engine, u64 page, u32 pages);

/* The same of the extent of @pages pages at @iova, which the caller has claimed. */
void xs_stuck_mark_extent(struct xs_engine *engine, u64 iova, u32 pages);

/* Is this page of a small mapping stuck? Entered. */
static xs_inline bool xs_stuck_has(const struct xs_engine *engine, u64 page)
{
	return xs_a64_read(&xs_space_block(&engine->space, page)->stuck) >>
		       (page & (XS_BLOCK_PAGES - 1)) & 1;
}

/*
 * Write down the reference @ref, which is held, for @pages pages from page @page on.
 * @ref is XS_REF_NONE if nothing is held. Entered.
 */
void xs_stuck_keep(struct xs_engine *engine, u64 page, u32 pages, xs_ref_t ref);

/*
 * The same where nothing is held: hold each page as its slot says, which xs_slot_left() has
 * made. The caller's caller has not given the memory back yet. Entered.
 */
void xs_stuck_hold(struct xs_engine *engine, u64 page, u32 pages);

#endif
