/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Stuck pages: the driver has unmapped the pages, and the backend could not remove them from
 * the page table. Devices may reach the pages, so the engine fails closed:
 *
 *   - the IOVA is not handed out again: the page's bit in the block's `free` stays
 *     clear, and an extent of blocks stays taken;
 *   - the memory is not freed where the engine can hold it. The engine takes the
 *     reference when the removal fails, if the policy has not taken it before;
 *   - the statistics count the pages as unmapped, as not flushed, and as stuck.
 *
 * xs_engine_retry() asks the backend again to remove stuck pages, and releases the removed
 * pages. A retry first waits for all calls: until a call has returned, pages that the call has
 * marked belong to the call. So a retry needs no lock against such calls, and removes pages
 * with interrupts on.
 *
 * Two more kinds of pages become stuck: the pages of a torn mapping that could not be removed;
 * and, although removed, all pages of a torn mapping without memory for a record, because a
 * call that still maps the pages must be waited for (tear.h).
 *
 * The block's word `stuck` has a bit for each stuck page. The slot of a stuck page is vacant, and
 * remembers the held reference, if any (xs_slot_vacant_with_ref()). The page is not joined to a
 * neighbour, so no unmap can claim the page.
 */
#ifndef XSMMU_STUCK_H
#define XSMMU_STUCK_H

#include <xsmmu/engine.h>

/* Flag in extent_pages of a block: the backend could not remove the extent. */
#define XS_EXTENT_STUCK	(1ULL << 32)

/**
 * xs_stuck_mark - mark and count stuck pages of small mappings, and tell the backend
 * @engine: engine
 * @page: first page
 * @pages: number of pages
 *
 * Context: entered.
 */
void xs_stuck_mark(struct xs_engine *engine, u64 page, u32 pages);

/**
 * xs_stuck_mark_extent - mark and count a stuck extent, and tell the backend
 * @engine: engine
 * @iova: start in bytes
 * @pages: size of the mapping, which the caller has claimed
 *
 * Context: entered.
 */
void xs_stuck_mark_extent(struct xs_engine *engine, u64 iova, u32 pages);

/**
 * xs_stuck_has - test for a stuck page of a small mapping
 * @engine: engine
 * @page: page
 *
 * Context: entered.
 * Return: true if the page is stuck.
 */
static xs_inline bool xs_stuck_has(const struct xs_engine *engine, u64 page)
{
	return xs_a64_read(&xs_space_block(&engine->space, page)->stuck) >>
		       (page & (XS_BLOCK_PAGES - 1)) & 1;
}

/**
 * xs_stuck_set_ref - write a held reference into the slots of stuck pages
 * @engine: engine
 * @page: first page
 * @pages: number of pages
 * @ref: reference that keeps all the pages; XS_REF_NONE if nothing is held
 *
 * Context: entered.
 */
void xs_stuck_set_ref(struct xs_engine *engine, u64 page, u32 pages, xs_ref_t ref);

/**
 * xs_stuck_hold - hold stuck pages of which no reference is held
 * @engine: engine
 * @page: first page
 * @pages: number of pages; each slot remembers how its page can be held
 *   (xs_slot_vacant_with_ref())
 *
 * The driver has not freed the memory yet, because its call has not returned.
 *
 * Context: entered.
 */
void xs_stuck_hold(struct xs_engine *engine, u64 page, u32 pages);

/**
 * xs_stuck_count - count a retry
 * @engine: engine
 * @cpu: running CPU
 * @pages: number of pages that the retry has removed
 * @sent: commands sent
 *
 * Context: CPU's lock.
 */
void xs_stuck_count(struct xs_engine *engine, struct xs_cpu *cpu, u32 pages,
		    const struct xs_commands *sent);

#endif
