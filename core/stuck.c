// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Pages that the backend could not remove; see stuck.h. */
#include <xsmmu/place.h>
#include <xsmmu/stuck.h>
#include <xsmmu/flush.h>

/* ---- marking ---- */

void xs_stuck_mark(struct xs_engine *engine, u64 page, u32 pages)
{
	u64 end = page + pages;

	xs_count(engine->counts, stuck_pages, pages);
	xs_ops(engine)->stuck(xs_backend(engine), page << XS_PAGE_LG2, pages);
	while (page < end) {
		u64 stop = (page | (XS_BLOCK_PAGES - 1)) + 1;

		if (stop > end)
			stop = end;
		xs_a64_or(&xs_space_block(&engine->space, page)->stuck,
			  xs_block_mask(page, (u32)(stop - page)));
		page = stop;
	}
}

void xs_stuck_mark_extent(struct xs_engine *engine, u64 iova, u32 pages)
{
	struct xs_block *block = xs_space_block(&engine->space,
						iova >> XS_PAGE_LG2);

	xs_count(engine->counts, stuck_pages, pages);
	xs_ops(engine)->stuck(xs_backend(engine), iova, pages);
	xs_a64_set_release(&block->extent_pages, XS_EXTENT_STUCK | pages);
}

/* Slot of a stuck page that holds @ref, if any. The slot is vacant, so no unmap finds the page. */
static u64 xs_stuck_slot(xs_ref_t ref)
{
	return xs_ref_can_be_held(ref) ? xs_slot_vacant_with_ref(xs_slot_one(ref)) :
					 XS_SLOT_VACANT;
}

void xs_stuck_set_ref(struct xs_engine *engine, u64 page, u32 pages, xs_ref_t ref)
{
	for (u32 i = 0; i < pages; i++)
		xs_a64_set(xs_space_slot(&engine->space, page + i),
			   xs_stuck_slot(i ? XS_REF_NONE : ref));
}

void xs_stuck_hold(struct xs_engine *engine, u64 page, u32 pages)
{
	for (u32 i = 0; i < pages; i++) {
		xs_slot_t *slot = xs_space_slot(&engine->space, page + i);
		xs_ref_t ref = xs_slot_vacant_ref(xs_a64_read(slot));

		if (ref != XS_REF_NONE && !xs_ref_hold(ref))
			ref = XS_REF_NONE;
		xs_a64_set(slot, xs_stuck_slot(ref));
	}
}

/* ---- trying again ---- */

/*
 * Stuck pages of a leaf before a wait for all calls. After the wait the retry owns the pages:
 * the flushes that could not remove the pages have ended and have written the held references,
 * and no map of the pages runs any more.
 */
struct xs_stuck_leaf {
	u64 small[XS_LEAF_BLOCKS];
	u64 extents[XS_LEAF_BLOCKS];
};

/*
 * Returns false without a stuck page. A leaf with stuck pages has taken blocks, so it is not
 * freed.
 */
static bool xs_stuck_look(struct xs_leaf *leaf, struct xs_stuck_leaf *stuck)
{
	u64 any = 0;

	for (u32 i = 0; i < XS_LEAF_BLOCKS; i++) {
		u64 extent = xs_a64_read(&leaf->blocks[i].extent_pages);

		stuck->small[i] = xs_a64_read(&leaf->blocks[i].stuck);
		stuck->extents[i] = extent & XS_EXTENT_STUCK ? extent : 0;
		any |= stuck->small[i] | stuck->extents[i];
	}
	return any;
}

void xs_stuck_count(struct xs_engine *engine, struct xs_cpu *cpu,
			   u32 pages, const struct xs_commands *sent)
{
	cpu->stats.commands_page += sent->page;
	cpu->stats.commands_domain += sent->domain;
	cpu->stats.commands_global += sent->global;
	cpu->stats.flushed_pages += pages;
	xs_store(&cpu->stats.unstuck_pages,
		 cpu->stats.unstuck_pages + pages);
}

/* Releases the memory and the IOVAs of pages without a translation. */
static void xs_stuck_release(struct xs_engine *engine, struct xs_cpu *cpu,
			     struct xs_block *block, u64 page, u32 pages)
{
	u64 mask = xs_block_mask(page, pages);

