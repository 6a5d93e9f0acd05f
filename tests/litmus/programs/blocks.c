// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pages and states of a block: concurrent CPUs take and free pages, and close, open, list
 * and find the block. No page has two owners; the block ends up claimed once, or partial, or
 * open, or waiting for pages.
 */
#include "programs.h"

#define BUT(pages)	(XS_BLOCK_ALL & ~(u64)(pages))
#define FIRST(count)	xs_mask_of(2, count)	/* pages 0 and 1 are not free */

static struct xs_block *block;
static u64 owner[XS_BLOCK_PAGES];	/* thread + 1, plain */
static u32 claims[EX_THREADS];		/* by each thread, plain */
static u32 holder;			/* thread + 1 that has claimed the block; plain */

/* An open block with the pages of @free free; the threads that free the other pages own them. */
static void begin(u64 free)
{
	bool flags = ex_irq_save();

	world_begin("fused");
	block = xs_space_alloc_block(&engine.space, ~0ULL);
	xs_partial_join(&engine.cpus[0]->partial, block, 0);
	xs_block_open(block);
	xs_a64_swap(&block->free, free);
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		owner[i] = free >> i & 1 ? 0 : 99;
	for (u32 i = 0; i < EX_THREADS; i++)
		claims[i] = 0;
	holder = 0;
	ex_irq_restore(flags);
}

static u32 claimed(void)
{
	u32 sum = 0;

	for (u32 i = 0; i < EX_THREADS; i++)
		sum += claims[i];
	return sum;
}

static void claim(bool is_mine)
{
	if (!is_mine)
		return;
	ex_assert(!holder);
	holder = ex_thread() + 1;
	claims[ex_thread()]++;
}

static void own(u32 page)
{
	ex_assert(!owner[page]);
	owner[page] = ex_thread() + 1;
}

static bool give_all(u64 pages)
{
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		if (pages >> i & 1)
			owner[i] = 0;
	return xs_block_free(block, pages);
}

static bool give(u32 page)
{
	return give_all(1ULL << page);
}

static u64 take(void)
{
	u64 iova = xs_block_take(block, 1);
	u64 page = iova >> XS_PAGE_LG2 & (XS_BLOCK_PAGES - 1);

	if (!iova)
		return XS_BLOCK_PAGES;
	own((u32)page);
	return page;
}

static void free0(void)
{
	claim(give(0));
}

static void free1(void)
{
	claim(give(1));
}

static void close(void)
{
	claim(xs_block_close(block));
}

/* A CPU has opened this block, as the CPU did before. */
static void take_and_free(void)
{
	u64 page = take();

	if (page < XS_BLOCK_PAGES)
		claim(give((u32)page));
}

static void take_two(void)
{
	take();
	take();
}

/*
 * The claiming CPU opens the block again, for another CPU and another size; and closes the
 * block.
 */
static void free_and_open(u64 pages)
{
	if (!give_all(pages))
		return;
	claim(true);
	xs_partial_join(&engine.cpus[1]->partial, block, 1);
	/* A CPU that was about to settle the block may claim the block once all pages are free. */
	holder = 0;
	xs_block_open(block);
	take();
	claim(xs_block_close(block));
}

static void free0_and_open(void)
{
	free_and_open(1);
}

/* All pages except free pages and page 1. */
#define MOST	(~(FIRST(XS_LIST_MIN_FREE - 1) | 2))

static void free_most_and_open(void)
{
	free_and_open(MOST);
}

/* The claiming CPU opens the block in the same place, and continues to use the block. */
static void free_most_and_use(void)
{
	if (!give_all(MOST))
		return;
	claim(true);
	xs_partial_join(&engine.cpus[0]->partial, block, 0);
	holder = 0;
	xs_block_open(block);
}

/* The claiming CPU checks whether the block is partial, and leaves the block in place. */
static void free_most_and_keep(void)
{
	if (!give_all(MOST))
		return;
	claim(true);
	xs_partial_join(&engine.cpus[0]->partial, block, 0);
}

/* A search finds the block on the list. */
static void reuse(void)
{
	struct xs_block *found = xs_partial_get(&engine.cpus[0]->partial, 0, ~0ULL, XS_PARTIAL_ANY);

	if (!found)
		return;
	ex_assert(found == block);
	take();
	claim(xs_block_close(block));
}

/* ---- final checks ---- */

