// SPDX-License-Identifier: GPL-2.0-only
/* The range allocator against a dumb one: a byte per block, first fit. */
#include "world.h"

#define END_BLOCK	150

static struct {
	struct xs_space space;
	bool used[END_BLOCK];
	u64 leaves;
	u64 fails_in;
	u64 allocations;
} s;

static void *space_alloc(void *world, size_t bytes, bool atomic)
{
	(void)world;
	(void)atomic;
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

static const struct xs_world_ops ops = { .alloc = space_alloc,
					 .free = space_free };

static u32 take(u32 count, u32 limit)
{
	xs_flags_t flags = xs_local_save();
	u32 block = xs_space_take(&s.space, count, limit);

	xs_local_restore(flags);
	return block;
}

static void give(u32 block)
{
	xs_flags_t flags = xs_local_save();

	xs_space_give(&s.space, block);
	xs_local_restore(flags);
}

static bool begin(u64 start, u64 end)
{
	s.fails_in = 0;
	for (u32 i = 0; i < END_BLOCK; i++)
		s.used[i] = i * XS_BLOCK_BYTES < start || !i ||
			    (i + 1) * XS_BLOCK_BYTES > end;
	return CHECK(!xs_space_init(&s.space, &ops, NULL, start, end));
}

static void end(void)
{
	xs_space_destroy(&s.space);
	CHECK(!s.allocations);
}

/* First fit from the bottom, aligned to the next power of two of @count. */
static u32 model_take(u32 count, u32 limit)
{
	u32 align = 1;

	while (align < count)
		align *= 2;
	for (u32 block = 0; block + count <= limit && block + count <= END_BLOCK;
	     block += align) {
		u32 run = 0;

		while (run < count && !s.used[block + run])
			run++;
		if (run < count)
			continue;
		for (u32 i = 0; i < count; i++)
			s.used[block + i] = true;
		return block;
	}
	return XS_NO_BLOCK;
}

static void model_give(u32 block)
{
	CHECK(s.used[block]);
	s.used[block] = false;
}

static void bad_ranges(void)
{
	CHECK(xs_space_init(&s.space, &ops, NULL, 0, XS_BLOCK_BYTES) ==
	      -XS_EINVAL);
	CHECK(xs_space_init(&s.space, &ops, NULL, 1, 2 * XS_BLOCK_BYTES - 1) ==
	      -XS_EINVAL);
	CHECK(xs_space_init(&s.space, &ops, NULL, 8 * XS_BLOCK_BYTES,
			    8 * XS_BLOCK_BYTES) == -XS_EINVAL);
	CHECK(!s.allocations);
	for (u32 n = 1; n <= 3; n++) {
		s.fails_in = n;
		CHECK(xs_space_init(&s.space, &ops, NULL, 0,
				    END_BLOCK * XS_BLOCK_BYTES) == -XS_ENOMEM);
		CHECK(!s.allocations);
	}
}

static void rounding(void)
{
	/* Inwards: block 3 is the first whole one, block 8 the last. */
	if (!begin(2 * XS_BLOCK_BYTES + 1, 10 * XS_BLOCK_BYTES - 1))
		return;
	CHECK(take(1, XS_NO_BLOCK - 1) == 3);
	for (u32 block = 4; block < 9; block++)
		CHECK(take(1, XS_NO_BLOCK - 1) == block);
	CHECK(take(1, XS_NO_BLOCK - 1) == XS_NO_BLOCK);
	CHECK(take(0, XS_NO_BLOCK - 1) == XS_NO_BLOCK);
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
	xs_space_reserve(&s.space, 3 * XS_BLOCK_BYTES - 1, 3 * XS_BLOCK_BYTES);
	xs_space_reserve(&s.space, 6 * XS_BLOCK_BYTES, 6 * XS_BLOCK_BYTES);
	xs_space_reserve(&s.space, 9 * XS_BLOCK_BYTES, ~0ULL);
	CHECK(take(2, 99) == 4);
	CHECK(take(2, 99) == XS_NO_BLOCK);
	CHECK(take(1, 99) == 1);
	CHECK(take(1, 7) == XS_NO_BLOCK);
	CHECK(take(1, 8) == 7);
	CHECK(take(1, 99) == 8);
	CHECK(take(1, 99) == XS_NO_BLOCK);
	CHECK(s.space.taken == 5);
	end();
}

/* Without memory for references nothing is taken, and it can be later. */
static void no_memory(void)
{
	if (!begin(0, END_BLOCK * XS_BLOCK_BYTES))
		return;
	/* Three leaves: those that were got stay. */
	for (u32 n = 0; n < 3; n++) {
		s.fails_in = 1 + (n > 0);
		CHECK(take(17, 99) == XS_NO_BLOCK);
		CHECK(!s.space.taken);
	}
	s.fails_in = 0;
	CHECK(take(17, 99) == 32);
	end();
}

static void against_model_seed(u64 seed)
{
	u64 random = seed;
	u32 blocks[END_BLOCK];
	u32 taken = 0;

	test_replay(seed, 0);
	if (!begin(0, END_BLOCK * XS_BLOCK_BYTES))
		return;
	for (u32 step = 0; step < 2000 && !test_failed(); step++) {
		u32 shift = test_below(&random, 5);
		u32 count = 1 + test_below(&random, 1u << shift);
		u32 limit = test_below(&random, 4) ?
			    END_BLOCK : 1 + test_below(&random, END_BLOCK);
		u32 got, at;

		test_replay(seed, step);
		if (test_below(&random, 100) < 55) {
			got = take(count, limit);
			CHECK(got == model_take(count, limit));
			for (u32 i = 0; got != XS_NO_BLOCK && i < count; i++)
				blocks[taken++] = got + i;
		} else if (taken) {
			at = test_below(&random, taken);
			model_give(blocks[at]);
			give(blocks[at]);
			blocks[at] = blocks[--taken];
		}
		CHECK(s.space.taken == taken);
	}
	end();
}

static void against_model(void)
{
	test_seeds(50, against_model_seed);
}

const struct test space_tests[] = {
	{ "space_bad_ranges", bad_ranges },
	{ "space_rounding", rounding },
	{ "space_reserved", reserved },
	{ "space_no_memory", no_memory },
	{ "space_against_model", against_model },
	{ NULL, NULL },
};
