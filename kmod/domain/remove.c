// SPDX-License-Identifier: GPL-2.0-only
/*
 * Removals of pages from a domain, by direct tables or by the IOMMU driver. Part of path.c.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>

#include "../compat/compat.h"
#include "../debug.h"
#include "domain.h"

/*
 * Pages are mapped as single pages and removed as single pages, without regard to the domain's
 * larger page sizes, as long as they cannot fill a page-table page: a driver may join the
 * entries of a full one. VT-d's driver accepts any length.
 */
#define SINGLE_PAGES_MAX	(TABLE_PAGES - 1)

/* Removes the first part of a range. Returns bytes; 0 for a hole. */
static __always_inline size_t remove_some(struct xs_backend *backend,
					  xs_gather_t *gather, u64 iova,
					  u64 pages)
{
	typeof(backend->domain.unmap_pages) unmap_pages = READ_ONCE(backend->domain.unmap_pages);
	struct iommu_domain *domain = backend->domain.now;
	size_t bytes;

	/* Keeps a driver from flushing early if the pages are apart from the gathered range. */
	gather->end = 0;
	/* As single pages, also after forget_iommu(). */
	if (unlikely(backend->domain.iommu.exact_unmap)) {
		bytes = domain->ops->unmap_pages(domain, iova, PAGE_SIZE, pages,
						 gather);
		if (bytes && backend->domain.iommu.kicks)
			atomic64_inc(&backend->counts.page);
		return bytes;
	}
	if (xs_have_generic_pt() && backend->domain.is_generic)
		return xs_domain_unmap_generic(domain, iova,
					       pages << PAGE_SHIFT, gather);
	/*
	 * With iommu.debug_pagealloc=1, iommu_unmap_fast() counts the pages that iommu_map() has
	 * mapped.
	 */
	if (xs_have_generic_pt() && unlikely(!unmap_pages) &&
	    xs_domain_is_generic(domain))
		return xs_domain_unmap_generic(domain, iova,
					       pages << PAGE_SHIFT, gather);
	if (unlikely(!unmap_pages || (pages > SINGLE_PAGES_MAX &&
				      !backend->domain.iommu.unmap_covers_holes)))
		return iommu_unmap_fast(domain, iova, pages << PAGE_SHIFT,
					gather);
	return unmap_pages(domain, iova, PAGE_SIZE, pages, gather);
}

#define REMOVALS_MAX	8
#define STARVED_TICKS	(HZ / 10)

/*
 * The driver of virtio-iommu had no memory for the request to remove these pages, and has
 * dropped its records of them: the device would keep the pages for ever, and refuse other maps
 * at these IOVAs. A flush waits for all requests in the queue and the driver then frees their
 * memory. Not iommu_iotlb_sync(): since 7.2 iommu_iotlb_sync() does not call the driver for a
 * gather without a range.
 *
 * A removal of pages without records sends nothing, and drops the records of the other pages.
 * So one map, which allows neither reads nor writes, makes one record for all pages; the
 * device refuses the map where a page is mapped. If there is no memory for the map, the driver
 * drops the record. @pages pages are whole mappings of the device, because the device refuses
 * to remove a part of a mapping. Records of some of the pages may be left: then the request
 * covered fewer pages, and the next round makes the right record. A call makes at most
 * REMOVALS_MAX records, whatever the number of pages; only one, if another call has failed in
 * the last STARVED_TICKS.
 *
 * Returns 0, or -ENOMEM: devices still reach these pages, and the driver has no record of
 * them.
 */
static noinline int request_again(struct xs_backend *backend, xs_gather_t *gather,
				  u64 iova, u64 pages)
{
	struct iommu_domain *domain = backend->domain.now;
	bool starves = time_is_after_jiffies(READ_ONCE(backend->starved) +
					     STARVED_TICKS);
	u32 most = starves ? 1 : REMOVALS_MAX;

	for (u32 i = 0; i <= most; i++) {
		size_t mapped = 0, removed;

		iommu_flush_iotlb_all(domain);
		removed = domain->ops->unmap_pages(domain, iova, PAGE_SIZE,
						   pages, gather);
		if (removed)
			atomic64_inc(&backend->counts.page);
		if (removed == pages << PAGE_SHIFT)
			return 0;
		/* The last removal must not leave a record, which would look like a mapping. */
		if (i < most)
			domain->ops->map_pages(domain, iova,
					       page_to_phys(ZERO_PAGE(0)),
					       PAGE_SIZE, pages, 0, GFP_ATOMIC,
					       &mapped);
	}
	WRITE_ONCE(backend->starved, jiffies);
	return -ENOMEM;
}

