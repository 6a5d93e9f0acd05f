// SPDX-License-Identifier: GPL-2.0-only
/* See numbers.h. */
#include "check_world.h"
#include "numbers.h"
#include "replay.h"
#include "table.h"

/* Block 0 is no block, as page 0 is no page to checkers. */
#define BLOCKS	(SIM_PAGES / XS_BLOCK_PAGES)

/* @taken: by block, whether it has a real block; @used: its pages in use. */
static struct {
	struct table blocks;
	bool taken[BLOCKS];
	u32 used[BLOCKS];
	u32 end;
	u32 next;
	u32 expected;
	u32 window;
	u64 last_block;
	u32 last;
} numbers;

void numbers_init(u32 window)
{
	numbers.window = window;
	numbers.end = window ? window / XS_BLOCK_PAGES : BLOCKS;
	numbers.next = 1;
	numbers.expected = 1;
}

void numbers_expect(u32 pages)
{
	numbers.expected = (pages + XS_BLOCK_PAGES - 1) / XS_BLOCK_PAGES;
}

static bool is_free(u32 first, u32 count)
{
	if (first + count > numbers.end)
		return false;
	for (u32 i = 0; i < count; i++)
		if (numbers.taken[first + i])
			return false;
	return true;
}

/* Returns the first of @count free blocks in a row. */
static u32 find(u32 count)
{
	for (u32 tries = 0; tries < numbers.end; tries++) {
		u32 at = numbers.next;

		numbers.next = at + 1 < numbers.end ? at + 1 : 1;
		if (is_free(at, count))
			return at;
	}
	replay_stop("more than %u IOVA pages are in use at once, too many for the checkers: replay without --check",
		    numbers.end * (u32)XS_BLOCK_PAGES);
}

/* Returns the number of a block; 0 if it has none. */
static u32 block_number(u64 block)
{
	if (numbers.last && numbers.last_block == block)
		return numbers.last;
	numbers.last_block = block;
	numbers.last = (u32)table_get(&numbers.blocks, block);
	return numbers.last;
}

u32 number_in_window(u32 folio)
{
	if (folio >= SIM_PAGES - numbers.window)
		replay_stop("more than %u buffers are in use at once, too many for the checkers: replay without --check",
			    SIM_PAGES - numbers.window);
	return numbers.window + folio;
}

u32 number_of(u64 page, u32 folio)
{
	u32 block;

	if (folio)
		return number_in_window(folio);
	block = block_number(page / XS_BLOCK_PAGES);
	return block ? block * (u32)XS_BLOCK_PAGES + (u32)(page % XS_BLOCK_PAGES) : 0;
}

u32 numbers_use(u64 page, u32 pages)
{
	u64 block = page / XS_BLOCK_PAGES;
	u32 first = block_number(block);

	if (!first) {
		u32 count = numbers.expected ? numbers.expected : 1;

		first = find(count);
		for (u32 i = 0; i < count; i++) {
			numbers.taken[first + i] = true;
			*table_at(&numbers.blocks, block + i) = first + i;
		}
		numbers.last = 0;
	}
	numbers.used[first] += pages;
	return first * (u32)XS_BLOCK_PAGES + (u32)(page % XS_BLOCK_PAGES);
}

void numbers_end(u64 page, u32 pages)
{
	u32 block = block_number(page / XS_BLOCK_PAGES);

	numbers.used[block] -= pages;
	if (numbers.used[block])
		return;
	numbers.taken[block] = false;
	table_delete(&numbers.blocks, page / XS_BLOCK_PAGES);
	numbers.last = 0;
}
