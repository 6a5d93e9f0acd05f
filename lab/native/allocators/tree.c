// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's allocator, drivers/iommu/iova.c: a red-black tree of ranges under one lock, alone
 * (as before 2015) or behind magazines of each CPU and a depot.
 *
 * `tree` is today's tree. The tree of 2015 had the same search from the last allocation down;
 * since then the search after a failed one, and the anchor at the end, were added.
 */
#include "shim.h"
#include "iova.h"

#ifndef IOVA_SOURCE
#define IOVA_SOURCE	<iova.c>
#endif
#include IOVA_SOURCE

#include "rbtree_shape.h"

/* The first page stays free: IOVA 0 means "none". */
#define FIRST_PFN	1

/* The domain stands first: the state is its address, too. */
struct tree {
	struct iova_domain domain;
	u64 end_pfn;
};

static void *make_tree(u32 cpus, u64 end)
{
	struct tree *tree = program_alloc(sizeof(*tree));

	kernel_cpus = cpus;
	if (iova_cache_get())
		program_fail("no cache for nodes");
	init_iova_domain(&tree->domain, PAGE_SIZE, FIRST_PFN);
	tree->end_pfn = end >> PAGE_SHIFT;
	return tree;
}

static unsigned long last_pfn(const struct tree *tree, const struct iova_request *request)
{
	return min(request->last >> PAGE_SHIFT, tree->end_pfn - 1);
}

static struct iova_shape tree_shape(void *state)
{
	const struct tree *tree = state;

	return rbtree_shape(tree->domain.rbroot.rb_node);
}

static u64 tree_left(void *state)
{
	const struct tree *tree = state;
	u64 pages = 0;

	for (struct rb_node *node = rb_first(&tree->domain.rbroot); node; node = rb_next(node))
		if (to_iova(node) != &tree->domain.anchor)
			pages += iova_size(to_iova(node));
	return pages;
}

#ifndef IOVA_SECOND
static u64 tree_alloc(void *state, const struct iova_request *request)
{
	struct iova *iova = alloc_iova(state, request->pages, last_pfn(state, request),
				       request->align_pages > 1);

	return iova ? iova->pfn_lo << PAGE_SHIFT : 0;
}

static void tree_free(void *state, u64 iova, u32 pages)
{
	free_iova(state, iova >> PAGE_SHIFT);
}

const struct iova_allocator iova_tree = {
	.name = "tree",
	.align_max = ~0u,
	.fails_early = true,
	.make = make_tree,
	.alloc = tree_alloc,
	.free = tree_free,
	.shape = tree_shape,
	.left = tree_left,
};
#endif

static void *make_cached(u32 cpus, u64 end)
{
	struct tree *tree = make_tree(cpus, end);

	if (iova_domain_init_rcaches(&tree->domain))
		program_fail("no memory for magazines");
	return tree;
}

static u64 cached_alloc(void *state, const struct iova_request *request)
{
	return alloc_iova_fast(state, request->pages, last_pfn(state, request), true) << PAGE_SHIFT;
}

static void cached_free(void *state, u64 iova, u32 pages)
{
	free_iova_fast(state, iova >> PAGE_SHIFT, pages);
}

static u64 cached_left(void *state)
{
	for (u32 cpu = 0; cpu < kernel_cpus; cpu++)
		free_cpu_cached_iovas(cpu, state);
	free_global_cached_iovas(state);
	return tree_left(state);
}

#ifdef IOVA_SECOND
const struct iova_allocator iova_cached_2m = {
	.name = "cached-2m",
#else
const struct iova_allocator iova_cached = {
	.name = "cached",
#endif
	.align_max = ~0u,
	.fails_early = true,
	.make = make_cached,
	.alloc = cached_alloc,
	.free = cached_free,
	.shape = tree_shape,
	.left = cached_left,
};
