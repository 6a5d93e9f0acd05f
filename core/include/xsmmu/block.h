/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The pages of a block: handed out singly or as contiguous ranges, and freed in any order.
 *
 * A page is in one of three states: free in the block; owned by a mapping, until its flush; or
 * owned by a CPU (in a magazine, among the CPU's local pages, or in a driver's block). The word
 * `free` alone decides: the call that clears a bit owns the page, the owner may set the bit, and
 * the call that changes the word from all bits to 0 has claimed the block. No other word decides,
 * so there is nothing to lock.
 *
 * The source of the next pages is a hint, and may be wrong without harm. A block is *open*
 * while a CPU hands out its pages; *listed* if many pages are free and no CPU has the block
 * open; otherwise the block waits for pages to come back. A CPU that still has a pointer to a
 * claimed block finds no free page in the block. A CPU with a pointer to a block that another
 * CPU has opened shares the block.
 *
 * Close and free each write a word and then read the other's word, both by fully ordered
 * operations. So the later call sees that the block is to be listed or claimed, and no block is
 * forgotten.
 */
#ifndef XSMMU_BLOCK_H
#define XSMMU_BLOCK_H

#include <xsmmu/partial.h>

/**
 * xs_block_mask - pages of a mapping as a set
 * @page: first page
 * @pages: number of pages, all in the same block
 *
 * Context: any.
 * Return: the set.
 */
static xs_inline u64 xs_block_mask(u64 page, u32 pages)
{
	return xs_mask_of(page & (XS_BLOCK_PAGES - 1), pages);
}

/**
 * xs_block_slot - slot of a page of a block
 * @block: block
 * @page: page number
 *
 * Context: any.
 * Return: the slot.
 */
static xs_inline xs_slot_t *xs_block_slot(const struct xs_block *block,
					  u64 page)
{
	return &block->slots[page & (XS_BLOCK_PAGES - 1)];
}

/**
 * xs_block_take - take free contiguous pages
 * @block: block
 * @pages: number of pages; the result is aligned to @pages rounded up to a power of two
 *
 * Context: entered.
 * Return: the IOVA in bytes; 0 on failure.
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

/**
 * xs_block_take_all - take all free pages
 * @block: block
 *
 * Context: entered.
 * Return: the pages as a set.
 */
static xs_inline u64 xs_block_take_all(struct xs_block *block)
{
	return xs_a64_swap(&block->free, 0);
}

/**
 * xs_block_claim_or_list - claim or list a block after a change of its free pages
 * @block: block
 * @free: free pages after the change
 *
 * Context: entered.
 * Return: true if all pages were free: the caller has claimed the block, and gives the block to
 *   the space or opens it.
 */
bool xs_block_claim_or_list(struct xs_block *block, u64 free);

/**
 * xs_block_free - free pages
 * @block: block
 * @mask: pages that the caller owns and that have no stale translation
 *
 * Context: entered.
 * Return: true if the caller has claimed the block.
 */
static xs_inline bool xs_block_free(struct xs_block *block, u64 mask)
{
	u64 old = xs_a64_or(&block->free, mask);

	if (xs_warn_once(old & mask, "pages came back twice"))
		return false;
	if (xs_likely(xs_a64_read(&block->open)))
		return false;
	if (xs_partial_usable(old, xs_load(&block->lg2)) >= XS_LIST_MIN_FREE &&
	    (old | mask | xs_a64_read(&block->reserved)) != XS_BLOCK_ALL)
		return false;
	return xs_block_claim_or_list(block, old | mask);
}

/**
 * xs_block_open - open a block
 * @block: block that the caller has claimed or taken from the space
 *
 * Context: entered.
 */
static xs_inline void xs_block_open(struct xs_block *block)
{
	xs_a64_set_release(&block->open, 1);
	xs_a64_swap_release(&block->free, XS_BLOCK_ALL);
}

/**
 * xs_block_close - close a block: no CPU hands out its pages any more
 * @block: block
 *
 * Context: entered.
 * Return: true if the caller has claimed the block.
 */
static xs_inline bool xs_block_close(struct xs_block *block)
{
	xs_a64_swap(&block->open, 0);
	return xs_block_claim_or_list(block, xs_a64_read(&block->free));
}

#endif
