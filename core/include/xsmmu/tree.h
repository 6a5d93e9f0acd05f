/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The tree of a space: two bits for each part of it, and what is known of its
 * blocks.
 *
 * It is sparse. A leaf describes 16 blocks, and exists where a small
 * mapping is, or an extent of blocks begins or ends; a node leads to 1,024 leaves,
 * or nodes. Each node has two bits for each child: used (some block is taken) and
 * full (all are), so a free block, or an aligned extent of unused children, is found
 * in a bounded number of steps however full the space is. A child that is used
 * as a whole needs no memory.
 *
 * The lowest leaves, those of XS_NEAR_LG2, have shorter ways. They are 4 GiB with pages
 * of 4 KiB, and more with larger ones: what a device of 32 bits reaches (XS_LOW_LG2) is
 * their first part.
 *
 * Who looks a page up needs no lock, but to be between xs_enter() and
 * xs_exit(): leaves are freed after a quiesce only. All else is under the lock
 * of the space, or nobody else knows the tree.
 */
#ifndef XSMMU_TREE_H
#define XSMMU_TREE_H

#include <xsmmu/slot.h>

#define XS_BLOCK_LG2	6
#define XS_BLOCK_PAGES	(1u << XS_BLOCK_LG2)
#define XS_BLOCK_BYTES	(XS_PAGE_BYTES << XS_BLOCK_LG2)
#define XS_BLOCK_ALL	(~0ULL)		/* mask of all pages of a block */
#define XS_BLOCK_MUCH	16u		/* free pages that are worth using */

#define XS_LEAF_LG2	10		/* pages of a leaf */
#define XS_LEAF_PAGES	(1u << XS_LEAF_LG2)
#define XS_LEAF_BLOCKS_LG2	(XS_LEAF_LG2 - XS_BLOCK_LG2)
#define XS_LEAF_BLOCKS	(1u << XS_LEAF_BLOCKS_LG2)
#define XS_NODE_LG2	10
#define XS_NODE_CHILDREN	(1u << XS_NODE_LG2)
#define XS_NODE_WORDS	(XS_NODE_CHILDREN / 64)
#define XS_NODE_LEVELS	3
#define XS_NEAR_LG2	(XS_LEAF_LG2 + XS_NODE_LG2)	/* pages of a lowest node */
#define XS_LOW_LG2	(32 - XS_PAGE_LG2)		/* pages of 4 GiB */
#define XS_SPACE_LG2	(XS_LEAF_LG2 + XS_NODE_LEVELS * XS_NODE_LG2)

#define XS_SPACE_PAGES	(1ULL << XS_SPACE_LG2)

/* No IOVA is at or above this. */
#define XS_SPACE_END	(XS_SPACE_PAGES << XS_PAGE_LG2)

#define XS_CACHE_LINE	__attribute__((aligned(64)))

struct xs_partial;
struct xs_torn;

/*
 * struct xs_block - see block.h; the first line is used by maps and flushes, the
 * second one seldom
 * @free:	pages that nobody has and no stale translation is of. Whoever
 *		clears a bit has the page.
 * @joined:	pages that belong to the mapping of the page before
 * @entries:	the backend's, for those who have a page of it (world.h)
 * @reserved:	pages that are never handed out while the block is taken
 * @slots:	of its pages
 * @iova:	of its first page
 * @open:	a CPU hands its pages out
 * @lg2:	the size of its order-n ranges, see partial.h
 * @reserved_low:	taken from what is left to those that can use nothing else (space.h):
 *		its pages go to such, and come back to it
 * @small:	taken for small mappings; guarded by the space's lock
 * @partial list:	where it is
 * @next, @prev, @partial: in a list there
 * @stuck:	pages that the backend could not remove (stuck.h)
 * @dead:	pages unmapped and not flushed, kept where the policy asks when a
 *		block is empty
 * @own:	pages that a driver has in it and has not mapped yet
 * @extent_pages:	of the mapping that begins here and has blocks of its own, 0
 *		if none does; with XS_EXTENT_STUCK, if the backend could not remove it
 */
struct xs_block {
	xs_atomic64_t free;
	xs_atomic64_t joined;
	void *entries;
	xs_atomic64_t reserved;
	xs_slot_t *slots;
	u64 iova;
	xs_atomic64_t open;
	u32 lg2;
	bool reserved_low;
	bool small;

