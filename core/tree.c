// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The tree of a space; see tree.h.
 *
 * An extent is searched for at the only level where it is a row of unused children of a node,
 * or blocks of a leaf. On the way to this level the search looks into used leaves, at most
 * XS_LOOKS_MAX, and afterwards only at unused leaves. The limit bounds the time with interrupts
 * off, and is no less than the number of leaves in 4 GiB.
 */
#include <xsmmu/bits.h>
#include <xsmmu/tear.h>

#define XS_LEAF_FULL		((1u << XS_LEAF_BLOCKS) - 1)
#define XS_LOW_LEAVES		(1u << (XS_LOW_LG2 - XS_LEAF_LG2))
#define XS_LOOKS_MAX		1024u
#define XS_NEAR_SLOTS_BYTES	(XS_NODE_CHILDREN * sizeof(xs_slot_t *))
#define XS_SLOTS_BYTES		(XS_LEAF_PAGES * sizeof(xs_slot_t))

/* log2 of the blocks of a child of a node at @level; the children at level 1 are leaves. */
static u32 xs_child_lg2(u32 level)
{
	return XS_LEAF_BLOCKS_LG2 + (level - 1) * XS_NODE_LG2;
}

static u32 xs_child_at(u64 block, u32 level)
{
	return block >> xs_child_lg2(level) & (XS_NODE_CHILDREN - 1);
}

static bool xs_bit(const u64 *bits, u32 at)
{
	return bits[at >> 6] >> (at & 63) & 1;
}

static void xs_bit_put(u64 *bits, u32 at, bool on)
{
	u64 bit = 1ULL << (at & 63);

	bits[at >> 6] = on ? bits[at >> 6] | bit : bits[at >> 6] & ~bit;
}

/* ---- memory ---- */

static struct xs_leaf *xs_leaf_new(struct xs_tree *tree, u64 block,
				   bool atomic)
{
	struct xs_leaf *leaf = tree->ops->alloc(tree->backend, sizeof(*leaf),
						XS_ANY_CPU, atomic);

	if (!leaf)
		return 0;
	for (u32 i = 0; i < XS_LEAF_BLOCKS; i++)
		leaf->blocks[i].iova = (block + i) * XS_BLOCK_BYTES;
	tree->leaves++;
	tree->empty++;
	return leaf;
}

void xs_leaf_free(struct xs_tree *tree, struct xs_leaf *leaf)
{
	xs_leaf_free_torn(tree, leaf);
	tree->ops->free(tree->backend, leaf->slots, XS_SLOTS_BYTES);
	tree->ops->free(tree->backend, leaf, sizeof(*leaf));
}

/* Entry of a near leaf in near_slots; NULL for another leaf. */
static xs_slot_t **xs_tree_near_slots(const struct xs_tree *tree,
				const struct xs_leaf *leaf)
{
	u64 at = leaf->blocks[0].iova / (XS_LEAF_PAGES * XS_PAGE_BYTES);

	return at < XS_NODE_CHILDREN ? &tree->near_slots[at] : 0;
}

bool xs_leaf_add_slots(struct xs_tree *tree, struct xs_leaf *leaf)
{
	xs_slot_t **near = xs_tree_near_slots(tree, leaf);
	xs_slot_t *slots;

	if (xs_likely(leaf->slots))
		return true;
	slots = tree->ops->alloc(tree->backend, XS_SLOTS_BYTES, XS_ANY_CPU,
				 true);
	if (!slots)
		return false;
	for (u32 i = 0; i < XS_LEAF_PAGES; i++)
		xs_a64_set(&slots[i], XS_SLOT_VACANT);
	for (u32 i = 0; i < XS_LEAF_BLOCKS; i++)
		leaf->blocks[i].slots = slots + i * XS_BLOCK_PAGES;
	xs_store_release(&leaf->slots, slots);
	if (near)
		xs_store_release(near, slots);
	return true;
}

/* Child of @node for block @block, made if there is none; NULL without memory. */
static void *xs_child_need(struct xs_tree *tree, struct xs_node *node,
			   u32 level, u64 block, bool atomic)
{
	u32 at = xs_child_at(block, level);
	void *child = node->child[at];

	if (child)
		return child;
	if (level == 1)
		child = xs_leaf_new(tree, block & ~(u64)(XS_LEAF_BLOCKS - 1),
				    atomic);
	else
		child = tree->ops->alloc(tree->backend, sizeof(struct xs_node),
					 XS_ANY_CPU, atomic);
	if (!child)
		return 0;
	if (level == 1)
		xs_bit_put(node->made, at, true);
	xs_store_release(&node->child[at], child);
	return child;
}

