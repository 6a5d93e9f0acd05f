/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The IOVA space of one engine: which blocks of it are taken, and where what is
 * known of them is kept.
 *
 * A block is XS_BLOCK_PAGES pages of IOVA, naturally aligned, so that one
 * page-selective command covers it. Small mappings share blocks (block.h), a
 * larger one has a run of whole blocks.
 *
 * The space is sparse. A leaf describes 16 blocks (4 MiB), and exists where a
 * small mapping is, or a run of blocks begins or ends; a node leads to
 * 1,024 leaves, or nodes. Each node has two bits for each child: used (some block
 * is taken) and full (all are), so a free block, or an aligned run of unused
 * children, is found in a bounded number of steps however full the space is. A
 * child that is used as a whole needs no memory.
 *
 * Who looks a page up needs no lock, but to be between xs_enter() and
 * xs_exit(): leaves are freed after a quiesce only.
 *
 * Blocks are taken from the bottom, which keeps IOVAs below 4 GiB for devices
 * that only claim to address more; but the upper half of what is free there is
 * left to those that ask for it.
 */
#ifndef XSMMU_SPACE_H
#define XSMMU_SPACE_H

#include <xsmmu/slot.h>

#define XS_BLOCK_LG2	6
#define XS_BLOCK_PAGES	(1u << XS_BLOCK_LG2)
#define XS_BLOCK_BYTES	(XS_PAGE_BYTES << XS_BLOCK_LG2)
#define XS_BLOCK_ALL	(~0ULL)		/* mask of all pages of a block */
#define XS_BLOCK_MUCH	16u		/* free pages that are worth using */

#define XS_LEAF_LG2	10		/* pages of a leaf */
#define XS_LEAF_PAGES	(1u << XS_LEAF_LG2)
#define XS_LEAF_BLOCKS	(XS_LEAF_PAGES / XS_BLOCK_PAGES)
#define XS_NODE_LG2	10
#define XS_NODE_CHILDREN	(1u << XS_NODE_LG2)
#define XS_NODE_WORDS	(XS_NODE_CHILDREN / 64)
#define XS_NODE_LEVELS	3
#define XS_LOW_LG2	(XS_LEAF_LG2 + XS_NODE_LG2)	/* pages of 4 GiB */
#define XS_SPACE_LG2	(XS_LEAF_LG2 + XS_NODE_LEVELS * XS_NODE_LG2)

/* No IOVA is at or above this. */
#define XS_SPACE_END	(1ULL << (XS_SPACE_LG2 + XS_PAGE_LG2))

#define XS_CACHE_LINE	__attribute__((aligned(64)))

/*
 * struct xs_block - see block.h; the first line is used by maps and syncs, the
 * second one seldom
 * @free:	pages that nobody has and no stale translation is of. Whoever
 *		clears a bit has the page.
 * @joined:	pages that belong to the mapping of the page before
 * @dead:	pages unmapped and not synced, kept where the policy asks when a
 *		block is empty
 * @withheld:	pages that are never handed out while the block is taken
 * @slots:	of its pages
 * @iova:	of its first page
 * @open:	a CPU hands its pages out
 * @lg2:	the size of its pieces, see shelf.h
 * @shelf:	where it is
 * @next, @prev, @listed: in a list there
 * @small:	taken for small mappings; guarded by the space's lock
 * @own:	pages that a driver has in it and has not mapped yet
 * @run_pages:	of the mapping that begins here and has blocks of its own, 0
 *		if none does
 */
struct xs_shelf;

struct xs_block {
	xs_atomic64_t free;
	xs_atomic64_t joined;
	xs_atomic64_t dead;
	u64 withheld;
	xs_slot_t *slots;
	u64 iova;
	xs_atomic64_t open;
	u32 lg2;

	struct xs_shelf *shelf XS_CACHE_LINE;
	struct xs_block *next;
	struct xs_block *prev;
	xs_atomic64_t listed;
	bool small;
	xs_atomic64_t own;
	xs_atomic64_t run_pages;
} XS_CACHE_LINE;

/*
 * struct xs_leaf
 * @slots:	of its pages, NULL until a small mapping needs one
 * @taken:	bit for each block; guarded by the space's lock
 */
struct xs_leaf {
	xs_slot_t *slots;
	u32 taken XS_CACHE_LINE;
	struct xs_block blocks[XS_LEAF_BLOCKS];
};

/* struct xs_node - @child is read without a lock, the rest guarded by it. */
struct xs_node {
	void *child[XS_NODE_CHILDREN];
	u64 used[XS_NODE_WORDS];
	u64 full[XS_NODE_WORDS];
};

