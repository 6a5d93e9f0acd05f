// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's maple tree (lib/maple_tree.c) under one lock, as proposed for IOVAs in 2026: an
 * allocation searches the highest gap and stores its range, a free erases it.
 */
#include "shim.h"

#undef kfree
#define kfree(node)	kmem_cache_free(maple_node_cache, node)

#include <maple_tree.c>

#include "iova.h"

/* Entry of an allocated range; any that is not NULL and no pointer. */
#define IN_USE		xa_mk_value(1)
#define FIRST_PFN	1

/*
 * struct maple - the state
 * @lock: guards @tree
 */
struct maple {
	spinlock_t lock;
	struct maple_tree tree;
	u64 end_pfn;
};

static void *make_maple(u32 cpus, u64 end)
{
	struct maple *maple = program_alloc(sizeof(*maple));

	kernel_cpus = cpus;
	maple_tree_init();
	spin_lock_init(&maple->lock);
	mt_init_flags(&maple->tree, MT_FLAGS_ALLOC_RANGE | MT_FLAGS_LOCK_EXTERN);
	maple->end_pfn = end >> PAGE_SHIFT;
	return maple;
}

static u64 maple_alloc(void *state, const struct iova_request *request)
{
	struct maple *maple = state;
	u64 last = min(request->last >> PAGE_SHIFT, maple->end_pfn - 1), first = 0;
	unsigned long flags;
	MA_STATE(mas, &maple->tree, 0, 0);

	spin_lock_irqsave(&maple->lock, flags);
	/* Room for the range wherever the gap begins. */
	if (!mas_empty_area_rev(&mas, FIRST_PFN, last,
				request->pages + request->align_pages - 1)) {
		first = (mas.last + 1 - request->pages) & ~((u64)request->align_pages - 1);
		mas_set_range(&mas, first, first + request->pages - 1);
		if (mas_store_gfp(&mas, IN_USE, GFP_ATOMIC))
			first = 0;
	}
	spin_unlock_irqrestore(&maple->lock, flags);
	return first << PAGE_SHIFT;
}

static void maple_free(void *state, u64 iova, u32 pages)
{
	struct maple *maple = state;
	unsigned long flags;
	MA_STATE(mas, &maple->tree, iova >> PAGE_SHIFT, iova >> PAGE_SHIFT);

	spin_lock_irqsave(&maple->lock, flags);
	if (!mas_erase(&mas))
		kernel_bug("a free of an IOVA that is not allocated");
	spin_unlock_irqrestore(&maple->lock, flags);
}

static void add_shape(struct maple_enode *enode, u32 depth, struct iova_shape *shape)
{
	struct maple_node *node = mte_to_node(enode);
	enum maple_type type = mte_node_type(enode);
	void **slots = (void **)ma_slots(node, type);

	shape->nodes++;
	shape->depth_sum += depth;
	if (depth > shape->deepest)
		shape->deepest = depth;
	if (ma_is_leaf(type))
		return;
	for (u32 i = 0; i <= ma_data_end(node, type, ma_pivots(node, type), ULONG_MAX); i++)
		if (slots[i])
			add_shape(slots[i], depth + 1, shape);
}

static struct iova_shape maple_shape(void *state)
{
	struct maple *maple = state;
	struct iova_shape shape = { 0 };

	if (xa_is_node(maple->tree.ma_root))
		add_shape(mte_safe_root(maple->tree.ma_root), 1, &shape);
	return shape;
}

static u64 maple_left(void *state)
{
	struct maple *maple = state;
	u64 pages = 0;
	MA_STATE(mas, &maple->tree, 0, 0);

	while (mas_find(&mas, ULONG_MAX))
		pages += mas.last - mas.index + 1;
	return pages;
}

const struct iova_allocator iova_maple = {
	.name = "maple",
	.align_max = ~0u,
	.make = make_maple,
	.alloc = maple_alloc,
	.free = maple_free,
	.shape = maple_shape,
	.left = maple_left,
};