/*
 * Handles a removal of @pages pages at @iova in which the driver removed nothing. @pages is
 * all that the caller is to remove. Either the first page is not mapped, or the driver has
 * failed, and *@error is set. virtio-iommu's driver has dropped its records of all pages.
 * Returns the number of pages that are dealt with.
 */
static noinline u64 removed_none(struct xs_backend *backend, xs_gather_t *gather,
				 u64 iova, u64 pages, int *error)
{
	if (backend->domain.iommu.kicks) {
		if (request_again(backend, gather, iova, pages))
			*error = -ENOMEM;
		return pages;
	}
	if (iommu_iova_to_phys(backend->domain.now, iova))
		*error = -EIO;
	return 1;
}

/*
 * Number of pages, from the first, that one call removes from a range of @pages pages which
 * may be mapped only in part. 0: the first page is not mapped. VT-d's driver treats an unmap
 * whose first page has no page table as an unmap of all that such a table covers, and removes
 * pages behind the range. So each step begins at a mapped page, and ends with its page-table
 * page.
 */
static u64 sparse_step(const struct xs_backend *backend, u64 iova, u64 pages)
{
	u64 most = min(TABLE_PAGES - (iova >> PAGE_SHIFT) % TABLE_PAGES, pages);
	u64 step = 0;

	while (step < most && iommu_iova_to_phys(backend->domain.now,
						 iova + (step << PAGE_SHIFT))) {
		if (!backend->domain.iommu.exact_unmap)
			return most;
		step++;
	}
	return step;
}

/* The caller of a removal. */
enum removal {
	REMOVE_UNMAPPED,	/* an unmap */
	REMOVE_LIVE,		/* no driver has unmapped the pages, and the group is leaving */
	REMOVE_AGAIN,		/* a later try */
};

/*
 * True if a live mapping could not be removed when the group left its domain: the driver's
 * records do not say which pages devices reach. Set for a mapping with @sparse_lock held. While it
 * is set, unmapped pages become stuck, and only backend_remove_again() removes them.
 */
static bool is_in_doubt(const struct xs_backend *backend)
{
	return READ_ONCE(backend->stuck_live);
}

/*
 * Removes a range that may be mapped only in part: a range with padding, the rest of a failed
 * map, or a range of which another call has removed pages. Two calls may work on the same range
 * at the same time. Returns 0, or a negative errno if the driver has not removed a mapped page.
 * Without a domain all pages are removed, unless pages could not be removed when the group left
 * its own domain. @stuck_live is set before the domain changes, and before a call that waits for
 * @sparse_lock looks for records that the failed removal has dropped.
 */
static noinline int remove_sparse(struct xs_backend *backend, xs_gather_t *gather,
				  u64 iova, u64 pages, enum removal by)
{
	int error = 0;

	while (pages) {
		unsigned long flags;
		u64 gone = 0;
		u64 step;

		if (xs_backend_has_no_domain(backend))
			return is_in_doubt(backend) ? -EBUSY : error;
		spin_lock_irqsave(&backend->sparse_lock, flags);
		if (by == REMOVE_UNMAPPED && is_in_doubt(backend)) {
			spin_unlock_irqrestore(&backend->sparse_lock, flags);
			return -EBUSY;
		}
		step = sparse_step(backend, iova, pages);
		if (step)
			gone = remove_some(backend, gather, iova, step) >>
			       PAGE_SHIFT;
		if (unlikely(step && !gone))
			gone = removed_none(backend, gather, iova, step, &error);
		if (by == REMOVE_LIVE && error)
			WRITE_ONCE(backend->stuck_live, true);
		spin_unlock_irqrestore(&backend->sparse_lock, flags);
		gone = clamp(gone, 1, pages);
		iova += gone << PAGE_SHIFT;
		pages -= gone;
	}
	return error;
}

