// SPDX-License-Identifier: GPL-2.0-only
/*
 * Intel VT-d (VT-d specification, chapters 9 and 11): legacy mode, with second-stage page
 * tables, and scalable mode, with first-stage or second-stage page tables.
 *
 * The driver must be called after a map in caching mode, if the table is second-stage, and if
 * the IOMMU needs write-buffer flushing. The capability registers, which are in the IOMMU's
 * sysfs group, tell both. The stage is in the tables that
 * the hardware walks (vtd_table.c).
 */
#include <linux/bitfield.h>
#include <linux/bits.h>
#include <linux/pci.h>
#include <linux/string.h>

#include "../compat/compat.h"
#include "attribute.h"
#include "iommu.h"
#include "table.h"
#include "vtd_table.h"

#define CAP_RWBF	BIT_ULL(4)
#define CAP_CM		BIT_ULL(7)
#define CAP_PSI		BIT_ULL(39)
#define CAP_MAMV	GENMASK_ULL(53, 48)

/* Intel's desktop chipsets of 2008 that need write-buffer flushes and do not report it. */
static bool hides_rwbf(void)
{
	static const struct pci_device_id ids[] = {
		{ PCI_VDEVICE(INTEL, 0x2a40) }, { PCI_VDEVICE(INTEL, 0x2e00) },
		{ PCI_VDEVICE(INTEL, 0x2e10) }, { PCI_VDEVICE(INTEL, 0x2e20) },
		{ PCI_VDEVICE(INTEL, 0x2e30) }, { PCI_VDEVICE(INTEL, 0x2e40) },
		{ PCI_VDEVICE(INTEL, 0x2e90) }, { }
	};

	return pci_dev_present(ids);
}

static bool is_vtd(struct device *dev)
{
	u64 cap;

	return xs_iommu_attribute(dev, "intel-iommu", "cap", &cap);
}

/*
 * The driver sends a first-stage range of any length. QEMU's IOMMU refuses a range that is
 * larger than the largest command, and then nothing is invalidated.
 */
static u32 first_stage_commands(const struct xs_iommu *iommu, u64 page, u64 pages)
{
	return xs_iommu_is_one(iommu, page, pages) ? 1 : U32_MAX;
}

/*
 * If the table is not found, the stage is unknown, and the properties are set to be right for
 * both stages. In caching mode no properties are right for both: see @flush_all_via_range
 * below.
 */
static const char *describe_vtd(struct xs_iommu *iommu, struct device *dev,
				struct iommu_domain *domain)
{
	struct xs_vtd_table table;
	u64 cap = CAP_RWBF | CAP_CM;
	bool is_found, is_first, is_second;

	xs_iommu_attribute(dev, "intel-iommu", "cap", &cap);
	is_found = !xs_vtd_find_table(&table, dev);
	is_first = is_found && table.is_first_stage;
	is_second = is_found && !table.is_first_stage;
	if (cap & CAP_CM && !is_found)
		return "its IOMMU is in caching mode, and the page table of the device is not found";
	if (!(cap & CAP_RWBF) && !(cap & CAP_CM && is_second) && !hides_rwbf())
		iommu->flushes_maps = false;
	iommu->range_max_lg2 = cap & CAP_PSI || is_first ?
		FIELD_GET(CAP_MAMV, cap) : -1;
	if (!is_second)
		iommu->commands = first_stage_commands;
	/*
	 * 6.1's driver assumes that a hypervisor which traps a domain-selective command has device
	 * TLBs invalidated, too. A second-stage range that is too long becomes such a command, and
	 * one command for each device.
	 */
	iommu->flush_all_via_range = cap & CAP_CM && is_second;
	/* The driver of VT-d's own page tables. */
	if (domain->ops->map_pages && !xs_domain_is_generic(domain)) {
		iommu->unmap_covers_holes = true;
		iommu->prunes = true;
	}
	return NULL;
}

const struct xs_iommu_kind xs_iommu_vtd = {
	.is = is_vtd,
	.describe = describe_vtd,
	.format = &xs_format_vtd,
};
