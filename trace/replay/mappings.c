// SPDX-License-Identifier: GPL-2.0-only
/* See mappings.h. */
#include "mappings.h"
#include "replay.h"
#include "table.h"

static struct pool mappings;
static struct table by_address;

void mappings_init(void)
{
	mappings = POOL_OF(struct mapping);
}

/* Recorded addresses have less than 64 bits, and the low bits of different devices' differ. */
static u64 key_of(u32 device, u64 address)
{
	return address ^ (u64)device << 48 ^ (u64)device * 0x9e3779b97f4a7c15ULL;
}

struct mapping *mapping_at(u32 number)
{
	return pool_at(&mappings, number);
}

u32 mapping_new(u32 device, u64 address, u64 bytes, enum mapping_kind kind)
{
	u32 number = pool_take(&mappings);
	struct mapping *mapping = mapping_at(number);

	mapping->key = key_of(device, address);
	mapping->address = address;
	mapping->bytes = bytes;
	mapping->ns = replay.now_ns;
	mapping->device = (u16)device;
	mapping->cpu = (u16)running_cpu;
	mapping->kind = (u8)kind;
	return number;
}

void mapping_add(u32 number)
{
	struct mapping *mapping = mapping_at(number);
	u64 *first = table_at(&by_address, mapping->key);

	mapping->found = true;
	mapping->next = (u32)*first;
	*first = number;
}

u32 mapping_find(u32 device, u64 address, u64 bytes, u32 kinds)
{
	u32 number = (u32)table_get(&by_address, key_of(device, address));
	u32 found = 0;

	for (; number; number = mapping_at(number)->next) {
		const struct mapping *mapping = mapping_at(number);

		if (!(kinds & 1u << mapping->kind) || mapping->device != device ||
		    mapping->address != address)
			continue;
		if (mapping->bytes == bytes)
			return number;
		if (!found)
			found = number;
	}
	return found;
}

static void unlink(u32 number)
{
	const struct mapping *mapping = mapping_at(number);
	u64 *first = table_at(&by_address, mapping->key);
	u32 at = (u32)*first;

	if (at != number) {
		while (mapping_at(at)->next != number)
			at = mapping_at(at)->next;
		mapping_at(at)->next = mapping->next;
	} else if (mapping->next) {
		*first = mapping->next;
	} else {
		table_delete(&by_address, mapping->key);
	}
}

void mapping_drop_rest(u32 number)
{
	u32 at = mapping_at(number)->rest;

	mapping_at(number)->rest = 0;
	while (at) {
		u32 rest = mapping_at(at)->rest;

		pool_put(&mappings, at);
		at = rest;
	}
}

void mapping_drop(u32 number)
{
	unlink(number);
	mapping_at(number)->found = false;
	mapping_drop_rest(number);
	pool_put(&mappings, number);
}

u32 mapping_after(u32 number)
{
	while (++number < mappings.end)
		if (mapping_at(number)->found)
			return number;
	return 0;
}
