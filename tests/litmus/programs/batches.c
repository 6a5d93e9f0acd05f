// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batch of CPU 0: a task and an interrupt append while another CPU flushes. Every record is
 * flushed once, before the responsible flush returns.
 */
#include "programs.h"

#define PAGES	4

static u64 iovas[PAGES];
static u64 told;

/*
 * Pages 0 .. 3 are mapped, and another page is deferred: the batch has room on the fast path,
 * and the timer runs.
 */
static void begin(const char *policy)
{
	world_begin(policy);
	told = 0;
	for (u32 i = 0; i < PAGES; i++)
		iovas[i] = world_map_page(i);
	world_unmap(world_map_page(PAGES));
	ex_assert(!xs_batch_is_empty(&engine.cpus[0]->batch));
	ex_assert(world_timer_runs(0));
}

static void begin_xsmmu(void)
{
	begin("xsmmu");
}

static void begin_fused(void)
{
	begin("fused");
}

static void all_but_1(void)
{
	world_check(PAGES - 1);
}

static void all_but_2(void)
{
	world_check(PAGES - 2);
}

static void unmap0(void)
{
	world_unmap(iovas[0]);
}

static void unmap1(void)
{
	world_unmap(iovas[1]);
}

static void drain(void)
{
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
}

/* The driver's own flush follows the driver's own unmap. */
static void promise0(void)
{
	world_unmap_promised(iovas[0]);
	xs_engine_flush_explicit(&engine, false);
	ex_assert(world_is_gone(0));
}

static void promise1(void)
{
	world_unmap_promised(iovas[1]);
	xs_engine_flush_explicit(&engine, false);
	ex_assert(world_is_gone(1));
}

/* An interrupt appends several pages at once under the lock; the task appends without the lock. */
static u64 pair;

static void begin_pair(void)
{
	begin("xsmmu");
	pair = xs_engine_map(&engine, (PAGES + 1) << XS_PAGE_LG2, 2, 3, ~0ULL);
	ex_assert(pair);
}

static void unmap_pair(void)
{
	xs_engine_unmap(&engine, pair, 2, false);
}

static const struct ex_program mixed = {
	.name = "batch_mixed", .setup = begin_pair, .threads = { unmap0, drain },
	.interrupts = { unmap_pair }, .finish = all_but_1,
	.dependencies = world_dependencies
};

/*
 * Pages of one block, on two CPUs: the CPU that unmaps the last page flushes the block's pages
 * in the CPU's batch.
 */
static void begin_fands(void)
{
	begin("fands");
	xs_engine_flush(&engine, XS_FLUSH_TIME);
	xs_engine_retire_cpu(&engine, 0);
}

static void unmap_two_last(void)
{
	world_unmap(iovas[2]);
	world_unmap(iovas[3]);
}

/* Neither CPU may leave the flush to the other, because then both would. */
static void two_left(void)
{
	ex_assert(xs_batch_is_empty(&engine.cpus[0]->batch) ||
		  xs_batch_is_empty(&engine.cpus[1]->batch));
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
	for (u32 i = 0; i < PAGES; i++)
		ex_assert(world_is_gone(i));
}

/* In two steps, so that a flush may find the second unmap in progress. */
static void unmap_tell_unmap(void)
{
	world_unmap(iovas[0]);
	xs_store_release(&told, 1);
	world_unmap(iovas[1]);
}

static void flush_told(void)
{
	if (!xs_load_acquire(&told))
		return;
	xs_engine_flush(&engine, XS_FLUSH_EXPLICIT);
	ex_assert(world_is_gone(0));
}

/* A flush of all CPUs skips CPUs with nothing to flush. */
static void unmap_and_flush(void)
{
	world_unmap(iovas[0]);
	xs_engine_flush(&engine, XS_FLUSH_EXPLICIT);
	ex_assert(world_is_gone(0));
}

