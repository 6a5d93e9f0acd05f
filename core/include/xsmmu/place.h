/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Where a mapping gets its IOVA, and where that goes when no stale translation of
 * it exists.
 *
 * Block placement: a CPU hands out the free pages of its open blocks, one for
 * each size. When one has no room left it opens, in this order: a partial one of
 * its partial list if more than a third of those are partial, one of its free-block cache, one of
 * another CPU's partial list if more than half of those are, a fresh one, any partial
 * one. Off the list blocks are full but for less than a quarter. So of each size, a
 * mapping counted as the power of two that holds it, the blocks that are taken
 * have at most 2 x the pages that have been in use at once, 8/3 x of a CPU that
 * maps no more, and a constant for each CPU; and as long as there are few holes,
 * neighbours in time get neighbours in IOVA.
 *
 * Page placement: order-n ranges from the CPU's magazines, which are filled from blocks
 * found in the same way. A order-n range is an aligned power of two of pages; what a
 * mapping does not need of it goes back to its block.
 *
 * More than a block: an extent of whole blocks of its own.
 */
#ifndef XSMMU_PLACE_H
#define XSMMU_PLACE_H

#include <xsmmu/engine.h>

/*
 * IOVAs for @pages pages, at or below @last; 0 if there are none, which is
 * counted. First what this CPU has deferred is flushed then, and once in a while
 * what all CPUs have, that of some CPUs by each such call. Entered.
 */
u64 xs_place(struct xs_engine *engine, const struct xs_policy *policy,
	     u32 pages, u64 last);

/*
 * A block of a driver's own, of which it may use the first @pages pages, at or
 * below @last; NULL if there is none. Entered.
 */
struct xs_block *xs_place_own(struct xs_engine *engine,
			      const struct xs_policy *policy, u32 pages,
			      u64 last);

/* Let go of a whole mapping's IOVAs, of which no translation exists. Entered. */
void xs_place_back(struct xs_engine *engine, const struct xs_policy *policy,
		   u64 page, u32 pages);

/* The same; the CPU's lock is held. False: only magazines have been looked at. */
bool xs_place_back_range(struct xs_engine *engine, struct xs_cpu *cpu, u64 page,
			 u32 pages);

/* The same of one page that may go to any magazine, where the loaded one has room. */
static xs_inline bool xs_place_back_fast(struct xs_engine *engine,
					 struct xs_cpu *cpu, u64 page)
{
	return xs_cache_put_fast(&cpu->magazines[0], &engine->depots[0], page);
}

/* The same of pages of one block, which go to it. The CPU's lock is held. */
void xs_place_back_block(struct xs_engine *engine, struct xs_cpu *cpu,
			 struct xs_block *block, u64 mask);

/* Hand out nothing more of the open block. The CPU's lock is held. */
void xs_place_close(struct xs_engine *engine, struct xs_cpu *cpu);

/* Give up all IOVAs that @cpu keeps. Its lock is held. */
void xs_place_empty(struct xs_engine *engine, struct xs_cpu *cpu);

/* The same of the depots. No lock is held. */
void xs_place_empty_depots(struct xs_engine *engine);

#endif
