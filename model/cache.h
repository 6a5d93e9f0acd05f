/* SPDX-License-Identifier: GPL-2.0-only */
/* A set-associative cache of numbers that evicts the entry which was used least recently. */
#ifndef MODEL_CACHE_H
#define MODEL_CACHE_H

#include <xsmmu/needs.h>

/*
 * struct cache_entry - an entry
 * @key:	number + 1; 0 if the entry is empty
 * @used:	clock of the last use
 * @ready_ns:	time from which on the entry can be used
 */
struct cache_entry {
	u64 key;
	u64 used;
	u64 ready_ns;
};

/*
 * struct cache - a cache
 * @sets:	number of sets; the set of a number is its remainder
 * @clock:	uses so far
 */
struct cache {
	struct cache_entry *entries;
	u64 sets;
	u64 ways;
	u64 clock;
};

/* @entries is a multiple of @ways; @ways equal to @entries makes the cache fully associative. */
void cache_init(struct cache *cache, u64 entries, u64 ways);

/* Returns the entry of a number and counts a use; NULL if the cache does not have the number. */
struct cache_entry *cache_find(struct cache *cache, u64 number);

/* Adds a number that the cache does not have. Returns the entry. */
struct cache_entry *cache_add(struct cache *cache, u64 number, u64 ready_ns);

/* Drops the numbers from @first to @last, inclusive. */
void cache_drop(struct cache *cache, u64 first, u64 last);

void cache_drop_all(struct cache *cache);

#endif
