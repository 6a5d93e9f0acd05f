// SPDX-License-Identifier: GPL-2.0-only
/*
 * Invalidations of a domain, and map-side flushes. Part of path.c.
 *
 * Invalidations go through the IOMMU driver's own iotlb_sync() and flush_iotlb_all(), so they
 * are right on every IOMMU that Linux drives. The backend counts the commands by kind, from the
 * driver's documented choices; the lab compares the counts with those of the hardware model.
 */
#include "../compat/compat.h"
#include "domain.h"

/*
 * Gathers as for a flush queue: the driver adds no range and flushes nothing early.
 * backend_invalidate() decides which ranges are invalidated.
 */
static void backend_gather_init(xs_gather_t *gather)
{
	iommu_iotlb_gather_init(gather);
	gather->queued = true;
}

/*
 * Widens the range to the range of its command. VT-d's driver of 6.1 widens only for
 * second-stage tables. For first-stage tables it aligns only the start, and pages at the end
 * stay cached.
 */
static __always_inline void invalidate_range(struct xs_backend *backend,
					     struct iommu_domain *domain,
					     xs_gather_t *gather,
					     const struct xs_range *range,
					     struct xs_commands *sent)
{
	u64 rest = xs_iommu_widening(&backend->domain.iommu, range->page, range->pages);
	u64 last = range->page + range->pages - 1;

	gather->queued = false;
	gather->start = (range->page & ~rest) << PAGE_SHIFT;
	gather->end = (last | rest) << PAGE_SHIFT | ~PAGE_MASK;
	/*
	 * SMMUv3 uses @pgsize. In a gather of generic tables the word means levels and must stay.
	 */
	if (!xs_domain_is_generic(domain))
		gather->pgsize = PAGE_SIZE;
	iommu_iotlb_sync(domain, gather);
	xs_iommu_count(&backend->domain.iommu, range, sent);
}

/*
 * True if the ranges need more commands than invalidating the domain is worth, where a range
 * may need several commands. Invalidating the domain is one command.
 */
static bool are_too_many(const struct xs_iommu *iommu,
			 const struct xs_range *ranges, u32 count)
{
	u64 commands = 0;

	for (u32 i = 0; i < count; i++)
		commands += iommu->commands(iommu, ranges[i].page,
					    ranges[i].pages);
	return commands > XS_RANGES_MAX;
}

/*
 * Invalidates the whole domain by one range: the aligned power of two around the two pages in
 * the middle covers the domain. A range of all pages could overflow a driver that counts pages
 * in 32 bits.
 */
static noinline void invalidate_all(struct xs_backend *backend,
				    struct iommu_domain *domain,
				    xs_gather_t *gather,
				    struct xs_commands *sent)
{
	u64 last = domain->geometry.aperture_end >> PAGE_SHIFT;
	struct xs_range all = { last / 2, 2 };

	invalidate_range(backend, domain, gather, &all, sent);
}

/* The domain that the group is leaving, from which the caller may have removed pages; or NULL. */
static noinline struct iommu_domain *former_domain(struct xs_backend *backend)
{
	struct iommu_domain *domain;

	/* Pairs with smp_store_release() in move(). */
	smp_rmb();
	domain = READ_ONCE(backend->domain.former);
	return domain == &xs_no_domain ? NULL : domain;
}

/*
 * A flush of the gather frees its page-table pages, so all removed pages must be invalidated
 * by then. With several ranges, only an invalidation of the whole domain does so.
 */
static __always_inline void backend_invalidate(void *data, xs_gather_t *gather,
					       const struct xs_range *ranges,
					       u32 count,
					       struct xs_commands *sent)
{
	static const struct xs_range any = { 0, 1 };
	struct xs_backend *backend = data;
	struct iommu_domain *domain = READ_ONCE(backend->domain.now);
	bool frees = xs_gather_frees_tables(gather);

	if (unlikely(domain == &xs_no_domain)) {
		domain = former_domain(backend);
		if (!domain)
			return;
		count = 0;
	}
	/*
	 * Where an invalidation waits for removals (@kicks), one invalidation waits for all of
	 * them.
	 */
	if (count == 0 || (count > 1 && (frees || backend->domain.iommu.kicks)) ||
	    (unlikely(backend->domain.iommu.commands) &&
	     are_too_many(&backend->domain.iommu, ranges, count))) {
		if (unlikely(backend->domain.iommu.flush_all_via_range)) {
			invalidate_all(backend, domain, gather, sent);
			return;
		}
		iommu_flush_iotlb_all(domain);
		sent->domain += !backend->domain.iommu.kicks;
		if (frees)
			invalidate_range(backend, domain, gather, &any, sent);
		return;
	}
	for (u32 i = 0; i < count; i++)
		invalidate_range(backend, domain, gather, &ranges[i], sent);
}

/*
 * Invalidates the whole domain; the command is not counted. Nothing is sent without a domain.
 */
static void flush_domain(struct xs_backend *backend)
{
	struct xs_commands not_counted = { };
	xs_gather_t none;

	iommu_iotlb_gather_init(&none);
	backend_invalidate(backend, &none, NULL, 0, &not_counted);
}

static void invalidate_counted(struct xs_backend *backend, xs_gather_t *gather,
			       const struct xs_range *ranges, u32 count)
{
	struct xs_commands sent = { };

	backend_invalidate(backend, gather, ranges, count, &sent);
	atomic64_add(sent.page, &backend->counts.page);
	atomic64_add(sent.domain, &backend->counts.domain);
}

static void count_map_flush(struct xs_backend *backend,
			    const struct xs_range *range)
{
	struct xs_commands sent = { };

	xs_iommu_count(&backend->domain.iommu, range, &sent);
	atomic64_inc(&backend->counts.map_flushes);
	atomic64_add(sent.page, &backend->counts.page);
	atomic64_add(sent.domain, &backend->counts.domain);
}

static __always_inline int flush_maps(struct xs_backend *backend, u64 iova,
				      u64 pages)
{
	struct xs_range range = { iova >> PAGE_SHIFT, pages };
	struct iommu_domain *domain = READ_ONCE(backend->domain.now);
	int error;

	if (unlikely(domain == &xs_no_domain))
		return -ENODEV;
	error = xs_domain_sync_map(domain, iova, pages << PAGE_SHIFT);
	if (!error)
		count_map_flush(backend, &range);
	return error;
}

u32 xs_backend_unflushed_flag(const struct xs_backend *backend)
{
	return backend->domain.iommu.flushes_maps ? XS_MAP_UNFLUSHED : 0;
}

int xs_backend_flush_maps(struct xs_backend *backend, u64 iova, u32 pages)
{
	return backend->domain.iommu.flushes_maps ? flush_maps(backend, iova, pages) : 0;
}

/*
 * Where maps are requests that wait in a queue, one flush sends all requests. No supported
 * IOMMU driver fails here; if a driver failed, devices would fault.
 */
static void backend_flush_maps(void *data, const struct xs_range *ranges,
			       u32 count)
{
	struct xs_backend *backend = data;
	int error = 0;

	if (!backend->domain.iommu.flushes_maps)
		return;
	if (backend->domain.iommu.kicks)
		count = 1;
	for (u32 i = 0; i < count && !error; i++)
		error = flush_maps(backend, ranges[i].page << PAGE_SHIFT,
				   ranges[i].pages);
	WARN_ONCE(error, "xsmmu: %s: a map-side flush has failed: %d\n", backend->name,
		  error);
}
