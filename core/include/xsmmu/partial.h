/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A partial list: the blocks that one CPU has opened for small mappings, and of them a
 * list of those that have much to hand out again.
 *
 * Blocks are kept by size. A block of size lg2 is only opened for mappings of more than
 * half of 2^lg2 pages, up to that many, so it is made of order-n ranges that fit again as they
 * come back, whatever lives long beside them. And they are kept by CPU, so that a CPU
 * reuses what it has mapped itself, and another one is met only where it unmaps.
 *
 * A block comes to a CPU's partial list when that CPU opens it, or hands it to a driver, while
 * nobody has a page of it. It stays there until another CPU does that, or the space gets
 * it back: a CPU that takes it from another one's list, to use its holes, leaves it on
 * that partial list. It changes partial lists under the lock of the one that it leaves. Listing is
 * a hint (block.h), but the lists are sound: who lists a block looks again at its free
 * pages after having said so, and who has claimed a block looks if it is partial.
 */
#ifndef XSMMU_PARTIAL_H
#define XSMMU_PARTIAL_H

#include <xsmmu/bits.h>
#include <xsmmu/space.h>

#define XS_SIZES	(XS_BLOCK_LG2 + 1)	/* 1, 2, .. 64 pages */
#define XS_PARTIAL_LISTS	(2 * XS_SIZES)		/* of each size, and of those kept */

/* A partial block is worth a look before a fresh one when more than this are. */
#define XS_PARTIAL_SLACK	8u

/*
 * struct xs_partial - guarded by @lock
 * @taken:	blocks on it, by xs_partial_list_of()
 * @partial:	of them in @blocks, which are rings
 */
struct xs_partial {
	xs_lock_t lock;
	u32 taken[XS_PARTIAL_LISTS];
	u32 listed[XS_PARTIAL_LISTS];
	struct xs_block *blocks[XS_PARTIAL_LISTS];
} XS_CACHE_LINE;

/* The list for blocks of size @lg2, or for those of them that are kept. */
static xs_inline u32 xs_partial_list_of(u32 lg2, bool reserved_low)
{
	return reserved_low ? XS_SIZES + lg2 : lg2;
}

/* Pages of @free that are whole order-n ranges of 2^@lg2 pages. */
static xs_inline u32 xs_partial_usable(u64 free, u32 lg2)
{
	return xs_popcount(xs_mask_orders(free, lg2)) << lg2;
}

/*
 * The caller has claimed the block or taken it from the space: put it on @partial list, for
 * mappings of size @lg2; or take it from any, to give it to the space. Any context.
 */
void xs_partial_put(struct xs_partial *partial, struct xs_block *block, u32 lg2);
void xs_partial_leave(struct xs_block *block);

/* List a block if it has much to hand out, and is not open or partial. Entered. */
void xs_partial_list(struct xs_block *block);

/* How much of a list has to be partial for a block of it to be worth a look. */
enum xs_partial_when {
	XS_PARTIAL_ANY,		/* it is all there is */
	XS_PARTIAL_HALF = 2,	/* of another CPU, which seems to map no more */
	XS_PARTIAL_THIRD,		/* of this one */
};

/*
 * A block of @list that ends at or below @last, which is off the list and open then;
 * NULL if there is none, or if no more than that part of such blocks are partial, and
 * XS_PARTIAL_SLACK. Any context. xs_partial_search() for a caller that searches many lists:
 * *@looks is how many blocks it may look at in all, less those that were looked at.
 */
struct xs_block *xs_partial_get(struct xs_partial *partial, u32 list, u64 last,
				enum xs_partial_when when);
struct xs_block *xs_partial_search(struct xs_partial *partial, u32 list, u64 last,
				   enum xs_partial_when when, u32 *looks);

#endif
