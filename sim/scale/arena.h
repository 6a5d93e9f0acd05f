/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The engine's memory: one range of addresses, so that the line of each byte is
 * found by a shift. All of it starts on a line.
 */
#ifndef SCALE_ARENA_H
#define SCALE_ARENA_H

#include "line.h"

#define ARENA_BYTES	(1ULL << 35)

extern u8 *arena_base;

void arena_init(void);

/* Zeroed. What is small is in the cache of the CPU that has zeroed it. */
void *arena_alloc(size_t bytes);
void arena_free(void *memory, size_t bytes);

/* Bytes that are allocated now. */
u64 arena_used(void);

static inline bool arena_has(u64 address)
{
	return address - (u64)arena_base < ARENA_BYTES;
}

/* The line of an address of the arena. */
struct line *arena_line(u64 address);

#endif
