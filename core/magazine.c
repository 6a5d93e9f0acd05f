// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Magazines and their depot; see magazine.h.
 *
 * A cache keeps two magazines, so that a CPU that alternates between a full
 * and an empty one does not go to the depot each time.
 */
#include <xsmmu/magazine.h>

void xs_depot_init(struct xs_depot *depot, const struct xs_world_ops *ops,
		   void *world)
{
	xs_lock_init(&depot->lock);
	depot->ops = ops;
	depot->world = world;
	depot->full = 0;
	depot->empty = 0;
	depot->full_count = 0;
}

static void push(struct xs_magazine **list, struct xs_magazine *magazine)
{
	magazine->next = *list;
	*list = magazine;
}

static struct xs_magazine *pop(struct xs_magazine **list)
{
	struct xs_magazine *magazine = *list;

	if (magazine)
		*list = magazine->next;
	return magazine;
}

void xs_depot_destroy(struct xs_depot *depot)
{
	struct xs_magazine *magazine;

	while ((magazine = pop(&depot->full)) ||
	       (magazine = pop(&depot->empty)))
		depot->ops->free(depot->world, magazine, sizeof(*magazine));
	depot->full_count = 0;
}

static void exchange(struct xs_cache *cache)
{
	struct xs_magazine *loaded = cache->loaded;

	cache->loaded = cache->previous;
	cache->previous = loaded;
}

/* Trade the empty loaded magazine, if any, for a full one. */
static bool load_full(struct xs_cache *cache, struct xs_depot *depot)
{
	struct xs_magazine *full;

	xs_lock_nested(&depot->lock);
	full = pop(&depot->full);
	if (full) {
		depot->full_count--;
		if (cache->loaded)
			push(&depot->empty, cache->loaded);
		cache->loaded = full;
	}
	xs_unlock_nested(&depot->lock);
	return full;
}

bool xs_cache_get(struct xs_cache *cache, struct xs_depot *depot, u32 *item)
{
	struct xs_magazine *loaded = cache->loaded;

	if (xs_unlikely(!loaded || !loaded->count)) {
		exchange(cache);
		loaded = cache->loaded;
		if ((!loaded || !loaded->count) && !load_full(cache, depot))
			return false;
		loaded = cache->loaded;
	}
	*item = loaded->items[--loaded->count];
	return true;
}

/* Trade the full loaded magazine, if any, for an empty one. */
static bool load_empty(struct xs_cache *cache, struct xs_depot *depot)
{
	struct xs_magazine *empty = 0;
	bool room;

	xs_lock_nested(&depot->lock);
	room = !cache->loaded || depot->full_count < XS_DEPOT_MAX;
	if (room)
		empty = pop(&depot->empty);
	xs_unlock_nested(&depot->lock);

	if (!empty && room)
		empty = depot->ops->alloc(depot->world, sizeof(*empty), true);
	if (!empty)
		return false;

	empty->count = 0;
	if (cache->loaded) {
		xs_lock_nested(&depot->lock);
		push(&depot->full, cache->loaded);
		depot->full_count++;
		xs_unlock_nested(&depot->lock);
	}
	cache->loaded = empty;
	return true;
}

static bool has_room(const struct xs_magazine *magazine)
{
	return magazine && magazine->count < XS_MAGAZINE_ITEMS;
}

bool xs_cache_put(struct xs_cache *cache, struct xs_depot *depot, u32 item)
{
	if (xs_unlikely(!has_room(cache->loaded))) {
		exchange(cache);
		if (!has_room(cache->loaded) && !load_empty(cache, depot))
			return false;
	}
	cache->loaded->items[cache->loaded->count++] = item;
	return true;
}

static void give_all(struct xs_magazine *magazine,
		     void (*give)(void *context, u32 item), void *context)
{
	while (magazine->count)
		give(context, magazine->items[--magazine->count]);
}

void xs_cache_flush(struct xs_cache *cache, struct xs_depot *depot,
		    void (*give)(void *context, u32 item), void *context)
{
	for (u32 i = 0; i < 2; i++) {
		struct xs_magazine *magazine = cache->loaded;

		exchange(cache);
		if (!magazine)
			continue;
		give_all(magazine, give, context);
		depot->ops->free(depot->world, magazine, sizeof(*magazine));
		cache->previous = 0;
	}
}

void xs_depot_flush(struct xs_depot *depot,
		    void (*give)(void *context, u32 item), void *context)
{
	struct xs_magazine *magazine;
	xs_flags_t flags;

	do {
		flags = xs_local_save();
		xs_lock_nested(&depot->lock);
		magazine = pop(&depot->full);
		if (magazine)
			depot->full_count--;
		xs_unlock_nested(&depot->lock);
		if (magazine)
			give_all(magazine, give, context);
		xs_local_restore(flags);
		depot->ops->free(depot->world, magazine, sizeof(*magazine));
	} while (magazine);
}

u32 xs_cache_count(const struct xs_cache *cache)
{
	return (cache->loaded ? cache->loaded->count : 0) +
	       (cache->previous ? cache->previous->count : 0);
}

u32 xs_depot_count(struct xs_depot *depot)
{
	xs_flags_t flags = xs_lock(&depot->lock);
	u32 count = 0;

	for (struct xs_magazine *at = depot->full; at; at = at->next)
		count += at->count;
	xs_unlock(&depot->lock, flags);
	return count;
}
