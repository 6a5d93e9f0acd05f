/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Events of the world, the only input of the checkers.
 *
 * An event names pages by number: IOVA pages in @page, memory pages in @a. The digest of a run
 * covers the stream of all events.
 */
#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include <xsmmu/backend.h>

enum sim_event_kind {
	/*
	 * A policy. @page: number of the policy, @pages: level reported (enum xs_level),
	 * @a: 1 if the previous policy is still in force too, 0 alone, @b: window in ns
	 * (WINDOW_OF), batch_pages (BATCH_OF), range_commands_max (RANGES_OF).
	 */
	EV_POLICY,
	/* Memory: @pages pages from @a on. */
	EV_ALLOCATED,
	EV_FREED,
	/*
	 * The engine hands an IOVA range to a driver. @a: limit (last page), @b: 1 if the range
	 * is only reserved.
	 */
	EV_HANDED,
	/*
	 * Begin and return of a driver's map of memory that the identity window has, by the page
	 * @page of the window; EV_HANDED comes before EV_MAP_END. @b: 1 if the driver has got the
	 * page of the window.
	 */
	EV_MAP,
	EV_MAP_END,
	/* The driver gives back reserved IOVAs that were never mapped. */
	EV_DROPPED,
	/*
	 * The translation of [@page, @page + @pages) from the driver's view.
	 * @a: first page of memory, @b: permissions.
	 */
	EV_MAPPED,
	/*
	 * Begin and return of a driver's unmap. @a: serial of the call, @b: UNMAP_*.
	 * EV_UNMAPPED names the CPU; @b: 1 if nothing stale may be left.
	 */
	EV_UNMAP,
	EV_UNMAPPED,
	/*
	 * Begin and return of a bad unmap that names [@page, @page + @pages) of a mapping. When
	 * all pages of the mapping were named, or the mapping is stuck, the driver has lost the
	 * mapping; @b: UNMAP_*.
	 */
	EV_NAMED,
	EV_NAMED_END,
	EV_GONE,
	/*
	 * A batch-aware driver's unmap has returned, @a as in EV_UNMAP. EV_UNMAPPED follows
	 * when the driver's own flush has returned.
	 */
	EV_LEFT,
	/*
	 * The page table. EV_ENTRY: [@page, @page + @pages) are set to memory from @a; @b: the
	 * entry of the first page. EV_UNDONE: the map has failed, and entries already set are
	 * removed and invalidated.
	 */
	EV_ENTRY,
	EV_UNDONE,
	EV_REMOVED,
	EV_PART_REMOVED,
	/*
	 * The engine reports pages that could not be removed. Devices reach the pages until
	 * EV_FLUSHED, and nobody gets the IOVAs.
	 */
	EV_STUCK,
	/* Page-table page @a, for IOVAs [@page, @page + @pages). */
	EV_TABLE_UNLINKED,
	EV_TABLE_FREED,
	/*
	 * An invalidation was executed for [@page, @page + @pages), 0 pages: all.
	 * @a: 0 the IOTLB, else 1 + the device with the TLB; @b: 1 with hint.
	 */
	EV_COMMAND,
	/* The backend tells the engine that these removed pages are invalidated. */
	EV_FLUSHED,
	/* A flush has finished; @b: struct sim_flush. */
	EV_FLUSH,
	/*
	 * Maps are flushed, in @pages ranges. @a: 1 if the flush happens inside a map and was
	 * not asked for; @b: struct sim_unflushed of the CPU.
	 */
	EV_MAP_FLUSH,
	/* Device @cpu reaches memory @a by @page; @b: entry used | ACCESS_*. */
	EV_ACCESS,
	/* Device @cpu is refused; @a: wanted permission. */
	EV_REFUSED,
	/*
	 * Begin and return of a call that flushes; @a: enum sim_call, @page: CPU that the call
	 * flushes.
	 */
	EV_CALL,
	EV_RETURN,
	/*
	 * Time passed. @a: 1 if no timer is in a handler and no CPU has interrupts off; @pages:
	 * longest time with interrupts off, @b: ns since the latest pending timer was due.
	 */
	EV_TIME,
	/*
	 * The statistics of an engine at rest; @b: struct sim_accounts. Under FAULT_REMOVE no
	 * page is stuck then.
	 */
	EV_ACCOUNTS,
	/* The statistics under traffic; @b: struct sim_reading. */
	EV_READING,
	/* The engine hands out no more pages, although no CPU caches any. */
	EV_FULL,
	/* @pages blocks are on the lists of CPU @cpu and open. */
	EV_LISTED,
	EV_KINDS
};

