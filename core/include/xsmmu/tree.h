/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The tree of a space: two bits for each part of the space, and a description of each block.
 *
 * The tree is sparse. A leaf describes 16 blocks. A leaf exists where there is a small mapping,
 * or where an extent of blocks begins or ends. A node has 1,024 children: leaves or nodes. A
 * node has two bits for each child: used (some block is taken) and full (all blocks are taken).
 * So a free block, or an aligned extent of unused children, is found in a bounded number of
 * steps however full the space is. A child that is used as a whole needs no memory.
 *
 * Look-ups of the lowest leaves, below XS_NEAR_LG2, take fewer steps. These leaves cover 4 GiB
 * with pages of 4 KiB, and more with larger pages; the range of a 32-bit device (XS_LOW_LG2) is
 * the first part.
 *
 * A look-up needs no lock, but must be between xs_enter() and xs_exit(): leaves are freed only
 * after a quiesce. All other calls hold the lock of the space, or no other CPU knows the tree
 * yet.
 */
#ifndef XSMMU_TREE_H
#define XSMMU_TREE_H

#include <xsmmu/slot.h>

#define XS_BLOCK_LG2	6
#define XS_BLOCK_PAGES	(1u << XS_BLOCK_LG2)
#define XS_BLOCK_BYTES	(XS_PAGE_BYTES << XS_BLOCK_LG2)
#define XS_BLOCK_ALL	(~0ULL)		/* mask of all pages of a block */
#define XS_LIST_MIN_FREE	16u	/* free pages from which on a block is listed */

#define XS_LEAF_LG2	10		/* pages of a leaf */
#define XS_LEAF_PAGES	(1u << XS_LEAF_LG2)
#define XS_LEAF_BLOCKS_LG2	(XS_LEAF_LG2 - XS_BLOCK_LG2)
#define XS_LEAF_BLOCKS	(1u << XS_LEAF_BLOCKS_LG2)
#define XS_NODE_LG2	10
#define XS_NODE_CHILDREN	(1u << XS_NODE_LG2)
#define XS_NODE_WORDS	(XS_NODE_CHILDREN / 64)
#define XS_NODE_LEVELS	3
#define XS_NEAR_LG2	(XS_LEAF_LG2 + XS_NODE_LG2)	/* pages below a lowest node */
#define XS_LOW_LG2	(32 - XS_PAGE_LG2)		/* pages of 4 GiB */
#define XS_SPACE_LG2	(XS_LEAF_LG2 + XS_NODE_LEVELS * XS_NODE_LG2)

#define XS_SPACE_PAGES	(1ULL << XS_SPACE_LG2)

/* All IOVAs are below. */
#define XS_SPACE_END	(XS_SPACE_PAGES << XS_PAGE_LG2)

struct xs_partial;
struct xs_torn;

/**
 * struct xs_block - block of IOVA, see block.h
 * @free: pages that have no owner and no stale translation. The call that clears a bit owns the
 *   page.
 * @joined: pages that belong to the mapping of the page before
 * @entries: word of the backend, for a caller that has a page of the block (backend.h)
 * @reserved: pages that are never handed out while the block is taken
 * @slots: slots of the block's pages
 * @iova: IOVA of the first page, in bytes
 * @open: a CPU hands out pages of the block
 * @lg2: log2 of the size of the block's order-n ranges, see partial.h
 * @reserved_low: the block belongs to the half of the space below 4 GiB that is reserved for
 *   devices that can use no other (space.h). Other devices get pages of the block only when no
 *   other block is left. The pages come back to the block, not to a magazine.
 * @small: taken for small mappings; guarded by the space's lock
 * @partial: partial list that has the block
 * @next: next block in the list
 * @prev: previous block in the list
 * @listed: the block is in the list of blocks with many free pages
 * @stuck: pages that the backend could not remove (stuck.h)
 * @dead: pages that are unmapped and not flushed, maintained under a policy that flushes empty
 *   blocks
 * @own: pages of a driver's block that the driver has not mapped yet
 * @extent_pages: size of the extent of blocks that begins here, 0 without such an extent; with
 *   XS_EXTENT_STUCK if the backend could not remove the extent
 *
 * Maps and flushes use the first cache line, and seldom the second.
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

/**
 * struct xs_leaf - leaf of the tree
 * @slots: slots of the leaf's pages; NULL until a small mapping needs slots
 * @taken: a bit for each taken block; guarded by the space's lock
 * @torn: records of the torn mappings that begin in the leaf (tear.h)
 * @blocks: the blocks
 */
struct xs_leaf {
	xs_slot_t *slots;
	u32 taken XS_CACHE_LINE;
	struct xs_torn *torn;
	struct xs_block blocks[XS_LEAF_BLOCKS];
};

/**
 * struct xs_node - inner node of the tree
 * @child: leaves or nodes; read without a lock
 * @made: leaves that exist; only in a node above leaves
 * @used: children with a taken block
 * @full: children without a free block
 *
 * The space's lock guards all members except for reads of @child.
 */
struct xs_node {
	void *child[XS_NODE_CHILDREN];
	u64 made[XS_NODE_WORDS];
	u64 used[XS_NODE_WORDS];
	u64 full[XS_NODE_WORDS];
};

/**
 * struct xs_tree - tree of a space
 * @ops: operations of the backend
 * @backend: first argument of the operations
 * @root: root node
 * @near: node of the lowest leaves, always present
 * @near_slots: slots of the leaves of @near, NULL without slots; most look-ups end here
 * @leaves: number of leaves
 * @empty: number of leaves without a taken block
 *
 * The members of the first cache line are constant.
 */
