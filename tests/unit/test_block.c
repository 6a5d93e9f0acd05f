// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sets of pages against a naive search; blocks and partial lists against a model of page
 * owners; and CPUs that hand out and take back pages of the same blocks.
 */
#include "unit_world.h"

#define LAST	(~0ULL)

/* ---- sets ---- */

static u32 lg2_ceil(u32 count)
{
	u32 lg2 = 0;

	while (1u << lg2 < count)
		lg2++;
	return lg2;
}

static u64 naive_mask(u32 first, u32 count)
{
	u64 mask = 0;

	for (u32 i = first; i < first + count; i++)
		mask |= 1ULL << i;
	return mask;
}

static u64 naive_find(u64 mask, u32 count)
{
	u32 align = 1u << lg2_ceil(count);

	for (u32 at = 0; at + count <= 64; at += align)
		if ((mask & naive_mask(at, count)) == naive_mask(at, count))
			return naive_mask(at, count);
	return 0;
}

static u32 naive_usable(u64 mask, u32 lg2)
{
	u32 pages = 0;

	for (u32 at = 0; at < 64; at += 1u << lg2)
		if ((mask >> at & naive_mask(0, 1u << lg2)) ==
		    naive_mask(0, 1u << lg2))
			pages += 1u << lg2;
	return pages;
}

static void check_set(u64 mask)
{
	for (u32 count = 1; count <= 64; count++)
		CHECK(xs_mask_find(mask, count) == naive_find(mask, count));
	for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++)
		CHECK(xs_partial_usable(mask, lg2) == naive_usable(mask, lg2));
	if (mask) {
		u32 run = 0;

		for (u64 rest = mask >> xs_ctz(mask); rest & 1; rest >>= 1)
			run++;
		CHECK(xs_mask_extent(mask) == run);
	}
}

/* All sets of eight neighbours, at any place, alone or among others. */
static void small_sets(void)
{
	for (u32 first = 0; first < 256; first++)
		CHECK(xs_lg2_ceil(first + 1) == lg2_ceil(first + 1));
	for (u32 first = 0; first < 64; first++)
		for (u32 count = 1; first + count <= 64; count++)
			CHECK(xs_mask_of(first, count) ==
			      naive_mask(first, count));
	for (u32 at = 0; at <= 56 && !test_failed(); at += 4)
		for (u64 set = 0; set < 256; set++) {
			check_set(set << at);
			check_set(~(set << at));
		}
}

/* All sets of sixteen neighbours, and the sizes found inside. */
static void middle_sets(void)
{
	for (u64 set = 0; set < 1u << 16 && !test_failed(); set++)
		for (u32 count = 1; count <= 16; count++)
			CHECK(xs_mask_find(set, count) ==
			      naive_find(set, count));
}

static void large_set_seed(u64 seed)
{
	u64 random = seed;
	u64 set = test_random(&random);

	test_replay(seed, 0);
	if (seed & 1)
		set |= test_random(&random);
	if (seed & 2)
		set |= naive_mask(test_below(&random, 33),
				  1 + test_below(&random, 32));
	check_set(set);
}

static void large_sets(void)
{
	test_seeds(2000, large_set_seed);
}

/* ---- blocks and partial lists, one at a time ---- */

#define BLOCKS	40
#define PARTIALS	2

/* The model of a block. @had: pages with an owner; @claimed: the test has claimed the block. */
struct model {
	struct xs_block *block;
	u64 had;
	u64 reserved;
	u32 partial;	/* partial lists: on none */
	u32 lg2;
	bool claimed;
	bool open;
	bool listed;
};

static struct {
	struct xs_partial partials[PARTIALS];
	struct model models[BLOCKS];
	u64 random;
} s;

static u32 below(u32 limit)
{
	return test_below(&s.random, limit);
}

static struct xs_block *block_new(u32 number)
{
	struct xs_block *block = test_alloc(sizeof(*block));

	block->iova = (1 + number) * XS_BLOCK_BYTES;
	return block;
}

static u64 free_of(const struct model *model)
{
	return model->claimed ? 0 : ~model->had & ~model->reserved;
}

