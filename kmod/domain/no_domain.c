// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stands in for the domain of a backend that has none. Part of path.c.
 *
 * The backend of an orphaned group has no domain: the group's own domain may change or go, so the
 * mappings were removed from it. Maps fail then, unmaps find nothing, and nothing is sent. No
 * device is ever attached to the struct here: the devices stay attached to the group's default
 * domain.
 */
#include "domain.h"

static int none_map(struct iommu_domain *domain, unsigned long iova,
		    phys_addr_t phys, size_t page_bytes, size_t pages,
		    int prot, gfp_t gfp, size_t *mapped)
{
	return -ENODEV;
}

static size_t none_unmap(struct iommu_domain *domain, unsigned long iova,
			 size_t page_bytes, size_t pages,
			 struct iommu_iotlb_gather *gather)
{
	return 0;
}

static phys_addr_t none_phys(struct iommu_domain *domain, dma_addr_t iova)
{
	return 0;
}

static const struct iommu_domain_ops none_ops = {
	.map_pages = none_map,
	.unmap_pages = none_unmap,
	.iova_to_phys = none_phys,
};

struct iommu_domain xs_no_domain = {
	.type = __IOMMU_DOMAIN_PAGING,
	.ops = &none_ops,
	.pgsize_bitmap = PAGE_SIZE,
};
