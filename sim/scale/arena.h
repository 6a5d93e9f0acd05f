/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The engine's memory: one range of addresses, so that a shift finds the line of each byte.
 * Every allocation starts on a line.
 */
#ifndef SCALE_ARENA_H
#define SCALE_ARENA_H

#include "line.h"

#define ARENA_BYTES	(1ULL << 35)

extern u8 *arena_base;

void arena_init(void);

/* Zeroed. A small allocation is in the cache of the allocating CPU. */
void *arena_alloc(size_t bytes);
void arena_free(void *memory, size_t bytes);

/* Bytes allocated now. */
u64 arena_used(void);

static inline bool arena_has(u64 address)
{
	return address - (u64)arena_base < ARENA_BYTES;
}

/* Returns the line of an address of the arena. */
struct line *arena_line(u64 address);

#endif
