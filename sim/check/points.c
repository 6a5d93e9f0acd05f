// SPDX-License-Identifier: GPL-2.0-only
/*
 * Invariant 3, by flush points: pages deferred before a flushing call are flushed when the call
 * returns. The end of a poll and a CPU going offline flush the pages unmapped by that CPU.
 * Under a policy that flushes empty blocks, no other page waits, and a batch stays below the
 * threshold. Anything else flushes nothing; in particular an unmap that can wait does not
 * flush.
 */
#include "check.h"

/* A running map may have made a page of the window a driver's again; see window.c. */
static void check_list(u32 cpu, u64 called, const char *what)
{
	for (u32 at = shadow.cpus[cpu].oldest; at && shadow.pages[at].returned < called;
	     at = shadow.pages[at].newer) {
		if (!shadow.pages[at].maps)
			sim_fail("points", "%s has left IOVA page %u of CPU %u unflushed", what, at, cpu);
		shadow.pages[at].due = true;
	}
}

static void check_all(u64 called, const char *what)
{
	for (u32 cpu = 0; cpu <= SIM_CPUS; cpu++)
		check_list(cpu, called, what);
}

/* Of pages that one of several CPUs has deferred, the last of these CPUs must flush. */
static void check_cpu(u32 cpu, u64 called, const char *what)
{
	check_list(cpu, called, what);
	for (u32 at = shadow.cpus[SIM_CPUS].oldest; at && shadow.pages[at].returned < called;
	     at = shadow.pages[at].newer) {
		struct shadow_page *page = &shadow.pages[at];

		page->cpus &= ~(1u << cpu);
		if (!page->cpus && !page->maps)
			sim_fail("points", "%s has left IOVA page %u unflushed", what, at);
		page->due |= !page->cpus;
	}
}

/*
 * Blocks that were all unmapped when the last call of the engine returned must be flushed. A
 * block flushed in part before may wait for the window and is not checked.
 */
static void check_empty(void)
{
	while (shadow.empty_count) {
		u32 at = shadow.empty[--shadow.empty_count];
		const struct shadow_block *block = &shadow.blocks[at];

		if (shadow.points & POINT_BLOCK && block->dead == BLOCK_PAGES)
			sim_fail("points", "block %u is all unmapped and unflushed", at);
	}
}

/* The same for blocks emptied by a batch-aware driver's unmap, before the driver's flush. */
static void check_emptied(const struct sim_event *event)
{
	u32 last = (event->page + event->pages - 1) / BLOCK_PAGES;

	if (event->calls || shadow.changing || !(shadow.points & POINT_BLOCK) ||
	    shadow.changed > shadow.pages[event->page].begun)
		return;
	for (u32 at = event->page / BLOCK_PAGES; at <= last; at++)
		if (shadow.blocks[at].dead == BLOCK_PAGES)
			sim_fail("points", "a batch-aware driver's unmap has left block %u all unmapped and unflushed",
				 at);
}

/* After an unmap, the CPU has less than a full batch. */
static void check_full(const struct sim_event *event)
{
	const struct shadow_cpu *cpu = &shadow.cpus[event->cpu];
	u32 pages = cpu->pages + cpu->left - cpu->claimed;

	for (u32 i = event->page; i < event->page + event->pages; i++)
		pages += shadow_is_left(&shadow.pages[i], event) && !shadow.pages[i].left &&
			 !(shadow.pages[i].cpus & (shadow.pages[i].cpus - 1));
	if (!shadow.changing && pages >= shadow.now.batch)
		sim_fail("points", "CPU %u has deferred %u pages, and a batch is full at %u", event->cpu,
			 pages, shadow.now.batch);
}

/* A flush of a full batch exceeds the threshold by at most one mapping of a block. */
static void check_size(const struct sim_flush *flush)
{
	u32 batch = shadow.now.batch > shadow.before.batch ? shadow.now.batch : shadow.before.batch;

	if (flush->pages > batch + BLOCK_PAGES - 1)
		sim_fail("points", "%u pages are flushed at once, and a batch is full at %u", flush->pages,
			 batch);
}

/*
 * An unmap flushed its own pages: allowed if required, or if the unmap can do nothing else.
 * Memory that cannot be held, or has too many references, waits only under policies that hold
 * no memory.
 */
static void check_itself(const struct sim_flush *flush)
{
	const struct shadow_page *page = &shadow.pages[flush->page];
	bool aware = page->how & UNMAP_AWARE;

	if (shadow.changing || shadow.changed > page->begun || flush->pages > BLOCK_PAGES ||
	    page->how & (UNMAP_NOW | UNMAP_TWICE) || !(page->how & UNMAP_ROOM) ||
	    shadow.points & POINT_UNMAP)
		return;
	if (!aware && (shadow.level == XS_LEVEL_STRICT ||
		       (shadow.level == XS_LEVEL_HELD && !(page->how & UNMAP_HOLDABLE))))
		return;
	sim_fail("points", "the unmap of IOVA page %u flushes it, and nothing asks for that", flush->page);
}

static void check_flush(const struct sim_flush *flush)
{
	if (!(flush->causes & XS_FLUSH_BIT(flush->cause)))
		sim_fail("points", "a flush of CPU %u says that its cause is %u, which is none here",
			 flush->cpu, flush->cause);
	if (flush->cause == XS_FLUSH_BLOCK && flush->blocks != 1 &&
	    !(flush->refused && !flush->blocks))
		sim_fail("points", "the flush of an empty block is of pages in %u blocks", flush->blocks);
	if (flush->cause == XS_FLUSH_UNMAP)
		check_itself(flush);
	else
		check_size(flush);
}

void check_points(const struct sim_event *event)
{
	u64 called;
	u32 always;

	if (event->kind == EV_UNMAPPED || event->kind == EV_LEFT) {
		check_full(event);
		if (event->kind == EV_LEFT)
			check_emptied(event);
		return;
	}
	if (event->kind == EV_FLUSH) {
		check_flush((const struct sim_flush *)(size_t)event->b);
		return;
	}
	if (event->kind == EV_TIME) {
		if (!event->calls && !shadow.changing)
			check_empty();
		return;
	}
	called = shadow.called[event->cpu][shadow.calling[event->cpu] - 1];
	always = shadow.call_points[event->cpu][shadow.calling[event->cpu] - 1];
	switch (event->a) {
	case CALL_POLL:
		if (always & POINT_POLL)
			check_cpu(event->page, called, "the end of a poll");
		break;
	case CALL_RETIRE:
		check_cpu(event->page, called, "a CPU that goes offline");
		break;
	case CALL_FLUSH:
		check_all(called, "a flush");
		break;
	case CALL_SET:
		check_all(called, "a change of policy");
		break;
	}
}
