/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The checkers: one file per invariant of DESIGN.md, section 3. All they know
 * comes from the world's events; they share no code with the engine, and the
 * world does not look at what they know.
 *
 * What events say of each IOVA page, block and page of memory is written down
 * once, in the shadow (shadow.c); checkers read it. For each event all checkers
 * are asked before the shadow takes it in.
 */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "../world/sim.h"

#define BLOCK_PAGES	64u
#define CALLS_DEEP	4u	/* an interrupt in a call, and one in reserve */

/* A page of IOVA, as the driver and the page table have it. */
enum shadow_state {
	SHADOW_FREE,		/* no translation may exist */
	SHADOW_PLACED,		/* translated; the map has not returned */
	SHADOW_RESERVED,	/* the driver's, without a translation */
	SHADOW_MAPPED,		/* the driver's */
	SHADOW_UNMAPPING,	/* the unmap has not returned */
	SHADOW_DEFERRED,	/* unmapped, and not flushed */
	SHADOW_STUCK,		/* the same, and it could not be removed */
};

/*
 * struct shadow_page
 * @memory, @serial, @prot: what it translates to (@serial 0: nothing)
 * @generation:	of @memory, when it was mapped: another one is another owner's
 * @call:	serial of the unmap; @how: UNMAP_*
 * @begun, @begun_ns: event of its begin
 * @returned:	event of its return; of its begin, until then
 * @removed, @covered: events of the removal (0: none) and of the last command
 * @newer, @older: neighbours among its CPU's deferred pages; 0: none
 * @level:	promised for its unmap
 * @owned:	the memory was not freed before its unmap
 * @told:	the driver was told that it is mapped
 * @named:	event of the last unmap that is of no mapping and named it; 0: none has
 * @out:	such an unmap has returned
 * @kept:	stuck, and its memory is not to go back before it is flushed
 * @left:	its unmap has returned, and a batch-aware driver's flush is to follow
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
};

/* @dead: pages that the driver has unmapped, and that are not flushed. */
struct shadow_block {
	u16 dead;
};

/* @promised: deferred IOVA pages that keep it from reuse. */
struct shadow_memory {
	u32 generation;
	u32 promised;
	bool out;
};

/* What an operator has set; @number: of the policy. */
struct shadow_policy {
	u32 number;
	u32 level;
	u32 ranges;	/* range_commands_max */
	u32 batch;	/* batch_pages */
};

/*
 * What a CPU has deferred.
 * @oldest, @newest: deferred pages; 0: none
 * @pages:	deferred; @unmapping: before the return of their unmap, or of the
 *		driver's flush; @left: of these, pages whose unmap has returned
 * @begun_ns:	of the first unmap since a flush has left neither
 * @waits:	there was one since
 * @flushed_age_ns: of the oldest page that the CPU, which may be another batch's,
 *		has flushed since it last told of a flush of a batch
 */
struct shadow_cpu {
	u16 oldest, newest;
	u32 pages;
	u32 unmapping;
	u32 left;
	u64 begun_ns;
	u64 flushed_age_ns;
	bool waits;
};

/* A page-table page; @unlinked, @covered as for a page. */
struct shadow_table {
	u64 unlinked;
	u64 covered;
	u32 page, pages;
};

/* A map that has flushed other CPUs: when it began, the first such flush, which CPUs. */
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
	struct shadow_policy before;	/* while it changes; else the same */
	u32 level;		/* promised now */
	bool changing;		/* the policy */
	u64 changed;		/* event */
	struct shadow_reclaim reclaims[8];	/* the last ones, a ring */
	u32 reclaim;		/* the next */
	bool landed_after;	/* an access after an unmap's return */
	bool landed_reused;	/* the same, in memory of another owner */
	u64 window_ns;
	u32 points;		/* POINT_*, that flush now */
	u64 called[SIM_CPUS][CALLS_DEEP];	/* events of running calls that flush */
	u32 call_points[SIM_CPUS][CALLS_DEEP];	/* POINT_*, all the while */
	u32 calling[SIM_CPUS];	/* so many */
	struct shadow_cpu cpus[SIM_CPUS];
	bool twice;		/* an unmap is running that may be any CPU's */
	u32 unlinked[SHADOW_TABLES];	/* tables that are to be covered */
	u32 unlinked_count;
	u32 empty[SHADOW_EMPTY];	/* blocks that were all unmapped */
	u32 empty_count;
	struct shadow_block blocks[SIM_BLOCKS + 1];
	struct shadow_memory memory[SIM_MEMORY];
	struct shadow_table tables[SHADOW_TABLES];
	struct shadow_page pages[SIM_PAGES];
};

extern struct shadow shadow;

/* Begin a run. */
void check_begin(void);

/* Take an event in. */
void check_event(const struct sim_event *event);

/* The level that devices have seen: strict, held, or bounded for anything less. */
enum xs_level check_observed_level(void);

/* The shadow's own part of an event. */
void shadow_event(const struct sim_event *event);

/* The oldest deferred page of any CPU, 0: none. */
u32 shadow_oldest(void);

/* Has the unmap @event that returns left @page unflushed? */
bool shadow_is_left(const struct shadow_page *page, const struct sim_event *event);

/* What a policy flushes on. */
#define POINT_POLL	1u	/* the end of a poll */
#define POINT_BLOCK	2u	/* a block that is all unmapped */
#define POINT_UNMAP	4u	/* each unmap */

/* What a flush sends: a domain command, so many ranges, or as many as the operator has set. */
#define SENDS_DOMAIN	0u
#define SENDS_RANGES	32u
#define SENDS_SET	(~0u)

struct check_row {
	u32 points;
	u32 sends;
};

/* What a policy is to do, by its number in EV_POLICY: its place in the table. */
struct check_row check_row_of(u32 number);

/* The invariants; each in its file. */
void check_iova(const struct sim_event *event);		/* 1 */
void check_pages(const struct sim_event *event);	/* 2 */
void check_stale(const struct sim_event *event);	/* 3 */
void check_points(const struct sim_event *event);	/* 3: what a flush point flushes */
void check_tables(const struct sim_event *event);	/* 4 */
void check_exact(const struct sim_event *event);	/* 5 */
void check_accounts(const struct sim_event *event);	/* 6 */
void check_bound(const struct sim_event *event);	/* a deferred unmap's age */
void check_sent(const struct sim_event *event);		/* what a flush sends */
void check_level(const struct sim_event *event);	/* never stronger than seen */
void check_change(const struct sim_event *event);	/* what a new policy promises */
void check_torn(const struct sim_event *event);	/* unmaps that are of no mapping */

#endif
