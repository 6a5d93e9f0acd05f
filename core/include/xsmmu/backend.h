/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The backend that an engine acts on: page tables, invalidations, pages, clock.
 *
 * The engine decides and the backend acts. Calls are made for whole batches: a flush removes
 * extents of pages, then sends its commands in a single call.
 *
 * Units: IOVAs and physical addresses are in bytes and page aligned. A page is the CPU's page,
 * XS_PAGE_BYTES. Ranges are half-open; an inclusive bound is called last.
 */
#ifndef XSMMU_BACKEND_H
#define XSMMU_BACKEND_H

#include <xsmmu/needs.h>

#define XS_PAGE_BYTES	(1ULL << XS_PAGE_LG2)

#define XS_CACHE_LINE	__attribute__((aligned(64)))

/* no preferred CPU for alloc() */
#define XS_ANY_CPU	(~0u)

/* A range of IOVA pages: [page, page + pages), in page numbers. */
struct xs_range {
	u64 page;
	u64 pages;
};

/* Invalidation commands that a call has sent, by kind. */
struct xs_commands {
	u32 page;
	u32 domain;
	u32 global;
};

/**
 * struct xs_misuse - a call that the caller cannot mean: a bad unmap, or another call that the
 *   engine has ignored
 * @what: description for a person
 * @iova: address that the caller named, in bytes; 0 if the caller named no address
 * @pages: pages that the caller named; 0 if the call was not an unmap
 * @mapped_iova: of an unmap, the start of the first mapping that has some of the named pages
 * @mapped_pages: size of the mapping at @mapped_iova; 0 if no named page was mapped
 * @shared: named pages of the identity window have other mappings, and stay until their unmaps
 * @removed: negative errno if named pages could not be removed, by this unmap, or by an earlier one
 *   of a page of the identity window, or the removal is not certain; else XS_REMOVED_ALL if the
 *   mapping at @mapped_iova was removed as a whole; else 0
 */
struct xs_misuse {
	const char *what;
	u64 iova;
	u32 pages;
	u64 mapped_iova;
	u32 mapped_pages;
	bool shared;
	int removed;
};

/* Physical address of a page that is to stay unmapped. */
#define XS_PHYS_NONE	(~0ULL)

/* A map has failed, and devices may reach some of its pages. */
#define XS_MAP_NOT_UNDONE	1

/* Return value of remove_part(): the whole mapping is removed, although a part was requested. */
#define XS_REMOVED_ALL	1

/* Flag in @prot of a map: the caller calls flush_maps() if the map needs a flush. */
#define XS_MAP_UNFLUSHED	(1u << 31)

/*
 * struct xs_backend_ops - operations that the engine needs of a backend
 *
 * Unless stated otherwise, operations are called from any context, interrupts included, and
 * sometimes with a lock of the engine held: an operation must not sleep or call the engine.
 */
struct xs_backend_ops {
	/*
	 * @map: map @pages pages at @iova to @phys. @prot is passed through from the caller.
	 *   Devices may use the mapping from the return on, unless @prot has XS_MAP_UNFLUSHED.
	 *
	 * Returns 0, a negative errno if no page is mapped, or XS_MAP_NOT_UNDONE if the map has
	 * failed and the backend could not undo all of it.
	 *
	 * @entries: a word of the block that has the pages, where the backend may cache the
	 *   location of the block's page-table entries; NULL for more pages than a block has.
	 *   The word is NULL again in a block that is taken anew. The caller has a page of the
	 *   block, so the cached location is valid as long as page tables are freed only by
	 *   maps and removals of more pages than a block has, and only where no page is mapped.
	 */
	int (*map)(void *backend, void **entries, u64 iova, u64 phys, u32 pages,
		   u32 prot);

	/*
	 * @map_each: map pages of a block; page i goes to phys[i], and stays unmapped if
	 *   phys[i] is XS_PHYS_NONE. On false no page is mapped, and the engine calls map() for
	 *   each extent of neighbours in memory. NULL is the same as always false.
	 */
	bool (*map_each)(void *backend, void **entries, u64 iova, const u64 *phys,
			 u32 pages, u32 prot);

	/*
	 * @flush_maps: on return devices may use all present mappings within the ranges that
	 *   were mapped with XS_MAP_UNFLUSHED. Parts of a range may be unmapped by now, or
	 *   mapped anew, and other mappings may lie between. NULL if no caller asks for
	 *   unflushed maps.
	 */
	void (*flush_maps)(void *backend, const struct xs_range *ranges,
			   u32 count);

	/*
	 * @remove: remove @pages pages from the page table. The range may join several
	 *   mappings, but splits none. Page-table pages that become free go to @gather and stay
	 *   there until @invalidate. Translations may stay cached.
	 *
	 * Returns 0, or a negative errno: devices may reach any page of the range, also after
	 * @invalidate. The engine then keeps the IOVAs and the memory out of use (stuck.h).
	 */
	int (*remove)(void *backend, xs_gather_t *gather, u64 iova, u64 pages);

	/*
	 * @remove_again: remove pages that an earlier call has failed to remove. Some of the
	 *   pages may no longer be mapped. Returns as remove(). NULL, like @stuck, in a backend
	 *   where removals never fail.
	 */
	int (*remove_again)(void *backend, xs_gather_t *gather, u64 iova,
			    u64 pages);

