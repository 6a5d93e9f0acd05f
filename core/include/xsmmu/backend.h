/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The backend that an engine acts on: page tables, invalidations, pages, clock.
 *
 * The engine decides, the backend does. Each call is made at batch level: a
 * flush removes extents of pages, then sends its commands in one call.
 *
 * Units: an IOVA and a physical address are in bytes and page aligned here; a
 * page is XS_PAGE_BYTES, the CPU's. Ranges are half-open unless a bound is called last.
 */
#ifndef XSMMU_WORLD_H
#define XSMMU_WORLD_H

#include <xsmmu/needs.h>

#define XS_PAGE_BYTES	(1ULL << XS_PAGE_LG2)

/* Memory for any CPU; see alloc() below. */
#define XS_ANY_CPU	(~0u)

/* A range of IOVA pages: [page, page + pages), in page numbers. */
struct xs_range {
	u64 page;
	u64 pages;
};

/* Invalidation commands that a call really sent, by kind. */
struct xs_commands {
	u32 page;
	u32 domain;
	u32 global;
};

/*
 * struct xs_bad_unmap - a call that its caller cannot mean
 * @what:	for a person to read
 * @iova, @pages: what the caller named; of no unmap @pages is 0
 * @mapped_iova, @mapped_pages: of an unmap, the first mapping that has some of those
 *		pages; @mapped_pages is 0 if none has
 * @removed:	what remove_part() of the backend has returned of that mapping
 */
struct xs_bad_unmap {
	const char *what;
	u64 iova;
	u32 pages;
	u64 mapped_iova;
	u32 mapped_pages;
	int removed;
};

/* Where a page is that is not to be mapped. */
#define XS_PHYS_NONE	(~0ULL)

/* A map has failed, and devices may reach some of its pages. */
#define XS_MAP_LEFT	1

/* What remove_part() returns if all of the mapping is removed, although a part was meant. */
#define XS_REMOVED_ALL	1

/*
 * Among what a map may do: its flush, if it needs one, is left to the caller, as by flush_maps().
 */
#define XS_MAP_UNFLUSHED	(1u << 31)

/*
 * struct xs_backend_ops - what the engine asks of its backend
 *
 * But for what is said below all are called from any context, interrupts
 * included, some with a lock of the engine held: none may sleep or call the
 * engine.
 */
struct xs_backend_ops {
	/*
	 * Map @pages pages at @iova to @phys. @prot is passed through from the
	 * caller. Returns 0 or a negative errno; on error nothing is mapped.
	 * XS_MAP_LEFT: the map has failed, and the backend could not undo all of it.
	 * Devices may use what is mapped from the return on, unless @prot has
	 * XS_MAP_UNFLUSHED.
	 *
	 * @entries: of the block that they are in, NULL if there are more than
	 * a block has. The backend may keep there where the block's entries in
	 * the page table are. It is NULL again in a block that is taken anew,
	 * and who calls has a page of the block: so it may be used as long as
	 * tables are freed only by maps and removals of more pages than a
	 * block's, and where nothing is mapped.
	 */
	int (*map)(void *backend, void **entries, u64 iova, u64 phys, u32 pages,
		   u32 prot);

	/*
	 * The same of pages of a block, of which page i is at phys[i], or blocked:
	 * XS_PHYS_NONE. False: nothing is mapped, and map() is called for each that
	 * are neighbours in memory. NULL: always.
	 */
	bool (*map_each)(void *backend, void **entries, u64 iova, const u64 *phys,
			 u32 pages, u32 prot);

	/*
	 * What was mapped with XS_MAP_UNFLUSHED within these ranges, and is still, may
	 * be used by devices from the return on. Some of it may be unmapped by now, or
	 * mapped anew, and what is between is no matter. NULL if nobody asks for it.
	 */
	void (*flush_maps)(void *backend, const struct xs_range *ranges,
			   u32 count);

	/*
	 * Remove @pages pages from the page table. No mapping is split: the extent
	 * is made of whole mappings, and may join several. What this frees
	 * (page-table pages) goes to @gather and stays there until
	 * @invalidate. Translations may stay cached. Returns 0, or a negative
	 * errno: devices may reach any of these pages also after @invalidate.
	 * The engine then keeps IOVA and memory out of use (stuck.h).
	 */
	int (*remove)(void *backend, xs_gather_t *gather, u64 iova, u64 pages);