/* A block that is neither open nor claimed is partial when much of the block is free. */
static void model_settle(struct model *model, bool claimed)
{
	bool all = !model->open && !model->had;

	CHECK(claimed == all);
	if (all) {
		model->claimed = true;
		model->reserved = 0;
	} else if (!model->open && !model->reserved) {
		model->listed |= naive_usable(free_of(model), model->lg2) >=
				 XS_LIST_MIN_FREE;
	}
}

static void do_open(struct model *model, bool own)
{
	u32 partial = below(PARTIALS), lg2 = own ? 0 : below(XS_SIZES);

	xs_partial_join(&s.partials[partial], model->block, lg2);
	model->partial = partial;
	model->lg2 = lg2;
	model->listed = false;
	model->claimed = false;
	if (own) {
		/* A driver's block: so many pages are the driver's, the others reserved. */
		model->had = naive_mask(0, 1 + below(63));
		model->reserved = ~model->had;
		xs_a64_set(&model->block->reserved, model->reserved);
	} else {
		xs_block_open(model->block);
		model->open = true;
	}
}

static void do_take(struct model *model)
{
	u32 pages = 1 + below(XS_BLOCK_PAGES >> below(7));
	u64 expected = naive_find(free_of(model), pages);
	u64 iova = xs_block_take(model->block, pages), first;

	CHECK(!iova == !expected);
	if (!iova)
		return;
	first = (iova - model->block->iova) / XS_PAGE_BYTES;
	CHECK(naive_mask((u32)first, pages) == expected);
	model->had |= expected;
}

static void do_free(struct model *model)
{
	u64 mask = model->had;

	while (below(3) && mask & (mask - 1))
		mask &= below(2) ? test_random(&s.random) : mask - 1;
	mask = mask ? mask : model->had & -model->had;
	model->had &= ~mask;
	model_settle(model, xs_block_free(model->block, mask));
}

static void do_close(struct model *model)
{
	model->open = false;
	model_settle(model, xs_block_close(model->block));
}

static u32 count_listed(u32 partial, u32 lg2, u64 last)
{
	u32 count = 0;

	for (u32 i = 0; i < BLOCKS; i++)
		count += s.models[i].listed && s.models[i].partial == partial &&
			 s.models[i].lg2 == lg2 &&
			 s.models[i].block->iova + XS_BLOCK_BYTES - 1 <= last;
	return count;
}

/* Take a partial block that fits; claimed, empty blocks may come along. */
static void do_get(void)
{
	u32 partial = below(PARTIALS), lg2 = below(XS_SIZES);
	u64 last = below(3) ? LAST : below(BLOCKS) * XS_BLOCK_BYTES;
	enum xs_partial_when when = (const enum xs_partial_when[]){
		XS_PARTIAL_ANY, XS_PARTIAL_HALF, XS_PARTIAL_THIRD }[below(3)];
	u32 part = when == XS_PARTIAL_HALF ? 2 : 3;
	bool much = when == XS_PARTIAL_ANY ||
		    part * s.partials[partial].listed[lg2] >
			    s.partials[partial].taken[lg2] + part * XS_PARTIAL_SLACK;
	struct xs_block *block = xs_partial_get(&s.partials[partial], lg2, last,
						when);
	struct model *model;

	CHECK(!block == !(much && count_listed(partial, lg2, last)));
	if (!block)
		return;
	model = &s.models[block->iova / XS_BLOCK_BYTES - 1];
	CHECK(model->listed && model->partial == partial && model->lg2 == lg2);
	CHECK(block->iova + XS_BLOCK_BYTES - 1 <= last);
	model->listed = false;
	if (model->claimed)
		CHECK(!xs_block_take(block, 1) && !xs_block_close(block));
	else
		model->open = true;
}

static void check_partials(void)
{
	for (u32 at = 0; at < PARTIALS; at++)
		for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++) {
			const struct xs_partial *partial = &s.partials[at];
			const struct xs_block *block = partial->blocks[lg2];
			u32 taken = 0, ring = 0;

			for (u32 i = 0; i < BLOCKS; i++)
				taken += s.models[i].partial == at &&
					 s.models[i].lg2 == lg2;
			CHECK(partial->taken[lg2] == taken);
			CHECK(partial->listed[lg2] == count_listed(at, lg2, LAST));
			while (block && ring <= BLOCKS) {
				CHECK(block->next->prev == block);
				ring++;
				block = block->next == partial->blocks[lg2] ?
					NULL : block->next;
			}
			CHECK(ring == partial->listed[lg2]);
		}
}