static const struct ex_program held = {
	.name = "batch_held", .setup = begin_xsmmu, .threads = { unmap0, drain },
	.interrupts = { unmap1 }, .finish = all_but_2, .dependencies = world_dependencies
};
static const struct ex_program held_blocks = {
	.name = "batch_held_blocks", .setup = begin_fused, .threads = { unmap0, drain },
	.finish = all_but_1, .dependencies = world_dependencies
};
static const struct ex_program promised = {
	.name = "batch_promised", .setup = begin_xsmmu, .threads = { promise0, drain },
	.finish = all_but_1, .dependencies = world_dependencies
};
static const struct ex_program promised_twice = {
	.name = "batch_promised_twice", .setup = begin_xsmmu,
	.threads = { promise0, drain }, .interrupts = { promise1 }, .finish = all_but_2,
	.dependencies = world_dependencies
};
static const struct ex_program skipped = {
	.name = "batch_skipped", .setup = begin_xsmmu, .threads = { unmap_and_flush, drain },
	.finish = all_but_1, .dependencies = world_dependencies
};
/*
 * The ring wraps: all but two records are in use, so the next record takes the place of a
 * record that the other CPU is about to flush, is flushing, or has flushed.
 */
static void begin_full(void)
{
	world_begin("xsmmu");
	told = 0;
	for (u32 i = 0; i < PAGES; i++)
		iovas[i] = world_map_page(i);
	for (u32 i = 0; i < XS_BATCH_RECORDS - 2; i++)
		world_unmap(world_map_page(PAGES + i));
}

static void unmap_all(void)
{
	for (u32 i = 0; i < PAGES; i++)
		world_unmap(iovas[i]);
}

static void none(void)
{
	world_check(0);
}

static const struct ex_program round = {
	.name = "batch_round", .setup = begin_full, .threads = { unmap_all, drain },
	.finish = none, .dependencies = world_dependencies
};

static void unmap_two(void)
{
	unmap0();
	unmap1();
}

/*
 * The same while the task is interrupted during an append: later unmaps are deferred until the
 * ring is full, then flushed at once.
 */
#define MANY	(XS_BATCH_RECORDS + 2)

static u64 many[MANY];

static void begin_many(void)
{
	begin("xsmmu");
	for (u32 i = 0; i < MANY; i++)
		many[i] = world_map_page(PAGES + 1 + i);
}

static void unmap_many(void)
{
	for (u32 i = 0; i < MANY; i++)
		world_unmap(many[i]);
}

static const struct ex_program round_left = {
	.name = "batch_round_left", .setup = begin_many, .threads = { unmap0 },
	.interrupts = { unmap_many }, .finish = all_but_1,
	.dependencies = world_dependencies
};
static const struct ex_program round_left_drained = {
	.name = "batch_round_drained", .setup = begin_many, .threads = { unmap0, drain },
	.interrupts = { unmap_many }, .finish = all_but_1,
	.dependencies = world_dependencies
};

/* Two flushes of one CPU's records, one after the other or concurrent. */
static void drain_twice(void)
{
	drain();
	drain();
}

static const struct ex_program flushes = {
	.name = "batch_flushes", .setup = begin_xsmmu, .threads = { unmap_two, drain_twice },
	.finish = all_but_2, .dependencies = world_dependencies
};

/* The driver's thread migrates: the flush must cover all CPUs. */
static void promise_tell(void)
{
	world_unmap_promised(iovas[0]);
	xs_store_release(&told, 1);
}

static void sync_everywhere(void)
{
	if (!xs_load_acquire(&told))
		return;
	xs_engine_flush_explicit(&engine, true);
	ex_assert(world_is_gone(0));
}

static const struct ex_program everywhere = {
	.name = "batch_everywhere", .setup = begin_xsmmu,
	.threads = { promise_tell, sync_everywhere, drain }, .finish = all_but_1,
	.dependencies = world_dependencies
};

static const struct ex_program blocks = {
	.name = "batch_blocks", .setup = begin_fands, .threads = { unmap_two, unmap_two_last },
	.finish = two_left, .dependencies = world_dependencies
};
static const struct ex_program skipped_left = {
	.name = "batch_skipped_left", .setup = begin_xsmmu,
	.threads = { unmap_tell_unmap, drain, flush_told }, .finish = all_but_2,
	.dependencies = world_dependencies
};

const struct ex_program *const batch_programs[] = {
	&held, &held_blocks, &promised, &promised_twice, &skipped, &skipped_left,
	&round, &round_left, &round_left_drained, &flushes, &everywhere, &mixed, &blocks,
	NULL
};
