// SPDX-License-Identifier: GPL-2.0-only
/* The engine's memory and the state of its lines; see arena.h. */
#include <string.h>
#include <sys/mman.h>

#include "arena.h"

/* Larger allocations are fresh pages: zeroed long ago, and in no CPU's cache. */
#define SMALL_BYTES	4096

/* Freed memory by size, last freed first. */
#define SIZES		64

struct freed {
	struct freed *next;
};

static struct {
	size_t bytes;
	struct freed *list;
} sizes[SIZES];

u8 *arena_base;
static struct line *lines;
static u64 end, used;

static void *reserve(u64 bytes)
{
	void *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (got == MAP_FAILED)
		scale_fail("no address space for the engine's memory");
	return got;
}

void arena_init(void)
{
	arena_base = reserve(ARENA_BYTES);
	lines = reserve((ARENA_BYTES >> LINE_LG2) * sizeof(*lines));
}

struct line *arena_line(u64 address)
{
	return &lines[(address - (u64)arena_base) >> LINE_LG2];
}

static struct freed **list_of(size_t bytes)
{
	for (u32 i = 0; i < SIZES; i++) {
		if (!sizes[i].bytes)
			sizes[i].bytes = bytes;
		if (sizes[i].bytes == bytes)
			return &sizes[i].list;
	}
	scale_fail("the engine allocates too many sizes: raise SIZES");
}

static size_t rounded(size_t bytes)
{
	return (bytes + LINE_BYTES - 1) & ~(size_t)(LINE_BYTES - 1);
}

void *arena_alloc(size_t bytes)
{
	struct freed **list;
	u8 *got;

	bytes = rounded(bytes);
	list = list_of(bytes);
	got = (u8 *)*list;
	if (got) {
		*list = (*list)->next;
		memset(got, 0, bytes);
	} else {
		got = arena_base + end;
		end += bytes;
		if (end > ARENA_BYTES)
			scale_fail("the engine uses more memory than there is");
	}
	used += bytes;
	for (size_t at = 0; bytes <= SMALL_BYTES && at < bytes; at += LINE_BYTES)
		*arena_line((u64)(got + at)) = (struct line) { 1ULL << scale_cpu, true };
	return got;
}

void arena_free(void *memory, size_t bytes)
{
	struct freed *freed = memory;
	struct freed **list;

	if (!memory)
		return;
	bytes = rounded(bytes);
	for (size_t at = 0; at < bytes; at += LINE_BYTES)
		*arena_line((u64)memory + at) = (struct line) { 0, false };
	list = list_of(bytes);
	freed->next = *list;
	*list = freed;
	used -= bytes;
}

u64 arena_used(void)
{
	return used;
}
