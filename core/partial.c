// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Blocks of a CPU, by size; see partial.h. */
#include <xsmmu/partial.h>

/* Limit of blocks of a list to look at for a block below a low limit. */
#define XS_PARTIAL_LOOKS	32u

/* ---- the rings ---- */

static void xs_partial_link(struct xs_partial *partial, struct xs_block *block)
{
	u32 at = xs_partial_index(block->lg2, block->reserved_low);
	struct xs_block **list = &partial->blocks[at];
	struct xs_block *first = *list ? *list : block;
	struct xs_block *last = *list ? first->prev : block;

	block->next = first;
	block->prev = last;
	last->next = block;
	first->prev = block;
	*list = first;
	xs_store(&partial->listed[at], partial->listed[at] + 1);
	/* Ordered before the second look at the block's free pages. */
	xs_a64_swap(&block->listed, 1);
}

static void xs_partial_unlink(struct xs_partial *partial, struct xs_block *block)
{
	u32 at = xs_partial_index(block->lg2, block->reserved_low);
	struct xs_block **list = &partial->blocks[at];

	block->prev->next = block->next;
	block->next->prev = block->prev;
	if (*list == block)
		*list = block->next == block ? 0 : block->next;
	xs_store(&partial->listed[at], partial->listed[at] - 1);
	xs_a64_set(&block->listed, 0);
}

static bool xs_partial_wants(const struct xs_block *block, u64 free)
{
	return xs_partial_usable(free, block->lg2) >= XS_LIST_MIN_FREE;
}

/* ---- blocks come and go ---- */

void xs_partial_leave(struct xs_block *block)
{
	struct xs_partial *partial = xs_load(&block->partial);
	u32 at = xs_partial_index(block->lg2, block->reserved_low);
	xs_flags_t flags;

	if (!partial)
		return;
	flags = xs_lock_irqsave(&partial->lock);
	if (xs_a64_read(&block->listed))
		xs_partial_unlink(partial, block);
	xs_store(&partial->taken[at], partial->taken[at] - 1);
	xs_store(&block->partial, (struct xs_partial *)0);
	xs_unlock_irqrestore(&partial->lock, flags);
}

void xs_partial_join(struct xs_partial *partial, struct xs_block *block, u32 lg2)
{
	u32 at = xs_partial_index(lg2, block->reserved_low);
	xs_flags_t flags;

	if (xs_likely(xs_load(&block->partial) == partial && block->lg2 == lg2 &&
		      !xs_a64_read(&block->listed)))
		return;
	xs_partial_leave(block);
	flags = xs_lock_irqsave(&partial->lock);
	/* A call that has freed a page before may still read the size. */
	xs_store(&block->lg2, lg2);
	xs_store(&partial->taken[at], partial->taken[at] + 1);
	xs_store(&block->partial, partial);
	xs_unlock_irqrestore(&partial->lock, flags);
}

/* ---- lists ---- */

void xs_partial_add(struct xs_block *block)
{
	struct xs_partial *partial = xs_load(&block->partial);
	xs_flags_t flags;

	if (!partial)
		return;
	flags = xs_lock_irqsave(&partial->lock);
	/* Another call may have claimed the block, or put it on another partial list. */
	if (xs_load(&block->partial) == partial && !xs_a64_read(&block->listed) &&
	    xs_partial_wants(block, xs_a64_read(&block->free))) {
		xs_partial_link(partial, block);
		/*
		 * The block may be open, or may be claimed and opened meanwhile. A claimed
		 * block has no free page, and @open is set before an opened block has free
		 * pages. So read the free pages first, then @open.
		 */
		if (!xs_partial_wants(block, xs_a64_or(&block->free, 0)) ||
		    xs_a64_read(&block->open))
			xs_partial_unlink(partial, block);
	}
	xs_unlock_irqrestore(&partial->lock, flags);
}

/*
 * Finds the first block of a list that ends at or below @last, among the first
 * XS_PARTIAL_LOOKS. The partial list's lock is held.
 */
static struct xs_block *xs_partial_find(const struct xs_partial *partial, u32 list,
					u64 last, u32 *looks)
{
	struct xs_block *block = partial->blocks[list];

	for (u32 i = 0; block && i < XS_PARTIAL_LOOKS && *looks; i++) {
		--*looks;
		if (block->iova + XS_BLOCK_BYTES - 1 <= last)
			return block;
		block = block->next;
		if (block == partial->blocks[list])
			break;
	}
	return 0;
}

struct xs_block *xs_partial_search(struct xs_partial *partial, u32 list, u64 last,
				   enum xs_partial_when when, u32 *looks)
{
	u32 listed = xs_load(&partial->listed[list]);
	struct xs_block *block;
	xs_flags_t flags;

	if (!listed ||
	    (when && when * listed <=
			     xs_load(&partial->taken[list]) + when * XS_PARTIAL_SLACK))
		return 0;
	flags = xs_lock_irqsave(&partial->lock);
	block = xs_partial_find(partial, list, last, looks);
	if (block) {
		xs_partial_unlink(partial, block);
		xs_a64_swap_relaxed(&block->open, 1);
	}
	xs_unlock_irqrestore(&partial->lock, flags);
	return block;
}

struct xs_block *xs_partial_get(struct xs_partial *partial, u32 list, u64 last,
				enum xs_partial_when when)
{
	u32 looks = XS_PARTIAL_LOOKS;

	return xs_partial_search(partial, list, last, when, &looks);
}
