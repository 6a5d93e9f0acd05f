/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Magazines: per-CPU stacks of unmapped order-n ranges of IOVA, of the same size, above a depot
 * that moves full magazines from CPUs that unmap to CPUs that map. Source: Bonwick and Adams,
 * "Magazines and Vmem", USENIX ATC 2001.
 *
 * A range that fits nowhere is not kept: the caller gives the range back to its block.
 * Magazines are allocated when first needed. Without memory for magazines all calls still work,
 * only slower.
 */
#ifndef XSMMU_MAGAZINE_H
#define XSMMU_MAGAZINE_H

#include <xsmmu/backend.h>

#define XS_MAGAZINE_ITEMS	62	/* a magazine is 512 bytes */
#define XS_DEPOT_PAGES		(64 * XS_MAGAZINE_ITEMS)	/* kept in a depot */

struct xs_magazine {
	struct xs_magazine *next;
	u64 count;
	u64 items[XS_MAGAZINE_ITEMS];	/* page numbers */
};

/* Magazines of a CPU, guarded by the CPU's lock. Either may be NULL. */
struct xs_cache {
	struct xs_magazine *loaded;
	struct xs_magazine *previous;
};

/**
 * struct xs_depot - depot of an engine, shared by all CPUs
 * @lock: guards the lists
 * @ops: operations of the backend
 * @backend: first argument of the operations
 * @items_max: capacity of a magazine, 1 .. XS_MAGAZINE_ITEMS; smaller for larger ranges
 * @full_max: largest number of full magazines in the depot
 * @full: full magazines
 * @empty: empty magazines
 * @full_count: number of full magazines
 */
struct xs_depot {
	xs_lock_t lock;
	const struct xs_backend_ops *ops;
	void *backend;
	u32 items_max;
	u32 full_max;
	struct xs_magazine *full;
	struct xs_magazine *empty;
	u32 full_count;
};

/**
 * xs_depot_init - initialise an empty depot
 * @depot: depot
 * @ops: operations of the backend
 * @backend: first argument of the operations
 * @items_max: capacity of a magazine, 1 .. XS_MAGAZINE_ITEMS
 * @full_max: largest number of full magazines in the depot
 *
 * Context: any.
 */
void xs_depot_init(struct xs_depot *depot, const struct xs_backend_ops *ops,
		   void *backend, u32 items_max, u32 full_max);

/**
 * xs_depot_destroy - free all magazines of a depot
 * @depot: depot that no CPU uses any more
 *
 * Context: any that the backend's free() allows.
 */
void xs_depot_destroy(struct xs_depot *depot);

/**
 * xs_cache_get - pop an item
 * @cache: the CPU's magazines
 * @depot: depot
 * @item: result, a page number
 *
 * Context: CPU's lock.
 * Return: false if the CPU and the depot have no item.
 */
bool xs_cache_get(struct xs_cache *cache, struct xs_depot *depot, u64 *item);

/**
 * xs_cache_get_fast - pop an item of the loaded magazine
 * @cache: the CPU's magazines
 * @item: result, a page number
 *
 * Context: CPU's lock.
 * Return: false if the loaded magazine is empty.
 */
static xs_inline bool xs_cache_get_fast(struct xs_cache *cache, u64 *item)
{
	struct xs_magazine *loaded = cache->loaded;

	if (!loaded || !loaded->count)
		return false;
	*item = loaded->items[--loaded->count];
	return true;
}

/**
 * xs_cache_put_fast - push an item into the loaded magazine
 * @cache: the CPU's magazines
 * @depot: depot
 * @item: page number
 *
 * Context: CPU's lock.
 * Return: false if the loaded magazine is full.
 */
static xs_inline bool xs_cache_put_fast(struct xs_cache *cache,
					const struct xs_depot *depot, u64 item)
{
	struct xs_magazine *loaded = cache->loaded;

	if (!loaded || loaded->count >= depot->items_max)
		return false;
	loaded->items[loaded->count++] = item;
	return true;
}

/**
 * xs_cache_put - push an item
 * @cache: the CPU's magazines
 * @depot: depot
 * @item: page number
 *
 * Context: CPU's lock.
 * Return: false without room and without memory for another magazine.
 */
bool xs_cache_put(struct xs_cache *cache, struct xs_depot *depot, u64 item);

/**
 * xs_cache_drain - take out all items and free the magazines
 * @cache: the CPU's magazines
 * @depot: depot
 * @give: called for each item, with interrupts off
 * @context: first argument of @give
 *
 * Context: CPU's lock.
 */
void xs_cache_drain(struct xs_cache *cache, struct xs_depot *depot,
		    void (*give)(void *context, u64 item), void *context);

/**
 * xs_depot_drain - take out all items of the full magazines
 * @depot: depot, usable afterwards
 * @give: called for each item, with interrupts off
 * @context: first argument of @give
 *
 * Enters for each magazine, so that a caller that has not entered stays on its CPU for no
 * longer than a magazine takes.
 *
 * Context: any; no lock held.
 */
void xs_depot_drain(struct xs_depot *depot,
		    void (*give)(void *context, u64 item), void *context);

/**
 * xs_cache_count - number of items in a CPU's magazines
 * @cache: the CPU's magazines
 *
 * Context: CPU's lock, or at rest.
 * Return: number of items.
 */
u64 xs_cache_count(const struct xs_cache *cache);

/**
 * xs_depot_count - number of items in the full magazines of a depot
 * @depot: depot
 *
 * Context: any.
 * Return: number of items.
 */
u64 xs_depot_count(struct xs_depot *depot);

#endif