	struct xs_partial *partial XS_CACHE_LINE;
	struct xs_block *next;
	struct xs_block *prev;
	xs_atomic64_t listed;
	xs_atomic64_t stuck;
	xs_atomic64_t dead;
	xs_atomic64_t own;
	xs_atomic64_t extent_pages;
} XS_CACHE_LINE;

/*
 * struct xs_leaf
 * @slots:	of its pages, NULL until a small mapping needs one
 * @taken:	bit for each block; guarded by the space's lock
 * @torn:	records of torn mappings that begin here (tear.h)
 */
struct xs_leaf {
	xs_slot_t *slots;
	u32 taken XS_CACHE_LINE;
	struct xs_torn *torn;
	struct xs_block blocks[XS_LEAF_BLOCKS];
};

/*
 * struct xs_node - @child is read without a lock, the rest guarded by it
 * @made:	the leaves that exist; only where children are leaves
 */
struct xs_node {
	void *child[XS_NODE_CHILDREN];
	u64 made[XS_NODE_WORDS];
	u64 used[XS_NODE_WORDS];
	u64 full[XS_NODE_WORDS];
};

/*
 * struct xs_tree - the first line is constant, but for what it points to
 * @low:	the node of the lowest leaves, which is always there
 * @low_slots:	the slots of its leaves, NULL where there are none: most look-ups
 *		end here
 * @leaves, @empty: leaves there are; of them without a taken block
 */
struct xs_tree {
	const struct xs_backend_ops *ops;
	void *backend;
	struct xs_node *root;
	struct xs_node *low;
	xs_slot_t **low_slots;
	u64 leaves XS_CACHE_LINE;
	u64 empty;
};

#define XS_NO_BLOCK	(~0ULL)

/*
 * Begin with the lowest path, nothing of it taken. False: no memory; what there is
 * has to be destroyed. May sleep.
 */
bool xs_tree_init(struct xs_tree *tree, const struct xs_backend_ops *ops,
		  void *backend);
void xs_tree_destroy(struct xs_tree *tree);

/*
 * Make all that is needed to mark [@first, @end). False: no memory; what was made
 * stays. @atomic: may not sleep.
 */
bool xs_tree_grow(struct xs_tree *tree, u64 first, u64 end, bool atomic);

/* The leaf of @block, made if there is none; NULL: no memory. Any context. */
struct xs_leaf *xs_tree_need_leaf(struct xs_tree *tree, u64 block);

/* Make the slots of @leaf, if there are none. False: no memory. Any context. */
bool xs_leaf_add_slots(struct xs_tree *tree, struct xs_leaf *leaf);

/* @count blocks from @first on are taken, or free. The memory for it is there. */
void xs_tree_mark(struct xs_tree *tree, u64 first, u64 count, bool take);

/*
 * The first of @count free contiguous blocks, 1 or more, aligned to the next power of
 * two of their number, in [@from, @end); XS_NO_BLOCK: none, or not soon enough.
 */
u64 xs_tree_find(const struct xs_tree *tree, u64 count, u64 from, u64 end);

/* Free blocks below 4 GiB; ranges that were marked may overlap. */
u64 xs_tree_low_free(const struct xs_tree *tree);

/*
 * The first leaf at or after page *@page that exists, NULL if there is none;
 * *@page is its first page then. Entered, if others use the tree.
 */
struct xs_leaf *xs_tree_next_leaf(struct xs_tree *tree, u64 *page);

/*
 * Let nobody find the leaf of @block any more; NULL if there is none without a
 * taken block. Who knows it from before may use it still.
 */
struct xs_leaf *xs_tree_detach(struct xs_tree *tree, u64 block);

void xs_leaf_free(struct xs_tree *tree, struct xs_leaf *leaf);

/* The leaf of an IOVA page that is not near, NULL if there is none. Entered. */
static xs_inline struct xs_leaf *
xs_tree_high_leaf(const struct xs_tree *tree, u64 page)
{
	void *at = tree->root;

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
static xs_inline struct xs_leaf *xs_tree_leaf(const struct xs_tree *tree,
					       u64 page)
{
	if (xs_unlikely(page >> XS_NEAR_LG2))
		return xs_tree_high_leaf(tree, page);
	return xs_load_acquire((struct xs_leaf **)
				&tree->low->child[page >> XS_LEAF_LG2]);
}

static xs_inline struct xs_block *xs_leaf_block(struct xs_leaf *leaf, u64 page)
{
	return &leaf->blocks[page >> XS_BLOCK_LG2 & (XS_LEAF_BLOCKS - 1)];
}

#endif
