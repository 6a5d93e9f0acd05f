/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The checkers of sim/check, attached to the engine of one device: each call here tells them what
 * a driver, the engine or the backend does. They share no code with the engine, with the world or
 * with the shadow, and a failed check ends the run.
 *
 * Checkers know memory by folio: its pages are one page of memory to them. IOVA pages have small
 * numbers (numbers.h), so a recording of any length can be checked that has at most 65,000 pages
 * in use at once.
 */
#ifndef REPLAY_CHECKS_H
#define REPLAY_CHECKS_H

#include <xsmmu/engine.h>

struct world;

/* The world that is checked; NULL: none. */
extern struct world *checks_world;

static inline bool checks_are_on(const struct world *world)
{
	return xs_unlikely(checks_world == world);
}

/* Check a world from here on, whose engine has just been made. */
void checks_begin(struct world *world);

/* The run has ended. @live: pages that are still mapped. */
void checks_end(u64 live);

/* Figures for the report: events, accesses of devices, and the level that these have seen. */
u64 checks_events(void);
u64 checks_accesses(void);
const char *checks_level(void);

/* ---- calls of the engine ---- */

/* Flushes that an unmap may do. */
#define CHECKS_UNMAP	(XS_FLUSH_BIT(XS_FLUSH_UNMAP) | XS_FLUSH_BIT(XS_FLUSH_BLOCK) | \
			 XS_FLUSH_BIT(XS_FLUSH_FULL))

/* @causes: XS_FLUSH_BIT() of each flush that the call may do. */
void checks_call(u32 causes);
void checks_return(void);

/* The end of a poll on the running CPU, and a flush of all CPUs. */
void checks_poll(void);
void checks_poll_end(void);
void checks_drain(void);
void checks_drain_end(void);

/* Time has passed. */
void checks_time(void);

/* ---- a driver ---- */

/* The driver takes a folio, to map it. */
void checks_take(u32 folio);

/* A map of @pages pages begins. @single: the folio, if the identity window may have it; else 0. */
void checks_map(u32 pages, u32 single);

/* The map has returned @page. @reserved: the entries are written later. */
void checks_handed(u64 page, u32 pages, bool reserved);

/* The driver has the pages, mapped to the folio. */
void checks_mapped(u64 page, u32 pages, u32 folio, u32 prot);

/* An unmap begins and returns. @now: it must flush at once. Before the shadow has the unmap. */
void checks_unmap(u64 page, u32 pages, bool now);
void checks_unmapped(void);

/* The flush of a batch-aware driver on the running CPU has returned. */
void checks_batch_ended(void);

/* Neither a driver nor the engine has a reference of the folio any more. */
void checks_freed(u32 folio);

/* ---- the backend, before the shadow has the change ---- */

void checks_entry(u64 page, u64 phys, u32 pages, u32 prot);
void checks_remove(u64 page, u64 pages);

/* The removal of pages from here on has freed page-table pages. */
void checks_table_freed(u64 page);

/*
 * @asked: ranges that the engine asks for, 0: the domain. @count: ranges that are sent, 0: the
 * domain. @sent: commands sent for them.
 */
void checks_invalidate(const struct xs_range *ranges, u32 asked, u32 count,
		       const struct xs_commands *sent);

/* As flushed() of the backend's operations. */
void checks_flushed(u32 cpu, u32 cause, u32 pages, u32 ranges, const struct xs_commands *sent,
		    u64 oldest_ns);

#endif
