// SPDX-License-Identifier: GPL-2.0-only
/*
 * The space against a simple model: a list of taken ranges, searched from the bottom. Sizes go
 * from a block to sizes that no memory could describe block by block.
 */
#include "unit_world.h"

#define LAST		(~0ULL)
#define LOW_BLOCKS	((1ULL << 32) / XS_BLOCK_BYTES)
#define LOW_LEAVES	(LOW_BLOCKS / XS_LEAF_BLOCKS)
#define NEAR_BLOCKS	(1ULL << (XS_NEAR_LG2 - XS_BLOCK_LG2))
#define END_BLOCKS	(XS_SPACE_END / XS_BLOCK_BYTES)
#define TAKEN_MAX	1100
#define TAKEN_SOME	250
#define NONE		(~0ULL)

/* Taken blocks [first, end); @pages: of an extent, 0: one block. */
struct taken {
	u64 first;
	u64 end;
	u64 pages;
	struct xs_block *block;
};

static struct {
	struct xs_space space;
	u64 fails_in;
	u64 allocations;
	u64 low_free;
	u64 low_reserved;
	u32 count;
	u32 reserved;	/* of these, reserved for ever */
	struct taken taken[TAKEN_MAX];
} s;

static void *space_alloc(void *world, size_t bytes, u32 cpu, bool atomic)
{
	(void)world;
	CHECK(cpu == XS_ANY_CPU && (atomic || test_can_sleep()));
	if (s.fails_in && !--s.fails_in)
		return NULL;
	s.allocations++;
	return test_alloc(bytes);
}

static void space_free(void *world, void *memory, size_t bytes)
{
	(void)world;
	(void)bytes;
	if (memory)
		s.allocations--;
	test_free(memory);
}

static const struct xs_backend_ops ops = { .alloc = space_alloc,
					 .free = space_free };

/* ---- the model ---- */

static void model_add(u64 first, u64 end, u64 pages, struct xs_block *block)
{
	if (CHECK(s.count < TAKEN_MAX))
		s.taken[s.count++] = (struct taken){ first, end, pages, block };
}

/* Returns the end of a taken range in [first, end); 0: all is free. */
static u64 model_hit(u64 first, u64 end)
{
	for (u32 i = 0; i < s.count; i++)
		if (first < s.taken[i].end && s.taken[i].first < end)
			return s.taken[i].end;
	return 0;
}

/* Number of free blocks below 4 GiB: taken ranges do not overlap, reserved ranges may. */
static u64 model_low_free(void)
{
	u64 free = 0;

	for (u64 block = 0; block < LOW_BLOCKS;) {
		u64 hit = model_hit(block, block + 1);
		u64 next = LOW_BLOCKS;

		for (u32 i = 0; !hit && i < s.count; i++)
			if (s.taken[i].first > block && s.taken[i].first < next)
				next = s.taken[i].first;
		free += hit ? 0 : next - block;
		block = hit ? hit : next;
	}
	return free;
}

static u64 align_of(u64 count)
{
	u64 align = 1;

	while (align < count)
		align *= 2;
	return align;
}

/* A mapping larger than a leaf uses whole, unused leaves or nodes. */
static u64 model_room(u64 count)
{
	u64 part = 1;

	if (count > XS_LEAF_BLOCKS)
		part = XS_LEAF_BLOCKS;
	while (align_of(count) > part * XS_NODE_CHILDREN &&
	       count > XS_LEAF_BLOCKS)
		part *= XS_NODE_CHILDREN;
	return (count + part - 1) / part * part;
}

static u64 model_find_from(u64 count, u64 from, u64 end)
{
	u64 align = align_of(count), room = model_room(count), hit;
	u64 at = (from + align - 1) / align * align;

	while (at + count <= end) {
		hit = model_hit(at, at + room);
		if (!hit)
			return at;
		if (hit == NONE)
			break;
		at = (hit + align - 1) / align * align;
	}
	return NONE;
}