/*
 * struct xs_space - all but @ops .. @low, which are constant, guarded by @lock
 * @low:	the node of the lowest 4 GiB, which is always there
 * @low_slots:	the slots of its leaves, NULL where there are none: most look-ups
 *		end here
 * @first_block, @end_block: that may be handed out
 * @low_free, @low_kept: free blocks below 4 GiB; when no more than @low_kept are
 *		left, they are for those that can use no others
 * @taken:	blocks in use for small mappings
 * @leaves, @empty: leaves there are; of them without a taken block
 * @empty_kept:	of those, that xs_space_detach() leaves
 * @surplus:	the world has been told of empty leaves
 */
struct xs_space {
	const struct xs_world_ops *ops;
	void *world;
	struct xs_node *root;
	struct xs_node *low;
	xs_slot_t **low_slots;
	u64 first_block;
	u64 end_block;
	xs_lock_t lock XS_CACHE_LINE;
	u64 low_free;
	u64 low_kept;
	u64 taken;
	u64 leaves;
	u64 empty;
	u64 empty_kept;
	bool surplus;
};

/*
 * Make a space of IOVAs [@start, @end), in bytes, rounded inwards to blocks and
 * to XS_SPACE_END; block 0 is never handed out. Returns 0, -EINVAL for an empty
 * space or -ENOMEM. May sleep.
 */
int xs_space_init(struct xs_space *space, const struct xs_world_ops *ops,
		  void *world, u64 start, u64 end);

/* Free the space's memory. It is no longer used by anyone. */
void xs_space_destroy(struct xs_space *space);

/*
 * Never hand out IOVAs of [@start, @last], rounded outwards to blocks. Before
 * the first take only. Returns 0 or -ENOMEM, which leaves the space as it was.
 */
int xs_space_reserve(struct xs_space *space, u64 start, u64 last);

/*
 * Take a free block that ends at or below @last, with slots; none of its pages
 * is free, for it is the caller's. NULL: none, or no memory. Any context.
 */
struct xs_block *xs_space_take(struct xs_space *space, u64 last);

/* Give @count blocks back that the caller has claimed and no shelf has. Any context. */
void xs_space_give(struct xs_space *space, struct xs_block *const *blocks,
		   u32 count);

/*
 * Whole blocks for a mapping of @pages pages, aligned to the next power of two of
 * their number; the run ends at or below @last. Returns the IOVA or 0. Any
 * context. A claim is of a run whose size is known, and false for what is none.
 * Give takes the run that was claimed.
 */
u64 xs_space_take_run(struct xs_space *space, u32 pages, u64 last);
bool xs_space_claim_run(struct xs_space *space, u64 iova, u32 pages);
void xs_space_give_run(struct xs_space *space, u64 iova, u32 pages);

/* A leaf that nobody can find any more; its blocks count as taken. */
struct xs_detached {
	struct xs_leaf *leaf;
	u64 block;
};

#define XS_DETACH_MAX	32u

/*
 * Detach up to XS_DETACH_MAX leaves without a taken block, from page *@from on, and
 * but for @empty_kept. Returns how many. They are freed when nobody knows them any
 * more. May sleep, both.
 */
u32 xs_space_detach(struct xs_space *space, u64 *from,
		    struct xs_detached *detached);
void xs_space_free(struct xs_space *space, const struct xs_detached *detached,
		   u32 count);

/*
 * The first leaf at or after page *@page that exists, NULL if there is none;
 * *@page is its first page then. Of a space at rest.
 */
struct xs_leaf *xs_space_next_leaf(struct xs_space *space, u64 *page);

/* The leaf of an IOVA page above 4 GiB, NULL if there is none. Entered. */
static xs_inline struct xs_leaf *
xs_space_high_leaf(const struct xs_space *space, u64 page)
{
	void *at = space->root;

	if (page >> XS_SPACE_LG2)
		return 0;
	for (u32 shift = XS_SPACE_LG2; at && shift > XS_LEAF_LG2;) {
		struct xs_node *node = at;

		shift -= XS_NODE_LG2;
		at = xs_load_acquire(&node->child[page >> shift &
						  (XS_NODE_CHILDREN - 1)]);
	}
	return at;
}

/* The leaf of an IOVA page, NULL if there is none. Entered. */
static xs_inline struct xs_leaf *xs_space_leaf(const struct xs_space *space,
					       u64 page)
{
	if (xs_unlikely(page >> XS_LOW_LG2))
		return xs_space_high_leaf(space, page);
	return xs_load_acquire((struct xs_leaf **)
				&space->low->child[page >> XS_LEAF_LG2]);
}

static xs_inline struct xs_block *xs_leaf_block(struct xs_leaf *leaf, u64 page)
{
	return &leaf->blocks[page >> XS_BLOCK_LG2 & (XS_LEAF_BLOCKS - 1)];
}

/* The block of an IOVA page, NULL if it was never taken. Entered. */
static xs_inline struct xs_block *xs_space_block(const struct xs_space *space,
						 u64 page)
{
	struct xs_leaf *leaf = xs_space_leaf(space, page);

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
		return xs_load_acquire(&space->low_slots[at]);
	leaf = xs_space_high_leaf(space, page);
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
