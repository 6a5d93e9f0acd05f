// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page tables of AMD-Vi, version 1 (AMD I/O Virtualization Technology specification, 2.2).
 *
 * A device's entry in the IOMMU's device table refers to the page table and gives the number
 * of levels. The driver of 6.1 and 6.12 begins with three levels and adds a level for a map
 * beyond them.
 */
#include <linux/acpi.h>
#include <linux/bitfield.h>
#include <linux/bits.h>
#include <linux/io.h>
#include <linux/pci.h>
#include <linux/sizes.h>

#include "iommu.h"
#include "table.h"

/* The first register holds the address of the device table. An entry has 4 words. */
#define DEVICES_ADDRESS		GENMASK_ULL(51, 12)
#define DEVICES_SIZE		GENMASK_ULL(8, 0)	/* pages, minus 1 */
#define DEVICE_WORDS		4

/* First word of a device's entry. */
#define DEVICE_IS_VALID		BIT_ULL(0)
#define DEVICE_HAS_TABLE	BIT_ULL(1)
#define DEVICE_HAS_GUEST	BIT_ULL(55)		/* page tables of version 2 */
#define LEVELS_MAX		6

#define ENTRY_PRESENT		BIT_ULL(0)
#define ENTRY_NEXT		GENMASK_ULL(11, 9)	/* levels below, 0: page */
#define NEXT_JOINED		7			/* one of the entries of a larger page */
#define ENTRY_COHERENT		BIT_ULL(60)
#define ENTRY_READ		BIT_ULL(61)
#define ENTRY_WRITE		BIT_ULL(62)

/*
 * Address of an IOMMU's registers from the firmware's IVRS table; 0 if the table does not list
 * the IOMMU.
 */
static u64 find_registers(struct pci_dev *iommu)
{
	const struct acpi_ivrs_header *block;
	struct acpi_table_header *table;
	u64 registers = 0;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_IVRS, 0, &table)))
		return 0;
	block = (const void *)table + sizeof(struct acpi_table_ivrs);
	while ((const void *)(block + 1) <= (const void *)table + table->length &&
	       block->length) {
		/* All block types of hardware begin alike. */
		const struct acpi_ivrs_hardware_10 *hardware = (const void *)block;

		if ((block->type == ACPI_IVRS_TYPE_HARDWARE1 ||
		     block->type == ACPI_IVRS_TYPE_HARDWARE2 ||
		     block->type == ACPI_IVRS_TYPE_HARDWARE3) &&
		    block->device_id == pci_dev_id(iommu) &&
		    hardware->pci_segment_group == pci_domain_nr(iommu->bus))
			registers = hardware->base_address;
		block = (const void *)block + block->length;
	}
	acpi_put_table(table);
	return registers;
}

/* The first register of the device's IOMMU; 0 if the register cannot be read. */
static u64 read_devices(struct device *dev)
{
	struct device *iommu = dev->iommu->iommu_dev->dev->parent;
	u64 registers = 0;
	void __iomem *at;
	u64 devices;

	if (iommu && dev_is_pci(iommu))
		registers = find_registers(to_pci_dev(iommu));
	at = registers ? ioremap(registers, sizeof(u64)) : NULL;
	if (!at)
		return 0;
	devices = readq(at);
	iounmap(at);
	return devices;
}

static const char *find_table(struct xs_root *root, struct device *dev)
{
	u64 devices = read_devices(dev);
	u64 *by_id = devices & DEVICES_ADDRESS ? xs_table_at(devices) : NULL;
	u64 bytes = (FIELD_GET(DEVICES_SIZE, devices) + 1) * SZ_4K;
	u32 index = pci_dev_id(to_pci_dev(dev)) * DEVICE_WORDS;
	u64 device;

	if (!by_id)
		return "the registers of its IOMMU cannot be read";
	if ((index + DEVICE_WORDS) * sizeof(u64) > bytes)
		return "its IOMMU has no page table for it";
	device = READ_ONCE(by_id[index]);
	if (!(device & DEVICE_IS_VALID) || !(device & DEVICE_HAS_TABLE))
		return "its IOMMU has no page table for it";
	if (device & DEVICE_HAS_GUEST)
		return "its page table has AMD's version 2 format";
	root->device = &by_id[index];
	root->known = ENTRY_PRESENT | ENTRY_COHERENT | ENTRY_READ | ENTRY_WRITE;
	return NULL;
}

/* A device's entry has the number of levels in the same place as an entry of a page table. */
static u32 levels_below(u64 value)
{
	u32 levels = FIELD_GET(ENTRY_NEXT, value);

	return value & ENTRY_PRESENT && levels <= LEVELS_MAX ? levels : 0;
}

static bool refers(u64 value, u32 levels)
{
	return levels_below(value) == levels;
}

/*
 * The driver of 7.x joins the entries of contiguous pages. The size of joined entries is in their
 * address bits: it is twice the value of the lowest address bit that is clear.
 */
static u64 joined_bytes(u64 entry)
{
	return PAGE_SIZE << (ffz(entry >> PAGE_SHIFT) + 1);
}

static const char *learn_bits(const struct xs_root *root, u64 entry, u64 phys,
			      u32 prot, u64 *bits)
{
	u64 address = entry & XS_ENTRY_ADDRESS;

	*bits = entry & ~XS_ENTRY_ADDRESS;
	if (FIELD_GET(ENTRY_NEXT, entry) == NEXT_JOINED) {
		u64 offset = joined_bytes(entry) - 1;

		address = (address & ~offset) | (phys & offset);
		*bits &= ~ENTRY_NEXT;
	}
	if (address != phys)
		return "an entry is not where it should be";
	if (*bits & ~root->known || !(*bits & ENTRY_PRESENT) ||
	    !(*bits & ENTRY_WRITE) != !(prot & IOMMU_WRITE) ||
	    !(*bits & ENTRY_READ) != !(prot & IOMMU_READ))
		return "an entry has unknown bits";
	return NULL;
}

const struct xs_format xs_format_amd = {
	.find = find_table,
	.levels = levels_below,
	.refers = refers,
	.learn = learn_bits,
};