/* The upper half of the free space below 4 GiB is for devices with that limit. */
static u64 model_find(u64 count, u64 last)
{
	u64 end = last == LAST ? END_BLOCKS : (last + 1) / XS_BLOCK_BYTES;
	u64 found = NONE;

	if (end > s.space.end_block)
		end = s.space.end_block;
	if (end > LOW_BLOCKS && s.low_free < s.low_reserved + count)
		found = model_find_from(count, LOW_BLOCKS, end);
	return found != NONE ? found : model_find_from(count, 0, end);
}

static void model_note_low(void)
{
	s.low_free = model_low_free();
	CHECK(s.space.low_free == s.low_free);
}

/* ---- space and model together ---- */

static bool begin(u64 start, u64 end)
{
	u64 first = (start + XS_BLOCK_BYTES - 1) / XS_BLOCK_BYTES;

	s.fails_in = 0;
	s.count = 0;
	model_add(0, first ? first : 1, 0, NULL);
	model_add(end / XS_BLOCK_BYTES < END_BLOCKS ? end / XS_BLOCK_BYTES :
						      END_BLOCKS,
		  NONE, 0, NULL);
	s.reserved = s.count;
	if (!CHECK(!xs_space_init(&s.space, &ops, NULL, start, end)))
		return false;
	model_note_low();
	s.low_reserved = s.space.end_block > LOW_BLOCKS ? s.low_free / 2 : 0;
	CHECK(s.space.low_reserved == s.low_reserved);
	return true;
}

static void end(void)
{
	xs_space_destroy(&s.space);
	CHECK(!s.allocations);
}

/* Returns whether the reservation succeeded. On failure the space is unchanged. */
static bool reserve(u64 start, u64 last)
{
	if (xs_space_reserve(&s.space, start, last))
		return false;
	model_add(start / XS_BLOCK_BYTES, last / XS_BLOCK_BYTES + 1, 0, NULL);
	s.reserved = s.count;
	model_note_low();
	s.low_reserved = s.space.end_block > LOW_BLOCKS ? s.low_free / 2 : 0;
	return true;
}

/* Returns the block's number, NONE if there is none. */
static u64 take(u64 last)
{
	u64 expected = model_find(1, last);
	xs_flags_t flags = xs_local_save();
	struct xs_block *block = xs_space_alloc_block(&s.space, last);
	u64 got = block ? block->iova / XS_BLOCK_BYTES : NONE;

	xs_local_restore(flags);
	if (!block && s.allocations && expected != NONE)
		return NONE;	/* no memory: the caller checks */
	CHECK(got == expected);
	if (!block)
		return NONE;
	xs_enter();
	CHECK(xs_space_block(&s.space, got << XS_BLOCK_LG2) == block);
	CHECK(block->slots == xs_space_slot(&s.space, got << XS_BLOCK_LG2));
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		CHECK(xs_a64_read(&block->slots[i]) == XS_SLOT_VACANT);
	xs_exit();
	CHECK(!xs_a64_read(&block->free) && block->small);
	model_add(got, got + 1, 0, block);
	s.low_free -= got < LOW_BLOCKS;
	return got;
}

static bool claim_extent(u64 block, u64 in_block, u32 pages)
{
	bool claimed;

	xs_enter();
	claimed = xs_space_claim_extent(&s.space,
					block * XS_BLOCK_BYTES + in_block, pages);
	xs_exit();
	return claimed;
}

static u64 alloc_extent_of(u32 pages, u64 last)
{
	u64 blocks = ((u64)pages + XS_BLOCK_PAGES - 1) / XS_BLOCK_PAGES;
	u64 expected = model_find(blocks, last);
	xs_flags_t flags = xs_local_save();
	u64 iova = xs_space_alloc_extent(&s.space, pages, last);
	u64 got = iova ? iova / XS_BLOCK_BYTES : NONE;

	xs_local_restore(flags);
	if (!iova && expected != NONE)
		return NONE;
	CHECK(got == expected && iova % XS_BLOCK_BYTES == 0);
	if (!iova)
		return NONE;
	CHECK(!claim_extent(got, 0, pages));
	xs_enter();
	xs_space_publish_extent(&s.space, iova >> XS_PAGE_LG2, pages);
	xs_exit();
	model_add(got, got + blocks, pages, NULL);
	model_note_low();
	return got;
}

