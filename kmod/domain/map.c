// SPDX-License-Identifier: GPL-2.0-only
/*
 * Maps of pages in a domain, by direct tables or by the IOMMU driver. Part of path.c.
 */
#include "../compat/compat.h"
#include "../debug.h"
#include "domain.h"

/*
 * Drivers write one large entry where a call covers a whole page-table page and the memory is
 * aligned as the IOVAs are. An empty page-table page may be in the way of the large entry:
 * VT-d's driver up to 6.12 frees the page before the invalidation, and VT-d's driver of 7.x
 * sends a command that the module cannot count. So a call covers at most half of a page-table
 * page. On VT-d up to 6.12 a call covers more where no page-table page is in the way, but
 * never all that a page-table page of the next level covers.
 */
#define MAP_PAGES_MAX		(TABLE_PAGES / 2)
#define MAP_LARGE_MAX		(TABLE_PAGES * MAP_PAGES_MAX)

/* Maps the first part of a range in one call of the driver. */
static __always_inline int map_some(struct xs_backend *backend, bool generic,
				    xs_map_pages_t map_pages, u64 iova,
				    u64 phys, u64 pages, u32 prot,
				    size_t *mapped)
{
	struct iommu_domain *domain = backend->domain.now;

	if (xs_have_generic_pt() && generic)
		return xs_domain_map_generic(domain, iova, phys,
					     pages << PAGE_SHIFT, prot, mapped);
	return map_pages(domain, iova, phys, PAGE_SIZE, pages, prot, GFP_ATOMIC,
			 mapped);
}

/*
 * Number of pages, at most @pages, that the driver may map in one call; memory is aligned as
 * the IOVAs are. No last-level table comes or goes here meanwhile: nobody else has these
 * IOVAs.
 */
static u64 pages_at_once(struct xs_backend *backend, u64 iova, u64 pages)
{
	u64 page = iova >> PAGE_SHIFT;
	u64 large = min_t(u64, pages, MAP_LARGE_MAX - page % MAP_LARGE_MAX);
	u64 bytes = round_down(large, TABLE_PAGES) << PAGE_SHIFT;

	pages = min_t(u64, pages, MAP_PAGES_MAX - page % MAP_PAGES_MAX);
	if (!backend->domain.root.format || page % TABLE_PAGES || !bytes)
		return pages;
	for (u64 at = iova; at < iova + bytes; at += TABLE_PAGES << PAGE_SHIFT)
		if (xs_root_entry(&backend->domain.root, at) &&
		    prune(backend, at, TABLE_PAGES))
			return pages;
	return bytes >> PAGE_SHIFT;
}

/*
 * Maps the rest of a range, of which @mapped bytes are mapped. A driver may map less than
 * requested: SMMUv3's driver stops at the end of a table. After an error a driver may have
 * mapped more than it reports: VT-d's driver, if a further table could not be allocated. Does
 * not call iommu_map(), whose large entries cannot be removed as single pages.
 */
static noinline int map_rest(struct xs_backend *backend, bool generic,
			     xs_map_pages_t map_pages, u64 iova, u64 phys,
			     size_t bytes, u32 prot, size_t mapped, int error)
{
	bool is_aligned_alike = ((iova ^ phys) >> PAGE_SHIFT) % TABLE_PAGES == 0;

	while (!error && mapped < bytes) {
		u64 pages = (bytes - mapped) >> PAGE_SHIFT;
		u64 at = iova + mapped;
		size_t more = 0;

		if (is_aligned_alike)
			pages = pages_at_once(backend, at, pages);
		error = map_some(backend, generic, map_pages, at, phys + mapped,
				 pages, prot, &more);
		if (!error && !more)
			error = -ENOMEM;
		mapped += more;
	}
	if (error && sweep(backend, iova, bytes >> PAGE_SHIFT))
		error = XS_MAP_NOT_UNDONE;
	return error;
}

