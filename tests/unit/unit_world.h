/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A dumb world around an engine, and a dumb driver that uses it.
 *
 * Every IOVA page has one word: is it in the page table, may it be cached, and
 * what does it translate to. What was removed counts as cached until an
 * invalidation covers it, as a device may have used it at the last moment.
 * So "no stale translation" is "the word is 0", and the world checks on its own
 *
 *   - map: the word is 0 (nothing is handed out while stale)
 *   - remove: only what the driver has unmapped, once and as a whole; all of a
 *     page-table page only if it is one mapping's. Again only what has failed.
 *   - remove_part: only what an unmap has named, of one mapping
 *   - invalidate: the ranges cover all that the gather saw removed
 *   - a page that goes back to its allocator: no word promised to be held
 *     refers to it
 *   - map: what the world keeps in a block is its own, and of a page-table page that
 *     is in use still: one goes by a map or a removal of all of it, or a prune
 *   - prune: nothing is mapped there, or stale, and none of it can be handed out
 *   - alloc and free: the sizes agree, nothing stays behind
 *   - a change of policy: what was unmapped before it is unreachable after it, and
 *     what was unmapped since then has the new level
 *
 * All of it is relaxed atomic words, so that no order comes from here that the
 * engine does not make itself.
 */
#ifndef TEST_UNIT_WORLD_H
#define TEST_UNIT_WORLD_H

#include <xsmmu/engine.h>

#include "harness.h"

#define WORLD_BLOCKS_MAX	640
#define WORLD_PAGES_MAX		(WORLD_BLOCKS_MAX * XS_BLOCK_PAGES)

#define TABLE_PAGES		(1u << (XS_PAGE_LG2 - 3))	/* of a last page table */

/* Twice a table at least. */
#define WORLD_MEMORY_PAGES	(XS_PAGE_LG2 < 16 ? 16384 : 32768)

#define PROT_READ_		1u
#define PROT_WRITE_		2u

/* How a page of memory can be held. */
enum memory_kind {
	MEMORY_COUNTED,		/* by a reference of its own */
	MEMORY_FOLIO,		/* by one of the first of the same mapping */
	MEMORY_SLAB,		/* not at all */
	MEMORY_PERMANENT,	/* needs none: never freed */
	MEMORY_KINDS
};

/*
 * One page of memory: free when @refs is 0. @reach: IOVA pages whose word
 * refers to it. @head: the page whose references count, of @pages pages.
 */
struct memory {
	u64 refs;
	u64 reach;
	u64 kind;
	u32 head;
	u32 pages;
};

/*
 * The word of an IOVA page: flags, the page of memory, and a number that no other
 * word ever had.
 */
#define WORD_PROT	3u
#define WORD_TABLE	4u	/* in the page table */
#define WORD_CACHED	8u	/* in an IOTLB, maybe */
#define WORD_UNFLUSHED	16u	/* mapped without a flush: no device gets through */
#define WORD_PAGE_SHIFT	8
#define WORD_NUMBER_SHIFT	24