static void do_step(struct model *model)
{
	u32 what = below(100);

	if (what < 10)
		do_get();
	else if (model->claimed && what < 70)
		do_open(model, !below(5));
	else if (model->claimed) {
		xs_partial_leave(model->block);
		model->partial = PARTIALS;
		model->listed = false;
	} else if (model->open && what < 55)
		do_take(model);
	else if (model->open && what < 70)
		do_close(model);
	else if (model->had)
		do_free(model);
}

static void against_model_seed(u64 seed)
{
	s.random = seed;
	for (u32 i = 0; i < PARTIALS; i++) {
		static const struct xs_partial empty;

		s.partials[i] = empty;
		xs_lock_init(&s.partials[i].lock);
	}
	for (u32 i = 0; i < BLOCKS; i++)
		s.models[i] = (struct model){ .block = block_new(i),
					      .partial = PARTIALS,
					      .claimed = true };
	for (u32 step = 0; step < 3000 && !test_failed(); step++) {
		struct model *model = &s.models[below(BLOCKS)];

		test_replay(seed, step);
		xs_enter();
		do_step(model);
		xs_exit();
		CHECK(xs_a64_read(&model->block->free) == free_of(model));
		CHECK(xs_a64_read(&model->block->listed) == model->listed);
		if (step % 16 == 0)
			check_partials();
	}
	for (u32 i = 0; i < BLOCKS; i++)
		test_free(s.models[i].block);
}

static void against_model(void)
{
	test_seeds(60, against_model_seed);
}

/* Pages freed twice are detected, and the block has no owner afterwards. */
static void twice(void)
{
	struct xs_block *block = block_new(0);

	xs_enter();
	xs_block_open(block);
	CHECK(xs_block_take(block, 2));
	CHECK(!xs_block_free(block, 3));
	CHECK(!world_warnings());
	CHECK(!xs_block_free(block, 2));
	CHECK(world_warnings() == 1);
	xs_exit();
	test_free(block);
}

/* Below a limit, a search looks at a bounded number of partial blocks. */
static void few_looks(void)
{
	static struct xs_partial partial;
	static struct xs_block *blocks[BLOCKS];
	u32 looks = 10;

	xs_lock_init(&partial.lock);
	xs_enter();
	/* From the top: the fitting block is looked at last. */
	for (u32 i = BLOCKS; i--;) {
		blocks[i] = block_new(i);
		xs_partial_join(&partial, blocks[i], 0);
		xs_block_open(blocks[i]);
		CHECK(xs_block_take(blocks[i], 1));
		CHECK(!xs_block_close(blocks[i]));
	}
	CHECK(partial.listed[0] == BLOCKS);
	CHECK(!xs_partial_get(&partial, 0, 2 * XS_BLOCK_BYTES - 1, XS_PARTIAL_ANY));
	CHECK(!xs_partial_get(&partial, 0, XS_BLOCK_BYTES - 1, XS_PARTIAL_ANY));
	/* Fewer looks if the caller has few left. */
	CHECK(!xs_partial_search(&partial, 0, 20 * XS_BLOCK_BYTES - 1,
				 XS_PARTIAL_ANY, &looks));
	CHECK(!looks);
	CHECK(xs_partial_get(&partial, 0, 20 * XS_BLOCK_BYTES - 1, XS_PARTIAL_ANY));
	xs_exit();
	for (u32 i = 0; i < BLOCKS; i++) {
		xs_partial_leave(blocks[i]);
		test_free(blocks[i]);
	}
	CHECK(!partial.taken[0] && !partial.listed[0]);
}

/* ---- concurrent CPUs ---- */

#define SHARED	3
#define CPUS	4
#define HELD	24

