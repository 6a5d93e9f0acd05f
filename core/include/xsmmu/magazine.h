/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Magazines: per-CPU stacks of IOVA order-n ranges of one size that nobody has mapped,
 * over a depot that moves full ones between CPUs that unmap and CPUs that map.
 * Source: Bonwick and Adams, "Magazines and Vmem", USENIX ATC 2001.
 *
 * A order-n range that fits blocked is not kept: the caller gives it back to its
 * block. Magazines are allocated when first needed; without memory everything
 * works, only slower.
 */
#ifndef XSMMU_MAGAZINE_H
#define XSMMU_MAGAZINE_H

#include <xsmmu/backend.h>

#define XS_MAGAZINE_ITEMS	62	/* a magazine is 512 bytes */
#define XS_DEPOT_PAGES		(64 * XS_MAGAZINE_ITEMS)	/* that a depot keeps */

struct xs_magazine {
	struct xs_magazine *next;
	u64 count;
	u64 items[XS_MAGAZINE_ITEMS];	/* page numbers */
};

/* One CPU's: guarded by the CPU's lock. Either may be NULL. */
struct xs_cache {
	struct xs_magazine *loaded;
	struct xs_magazine *previous;
};

/*
 * Shared by all CPUs of an engine; @lock guards the lists.
 * @items_max: that a magazine holds, fewer of larger order-n ranges, 1 .. XS_MAGAZINE_ITEMS
 * @full_max: full magazines that the depot keeps
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

void xs_depot_init(struct xs_depot *depot, const struct xs_backend_ops *ops,
		   void *backend, u32 items_max, u32 full_max);

/* Free all magazines of the depot. */
void xs_depot_destroy(struct xs_depot *depot);

/* Pop an item into *@item. False: there is none on this CPU or in the depot. */
bool xs_cache_get(struct xs_cache *cache, struct xs_depot *depot, u64 *item);

/* The same where the loaded magazine has one, or room for one. */
static xs_inline bool xs_cache_get_fast(struct xs_cache *cache, u64 *item)
{
	struct xs_magazine *loaded = cache->loaded;

	if (!loaded || !loaded->count)
		return false;
	*item = loaded->items[--loaded->count];
	return true;
}

static xs_inline bool xs_cache_put_fast(struct xs_cache *cache,
					const struct xs_depot *depot, u64 item)
{
	struct xs_magazine *loaded = cache->loaded;

	if (!loaded || loaded->count >= depot->items_max)
		return false;
	loaded->items[loaded->count++] = item;
	return true;
}

/* Push @item. False: no room and none to be had. */
bool xs_cache_put(struct xs_cache *cache, struct xs_depot *depot, u64 item);

/*
 * Call @give for each item of the cache, and free its magazines. Interrupts
 * are off when it is called, here and below.
 */
void xs_cache_empty(struct xs_cache *cache, struct xs_depot *depot,
		    void (*give)(void *context, u64 item), void *context);

/*
 * The same for all full magazines of the depot, which stays usable. Enters for each, so
 * that a caller that has not entered keeps its CPU for no more than one.
 */
void xs_depot_empty(struct xs_depot *depot,
		    void (*give)(void *context, u64 item), void *context);

/* Items that the cache, or the depot, holds. */
u64 xs_cache_count(const struct xs_cache *cache);
u64 xs_depot_count(struct xs_depot *depot);

#endif
