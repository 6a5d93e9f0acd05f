/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The checkers: one file per invariant of DESIGN.md, section 3. Events are the only input of a
 * checker. Checkers share no code with the engine, and the world reads nothing of the checkers.
 *
 * The shadow (shadow.c) records the events of each IOVA page, block and memory page; checkers
 * read the shadow. For each event all checkers run before the shadow is updated.
 */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "../world/sim.h"

#define BLOCK_PAGES	64u
#define CALLS_DEEP	4u	/* an interrupt in a call, and spare levels */

/* State of an IOVA page, from the driver's and the page table's view. */
enum shadow_state {
	SHADOW_FREE,		/* no translation may exist */
	SHADOW_PLACED,		/* translated; the map has not returned */
	SHADOW_RESERVED,	/* the driver's, without a translation */
	SHADOW_MAPPED,		/* the driver's, translated */
	SHADOW_UNMAPPING,	/* the unmap has not returned */
	SHADOW_DEFERRED,	/* unmapped, and not flushed */
	SHADOW_STUCK,		/* as deferred, and the removal failed */
};

/*
 * struct shadow_page - an IOVA page
 * @memory, @serial, @prot: the translation (@serial 0: none)
 * @generation:	of @memory at the map; another generation is another owner's
 * @call:	serial of the unmap; @how: UNMAP_*
 * @begun, @begun_ns: event and time of the unmap's begin
 * @returned:	event of the unmap's return; until then event of the begin
 * @removed, @covered: events of the removal (0: none) and of the last command
 * @newer, @older: neighbours among the CPU's deferred pages; 0: none
 * @level:	level promised for the unmap
 * @owned:	the memory was not freed before the unmap
 * @told:	the driver was told that the page is mapped
 * @named:	event of the last bad unmap that named the page; 0: none has
 * @out:	such a bad unmap has returned
 * @kept:	the page is stuck, and the memory must not go back before the flush
 * @left:	the unmap has returned, and a batch-aware driver's flush is to follow
 *
 * Of a page of the identity window, which can have several mappings (window.c):
 * @users:	mappings of drivers, without those that an unmap has begun for
 * @maps:	running maps of the page; @unmaps: running unmaps
 * @ended:	serial up to which unmaps have no part any more in what the page is
 * @cpus:	a bit for each CPU that may have deferred the page
 * @how:	of all unmaps since one ran alone: all of UNMAP_*, or any of NOW and TWICE
 * @alone:	one unmap has run since none ran
 * @last:	no driver had the page at some time since then
 * @may_stay:	an unmap that may be deferred has returned since then, while another ran
 * @due:	a call that must flush the page has returned while a map ran
 * @reached:	a device has reached the deferred page while a map ran
 */
struct shadow_page {
	u32 memory;
	u32 serial;
	u32 generation;
	u32 call;
	u64 begun;
	u64 begun_ns;
	u64 returned;
	u64 returned_ns;
	u64 removed;
	u64 covered;
	u64 window_ns;
	u16 newer, older;
	u8 state;
	u8 prot;
	u8 cpu;
	u8 level;
	u8 how;
	bool owned;
	bool told;
	bool out;
	u64 named;
	bool kept;
	bool left;
	u16 users, maps, unmaps;
	u8 cpus;
	bool alone, last, may_stay, due, reached;
	u32 ended;
};

/* @dead: pages that the driver has unmapped and no flush has covered. */
struct shadow_block {
	u16 dead;
};

/* @promised: deferred IOVA pages that keep the memory from reuse. */
struct shadow_memory {
	u32 generation;
	u32 promised;
	bool out;
};

/* Settings of an operator; @number: of the policy. */
struct shadow_policy {
	u32 number;
	u32 level;
	u32 ranges;	/* range_commands_max */
	u32 batch;	/* batch_pages */
};

/*
 * struct shadow_cpu - deferred pages of a CPU
 * @oldest, @newest: deferred pages; 0: none
 * @pages:	deferred; @unmapping: before the return of their unmap, or of the
 *		driver's flush; @left: of these, pages after their unmap's return
 * @begun_ns:	of the first unmap since a flush emptied @pages and @unmapping
 * @waits:	there was an unmap since then
 * @returned:	event of the last return of an unmap of the window: the CPU's batch may have a
 *		record although no page is deferred
 * @emptied:	event at which the last flush of the whole batch began; the flush of a block leaves
 *		the records of the window
 * @claimed:	of the deferred pages, those that a running map may have
 * @flushed_age_ns: age of the oldest page that this CPU has flushed, for any CPU's batch,
 *		since this CPU last reported the flush of a batch
 */
struct shadow_cpu {
	u16 oldest, newest;
	u32 pages;
	u32 unmapping;
	u32 left;
	u64 begun_ns;
	u64 flushed_age_ns;
	u64 returned;
	u64 emptied;
	u32 claimed;
	bool waits;
};

/* A page-table page; @unlinked, @covered as for a page. */
struct shadow_table {
	u64 unlinked;
	u64 covered;
	u32 page, pages;
};

