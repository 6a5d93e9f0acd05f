// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of a group's domain: to no domain when the group is orphaned, and back to the
 * group's own domain. Part of path.c.
 */
#include <linux/sched.h>

#include "../compat/compat.h"
#include "../debug.h"
#include "../log.h"
#include "domain.h"

/* The log names at most this many mappings of an orphaned group. */
#define NAMED_MAX	8

/* Reads the properties that maps and invalidations have in a domain; once for each domain. */
static void probe_iommu(struct xs_backend *backend,
			const struct xs_backend_config *config)
{
	const struct iommu_domain_ops *ops = config->domain->ops;

	backend->domain.iommu = *config->iommu;
	backend->domain.is_generic = xs_domain_is_generic(config->domain);
	backend->domain.is_known = backend->domain.is_generic || ops->map_pages;
	backend->domain.unmap_pages = ops->map_pages ? ops->unmap_pages : NULL;
	/* Without operations of its own the domain is mapped by iommu_map(), which flushes. */
	backend->domain.iommu.flushes_maps &= backend->domain.is_known;
	backend->domain.root.format = NULL;
	if (backend->domain.iommu.prunes)
		xs_root_find(&backend->domain.root, config->dev);
	choose_maps(backend);
}

/* Lets all further calls use the IOMMU core, which works with any domain. */
static void forget_iommu(struct xs_backend *backend)
{
	backend->domain.is_known = false;
	backend->domain.is_generic = false;
	backend->domain.unmap_pages = NULL;
	backend->domain.iommu.flushes_maps = false;
	backend->domain.iommu.unmap_covers_holes = false;
	backend->domain.iommu.prunes = false;
	backend->domain.root.format = NULL;
	stop_direct(backend);
}

/*
 * On return all calls of the engine use @domain. A call that began before still invalidates in
 * the former domain what it removed there (former_domain()).
 */
static void move(struct xs_backend *backend, struct iommu_domain *domain)
{
	lockdep_assert_held(&backend->work_lock);
	forget_iommu(backend);
	WRITE_ONCE(backend->domain.former, backend->domain.now);
	/*
	 * Pairs with smp_rmb() in former_domain(): a call that sees the new domain also sees
	 * @former.
	 */
	smp_store_release(&backend->domain.now, domain);
	backend_quiesce(backend);
	WRITE_ONCE(backend->domain.former, NULL);
}

/*
 * Makes all maps fail from the return on; maps that are under way have ended then. Does nothing
 * without a domain, where maps fail already.
 */
static void fail_maps(struct xs_backend *backend)
{
	if (xs_backend_has_no_domain(backend))
		return;
	WRITE_ONCE(backend->maps_fail, true);
	/* Waits for the maps that are under way. */
	forget_iommu(backend);
	xs_identity_seal(&backend->engine);
}

/*
 * Names mapped copies in the log; @named lines are logged already. Returns the number of
 * copies.
 */
static u64 name_copies(struct xs_backend *backend, u64 named)
{
	u64 iova = 0, count = 0;
	u32 bytes;

	for (; xs_pool_next(&backend->engine.pool, &iova, &bytes); iova++) {
		count++;
		if (named++ < NAMED_MAX)
			pr_warn("group %d: IOVA 0x%llx: a copied buffer of %u bytes is still mapped: a driver did not unmap the buffer\n",
				backend->group_id, iova, bytes);
	}
	return count;
}

/*
 * On return the backend has no domain. Only retry_in_former_domain() uses the group's own domain
 * again for a while, to remove pages that the IOMMU driver could not remove here. An unmap that
 * comes meanwhile or later finds its pages removed, or the pages become stuck.
 */
void xs_backend_leave(struct xs_backend *backend)
{
	int id = backend->group_id;
	u64 iova = 0, pages_left = 0, mappings = 0, copies;
	struct iommu_domain *domain = backend->domain.now;
	xs_gather_t gather;
	bool stuck;
	u32 pages;

	if (xs_backend_has_no_domain(backend))
		return;
	if (!backend->was_orphaned)
		atomic_inc(&backend->sparse);
	backend->was_orphaned = true;
	fail_maps(backend);
	mutex_lock(&backend->work_lock);
	xs_engine_retry(&backend->engine);
	backend_gather_init(&gather);
	while (xs_engine_next_mapping(&backend->engine, &iova, &pages)) {
		if (mappings++ < NAMED_MAX)
			pr_warn("group %d: IOVA 0x%llx: %u pages are still mapped: a driver did not unmap them\n",
				id, iova, pages);
		if (xs_refuses())
			WRITE_ONCE(backend->stuck_live, true);
		else
			remove_sparse(backend, &gather, iova, pages,
				      REMOVE_LIVE);
		pages_left += pages;
		iova += (u64)pages << PAGE_SHIFT;
		cond_resched();
	}
	invalidate_counted(backend, &gather, NULL, 0);
	copies = name_copies(backend, mappings);
	if (!chunks_unmap(backend))
		WRITE_ONCE(backend->stuck_live, true);
	/* Unmaps that began before the walk over live mappings have ended after this. */
	xs_engine_settle(&backend->engine);
	stuck = backend->stuck_live || xs_engine_stuck_pages(&backend->engine);
	if (stuck)
		backend->stuck_in = domain;
	move(backend, &xs_no_domain);
	mutex_unlock(&backend->work_lock);
	if (mappings)
		pr_warn("group %d: orphaned: %llu pages in %llu mappings are still in use after their driver has gone.%s Close the programs that use them: the group is detached when the last of them is unmapped\n",
			id, pages_left, mappings, stuck ?
			"" : " Devices cannot reach them any more.");
	if (stuck)
		pr_err("group %d: the IOMMU driver could not remove all pages, and devices may still access some. xsmmu tries again. If the state stays stuck, for a new domain " XS_NEW_DOMAIN("%d") "\n",
		       id, id, id);
	if (copies)
		pr_warn("group %d: orphaned: %llu copied buffers are still in use\n", id,
			copies);
}

int xs_backend_enter(struct xs_backend *backend,
		     const struct xs_backend_config *config)
{
	int error;

	mutex_lock(&backend->work_lock);
	move(backend, config->domain);
	probe_iommu(backend, config);
	error = chunks_map(backend);
	if (error == XS_MAP_NOT_UNDONE) {
		backend->stuck_in = config->domain;
		WRITE_ONCE(backend->stuck_live, true);
	}
	if (error)
		move(backend, &xs_no_domain);
	else
		WRITE_ONCE(backend->maps_fail, false);
	mutex_unlock(&backend->work_lock);
	if (error)
		return error;
	begin_direct(backend, config);
	flush_domain(backend);
	return 0;
}