/* What the driver thinks of an IOVA page. */
#define OWNER_MAPPED	1u
#define OWNER_PROMISED	2u	/* unmapped under a policy that holds */
#define OWNER_RETURNED	4u	/* the unmap has */
#define OWNER_AWARE	8u	/* it leaves the flush to the driver */
#define OWNER_REMOVED	16u	/* from the page table */
#define OWNER_REFUSED	32u	/* the last try to remove it has failed */
#define OWNER_TORN	64u	/* an unmap that is none of its mapping has named it */
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
	u64 first_page;		/* of IOVA; pages are counted from it here */
	u32 end_page;
	u64 now_ns;
	struct {
		u64 deadline_ns;	/* of the timer, 0: not started */
		u64 poll_due;
		u64 firing;
	} cpu[TEST_CPUS];

	/* Failures to come: the n-th call from now fails, 0: none does. */
	u64 alloc_fails_in;
	u64 map_fails_in;
	bool maps_fail;		/* every map */
	bool maps_left;		/* a map that fails leaves its first half mapped */
	u64 removal_fails_in;	/* the n-th removal fails, */
	u64 removals_to_fail;	/* and so many from then on */
	bool removes_outside;	/* removals that are tried again are in no call's section */
	u64 stuck_pages;	/* that the engine has told of, since the test has reset it, */
	u64 ever_stuck;		/* and at all */
	bool bare;
	enum { SENDS_ASKED, SENDS_DOMAIN, SENDS_GLOBAL } sends;
	bool frees_early;	/* the driver frees memory that it has mapped */
	bool exact_unmap;		/* of a mapping no part is removed alone */
	bool removes_none;	/* nothing is to be removed but again */
	u64 parts_fail;		/* so many removals of parts fail from now on */
	void (*part_failed)(struct world *world);	/* after one of those, */
	bool records_lost;	/* whose pages are not known any more: none is removed */
	int bad_unmap_removed;	/* what the last bad unmap says of the removal */
	bool record_fails;	/* @mapping is to have no memory for a record */
	void (*mapping)(struct world *world, u64 iova);	/* before a map's entries are there, */
	bool map_fails_late;	/* which it fails after */
	void (*meanwhile)(struct world *world);	/* while a change waits */
	void (*removing)(struct world *world);	/* before a removal by an unmap or a flush */

	u64 fast_holds;
	u64 let_go;		/* references of pages that were reachable */
	u64 allocations;
	u64 sent_page, sent_domain, sent_global;
	u64 timers;		/* started */
	u64 flushed_calls;
	u64 flushed_pages_max;	/* of deferred ones, in one flush */
	u64 exposed_max_ns;	/* the longest that the world saw */
	u64 removals;		/* calls */
	u64 invalidations;	/* calls */
	u64 map_flushes;		/* calls, and their ranges and pages */
	u64 map_ranges;
	u64 map_pages;
	u32 last_gather;
	u64 last_serial;
	u64 last_number;
	u64 surplus;		/* calls since the last trim */
	u64 pruned;		/* pages */
	u64 pruning;		/* first page + 1 of what is being pruned, or 0 */
	u64 changes;		/* of policy, twice; odd: one is going on */
	struct world_row rows[WORLD_ROWS];

	/* By IOVA page. @left: the number of the word when it was unmapped. */
	u64 word[WORLD_PAGES_MAX];
	u64 owner[WORLD_PAGES_MAX];
	u64 unmapped_ns[WORLD_PAGES_MAX];
	u64 left[WORLD_PAGES_MAX];
	u64 before[WORLD_PAGES_MAX];
	u32 tag[WORLD_PAGES_MAX];
	u64 table[WORLD_PAGES_MAX / TABLE_PAGES + 1];	/* a number for each use of it */

	struct memory memory[WORLD_MEMORY_PAGES];
};

struct world_config {
	u32 blocks;	/* of IOVA space, block 0 included */
	u32 cpus;
	const struct xs_policy *policy;
	const struct xs_tuning *tuning;
	u64 start;	/* of it, in bytes */
	bool bare;	/* the world has no calls but those that it must have */
	bool remembers;	/* the engine is told that removals may fail */
};

/*
 * A world with an engine. There is one at a time: xs_ref_of() has to know it.
 * NULL, and nothing stays behind, if the engine cannot be made; @alloc_fails_in
 * as in struct world.
 */
struct world *world_new(const struct world_config *config, u64 alloc_fails_in);

/* Drain, leak check, destroy, and check that nothing is left. All is unmapped. */
void world_end(struct world *world);

/* Free the world whatever is left, after a failure or without one. */
void world_free(struct world *world);

/* ---- time and flush points ---- */

/* Move the clock, firing each timer on its deadline. One thread only. */
void world_advance(struct world *world, u64 ns);

/* Fire this CPU's timer if it is due. */
void world_fire(struct world *world, u32 cpu);

/* The end of a poll on the running CPU. */
void world_poll(struct world *world);

/*
 * xs_engine_set(), and check what it promises: what was unmapped before cannot be
 * reached, and what was unmapped by now has the new level. One thread only.
 */
void world_set_policy(struct world *world, const struct xs_policy *policy,
		      const struct xs_tuning *tuning);

