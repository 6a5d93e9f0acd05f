/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The world that an engine acts on: page tables, invalidations, pages, clock.
 *
 * The engine decides, the world does. Each call is made at batch level: a
 * sync removes runs of pages, then sends its commands in one call.
 *
 * Units: an IOVA and a physical address are in bytes and page aligned here; a
 * page is XS_PAGE_BYTES. Ranges are half-open unless a bound is called last.
 */
#ifndef XSMMU_WORLD_H
#define XSMMU_WORLD_H

#include <xsmmu/needs.h>

#define XS_PAGE_LG2	12
#define XS_PAGE_BYTES	(1ULL << XS_PAGE_LG2)

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
 * struct xs_world_ops - what the engine asks of its world
 *
 * All but @alloc and @free are called from any context, interrupts included,
 * with a lock of the engine held: none may sleep or call the engine.
 */
struct xs_world_ops {
	/*
	 * Map @pages pages at @iova to @phys. @prot is passed through from the
	 * caller. Returns 0 or a negative errno; on error nothing is mapped.
	 */
	int (*map)(void *world, u64 iova, u64 phys, u32 pages, u32 prot);

	/*
	 * Remove @pages pages from the page table. No mapping is split: the
	 * run is made of whole mappings, and may join several. What this frees
	 * (page-table pages) goes to @gather and stays there until
	 * @invalidate. Translations may stay cached.
	 */
	void (*remove)(void *world, xs_gather_t *gather, u64 iova, u64 pages);

	/*
	 * Make stale translations of all that @gather saw removed impossible,
	 * in every cache, and wait; then free what @gather holds. With @count
	 * ranges, those cover everything removed, and the page-walk caches may
	 * be kept if no page-table page was freed. With @count 0 the whole
	 * domain is invalidated. The world may send more than it was asked
	 * (never less) and adds what it sent to @sent.
	 */
	void (*invalidate)(void *world, xs_gather_t *gather,
			   const struct xs_range *ranges, u32 count,
			   struct xs_commands *sent);

	/* Start an empty gather. */
	void (*gather_init)(xs_gather_t *gather);

	/* Now, in ns; comparable between CPUs; never goes back. */
	u64 (*clock)(void *world);

	/*
	 * CPU @cpu has deferred its first unmap since its last sync. The world
	 * calls xs_engine_poll() at the next end of a poll on that CPU, and
	 * xs_engine_expire() no later than at @deadline_ns if @arm is set.
	 */
	void (*deferred)(void *world, u32 cpu, bool arm, u64 deadline_ns);

	/*
	 * Zeroed memory, NULL when there is none. @atomic: must not sleep.
	 * @free takes NULL and never sleeps for a block got with @atomic.
	 */
	void *(*alloc)(void *world, size_t bytes, bool atomic);
	void (*free)(void *world, void *memory, size_t bytes);

	/*
	 * A sync has finished on @cpu; for tracing. May be NULL.
	 */
	void (*synced)(void *world, u32 cpu, u32 cause, u32 pages, u32 ranges,
		       const struct xs_commands *sent, u64 oldest_ns);
};

/*
 * xs_ref_t: how a page is held from its unmap to the sync.
 *   XS_REF_NONE(n) nothing to hold in this page and the n - 1 after it: they can
 *                  never go back to an allocator, or what is held before keeps
 *                  them; what is written for these others is not read
 *   XS_REF_UNHELD  has no reference of its own that would keep it (slab), or
 *                  was mapped while the policy held nothing: a policy that
 *                  holds pages syncs its unmap at once
 *   other          xs_ref_hold() keeps the page, unless it is free already
 *                  (then its unmap is synced at once), xs_ref_release() lets
 *                  it go.
 *                  XS_REF_HELD is set in it in between, so that what a sync
 *                  releases is what an unmap held, whatever the policy is now.
 *   XS_REF_RELEASED  synced since it was mapped: not to be unmapped again
 */
#define XS_REF_HELD	2UL
#define XS_REF_TAGS	3UL	/* any of these bits: not to be held (again) */
#define XS_REF_UNHELD	((xs_ref_t)1)
#define XS_REF_RELEASED	((xs_ref_t)3)
#define XS_REF_NONE(n)	((xs_ref_t)((size_t)(n) << 3 | 5))

static xs_inline bool xs_ref_is_none(xs_ref_t ref)
{
	return ((size_t)ref & 7) == 5;
}

static xs_inline u32 xs_ref_none_pages(xs_ref_t ref)
{
	return (u32)((size_t)ref >> 3);
}

#endif
