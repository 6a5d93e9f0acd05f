// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ranges of a group's default domain in which the engine must not map: reserved regions, windows
 * of the PCI bus, MSI pages, and mappings that the kernel's own path has left.
 */
#include <linux/dma-map-ops.h>
#include <linux/iommu.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "../log.h"
#include "regions.h"

/*
 * Called for a range of IOVAs, both bounds inclusive. A return value other than 0 ends the
 * walk.
 */
typedef int (*xs_call_t)(u64 start, u64 last, void *data);

/* Calls @call for the memory windows of the bus: an IOVA in a window would reach a peer. */
static int each_window(struct pci_dev *pdev, xs_call_t call, void *data)
{
	struct pci_host_bridge *bridge = pci_find_host_bridge(pdev->bus);
	struct resource_entry *window;
	int end = 0;
	u64 next = 0;

	resource_list_for_each_entry(window, &bridge->windows)
		if (!end && resource_type(window->res) == IORESOURCE_MEM)
			end = call(window->res->start - window->offset,
				   window->res->end - window->offset, data);
	if (list_empty(&bridge->dma_ranges))
		return end;
	/* All addresses outside these windows, which are sorted. */
	resource_list_for_each_entry(window, &bridge->dma_ranges) {
		u64 start = window->res->start - window->offset;

		if (!end && start > next)
			end = call(next, start - 1, data);
		next = window->res->end - window->offset + 1;
	}
	if (!end && next)
		end = call(next, U64_MAX, data);
	return end;
}

/* Calls @call for all ranges in which the engine must not map. */
static int each_reserved(struct xs_group *group, const struct list_head *regions,
			 xs_call_t call, void *data)
{
	struct iommu_resv_region *region;
	struct xs_device *xdev;
	int end = 0;

	list_for_each_entry(region, regions, list)
		if (!end)
			end = call(region->start,
				   region->start + region->length - 1, data);
	list_for_each_entry(xdev, &group->devices, list)
		if (!end)
			end = each_window(to_pci_dev(xdev->dev), call, data);
	return end;
}

static int reserve(u64 start, u64 last, void *engine)
{
	xs_identity_exclude(engine, start, last);
	return xs_space_reserve(&((struct xs_engine *)engine)->space, start, last);
}

static int go_below(u64 start, u64 last, void *data)
{
	u64 *top = data;
	bool within = *top - start <= last - start && start;

	if (within)
		*top = start - 1;
	return within;
}

/*
 * Where the IOMMU translates interrupt writes, the kernel maps the pages that the writes go
 * to, MSI pages, in the group's domain, where they stay as long as the domain. The IOVAs come
 * from the kernel's own allocator, which does not know the engine's IOVAs. They are not in the
 * IOMMU_RESV_SW_MSI region, which is for other domains. xs_regions_check() finds the MSI
 * pages that exist. The next MSI page is either at the start of that allocator, the top of 4
 * GiB, or at an IOVA that the allocator has used before.
 */
#define MSI_PAGE_BYTES	(64ULL << 20)

static bool has_msi_pages(const struct list_head *regions)
{
	struct iommu_resv_region *region;

	list_for_each_entry(region, regions, list)
		if (region->type == IOMMU_RESV_SW_MSI)
			return true;
	return false;
}

static int reserve_msi_pages(struct xs_group *group,
			     const struct list_head *regions)
{
	struct xs_space *space = &group->backend.engine.space;
	u64 top = XS_LOW_LAST;
	int error = 0;

	for (u32 i = 0; i < group->stale.msi_page_count && !error; i++)
		error = xs_space_reserve(space, group->stale.msi_pages[i],
					 group->stale.msi_pages[i]);
	if (error || !has_msi_pages(regions))
		return error;
	while (each_reserved(group, regions, go_below, &top))
		;
	return xs_space_reserve(space, top - min(top, MSI_PAGE_BYTES - 1), top);
}

static void free_regions(struct list_head *regions)
{
	struct iommu_resv_region *region, *next;

	list_for_each_entry_safe(region, next, regions, list)
		kfree(region);
}

/* Reserves all ranges in which the engine must not map, MSI pages included. 0 or -ENOMEM. */
int xs_regions_reserve(struct xs_group *group)
{
	LIST_HEAD(regions);
	int error;

	lockdep_assert_held(&xs_mutex);
	error = iommu_get_group_resv_regions(group->iommu_group, &regions);
	if (!error)
		error = each_reserved(group, &regions, reserve,
				      &group->backend.engine);
	if (!error)
		error = reserve_msi_pages(group, &regions);
	free_regions(&regions);
	return error;
}

static bool is_in_region(const struct list_head *regions, u64 iova)
{
	struct iommu_resv_region *region;

	list_for_each_entry(region, regions, list)
		if (iova - region->start < region->length)
			return true;
	return false;
}

/* The kernel's own path allocates IOVAs below this address while there is room. */
#define STALE_MAPPINGS_END	BIT_ULL(32)

/*
 * True for memory of the machine or of a device. A page of registers beside memory may have a
 * struct page, too.
 */
static bool is_memory(u64 phys)
{
	unsigned long pfn = PHYS_PFN(phys);

	return page_is_ram(pfn) ||
	       (pfn_valid(pfn) && is_zone_device_page(pfn_to_page(pfn)));
}

/*
 * Checks for an MSI page: not memory, in a domain where the kernel maps MSI pages. Remembers
 * the page.
 */
static bool is_msi_page(struct xs_group *group, const struct list_head *regions,
			u64 iova, u64 phys)
{
	if (!has_msi_pages(regions) || is_memory(phys) ||
	    group->stale.msi_page_count == XS_MSI_PAGES)
		return false;
	group->stale.msi_pages[group->stale.msi_page_count++] = iova;
	return true;
}

/*
 * Reason to refuse a domain in which a driver has left mappings of the kernel's own path; NULL
 * if there are none. Only the kernel's own path can unmap them, and the engine must not map at
 * their IOVAs.
 */
const char *xs_regions_check(struct xs_group *group,
			     struct iommu_domain *domain)
{
	u64 end = min(domain->geometry.aperture_end, STALE_MAPPINGS_END - 1);
	/*
	 * The kernel's own path maps in the IOMMU's smallest pages, which may be smaller than the
	 * CPU's.
	 */
	u64 step = max_t(u64, BIT_ULL(__ffs(domain->pgsize_bitmap)), SZ_4K);
	u64 iova = domain->geometry.aperture_start;
	const char *failure = NULL;
	LIST_HEAD(regions);

	lockdep_assert_held(&xs_mutex);
	if (group->stale.is_clean)
		return NULL;
	group->stale.msi_page_count = 0;
	if (iommu_get_group_resv_regions(group->iommu_group, &regions))
		failure = "out of memory";
	for (; !failure && iova < end; iova += step) {
		u64 phys;

		if (IS_ALIGNED(iova, XS_BLOCK_BYTES))
			cond_resched();
		phys = iommu_iova_to_phys(domain, iova);
		if (phys && !is_in_region(&regions, iova) &&
		    !is_msi_page(group, &regions, iova, phys))
			failure = "a driver has left memory mapped on the kernel's own path: close the programs that use the memory; or for a new domain " XS_NEW_DOMAIN("<group>");
	}
	/* The kernel may map more MSI pages at any time. */
	group->stale.is_clean = !failure && !has_msi_pages(&regions);
	free_regions(&regions);
	return failure;
}
