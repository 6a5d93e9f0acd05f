/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A partial list: the blocks that a CPU has opened for small mappings, with lists of the blocks
 * that again have many free pages. Unlike in SLUB, a full block belongs to a partial list too: the
 * partial list counts such a block, and only blocks with many free pages are listed.
 *
 * Blocks are sorted by size. A block of size lg2 is opened only for mappings of more than half
 * of 2^lg2 pages and at most 2^lg2 pages. So freed order-n ranges of the block fit again,
 * whatever long-lived mappings stay beside them. Each CPU has lists of its own, so that a CPU
 * reuses the IOVAs of its own mappings, and meets another CPU only in unmaps.
 *
 * A block joins a CPU's partial list when the CPU opens the block, or hands the block to a
 * driver, while no page has an owner. The block stays there until another CPU does the same, or
 * until the space gets the block back: a CPU that takes a block off another CPU's list, to use
 * the holes, leaves the block's membership unchanged. A block changes lists under the lock of
 * the list that it leaves. Being listed is a hint (block.h), but the lists are sound: a call
 * that lists a block looks at the free pages again after listing, and a call that has claimed a
 * block checks for a listed block.
 */
#ifndef XSMMU_PARTIAL_H
#define XSMMU_PARTIAL_H

#include <xsmmu/bits.h>
#include <xsmmu/space.h>

#define XS_SIZES	(XS_BLOCK_LG2 + 1)	/* 1, 2, .. 64 pages */
#define XS_PARTIAL_LISTS	(2 * XS_SIZES)		/* each size; reserved low apart */

/* A listed block is preferred to a fresh block when more blocks than this are listed. */
#define XS_PARTIAL_SLACK	8u

/**
 * struct xs_partial - partial list of a CPU
 * @lock: guards all members
 * @taken: blocks of the CPU, by xs_partial_index()
 * @listed: number of blocks in @blocks
 * @blocks: listed blocks, as rings
 */
struct xs_partial {
	xs_lock_t lock;
	u32 taken[XS_PARTIAL_LISTS];
	u32 listed[XS_PARTIAL_LISTS];
	struct xs_block *blocks[XS_PARTIAL_LISTS];
} XS_CACHE_LINE;

/**
 * xs_partial_index - index of a list
 * @lg2: log2 of the block's size
 * @reserved_low: list of blocks reserved low
 *
 * Context: any.
 * Return: the index, below XS_PARTIAL_LISTS.
 */
static xs_inline u32 xs_partial_index(u32 lg2, bool reserved_low)
{
	return reserved_low ? XS_SIZES + lg2 : lg2;
}

/**
 * xs_partial_usable - pages in whole order-n ranges
 * @free: set of free pages
 * @lg2: log2 of the size of a range
 *
 * Context: any.
 * Return: number of pages.
 */
static xs_inline u32 xs_partial_usable(u64 free, u32 lg2)
{
	return xs_popcount(xs_mask_orders(free, lg2)) << lg2;
}

/**
 * xs_partial_join - put a block on a partial list
 * @partial: partial list
 * @block: block that the caller has claimed or taken from the space
 * @lg2: log2 of the size of the mappings
 *
 * Context: any.
 */
void xs_partial_join(struct xs_partial *partial, struct xs_block *block, u32 lg2);

/**
 * xs_partial_leave - take a block off the block's partial list, if any
 * @block: block that the caller has claimed, to give it to the space
 *
 * Context: any.
 */
void xs_partial_leave(struct xs_block *block);

/**
 * xs_partial_add - list a block with many free pages that is not open and not listed
 * @block: block
 *
 * Context: entered.
 */
void xs_partial_add(struct xs_block *block);

/* The share of a CPU's blocks that must be listed before a listed block is used. */
enum xs_partial_when {
	XS_PARTIAL_ANY,		/* any number of listed blocks suffices */
	XS_PARTIAL_HALF = 2,	/* of a CPU that seems to have stopped mapping */
	XS_PARTIAL_THIRD,		/* of the running CPU */
};

/**
 * xs_partial_get - take a block off a list and open the block
 * @partial: partial list
 * @list: from xs_partial_index()
 * @last: highest IOVA in bytes, inclusive
 * @when: share of blocks that must be listed, with XS_PARTIAL_SLACK more
 *
 * Context: any.
 * Return: the block, open; NULL without a block, or if too few blocks are listed.
 */
struct xs_block *xs_partial_get(struct xs_partial *partial, u32 list, u64 last,
				enum xs_partial_when when);

/**
 * xs_partial_search - xs_partial_get() for a caller that searches many lists
 * @partial: partial list
 * @list: from xs_partial_index()
 * @last: highest IOVA in bytes, inclusive
 * @when: share of blocks that must be listed, with XS_PARTIAL_SLACK more
 * @looks: number of blocks that the caller may still look at; reduced by the number of blocks
 *   looked at
 *
 * Context: any.
 * Return: as xs_partial_get().
 */
struct xs_block *xs_partial_search(struct xs_partial *partial, u32 list, u64 last,
				   enum xs_partial_when when, u32 *looks);

#endif
