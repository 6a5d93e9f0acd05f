// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Blocks that are taken, and their use; see space.h. */
#include <xsmmu/bits.h>
#include <xsmmu/space.h>

#define XS_LOW_BLOCKS		(1ULL << (XS_LOW_LG2 - XS_BLOCK_LG2))
#define XS_SPACE_BLOCKS		(1ULL << (XS_SPACE_LG2 - XS_BLOCK_LG2))
#define XS_EMPTY_MIN		16u	/* leaves: 64 MiB of IOVA with pages of 4 KiB */
#define XS_DETACH_LOOKS		256u	/* leaves to look at with the lock held */

/* ---- looking for room ---- */

/* The caller has made the memory for the marks, and holds the lock or is the only user. */
static void xs_space_mark(struct xs_space *space, u64 first, u64 count,
			  bool take)
{
	xs_tree_mark(&space->tree, first, count, take);
	if (first < XS_LOW_BLOCKS) {
		u64 low = XS_LOW_BLOCKS - first;

		if (low > count)
			low = count;
		space->low_free += take ? -low : low;
	}
}

/* Finds the first @count free contiguous blocks below @end. */
static u64 xs_space_find(const struct xs_space *space, u64 count, u64 end)
{
	bool keep = end > XS_LOW_BLOCKS &&
		    space->low_free < space->low_reserved + count;
	u64 found = XS_NO_BLOCK;

	if (!count || count > end)
		return XS_NO_BLOCK;
	if (keep)
		found = xs_tree_find(&space->tree, count, XS_LOW_BLOCKS, end);
	if (found == XS_NO_BLOCK)
		found = xs_tree_find(&space->tree, count, 0, end);
	return found;
}

/* Number of whole blocks up to @last. */
static u64 xs_end_of(const struct xs_space *space, u64 last)
{
	u64 blocks = (last + 1) / XS_BLOCK_BYTES;

	if (last == ~0ULL || blocks > space->end_block)
		return space->end_block;
	return blocks;
}

/* ---- blocks ---- */

struct xs_block *xs_space_alloc_block(struct xs_space *space, u64 last)
{
	struct xs_leaf *leaf = 0;
	struct xs_block *block;
	u64 at;

	xs_lock(&space->lock);
	at = xs_space_find(space, 1, xs_end_of(space, last));
	if (at != XS_NO_BLOCK)
		leaf = xs_tree_need_leaf(&space->tree, at);
	if (leaf && !xs_leaf_add_slots(&space->tree, leaf))
		leaf = 0;
	if (!leaf) {
		xs_unlock(&space->lock);
		return 0;
	}
	block = &leaf->blocks[at & (XS_LEAF_BLOCKS - 1)];
	block->small = true;
	xs_space_mark(space, at, 1, true);
	block->reserved_low = at < XS_LOW_BLOCKS && space->low_free < space->low_reserved;
	space->taken++;
	xs_unlock(&space->lock);
	xs_a64_set(&block->joined, 0);
	xs_a64_set(&block->dead, 0);
	xs_a64_set(&block->reserved, 0);
	/* NULL already, except after a map that its driver did not wait for. */
	xs_store(&block->entries, (void *)0);
	return block;
}

/* True if the backend must be told. The lock is held. */
static bool xs_space_has_surplus(struct xs_space *space)
{
	if (space->surplus || space->tree.empty <= 2 * space->empty_min ||
	    space->tree.empty <= space->tree.leaves / 2)
		return false;
	space->surplus = true;
	return true;
}

static void xs_space_tell(struct xs_space *space, bool surplus)
{
	if (surplus && space->tree.ops->surplus)
		space->tree.ops->surplus(space->tree.backend);
}

void xs_space_free_blocks(struct xs_space *space, struct xs_block *const *blocks,
			  u32 count)
{
	bool surplus;

	xs_lock(&space->lock);
	for (u32 i = 0; i < count; i++) {
		blocks[i]->small = false;
		xs_store(&blocks[i]->entries, (void *)0);
		xs_space_mark(space, blocks[i]->iova / XS_BLOCK_BYTES, 1, false);
	}
	space->taken -= count;
	surplus = xs_space_has_surplus(space);
	xs_unlock(&space->lock);
	xs_space_tell(space, surplus);
}

