// SPDX-License-Identifier: GPL-2.0-only
/*
 * The red-black tree under one lock, with neighbouring ranges in one node: a range that is
 * allocated beside another joins its node, and a free in the middle of a node splits it.
 *
 * The tree is the kernel's; the search is that of drivers/iommu/iova.c: from the last allocation
 * down, then once more from the end.
 */
#include "shim.h"

#include <rbtree.c>

#include "iova.h"
#include "rbtree_shape.h"

/*
 * struct range - a node: pages @lo to @hi are allocated
 */
struct range {
	struct rb_node node;
	u64 lo;
	u64 hi;
};

/*
 * struct merged - the state
 * @cache: of nodes; constant
 * @lock: guards all other fields
 * @root: all nodes, and @end
 * @from: where the search begins
 * @end: a node behind the last page
 */
struct merged {
	struct kmem_cache *cache;
	spinlock_t lock __attribute__((aligned(64)));
	struct rb_root root;
	struct range *from;
	struct range end;
};

static struct range *to_range(const struct rb_node *node)
{
	return node ? rb_entry(node, struct range, node) : NULL;
}

static void insert(struct merged *merged, struct range *range)
{
	struct rb_node **place = &merged->root.rb_node, *parent = NULL;

	while (*place) {
		parent = *place;
		place = range->lo < to_range(parent)->lo ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&range->node, parent, place);
	rb_insert_color(&range->node, &merged->root);
}

static void *make_merged(u32 cpus, u64 end)
{
	struct merged *merged = program_alloc(sizeof(*merged));

	kernel_cpus = cpus;
	merged->cache = kmem_cache_create("range", sizeof(struct range), 0);
	spin_lock_init(&merged->lock);
	merged->end.lo = merged->end.hi = end >> PAGE_SHIFT;
	merged->from = &merged->end;
	insert(merged, &merged->end);
	return merged;
}

/*
 * Finds the highest room for a request up to page @last, in the gap below *@above or further down.
 * Returns its first page, 0 if there is none; *@above is then the node above the gap.
 */
static u64 find_below(struct range **above, const struct iova_request *request, u64 last)
{
	while (*above) {
		struct range *below = to_range(rb_prev(&(*above)->node));
		u64 end = min(last + 1, (*above)->lo), lowest = below ? below->hi + 1 : 1;
		u64 first = (end - request->pages) & ~((u64)request->align_pages - 1);

		if (end >= request->pages && first >= lowest)
			return first;
		*above = below;
	}
	return 0;
}

/* Adds pages @lo to @hi below @above, to a neighbour's node or with the node @fresh. */
static struct range *join(struct merged *merged, struct range *above, u64 lo, u64 hi,
			  struct range **fresh)
{
	struct range *below = to_range(rb_prev(&above->node));
	bool joins_above = above != &merged->end && above->lo == hi + 1;
	bool joins_below = below && below->hi == lo - 1;

	if (joins_above && joins_below) {
		above->lo = below->lo;
		rb_erase(&below->node, &merged->root);
		kmem_cache_free(merged->cache, below);
		return above;
	}
	if (joins_above) {
		above->lo = lo;
		return above;
	}
	if (joins_below) {
		below->hi = hi;
		return below;
	}
	(*fresh)->lo = lo;
	(*fresh)->hi = hi;
	insert(merged, *fresh);
	below = *fresh;
	*fresh = NULL;
	return below;
}

static u64 merged_alloc(void *state, const struct iova_request *request)
{
	struct merged *merged = state;
	struct range *fresh = kmem_cache_alloc(merged->cache, GFP_ATOMIC), *above;
	u64 last = request->last >> PAGE_SHIFT, first;
	unsigned long flags;

	spin_lock_irqsave(&merged->lock, flags);
	above = merged->from;
	first = find_below(&above, request, last);
	if (!first && merged->from != &merged->end) {
		above = &merged->end;
		first = find_below(&above, request, last);
	}
	if (first)
		merged->from = join(merged, above, first, first + request->pages - 1, &fresh);
	spin_unlock_irqrestore(&merged->lock, flags);
	if (fresh)
		kmem_cache_free(merged->cache, fresh);
	return first << PAGE_SHIFT;
}

static struct range *find(const struct merged *merged, u64 page)
{
	struct rb_node *node = merged->root.rb_node;

	while (node) {
		struct range *range = to_range(node);

		if (page < range->lo)
			node = node->rb_left;
		else if (page > range->hi)
			node = node->rb_right;
		else
			return range;
	}
	return NULL;
}

/* Takes pages @lo to @hi out of @range. Returns the node above the gap. */
static struct range *cut(struct merged *merged, struct range *range, u64 lo, u64 hi)
{
	struct range *above = to_range(rb_next(&range->node)), *upper;

	if (range->lo == lo && range->hi == hi) {
		rb_erase(&range->node, &merged->root);
		kmem_cache_free(merged->cache, range);
		return above;
	}
	if (range->hi == hi) {
		range->hi = lo - 1;
		return above;
	}
	if (range->lo == lo) {
		range->lo = hi + 1;
		return range;
	}
	upper = kmem_cache_alloc(merged->cache, GFP_ATOMIC);
	upper->lo = hi + 1;
	upper->hi = range->hi;
	range->hi = lo - 1;
	insert(merged, upper);
	return upper;
}

static void merged_free(void *state, u64 iova, u32 pages)
{
	struct merged *merged = state;
	u64 lo = iova >> PAGE_SHIFT, hi = lo + pages - 1;
	struct range *range, *above;
	unsigned long flags;
	bool restart;

	spin_lock_irqsave(&merged->lock, flags);
	range = find(merged, lo);
	if (!range || range == &merged->end || hi > range->hi)
		kernel_bug("a free of an IOVA that is not allocated");
	restart = lo >= merged->from->lo || range == merged->from;
	above = cut(merged, range, lo, hi);
	if (restart)
		merged->from = above;
	spin_unlock_irqrestore(&merged->lock, flags);
}

static struct iova_shape merged_shape(void *state)
{
	const struct merged *merged = state;

	return rbtree_shape(merged->root.rb_node);
}

static u64 merged_left(void *state)
{
	const struct merged *merged = state;
	u64 pages = 0;

	for (struct rb_node *node = rb_first(&merged->root); node; node = rb_next(node))
		if (to_range(node) != &merged->end)
			pages += to_range(node)->hi - to_range(node)->lo + 1;
	return pages;
}

const struct iova_allocator iova_merged = {
	.name = "merged",
	.align_max = ~0u,
	.make = make_merged,
	.alloc = merged_alloc,
	.free = merged_free,
	.shape = merged_shape,
	.left = merged_left,
};
