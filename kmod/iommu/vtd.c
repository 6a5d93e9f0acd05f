// SPDX-License-Identifier: GPL-2.0-only
/*
 * Intel VT-d (VT-d specification, chapters 9 and 11): legacy mode, with second-stage page
 * tables, and scalable mode, with first-stage or second-stage page tables.
 *
 * The driver must be called after a map in caching mode, if the table is second-stage, and if
 * the IOMMU needs write-buffer flushing. The capability registers, which are in the IOMMU's
 * sysfs group, tell both. The stage is in the tables that the hardware walks: a root table by
 * bus, a context table by function, and in scalable mode a PASID directory and a PASID table,
 * with its first entry for requests without PASID.
 */
#include <linux/bitfield.h>
#include <linux/bits.h>
#include <linux/io.h>
#include <linux/pci.h>
#include <linux/string.h>

#include "../compat/compat.h"
#include "../tables/tables.h"
#include "iommu.h"
#include "vtd.h"

#define CAP_RWBF	BIT_ULL(4)
#define CAP_CM		BIT_ULL(7)
#define CAP_PSI		BIT_ULL(39)
#define CAP_MAMV	GENMASK_ULL(53, 48)
#define ECAP_COHERENT	BIT_ULL(0)
#define ECAP_SMPWC	BIT_ULL(48)	/* ECAP_COHERENT of scalable mode */

#define RTADDR		0x20		/* register with the address of the root table */
#define RTADDR_MODE	GENMASK_ULL(11, 10)
#define MODE_LEGACY	0
#define MODE_SCALABLE	1

#define PRESENT		BIT_ULL(0)
#define WIDTH_LEVELS	2		/* levels beyond the field's value */
#define LEVELS_MAX	5

/* Legacy mode: first and second word of a context. */
#define CONTEXT_TYPE	GENMASK_ULL(3, 2)
#define TYPE_PASSED	2		/* passthrough */
#define CONTEXT_WIDTH	GENMASK_ULL(2, 0)

/*
 * Scalable mode: a context has 4 words, a PASID entry 8. Fields of the first and third word of
 * the entry.
 */
#define SCALABLE_HALF	128		/* functions; each half has a table */
#define CONTEXT_WORDS	4
#define CONTEXT_PASID	GENMASK_ULL(19, 0)	/* second word: PASID of requests without PASID */
#define PASID_WIDTH	GENMASK_ULL(4, 2)
#define PASID_STAGE	GENMASK_ULL(8, 6)
#define STAGE_FIRST	1
#define STAGE_SECOND	2
#define FIRST_WIDTH	GENMASK_ULL(3, 2)
#define FIRST_LEVELS	4		/* levels beyond the field's value */

/* As xs_table_at(), but NULL if the entry is not present. */
static u64 *table_of(u64 entry)
{
	return entry & PRESENT ? xs_table_at(entry) : NULL;
}

/* The value of the root table register; 0 if the register cannot be read. */
static u64 read_root(u64 registers)
{
	void __iomem *at;
	u64 root;

	if (!registers)
		return 0;
	at = ioremap(registers, RTADDR + sizeof(u64));
	if (!at)
		return 0;
	root = readq(at + RTADDR);
	iounmap(at);
	return root;
}

static const char *find_legacy(struct xs_vtd_table *table, const u64 *by_bus,
			       struct pci_dev *pdev)
{
	const u64 *contexts = table_of(READ_ONCE(by_bus[2 * pdev->bus->number]));
	const u64 *context = contexts ? &contexts[2 * pdev->devfn] : NULL;
	u64 low = context ? READ_ONCE(context[0]) : 0;

	if (!(low & PRESENT) || FIELD_GET(CONTEXT_TYPE, low) >= TYPE_PASSED)
		return "its IOMMU has no page table for it";
	table->levels = FIELD_GET(CONTEXT_WIDTH, READ_ONCE(context[1])) +
			WIDTH_LEVELS;
	table->first = xs_table_at(low);
	return NULL;
}

/*
 * The PASID entry of requests without PASID, for which Linux uses the first entry; NULL if
 * there is none.
 */
static const u64 *find_pasid(const u64 *by_bus, struct pci_dev *pdev)
{
	u32 half = pdev->devfn / SCALABLE_HALF;
	u32 index = pdev->devfn % SCALABLE_HALF;
	const u64 *contexts, *context, *directory;

	contexts = table_of(READ_ONCE(by_bus[2 * pdev->bus->number + half]));
	context = contexts ? &contexts[CONTEXT_WORDS * index] : NULL;
	if (!context || FIELD_GET(CONTEXT_PASID, READ_ONCE(context[1])))
		return NULL;
	directory = table_of(READ_ONCE(context[0]));
	return directory ? table_of(READ_ONCE(directory[0])) : NULL;
}

static const char *find_scalable(struct xs_vtd_table *table, const u64 *by_bus,
				 struct pci_dev *pdev)
{
	const u64 *pasid = find_pasid(by_bus, pdev);
	u64 low = pasid ? READ_ONCE(pasid[0]) : 0;
	u64 third;

	if (!(low & PRESENT))
		return "its IOMMU has no page table for it";
	switch (FIELD_GET(PASID_STAGE, low)) {
	case STAGE_FIRST:
		third = READ_ONCE(pasid[2]);
		table->is_first_stage = true;
		table->levels = FIELD_GET(FIRST_WIDTH, third) + FIRST_LEVELS;
		table->first = xs_table_at(third);
		return NULL;
	case STAGE_SECOND:
		table->levels = FIELD_GET(PASID_WIDTH, low) + WIDTH_LEVELS;
		table->first = xs_table_at(low);
		return NULL;
	default:
		return "its IOMMU has no page table of one stage for it";
	}
}

const char *xs_vtd_find_table(struct xs_vtd_table *table, struct device *dev)
{
	struct pci_dev *pdev = to_pci_dev(dev);
	const char *why;
	u64 registers, root, ecap;
	u64 *by_bus;
	u32 mode;

	memset(table, 0, sizeof(*table));
	/* The hardware knows the device by another address. */
	if (is_vmd(pdev->bus))
		return "it is behind VMD";
	if (!xs_iommu_attribute(dev, "intel-iommu", "ecap", &ecap) ||
	    !xs_iommu_attribute(dev, "intel-iommu", "address", &registers))
		return "its IOMMU is none whose page tables we know";
	root = read_root(registers);
	by_bus = root ? xs_table_at(root) : NULL;
	if (!by_bus)
		return "the registers of its IOMMU cannot be read";
	mode = FIELD_GET(RTADDR_MODE, root);
	if (mode == MODE_LEGACY)
		why = find_legacy(table, by_bus, pdev);
	else if (mode == MODE_SCALABLE)
		why = find_scalable(table, by_bus, pdev);
	else
		why = "its IOMMU is in a mode that is not known";
	if (why)
		return why;
	table->flushes = !(ecap & (mode == MODE_LEGACY ? ECAP_COHERENT :
							 ECAP_SMPWC));
	if (table->levels > LEVELS_MAX)
		return "its page table has more levels than are known";
	return table->first ? NULL : "its page table is not in memory";
}

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