	for (u32 i = 0; i < pages; i++) {
		xs_slot_t *slot = xs_block_slot(block, page + i);
		xs_ref_t ref = xs_slot_vacant_ref(xs_a64_read(slot));

		xs_a64_set(slot, XS_SLOT_VACANT);
		if (xs_ref_can_be_held(ref))
			xs_ref_release(ref);
	}
	xs_a64_andnot(&block->dead, mask);
	xs_a64_andnot(&block->stuck, mask);
	xs_place_back_block(engine, cpu, block, mask);
}

/*
 * Ends a retry of @pages pages at @page, of @block: an extent of blocks, or contiguous pages of
 * the block.
 */
static void xs_stuck_done(struct xs_engine *engine, struct xs_block *block,
			  u64 page, u32 pages, bool is_extent, bool gone,
			  const struct xs_commands *sent)
{
	xs_flags_t flags;
	struct xs_cpu *cpu;

	xs_enter();
	cpu = xs_cpu_lock(engine, &flags);
	xs_stuck_count(engine, cpu, gone ? pages : 0, sent);
	if (gone && is_extent) {
		xs_a64_set(&block->extent_pages, 0);
		xs_space_free_extent(&engine->space, page << XS_PAGE_LG2, pages);
	} else if (gone) {
		xs_stuck_release(engine, cpu, block, page, pages);
	}
	xs_cpu_unlock(cpu, flags);
	xs_exit();
}

/* Retries without a lock and with interrupts on, because a removal may take long. */
static void xs_stuck_try(struct xs_engine *engine, struct xs_block *block,
			 u64 page, u32 pages, bool is_extent)
{
	struct xs_commands sent = { 0, 0, 0 };
	bool gone = xs_flush_again(engine, page, pages, &sent);

	xs_stuck_done(engine, block, page, pages, is_extent, gone, &sent);
}

/*
 * Retries each extent of stuck pages of a leaf, and each extent of blocks that begins in the
 * leaf.
 */
static void xs_leaf_retry(struct xs_engine *engine, struct xs_leaf *leaf,
			  u64 page, const struct xs_stuck_leaf *stuck)
{
	for (u32 i = 0; i < XS_LEAF_BLOCKS; i++, page += XS_BLOCK_PAGES) {
		struct xs_block *block = &leaf->blocks[i];
		u64 left = stuck->small[i];

		while (left) {
			u32 at = xs_ctz(left), pages = xs_mask_extent(left);

			xs_stuck_try(engine, block, page + at, pages, false);
			left &= ~xs_mask_of(at, pages);
		}
		if (stuck->extents[i])
			xs_stuck_try(engine, block, page, (u32)stuck->extents[i],
				     true);
	}
}

u64 xs_engine_retry(struct xs_engine *engine)
{
	struct xs_stuck_leaf stuck;
	struct xs_leaf *leaf;
	u64 page = 0;

	if (!xs_engine_stuck_pages(engine))
		return 0;
	xs_pool_retry(&engine->pool);
	xs_identity_retry(engine);
	do {
		xs_flags_t flags = xs_lock_irqsave(&engine->space.lock);

		leaf = xs_tree_next_leaf(&engine->space.tree, &page);
		xs_unlock_irqrestore(&engine->space.lock, flags);
		if (leaf && xs_stuck_look(leaf, &stuck)) {
			xs_ops(engine)->quiesce(xs_backend(engine));
			xs_leaf_retry(engine, leaf, page, &stuck);
		}
		page += XS_LEAF_PAGES;
	} while (leaf);
	return xs_engine_stuck_pages(engine);
}

u64 xs_engine_stuck_pages(const struct xs_engine *engine)
{
	u64 pages = 0;

	/*
	 * In this order, so that the sum is not too small: pages are stuck before a retry
	 * removes them.
	 */
	for (u32 i = 0; i < engine->cpu_count; i++)
		pages -= xs_load_acquire(
			&engine->cpus[i]->stats.unstuck_pages);
	for (u32 i = 0; i < engine->cpu_count; i++)
		pages += xs_load_acquire(
			&xs_counts_of(engine->counts, i)->stuck_pages);
	return pages + xs_load(&engine->pool.stuck_pages);
}