static void settled(void)
{
	u64 free = xs_a64_read(&block->free);
	bool open = xs_a64_read(&block->open);
	bool listed = xs_a64_read(&block->listed);
	struct xs_partial *partial = xs_load(&block->partial);

	ex_assert(free != XS_BLOCK_ALL || open);
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		ex_assert(!(free >> i & 1) || !owner[i]);
	if (!open && xs_partial_usable(free, block->lg2) >= XS_LIST_MIN_FREE)
		ex_assert(listed);
	ex_assert(!open || !listed);
	ex_assert(listed == (partial->blocks[block->lg2] == block));
	ex_assert(listed == partial->listed[block->lg2]);
}

/*
 * A claimed block that was not opened again is not partial, unless a CPU was about to list the
 * block.
 */
static void kept(void)
{
	settled();
	ex_assert(!claims[0] || !xs_a64_read(&block->listed));
}

static void whole(void)
{
	settled();
	ex_assert(claimed() == 1 && !xs_a64_read(&block->free));
}

static void listed(void)
{
	settled();
	ex_assert(!claimed() && xs_a64_read(&block->listed));
}

static void begin_two_missing(void)
{
	begin(BUT(3));
}

static void begin_one_missing(void)
{
	begin(BUT(1));
}

static void begin_14_free(void)
{
	begin(FIRST(XS_LIST_MIN_FREE - 2));
}

static void begin_15_free(void)
{
	begin(FIRST(XS_LIST_MIN_FREE - 1));
}

static void begin_closed_15_free(void)
{
	begin(FIRST(XS_LIST_MIN_FREE - 1));
	ex_assert(!xs_block_close(block));
}

static void begin_closed(void)
{
	begin(BUT(1));
	ex_assert(!xs_block_close(block));
}

static void begin_closed_two_missing(void)
{
	begin(BUT(3));
	ex_assert(!xs_block_close(block));
}

static const struct ex_program closed = {
	.name = "block_close", .setup = begin_two_missing,
	.threads = { free0, free1, close }, .finish = whole
};
static const struct ex_program closed_listed = {
	.name = "block_close_list", .setup = begin_14_free,
	.threads = { free0, free1, close }, .finish = listed
};
static const struct ex_program taken = {
	.name = "block_take", .setup = begin_one_missing,
	.threads = { free0, take_and_free, close }, .finish = whole
};
static const struct ex_program opened = {
	.name = "block_open", .setup = begin_closed,
	.threads = { free0_and_open, take_two }, .finish = settled
};
static const struct ex_program opened_freed = {
	.name = "block_open_free", .setup = begin_closed_two_missing,
	.threads = { free0_and_open, free1 }, .finish = settled
};
static const struct ex_program opened_taken = {
	.name = "block_open_take", .setup = begin_closed,
	.threads = { free0_and_open, take_and_free }, .finish = settled
};
static const struct ex_program listed_claimed = {
	.name = "block_list_claim", .setup = begin_closed_15_free,
	.threads = { free_most_and_open, free1 }, .finish = settled
};
static const struct ex_program listed_reserved_low = {
	.name = "block_list_keep", .setup = begin_closed_15_free,
	.threads = { free_most_and_keep, free1 }, .finish = kept
};
static const struct ex_program listed_opened = {
	.name = "block_list_open", .setup = begin_closed_15_free,
	.threads = { free_most_and_use, free1 }, .finish = settled
};
static const struct ex_program reused = {
	.name = "block_reuse", .setup = begin_15_free,
	.threads = { free0, reuse, close }, .finish = settled
};
static const struct ex_program reused_freed = {
	.name = "block_reuse_free", .setup = begin_closed_15_free,
	.threads = { free0, free1, reuse }, .finish = settled
};
static const struct ex_program reused_whole = {
	.name = "block_reuse_whole", .setup = begin_closed,
	.threads = { free0, reuse }, .finish = settled
};

/*
 * All pages that are not reserved are free: exactly one of the CPUs that notice gets the block,
 * with all pages.
 */
static void begin_reserved(void)
{
	begin(BUT(12));
	xs_a64_set(&block->reserved, 12);
	xs_a64_swap(&block->open, 0);
}

static void settle(void)
{
	claim(xs_block_claim_or_list(block, BUT(12)));
}

static void whole_reserved(void)
{
	ex_assert(!xs_a64_read(&block->reserved));
	whole();
}

static const struct ex_program reserved = {
	.name = "block_reserved", .setup = begin_reserved,
	.threads = { settle, settle }, .finish = whole_reserved
};

const struct ex_program *const block_programs[] = {
	&closed, &closed_listed, &taken, &opened, &opened_freed, &opened_taken,
	&listed_claimed, &listed_reserved_low, &listed_opened, &reused, &reused_freed,
	&reused_whole, &reserved, NULL
};