/* A map that has flushed other CPUs: begin of the map, first such flush, flushed CPUs. */
struct shadow_reclaim {
	u64 map;
	u64 began_ns;
	u64 flushed_ns;
	u64 cpus;
};

#define SHADOW_EMPTY	16u
#define SHADOW_TABLES	2400u

struct shadow {
	u64 number;		/* of the event */
	u64 all_covered;	/* last command for all IOVAs */
	u64 stuck;		/* pages */
	u64 exposed_max_ns;
	u64 exposed[64];	/* pages, by log2 of the ns */
	struct shadow_policy now;
	struct shadow_policy before;	/* the previous one during a change, else equal to @now */
	u32 level;		/* promised now */
	bool changing;		/* the policy is being changed */
	u64 changed;		/* event */
	struct shadow_reclaim reclaims[8];	/* the last ones, a ring */
	u32 reclaim;		/* index of the next entry */
	bool landed_after;	/* an access after an unmap's return */
	bool landed_reused;	/* such an access, to memory of another owner */
	u64 window_ns;
	u32 points;		/* POINT_*, flush points now */
	u64 called[SIM_CPUS][CALLS_DEEP];	/* events of running calls that flush */
	u32 call_points[SIM_CPUS][CALLS_DEEP];	/* POINT_*, in force during the whole call */
	u32 calling[SIM_CPUS];	/* number of running calls */
	struct shadow_cpu cpus[SIM_CPUS + 1];	/* the last: of pages that one of several defers */
	u64 entries, flushes;	/* of the window, written and flushed */
	u64 unmaps;		/* of the window */
	u64 kept;		/* unmaps of the window that have left the entry to others */
	bool twice;		/* a running unmap's CPU is unknown */
	u32 unlinked[SHADOW_TABLES];	/* tables that are to be covered */
	u32 unlinked_count;
	u32 empty[SHADOW_EMPTY];	/* blocks that were all unmapped */
	u32 empty_count;
	struct shadow_block blocks[SIM_PAGES / BLOCK_PAGES + 1];
	struct shadow_memory memory[SIM_MEMORY];
	struct shadow_table tables[SHADOW_TABLES];
	struct shadow_page pages[SIM_PAGES];
};

extern struct shadow shadow;

/* Begin a run. */
void check_begin(void);

/* Check an event, then record the event. */
void check_event(const struct sim_event *event);

/* Returns the level observed by devices: strict, held, or bounded for any weaker level. */
enum xs_level check_observed_level(void);

/* Record an event in the shadow. */
void shadow_event(const struct sim_event *event);

/* Returns the oldest deferred page of any CPU, 0: none. */
u32 shadow_oldest(void);

/*
 * Has the returning unmap @event left @page unflushed? Of a page of the identity window, only the
 * last unmap that runs can tell, and only if no map runs.
 */
bool shadow_is_left(const struct shadow_page *page, const struct sim_event *event);

/* The parts of shadow_event() for a page of the identity window, and for others. */
void window_event(const struct sim_event *event);
bool window_is_left(const struct shadow_page *page, const struct sim_event *event);
void window_flushed(struct shadow_page *page);
void shadow_keep(struct shadow_page *page, u32 how);
bool shadow_is_kept(const struct shadow_page *page, const struct sim_event *event);
void shadow_defer(u32 at, u32 cpu, const struct sim_event *event);
void shadow_undefer(u32 at);
void shadow_end_left(struct shadow_page *page);
void shadow_has_begun(u32 at, u64 begun_ns);

/* Flush points of a policy. */
#define POINT_POLL	1u	/* the end of a poll */
#define POINT_BLOCK	2u	/* a block that is all unmapped */
#define POINT_UNMAP	4u	/* each unmap */

/*
 * Commands of a flush: a domain command, at most so many ranges, or at most the operator's
 * number of ranges.
 */
#define SENDS_DOMAIN	0u
#define SENDS_RANGES	32u
#define SENDS_SET	(~0u)

struct check_row {
	u32 points;
	u32 sends;
};

/* Returns the expected behaviour of policy @number (the index in the table, as in EV_POLICY). */
struct check_row check_row_of(u32 number);

/* The invariants, each in a file of the same name. */
void check_iova(const struct sim_event *event);		/* 1 */
void check_pages(const struct sim_event *event);	/* 2 */
void check_stale(const struct sim_event *event);	/* 3 */
void check_points(const struct sim_event *event);	/* 3: pages that a flush point flushes */
void check_tables(const struct sim_event *event);	/* 4 */
void check_exact(const struct sim_event *event);	/* 5 */
void check_accounts(const struct sim_event *event);	/* 6 */
void check_bound(const struct sim_event *event);	/* a deferred unmap's age */
void check_sent(const struct sim_event *event);		/* commands of a flush */
void check_level(const struct sim_event *event);	/* level not stronger than observed */
void check_change(const struct sim_event *event);	/* promise of a new policy */
void check_torn(const struct sim_event *event);	/* bad unmaps */
void check_window(const struct sim_event *event);	/* 1 and 5 in the identity window */

#endif
