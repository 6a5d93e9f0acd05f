/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The IOVA space of an engine: the blocks that are taken, and their use. The leaves of the
 * space's tree (tree.h) describe each block.
 *
 * A block is XS_BLOCK_PAGES pages of IOVA, naturally aligned, so that a single page-selective
 * command covers a block. Small mappings share blocks (block.h); a larger mapping has an extent
 * of whole blocks.
 *
 * Blocks are taken from the bottom up. So IOVAs stay below 4 GiB for devices that wrongly claim
 * to address more. But half of the free blocks below 4 GiB is reserved for devices that can
 * address nothing else. A block of the reserved half is marked reserved_low, so that other
 * devices get its pages only when no other block is left (place.h).
 */
#ifndef XSMMU_SPACE_H
#define XSMMU_SPACE_H

#include <xsmmu/tree.h>

/**
 * struct xs_space - IOVA space of an engine
 * @tree: tree of the blocks; look-ups take no lock
 * @first_block: first block that may be handed out; constant
 * @end_block: end of the blocks that may be handed out; constant
 * @lock: guards the tree and all members below
 * @low_free: free blocks below 4 GiB
 * @low_reserved: when no more than this many blocks below 4 GiB are free, the blocks go to devices
 *   that can use no other block; other devices get the blocks only when no other block is left
 * @taken: blocks in use for small mappings
 * @empty_min: number of leaves without a taken block that xs_space_detach() leaves in place
 * @surplus: the backend has been told of empty leaves
 */
struct xs_space {
	struct xs_tree tree;
	u64 first_block;
	u64 end_block;
	xs_lock_t lock XS_CACHE_LINE;
	u64 low_free;
	u64 low_reserved;
	u64 taken;
	u64 empty_min;
	bool surplus;
};

/**
 * xs_space_init - initialise a space
 * @space: space
 * @ops: operations of the backend
 * @backend: first argument of the operations
 * @start: start of the IOVAs in bytes, rounded up to a block
 * @end: end of the IOVAs in bytes, rounded down to a block, and to XS_SPACE_END at most
 *
 * Block 0 is never handed out.
 *
 * Context: may sleep.
 * Return: 0, -EINVAL for an empty space, or -ENOMEM.
 */
int xs_space_init(struct xs_space *space, const struct xs_backend_ops *ops,
		  void *backend, u64 start, u64 end);

/**
 * xs_space_destroy - free the memory of a space
 * @space: space that no caller uses any more
 *
 * Context: may sleep.
 */
void xs_space_destroy(struct xs_space *space);

/**
 * xs_space_reserve - never hand out IOVAs of a range
 * @space: space without a taken block
 * @start: start in bytes, rounded down to a block
 * @last: end in bytes, inclusive, rounded up to a block
 *
 * Context: may sleep; before the first allocation.
 * Return: 0, or -ENOMEM, and the space is unchanged.
 */
int xs_space_reserve(struct xs_space *space, u64 start, u64 last);

/**
 * xs_space_reserve_any - never hand out some contiguous blocks
 * @space: space without a taken block
 * @bytes: size, a multiple of a block
 * @last: highest IOVA in bytes, inclusive
 *
 * The range is aligned to the number of blocks rounded up to a power of two.
 *
 * Context: may sleep; before the first allocation.
 * Return: start in bytes; 0 without room or without memory.
 */
u64 xs_space_reserve_any(struct xs_space *space, u64 bytes, u64 last);

/**
 * xs_space_alloc_block - allocate a free block for small mappings
 * @space: space
 * @last: highest IOVA in bytes, inclusive
 *
 * The block has slots. None of its pages is free: all pages belong to the caller.
 *
 * Context: any, interrupts off.
 * Return: the block; NULL without a free block or without memory.
 */
struct xs_block *xs_space_alloc_block(struct xs_space *space, u64 last);

/* last byte below 4 GiB */
#define XS_LOW_LAST	((1ULL << (XS_LOW_LG2 + XS_PAGE_LG2)) - 1)

/**
 * xs_space_is_low - test for a device that may use the blocks reserved below 4 GiB
 * @last: highest IOVA of the device in bytes, inclusive
 *
 * Context: any.
 * Return: true if the device can use no other block.
 */
static xs_inline bool xs_space_is_low(u64 last)
{
	return last <= XS_LOW_LAST;
}

/**
 * xs_space_free_blocks - free blocks
 * @space: space
 * @blocks: blocks that the caller has claimed and that are on no partial list
 * @count: number of blocks
 *
 * Context: any, interrupts off.
 */
void xs_space_free_blocks(struct xs_space *space, struct xs_block *const *blocks,
			  u32 count);

/**
 * xs_space_alloc_extent - allocate an extent of whole blocks for a large mapping
 * @space: space
 * @pages: size of the mapping
 * @last: highest IOVA in bytes, inclusive
 *
 * The extent is aligned to the number of blocks rounded up to a power of two.
 *
 * Context: any, interrupts off.
 * Return: start in bytes; 0 on failure.
 */
u64 xs_space_alloc_extent(struct xs_space *space, u32 pages, u64 last);

/**
 * xs_space_could_fit - has a space so many blocks, used or not?
 * @space: space
 * @pages: number of pages
 * @last: highest IOVA in bytes, inclusive
 *
 * Context: any.
 * Return: false if a mapping would not fit an empty space.
 */