/* The same of xs_engine_settle(). */
void world_settle(struct world *world);

/* xs_engine_trim() if the engine has asked for it, or @always. One thread only. */
void world_trim(struct world *world, bool always);

/* ---- looking ---- */

/* Could a device use this IOVA page now? */
bool world_reachable(const struct world *world, u64 iova);

/* A device accesses @iova; returns whether it gets through, and caches. */
bool world_access(struct world *world, u64 iova, u32 prot, u64 *phys);

/*
 * Check every IOVA page of a world at rest: mapped ones are in the table, and
 * others stay reachable for less than @window_ns after their unmap.
 */
void world_check(struct world *world, u64 window_ns);

/* No page that the driver unmapped is reachable. */
void world_check_flushed(struct world *world);

/* IOVA pages that the driver has mapped. */
u64 world_mapped_pages(const struct world *world);

/* The accounts of now; until the next call. */
const struct xs_stats *world_stats(struct world *world);

/* Warnings since the last call. One that was not asked for fails the test. */
u32 world_warnings(void);

/* ---- a driver ---- */

/*
 * @parts: reserved, and filled in so many parts; 0: mapped in one call. @deferred: that leaves
 * the map's flush to the caller
 */
struct mapping {
	u64 iova;
	u64 serial;
	u32 pages;
	u32 page;	/* of memory, the first */
	u32 prot;
	u32 parts;
	bool deferred;
	enum memory_kind kind;
};

/*
 * Allocate memory and map it below @last: *@mapping has pages, prot, parts and
 * kind. False, and nothing is done, without memory or IOVA.
 */
bool driver_map(struct world *world, struct mapping *mapping, u64 last);

/* The same for one page, at @iova in a block that was taken for the driver. */
bool driver_map_at(struct world *world, struct mapping *mapping, u64 iova);

/*
 * The same for @pages pages from @iova on, each a mapping, in one call; their
 * memory is in rows of @run pages, of which @pages is a multiple. Returns how many
 * are mapped. The other one undoes those of @mask.
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
 * The first step without a flush. Returns whether the policy, the weaker one of a
 * change that is going on, promises that nothing is reachable after the driver's
 * own.
 */
bool driver_unmap_deferred(struct world *world, const struct mapping *mapping);

/*
 * The same of @count mappings, 1 .. AWARE_MAX, with one flush at the end, and their
 * memory is freed. @everywhere: the driver may be moved from CPU to CPU.
 */
#define AWARE_MAX	8
void driver_unmap_aware(struct world *world, const struct mapping *mappings,
			u32 count, bool everywhere);

/*
 * An unmap of @pages pages at @iova that is of no mapping, in the @how-th of
 * TEAR_WAYS; and check that no device reaches what it names, and that nothing else of
 * what is mapped is lost. Returns what the engine has.
 */
#define TEAR_WAYS	3
bool driver_tear(struct world *world, u64 iova, u32 pages, u32 how);

/* All pages of the mapping have been named; and the engine has unmapped it. */
void driver_note_torn(struct world *world, const struct mapping *mapping);
void driver_is_torn(struct world *world, const struct mapping *mapping);

/*
 * A device uses each page of the mapping, which is there, as it may; in a world that
 * is exact it may be gone as a whole.
 */
void driver_check(struct world *world, const struct mapping *mapping);

/*
 * A batch-aware driver's flush of @mapping has returned. If the world has refused to remove it
 * the engine is to keep its memory, if that can be held and is one page.
 */
void driver_keeps(struct world *world, const struct mapping *mapping);

/* Has the world refused to remove a page of what @mapping was, and not done it since? */
bool driver_refused(const struct world *world, const struct mapping *mapping);

/* Is what @mapping was still reachable? Its memory is not freed yet. */
bool driver_reachable(const struct world *world, const struct mapping *mapping);

/* The inline one-page paths of the engine; see path.c. */
u64 path_map_one(struct xs_engine *engine, u64 phys, u32 prot, u64 last);
void path_unmap_one(struct xs_engine *engine, u64 iova);
void path_unmap_one_deferred(struct xs_engine *engine, u64 iova);

#endif
