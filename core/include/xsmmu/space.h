/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The IOVA space of one engine: which blocks of it are taken, and what for; what
 * is known of each block is in the leaves of its tree (tree.h).
 *
 * A block is XS_BLOCK_PAGES pages of IOVA, naturally aligned, so that one
 * page-selective command covers it. Small mappings share blocks (block.h), a
 * larger one has an extent of whole blocks.
 *
 * Blocks are taken from the bottom, which keeps IOVAs below 4 GiB for devices
 * that only claim to address more; but half of what is free there is left to
 * those that can use nothing else. A block of that half is marked as kept, so
 * that its pages do not go to others either (place.h).
 */
#ifndef XSMMU_SPACE_H
#define XSMMU_SPACE_H

#include <xsmmu/tree.h>

/*
 * struct xs_space - guarded by @lock, but for look-ups in the tree
 * @first_block, @end_block: that may be handed out; constant
 * @low_free, @low_reserved: free blocks below 4 GiB; when no more than @low_reserved are
 *		left, they are for those that can use no others
 * @taken:	blocks in use for small mappings
 * @empty_reserved_low:	leaves without a taken block that xs_space_detach() leaves
 * @surplus:	the backend has been told of empty leaves
 */
struct xs_space {
	struct xs_tree tree;
	u64 first_block;
	u64 end_block;
	xs_lock_t lock XS_CACHE_LINE;
	u64 low_free;
	u64 low_reserved;
	u64 taken;
	u64 empty_reserved_low;
	bool surplus;
};

/*
 * Make a space of IOVAs [@start, @end), in bytes, rounded inwards to blocks and
 * to XS_SPACE_END; block 0 is never handed out. Returns 0, -EINVAL for an empty
 * space or -ENOMEM. May sleep.
 */
int xs_space_init(struct xs_space *space, const struct xs_backend_ops *ops,
		  void *backend, u64 start, u64 end);

/* Free the space's memory. It is no longer used by anyone. */
void xs_space_destroy(struct xs_space *space);

/*
 * Never hand out IOVAs of [@start, @last], rounded outwards to blocks. Before
 * the first take only. Returns 0 or -ENOMEM, which leaves the space as it was.
 */
int xs_space_reserve(struct xs_space *space, u64 start, u64 last);

/*
 * The same of any @bytes contiguous, whole blocks that end at or below @last, aligned to
 * the next power of two. Returns where they start; 0: there is no room, or no memory.
 */
u64 xs_space_reserve_any(struct xs_space *space, u64 bytes, u64 last);

/*
 * Take a free block that ends at or below @last, with slots; none of its pages
 * is free, for it is the caller's. NULL: none, or no memory. Any context.
 */
struct xs_block *xs_space_take(struct xs_space *space, u64 last);

/* The last of 4 GiB. */
#define XS_LOW_LAST	((1ULL << (XS_LOW_LG2 + XS_PAGE_LG2)) - 1)

/* Can who is limited to @last use what is kept for those only? */
static xs_inline bool xs_space_keeps(u64 last)
{
	return last <= XS_LOW_LAST;
}

/* Give @count blocks back that the caller has claimed and no partial list has. Any context. */
void xs_space_give(struct xs_space *space, struct xs_block *const *blocks,
		   u32 count);

/*
 * Whole blocks for a mapping of @pages pages, aligned to the next power of two of
 * their number; the extent ends at or below @last. Returns the IOVA or 0. Any context.
 *
 * A claim finds the extent, which begins at page @page, after it was published: when its
 * pages are mapped. False: there is no such run. Both are entered. Give takes an extent
 * that was claimed, or that was never published.
 */
u64 xs_space_find_extent(struct xs_space *space, u32 pages, u64 last);
void xs_space_publish_extent(struct xs_space *space, u64 page, u32 pages);
bool xs_space_take_extent(struct xs_space *space, u64 iova, u32 pages);
void xs_space_give_extent(struct xs_space *space, u64 iova, u32 pages);

/* What the backend knows of all blocks is NULL. It learns no more meanwhile. May sleep. */
void xs_space_forget(struct xs_space *space);

/* No page is marked as dead. Nobody marks any meanwhile. May sleep. */
void xs_space_unmark(struct xs_space *space);

/* A leaf that nobody can find any more; its blocks count as taken. */
struct xs_detached {
	struct xs_leaf *leaf;
	u64 block;
};

#define XS_DETACH_MAX	32u

/*
 * Detach up to XS_DETACH_MAX leaves without a taken block, from page *@from on, and
 * but for @empty_reserved_low. Returns how many; *@from is where to go on, XS_SPACE_PAGES at
 * the end. They are freed when nobody knows them any more. May sleep, both.
 */
u32 xs_space_detach(struct xs_space *space, u64 *from,
		    struct xs_detached *detached);
void xs_space_free(struct xs_space *space, const struct xs_detached *detached,
		   u32 count);

/*
 * A round of a trim is over; did it find anything? True: there is a surplus again, so
 * another one follows; else the backend is to be told of the next. May sleep.
 */
bool xs_space_end_trim(struct xs_space *space, bool found);

/* The block of an IOVA page, NULL if it was never taken. Entered. */
static xs_inline struct xs_block *xs_space_block(const struct xs_space *space,
						 u64 page)
{
	struct xs_leaf *leaf = xs_tree_leaf(&space->tree, page);

	return xs_likely(leaf) ? xs_leaf_block(leaf, page) : 0;
}

/*
 * The slots of the leaf of an IOVA page, NULL if no small mapping was ever near;
 * and the place of the page's among them. Entered.
 */
static xs_inline xs_slot_t *xs_space_slots(const struct xs_space *space,
					   u64 page)
{
	u64 at = page >> XS_LEAF_LG2;
	struct xs_leaf *leaf;

	if (xs_likely(at < XS_NODE_CHILDREN))
		return xs_load_acquire(&space->tree.low_slots[at]);
	leaf = xs_tree_high_leaf(&space->tree, page);
	return leaf ? xs_load_acquire(&leaf->slots) : 0;
}

static xs_inline u32 xs_slot_at(u64 page)
{
	return page & (XS_LEAF_PAGES - 1);
}

/* The slot of an IOVA page, NULL as there is none. Entered. */
static xs_inline xs_slot_t *xs_space_slot(const struct xs_space *space,
					  u64 page)
{
	xs_slot_t *slots = xs_space_slots(space, page);

	return slots ? slots + xs_slot_at(page) : 0;
}

#endif
