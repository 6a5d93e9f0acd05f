// SPDX-License-Identifier: GPL-2.0-only
/*
 * Later tries to remove pages that the IOMMU driver could not remove. Part of path.c.
 */
#include "../log.h"
#include "domain.h"

#define RETRY_TICKS	HZ

/*
 * Logs each failed removal, ratelimited. The engine keeps the IOVAs and the memory out of use,
 * and @retry tries again.
 */
static void backend_stuck(void *data, u64 iova, u64 pages)
{
	struct xs_backend *backend = data;

	pr_err_ratelimited("%s: the IOMMU driver could not remove %llu pages at IOVA 0x%llx, and devices of the group may still access them. The group has level none until a later try succeeds\n",
			   backend->name, pages, iova);
	if (backend->cpus)
		schedule_delayed_work(&backend->retry, RETRY_TICKS);
}

static void retry_work(struct work_struct *work)
{
	struct xs_backend *backend = container_of(to_delayed_work(work),
						  struct xs_backend, retry);
	bool leaves;
	u64 left;

	/* An orphaned group is retried in retry_in_former_domain(). */
	mutex_lock(&backend->work_lock);
	leaves = xs_backend_has_no_domain(backend);
	left = leaves ? 0 : xs_engine_retry(&backend->engine);
	mutex_unlock(&backend->work_lock);
	if (left)
		schedule_delayed_work(&backend->retry, RETRY_TICKS);
	else if (!leaves)
		pr_info("%s: all pages that could not be removed are removed now\n",
			backend->name);
}

/*
 * Removes all mappings that the engine knows, after a first removal has failed. False: it
 * failed again.
 */
static bool remove_live_again(struct xs_backend *backend)
{
	bool removed = true;
	xs_gather_t gather;
	u64 iova = 0;
	u32 pages;

	lockdep_assert_held(&backend->work_lock);
	backend_gather_init(&gather);
	while (xs_engine_next_mapping(&backend->engine, &iova, &pages)) {
		if (backend_remove_again(backend, &gather, iova, pages))
			removed = false;
		iova += (u64)pages << PAGE_SHIFT;
		cond_resched();
	}
	invalidate_counted(backend, &gather, NULL, 0);
	return chunks_unmap(backend) && removed;
}

/*
 * Tries to remove the pages that were stuck when the group left its domain. The backend
 * has no domain again on return.
 */
static void retry_in_former_domain(struct xs_backend *backend, struct iommu_domain *domain)
{
	mutex_lock(&backend->work_lock);
	if (domain && domain == backend->stuck_in) {
		bool removed = true;

		smp_store_release(&backend->domain.now, domain);
		xs_engine_retry(&backend->engine);
		if (backend->stuck_live)
			removed = remove_live_again(backend);
		move(backend, &xs_no_domain);
		/* An unmap that began meanwhile is neither live nor stuck until it ends. */
		xs_engine_settle(&backend->engine);
		if (removed && !xs_engine_stuck_pages(&backend->engine))
			backend->stuck_in = NULL;
	} else {
		backend->stuck_in = NULL;
	}
	if (!backend->stuck_in)
		WRITE_ONCE(backend->stuck_live, false);
	mutex_unlock(&backend->work_lock);
}

/* Tries once to remove stuck pages. True: some are left. */
static bool is_stuck(struct xs_backend *backend)
{
	u64 left;

	if (backend->stuck_in)
		return true;
	mutex_lock(&backend->work_lock);
	left = xs_engine_retry(&backend->engine);
	mutex_unlock(&backend->work_lock);
	return left;
}

bool xs_backend_retry_in(struct xs_backend *backend, struct iommu_domain *domain)
{
	if (backend->stuck_in)
		retry_in_former_domain(backend, domain);
	return is_stuck(backend);
}

bool xs_backend_drain(struct xs_backend *backend)
{
	bool is_live;

	fail_maps(backend);
	is_live = xs_engine_live_pages(&backend->engine) > 0;
	/* A stopped engine cannot retry removals, so deferred unmaps are flushed first. */
	xs_engine_settle(&backend->engine);
	/* For the same reason chunks are freed first. */
	if (!is_live)
		chunks_drop(backend);
	return !is_stuck(backend) && !is_live;
}

void xs_backend_mend(struct xs_backend *backend)
{
	u64 torn;

	xs_engine_flush(&backend->engine, XS_FLUSH_DRAIN);
	torn = xs_engine_torn_pages(&backend->engine);
	if (torn)
		pr_warn("group %d: the drivers have gone: %llu pages are unmapped of mappings that the drivers had unmapped only in part\n",
			backend->group_id, torn);
	mutex_lock(&backend->work_lock);
	xs_engine_mend(&backend->engine, true);
	mutex_unlock(&backend->work_lock);
}
