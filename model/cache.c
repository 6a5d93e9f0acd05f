// SPDX-License-Identifier: GPL-2.0-only
/* See cache.h. */
#include <string.h>

#include "cache.h"
#include "model.h"

void cache_init(struct cache *cache, u64 entries, u64 ways)
{
	cache->entries = model_new(entries, sizeof(*cache->entries));
	cache->sets = entries / ways;
	cache->ways = ways;
	cache->clock = 0;
}

static struct cache_entry *set_of(struct cache *cache, u64 number)
{
	return &cache->entries[number % cache->sets * cache->ways];
}

static struct cache_entry *look_up(struct cache *cache, u64 number)
{
	struct cache_entry *set = set_of(cache, number);

	for (u64 i = 0; i < cache->ways; i++)
		if (set[i].key == number + 1)
			return &set[i];
	return NULL;
}

struct cache_entry *cache_find(struct cache *cache, u64 number)
{
	struct cache_entry *entry = look_up(cache, number);

	if (entry)
		entry->used = ++cache->clock;
	return entry;
}

struct cache_entry *cache_add(struct cache *cache, u64 number, u64 ready_ns)
{
	struct cache_entry *set = set_of(cache, number), *victim = set;

	/* An empty entry was never used, or has @used 0 again. */
	for (u64 i = 1; i < cache->ways; i++)
		if (set[i].used < victim->used)
			victim = &set[i];
	*victim = (struct cache_entry) { number + 1, ++cache->clock, ready_ns };
	return victim;
}

void cache_drop(struct cache *cache, u64 first, u64 last)
{
	if (last - first >= cache->sets * cache->ways) {
		for (u64 i = 0; i < cache->sets * cache->ways; i++)
			if (cache->entries[i].key > first && cache->entries[i].key <= last + 1)
				memset(&cache->entries[i], 0, sizeof(*cache->entries));
		return;
	}
	for (u64 number = first; number <= last; number++) {
		struct cache_entry *entry = look_up(cache, number);

		if (entry)
			memset(entry, 0, sizeof(*entry));
	}
}

void cache_drop_all(struct cache *cache)
{
	memset(cache->entries, 0, cache->sets * cache->ways * sizeof(*cache->entries));
}