static void give(u32 at)
{
	struct taken taken = s.taken[at];
	xs_flags_t flags;

	if (taken.pages) {
		CHECK(!claim_extent(taken.first, 0, (u32)taken.pages + 1));
		CHECK(!claim_extent(taken.first, 0, (u32)taken.pages - 1));
		CHECK(!claim_extent(taken.first, 4096, (u32)taken.pages));
		CHECK(!claim_extent(taken.first + 1, 0, (u32)taken.pages));
		CHECK(claim_extent(taken.first, 0, (u32)taken.pages));
		CHECK(!claim_extent(taken.first, 0, (u32)taken.pages));
	}
	flags = xs_local_save();
	if (taken.block)
		xs_space_free_blocks(&s.space, &taken.block, 1);
	else
		xs_space_free_extent(&s.space, taken.first * XS_BLOCK_BYTES,
				     (u32)taken.pages);
	xs_local_restore(flags);
	s.taken[at] = s.taken[--s.count];
	model_note_low();
}

/* The leaves: as many as counted, and none without need. */
static void check_leaves(bool trimmed)
{
	struct xs_leaf *leaf;
	u64 page = 0, leaves = 0;

	while ((leaf = xs_tree_next_leaf(&s.space.tree, &page))) {
		u64 first = page / XS_BLOCK_PAGES;

		xs_enter();
		CHECK(xs_tree_leaf(&s.space.tree, page) == leaf);
		CHECK(page % XS_LEAF_PAGES == 0);
		CHECK(!trimmed || model_hit(first, first + XS_LEAF_BLOCKS));
		for (u32 i = 0; i < XS_LEAF_BLOCKS; i++)
			CHECK(leaf->blocks[i].iova ==
			      (first + i) * XS_BLOCK_BYTES);
		xs_exit();
		leaves++;
		page += XS_LEAF_PAGES;
	}
	CHECK(leaves == s.space.tree.leaves);
}

static void trim(void)
{
	static struct xs_detached detached[XS_DETACH_MAX];
	u64 from = 0;
	u32 count;

	while ((count = xs_space_detach(&s.space, &from, detached))) {
		CHECK(count <= XS_DETACH_MAX);
		/* Nobody can take or find detached leaves meanwhile. */
		for (u32 i = 0; i < count; i++) {
			u64 page = detached[i].block * XS_BLOCK_PAGES;

			xs_enter();
			CHECK(!xs_tree_leaf(&s.space.tree, page));
			CHECK(!xs_space_slot(&s.space, page));
			xs_exit();
		}
		xs_space_free_leaves(&s.space, detached, count);
	}
	model_note_low();
	check_leaves(!s.space.empty_min);
}

/* ---- single cases ---- */

static void bad_ranges(void)
{
	CHECK(xs_space_init(&s.space, &ops, NULL, 0, XS_BLOCK_BYTES) ==
	      -XS_EINVAL);
	CHECK(xs_space_init(&s.space, &ops, NULL, 1, 2 * XS_BLOCK_BYTES - 1) ==
	      -XS_EINVAL);
	CHECK(xs_space_init(&s.space, &ops, NULL, 8 * XS_BLOCK_BYTES,
			    8 * XS_BLOCK_BYTES) == -XS_EINVAL);
	CHECK(xs_space_init(&s.space, &ops, NULL, XS_SPACE_END, LAST) ==
	      -XS_EINVAL);
	CHECK(!s.allocations);
}

