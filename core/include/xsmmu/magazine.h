/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Magazines: per-CPU stacks of unmapped order-n ranges of IOVA, of the same size, above a depot
 * that moves full magazines from CPUs that unmap to CPUs that map. Source: Bonwick and Adams,
 * "Magazines and Vmem", USENIX ATC 2001.
 *
 * A CPU keeps the magazines of a ring's worth of ranges, and goes to the depot only for more. So
 * a CPU that maps what it has unmapped takes no lock of other CPUs, and gets the same IOVAs
 * again, whose slots and page-table entries are in its caches.
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
#define XS_CACHE_PAGES		(16 * XS_MAGAZINE_ITEMS)	/* kept by a CPU */

struct xs_magazine {
	struct xs_magazine *next;
	u64 count;
	u64 items[XS_MAGAZINE_ITEMS];	/* page numbers */
};

/**
 * struct xs_magazines - list of magazines
 * @first: first magazine, or NULL
 * @last: last magazine; valid if there is a first
 * @count: number of magazines
 */
struct xs_magazines {
	struct xs_magazine *first;
	struct xs_magazine *last;
	u32 count;
};

/**
 * struct xs_cache - magazines of a CPU, guarded by the CPU's lock
 * @loaded: magazine in use, or NULL
 * @previous: full or empty, or NULL
 * @full: further full magazines
 * @empty: magazines that were in @full before; @full and @empty together have no more than the
 *   depot's @cache_max magazines
 */
struct xs_cache {
	struct xs_magazine *loaded;
	struct xs_magazine *previous;
	struct xs_magazines full;
	struct xs_magazines empty;
};

/**
 * struct xs_depot - depot of an engine, shared by all CPUs; the first cache line is constant
 * @ops: operations of the backend
 * @backend: first argument of the operations
 * @items_max: capacity of a magazine, 1 .. XS_MAGAZINE_ITEMS; smaller for larger ranges
 * @full_max: number of magazines in @full from which on CPUs put no more into the depot
 * @cache_max: largest number of full magazines that a CPU keeps
 * @lock: guards the lists
 * @full: magazines with items: full ones, and those of drained CPUs
 * @empty: empty magazines
 */
struct xs_depot {
	const struct xs_backend_ops *ops;
	void *backend;
	u32 items_max;
	u32 full_max;
	u32 cache_max;
	xs_lock_t lock XS_CACHE_LINE;
	struct xs_magazines full;
	struct xs_magazines empty;
};

/**
 * xs_depot_init - initialise an empty depot
 * @depot: depot
 * @ops: operations of the backend
 * @backend: first argument of the operations
 * @items_max: capacity of a magazine, 1 .. XS_MAGAZINE_ITEMS
 * @full_max: number of full magazines from which on CPUs put no more into the depot
 * @cache_max: largest number of full magazines that a CPU keeps
 *
 * Context: any.
 */
void xs_depot_init(struct xs_depot *depot, const struct xs_backend_ops *ops,
		   void *backend, u32 items_max, u32 full_max, u32 cache_max);

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
 * xs_cache_drain - move all magazines of a CPU to the depot
 * @cache: the CPU's magazines
 * @depot: depot, which may then have more than its full_max magazines
 *
 * Takes the same time for any number of magazines.
 *
 * Context: CPU's lock.
 */
void xs_cache_drain(struct xs_cache *cache, struct xs_depot *depot);

/**
 * xs_depot_drain - take out all items, and free the magazines
 * @depot: depot, usable afterwards
 * @most: largest number of magazines to take out
 * @give: called for each item, with interrupts off
 * @context: first argument of @give
 *
 * Enters for each magazine, so that a caller that has not entered stays on its CPU for no
 * longer than a magazine takes.
 *
 * Context: any; no lock held.
 * Return: number of magazines that were taken out; less than @most if the depot was found empty.
 */
u32 xs_depot_drain(struct xs_depot *depot, u32 most,
		   void (*give)(void *context, u64 item), void *context);

/**
 * xs_depot_is_over - has a depot more magazines than CPUs put into the depot?
 * @depot: depot
 *
 * Context: any.
 * Return: true if the depot still has magazines of a drained CPU, beyond its full_max.
 */
bool xs_depot_is_over(struct xs_depot *depot);

/**
 * xs_cache_count - number of items in a CPU's magazines
 * @cache: the CPU's magazines
 *
 * Context: CPU's lock, or at rest.
 * Return: number of items.
 */
u64 xs_cache_count(const struct xs_cache *cache);

/**
 * xs_depot_count - number of items in the magazines of a depot
 * @depot: depot
 *
 * Context: any.
 * Return: number of items.
 */
u64 xs_depot_count(struct xs_depot *depot);

#endif
