// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Which blocks are taken: a tree with two bits for each child; see space.h.
 *
 * A run is looked for at the one level where it is a row of unused children of
 * one node, or blocks of one leaf. On the way there used leaves are looked into,
 * XS_LOOKS_MAX of them at most, then unused ones only: a bound on the time with
 * interrupts off, and as many as there are leaves in 4 GiB.
 */
#include <xsmmu/bits.h>
#include <xsmmu/space.h>

#define XS_LEAF_BLOCKS_LG2	(XS_LEAF_LG2 - XS_BLOCK_LG2)
#define XS_LEAF_FULL		((1u << XS_LEAF_BLOCKS) - 1)
#define XS_LOW_BLOCKS		(1ULL << (XS_LOW_LG2 - XS_BLOCK_LG2))
#define XS_SPACE_BLOCKS		(1ULL << (XS_SPACE_LG2 - XS_BLOCK_LG2))
#define XS_NO_BLOCK		(~0ULL)
#define XS_LOOKS_MAX		1024u
#define XS_EMPTY_KEPT		16u	/* leaves: 64 MiB of IOVA */

/* log2 of the blocks of a child of a node at @level; leaves are below level 1. */
static u32 xs_child_lg2(u32 level)
{
	return XS_LEAF_BLOCKS_LG2 + (level - 1) * XS_NODE_LG2;
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

static struct xs_leaf *xs_leaf_new(struct xs_space *space, u64 block,
				   bool atomic)
{
	struct xs_leaf *leaf = space->ops->alloc(space->world, sizeof(*leaf),
						 XS_ANY_CPU, atomic);

	if (!leaf)
		return 0;
	for (u32 i = 0; i < XS_LEAF_BLOCKS; i++)
		leaf->blocks[i].iova = (block + i) * XS_BLOCK_BYTES;
	space->leaves++;
	space->empty++;
	return leaf;
}

#define XS_LOW_SLOTS_BYTES	(XS_NODE_CHILDREN * sizeof(xs_slot_t *))
#define XS_SLOTS_BYTES	(XS_LEAF_PAGES * sizeof(xs_slot_t))

static void xs_leaf_free(struct xs_space *space, struct xs_leaf *leaf)
{
	space->ops->free(space->world, leaf->slots, XS_SLOTS_BYTES);
	space->ops->free(space->world, leaf, sizeof(*leaf));
}

/* Where look-ups begin that end below 4 GiB; NULL for a leaf above. */
static xs_slot_t **xs_low_slots(const struct xs_space *space,
				const struct xs_leaf *leaf)
{
	u64 at = leaf->blocks[0].iova / (XS_LEAF_PAGES * XS_PAGE_BYTES);

	return at < XS_NODE_CHILDREN ? &space->low_slots[at] : 0;
}

/* Make the slots of @leaf, if there are none. False: no memory. */
static bool xs_leaf_add_slots(struct xs_space *space, struct xs_leaf *leaf)
{
	xs_slot_t **low = xs_low_slots(space, leaf);

	xs_slot_t *slots;

	if (xs_likely(leaf->slots))
		return true;
	slots = space->ops->alloc(space->world, XS_SLOTS_BYTES, XS_ANY_CPU,
				  true);
	if (!slots)
		return false;
	for (u32 i = 0; i < XS_LEAF_PAGES; i++)
		xs_a64_set(&slots[i], XS_SLOT_VACANT);
	for (u32 i = 0; i < XS_LEAF_BLOCKS; i++)
		leaf->blocks[i].slots = slots + i * XS_BLOCK_PAGES;
	xs_store_release(&leaf->slots, slots);
	if (low)
		xs_store_release(low, slots);
	return true;
}

/* The child of @node for block @block, made if there is none; NULL: no memory. */
static void *xs_child_need(struct xs_space *space, struct xs_node *node,
			   u32 level, u64 block, bool atomic)
{
	u32 at = block >> xs_child_lg2(level) & (XS_NODE_CHILDREN - 1);
	void *child = node->child[at];

	if (child)
		return child;
	if (level == 1)
		child = xs_leaf_new(space, block & ~(u64)(XS_LEAF_BLOCKS - 1),
				    atomic);
	else
		child = space->ops->alloc(space->world, sizeof(struct xs_node),
					  XS_ANY_CPU, atomic);
	if (child)
		xs_store_release(&node->child[at], child);
	return child;
}

/* Make all that is in part of [@first, @end) below the root. */
static bool xs_space_grow(struct xs_space *space, u64 first, u64 end,
			  bool atomic)
{
	u64 edges[] = { first, end };

	for (u32 i = 0; i < 2; i++) {
		struct xs_node *node = space->root;

		for (u32 level = XS_NODE_LEVELS; level; level--) {
			u64 rest = edges[i] & ((1ULL << xs_child_lg2(level)) - 1);

			/* Nothing of it is below the edge. */
			if (!rest)
				break;
			node = xs_child_need(space, node, level, edges[i],
					     atomic);
			if (!node)
				return false;
		}
	}
	return true;
}

/* The leaf of @block, with slots; NULL: no memory. */
static struct xs_leaf *xs_space_need_leaf(struct xs_space *space, u64 block)
{
	void *at = space->root;

	for (u32 level = XS_NODE_LEVELS; level && at; level--)
		at = xs_child_need(space, at, level, block, true);
	return at;
}

/* ---- used and full ---- */

static void xs_child_put(struct xs_space *space, struct xs_node *node,
			 u32 level, u32 at, bool used, bool full)
{
	if (level == 1 && node->child[at])
		space->empty += xs_bit(node->used, at) - (u64)used;
	xs_bit_put(node->used, at, used);
	xs_bit_put(node->full, at, full);
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

static void xs_node_mark(struct xs_space *space, struct xs_node *node,
			 u32 level, u64 first, u64 count, bool take);

/* Mark [@first, @first + @count) of a child, a part of it, which exists. */
static void xs_child_mark(struct xs_space *space, struct xs_node *node,
			  u32 level, u64 first, u64 count, bool take)
{
	u32 at = first >> xs_child_lg2(level) & (XS_NODE_CHILDREN - 1);

	/* Ranges that are withheld may overlap: the child may not know of it. */
	if (take && xs_bit(node->full, at))
		return;
	if (level > 1) {
		struct xs_node *child = node->child[at];

		xs_node_mark(space, child, level - 1, first, count, take);
		xs_child_put(space, node, level, at, xs_words_any(child->used),
			     xs_words_all(child->full));
	} else {
		struct xs_leaf *leaf = node->child[at];
		u32 mask = (u32)xs_mask_of(first & (XS_LEAF_BLOCKS - 1),
					   (u32)count);

		leaf->taken = take ? leaf->taken | mask : leaf->taken & ~mask;
		xs_child_put(space, node, level, at, leaf->taken,
			     leaf->taken == XS_LEAF_FULL);
	}
}

/* Mark @count blocks from @first on, all of this node's. */
static void xs_node_mark(struct xs_space *space, struct xs_node *node,
			 u32 level, u64 first, u64 count, bool take)
{
	u64 all = 1ULL << xs_child_lg2(level);

	while (count) {
		u64 here = all - (first & (all - 1));

		if (here > count)
			here = count;
		if (here == all)
			xs_child_put(space, node, level,
				     first >> xs_child_lg2(level) &
				     (XS_NODE_CHILDREN - 1), take, take);
		else
			xs_child_mark(space, node, level, first, here, take);
		first += here;
		count -= here;
	}
}

/* The memory for it is there; the lock is held, or nobody else is. */
static void xs_space_mark(struct xs_space *space, u64 first, u64 count,
			  bool take)
{
	xs_node_mark(space, space->root, XS_NODE_LEVELS, first, count, take);
	if (first < XS_LOW_BLOCKS) {
		u64 low = XS_LOW_BLOCKS - first;

		if (low > count)
			low = count;
		space->low_free += take ? -low : low;
	}
}

/* ---- looking for room ---- */

/* What is looked for: @count blocks, aligned, in [@from, @end). */
struct xs_want {
	u64 count;
	u64 align;
	u64 from;
	u64 end;
	u32 level;	/* where it is a row of children; 0: inside a leaf */
	u32 looks;	/* left, at used leaves */
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

/* Are @count members of @bits, from @at on, clear? */
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

/* A row of unused children, from the one of block @from on. */
static u64 xs_node_find_row(const struct xs_node *node, u64 base, u32 first,
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
		return xs_node_find_row(node, base, at, want);
	for (; at < XS_NODE_CHILDREN; at++) {
		/* Those that there is nothing in, or that are not looked into. */
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

static u64 xs_space_find_from(const struct xs_space *space, u64 count,
			      u64 from, u64 end)
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
	found = xs_node_find(space->root, XS_NODE_LEVELS, 0, &want);
	if (found == XS_NO_BLOCK || found + count > end)
		return XS_NO_BLOCK;
	return found;
}

/* The first of @count free blocks in a row below @end. */
static u64 xs_space_find(const struct xs_space *space, u64 count, u64 end)
{
	bool keep = end > XS_LOW_BLOCKS &&
		    space->low_free < space->low_kept + count;
	u64 found = XS_NO_BLOCK;

	if (!count || count > end)
		return XS_NO_BLOCK;
	if (keep)
		found = xs_space_find_from(space, count, XS_LOW_BLOCKS, end);
	if (found == XS_NO_BLOCK)
		found = xs_space_find_from(space, count, 0, end);
	return found;
}

/* The number of whole blocks up to @last. */
static u64 xs_end_of(const struct xs_space *space, u64 last)
{
	u64 blocks = (last + 1) / XS_BLOCK_BYTES;

	if (last == ~0ULL || blocks > space->end_block)
		return space->end_block;
	return blocks;
}

/* ---- blocks ---- */

struct xs_block *xs_space_take(struct xs_space *space, u64 last)
{
	struct xs_leaf *leaf = 0;
	struct xs_block *block;
	u64 at;

	xs_lock_nested(&space->lock);
	at = xs_space_find(space, 1, xs_end_of(space, last));
	if (at != XS_NO_BLOCK)
		leaf = xs_space_need_leaf(space, at);
	if (leaf && !xs_leaf_add_slots(space, leaf))
		leaf = 0;
	if (!leaf) {
		xs_unlock_nested(&space->lock);
		return 0;
	}
	block = &leaf->blocks[at & (XS_LEAF_BLOCKS - 1)];
	block->small = true;
	xs_space_mark(space, at, 1, true);
	space->taken++;
	xs_unlock_nested(&space->lock);
	xs_a64_set(&block->joined, 0);
	xs_a64_set(&block->dead, 0);
	xs_store(&block->withheld, 0ULL);
	return block;
}

/* Is it time to tell the world? The lock is held. */
static bool xs_space_has_surplus(struct xs_space *space)
{
	if (space->surplus || space->empty <= 2 * space->empty_kept ||
	    space->empty <= space->leaves / 2)
		return false;
	space->surplus = true;
	return true;
}

static void xs_space_tell(struct xs_space *space, bool surplus)
{
	if (surplus && space->ops->surplus)
		space->ops->surplus(space->world);
}

void xs_space_give(struct xs_space *space, struct xs_block *const *blocks,
		   u32 count)
{
	bool surplus;

	xs_lock_nested(&space->lock);
	for (u32 i = 0; i < count; i++) {
		blocks[i]->small = false;
		xs_space_mark(space, blocks[i]->iova / XS_BLOCK_BYTES, 1, false);
	}
	space->taken -= count;
	surplus = xs_space_has_surplus(space);
	xs_unlock_nested(&space->lock);
	xs_space_tell(space, surplus);
}

/* ---- runs ---- */

static u64 xs_blocks_of(u32 pages)
{
	return ((u64)pages + XS_BLOCK_PAGES - 1) >> XS_BLOCK_LG2;
}

u64 xs_space_take_run(struct xs_space *space, u32 pages, u64 last)
{
	u64 count = xs_blocks_of(pages);
	struct xs_leaf *leaf = 0;
	u64 at;

	xs_lock_nested(&space->lock);
	at = xs_space_find(space, count, xs_end_of(space, last));
	if (at != XS_NO_BLOCK && xs_space_grow(space, at, at + count, true))
		leaf = xs_space_need_leaf(space, at);
	if (leaf)
		xs_space_mark(space, at, count, true);
	xs_unlock_nested(&space->lock);
	if (!leaf)
		return 0;
	xs_a64_set(&leaf->blocks[at & (XS_LEAF_BLOCKS - 1)].run_pages, pages);
	return at * XS_BLOCK_BYTES;
}

bool xs_space_claim_run(struct xs_space *space, u64 iova, u32 pages)
{
	struct xs_block *block = xs_space_block(space, iova >> XS_PAGE_LG2);
	u64 old = pages;

	return !(iova & (XS_BLOCK_BYTES - 1)) && block && pages &&
	       xs_a64_try(&block->run_pages, &old, 0);
}

void xs_space_give_run(struct xs_space *space, u64 iova, u32 pages)
{
	bool surplus;

	xs_lock_nested(&space->lock);
	xs_space_mark(space, iova / XS_BLOCK_BYTES, xs_blocks_of(pages), false);
	surplus = xs_space_has_surplus(space);
	xs_unlock_nested(&space->lock);
	xs_space_tell(space, surplus);
}

/* ---- look-ups ---- */

/* The next leaf of @node, which begins at page @base, from page @from on. */
static struct xs_leaf *xs_node_next_leaf(struct xs_node *node, u32 level,
					 u64 base, u64 from, u64 *page)
{
	u32 shift = xs_child_lg2(level) + XS_BLOCK_LG2;
	u32 at = from > base ? (u32)((from - base) >> shift) : 0;

	for (; at < XS_NODE_CHILDREN; at++) {
		u64 start = base + ((u64)at << shift);
		struct xs_leaf *leaf = node->child[at];

		if (!leaf)
			continue;
		if (level > 1)
			leaf = xs_node_next_leaf(node->child[at], level - 1,
						 start, from, page);
		else
			*page = start;
		if (leaf)
			return leaf;
	}
	return 0;
}

struct xs_leaf *xs_space_next_leaf(struct xs_space *space, u64 *page)
{
	if (*page >> XS_SPACE_LG2)
		return 0;
	return xs_node_next_leaf(space->root, XS_NODE_LEVELS, 0, *page, page);
}

/* ---- giving memory back ---- */

/*
 * The node of the leaf at @block, and the leaf's place in it; NULL if no leaf is
 * there that nobody has: none at all, a used one, or one in a child that is used
 * as a whole.
 */
static struct xs_node *xs_trim_node(struct xs_space *space, u64 block, u32 *at)
{
	struct xs_node *node = space->root;

	for (u32 level = XS_NODE_LEVELS; node; level--) {
		*at = block >> xs_child_lg2(level) & (XS_NODE_CHILDREN - 1);
		if (xs_bit(node->full, *at))
			return 0;
		if (level == 1)
			return xs_bit(node->used, *at) || !node->child[*at] ?
				0 : node;
		node = node->child[*at];
	}
	return 0;
}

u32 xs_space_detach(struct xs_space *space, u64 *from,
		    struct xs_detached *detached)
{
	xs_flags_t flags = xs_lock(&space->lock);
	u64 page = *from;
	u32 count = 0;

	while (count < XS_DETACH_MAX && space->empty > space->empty_kept) {
		struct xs_leaf *leaf = xs_space_next_leaf(space, &page);
		struct xs_node *node;
		u64 block = page >> XS_BLOCK_LG2;
		u32 at;

		if (!leaf)
			break;
		page += XS_LEAF_PAGES;
		node = xs_trim_node(space, block, &at);
		if (!node)
			continue;
		detached[count].leaf = leaf;
		detached[count++].block = block;
		xs_space_mark(space, block, XS_LEAF_BLOCKS, true);
		xs_store(&node->child[at], (void *)0);
		if (xs_low_slots(space, leaf))
			xs_store(xs_low_slots(space, leaf), (xs_slot_t *)0);
		space->leaves--;
	}
	*from = page;
	if (!count)
		space->surplus = false;
	xs_unlock(&space->lock, flags);
	return count;
}

void xs_space_free(struct xs_space *space, const struct xs_detached *detached,
		   u32 count)
{
	xs_flags_t flags = xs_lock(&space->lock);

	for (u32 i = 0; i < count; i++)
		xs_space_mark(space, detached[i].block, XS_LEAF_BLOCKS, false);
	xs_unlock(&space->lock, flags);
	for (u32 i = 0; i < count; i++)
		xs_leaf_free(space, detached[i].leaf);
}

/* ---- set-up ---- */

/* Free blocks below 4 GiB; ranges that are withheld may overlap. */
static u64 xs_low_count(const struct xs_space *space)
{
	const struct xs_node *middle = space->root->child[0];
	const struct xs_node *low = middle->child[0];
	u64 free = 0;

	if (xs_bit(space->root->full, 0) || xs_bit(middle->full, 0))
		return 0;
	for (u32 i = 0; i < XS_NODE_CHILDREN; i++) {
		const struct xs_leaf *leaf = low->child[i];

		if (!xs_bit(low->used, i))
			free += XS_LEAF_BLOCKS;
		else if (!xs_bit(low->full, i))
			free += XS_LEAF_BLOCKS - xs_popcount(leaf->taken);
	}
	return free;
}

static int xs_space_withhold(struct xs_space *space, u64 first, u64 end)
{
	if (first >= end)
		return 0;
	if (!xs_space_grow(space, first, end, false))
		return -XS_ENOMEM;
	xs_space_mark(space, first, end - first, true);
	space->low_free = xs_low_count(space);
	space->low_kept = space->low_free / 2;
	return 0;
}

int xs_space_init(struct xs_space *space, const struct xs_world_ops *ops,
		  void *world, u64 start, u64 end)
{
	static const struct xs_space empty;

	*space = empty;
	space->ops = ops;
	space->world = world;
	space->empty_kept = XS_EMPTY_KEPT;
	space->first_block = (start + XS_BLOCK_BYTES - 1) / XS_BLOCK_BYTES;
	space->end_block = end / XS_BLOCK_BYTES;
	if (!space->first_block)
		space->first_block = 1;	/* IOVA 0 means "none" */
	if (space->end_block > XS_SPACE_BLOCKS)
		space->end_block = XS_SPACE_BLOCKS;
	if (space->first_block >= space->end_block)
		return -XS_EINVAL;
	xs_lock_init(&space->lock);
	space->root = ops->alloc(world, sizeof(*space->root), XS_ANY_CPU,
				 false);
	space->low_slots = ops->alloc(world, XS_LOW_SLOTS_BYTES, XS_ANY_CPU,
				      false);
	/* The lowest path is there from the start. */
	if (space->root && space->low_slots && xs_space_grow(space, 0, 1, false) &&
	    !xs_space_withhold(space, 0, space->first_block) &&
	    !xs_space_withhold(space, space->end_block, XS_SPACE_BLOCKS)) {
		struct xs_node *middle = space->root->child[0];

		space->low = middle->child[0];
		return 0;
	}
	xs_space_destroy(space);
	return -XS_ENOMEM;
}

static void xs_node_destroy(struct xs_space *space, struct xs_node *node,
			    u32 level)
{
	for (u32 i = 0; node && i < XS_NODE_CHILDREN; i++) {
		if (level > 1)
			xs_node_destroy(space, node->child[i], level - 1);
		else if (node->child[i])
			xs_leaf_free(space, node->child[i]);
	}
	space->ops->free(space->world, node, sizeof(*node));
}

void xs_space_destroy(struct xs_space *space)
{
	xs_node_destroy(space, space->root, XS_NODE_LEVELS);
	space->ops->free(space->world, space->low_slots, XS_LOW_SLOTS_BYTES);
	space->root = 0;
	space->low = 0;
	space->low_slots = 0;
}

int xs_space_reserve(struct xs_space *space, u64 start, u64 last)
{
	u64 first = start / XS_BLOCK_BYTES;
	u64 end = last / XS_BLOCK_BYTES + 1;

	if (first < space->first_block)
		first = space->first_block;
	if (end > space->end_block)
		end = space->end_block;
	return xs_space_withhold(space, first, end);
}