/* ---- extents ---- */

static u64 xs_blocks_of(u32 pages)
{
	return ((u64)pages + XS_BLOCK_PAGES - 1) >> XS_BLOCK_LG2;
}

u64 xs_space_alloc_extent(struct xs_space *space, u32 pages, u64 last)
{
	u64 count = xs_blocks_of(pages);
	struct xs_leaf *leaf = 0;
	u64 at;

	xs_lock(&space->lock);
	at = xs_space_find(space, count, xs_end_of(space, last));
	if (at != XS_NO_BLOCK && xs_tree_grow(&space->tree, at, at + count, true))
		leaf = xs_tree_need_leaf(&space->tree, at);
	if (leaf)
		xs_space_mark(space, at, count, true);
	xs_unlock(&space->lock);
	return leaf ? at * XS_BLOCK_BYTES : 0;
}

bool xs_space_could_fit(const struct xs_space *space, u32 pages, u64 last)
{
	u64 end = xs_end_of(space, last);

	return end > space->first_block && xs_blocks_of(pages) <= end - space->first_block;
}

bool xs_space_has_room(struct xs_space *space, u32 pages, u64 last)
{
	xs_flags_t flags = xs_lock_irqsave(&space->lock);
	u64 at = xs_space_find(space, xs_blocks_of(pages), xs_end_of(space, last));

	xs_unlock_irqrestore(&space->lock, flags);
	return at != XS_NO_BLOCK;
}

void xs_space_publish_extent(struct xs_space *space, u64 page, u32 pages)
{
	xs_a64_set_release(&xs_space_block(space, page)->extent_pages, pages);
}

bool xs_space_claim_extent(struct xs_space *space, u64 iova, u32 pages)
{
	struct xs_block *block = xs_space_block(space, iova >> XS_PAGE_LG2);
	u64 old = pages;

	return !(iova & (XS_BLOCK_BYTES - 1)) && block && pages &&
	       xs_a64_try_acquire(&block->extent_pages, &old, 0);
}

void xs_space_free_extent(struct xs_space *space, u64 iova, u32 pages)
{
	bool surplus;

	xs_lock(&space->lock);
	xs_space_mark(space, iova / XS_BLOCK_BYTES, xs_blocks_of(pages), false);
	surplus = xs_space_has_surplus(space);
	xs_unlock(&space->lock);
	xs_space_tell(space, surplus);
}

/* ---- giving memory back ---- */

u32 xs_space_detach(struct xs_space *space, u64 *from,
		    struct xs_detached *detached)
{
	xs_flags_t flags = xs_lock_irqsave(&space->lock);
	u32 looks = XS_DETACH_LOOKS, count = 0;
	u64 page = *from;

	for (; count < XS_DETACH_MAX; page += XS_LEAF_PAGES) {
		struct xs_leaf *leaf;
		u64 block;

		if (space->tree.empty <= space->empty_min ||
		    !xs_tree_next_leaf(&space->tree, &page)) {
			page = XS_SPACE_PAGES;
			break;
		}
		if (!looks--)
			break;
		block = page >> XS_BLOCK_LG2;
		leaf = xs_tree_detach(&space->tree, block);
		if (!leaf)
			continue;
		xs_space_mark(space, block, XS_LEAF_BLOCKS, true);
		detached[count].leaf = leaf;
		detached[count++].block = block;
	}
	*from = page;
	xs_unlock_irqrestore(&space->lock, flags);
	return count;
}

bool xs_space_end_trim(struct xs_space *space, bool found)
{
	xs_flags_t flags = xs_lock_irqsave(&space->lock);
	bool again;

	space->surplus = false;
	again = found && xs_space_has_surplus(space);
	xs_unlock_irqrestore(&space->lock, flags);
	return again;
}