	/*
	 * @stuck: the backend could not remove @pages pages at @iova, or there was no memory to
	 *   make sure of the removal (stuck.h). The backend logs the failure, and calls
	 *   xs_engine_retry() later from a context that may sleep.
	 */
	void (*stuck)(void *backend, u64 iova, u64 pages);

	/*
	 * @remove_part: remove @part of the mapping @whole, which may have holes: the driver
	 *   has named only some pages, or other pages were removed before. The backend may
	 *   remove more of @whole if a part cannot be removed alone. Other CPUs may make the
	 *   same call at the same time.
	 *
	 * Returns 0; XS_REMOVED_ALL if devices reach no page of @whole after @invalidate; or a
	 * negative errno if some pages may still be mapped.
	 */
	int (*remove_part)(void *backend, xs_gather_t *gather,
			   const struct xs_range *part,
			   const struct xs_range *whole);

	/*
	 * @invalidate: make stale translations of all removals in @gather impossible, in every
	 *   cache, and wait; then free the pages that @gather holds. With @count ranges, the
	 *   ranges cover all removed pages, and page-walk caches may be kept if no page-table
	 *   page was freed. With @count 0 the whole domain is invalidated. The backend may send
	 *   more than requested, never less, and adds the commands sent to @sent.
	 */
	void (*invalidate)(void *backend, xs_gather_t *gather,
			   const struct xs_range *ranges, u32 count,
			   struct xs_commands *sent);

	/* @gather_init: start an empty gather. */
	void (*gather_init)(xs_gather_t *gather);

	/*
	 * @clock: the time in ns, comparable between CPUs. A correction may set the clock back
	 *   a little.
	 */
	u64 (*clock)(void *backend);

	/*
	 * @deferred: CPU @cpu has deferred unmaps that no poll and no timer covers yet. If @cpu
	 *   is the running CPU, the backend calls xs_engine_poll() at the end of each poll on
	 *   @cpu from now on, until xs_engine_poll() returns true. If @arm is set, the backend
	 *   calls xs_engine_expire() no later than at @deadline_ns, whatever deadline was set
	 *   before.
	 */
	void (*deferred)(void *backend, u32 cpu, bool arm, u64 deadline_ns);

	/*
	 * @alloc: zeroed memory, aligned to a cache line, near @cpu unless XS_ANY_CPU; NULL
	 *   without memory. With @atomic the call must not sleep. @free: accepts NULL, and
	 *   never sleeps for memory that was allocated with @atomic.
	 */
	void *(*alloc)(void *backend, size_t bytes, u32 cpu, bool atomic);
	void (*free)(void *backend, void *memory, size_t bytes);

	/*
	 * @quiesce: wait until every xs_enter() before the call has reached its xs_exit(). May
	 *   sleep.
	 */
	void (*quiesce)(void *backend);

	/*
	 * @surplus: much of the space is empty, torn mappings are done (tear.h), or a map has
	 *   found no IOVA while CPUs may have local pages (place.h). The backend should call
	 *   xs_engine_trim() soon, from a context that may sleep. May be NULL.
	 */
	void (*surplus)(void *backend);

	/*
	 * @prune: no page of the range is mapped, and none will be until the return. Free the
	 *   page-table pages that cover only the range, and invalidate the IOMMU's caches of
	 *   them. Not counted. May be NULL.
	 */
	void (*prune)(void *backend, u64 iova, u64 pages);

	/*
	 * Copying (pool.h), in a backend that has it.
	 *
	 * @add_chunk: zeroed memory, mapped at @iova for @direction only; NULL on failure. If
	 *   *@not_undone is set, the map has failed, and devices may reach some of the returned
	 *   memory, which is for @drop_chunk. May sleep.
	 *
	 * @drop_chunk: unmap and free a chunk. On return no translation of the chunk exists,
	 *   stale translations included. Returns false, and frees nothing, if the backend
	 *   cannot remove the chunk. May sleep.
	 *
	 * @short_of: a pool needs bounce buffers. The backend should call xs_pool_grow() soon,
	 *   from a context that may sleep. NULL if the pool grows in another way.
	 */
	void *(*add_chunk)(void *backend, u64 iova, u32 direction, bool *not_undone);
	bool (*drop_chunk)(void *backend, u64 iova, void *memory);
	void (*short_of)(void *backend);

	/*
	 * @misuse: the engine has ignored a call that its caller cannot mean; or the call
	 *   was an unmap, and only the named pages are removed. The engine is not at fault.
	 */
	void (*misuse)(void *backend, const struct xs_misuse *misuse);

	/*
	 * @flushed: a flush has finished on @cpu; for tracing. May be NULL. @cause: enum
	 *   xs_flush_point. @pages: number of flushed pages. @ranges: number of invalidated
	 *   ranges; 0 if the whole domain was invalidated. @oldest_ns: age of the oldest unmap in
	 *   ns; 0 for an immediate flush.
	 */
	void (*flushed)(void *backend, u32 cpu, u32 cause, u32 pages, u32 ranges,
			const struct xs_commands *sent, u64 oldest_ns);
};

#endif
