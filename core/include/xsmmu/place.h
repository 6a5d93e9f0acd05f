/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Placement: allocates IOVAs for mappings, and takes IOVAs back when no stale translation
 * exists.
 *
 * Block placement: a CPU hands out free pages of its open blocks, with an open block for each
 * size. When an open block has no room left the CPU opens another block, in this order: a listed
 * block of its own if more than a third of its blocks are listed; a block of its free-block
 * cache; a listed block of another CPU if more than half of that CPU's blocks are listed; a fresh
 * block; any listed block. A block that is neither open nor listed has less than a quarter of its
 * pages in free order-n ranges. So for each size, with a mapping counted as the next power of
 * two, the taken blocks have at most 2 times the pages that have been in use at once, 8/3 times
 * for a CPU that has stopped mapping, and a constant for each CPU. As long as there are few
 * holes, mappings that are neighbours in time are neighbours in IOVA.
 *
 * A CPU takes all free pages of its open block for single pages at once: its local pages. Maps take
 * one of them without the CPU's lock and without a locked operation, guarded by a flag as by
 * local_trylock(). Pages come back to the block, by any CPU, and are local pages again when the
 * CPU has no others. Only a CPU itself gives up its local pages under traffic. If a map finds no
 * IOVA, the next xs_engine_trim() takes them back from all CPUs, idle ones included.
 *
 * Page placement: order-n ranges from the CPU's magazines, which are filled from blocks found
 * in the same way. An order-n range is an aligned power of two of pages; pages of the range
 * that a mapping does not need go back to the block.
 *
 * A mapping larger than a block has an extent of whole blocks.
 */
#ifndef XSMMU_PLACE_H
#define XSMMU_PLACE_H

#include <xsmmu/engine.h>

#define XS_ALL_MAGAZINES	(~0u)

/**
 * xs_place - allocate IOVAs
 * @engine: engine
 * @policy: policy of the call
 * @pages: number of pages
 * @last: highest IOVA in bytes, inclusive
 *
 * Without free IOVAs the unmaps that this CPU has deferred are flushed. Now and then all CPUs'
 * unmaps are flushed, those of a few CPUs by each call. A final failure is counted.
 *
 * Context: entered.
 * Return: the IOVA in bytes; 0 on failure.
 */
u64 xs_place(struct xs_engine *engine, const struct xs_policy *policy,
	     u32 pages, u64 last);

/**
 * xs_place_own - allocate a block for a driver
 * @engine: engine
 * @policy: policy of the call
 * @pages: number of pages from the start that the driver may use
 * @last: highest IOVA in bytes, inclusive
 *
 * Context: entered.
 * Return: the block; NULL on failure.
 */
struct xs_block *xs_place_own(struct xs_engine *engine,
			      const struct xs_policy *policy, u32 pages,
			      u64 last);

/**
 * xs_place_back - free the IOVAs of a small mapping
 * @engine: engine
 * @policy: policy of the call
 * @page: first page
 * @pages: size of the mapping; no translation exists
 *
 * Context: entered.
 */
void xs_place_back(struct xs_engine *engine, const struct xs_policy *policy,
		   u64 page, u32 pages);

/**
 * xs_place_back_range - put the IOVAs of a small mapping into a magazine
 * @engine: engine
 * @cpu: running CPU
 * @page: first page
 * @pages: size of the mapping; no translation exists
 *
 * Context: CPU's lock.
 * Return: false if the IOVAs must go to the block.
 */
bool xs_place_back_range(struct xs_engine *engine, struct xs_cpu *cpu, u64 page,
			 u32 pages);

/**
 * xs_place_back_fast - put a page into the loaded magazine, if there is room
 * @engine: engine
 * @cpu: running CPU
 * @page: page that any magazine may have; no translation exists
 *
 * Context: CPU's lock.
 * Return: false without room.
 */
static xs_inline bool xs_place_back_fast(struct xs_engine *engine,
					 struct xs_cpu *cpu, u64 page)
{
	return xs_cache_put_fast(&cpu->magazines[0], &engine->depots[0], page);
}

/**
 * xs_place_back_block - give pages back to their block
 * @engine: engine
 * @cpu: running CPU
 * @block: block
 * @mask: pages of the block; no translation exists
 *
 * Context: CPU's lock.
 */
void xs_place_back_block(struct xs_engine *engine, struct xs_cpu *cpu,
			 struct xs_block *block, u64 mask);

/**
 * xs_place_back_local - give a CPU's local pages back to their block
 * @engine: engine
 * @cpu: the running CPU; or a CPU on which no map uses XS_MODE_LOCAL
 *
 * Does nothing in an interrupt of a map that takes a local page.
 *
 * Context: CPU's lock.
 */
void xs_place_back_local(struct xs_engine *engine, struct xs_cpu *cpu);

/**
 * xs_place_close - close all open blocks of a CPU
 * @engine: engine
 * @cpu: CPU
 *
 * The running CPU gives its local pages back first. Another CPU keeps its local pages, and their
 * block stays open.
 *
 * Context: CPU's lock.
 */
void xs_place_close(struct xs_engine *engine, struct xs_cpu *cpu);

/**
 * xs_place_drain - give up all IOVAs that a CPU caches
 * @engine: engine
 * @cpu: CPU
 *
 * Ranges go to the depots; the caller drains the depots next. If @cpu is not the
 * running CPU, @cpu keeps its local pages and their block.
 *
 * Context: CPU's lock.
 */
void xs_place_drain(struct xs_engine *engine, struct xs_cpu *cpu);

/**
 * xs_place_drain_depots - give up IOVAs in the depots
 * @engine: engine
 * @most: largest number of magazines to empty; XS_ALL_MAGAZINES for all
 *
 * Context: any; no lock held.
 * Return: true if the depots were found empty.
 */
bool xs_place_drain_depots(struct xs_engine *engine, u32 most);

#endif