static void rounding(void)
{
	/* Rounded inwards: block 3 is the first whole block, block 8 the last. */
	if (!begin(2 * XS_BLOCK_BYTES + 1, 10 * XS_BLOCK_BYTES - 1))
		return;
	CHECK(take(LAST) == 3);
	for (u32 block = 4; block < 9; block++)
		CHECK(take(LAST) == block);
	CHECK(take(LAST) == NONE);
	CHECK(alloc_extent_of(0, LAST) == NONE);
	CHECK(alloc_extent_of(~0u, LAST) == NONE);
	end();
}

/*
 *     block  1 2 3 4 5 6 7 8
 *            . R R . . R . .
 */
static void reserved(void)
{
	if (!begin(0, 9 * XS_BLOCK_BYTES))
		return;
	CHECK(reserve(3 * XS_BLOCK_BYTES - 1, 3 * XS_BLOCK_BYTES));
	CHECK(reserve(6 * XS_BLOCK_BYTES, 6 * XS_BLOCK_BYTES));
	CHECK(reserve(9 * XS_BLOCK_BYTES, LAST));
	CHECK(alloc_extent_of(128, LAST) == 4);
	CHECK(alloc_extent_of(65, LAST) == NONE);
	CHECK(take(LAST) == 1);
	CHECK(take(7 * XS_BLOCK_BYTES - 1) == NONE);
	CHECK(take(8 * XS_BLOCK_BYTES - 2) == NONE);
	CHECK(take(8 * XS_BLOCK_BYTES - 1) == 7);
	CHECK(take(LAST) == 8);
	CHECK(take(LAST) == NONE);
	CHECK(s.space.taken == 3);
	end();
}

/* A reservation inside a reservation needs no leaf. */
static void reserved_twice(void)
{
	u64 leaves;

	if (!begin(0, 1ULL << 34))
		return;
	CHECK(reserve(1ULL << 32, (1ULL << 33) - 1));
	leaves = s.space.tree.leaves;
	for (u64 at = 1ULL << 32; at < 1ULL << 33; at += 64 * XS_BLOCK_BYTES)
		CHECK(reserve(at, at + XS_PAGE_BYTES - 1));
	CHECK(s.space.tree.leaves == leaves && !s.space.tree.empty);
	end();
}

/* The whole space: the last block ends at XS_SPACE_END. */
static void all_of_it(void)
{
	if (!begin(0, LAST))
		return;
	CHECK(s.space.end_block == END_BLOCKS);
	CHECK(reserve(XS_BLOCK_BYTES, XS_SPACE_END - 3 * XS_BLOCK_BYTES - 1));
	CHECK(alloc_extent_of(128, LAST) == END_BLOCKS - 2);
	CHECK(take(LAST) == END_BLOCKS - 3);
	CHECK(take(LAST) == NONE);
	xs_enter();
	CHECK(!xs_tree_leaf(&s.space.tree, XS_SPACE_END >> XS_PAGE_LG2));
	CHECK(!xs_tree_leaf(&s.space.tree, LAST >> XS_PAGE_LG2));
	CHECK(!xs_space_block(&s.space, 1ULL << 35));
	xs_exit();
	end();
}

/* The upper half of the lowest 4 GiB is reserved for devices that can use nothing else. */
static void low_is_reserved(void)
{
	u64 start = (1ULL << 32) - 20 * XS_BLOCK_BYTES;

	if (!begin(start, (1ULL << 32) + 40 * XS_BLOCK_BYTES))
		return;
	for (u32 i = 0; i < 50; i++)
		CHECK(take(LAST) != NONE);
	CHECK(s.space.low_free == 10);
	CHECK(take((1ULL << 32) - 1) == LOW_BLOCKS - 10);
	/* When nothing else is left, all devices get the space. */
	for (u32 i = 0; i < 9; i++)
		CHECK(take(LAST) < LOW_BLOCKS);
	CHECK(take(LAST) == NONE);
	end();
}

