/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happened in the world: all that the checkers ever learn.
 *
 * An event names pages by number: IOVA pages in @page, memory pages in @a. The
 * stream of all events of a run is what its digest is made of.
 */
#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include <xsmmu/backend.h>

enum sim_event_kind {
	/* A policy. @page: its number, @pages: level reported (enum xs_level),
	 * @a: 1 from now on beside the one of before, 0 alone, @b: window in ns
	 * (WINDOW_OF), batch_pages (BATCH_OF), range_commands_max (RANGES_OF). */
	EV_POLICY,
	/* Memory: @pages pages from @a on. */
	EV_ALLOCATED,
	EV_FREED,
	/* A driver has an IOVA. @a: limit (last page), @b: 1 if the range is
	 * only reserved. */
	EV_HANDED,
	/* It gives IOVAs back that were reserved and never mapped. */
	EV_DROPPED,
	/* What the driver thinks that [@page, @page + @pages) translates to.
	 * @a: first page of memory, @b: permissions. */
	EV_MAPPED,
	/* A driver's unmap. @a: serial of the call, @b: UNMAP_*. When it has
	 * returned: on which CPU, and @b: 1 if nothing may be left. */
	EV_UNMAP,
	EV_UNMAPPED,
	/* An unmap that is of no mapping names [@page, @page + @pages) of one, and has
	 * returned. Of a mapping all pages were named, or it is stuck: it is not the
	 * driver's any more; @b: UNMAP_*. */
	EV_NAMED,
	EV_NAMED_END,
	EV_GONE,
	/* A batch-aware driver's unmap has returned, @a as in EV_UNMAP; EV_UNMAPPED
	 * follows when the driver's own flush has returned, too. */
	EV_LEFT,
	/* The page table. EV_ENTRY: [@page, @page + @pages) are set to memory
	 * from @a; @b: the entry of the first. EV_UNDONE: the map has failed, and
	 * the entries that it has set are removed and invalidated. */
	EV_ENTRY,
	EV_UNDONE,
	EV_REMOVED,
	EV_PART_REMOVED,
	/* The engine says that these could not be removed: devices reach them until
	 * EV_FLUSHED, and nobody gets them. */
	EV_STUCK,
	/* Page-table page @a, of IOVAs [@page, @page + @pages). */
	EV_TABLE_UNLINKED,
	EV_TABLE_FREED,
	/* An invalidation was executed for [@page, @page + @pages), 0 pages: all.
	 * @a: 0 the IOTLB, else 1 + the device whose TLB; @b: 1 with hint. */
	EV_COMMAND,
	/* The engine is told that these, removed before, are invalidated. */
	EV_FLUSHED,
	/* A flush has finished; @b: struct sim_flush. */
	EV_FLUSH,
	/* Maps are flushed, in @pages ranges. @a: 1 inside a map, which nobody has
	 * asked for; @b: struct sim_unflushed, what the CPU has mapped without. */
	EV_MAP_FLUSH,
	/* Device @cpu reaches memory @a by @page; @b: entry used | ACCESS_*. */
	EV_ACCESS,
	/* Device @cpu is refused; @a: wanted permission. */
	EV_REFUSED,
	/* A call that flushes; @a: enum sim_call, @page: of this CPU. */
	EV_CALL,
	EV_RETURN,
	/* Time passed. @a: 1 if no timer is in its handler and no CPU has
	 * interrupts off; @pages: the longest that one had, @b: how long the
	 * latest timer is due and has not fired, in ns. */
	EV_TIME,
	/* The accounts of an engine at rest; @b: struct sim_accounts. Under FAULT_REMOVE
	 * nothing is stuck then. */
	EV_ACCOUNTS,
	/* The same under traffic; @b: struct sim_reading. */
	EV_READING,
	/* No page is handed out any more, though none is kept by a CPU. */
	EV_FULL,
	/* @pages blocks are on the lists of CPU @cpu and open. */
	EV_LISTED,
	EV_KINDS
};

enum sim_call { CALL_POLL, CALL_EXPIRE, CALL_FLUSH, CALL_SET, CALL_RETIRE };

#define EV_NO_MEMORY	(~0u)	/* @a of a page that is reserved only */

/* How a driver unmaps. */
#define UNMAP_NOW	1u	/* to flush at once */
#define UNMAP_AWARE	2u	/* batch-aware: its own flush follows */
#define UNMAP_TWICE	8u	/* on any CPU, and told of once */
#define UNMAP_ROOM	16u	/* the CPU's batch has its memory */
#define UNMAP_HOLDABLE	4u	/* its memory can be held, as it could at the map */
#define UNMAP_MANY	32u	/* by more references than a mapping may have */

#define WINDOW_OF(b)	((b) & 0xffffffffffULL)
#define BATCH_OF(b)	((u32)((b) >> 40 & 0xffff))
#define RANGES_OF(b)	((u32)((b) >> 56))

/* Beside the entry in @b of EV_ACCESS. */
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
	u32 calls;	/* of the engine, that are running */
};

/*
 * A page-table entry: permissions, page of memory, serial of the map. The
 * serial is not in hardware; it tells one translation from the next.
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
 * struct sim_flush - what the engine asked for, and says of it
 * @cause:	enum xs_flush_point; @causes: those that the running call can have, bits
 * @cpu:	whose batch it was
 * @pages:	flushed; @blocks: of 64 that they are in
 * @page:	the first one that was removed
 * @ranges:	asked for, 0: the domain; @exact: commands can be as large as they are
 * @tables:	page-table pages that it has freed
 * @refused:	some of it was not removed
 * @age_ns:	of the oldest page, as the engine says
 * @map:	the number of the one that the CPU is in, 0: none; @map_began_ns: its begin
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
};

/* Maps without a flush since the CPU's last one, the running one included, and their pages. */
struct sim_unflushed {
	u32 maps;
	u64 pages;
};

/* @mapped_most ..: pages that can have been mapped when it was read; and unmapped. */
struct sim_reading {
	s64 live;
	u64 mapped_least, mapped_most, unmapped_least, unmapped_most;
	u64 stuck;
	bool alone;		/* nobody else was in the engine when that was read */
	const struct xs_stats *stats;
};

/* What the world counted and what the engine says, to be compared. */
struct sim_accounts {
	u64 maps, mapped_pages, map_failures, unmaps, unmapped_pages;
	u64 live_pages;
	u64 copied_maps, copied_unmaps;
	u64 commands_page, commands_domain, bad_unmaps;
	const u64 *flushes;	/* by cause */
	u64 unstuck, stuck;	/* pages that were, and that are */
	s64 leak_check;
	u64 memory_out, allocations;
	bool end;	/* nothing is mapped any more */
	const struct xs_stats *stats;
};

#endif
