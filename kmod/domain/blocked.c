// SPDX-License-Identifier: GPL-2.0-only
/*
 * The blocking domain, in which an orphaned group maps nothing. Part of path.c.
 *
 * The group's own domain may change or go, so the mappings were removed from it. In the blocking
 * domain maps fail, unmaps find nothing, and nothing is sent.
 */
#include "domain.h"

/*
 * The domain of an orphaned group. The group's own domain may change or go. The mappings were
 * removed from the own domain: in the blocking domain maps fail, unmaps find nothing, and
 * nothing is sent.
 */
static int blocked_map(struct iommu_domain *domain, unsigned long iova,
		       phys_addr_t phys, size_t page_bytes, size_t pages,
		       int prot, gfp_t gfp, size_t *mapped)
{
	return -ENODEV;
}

static size_t blocked_unmap(struct iommu_domain *domain, unsigned long iova,
			    size_t page_bytes, size_t pages,
			    struct iommu_iotlb_gather *gather)
{
	return 0;
}

static phys_addr_t blocked_phys(struct iommu_domain *domain, dma_addr_t iova)
{
	return 0;
}

static const struct iommu_domain_ops blocked_ops = {
	.map_pages = blocked_map,
	.unmap_pages = blocked_unmap,
	.iova_to_phys = blocked_phys,
};

struct iommu_domain xs_blocked_domain = {
	.type = __IOMMU_DOMAIN_PAGING,
	.ops = &blocked_ops,
	.pgsize_bitmap = PAGE_SIZE,
};
