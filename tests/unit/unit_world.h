/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A simple backend of an engine, and a simple driver.
 *
 * Every IOVA page has one word: presence in the page table, possible presence in
 * a cache, and the translation. A removed translation counts as cached until an
 * invalidation covers the page, because a device may have used the page at the
 * last moment. So "no stale translation" is "the word is 0", and the world checks
 *
 *   - map: the word is 0 (no page is handed out while stale)
 *   - remove: only whole mappings that the driver has unmapped, each once; a whole
 *     page-table page only for a single mapping. Again only after a failure.
 *   - remove_part: only pages of one mapping that an unmap has named
 *   - invalidate: the ranges cover all pages that the gather saw removed
 *   - a page that goes back to the allocator: no word that is promised to be held
 *     refers to the page
 *   - map: the pointer stored in a block belongs to the block, and to a page-table page
 *     in use: a page-table page goes by a map or removal of the whole page, or a prune
 *   - prune: nothing is mapped or stale there, and no page there can be handed out
 *   - alloc and free: the sizes agree, nothing stays behind
 *   - a policy change: pages unmapped before the change are unreachable afterwards,
 *     and pages unmapped since then have the new level
 *
 * All words are relaxed atomics, so the world adds no memory order that the engine
 * does not create.
 */
#ifndef TEST_UNIT_WORLD_H
#define TEST_UNIT_WORLD_H

#include <xsmmu/engine.h>

#include "harness.h"

#define WORLD_BLOCKS_MAX	640
#define WORLD_PAGES_MAX		(WORLD_BLOCKS_MAX * XS_BLOCK_PAGES)

#define TABLE_PAGES		(1u << (XS_PAGE_LG2 - 3))	/* of a last-level page table */

/* At least twice a table. */
#define WORLD_MEMORY_PAGES	(XS_PAGE_LG2 < 16 ? 16384 : 32768)

#define PROT_READ_		1u
#define PROT_WRITE_		2u

/* How a page of memory can be held. */
enum memory_kind {
	MEMORY_COUNTED,		/* by a reference of the page */
	MEMORY_FOLIO,		/* by a reference of the mapping's first page */
	MEMORY_SLAB,		/* not at all */
	MEMORY_PERMANENT,	/* no need: never freed */
	MEMORY_KINDS
};

/*
 * A page of memory: free when @refs is 0. @reach: IOVA pages whose word refers to the page.
 * @head: the page whose references count, of @pages pages.
 */
struct memory {
	u64 refs;
	u64 reach;
	u64 kind;
	u32 head;
	u32 pages;
};

/*
 * The word of an IOVA page: flags, the page of memory, and a number that no other word ever
 * had.
 */
#define WORD_PROT	3u
#define WORD_TABLE	4u	/* in the page table */
#define WORD_CACHED	8u	/* possibly in an IOTLB */
#define WORD_UNFLUSHED	16u	/* mapped without a flush: no device gets through */
#define WORD_PAGE_SHIFT	8
#define WORD_NUMBER_SHIFT	24

/* State of an IOVA page from the driver's view. */
#define OWNER_MAPPED	1u
#define OWNER_PROMISED	2u	/* unmapped under a policy that holds */
#define OWNER_RETURNED	4u	/* the unmap has returned */
#define OWNER_AWARE	8u	/* the unmap leaves the flush to the driver */
#define OWNER_REMOVED	16u	/* from the page table */
#define OWNER_REFUSED	32u	/* the last removal has failed */
#define OWNER_TORN	64u	/* a bad unmap has named the page */
#define OWNER_SERIAL	128u	/* steps of the mapping's serial number */

/* A policy that was set, or is being set. */
struct world_row {
	const struct xs_policy *policy;
	bool batch_aware;
};

#define WORLD_ROWS	64	/* changes that one call may see */

struct world {
	struct xs_engine engine;
	u32 cpus;
	u64 first_page;		/* of IOVA; page numbers here start at 0 */
	u32 end_page;
	u64 now_ns;
	struct {
		u64 deadline_ns;	/* of the timer, 0: not started */
		u64 poll_due;
		u64 firing;
	} cpu[TEST_CPUS];

