// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Magazines and their depot; see magazine.h.
 *
 * A CPU uses two magazines, so that alternating maps and unmaps at a full or empty magazine do
 * not exchange magazines each time.
 *
 * A full magazine of the CPU's own is exchanged for an empty magazine of its own, and a full
 * magazine of the depot for an empty magazine of the depot. So empty magazines collect nowhere.
 */
#include <xsmmu/magazine.h>

static void xs_magazines_init(struct xs_magazines *list)
{
	list->first = 0;
	list->last = 0;
	list->count = 0;
}

static void xs_magazine_push(struct xs_magazines *list, struct xs_magazine *magazine)
{
	if (!list->first)
		list->last = magazine;
	magazine->next = list->first;
	list->first = magazine;
	list->count++;
}

static struct xs_magazine *xs_magazine_pop(struct xs_magazines *list)
{
	struct xs_magazine *magazine = list->first;

	if (magazine) {
		list->first = magazine->next;
		list->count--;
	}
	return magazine;
}

/* Moves all magazines of a list to another list. */
static void xs_magazines_move(struct xs_magazines *to, struct xs_magazines *from)
{
	if (!from->first)
		return;
	if (!to->first)
		to->last = from->last;
	from->last->next = to->first;
	to->first = from->first;
	to->count += from->count;
	xs_magazines_init(from);
}

void xs_depot_init(struct xs_depot *depot, const struct xs_backend_ops *ops,
		   void *backend, u32 items_max, u32 full_max, u32 cache_max)
{
	xs_lock_init(&depot->lock);
	depot->ops = ops;
	depot->backend = backend;
	depot->items_max = items_max;
	depot->full_max = full_max;
	depot->cache_max = cache_max;
	xs_magazines_init(&depot->full);
	xs_magazines_init(&depot->empty);
}

void xs_depot_destroy(struct xs_depot *depot)
{
	struct xs_magazine *magazine;

	while ((magazine = xs_magazine_pop(&depot->full)) ||
	       (magazine = xs_magazine_pop(&depot->empty)))
		depot->ops->free(depot->backend, magazine, sizeof(*magazine));
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
	struct xs_magazine *full = xs_magazine_pop(&cache->full);

	if (xs_likely(full)) {
		if (cache->loaded)
			xs_magazine_push(&cache->empty, cache->loaded);
		cache->loaded = full;
		return true;
	}
	xs_lock(&depot->lock);
	full = xs_magazine_pop(&depot->full);
	if (full) {
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
	bool keeps = cache->full.count < depot->cache_max;
	struct xs_magazine *empty = keeps ? xs_magazine_pop(&cache->empty) : 0;
	bool room = keeps || !cache->loaded;

	if (xs_unlikely(!empty)) {
		xs_lock(&depot->lock);
		room |= depot->full.count < depot->full_max;
		if (room)
			empty = xs_magazine_pop(&depot->empty);
		xs_unlock(&depot->lock);
	}
	if (!empty && room)
		empty = depot->ops->alloc(depot->backend, sizeof(*empty),
					  XS_ANY_CPU, true);
	if (!empty)
		return false;

	empty->count = 0;
	if (cache->loaded && keeps) {
		xs_magazine_push(&cache->full, cache->loaded);
	} else if (cache->loaded) {
		xs_lock(&depot->lock);
		xs_magazine_push(&depot->full, cache->loaded);
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

void xs_cache_drain(struct xs_cache *cache, struct xs_depot *depot)
{
	for (u32 i = 0; i < 2; i++) {
		struct xs_magazine *magazine = cache->loaded;

		xs_cache_exchange(cache);
		if (!magazine)
			continue;
		xs_magazine_push(magazine->count ? &cache->full : &cache->empty, magazine);
		cache->previous = 0;
	}
	xs_lock(&depot->lock);
	xs_magazines_move(&depot->full, &cache->full);
	xs_magazines_move(&depot->empty, &cache->empty);
	xs_unlock(&depot->lock);
}

u32 xs_depot_drain(struct xs_depot *depot, u32 most,
		   void (*give)(void *context, u64 item), void *context)
{
	for (u32 taken = 0; taken < most; taken++) {
		struct xs_magazine *magazine;
		xs_flags_t flags;

		xs_enter();
		flags = xs_local_save();
		xs_lock(&depot->lock);
		magazine = xs_magazine_pop(&depot->full);
		if (!magazine)
			magazine = xs_magazine_pop(&depot->empty);
		xs_unlock(&depot->lock);
		if (magazine)
			xs_magazine_empty(magazine, give, context);
		xs_local_restore(flags);
		xs_exit();
		if (!magazine)
			return taken;
		depot->ops->free(depot->backend, magazine, sizeof(*magazine));
	}
	return most;
}

bool xs_depot_is_over(struct xs_depot *depot)
{
	xs_flags_t flags = xs_lock_irqsave(&depot->lock);
	bool over = depot->full.count > depot->full_max;

	xs_unlock_irqrestore(&depot->lock, flags);
	return over;
}

static u64 xs_magazines_items(const struct xs_magazines *list)
{
	u64 items = 0;
	u32 count = 0;

	for (struct xs_magazine *at = list->first; at; at = at->next) {
		items += at->count;
		count++;
	}
	xs_warn_once(count != list->count, "magazines are miscounted");
	return items;
}

u64 xs_cache_count(const struct xs_cache *cache)
{
	return (cache->loaded ? cache->loaded->count : 0) +
	       (cache->previous ? cache->previous->count : 0) +
	       xs_magazines_items(&cache->full);
}

u64 xs_depot_count(struct xs_depot *depot)
{
	xs_flags_t flags = xs_lock_irqsave(&depot->lock);
	u64 items = xs_magazines_items(&depot->full);

	xs_unlock_irqrestore(&depot->lock, flags);
	return items;
}
