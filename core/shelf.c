// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Blocks of a CPU, by size; see shelf.h. */
#include <xsmmu/shelf.h>

/* Blocks of a list to look at for one below a low limit. */
#define XS_SHELF_LOOKS	32u

/* ---- the rings ---- */

static void xs_shelf_link(struct xs_shelf *shelf, struct xs_block *block)
{
	u32 at = xs_shelf_list_of(block->lg2, block->kept);
	struct xs_block **list = &shelf->blocks[at];
	struct xs_block *first = *list ? *list : block;
	struct xs_block *last = *list ? first->prev : block;

	block->next = first;
	block->prev = last;
	last->next = block;
	first->prev = block;
	*list = first;
	xs_store(&shelf->listed[at], shelf->listed[at] + 1);
	/* Before its pages are looked at again. */
	xs_a64_swap(&block->listed, 1);
}

static void xs_shelf_unlink(struct xs_shelf *shelf, struct xs_block *block)
{
	u32 at = xs_shelf_list_of(block->lg2, block->kept);
	struct xs_block **list = &shelf->blocks[at];

	block->prev->next = block->next;
	block->next->prev = block->prev;
	if (*list == block)
		*list = block->next == block ? 0 : block->next;
	xs_store(&shelf->listed[at], shelf->listed[at] - 1);
	xs_a64_set(&block->listed, 0);
}

static bool xs_shelf_wants(const struct xs_block *block, u64 free)
{
	return xs_shelf_usable(free, block->lg2) >= XS_BLOCK_MUCH;
}

/* ---- blocks come and go ---- */

void xs_shelf_leave(struct xs_block *block)
{
	struct xs_shelf *shelf = xs_load(&block->shelf);
	u32 at = xs_shelf_list_of(block->lg2, block->kept);
	xs_flags_t flags;

	if (!shelf)
		return;
	flags = xs_lock(&shelf->lock);
	if (xs_a64_read(&block->listed))
		xs_shelf_unlink(shelf, block);
	xs_store(&shelf->taken[at], shelf->taken[at] - 1);
	xs_store(&block->shelf, (struct xs_shelf *)0);
	xs_unlock(&shelf->lock, flags);
}

void xs_shelf_put(struct xs_shelf *shelf, struct xs_block *block, u32 lg2)
{
	u32 at = xs_shelf_list_of(lg2, block->kept);
	xs_flags_t flags;

	if (xs_likely(xs_load(&block->shelf) == shelf && block->lg2 == lg2 &&
		      !xs_a64_read(&block->listed)))
		return;
	xs_shelf_leave(block);
	flags = xs_lock(&shelf->lock);
	/* Who has freed a page of it before may still look. */
	xs_store(&block->lg2, lg2);
	xs_store(&shelf->taken[at], shelf->taken[at] + 1);
	xs_store(&block->shelf, shelf);
	xs_unlock(&shelf->lock, flags);
}

/* ---- lists ---- */

void xs_shelf_list(struct xs_block *block)
{
	struct xs_shelf *shelf = xs_load(&block->shelf);
	xs_flags_t flags;

	if (!shelf)
		return;
	flags = xs_lock(&shelf->lock);
	/* It may have been claimed, or put on another shelf. */
	if (xs_load(&block->shelf) == shelf && !xs_a64_read(&block->listed) &&
	    xs_shelf_wants(block, xs_a64_read(&block->free))) {
		xs_shelf_link(shelf, block);
		/*
		 * It may be open, or be claimed and opened meanwhile. A claimed
		 * block has no free page, and an opened one is open before it
		 * has any, so the pages are looked at first: in order.
		 */
		if (!xs_shelf_wants(block, xs_a64_or(&block->free, 0)) ||
		    xs_a64_read(&block->open))
			xs_shelf_unlink(shelf, block);
	}
	xs_unlock(&shelf->lock, flags);
}

/*
 * The first block of a list, of the first XS_SHELF_LOOKS, that ends at or below @last;
 * the shelf's lock is held.
 */
static struct xs_block *xs_shelf_find(const struct xs_shelf *shelf, u32 list,
				      u64 last, u32 *looks)
{
	struct xs_block *block = shelf->blocks[list];

	for (u32 i = 0; block && i < XS_SHELF_LOOKS && *looks; i++) {
		--*looks;
		if (block->iova + XS_BLOCK_BYTES - 1 <= last)
			return block;
		block = block->next;
		if (block == shelf->blocks[list])
			break;
	}
	return 0;
}

struct xs_block *xs_shelf_search(struct xs_shelf *shelf, u32 list, u64 last,
				 enum xs_shelf_when when, u32 *looks)
{
	u32 listed = xs_load(&shelf->listed[list]);
	struct xs_block *block;
	xs_flags_t flags;

	if (!listed ||
	    (when && when * listed <=
			     xs_load(&shelf->taken[list]) + when * XS_SHELF_SLACK))
		return 0;
	flags = xs_lock(&shelf->lock);
	block = xs_shelf_find(shelf, list, last, looks);
	if (block) {
		xs_shelf_unlink(shelf, block);
		xs_a64_swap_relaxed(&block->open, 1);
	}
	xs_unlock(&shelf->lock, flags);
	return block;
}

struct xs_block *xs_shelf_get(struct xs_shelf *shelf, u32 list, u64 last,
			      enum xs_shelf_when when)
{
	u32 looks = XS_SHELF_LOOKS;

	return xs_shelf_search(shelf, list, last, when, &looks);
}
