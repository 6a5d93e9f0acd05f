// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Magazines and their depot; see magazine.h.
 *
 * A CPU has two magazines, so that alternating maps and unmaps at a full or empty magazine do
 * not go to the depot each time.
 */
#include <xsmmu/magazine.h>

void xs_depot_init(struct xs_depot *depot, const struct xs_backend_ops *ops,
		   void *backend, u32 items_max, u32 full_max)
{
	xs_lock_init(&depot->lock);
	depot->ops = ops;
	depot->backend = backend;
	depot->items_max = items_max;
	depot->full_max = full_max;
	depot->full = 0;
	depot->empty = 0;
	depot->full_count = 0;
}

static void xs_magazine_push(struct xs_magazine **list, struct xs_magazine *magazine)
{
	magazine->next = *list;
	*list = magazine;
}

static struct xs_magazine *xs_magazine_pop(struct xs_magazine **list)
{
	struct xs_magazine *magazine = *list;

	if (magazine)
		*list = magazine->next;
	return magazine;
}

void xs_depot_destroy(struct xs_depot *depot)
{
	struct xs_magazine *magazine;

	while ((magazine = xs_magazine_pop(&depot->full)) ||
	       (magazine = xs_magazine_pop(&depot->empty)))
		depot->ops->free(depot->backend, magazine, sizeof(*magazine));
	depot->full_count = 0;
}

static void xs_cache_exchange(struct xs_cache *cache)
{
	struct xs_magazine *loaded = cache->loaded;

	cache->loaded = cache->previous;
	cache->previous = loaded;
}

/* Exchanges the empty loaded magazine, if any, for a full magazine. */
static bool xs_cache_load_full(struct xs_cache *cache, struct xs_depot *depot)
{
	struct xs_magazine *full;

	xs_lock(&depot->lock);
	full = xs_magazine_pop(&depot->full);
	if (full) {
		depot->full_count--;
		if (cache->loaded)
			xs_magazine_push(&depot->empty, cache->loaded);
		cache->loaded = full;
	}
	xs_unlock(&depot->lock);
	return full;
}

bool xs_cache_get(struct xs_cache *cache, struct xs_depot *depot, u64 *item)
{
	struct xs_magazine *loaded = cache->loaded;

	if (xs_unlikely(!loaded || !loaded->count)) {
		xs_cache_exchange(cache);
		loaded = cache->loaded;
		if ((!loaded || !loaded->count) &&
		    !xs_cache_load_full(cache, depot))
			return false;
		loaded = cache->loaded;
	}
	*item = loaded->items[--loaded->count];
	return true;
}

/* Exchanges the full loaded magazine, if any, for an empty magazine. */
static bool xs_cache_load_empty(struct xs_cache *cache, struct xs_depot *depot)
{
	struct xs_magazine *empty = 0;
	bool room;

	xs_lock(&depot->lock);
	room = !cache->loaded || depot->full_count < depot->full_max;
	if (room)
		empty = xs_magazine_pop(&depot->empty);
	xs_unlock(&depot->lock);

	if (!empty && room)
		empty = depot->ops->alloc(depot->backend, sizeof(*empty),
					  XS_ANY_CPU, true);
	if (!empty)
		return false;

	empty->count = 0;
	if (cache->loaded) {
		xs_lock(&depot->lock);
		xs_magazine_push(&depot->full, cache->loaded);
		depot->full_count++;
		xs_unlock(&depot->lock);
	}
	cache->loaded = empty;
	return true;
}

static bool xs_magazine_has_room(const struct xs_magazine *magazine,
				 const struct xs_depot *depot)
{
	return magazine && magazine->count < depot->items_max;
}

bool xs_cache_put(struct xs_cache *cache, struct xs_depot *depot, u64 item)
{
	if (xs_unlikely(!xs_magazine_has_room(cache->loaded, depot))) {
		xs_cache_exchange(cache);
		if (!xs_magazine_has_room(cache->loaded, depot) &&
		    !xs_cache_load_empty(cache, depot))
			return false;
	}
	cache->loaded->items[cache->loaded->count++] = item;
	return true;
}

static void xs_magazine_empty(struct xs_magazine *magazine,
			      void (*give)(void *context, u64 item),
			      void *context)
{
	while (magazine->count)
		give(context, magazine->items[--magazine->count]);
}

void xs_cache_drain(struct xs_cache *cache, struct xs_depot *depot,
		    void (*give)(void *context, u64 item), void *context)
{
	for (u32 i = 0; i < 2; i++) {
		struct xs_magazine *magazine = cache->loaded;

		xs_cache_exchange(cache);
		if (!magazine)
			continue;
		xs_magazine_empty(magazine, give, context);
		depot->ops->free(depot->backend, magazine, sizeof(*magazine));
		cache->previous = 0;
	}
}

void xs_depot_drain(struct xs_depot *depot,
		    void (*give)(void *context, u64 item), void *context)
{
	struct xs_magazine *magazine;
	xs_flags_t flags;

	do {
		xs_enter();
		flags = xs_local_save();
		xs_lock(&depot->lock);
		magazine = xs_magazine_pop(&depot->full);
		if (magazine)
			depot->full_count--;
		xs_unlock(&depot->lock);
		if (magazine)
			xs_magazine_empty(magazine, give, context);
		xs_local_restore(flags);
		xs_exit();
		depot->ops->free(depot->backend, magazine, sizeof(*magazine));
	} while (magazine);
}

u64 xs_cache_count(const struct xs_cache *cache)
{
	return (cache->loaded ? cache->loaded->count : 0) +
	       (cache->previous ? cache->previous->count : 0);
}

u64 xs_depot_count(struct xs_depot *depot)
{
	xs_flags_t flags = xs_lock_irqsave(&depot->lock);
	u64 count = 0;
	u32 full = 0;

	for (struct xs_magazine *at = depot->full; at; at = at->next) {
		count += at->count;
		full++;
	}
	xs_warn_once(full != depot->full_count, "a depot has miscounted");
	xs_unlock_irqrestore(&depot->lock, flags);
	return count;
}
