// SPDX-License-Identifier: GPL-2.0-only
/* Open addressing; see hash_map.h. */
#include <stdlib.h>
#include <string.h>

#include "hash_map.h"

#define FIRST_LG2	10

static u64 slot_of(const struct map *map, u64 key)
{
	u64 mask = (1ULL << map->size_lg2) - 1;
	u64 at = key * 0x9e3779b97f4a7c15 >> (64 - map->size_lg2);

	while (map->keys[at] && map->keys[at] != key + 1)
		at = (at + 1) & mask;
	return at;
}

static void resize(struct map *map, u32 size_lg2)
{
	struct map old = *map;

	map->size_lg2 = size_lg2;
	map->keys = calloc(1ULL << size_lg2, sizeof(*map->keys));
	map->values = calloc(1ULL << size_lg2, map->value_bytes);
	if (!map->keys || !map->values)
		scale_fail("no memory for a map");
	for (u64 i = 0; old.size_lg2 && i < 1ULL << old.size_lg2; i++)
		if (old.keys[i]) {
			u64 at = slot_of(map, old.keys[i] - 1);

			map->keys[at] = old.keys[i];
			memcpy(map->values + at * map->value_bytes,
			       old.values + i * map->value_bytes, map->value_bytes);
		}
	free(old.keys);
	free(old.values);
}

void *map_at(struct map *map, u64 key)
{
	u64 at;

	if (!map->size_lg2)
		resize(map, FIRST_LG2);
	at = slot_of(map, key);
	if (!map->keys[at]) {
		if (++map->count > 1u << (map->size_lg2 - 1)) {
			resize(map, map->size_lg2 + 1);
			at = slot_of(map, key);
		}
		map->keys[at] = key + 1;
	}
	return map->values + at * map->value_bytes;
}
