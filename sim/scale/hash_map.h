/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A hash map from any number but the largest to a value of fixed size. The first lookup of a
 * key zeroes the value. Values move only when a new key is added.
 */
#ifndef SCALE_HASH_MAP_H
#define SCALE_HASH_MAP_H

#include "platform_scale.h"

struct map {
	size_t value_bytes;
	u32 size_lg2;		/* 0: not used yet */
	u32 count;
	u64 *keys;		/* key + 1, 0: empty */
	u8 *values;
};

#define MAP_OF(type)	{ .value_bytes = sizeof(type) }

/* Returns the value of @key, a new value if @key is new. */
void *map_at(struct map *map, u64 key);

#endif
