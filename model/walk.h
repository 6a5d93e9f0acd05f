/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The IOMMU's translation: an IOTLB, a walk cache for each of the three upper levels of a table of
 * four levels, and walkers. A walk reads the leaf table, and the table of each level above whose
 * walk cache does not have the entry, from the first cache that has one downwards: 1 to 4 reads,
 * one after the other.
 *
 * A walker that finds all walkers busy, the walk's leaf table in use by another walk (with
 * serial_table), or a command in progress, waits. Calls come in the order of their times, or
 * nearly: a CPU's call may be some us ahead of the NIC's.
 */
#ifndef MODEL_WALK_H
#define MODEL_WALK_H

#include <xsmmu/needs.h>

/* IOVA pages from here on are parts of large pages: a walk ends at the table of level 3. */
#define WALK_LARGE	(1ULL << 38)

/*
 * struct translation - the end of a translation
 * @ready_ns:	time at which the address is known
 * @stalled_ns:	part of the wait that commands have caused
 */
struct translation {
	u64 ready_ns;
	u64 stalled_ns;
};

void walk_init(void);

/**
 * walk_at - translate the address of an access
 * @ns: time of the access
 * @page: IOVA page
 *
 * Counts a visit, and the misses by level.
 *
 * Return: when the address is known.
 */
struct translation walk_at(u64 ns, u64 page);

/* Drop the translations of IOVA pages @first to @last, inclusive; or of all. */
void walk_drop(u64 first, u64 last);
void walk_drop_all(void);

/* Drop all entries of the walk caches. */
void walk_drop_tables(void);

/* Walks in progress begin again, when walks may start. */
void walk_restart(u64 ns);

/* No walk starts before @until_ns. */
void walk_stall(u64 until_ns);

#endif