void xs_space_free_leaves(struct xs_space *space, const struct xs_detached *detached,
			  u32 count)
{
	xs_flags_t flags = xs_lock_irqsave(&space->lock);

	for (u32 i = 0; i < count; i++)
		xs_space_mark(space, detached[i].block, XS_LEAF_BLOCKS, false);
	xs_unlock_irqrestore(&space->lock, flags);
	for (u32 i = 0; i < count; i++)
		xs_leaf_free(&space->tree, detached[i].leaf);
}

static void xs_space_each_block(struct xs_space *space,
				void (*visit)(struct xs_block *block))
{
	struct xs_leaf *leaf;
	u64 page = 0;

	do {
		xs_flags_t flags = xs_lock_irqsave(&space->lock);

		leaf = xs_tree_next_leaf(&space->tree, &page);
		for (u32 i = 0; leaf && i < XS_LEAF_BLOCKS; i++)
			visit(&leaf->blocks[i]);
		page += XS_LEAF_PAGES;
		xs_unlock_irqrestore(&space->lock, flags);
	} while (leaf);
}

static void xs_block_clear_entries(struct xs_block *block)
{
	xs_store(&block->entries, (void *)0);
}

void xs_space_clear_entries(struct xs_space *space)
{
	xs_space_each_block(space, xs_block_clear_entries);
}

static void xs_block_clear_dead(struct xs_block *block)
{
	xs_a64_set(&block->dead, 0);
}

void xs_space_clear_dead(struct xs_space *space)
{
	xs_space_each_block(space, xs_block_clear_dead);
}

/* ---- set-up ---- */

static int xs_space_reserve_blocks(struct xs_space *space, u64 first, u64 end)
{
	if (first >= end)
		return 0;
	if (!xs_tree_grow(&space->tree, first, end, false))
		return -XS_ENOMEM;
	xs_space_mark(space, first, end - first, true);
	space->low_free = xs_tree_low_free(&space->tree);
	/* Without blocks above 4 GiB all devices are alike. */
	space->low_reserved = space->end_block > XS_LOW_BLOCKS ?
		space->low_free / 2 : 0;
	return 0;
}

int xs_space_init(struct xs_space *space, const struct xs_backend_ops *ops,
		  void *backend, u64 start, u64 end)
{
	static const struct xs_space empty;

	*space = empty;
	space->empty_min = XS_EMPTY_MIN;
	space->first_block = (start + XS_BLOCK_BYTES - 1) / XS_BLOCK_BYTES;
	space->end_block = end / XS_BLOCK_BYTES;
	if (!space->first_block)
		space->first_block = 1;	/* IOVA 0 means "none" */
	if (space->end_block > XS_SPACE_BLOCKS)
		space->end_block = XS_SPACE_BLOCKS;
	if (space->first_block >= space->end_block)
		return -XS_EINVAL;
	xs_lock_init(&space->lock);
	if (xs_tree_init(&space->tree, ops, backend) &&
	    !xs_space_reserve_blocks(space, 0, space->first_block) &&
	    !xs_space_reserve_blocks(space, space->end_block, XS_SPACE_BLOCKS))
		return 0;
	xs_space_destroy(space);
	return -XS_ENOMEM;
}

void xs_space_destroy(struct xs_space *space)
{
	xs_tree_destroy(&space->tree);
}

int xs_space_reserve(struct xs_space *space, u64 start, u64 last)
{
	u64 first = start / XS_BLOCK_BYTES;
	u64 end = last / XS_BLOCK_BYTES + 1;

	if (first < space->first_block)
		first = space->first_block;
	if (end > space->end_block)
		end = space->end_block;
	return xs_space_reserve_blocks(space, first, end);
}

u64 xs_space_reserve_any(struct xs_space *space, u64 bytes, u64 last)
{
	u64 count = bytes / XS_BLOCK_BYTES;
	u64 at = xs_space_find(space, count, xs_end_of(space, last));

	if (at == XS_NO_BLOCK || xs_space_reserve_blocks(space, at, at + count))
		return 0;
	return at * XS_BLOCK_BYTES;
}