struct xs_tree {
	const struct xs_backend_ops *ops;
	void *backend;
	struct xs_node *root;
	struct xs_node *near;
	xs_slot_t **near_slots;
	u64 leaves XS_CACHE_LINE;
	u64 empty;
};

#define XS_NO_BLOCK	(~0ULL)

/**
 * xs_tree_init - make a tree that has the lowest path and no taken block
 * @tree: tree
 * @ops: operations of the backend
 * @backend: first argument of the operations
 *
 * Context: may sleep.
 * Return: false without memory; the caller then calls xs_tree_destroy().
 */
bool xs_tree_init(struct xs_tree *tree, const struct xs_backend_ops *ops,
		  void *backend);

/**
 * xs_tree_destroy - free a tree
 * @tree: tree that no caller uses any more
 *
 * Context: may sleep.
 */
void xs_tree_destroy(struct xs_tree *tree);

/**
 * xs_tree_grow - make the nodes and leaves that marking a range needs
 * @tree: tree
 * @first: first block
 * @end: end of the range, in blocks
 * @atomic: do not sleep
 *
 * Context: space's lock, with @atomic. Without @atomic: may sleep; no other CPU knows the tree.
 * Return: false without memory; new nodes and leaves stay.
 */
bool xs_tree_grow(struct xs_tree *tree, u64 first, u64 end, bool atomic);

/**
 * xs_tree_need_leaf - leaf of a block, made if there is none
 * @tree: tree
 * @block: block number
 *
 * Context: space's lock.
 * Return: the leaf; NULL without memory.
 */
struct xs_leaf *xs_tree_need_leaf(struct xs_tree *tree, u64 block);

/**
 * xs_leaf_add_slots - make the slots of a leaf, if there are none
 * @tree: tree
 * @leaf: leaf
 *
 * Context: space's lock.
 * Return: false without memory.
 */
bool xs_leaf_add_slots(struct xs_tree *tree, struct xs_leaf *leaf);

/**
 * xs_tree_mark - mark blocks as taken or free
 * @tree: tree that xs_tree_grow() has prepared for the range
 * @first: first block
 * @count: number of blocks
 * @take: taken, or free
 *
 * Context: space's lock.
 */
void xs_tree_mark(struct xs_tree *tree, u64 first, u64 count, bool take);

/**
 * xs_tree_find - find free contiguous blocks
 * @tree: tree
 * @count: number of blocks, 1 or more; the result is aligned to @count rounded up to a power of
 *   two
 * @from: first block of the search
 * @end: end of the search, in blocks
 *
 * Context: space's lock.
 * Return: the first block; XS_NO_BLOCK if there is no such range, or if the bounded search did
 *   not find it.
 */
u64 xs_tree_find(const struct xs_tree *tree, u64 count, u64 from, u64 end);

/**
 * xs_tree_low_free - count the free blocks below 4 GiB
 * @tree: tree; marked ranges may overlap
 *
 * Context: space's lock.
 * Return: number of blocks.
 */
u64 xs_tree_low_free(const struct xs_tree *tree);

/**
 * xs_tree_next_leaf - next leaf that exists
 * @tree: tree
 * @page: page at which the search starts; on success the first page of the leaf
 *
 * Context: space's lock, or entered.
 * Return: the leaf; NULL if there is none at or after *@page.
 */
struct xs_leaf *xs_tree_next_leaf(struct xs_tree *tree, u64 *page);

/**
 * xs_tree_detach - hide a leaf without a taken block from look-ups
 * @tree: tree
 * @block: block number
 *
 * Callers that found the leaf before may still use it.
 *
 * Context: space's lock.
 * Return: the leaf; NULL if @block has no leaf, or the leaf has a taken block.
 */
struct xs_leaf *xs_tree_detach(struct xs_tree *tree, u64 block);

/**
 * xs_leaf_free - free a leaf, with its slots and its records of torn mappings
 * @tree: tree
 * @leaf: detached leaf that no caller uses any more
 *
 * Context: any that the backend's free() allows.
 */
void xs_leaf_free(struct xs_tree *tree, struct xs_leaf *leaf);

/**
 * xs_tree_far_leaf - leaf of an IOVA page above XS_NEAR_LG2
 * @tree: tree
 * @page: page number
 *
 * Context: entered.
 * Return: the leaf, or NULL.
 */
static xs_inline struct xs_leaf *
xs_tree_far_leaf(const struct xs_tree *tree, u64 page)
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

/**
 * xs_tree_leaf - leaf of an IOVA page
 * @tree: tree
 * @page: page number
 *
 * Context: entered.
 * Return: the leaf, or NULL.
 */
static xs_inline struct xs_leaf *xs_tree_leaf(const struct xs_tree *tree,
					       u64 page)
{
	if (xs_unlikely(page >> XS_NEAR_LG2))
		return xs_tree_far_leaf(tree, page);
	return xs_load_acquire((struct xs_leaf **)
				&tree->near->child[page >> XS_LEAF_LG2]);
}

/**
 * xs_leaf_block - block of an IOVA page in the page's leaf
 * @leaf: leaf
 * @page: page number
 *
 * Context: any.
 * Return: the block.
 */
static xs_inline struct xs_block *xs_leaf_block(struct xs_leaf *leaf, u64 page)
{
	return &leaf->blocks[page >> XS_BLOCK_LG2 & (XS_LEAF_BLOCKS - 1)];
}

#endif