/* @owners: CPU + 1 that has a page; @pool: claimed blocks. */
struct shared {
	u64 seed;
	struct xs_block *blocks[SHARED];
	struct xs_partial partials[CPUS];
	u32 pool[SHARED];
	u32 owners[SHARED * XS_BLOCK_PAGES];
	struct xs_block *open[CPUS];
	u64 held[CPUS][HELD];	/* page << 32 | pages */
};

static u32 number_of(const struct xs_block *block)
{
	return (u32)(block->iova / XS_BLOCK_BYTES) - 1;
}

/* Nobody else has a page of the block, or has claimed the block. */
static void pool_put(struct shared *shared, const struct xs_block *block)
{
	u32 at = number_of(block);

	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		CHECK(!__atomic_load_n(&shared->owners[at * XS_BLOCK_PAGES + i],
				       __ATOMIC_RELAXED));
	CHECK(!__atomic_exchange_n(&shared->pool[at], 1, __ATOMIC_ACQ_REL));
}

static void page_free(struct shared *shared, u64 held)
{
	u64 page = held >> 32;
	u32 pages = (u32)held;
	struct xs_block *block = shared->blocks[page / XS_BLOCK_PAGES];

	for (u32 i = 0; i < pages; i++)
		CHECK(__atomic_exchange_n(&shared->owners[page + i], 0,
					  __ATOMIC_RELAXED));
	if (xs_block_free(block, xs_block_mask(page, pages)))
		pool_put(shared, block);
}

static void open_one(struct shared *shared, u32 cpu, u64 *random)
{
	u32 at = test_below(random, SHARED);
	u32 lg2 = test_below(random, 3);

	if (__atomic_exchange_n(&shared->pool[at], 0, __ATOMIC_ACQ_REL)) {
		shared->open[cpu] = shared->blocks[at];
		xs_partial_join(&shared->partials[cpu], shared->open[cpu], lg2);
		xs_block_open(shared->open[cpu]);
		return;
	}
	shared->open[cpu] = xs_partial_get(
		&shared->partials[test_below(random, CPUS)], lg2, LAST,
		XS_PARTIAL_ANY);
}

static void close_one(struct shared *shared, u32 cpu)
{
	if (shared->open[cpu] && xs_block_close(shared->open[cpu]))
		pool_put(shared, shared->open[cpu]);
	shared->open[cpu] = NULL;
}

static void take_some(struct shared *shared, u32 cpu, u64 *held, u64 *random)
{
	u32 pages = 1 + test_below(random, 4);
	u64 iova = xs_block_take(shared->open[cpu], pages);
	u64 page = (iova >> XS_PAGE_LG2) - XS_BLOCK_PAGES;

	if (!iova)
		return;
	for (u32 i = 0; i < pages; i++)
		CHECK(!__atomic_exchange_n(&shared->owners[page + i], cpu + 1,
					   __ATOMIC_RELAXED));
	*held = page << 32 | pages;
}

/* Give a claimed block back, as to the space, and take a block again. */
static void give_one(struct shared *shared, u64 *random)
{
	u32 at = test_below(random, SHARED);

	if (!__atomic_exchange_n(&shared->pool[at], 0, __ATOMIC_ACQ_REL))
		return;
	xs_partial_leave(shared->blocks[at]);
	pool_put(shared, shared->blocks[at]);
}

static void share(void *argument, u32 cpu)
{
	struct shared *shared = argument;
	u64 random = shared->seed * TEST_CPUS + cpu;

	for (u32 i = 0; i < 400 && !test_failed(); i++) {
		u64 *held = &shared->held[cpu][test_below(&random, HELD)];
		u32 what = test_below(&random, 100);

		xs_enter();
		if (!shared->open[cpu]) {
			open_one(shared, cpu, &random);
		} else if (what < 4) {
			close_one(shared, cpu);
		} else if (what < 10) {
			give_one(shared, &random);
		} else if (*held && what < 60) {
			page_free(shared, *held);
			*held = 0;
		} else if (!*held) {
			take_some(shared, cpu, held, &random);
		}
		xs_exit();
	}
}

