// SPDX-License-Identifier: GPL-2.0-only
/*
 * AMD-Vi with its own page tables (version 1, or their generic form in 7.x), which
 * the kernel's DMA API uses.
 *
 * Under a hypervisor that must be told of new mappings (NpCache, like VT-d's caching mode),
 * the driver flushes each map, and sends a command for each aligned power of two in a range.
 * Else the driver sends nothing for a map, and one command for a range. The driver gathers
 * removed ranges although it is told not to, so the module leaves the driver nothing to
 * gather.
 */
#include "../compat/compat.h"
#include "attribute.h"
#include "iommu.h"
#include "table.h"

#define AMD_CAP_NPCACHE(cap)	((cap) >> 26 & 1)
#define AMD_RANGE_MAX_LG2	52	/* larger than any range */

static bool is_amd(struct device *dev)
{
	u64 cap;

	return xs_iommu_attribute(dev, "amd-iommu", "cap", &cap);
}

/* Number of aligned powers of two in a range, each the largest that fits. */
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
	iommu->grows = true;
	/* Up to 6.12, page tables of version 2, which have three sizes of entries. */
	iommu->maps_singly = !xs_domain_is_generic(domain) &&
			     !(domain->pgsize_bitmap & SZ_8K);
	return NULL;
}

const struct xs_iommu_kind xs_iommu_amd = {
	.is = is_amd,
	.describe = describe_amd,
	.format = &xs_format_amd,
};