bool xs_tree_grow(struct xs_tree *tree, u64 first, u64 end, bool atomic)
{
	u64 edges[] = { first, end };

	for (u32 i = 0; i < 2; i++) {
		struct xs_node *node = tree->root;

		for (u32 level = XS_NODE_LEVELS; level; level--) {
			u64 rest = edges[i] & ((1ULL << xs_child_lg2(level)) - 1);

			/* The child has no block below the edge, or all its blocks are taken. */
			if (!rest ||
			    xs_bit(node->full, xs_child_at(edges[i], level)))
				break;
			node = xs_child_need(tree, node, level, edges[i],
					     atomic);
			if (!node)
				return false;
		}
	}
	return true;
}

struct xs_leaf *xs_tree_need_leaf(struct xs_tree *tree, u64 block)
{
	void *at = tree->root;

	for (u32 level = XS_NODE_LEVELS; level && at; level--)
		at = xs_child_need(tree, at, level, block, true);
	return at;
}

/* ---- used and full ---- */

static void xs_word_put(u64 *word, u64 mask, bool on)
{
	*word = on ? *word | mask : *word & ~mask;
}

/* Sets the bits of @count children from @at on. */
static void xs_children_put(struct xs_tree *tree, struct xs_node *node,
			    u32 at, u32 count, bool used, bool full)
{
	while (count) {
		u32 word = at >> 6, from = at & 63;
		u32 here = count < 64 - from ? count : 64 - from;
		u64 mask = xs_mask_of(from, here);
		u64 was = node->made[word] & node->used[word] & mask;

		xs_word_put(&node->used[word], mask, used);
		xs_word_put(&node->full[word], mask, full);
		tree->empty += xs_popcount(was);
		tree->empty -= xs_popcount(node->made[word] & node->used[word] &
					   mask);
		at += here;
		count -= here;
	}
}

static bool xs_words_any(const u64 *words)
{
	u64 any = 0;

	for (u32 i = 0; i < XS_NODE_WORDS; i++)
		any |= words[i];
	return any;
}

static bool xs_words_all(const u64 *words)
{
	u64 all = ~0ULL;

	for (u32 i = 0; i < XS_NODE_WORDS; i++)
		all &= words[i];
	return !~all;
}

static void xs_node_mark(struct xs_tree *tree, struct xs_node *node,
			 u32 level, u64 first, u64 count, bool take);

/* Marks [@first, @first + @count), a part of an existing child. */
static void xs_child_mark(struct xs_tree *tree, struct xs_node *node,
			  u32 level, u64 first, u64 count, bool take)
{
	u32 at = xs_child_at(first, level);

	/* Reserved ranges may overlap: a full child may not exist, or may have stale bits. */
	if (take && xs_bit(node->full, at))
		return;
	if (level > 1) {
		struct xs_node *child = node->child[at];

		xs_node_mark(tree, child, level - 1, first, count, take);
		xs_children_put(tree, node, at, 1, xs_words_any(child->used),
				xs_words_all(child->full));
	} else {
		struct xs_leaf *leaf = node->child[at];
		u32 mask = (u32)xs_mask_of(first & (XS_LEAF_BLOCKS - 1),
					   (u32)count);

		leaf->taken = take ? leaf->taken | mask : leaf->taken & ~mask;
		xs_children_put(tree, node, at, 1, leaf->taken,
				leaf->taken == XS_LEAF_FULL);
	}
}

/* Marks @count blocks of the node from @first on. */
static void xs_node_mark(struct xs_tree *tree, struct xs_node *node,
			 u32 level, u64 first, u64 count, bool take)
{
	u32 lg2 = xs_child_lg2(level);
	u64 all = 1ULL << lg2;

	while (count) {
		u64 within = first & (all - 1);
		u64 here = count < all - within ? count : all - within;

		if (here == all) {
			here = count & ~(all - 1);
			xs_children_put(tree, node,
					first >> lg2 & (XS_NODE_CHILDREN - 1),
					(u32)(here >> lg2), take, take);
		} else {
			xs_child_mark(tree, node, level, first, here, take);
		}
		first += here;
		count -= here;
	}
}

