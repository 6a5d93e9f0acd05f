// SPDX-License-Identifier: GPL-2.0-only
/*
 * AMD-Vi, with its own page tables (v1, or what 7.x has of them), which the DMA API of the
 * kernel uses.
 *
 * Under a hypervisor that has to be told of new mappings (NpCache, as VT-d's caching mode),
 * the driver flushes each map, and sends a range as the aligned powers of two that it is made
 * of; else nothing for a map, and one command for a range. It collects what is removed also
 * where it is told not to, so nothing is left for it to collect.
 */
#include "../compat/compat.h"
#include "../tables/tables.h"
#include "iommu.h"

#define AMD_CAP_NPCACHE(cap)	((cap) >> 26 & 1)
#define AMD_RANGE_MAX_LG2	52	/* more than there are */

static bool is_amd(struct device *dev)
{
	u64 cap;

	return xs_iommu_attribute(dev, "amd-iommu", "cap", &cap);
}

/* Of aligned powers of two, each the largest that fits. */
static u32 parts_of(const struct xs_iommu *iommu, u64 page, u64 pages)
{
	u32 parts = 0;

	for (; pages; parts++) {
		u32 lg2 = fls64(pages) - 1;

		if (page)
			lg2 = min_t(u32, lg2, __ffs64(page));
		page += 1ull << lg2;
		pages -= 1ull << lg2;
	}
	return parts;
}

static const char *describe_amd(struct xs_iommu *iommu, struct device *dev,
				struct iommu_domain *domain)
{
	u64 cap = AMD_CAP_NPCACHE(~0ull) << 26;

	xs_iommu_attribute(dev, "amd-iommu", "cap", &cap);
	iommu->flushes_maps &= AMD_CAP_NPCACHE(cap);
	if (AMD_CAP_NPCACHE(cap))
		iommu->commands = parts_of;
	else
		iommu->range_max_lg2 = AMD_RANGE_MAX_LG2;
	/* Tables of version 2, up to 6.12, which have three sizes of entries. */
	iommu->maps_singly = !xs_domain_is_generic(domain) &&
			     !(domain->pgsize_bitmap & SZ_8K);
	return NULL;
}

const struct xs_iommu_kind xs_iommu_amd = {
	.is = is_amd,
	.describe = describe_amd,
	.format = &xs_format_amd,
};