	/* Failures to inject: the n-th call from now fails, 0: no call fails. */
	u64 alloc_fails_in;
	u64 map_fails_in;
	bool maps_fail;		/* every map */
	bool maps_not_undone;		/* a failing map leaves the first half mapped */
	u64 removal_fails_in;	/* the n-th removal fails, */
	u64 removals_to_fail;	/* and so many from then on */
	bool removes_outside;	/* retried removals are in no call's section */
	u64 stuck_pages;	/* reported by the engine since the test's last reset, */
	u64 ever_stuck;		/* and at all */
	bool bare;
	enum { SENDS_ASKED, SENDS_DOMAIN, SENDS_GLOBAL } sends;
	bool frees_early;	/* the driver frees mapped memory */
	bool exact_unmap;		/* no part of a mapping is removed alone */
	bool removes_none;	/* only retried removals are expected */
	u64 parts_fail;		/* so many removals of parts fail from now on */
	void (*part_failed)(struct world *world);	/* called after such a failure, */
	bool records_lost;	/* after which records of its pages are lost: none is removed */
	int misuse_removed;	/* reported by the last bad unmap about the removal, */
	bool misuse_shared;	/* pages with other mappings, */
	u64 misuse_iova;	/* and the first mapping; 0 if there was none */
	bool record_fails;	/* @mapping finds no memory for a record */
	u64 ref_asked_in;	/* the n-th question for a reference from now on calls */
	void (*ref_asked)(struct world *world);
	void (*allocating)(struct world *world);	/* called before an allocation */
	void (*mapping)(struct world *world, u64 iova);	/* called before a map writes entries, */
	bool map_fails_late;	/* after which the map fails */
	void (*meanwhile)(struct world *world);	/* called while a change waits */
	void (*ticking)(struct world *world);	/* called before the clock is read */
	void (*removing)(struct world *world);	/* called before a removal of whole mappings */

	u64 fast_holds;
	u64 let_go;		/* references of pages that were reachable */
	u64 allocations;
	u64 sent_page, sent_domain, sent_global;
	u64 timers;		/* started */
	u64 flushed_calls;
	u64 flushed_pages_max;	/* most deferred pages in one flush */
	u64 exposed_max_ns;	/* longest exposure seen by the world */
	u64 removals;		/* calls */
	u64 invalidations;	/* calls */
	u64 map_flushes;		/* calls, with ranges and pages */
	u64 map_ranges;
	u64 map_pages;
	u32 last_gather;
	u64 last_serial;
	u64 last_number;
	u64 surplus;		/* calls since the last trim */
	u64 pruned;		/* pages */
	u64 pruning;		/* first page + 1 of a running prune, or 0 */
	u64 pruning_end;	/* its end */
	u64 changes;		/* of policy, times two; odd: a change is running */
	struct world_row rows[WORLD_ROWS];

	/* By IOVA page. @left: the number of the word at the unmap. */
	u64 word[WORLD_PAGES_MAX];
	u64 owner[WORLD_PAGES_MAX];
	u64 unmapped_ns[WORLD_PAGES_MAX];
	u64 left[WORLD_PAGES_MAX];
	u64 before[WORLD_PAGES_MAX];
	u64 before_serial[WORLD_PAGES_MAX];
	u32 tag[WORLD_PAGES_MAX];
	u64 shares[WORLD_PAGES_MAX];	/* mappings beside the first; of the window only */
	u64 table[WORLD_PAGES_MAX / TABLE_PAGES + 1];	/* a number for each use of the table */

	struct memory memory[WORLD_MEMORY_PAGES];
};

struct world_config {
	u32 blocks;	/* of IOVA space, block 0 included */
	u32 cpus;
	const struct xs_policy *policy;
	const struct xs_tuning *tuning;
	u64 start;	/* of the space, in bytes */
	bool bare;	/* only the mandatory backend operations exist */
	bool remembers;	/* the engine is told that removals may fail */
	bool identity;	/* a window of identity placement for all memory */
};

/* First page of the window in the arrays of a world: above the largest space of a test with it. */
#define WORLD_WINDOW	(3 * 8192u)
#define WORLD_WINDOW_PAGES	8192u	/* memory of such a world */

/*
 * Make a world with an engine. There is one world at a time, because xs_ref_of() must find the
 * world. Returns NULL, with nothing left behind, if the engine cannot be made; @alloc_fails_in
 * as in struct world.
 */
struct world *world_new(const struct world_config *config, u64 alloc_fails_in);

/*
 * Drain, run the leak check, destroy, and check that nothing is left. All pages must be
 * unmapped.
 */
void world_end(struct world *world);

/* Free the world whatever is left, after a failure or without one. */
void world_free(struct world *world);

/* ---- time and flush points ---- */

/* Move the clock, firing each timer on the deadline. One thread only. */
void world_advance(struct world *world, u64 ns);

/* Fire this CPU's timer if due. */
void world_fire(struct world *world, u32 cpu);

/* The end of a poll on the running CPU. */
void world_poll(struct world *world);

/*
 * Call xs_engine_set() and check the promise: pages unmapped before cannot be reached, and
 * pages unmapped by now have the new level. One thread only.
 */
void world_set_policy(struct world *world, const struct xs_policy *policy,
		      const struct xs_tuning *tuning);

/* The same for xs_engine_settle(). */
void world_settle(struct world *world);

/* Call xs_engine_trim() if the engine has asked for a trim, or if @always. One thread only. */
void world_trim(struct world *world, bool always);

