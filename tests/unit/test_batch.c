// SPDX-License-Identifier: GPL-2.0-only
/* Sort and join against brute force: what is covered, by how many commands. */
#include <xsmmu/batch.h>

#include "harness.h"

#define BLOCKS	12	/* of the exhaustive test */

static struct {
	struct xs_entry entries[XS_BATCH_ENTRIES];
	u32 model[4 * XS_BATCH_ENTRIES];	/* entries by block */
	struct xs_range ranges[64];
} b;

static void sorts_seed(u64 seed)
{
	u64 random = seed;
	u32 count = test_below(&random, XS_BATCH_ENTRIES + 1);
	const u32 blocks = sizeof(b.model) / sizeof(b.model[0]);

	test_replay(seed, 0);
	for (u32 i = 0; i < blocks; i++)
		b.model[i] = 0;
	for (u32 i = 0; i < count; i++) {
		u32 block = seed & 1 ? test_below(&random, blocks) : i % 90;

		b.entries[i] = (struct xs_entry){ .block = block,
						  .mask = block + 1,
						  .oldest_ns = block + 2 };
		b.model[block]++;
	}
	xs_batch_sort(b.entries, count);
	for (u32 i = 0; i < count; i++) {
		const struct xs_entry *entry = &b.entries[i];

		CHECK(!i || entry[-1].block <= entry->block);
		CHECK(entry->mask == entry->block + 1 &&
		      entry->oldest_ns == entry->block + 2);
		b.model[entry->block]--;
	}
	for (u32 i = 0; i < blocks; i++)
		CHECK(!b.model[i]);
}

static void sorts(void)
{
	test_seeds(300, sorts_seed);
}

/* The fewest aligned power-of-two ranges that cover exactly the blocks of @set. */
static u32 fewest(u32 set, u32 first, u32 blocks)
{
	u32 mask = (u32)((1ULL << blocks) - 1) << first;
	u32 half = blocks / 2;

	if (!(set & mask))
		return 0;
	if ((set & mask) == mask)
		return 1;
	return fewest(set, first, half) + fewest(set, first + half, half);
}

static u32 entries_of(u32 set, u32 first, u32 empty)
{
	u32 count = 0;

	for (u32 block = 0; block < 32; block++) {
		if (!((set | empty) >> block & 1))
			continue;
		b.entries[count].block = first + block;
		b.entries[count++].mask = set >> block & 1 ? 1ULL << block : 0;
	}
	return count;
}

/* Aligned powers of two that cover @set, and no block twice. */
static void check_cover(u32 set, u32 first, u32 found)
{
	u32 covered = 0;

	for (u32 i = 0; i < found; i++) {
		u64 page = b.ranges[i].page, pages = b.ranges[i].pages;
		u64 block = (page >> XS_BLOCK_LG2) - first;

		CHECK(pages >= XS_BLOCK_PAGES && !(pages & (pages - 1)));
		CHECK(!(page & (pages - 1)));
		for (u64 end = block + (pages >> XS_BLOCK_LG2); block < end;
		     block++) {
			if (!CHECK(block < 32) ||
			    !CHECK(!(covered >> block & 1)))
				return;
			covered |= 1u << block;
		}
	}
	CHECK(covered == set);
}

static void check_ranges(u32 set, u32 first, u32 empty, u32 max)
{
	u32 count = entries_of(set, first, empty);
	u32 least = fewest(set, 0, 32);
	u32 found = xs_batch_ranges(b.entries, count, b.ranges, max);

	/* Halves wait for each other: at most one of each size on the way. */
	if (found == max + 1) {
		CHECK(least + 4 > max);
		return;
	}
	CHECK(found == least && found <= max);
	check_cover(set, first, found);
}

/* Every set of a few blocks, with others that have nothing to sync between. */
static void ranges_of_all_sets(void)
{
	for (u32 set = 0; set < 1u << BLOCKS; set++) {
		for (u32 max = 1; max <= 7; max++)
			check_ranges(set, 32, 0, max);
		check_ranges(set, 64, ~set & 0x5555, XS_BATCH_ENTRIES / 8);
	}
}

static void ranges_seed(u64 seed)
{
	u64 random = seed;
	u32 set = (u32)test_random(&random);

	test_replay(seed, 0);
	if (seed & 1)
		set |= (u32)test_random(&random);
	if (seed & 2)
		set |= 0xffffu << test_below(&random, 32);
	check_ranges(set, 32 * test_below(&random, 4000),
		     (u32)test_random(&random), 1 + test_below(&random, 32));
}

static void ranges_of_random_sets(void)
{
	test_seeds(5000, ranges_seed);
}

/* A block is batched once more: its pages still count once each. */
static void full(void)
{
	struct xs_block *blocks = test_alloc(300 * sizeof(*blocks));
	struct xs_batch *batch = test_alloc(sizeof(*batch));
	struct xs_space space = { .blocks = blocks };

	for (u32 limit = 1; limit <= 1024; limit += 1 + limit / 3) {
		u32 pages = 0;

		batch->count = 0;
		for (u32 i = 0; i < XS_BATCH_ENTRIES; i++) {
			u64 dead = i % 3 ? ~0ULL : 0xf;

			xs_a64_set(&blocks[i].dead, dead);
			xs_batch_add(batch, i, 5 + i);
			pages += xs_popcount(dead);
			CHECK(batch->oldest_ns == 5);
			if (xs_batch_full(batch, &space, limit))
				break;
			CHECK(pages < limit);
		}
		CHECK(pages >= limit && pages < limit + 2 * XS_BLOCK_PAGES);
	}
	test_free(blocks);
	test_free(batch);
}

const struct test batch_tests[] = {
	{ "batch_sorts", sorts },
	{ "batch_ranges_of_all_sets", ranges_of_all_sets },
	{ "batch_ranges_of_random_sets", ranges_of_random_sets },
	{ "batch_full", full },
	{ NULL, NULL },
};