/* The same for all 4 GiB, which need fewer leaves with larger pages. */
static void low_is_half(void)
{
	u64 low = 0, count = 0;

	if (!begin(0, (1ULL << 32) + (1ULL << 28)))
		return;
	CHECK(s.space.low_free == LOW_BLOCKS - 1);
	for (; count < LOW_LEAVES / 2 + LOW_LEAVES / 16; count++)
		low += alloc_extent_of(XS_LEAF_PAGES, LAST) < LOW_BLOCKS;
	CHECK(low == LOW_LEAVES / 2);
	CHECK(s.space.low_free == LOW_BLOCKS / 2 - 1);
	for (; count < LOW_LEAVES + LOW_LEAVES / 16 - 1; count++)
		CHECK(alloc_extent_of(XS_LEAF_PAGES, (1ULL << 32) - 1) < LOW_BLOCKS);
	CHECK(alloc_extent_of(XS_LEAF_PAGES, LAST) == NONE);
	CHECK(s.space.low_free == XS_LEAF_BLOCKS - 1);
	end();
}

/* An extent that fits only in the last leaf below 4 GiB is found after a search of all leaves. */
static void many_looks(void)
{
	if (!begin(0, 1ULL << 32))
		return;
	CHECK(alloc_extent_of(2 * XS_BLOCK_PAGES, LAST) == 2);
	CHECK(alloc_extent_of(4 * XS_BLOCK_PAGES, LAST) == 4);
	CHECK(alloc_extent_of(8 * XS_BLOCK_PAGES, LAST) == 8);
	for (u64 leaf = 1; leaf < LOW_LEAVES; leaf++) {
		u32 blocks = leaf < LOW_LEAVES - 1 ? 15 : 9;
		xs_flags_t flags = xs_local_save();
		u64 iova = xs_space_alloc_extent(&s.space, blocks * XS_BLOCK_PAGES,
						 LAST);

		xs_local_restore(flags);
		CHECK(iova == leaf * XS_LEAF_BLOCKS * XS_BLOCK_BYTES);
		model_add(leaf * XS_LEAF_BLOCKS,
			  leaf * XS_LEAF_BLOCKS + blocks, 0, NULL);
	}
	CHECK(alloc_extent_of(4 * XS_BLOCK_PAGES, LAST) == LOW_BLOCKS - 4);
	end();
}

/*
 * After that many leaves, the search considers only unused leaves: room in a later used leaf is
 * missed, but the search ends and finds unused leaves.
 */
static void too_many_looks(void)
{
	if (!begin(NEAR_BLOCKS * XS_BLOCK_BYTES, 4 * NEAR_BLOCKS * XS_BLOCK_BYTES))
		return;
	for (u32 i = 0; i < XS_NODE_CHILDREN + 40; i++) {
		xs_flags_t flags = xs_local_save();

		CHECK(xs_space_alloc_extent(&s.space, XS_BLOCK_PAGES *
					    (i < XS_NODE_CHILDREN ? 15 : 9), LAST));
		xs_local_restore(flags);
	}
	for (u32 i = 0; i < 2; i++) {
		xs_flags_t flags = xs_local_save();
		u64 end = (2 * NEAR_BLOCKS + (i ? 999 : 40) * XS_LEAF_BLOCKS) *
			  XS_BLOCK_BYTES;

		CHECK(!xs_space_alloc_extent(&s.space, 4 * XS_BLOCK_PAGES,
					     end - 1) == !i);
		xs_local_restore(flags);
	}
	end();
}

/* ---- no memory ---- */

static void no_memory_at_init(void)
{
	u64 n = 1;

	for (; n < 20; n++) {
		s.fails_in = n;
		if (!xs_space_init(&s.space, &ops, NULL,
				   (1ULL << 45) + 5 * XS_BLOCK_BYTES,
				   (1ULL << 45) + (1ULL << 33) +
				   3 * XS_BLOCK_BYTES))
			break;
		CHECK(!s.allocations);
	}
	CHECK(n > 5 && n < 20);
	end();
}

