// SPDX-License-Identifier: GPL-2.0-only
/* See table.h. */
#include <stdlib.h>
#include <string.h>

#include "replay.h"
#include "table.h"

#define FIRST_LG2	8

static u64 home_of(const struct table *table, u64 key)
{
	return key * 0x9e3779b97f4a7c15ULL >> (64 - table->lg2);
}

/* Returns the slot that has @key, or the empty slot where @key belongs. */
static u64 find(const struct table *table, u64 key)
{
	u64 mask = (1ULL << table->lg2) - 1;
	u64 at = home_of(table, key);

	while (table->slots[at].value && table->slots[at].key != key)
		at = (at + 1) & mask;
	return at;
}

static void resize(struct table *table, u32 lg2)
{
	struct table old = *table;

	table->lg2 = lg2;
	table->slots = calloc(1ULL << lg2, sizeof(*table->slots));
	if (!table->slots)
		replay_stop("no memory for a table of %llu entries", 1ULL << lg2);
	for (u64 i = 0; old.slots && i < 1ULL << old.lg2; i++)
		if (old.slots[i].value)
			table->slots[find(table, old.slots[i].key)] = old.slots[i];
	free(old.slots);
}

u64 table_get(const struct table *table, u64 key)
{
	return table->slots ? table->slots[find(table, key)].value : 0;
}

u64 *table_at(struct table *table, u64 key)
{
	struct table_slot *slot;

	if (!table->slots)
		resize(table, FIRST_LG2);
	slot = &table->slots[find(table, key)];
	if (slot->value)
		return &slot->value;
	if (++table->count > 1ULL << (table->lg2 - 1)) {
		resize(table, table->lg2 + 1);
		slot = &table->slots[find(table, key)];
	}
	slot->key = key;
	return &slot->value;
}

/* Keys behind the gap move up, unless the gap is before their home. */
void table_delete(struct table *table, u64 key)
{
	u64 mask = (1ULL << table->lg2) - 1;
	u64 gap, at;

	if (!table->slots)
		return;
	gap = at = find(table, key);
	if (!table->slots[gap].value)
		return;
	table->count--;
	while (at = (at + 1) & mask, table->slots[at].value) {
		u64 home = home_of(table, table->slots[at].key);

		if (((at - home) & mask) < ((at - gap) & mask))
			continue;
		table->slots[gap] = table->slots[at];
		gap = at;
	}
	table->slots[gap].value = 0;
}

static void grow(struct pool *pool)
{
	u32 room = pool->room ? 2 * pool->room : 64;
	void *records = realloc(pool->records, room * pool->bytes);

	if (!records || room < pool->room)
		replay_stop("no memory for %u records", room);
	pool->records = records;
	pool->room = room;
}

u32 pool_take(struct pool *pool)
{
	u32 number = pool->freed;

	if (number) {
		memcpy(&pool->freed, pool_at(pool, number), sizeof(number));
	} else {
		number = pool->end++;
		if (number >= pool->room)
			grow(pool);
	}
	memset(pool_at(pool, number), 0, pool->bytes);
	pool->used++;
	return number;
}

void pool_put(struct pool *pool, u32 number)
{
	memcpy(pool_at(pool, number), &pool->freed, sizeof(number));
	pool->freed = number;
	pool->used--;
}
