/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The pages of a block: handed out one by one or in runs, in any order, and
 * back in any order.
 *
 * A page is in one of three places: free in its block, or a mapping's (until its
 * flush), or a CPU's (a magazine's, a driver's block). The word `free` alone says
 * so: who clears a bit has the page, who has it may set the bit, and who turns a
 * word of all bits into 0 has claimed the block. Nothing else decides, so there
 * is nothing to be locked.
 *
 * Where pages are handed out next is a hint, and may be wrong without harm: a
 * block is *open* while a CPU uses it, *partial* if much of it is free and no CPU
 * does, else it waits for its pages. A CPU that still knows a block that was
 * claimed finds nothing free in it; one that knows a block that was opened
 * by another shares it.
 *
 * Close and free look at each other's word after having written their own, each
 * by a fully ordered operation. So the last one of them sees a block that is to be
 * partial, or claimed; none is forgotten.
 */
#ifndef XSMMU_BLOCK_H
#define XSMMU_BLOCK_H

#include <xsmmu/partial.h>

/* The pages of one mapping inside its block. */
static xs_inline u64 xs_block_mask(u64 page, u32 pages)
{
	return xs_mask_of(page & (XS_BLOCK_PAGES - 1), pages);
}

/* The slot of one of its pages. */
static xs_inline xs_slot_t *xs_block_slot(const struct xs_block *block,
					  u64 page)
{
	return &block->slots[page & (XS_BLOCK_PAGES - 1)];
}

/*
 * Take @pages free contiguous pages, aligned to the next power of two of their number.
 * Returns the IOVA, 0 if there are none.
 */
static xs_inline u64 xs_block_take(struct xs_block *block, u32 pages)
{
	u64 free = xs_a64_read(&block->free);
	u64 mask;

	do {
		mask = pages == 1 ? free & -free : xs_mask_find(free, pages);
		if (xs_unlikely(!mask))
			return 0;
	} while (xs_unlikely(!xs_a64_try_acquire(&block->free, &free, free & ~mask)));
	return block->iova + xs_ctz(mask) * XS_PAGE_BYTES;
}

/* Take all pages that are free, as a set. */
static xs_inline u64 xs_block_take_all(struct xs_block *block)
{
	return xs_a64_swap(&block->free, 0);
}

/*
 * After a change that left @free: true if all of the block is free, and now the
 * caller's, who gives it to the space or opens it. Entered.
 */
bool xs_block_settle(struct xs_block *block, u64 free);

/*
 * Set pages free that the caller has and that have no stale translation. True
 * if the block is the caller's now. Entered.
 */
static xs_inline bool xs_block_free(struct xs_block *block, u64 mask)
{
	u64 old = xs_a64_or(&block->free, mask);

	if (xs_warn_once(old & mask, "pages came back twice"))
		return false;
	if (xs_likely(xs_a64_read(&block->open)))
		return false;
	if (xs_partial_usable(old, xs_load(&block->lg2)) >= XS_BLOCK_MUCH &&
	    (old | mask | xs_a64_read(&block->reserved)) != XS_BLOCK_ALL)
		return false;
	return xs_block_settle(block, old | mask);
}

/* Open a block that the caller has claimed or taken from the space. */
static xs_inline void xs_block_open(struct xs_block *block)
{
	xs_a64_set_release(&block->open, 1);
	xs_a64_swap_release(&block->free, XS_BLOCK_ALL);
}

/* No CPU hands out its pages any more. True: it is the caller's. Entered. */
static xs_inline bool xs_block_close(struct xs_block *block)
{
	xs_a64_swap(&block->open, 0);
	return xs_block_settle(block, xs_a64_read(&block->free));
}

#endif