bool xs_space_could_fit(const struct xs_space *space, u32 pages, u64 last);

/**
 * xs_space_has_room - look for free contiguous blocks
 * @space: space
 * @pages: size of a mapping; a mapping of at most a block needs one block
 * @last: highest IOVA in bytes, inclusive
 *
 * Context: any.
 * Return: true if xs_space_alloc_block() or xs_space_alloc_extent() finds blocks, given memory.
 */
bool xs_space_has_room(struct xs_space *space, u32 pages, u64 last);

/**
 * xs_space_publish_extent - let unmaps find an extent
 * @space: space
 * @page: first page of the extent
 * @pages: size of the mapping, all mapped
 *
 * Context: entered.
 */
void xs_space_publish_extent(struct xs_space *space, u64 page, u32 pages);

/**
 * xs_space_claim_extent - claim a published extent
 * @space: space
 * @iova: start in bytes
 * @pages: size of the mapping
 *
 * Context: entered.
 * Return: false if no published extent of @pages pages starts at @iova.
 */
bool xs_space_claim_extent(struct xs_space *space, u64 iova, u32 pages);

/**
 * xs_space_free_extent - free the IOVAs of an extent
 * @space: space
 * @iova: start in bytes
 * @pages: size of the mapping
 *
 * The extent is claimed, or was never published.
 *
 * Context: any, interrupts off.
 */
void xs_space_free_extent(struct xs_space *space, u64 iova, u32 pages);

/**
 * xs_space_clear_entries - clear the backend's word @entries of all blocks
 * @space: space
 *
 * Context: may sleep. The backend writes no such word meanwhile.
 */
void xs_space_clear_entries(struct xs_space *space);

/**
 * xs_space_clear_dead - mark all pages of all blocks as not dead
 * @space: space
 *
 * Context: may sleep. No call marks pages as dead meanwhile.
 */
void xs_space_clear_dead(struct xs_space *space);

/* A leaf that no look-up finds any more; the blocks of the leaf count as taken. */
struct xs_detached {
	struct xs_leaf *leaf;
	u64 block;
};

#define XS_DETACH_MAX	32u

/**
 * xs_space_detach - detach leaves without a taken block
 * @space: space
 * @from: page at which the search starts; on return the page at which to continue,
 *   XS_SPACE_PAGES at the end
 * @detached: the detached leaves, room for XS_DETACH_MAX
 *
 * Leaves @empty_min leaves in place.
 *
 * Context: may sleep.
 * Return: number of detached leaves.
 */
u32 xs_space_detach(struct xs_space *space, u64 *from,
		    struct xs_detached *detached);

/**
 * xs_space_free_leaves - free detached leaves
 * @space: space
 * @detached: leaves that no caller has a pointer to any more
 * @count: number of leaves
 *
 * Context: may sleep.
 */
void xs_space_free_leaves(struct xs_space *space, const struct xs_detached *detached,
			  u32 count);

/**
 * xs_space_end_trim - end a round of a trim
 * @space: space
 * @found: the round has freed leaves
 *
 * Context: may sleep.
 * Return: true if there is a surplus again and another round must follow. On false the backend
 *   will be told of the next surplus.
 */
bool xs_space_end_trim(struct xs_space *space, bool found);

/**
 * xs_space_block - block of an IOVA page
 * @space: space
 * @page: page number
 *
 * Context: entered.
 * Return: the block; NULL if no leaf describes the page.
 */
static xs_inline struct xs_block *xs_space_block(const struct xs_space *space,
						 u64 page)
{
	struct xs_leaf *leaf = xs_tree_leaf(&space->tree, page);

	return xs_likely(leaf) ? xs_leaf_block(leaf, page) : 0;
}

/**
 * xs_space_slots - slots of the leaf of an IOVA page
 * @space: space
 * @page: page number
 *
 * The page's slot is at xs_slot_at() of the array.
 *
 * Context: entered.
 * Return: the slots; NULL if no small mapping was ever in the leaf.
 */
static xs_inline xs_slot_t *xs_space_slots(const struct xs_space *space,
					   u64 page)
{
	u64 at = page >> XS_LEAF_LG2;
	struct xs_leaf *leaf;

	if (xs_likely(at < XS_NODE_CHILDREN))
		return xs_load_acquire(&space->tree.near_slots[at]);
	leaf = xs_tree_far_leaf(&space->tree, page);
	return leaf ? xs_load_acquire(&leaf->slots) : 0;
}

/**
 * xs_slot_at - index of a page's slot among the slots of a leaf
 * @page: page number
 *
 * Context: any.
 * Return: the index.
 */
static xs_inline u32 xs_slot_at(u64 page)
{
	return page & (XS_LEAF_PAGES - 1);
}

/**
 * xs_space_slot - slot of an IOVA page
 * @space: space
 * @page: page number
 *
 * Context: entered.
 * Return: the slot; NULL if xs_space_slots() returns NULL.
 */
static xs_inline xs_slot_t *xs_space_slot(const struct xs_space *space,
					  u64 page)
{
	xs_slot_t *slots = xs_space_slots(space, page);

	return slots ? slots + xs_slot_at(page) : 0;
}

#endif
