// SPDX-License-Identifier: GPL-2.0-only
/*
 * Arm SMMUv3 (Arm IHI 0070, 4.4 for commands), with page tables in the CPU's format.
 *
 * A map needs no flush. An invalidation of a range consists of commands which each cover up to
 * 31 times a power of two of pages, from any page. Without range invalidation (RIL), each page
 * needs a command. A command has a hint for the level of the entries, and the hardware may
 * rely on the hint: an entry that is larger than a page may stay cached.
 *
 * A removal that covers a whole last-level table frees the table, and sends a further command
 * that the module cannot count. Removals of single pages never do so, and the module maps and
 * removes only single pages. The driver warns of pages that are not mapped, and stops at the
 * end of a last-level table in each call.
 *
 * The driver invalidates device TLBs after each of these commands.
 */
#include <linux/bits.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/platform_device.h>
#include <linux/string.h>

#include "attribute.h"
#include "iommu.h"
#include "table.h"

#define IDR3		0xc
#define IDR3_RIL	BIT(10)
#define RANGE_UNITS_MAX	31

static bool is_smmuv3(struct device *dev)
{
	return !strcmp(xs_iommu_driver(dev), "arm-smmu-v3");
}

/*
 * Number of commands with RIL: each command covers as many pages as fit, from the lowest bit
 * of the number of pages.
 */
static u32 ranges_of(const struct xs_iommu *iommu, u64 page, u64 pages)
{
	u32 commands = 0;

	for (; pages; commands++) {
		u32 lg2 = __ffs64(pages);

		pages -= (pages >> lg2 & RANGE_UNITS_MAX) << lg2;
	}
	return commands;
}

static u32 pages_of(const struct xs_iommu *iommu, u64 page, u64 pages)
{
	return pages;
}

/* If the registers cannot be read, the SMMU is taken to have no RIL. */
static bool has_ranges(struct device *dev)
{
	struct device *parent = dev->iommu->iommu_dev->dev->parent;
	struct resource *registers =
		platform_get_resource(to_platform_device(parent),
				      IORESOURCE_MEM, 0);
	void __iomem *at = registers ?
		ioremap(registers->start + IDR3, sizeof(u32)) : NULL;
	bool has;

	if (!at)
		return false;
	has = readl(at) & IDR3_RIL;
	iounmap(at);
	return has;
}

static const char *describe_smmuv3(struct xs_iommu *iommu, struct device *dev,
				   struct iommu_domain *domain)
{
	iommu->commands = has_ranges(dev) ? ranges_of : pages_of;
	iommu->unmap_covers_holes = true;
	iommu->exact_unmap = true;
	iommu->pages_only = true;
	return NULL;
}

const struct xs_iommu_kind xs_iommu_smmuv3 = {
	.is = is_smmuv3,
	.describe = describe_smmuv3,
	.format = &xs_format_smmuv3,
};