bool xs_backend_maps_singly(const struct xs_backend *backend)
{
	return backend->domain.iommu.exact_unmap ||
	       (backend->domain.is_generic && backend->domain.now->pgsize_bitmap &
				  GENMASK_ULL(PAGE_SHIFT + XS_BLOCK_LG2,
					      PAGE_SHIFT + 1));
}

/*
 * Removes a part of a mapping that a driver has unmapped in part. Removes the whole mapping
 * where the IOMMU driver cannot remove a part of a map, and where entries may be larger than a
 * page: VT-d's driver takes a part of such an entry's memory for a page table (6.1, 6.12).
 */
static int backend_remove_part(void *data, xs_gather_t *gather,
			       const struct xs_range *part,
			       const struct xs_range *whole)
{
	struct xs_backend *backend = data;
	int error;

	if (xs_backend_maps_singly(backend) || whole->pages > SINGLE_PAGES_MAX)
		part = whole;
	error = remove_sparse(backend, gather, part->page << PAGE_SHIFT,
			      part->pages, REMOVE_UNMAPPED);
	if (error)
		return error;
	return part == whole ? XS_REMOVED_ALL : 0;
}

/*
 * Removes a range that begins at a mapped page. The range may have holes (padding), except
 * with @exact_unmap, where such a range goes through xs_backend_unmap_sparse(). Returns 0, or
 * a negative errno if a mapped page was not removed.
 */
static __always_inline int backend_remove(void *data, xs_gather_t *gather,
					  u64 iova, u64 pages)
{
	struct xs_backend *backend = data;
	int error = 0;

	if (xs_refuses())
		return -ENOMEM;
	if (unlikely((pages > SINGLE_PAGES_MAX && !backend->domain.iommu.unmap_covers_holes) ||
		     atomic_read(&backend->sparse)))
		return remove_sparse(backend, gather, iova, pages,
				     REMOVE_UNMAPPED);
	if (READ_ONCE(backend->domain.tables.on)) {
		u64 gone = pages == 1 ? clear_entries(backend, iova, 1) :
					remove_direct(backend, iova, pages);

		iova += gone << PAGE_SHIFT;
		pages -= gone;
	}
	while (pages) {
		u64 gone = remove_some(backend, gather, iova, pages) >>
			   PAGE_SHIFT;

		if (unlikely(!gone))
			gone = removed_none(backend, gather, iova, pages, &error);
		if (gone >= pages)
			break;
		iova += gone << PAGE_SHIFT;
		pages -= gone;
	}
	return error;
}

/* Except for virtio-iommu, the driver's records of pages that it failed to remove are right. */
static int backend_remove_again(void *data, xs_gather_t *gather, u64 iova,
				u64 pages)
{
	struct xs_backend *backend = data;

	/* If the group has another domain by now, devices do not reach the pages. */
	if (xs_backend_has_no_domain(backend))
		return backend->stuck_in ? -EBUSY : 0;
	if (xs_refuses())
		return -ENOMEM;
	return backend->domain.iommu.kicks ?
		request_again(backend, gather, iova, pages) :
		remove_sparse(backend, gather, iova, pages, REMOVE_AGAIN);
}

static int sweep(struct xs_backend *backend, u64 iova, u32 pages)
{
	xs_gather_t gather;
	int error;

	backend_gather_init(&gather);
	error = remove_sparse(backend, &gather, iova, pages, REMOVE_UNMAPPED);
	invalidate_counted(backend, &gather, NULL, 0);
	return error;
}

bool xs_backend_unmap_sparse(struct xs_backend *backend, u64 iova, u32 pages)
{
	bool unmapped;

	atomic_inc(&backend->sparse);
	unmapped = xs_engine_unmap(&backend->engine, iova, pages, true);
	atomic_dec(&backend->sparse);
	return unmapped;
}

bool xs_backend_undo(struct xs_backend *backend, u64 iova, u32 pages, int error)
{
	return error == XS_MAP_NOT_UNDONE ?
		xs_engine_unmap_failed_map(&backend->engine, iova, pages) :
		xs_backend_unmap_sparse(backend, iova, pages);
}