enum sim_call { CALL_POLL, CALL_EXPIRE, CALL_FLUSH, CALL_SET, CALL_RETIRE };

#define EV_NO_MEMORY	(~0u)	/* @a of a page that is only reserved */

/* Flags of a driver's unmap. */
#define UNMAP_NOW	1u	/* flush at once */
#define UNMAP_AWARE	2u	/* batch-aware: the driver's own flush follows */
#define UNMAP_TWICE	8u	/* by two CPUs; one event reports both calls */
#define UNMAP_ROOM	16u	/* the CPU's batch has memory */
#define UNMAP_HOLDABLE	4u	/* the memory can be held now, and could at the map */
#define UNMAP_MANY	32u	/* more references than a mapping may have */

#define WINDOW_OF(b)	((b) & 0xffffffffffULL)
#define BATCH_OF(b)	((u32)((b) >> 40 & 0xffff))
#define RANGES_OF(b)	((u32)((b) >> 56))

/* Flags beside the entry in @b of EV_ACCESS. */
#define ACCESS_WRITE	(1ULL << 63)
#define ACCESS_DEAD	(1ULL << 62)	/* through a freed page-table page */

struct sim_event {
	u8 kind;
	u8 cpu;
	u32 page;
	u32 pages;
	u32 a;
	u64 b;
	u64 now_ns;
	u32 calls;	/* calls of the engine that are running */
};

/*
 * A page-table entry: permissions, page of memory, serial of the map. Hardware has no serial;
 * the serial distinguishes two translations of the same page.
 */
#define ENTRY_READ		1u
#define ENTRY_WRITE		2u
#define ENTRY_PROT		3u
#define ENTRY_MEMORY_SHIFT	2
#define ENTRY_MEMORY_BITS	26
#define ENTRY_SERIAL_SHIFT	(ENTRY_MEMORY_SHIFT + ENTRY_MEMORY_BITS)

static inline u32 entry_memory(u64 entry)
{
	return (u32)(entry >> ENTRY_MEMORY_SHIFT) & ((1u << ENTRY_MEMORY_BITS) - 1);
}

static inline u32 entry_serial(u64 entry)
{
	return (u32)(entry >> ENTRY_SERIAL_SHIFT);
}

/*
 * struct sim_flush - request and report of a flush
 * @cause:	enum xs_flush_point; @causes: bits that the running call allows
 * @cpu:	owner of the batch
 * @pages:	flushed pages; @blocks: number of 64-page blocks with a flushed page
 * @page:	first removed page
 * @ranges:	requested ranges, 0: the domain; @exact: a command fits each range exactly
 * @tables:	page-table pages freed by the flush
 * @refused:	some removals failed
 * @age_ns:	age of the oldest page, as reported by the engine
 * @map:	number of the map that the CPU is in, 0: none; @map_began_ns: begin of the map
 * @nothing:	nothing was removed, because all pages are mapped again (identity.h)
 * @since:	event at or before the one that follows the begin of the flush
 */
struct sim_flush {
	u32 cause, causes;
	u32 cpu;
	u32 pages, blocks;
	u32 page;
	u32 ranges;
	bool exact;
	u32 tables;
	bool refused;
	struct xs_commands sent;
	u64 age_ns;
	u64 map;
	u64 map_began_ns;
	bool nothing;
	u64 since;
};

/*
 * Unflushed maps and pages of a CPU since the CPU's last flush of maps, the running map
 * included.
 */
struct sim_unflushed {
	u32 maps;
	u64 pages;
};

/*
 * @mapped_most ..: upper and lower bounds of mapped and unmapped pages at the time of the
 * reading.
 */
struct sim_reading {
	s64 live;
	u64 mapped_least, mapped_most, unmapped_least, unmapped_most;
	u64 stuck;
	bool alone;		/* no other CPU was in the engine at the time */
	const struct xs_stats *stats;
};

/* The world's counts and the engine's statistics, to be compared. */
struct sim_accounts {
	u64 maps, mapped_pages, map_failures, unmaps, unmapped_pages;
	u64 live_pages;
	u64 copied_maps, copied_unmaps;
	u64 commands_page, commands_domain, bad_unmaps;
	const u64 *flushes;	/* by cause */
	u64 unstuck, stuck;	/* pages that were stuck, and that are stuck */
	s64 leak_check;
	u64 memory_out, allocations;
	bool end;	/* nothing is mapped any more */
	const struct xs_stats *stats;
};

#endif