void xs_tree_mark(struct xs_tree *tree, u64 first, u64 count, bool take)
{
	xs_node_mark(tree, tree->root, XS_NODE_LEVELS, first, count, take);
}

/* ---- looking for room ---- */

/* Search for @count aligned blocks in [@from, @end). */
struct xs_want {
	u64 count;
	u64 align;
	u64 from;
	u64 end;
	u32 level;	/* level of a row of children; 0: in a leaf */
	u32 looks;	/* used leaves that may still be looked at */
};

static u64 xs_leaf_find(const struct xs_leaf *leaf, u64 base,
			const struct xs_want *want)
{
	u32 mask = (u32)xs_mask_of(0, (u32)want->count);

	for (u32 at = 0; at < XS_LEAF_BLOCKS; at += (u32)want->align)
		if (!(leaf->taken >> at & mask))
			return base + at;
	return XS_NO_BLOCK;
}

/* True if @count members of @bits from @at on are clear. */
static bool xs_bits_clear(const u64 *bits, u32 at, u32 count)
{
	while (count) {
		u32 here = 64 - (at & 63);

		if (here > count)
			here = count;
		if (bits[at >> 6] & xs_mask_of(at & 63, here))
			return false;
		at += here;
		count -= here;
	}
	return true;
}

/* Finds a row of unused children, from the child of block @from on. */
static u64 xs_node_find_contiguous(const struct xs_node *node, u64 base, u32 first,
				   const struct xs_want *want)
{
	u32 lg2 = xs_child_lg2(want->level);
	u32 count = (u32)((want->count + (1ULL << lg2) - 1) >> lg2);
	u32 align = 1u << xs_lg2_ceil(count);

	first = (first + align - 1) & ~(align - 1);
	for (u32 at = first; at + count <= XS_NODE_CHILDREN; at += align)
		if (xs_bits_clear(node->used, at, count))
			return base + ((u64)at << lg2);
	return XS_NO_BLOCK;
}

static u64 xs_node_find(const struct xs_node *node, u32 level, u64 base,
			struct xs_want *want)
{
	u32 lg2 = xs_child_lg2(level);
	u32 at = want->from > base ? (u32)((want->from - base) >> lg2) : 0;

	if (level == want->level)
		return xs_node_find_contiguous(node, base, at, want);
	for (; at < XS_NODE_CHILDREN; at++) {
		/* Skips full children, and used leaves when no look is left. */
		const u64 *out = level == 1 && !want->looks ? node->used :
							      node->full;
		u64 start = base + ((u64)at << lg2);
		u64 found;

		if (!(at & 63) && !~out[at >> 6]) {
			at += 63;
			continue;
		}
		if (start >= want->end)
			break;
		if (!xs_bit(node->used, at) && start >= want->from)
			return start;
		if (xs_bit(out, at))
			continue;
		want->looks -= level == 1;
		found = level > 1 ?
			xs_node_find(node->child[at], level - 1, start, want) :
			xs_leaf_find(node->child[at], start, want);
		if (found != XS_NO_BLOCK)
			return found;
	}
	return XS_NO_BLOCK;
}

u64 xs_tree_find(const struct xs_tree *tree, u64 count, u64 from, u64 end)
{
	u32 lg2 = xs_lg2_ceil(count);
	struct xs_want want = {
		.count = count,
		.align = 1ULL << lg2,
		.from = from,
		.end = end,
		.looks = XS_LOOKS_MAX,
	};
	u64 found;

	while (want.level < XS_NODE_LEVELS && lg2 > xs_child_lg2(want.level + 1))
		want.level++;
	found = xs_node_find(tree->root, XS_NODE_LEVELS, 0, &want);
	if (found == XS_NO_BLOCK || found + count > end)
		return XS_NO_BLOCK;
	return found;
}