/* ---- inspection ---- */

/* Could a device use this IOVA page now? */
bool world_reachable(const struct world *world, u64 iova);

/*
 * A device accesses @iova; returns whether the access succeeds. A successful access fills
 * caches.
 */
bool world_access(struct world *world, u64 iova, u32 prot, u64 *phys);

/*
 * Check every IOVA page of a world at rest: mapped pages are in the table, and other pages stay
 * reachable for less than @window_ns after the unmap.
 */
void world_check(struct world *world, u64 window_ns);

/* Check that no page unmapped by the driver is reachable. */
void world_check_flushed(struct world *world);

/* Number of IOVA pages mapped by the driver. */
u64 world_mapped_pages(const struct world *world);

/* Returns the current statistics, valid until the next call. */
const struct xs_stats *world_stats(struct world *world);

/* Number of warnings since the last call. An unexpected warning fails the test. */
u32 world_warnings(void);

/* ---- a driver ---- */

/*
 * @parts: the range is reserved, then filled in so many parts; 0: mapped in one call.
 * @deferred: the map's flush is left to the caller
 */
struct mapping {
	u64 iova;
	u64 serial;
	u32 pages;
	u32 page;	/* first page of memory */
	u32 prot;
	u32 parts;
	bool deferred;
	enum memory_kind kind;
};

/*
 * Allocate memory and map the memory below @last; the caller sets pages, prot, parts and kind
 * of *@mapping. Returns false, without any effect, if there is no memory or IOVA.
 */
bool driver_map(struct world *world, struct mapping *mapping, u64 last);

/* The same with the memory of another mapping, of which the driver takes one more reference. */
bool driver_map_again(struct world *world, struct mapping *mapping, const struct mapping *of,
		      u64 last);

/* The same for one page, at @iova in a block taken for the driver. */
bool driver_map_at(struct world *world, struct mapping *mapping, u64 iova);

/*
 * The same for @pages single-page mappings from @iova on, in one call. Memory is contiguous in
 * groups of @run pages; @pages is a multiple of @run. Returns the number of mapped pages.
 * driver_unmap_block_deferred() undoes the mappings of @mask.
 */
u32 driver_map_block(struct world *world, struct mapping *mappings, u32 pages,
		     u32 run, u64 iova);
void driver_unmap_block_deferred(struct world *world,
				 const struct mapping *mappings, u64 mask);

/* Unmap, and free the memory at once as an unmodified driver does. */
void driver_unmap(struct world *world, const struct mapping *mapping, bool now);

/* The same in two steps, as a batch-aware driver does. */
void driver_unmap_only(struct world *world, const struct mapping *mapping,
		       bool now);
void driver_free(struct world *world, const struct mapping *mapping);

/*
 * The first step without a flush. Returns whether the policy, or the weaker policy during a
 * change, promises that nothing is reachable after the driver's own flush.
 */
bool driver_unmap_deferred(struct world *world, const struct mapping *mapping);

/*
 * The same for @count mappings, 1 .. AWARE_MAX, with one flush at the end, then free the
 * memory. @everywhere: the driver may migrate between CPUs.
 */
#define AWARE_MAX	8
void driver_unmap_aware(struct world *world, const struct mapping *mappings,
			u32 count, bool everywhere);

/*
 * A bad unmap of @pages pages at @iova, in way @how of TEAR_WAYS. Checks that no device reaches
 * the named pages, and that no other mapped page is lost. Returns the engine's result.
 */
#define TEAR_WAYS	3
bool driver_tear(struct world *world, u64 iova, u32 pages, u32 how);

/* All pages of the mapping have been named; and the engine has unmapped the mapping. */
void driver_note_torn(struct world *world, const struct mapping *mapping);
void driver_is_torn(struct world *world, const struct mapping *mapping);

/*
 * A device uses each page of an existing mapping. In a world with exact_unmap the mapping may
 * be gone as a whole.
 */
void driver_check(struct world *world, const struct mapping *mapping);

/*
 * A batch-aware driver's flush of @mapping has returned. If the world has refused the removal,
 * the engine must hold memory that is a single page and can be held.
 */
void driver_keeps(struct world *world, const struct mapping *mapping);

/* Has the world refused to remove a page of the former mapping, and not removed the page since? */
bool driver_refused(const struct world *world, const struct mapping *mapping);

/* Is the former mapping still reachable? The memory is not freed yet. */
bool driver_reachable(const struct world *world, const struct mapping *mapping);

/* The inline one-page paths of the engine; see path.c. */
u64 path_map_one(struct xs_engine *engine, u64 phys, u32 prot, u64 last);
void path_unmap_one(struct xs_engine *engine, u64 iova);
void path_unmap_one_deferred(struct xs_engine *engine, u64 iova);

#endif
