// SPDX-License-Identifier: GPL-2.0-only
/*
 * Empty page-table pages, and memory of the engine that is surplus. Part of path.c.
 */
#include <linux/mm.h>

#include "../debug.h"
#include "domain.h"

/* Number of pages that a page-table page of the last level covers. */
#define TABLE_PAGES		((u32)(PAGE_SIZE / sizeof(u64)))

/*
 * Frees empty page-table pages and invalidates the IOMMU's cached copies. VT-d's driver frees
 * a page-table page for an unmap that covers all of its range, also if nothing is mapped. The
 * first page of such an unmap must have a page table (see sparse_step()), so a read-only page
 * of zeros is mapped first.
 *
 * Generic page tables refuse an unmap of nothing, and other drivers warn: with them, empty
 * page-table pages stay until the group's domain goes.
 */
static int prune(struct xs_backend *backend, u64 iova, u64 pages)
{
	struct xs_range range = { iova >> PAGE_SHIFT, pages };
	struct iommu_domain *domain = backend->domain.now;
	xs_gather_t gather;
	size_t mapped = 0;

	if (!backend->domain.iommu.prunes || (range.page | pages) % TABLE_PAGES)
		return 0;
	if (xs_fails() ||
	    domain->ops->map_pages(domain, iova, page_to_phys(ZERO_PAGE(0)),
				   PAGE_SIZE, 1, IOMMU_READ,
				   GFP_ATOMIC | __GFP_NOWARN, &mapped))
		return -ENOMEM;
	backend_gather_init(&gather);
	domain->ops->unmap_pages(domain, iova, PAGE_SIZE, pages, &gather);
	invalidate_counted(backend, &gather, &range, 1);
	return 0;
}

/* A page-table page that cannot be freed stays, and does no harm. */
static void backend_prune(void *data, u64 iova, u64 pages)
{
	prune(data, iova, pages);
}

static void trim_work(struct work_struct *work)
{
	struct xs_backend *backend = container_of(work, struct xs_backend, trim);

	mutex_lock(&backend->work_lock);
	xs_engine_trim(&backend->engine);
	mutex_unlock(&backend->work_lock);
}

/*
 * Queues the work only while the backend is set up; an engine that is being destroyed needs
 * none.
 */
static void backend_surplus(void *data)
{
	struct xs_backend *backend = data;

	if (backend->cpus)
		schedule_work(&backend->trim);
}
