// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fake IOMMU of `make native` (lab/native/fake_iommu.c), which exists in User-Mode Linux only.
 * Its page tables are second-stage tables of VT-d, so vtd_entry.c serves both, and its commands
 * are those of VT-d.
 */
#include <linux/string.h>

#include "attribute.h"
#include "iommu.h"
#include "table.h"
#include "vtd_table.h"

#define LEVELS		4
#define RANGE_MAX_LG2	18

/* Exported by the driver of the fake IOMMU, which has no header. */
phys_addr_t fake_iommu_table(struct device *dev);

const char *xs_vtd_find_table(struct xs_vtd_table *table, struct device *dev)
{
	phys_addr_t first = fake_iommu_table(dev);

	memset(table, 0, sizeof(*table));
	table->first = first ? xs_words_at(first) : NULL;
	table->levels = LEVELS;
	return table->first ? NULL : "its IOMMU has no page table for it";
}

static bool is_fake(struct device *dev)
{
	u64 sent;

	return xs_iommu_attribute(dev, "fake-iommu", "page", &sent);
}

static const char *describe_fake(struct xs_iommu *iommu, struct device *dev,
				 struct iommu_domain *domain)
{
	iommu->range_max_lg2 = RANGE_MAX_LG2;
	return NULL;
}

const struct xs_iommu_kind xs_iommu_fake = {
	.is = is_fake,
	.describe = describe_fake,
	.format = &xs_format_vtd,
};
