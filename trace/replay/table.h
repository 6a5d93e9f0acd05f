/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hash tables of 64-bit keys and values, and pools of records.
 *
 * A table uses open addressing with linear probing at a load of at most one half, and closes the
 * gap of a deleted key, so its size follows the number of keys that are present at once and not
 * the number of keys ever inserted. A table does not shrink.
 */
#ifndef REPLAY_TABLE_H
#define REPLAY_TABLE_H

#include <xsmmu/needs.h>

struct table_slot {
	u64 key;
	u64 value;
};

/*
 * struct table - a table; zeroed memory is an empty table
 * @slots:	slots; value 0 is an empty slot, so no key has the value 0
 * @lg2:	log2 of the number of slots
 * @count:	number of keys
 */
struct table {
	struct table_slot *slots;
	u32 lg2;
	u64 count;
};

/* Returns the value of @key; 0 if the table does not have @key. */
u64 table_get(const struct table *table, u64 key);

/*
 * Returns where the value of @key is, until the next call. A new key has the value 0, and must get
 * another.
 */
u64 *table_at(struct table *table, u64 key);

/* Deletes @key, if the table has it. */
void table_delete(struct table *table, u64 key);

/*
 * struct pool - records of equal size, numbered from 1; a number is used again, last freed first
 * @records:	the records; moves when the pool grows
 * @bytes:	size of a record, 4 or more
 * @end:	number after the highest number ever used
 * @room:	number of records that fit
 * @freed:	last freed number, whose record begins with the number freed before; 0: none
 * @used:	number of records in use
 */
struct pool {
	void *records;
	size_t bytes;
	u32 end;
	u32 room;
	u32 freed;
	u32 used;
};

#define POOL_OF(type)	((struct pool) { .bytes = sizeof(type), .end = 1 })

/* Returns the record of a number. */
static inline void *pool_at(const struct pool *pool, u32 number)
{
	return (u8 *)pool->records + (size_t)number * pool->bytes;
}

/* Returns the number of a zeroed record. */
u32 pool_take(struct pool *pool);

void pool_put(struct pool *pool, u32 number);

#endif
