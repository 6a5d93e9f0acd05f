// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page tables of Intel VT-d in legacy mode: of the second stage, with a root table by
 * bus and a context table by function before them (VT-d specification, chapter 9).
 */
#include <linux/bitfield.h>
#include <linux/io.h>

#include "tables.h"

#define RTADDR		0x20		/* the register with the root table's address */
#define RTADDR_MODE	GENMASK_ULL(11, 10)
#define PRESENT		BIT_ULL(0)
#define CONTEXT_TYPE	GENMASK_ULL(3, 2)
#define TYPE_PASSED	2		/* through, without a page table */
#define CONTEXT_WIDTH	GENMASK_ULL(2, 0)	/* of the second word */
#define WIDTH_LEVELS	2		/* more than it says */

struct vtd_entry {
	u64 low;
	u64 high;
};

static const struct vtd_entry *table_at(u64 entry)
{
	return phys_to_virt(entry & XS_ENTRY_ADDRESS);
}

/* The root table's address as the hardware has it; 0 if the register cannot be read. */
static u64 read_root(u64 registers)
{
	void __iomem *at = ioremap(registers, RTADDR + sizeof(u64));
	u64 root;

	if (!at)
		return 0;
	root = readq(at + RTADDR);
	iounmap(at);
	return root;
}

const char *xs_root_find(struct xs_root *root, struct device *dev,
			 u64 registers)
{
	struct pci_dev *pdev = to_pci_dev(dev);
	u64 at = registers ? read_root(registers) : 0;
	const struct vtd_entry *context;

	if (!at)
		return "the registers of its IOMMU cannot be read";
	if (at & RTADDR_MODE)
		return "its IOMMU is not in legacy mode";
	at = READ_ONCE(table_at(at)[pdev->bus->number].low);
	if (!(at & PRESENT))
		return "its IOMMU does not know its bus";
	context = &table_at(at)[pdev->devfn];
	if (!(READ_ONCE(context->low) & PRESENT) ||
	    FIELD_GET(CONTEXT_TYPE, context->low) >= TYPE_PASSED)
		return "its IOMMU has no page table for it";
	root->levels = FIELD_GET(CONTEXT_WIDTH, context->high) + WIDTH_LEVELS;
	root->first = phys_to_virt(context->low & XS_ENTRY_ADDRESS);
	return NULL;
}

u64 *xs_root_entry(const struct xs_root *root, u64 iova)
{
	u32 shift = PAGE_SHIFT + root->levels * XS_TABLE_LG2;
	u64 *table = root->first;

	if (iova >> shift)
		return NULL;
	for (;;) {
		u64 *entry, value;

		shift -= XS_TABLE_LG2;
		entry = &table[iova >> shift & (XS_TABLE_ENTRIES - 1)];
		if (shift == PAGE_SHIFT)
			return entry;
		value = READ_ONCE(*entry);
		if (!(value & (XS_ENTRY_READ | XS_ENTRY_WRITE)) ||
		    value & XS_ENTRY_LARGE)
			return NULL;
		table = phys_to_virt(value & XS_ENTRY_ADDRESS);
	}
}

/* The driver of 6.12 lets what may be written be read as well. */
static bool is_right(u64 bits, u32 prot)
{
	u64 known = XS_ENTRY_READ | XS_ENTRY_WRITE | XS_ENTRY_SNOOP;

	return !(bits & ~known) &&
	       !(bits & XS_ENTRY_WRITE) == !(prot & IOMMU_WRITE) &&
	       (bits & XS_ENTRY_READ || !(prot & IOMMU_READ));
}

const char *xs_tables_learn(struct xs_tables *tables, u64 entry, u64 phys,
			    u32 prot)
{
	u64 bits = entry & ~XS_ENTRY_ADDRESS;
	u64 *known = &tables->bits[xs_tables_kind(prot)];

	if ((entry & XS_ENTRY_ADDRESS) != phys)
		return "an entry is not where it should be";
	if (!is_right(bits, prot))
		return "an entry is none that we know";
	if (READ_ONCE(*known) && READ_ONCE(*known) != bits)
		return "entries of the same kind differ";
	WRITE_ONCE(*known, bits);
	return NULL;
}