/* Without memory, nothing is taken; a later take succeeds. */
static void no_memory(void)
{
	static const u32 pages[] = { 1, 65, 17 * 64, 1 << 20, (1 << 20) + 1 };

	u64 failures = 0;

	for (u32 i = 0; i < 5; i++) {
		u64 n = 1, got = NONE;

		if (!begin((1ULL << 40) - XS_BLOCK_BYTES, 1ULL << 45))
			return;
		CHECK(reserve(1ULL << 40, (1ULL << 40) + XS_BLOCK_BYTES));
		for (; got == NONE && n < 20; n++) {
			s.fails_in = n;
			got = pages[i] > 1 ? alloc_extent_of(pages[i], LAST) :
					     take(LAST);
			model_note_low();
			check_leaves(false);
		}
		failures += n - 2;
		s.fails_in = 0;
		give(s.count - 1);
		CHECK(take(LAST) == (1ULL << 40) / XS_BLOCK_BYTES - 1);
		end();
	}
	CHECK(failures > 5);
}

static void no_memory_to_reserve(void)
{
	u64 n = 1;
	bool done = false;

	if (!begin(0, 1ULL << 48))
		return;
	for (; !done && n < 20; n++) {
		s.fails_in = n;
		done = reserve((1ULL << 41) + XS_BLOCK_BYTES,
			       (1ULL << 47) + XS_BLOCK_BYTES);
		model_note_low();
	}
	CHECK(n > 3 && n < 20);
	CHECK(take(LAST) == 1);
	end();
}

/* ---- against the model ---- */

static u32 some_pages(u64 *random)
{
	switch (test_below(random, 8)) {
	case 0:
		return 1 + test_below(random, 3 * XS_LEAF_PAGES);
	case 1:
		return (1u << test_below(random, 32)) +
		       test_below(random, 200) - 100;
	case 2:
		return (1 + test_below(random, 16)) << XS_LEAF_LG2;
	case 3:
		return (1 + test_below(random, 3)) << XS_NEAR_LG2;
	}
	return 65 + test_below(random, 16 * XS_BLOCK_PAGES);
}

static u64 some_last(u64 *random)
{
	switch (test_below(random, 6)) {
	case 0:
		return (1ULL << 32) - 1;
	case 1:
		return s.space.first_block * XS_BLOCK_BYTES +
		       test_below(random, 1u << 30);
	case 2:
		return (1ULL << (20 + test_below(random, 44))) - 1 +
		       test_below(random, 3);
	}
	return LAST;
}

static bool begin_some(u64 *random)
{
	static const struct {
		u64 start, end;
	} rows[] = {
		{ 0, 150 * XS_BLOCK_BYTES },
		{ 0, 1ULL << 32 },
		{ 0, LAST },
		{ (1ULL << 32) - 99 * XS_BLOCK_BYTES,
		  (1ULL << 32) + 99 * XS_BLOCK_BYTES },
		{ 1ULL << 32, 1ULL << 48 },
		{ (1ULL << 45) + 12345678, 1ULL << 46 },
		{ NEAR_BLOCKS * XS_BLOCK_BYTES - 70 * XS_BLOCK_BYTES,
		  NEAR_BLOCKS * XS_BLOCK_BYTES + 70 * XS_BLOCK_BYTES },
		{ XS_SPACE_END - 99 * XS_BLOCK_BYTES, LAST },
		{ (1ULL << 42) - 5 * XS_BLOCK_BYTES, 1ULL << 50 },
	};
	u32 row = test_below(random, sizeof(rows) / sizeof(rows[0]));
	u32 reserves = test_below(random, 6);

	if (!begin(rows[row].start, rows[row].end))
		return false;
	s.space.empty_min = test_below(random, 3);
	while (reserves--) {
		u64 start = rows[row].start +
			    (test_random(random) >>
			     (12 + test_below(random, 40)));
		u64 size = test_random(random) >> (12 + test_below(random, 40));

		CHECK(reserve(start, test_below(random, 9) ? start + size :
							     LAST));
	}
	return true;
}