u64 xs_tree_low_free(const struct xs_tree *tree)
{
	const struct xs_node *middle = tree->root->child[0];
	const struct xs_node *low = middle->child[0];
	u64 free = 0;

	if (xs_bit(tree->root->full, 0) || xs_bit(middle->full, 0))
		return 0;
	for (u32 i = 0; i < XS_LOW_LEAVES; i++) {
		const struct xs_leaf *leaf = low->child[i];

		if (!xs_bit(low->used, i))
			free += XS_LEAF_BLOCKS;
		else if (!xs_bit(low->full, i))
			free += XS_LEAF_BLOCKS - xs_popcount(leaf->taken);
	}
	return free;
}

/* ---- look-ups ---- */

/* Next leaf, from page @from on, of @node, which begins at page @base. */
static struct xs_leaf *xs_node_next_leaf(struct xs_node *node, u32 level,
					 u64 base, u64 from, u64 *page)
{
	u32 shift = xs_child_lg2(level) + XS_BLOCK_LG2;
	u32 at = from > base ? (u32)((from - base) >> shift) : 0;

	for (; at < XS_NODE_CHILDREN; at++) {
		u64 start = base + ((u64)at << shift);
		struct xs_leaf *leaf = xs_load_acquire(&node->child[at]);

		if (!leaf)
			continue;
		if (level > 1)
			leaf = xs_node_next_leaf((void *)leaf, level - 1,
						 start, from, page);
		else
			*page = start;
		if (leaf)
			return leaf;
	}
	return 0;
}

struct xs_leaf *xs_tree_next_leaf(struct xs_tree *tree, u64 *page)
{
	if (*page >> XS_SPACE_LG2)
		return 0;
	return xs_node_next_leaf(tree->root, XS_NODE_LEVELS, 0, *page, page);
}

/* ---- giving memory back ---- */

/*
 * Node of the unused leaf at @block, and the leaf's position in the node. NULL if there is no
 * leaf, or the leaf is used, or belongs to a child that is used as a whole.
 */
static struct xs_node *xs_trim_node(struct xs_tree *tree, u64 block, u32 *at)
{
	struct xs_node *node = tree->root;

	for (u32 level = XS_NODE_LEVELS; node; level--) {
		*at = xs_child_at(block, level);
		if (xs_bit(node->full, *at))
			return 0;
		if (level == 1)
			return xs_bit(node->used, *at) || !node->child[*at] ?
				0 : node;
		node = node->child[*at];
	}
	return 0;
}

struct xs_leaf *xs_tree_detach(struct xs_tree *tree, u64 block)
{
	u32 at;
	struct xs_node *node = xs_trim_node(tree, block, &at);
	struct xs_leaf *leaf;

	if (!node)
		return 0;
	leaf = node->child[at];
	xs_bit_put(node->made, at, false);
	xs_store(&node->child[at], (void *)0);
	if (xs_tree_near_slots(tree, leaf))
		xs_store(xs_tree_near_slots(tree, leaf), (xs_slot_t *)0);
	tree->leaves--;
	tree->empty--;
	return leaf;
}

/* ---- set-up ---- */

bool xs_tree_init(struct xs_tree *tree, const struct xs_backend_ops *ops,
		  void *backend)
{
	static const struct xs_tree empty;
	struct xs_node *middle;

	*tree = empty;
	tree->ops = ops;
	tree->backend = backend;
	tree->root = ops->alloc(backend, sizeof(*tree->root), XS_ANY_CPU, false);
	tree->near_slots = ops->alloc(backend, XS_NEAR_SLOTS_BYTES, XS_ANY_CPU,
				      false);
	/* The lowest path always exists. */
	if (!tree->root || !tree->near_slots || !xs_tree_grow(tree, 0, 1, false))
		return false;
	middle = tree->root->child[0];
	tree->near = middle->child[0];
	return true;
}

static void xs_node_destroy(struct xs_tree *tree, struct xs_node *node,
			    u32 level)
{
	for (u32 i = 0; node && i < XS_NODE_CHILDREN; i++) {
		if (level > 1)
			xs_node_destroy(tree, node->child[i], level - 1);
		else if (node->child[i])
			xs_leaf_free(tree, node->child[i]);
	}
	tree->ops->free(tree->backend, node, sizeof(*node));
}

void xs_tree_destroy(struct xs_tree *tree)
{
	xs_node_destroy(tree, tree->root, XS_NODE_LEVELS);
	tree->ops->free(tree->backend, tree->near_slots, XS_NEAR_SLOTS_BYTES);
	tree->root = 0;
	tree->near = 0;
	tree->near_slots = 0;
}