static __always_inline int map_table(struct xs_backend *backend, bool generic,
				     xs_map_pages_t map_pages, u64 iova,
				     u64 phys, u32 pages, u32 prot)
{
	size_t bytes = (size_t)pages << PAGE_SHIFT;
	size_t mapped = 0;
	int error = 0;

	BUILD_BUG_ON(XS_BLOCK_PAGES > MAP_PAGES_MAX);
	if (xs_fails())
		return -ENOMEM;
	/* A block never covers a whole page-table page. */
	if (pages <= XS_BLOCK_PAGES)
		error = map_some(backend, generic, map_pages, iova, phys, pages,
				 prot, &mapped);
	if (likely(mapped == bytes))
		return 0;
	/* A single page cannot be mapped in part. */
	if (__builtin_constant_p(pages) && pages == 1)
		return error ? error : -ENOMEM;
	return map_rest(backend, generic, map_pages, iova, phys, bytes, prot,
			mapped, error);
}

static __always_inline int map_by_driver(struct xs_backend *backend, u64 iova, u64 phys,
					 u32 pages, u32 prot)
{
	struct iommu_domain *domain = backend->domain.now;

	return map_table(backend, xs_domain_is_generic(domain), domain->ops->map_pages, iova,
			 phys, pages, prot);
}

/*
 * Maps by writing entries of a known block, else by the driver's operation, from which the
 * block's entries are learned.
 */
static int map_and_learn(struct xs_backend *backend, void **entries, u64 iova,
			 u64 phys, u32 pages, u32 prot)
{
	int error;

	if (!READ_ONCE(backend->domain.tables.on))
		return map_by_driver(backend, iova, phys, pages, prot);
	if (entries && try_entries(backend, entries, iova, phys, pages, prot))
		return 0;
	error = map_by_driver(backend, iova, phys, pages, prot);
	if (error)
		return error;
	if (entries)
		learn_entries(backend, entries, iova, phys, prot);
	count_by_driver(backend, !entries, pages);
	return 0;
}

/* Flushes a map; if the flush fails, the map is undone. */
static noinline int sync_mapped(struct xs_backend *backend, u64 iova, u32 pages,
				u32 prot)
{
	int error = 0;

	if (!(prot & XS_MAP_UNFLUSHED))
		error = flush_maps(backend, iova, pages);
	if (error && sweep(backend, iova, pages))
		error = XS_MAP_NOT_UNDONE;
	return error;
}

static int map_singly(struct xs_backend *backend, u64 iova, u64 phys, u32 pages,
		      u32 prot)
{
	int error = map_by_driver(backend, iova, phys, pages, prot);

	if (error || !backend->domain.iommu.flushes_maps)
		return error;
	return sync_mapped(backend, iova, pages, prot);
}

/* Maps, with all further steps that a map may need. */
static noinline int map_any(struct xs_backend *backend, void **entries, u64 iova,
			    u64 phys, u32 pages, u32 prot)
{
	int error;

	if (unlikely(READ_ONCE(backend->maps_fail) || !backend->domain.is_known))
		return -ENODEV;
	error = map_and_learn(backend, entries, iova, phys, pages,
			      prot & ~XS_MAP_UNFLUSHED);
	if (error || !backend->domain.iommu.flushes_maps)
		return error;
	return sync_mapped(backend, iova, pages, prot);
}

static __always_inline int backend_map(void *data, void **entries, u64 iova,
				       u64 phys, u32 pages, u32 prot)
{
	struct xs_backend *backend = data;
	bool generic = xs_have_generic_pt() && READ_ONCE(backend->domain.maps_generic);
	xs_map_pages_t map_pages = READ_ONCE(backend->domain.map_pages);

	if (generic || map_pages)
		return map_table(backend, generic, map_pages, iova, phys, pages,
				 prot);
	if (map_direct(backend, entries, iova, phys, pages, prot))
		return 0;
	return map_any(backend, entries, iova, phys, pages, prot);
}