static void against_model_seed(u64 seed)
{
	u64 random = seed;
	u32 bias = 50;

	test_replay(seed, 0);
	if (!begin_some(&random))
		return;
	for (u32 step = 0; step < 400 && !test_failed(); step++) {
		u32 what = test_below(&random, 100);

		test_replay(seed, step);
		if (step % 50 == 0)
			bias = 25 + test_below(&random, 60);
		if (what < 5)
			trim();
		else if (what < bias && s.count < TAKEN_SOME &&
			 test_below(&random, 2))
			take(some_last(&random));
		else if (what < bias && s.count < TAKEN_SOME)
			alloc_extent_of(some_pages(&random), some_last(&random));
		else if (s.count > s.reserved)
			give(s.reserved + test_below(&random,
						     s.count - s.reserved));
	}
	while (s.count > s.reserved && !test_failed())
		give(s.count - 1);
	CHECK(!s.space.taken);
	s.space.empty_min = 0;
	trim();
	end();
}

static void against_model(void)
{
	test_seeds(200, against_model_seed);
}

/*
 * A trim scans a bounded number of leaves at a time; leaves that become empty behind the scan
 * form a surplus that the trim sees at the end.
 */
static void emptied_behind(void)
{
	static struct xs_detached detached[XS_DETACH_MAX];
	static u64 runs[800];
	u64 from = 0;
	xs_flags_t flags;
	u32 count;

	if (!begin(NEAR_BLOCKS * XS_BLOCK_BYTES, 2 * NEAR_BLOCKS * XS_BLOCK_BYTES))
		return;
	flags = xs_local_save();
	for (u32 i = 0; i < 800; i++)
		runs[i] = xs_space_alloc_extent(&s.space, XS_LEAF_PAGES, LAST);
	for (u32 i = 300; i < 800; i++)
		xs_space_free_extent(&s.space, runs[i], XS_LEAF_PAGES);
	xs_local_restore(flags);
	CHECK(s.space.surplus);
	CHECK(!xs_space_detach(&s.space, &from, detached));
	CHECK(from && from < NEAR_BLOCKS * XS_BLOCK_PAGES + 300 * XS_LEAF_PAGES);
	while (from < XS_SPACE_PAGES) {
		count = xs_space_detach(&s.space, &from, detached);
		xs_space_free_leaves(&s.space, detached, count);
	}
	CHECK(s.space.tree.empty == s.space.empty_min);
	flags = xs_local_save();
	for (u32 i = 0; i < 300; i++)
		xs_space_free_extent(&s.space, runs[i], XS_LEAF_PAGES);
	xs_local_restore(flags);
	CHECK(xs_space_end_trim(&s.space, true) && s.space.surplus);
	for (from = 0; from < XS_SPACE_PAGES;) {
		count = xs_space_detach(&s.space, &from, detached);
		xs_space_free_leaves(&s.space, detached, count);
	}
	CHECK(!xs_space_end_trim(&s.space, true) && !s.space.surplus);
	end();
}

const struct test space_tests[] = {
	{ "space_bad_ranges", bad_ranges },
	{ "space_rounding", rounding },
	{ "space_reserved", reserved },
	{ "space_reserved_twice", reserved_twice },
	{ "space_all_of_it", all_of_it },
	{ "space_low_is_reserved", low_is_reserved },
	{ "space_low_is_half", low_is_half },
	{ "space_many_looks", many_looks },
	{ "space_too_many_looks", too_many_looks },
	{ "space_no_memory_at_init", no_memory_at_init },
	{ "space_no_memory", no_memory },
	{ "space_no_memory_to_reserve", no_memory_to_reserve },
	{ "space_emptied_behind", emptied_behind },
	{ "space_against_model", against_model },
	{ NULL, NULL },
};