	/*
	 * Remove pages that an earlier call has failed to remove. Some of them
	 * may not be mapped any more. Returns what remove() returns. NULL, as stuck()
	 * below, in a backend where that never fails.
	 */
	int (*remove_again)(void *backend, xs_gather_t *gather, u64 iova,
			    u64 pages);

	/*
	 * The backend could not remove @pages pages at @iova, or there was no memory to
	 * make sure of it (stuck.h). The backend logs that and calls xs_engine_retry()
	 * later, from where it may sleep.
	 */
	void (*stuck)(void *backend, u64 iova, u64 pages);

	/*
	 * Remove @part of the mapping @whole, which may have holes: its driver has
	 * named only some of its pages, or others were removed before. The backend may
	 * remove more of @whole, where a part cannot go alone. Other calls may do the
	 * same at the same time. Returns 0; XS_REMOVED_ALL: devices reach no page of
	 * @whole after @invalidate; or a negative errno: some pages may be mapped still.
	 */
	int (*remove_part)(void *backend, xs_gather_t *gather,
			   const struct xs_range *part,
			   const struct xs_range *whole);

	/*
	 * Make stale translations of all that @gather saw removed impossible,
	 * in every cache, and wait; then free what @gather holds. With @count
	 * ranges, those cover everything removed, and the page-walk caches may
	 * be kept if no page-table page was freed. With @count 0 the whole
	 * domain is invalidated. The backend may send more than it was asked
	 * (never less) and adds what it sent to @sent.
	 */
	void (*invalidate)(void *backend, xs_gather_t *gather,
			   const struct xs_range *ranges, u32 count,
			   struct xs_commands *sent);

	/* Start an empty gather. */
	void (*gather_init)(xs_gather_t *gather);

	/* Now, in ns; comparable between CPUs. A correction may set it back a little. */
	u64 (*clock)(void *backend);

	/*
	 * CPU @cpu has deferred unmaps that no poll and no timer knows of. If
	 * it is the running one, the backend calls xs_engine_poll() at the end of
	 * each poll on it from now on, until that returns true. It calls
	 * xs_engine_expire() no later than at @deadline_ns if @arm is set,
	 * whatever was to happen before.
	 */
	void (*deferred)(void *backend, u32 cpu, bool arm, u64 deadline_ns);

	/*
	 * Zeroed memory that starts on a cache line, near @cpu if that is not
	 * XS_ANY_CPU; NULL when there is none. @atomic: must not sleep. @free
	 * takes NULL and never sleeps for a block got with @atomic.
	 */
	void *(*alloc)(void *backend, size_t bytes, u32 cpu, bool atomic);
	void (*free)(void *backend, void *memory, size_t bytes);

	/*
	 * Wait until every xs_enter() of before has had its xs_exit(). May
	 * sleep; called where that is allowed.
	 */
	void (*quiesce)(void *backend);

	/*
	 * Much of the space is empty, or torn mappings are done (tear.h):
	 * xs_engine_trim() is worth a call soon, from where it may sleep. May be NULL.
	 */
	void (*surplus)(void *backend);

	/*
	 * Nothing is mapped in these IOVA pages, and nothing will be until the
	 * return: free the page-table pages that are only about them, and
	 * invalidate what the IOMMU caches of those. May be NULL. Not counted.
	 */
	void (*prune)(void *backend, u64 iova, u64 pages);

	/*
	 * Copying (pool.h), where there is any. Add a chunk: zeroed memory, mapped at
	 * @iova for @direction and for nothing else; NULL if there is none. If add sets
	 * *@left, the map has failed, and devices may reach some of the memory, which
	 * it returns for drop. When drop
	 * returns no translation of it exists, stale ones included, and it is free.
	 * If the backend cannot remove the chunk, drop returns false and frees nothing.
	 * Both may sleep. A pool is short of bounce buffers: xs_pool_grow() is worth a call
	 * soon, from where it may sleep; NULL if that is done in other ways.
	 */
	void *(*add_chunk)(void *backend, u64 iova, u32 direction, bool *left);
	bool (*drop_chunk)(void *backend, u64 iova, void *memory);
	void (*short_of)(void *backend);

	/*
	 * A call was ignored, as its caller cannot mean it; or it was an unmap, and
	 * only the pages that it named are removed. Not a fault of the engine's.
	 */
	void (*bad_unmap)(void *backend, const struct xs_bad_unmap *bad_unmap);

	/*
	 * A flush has finished on @cpu; for tracing. May be NULL.
	 */
	void (*flushed)(void *backend, u32 cpu, u32 cause, u32 pages, u32 ranges,
			const struct xs_commands *sent, u64 oldest_ns);
};

#endif
