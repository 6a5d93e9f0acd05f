/* SPDX-License-Identifier: GPL-2.0-only */
/* Allocators of IOVAs behind one interface; one allocator a file. */
#ifndef ALLOCATORS_IOVA_H
#define ALLOCATORS_IOVA_H

#include XS_PLATFORM

#define IOVA_PAGE_LG2	12u

/**
 * struct iova_request - the IOVA that a map needs
 * @phys: physical address, for an allocator that needs none
 * @last: highest address that the device reaches, inclusive
 * @pages: size
 * @align_pages: alignment, a power of two
 */
struct iova_request {
	u64 phys;
	u64 last;
	u32 pages;
	u32 align_pages;
};

/**
 * struct iova_shape - shape of the data that an allocator searches
 * @nodes: nodes of its tree, the end's node included
 * @deepest: steps from the root to the lowest node; 0 without a tree
 * @depth_sum: sum of these steps over all nodes
 */
struct iova_shape {
	u64 nodes;
	u32 deepest;
	u64 depth_sum;
};

/**
 * struct iova_allocator - an allocator
 * @name: for options and results
 * @align_max: largest alignment in pages that it keeps; 0: that of the physical address
 * @fails_early: after a failed request with a limit below 4 GiB, others with such a limit may fail
 *	although there is room, until a range goes back to the tree (max32_alloc_size of iova.c)
 * @make: make a state for CPUs 0 to @cpus - 1 and IOVAs from 1 page up to @end. A program makes
 *	one state only.
 * @alloc: allocate; returns the IOVA, 0 if there is none
 * @free: free what @alloc has returned, with the same number of pages; on any CPU
 * @shape: describe the data; no other call runs
 * @left: pages that are allocated, after the allocator has emptied its caches; no other call runs
 *
 * Context: of @alloc and @free: any CPU, no lock held.
 */
struct iova_allocator {
	const char *name;
	u32 align_max;
	bool fails_early;
	void *(*make)(u32 cpus, u64 end);
	u64 (*alloc)(void *state, const struct iova_request *request);
	void (*free)(void *state, u64 iova, u32 pages);
	struct iova_shape (*shape)(void *state);
	u64 (*left)(void *state);
};

extern const struct iova_allocator iova_tree, iova_merged, iova_cached, iova_cached_2m, iova_maple,
	iova_magazines, iova_blocks, iova_identity;

/* The allocator of a name; NULL if there is none. */
const struct iova_allocator *iova_find(const char *name);

/* Alignment that Linux's DMA code asks for: the size, rounded up to a power of two. */
static inline u32 iova_natural(u32 pages)
{
	return pages > 1 ? 1u << (32 - (u32)__builtin_clz(pages - 1)) : 1;
}

/* ---- of the program ---- */

/* Zeroed memory that starts on a line, of @bytes; never NULL. */
void *program_alloc(size_t bytes);
void program_free(void *memory, size_t bytes);
void program_fail(const char *text) __attribute__((noreturn, cold));

/* What the engine calls. */
struct xs_backend_ops;
extern const struct xs_backend_ops *const program_ops;

#endif