/* When all pages came back, each block is claimed, once. */
static void check_shared(struct shared *shared)
{
	for (u32 cpu = 0; cpu < CPUS; cpu++) {
		xs_enter();
		for (u32 i = 0; i < HELD; i++)
			if (shared->held[cpu][i])
				page_free(shared, shared->held[cpu][i]);
		xs_exit();
	}
	for (u32 cpu = 0; cpu < CPUS; cpu++) {
		xs_enter();
		close_one(shared, cpu);
		xs_exit();
	}
	for (u32 i = 0; i < SHARED; i++) {
		CHECK(shared->pool[i]);
		CHECK(!xs_a64_read(&shared->blocks[i]->free));
		xs_partial_leave(shared->blocks[i]);
	}
	for (u32 cpu = 0; cpu < CPUS; cpu++)
		for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++) {
			CHECK(!shared->partials[cpu].taken[lg2]);
			CHECK(!shared->partials[cpu].listed[lg2]);
		}
}

static void shared_seed(u64 seed)
{
	struct shared *shared = test_alloc(sizeof(*shared));

	test_replay(seed, 0);
	shared->seed = seed;
	for (u32 i = 0; i < SHARED; i++) {
		shared->blocks[i] = block_new(i);
		shared->pool[i] = 1;
	}
	for (u32 i = 0; i < CPUS; i++)
		xs_lock_init(&shared->partials[i].lock);
	/* Mostly with a seed; running freely where seeds are not supported. */
	if (seed % 32 == 0 || !test_threads(CPUS, seed, share, shared))
		test_threads(CPUS, 0, share, shared);
	test_be_cpu(0);
	if (!test_failed())
		check_shared(shared);
	for (u32 i = 0; i < SHARED; i++)
		test_free(shared->blocks[i]);
	test_free(shared);
}

static void together(void)
{
	test_seeds(150, shared_seed);
}

/*
 * Two CPUs free half a block each. The claiming CPU puts the block on that CPU's partial list,
 * or gives the block back, while the other CPU may be about to list the block.
 */
struct halves {
	u64 seed;
	struct xs_block *block;
	struct xs_partial partials[2];
	u32 claims;
};

static void free_half(void *argument, u32 cpu)
{
	struct halves *halves = argument;

	xs_enter();
	if (xs_block_free(halves->block, xs_mask_of(32 * cpu, 32))) {
		__atomic_fetch_add(&halves->claims, 1, __ATOMIC_RELAXED);
		xs_partial_leave(halves->block);
		if (halves->seed % 2)
			xs_partial_join(&halves->partials[1], halves->block, 3);
	}
	xs_exit();
}

static void halves_seed(u64 seed)
{
	struct halves *halves = test_alloc(sizeof(*halves));

	test_replay(seed, 0);
	halves->seed = seed;
	halves->block = block_new(0);
	xs_lock_init(&halves->partials[0].lock);
	xs_lock_init(&halves->partials[1].lock);
	xs_enter();
	xs_partial_join(&halves->partials[0], halves->block, 0);
	xs_block_open(halves->block);
	CHECK(xs_block_take_all(halves->block) == XS_BLOCK_ALL);
	CHECK(!xs_block_close(halves->block));
	xs_exit();
	/* With a seed, or running freely where seeds are not supported. */
	if (!test_threads(2, seed, free_half, halves))
		test_threads(2, 0, free_half, halves);
	test_be_cpu(0);
	CHECK(halves->claims == 1 && !xs_a64_read(&halves->block->free));
	CHECK(!xs_a64_read(&halves->block->listed));
	CHECK(!halves->partials[0].taken[0] && !halves->partials[0].listed[0]);
	CHECK(halves->partials[1].taken[3] == seed % 2);
	CHECK(!halves->partials[1].listed[3]);
	test_free(halves->block);
	test_free(halves);
}

static void halves(void)
{
	test_seeds(400, halves_seed);
}

const struct test block_tests[] = {
	{ "block_small_sets", small_sets },
	{ "block_middle_sets", middle_sets },
	{ "block_large_sets", large_sets },
	{ "block_against_model", against_model },
	{ "block_twice", twice },
	{ "block_few_looks", few_looks },
	{ "block_together", together, .threads = true },
	{ "block_halves", halves, .threads = true },
	{ NULL, NULL },
};
