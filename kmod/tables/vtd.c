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
#define LEVELS_MAX	5

struct vtd_entry {
	u64 low;
	u64 high;
};

/* What an entry refers to; NULL if that is no memory. */
static void *table_at(u64 entry)
{
	u64 phys = entry & XS_ENTRY_ADDRESS;

	return pfn_valid(PHYS_PFN(phys)) ? phys_to_virt(phys) : NULL;
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

/* The context of @dev, NULL if there is none. */
static const struct vtd_entry *find_context(u64 root, struct pci_dev *pdev)
{
	const struct vtd_entry *by_bus = table_at(root);
	const struct vtd_entry *by_function;
	u64 low = by_bus ? READ_ONCE(by_bus[pdev->bus->number].low) : 0;

	by_function = low & PRESENT ? table_at(low) : NULL;
	return by_function ? &by_function[pdev->devfn] : NULL;
}

const char *xs_root_find(struct xs_root *root, struct device *dev,
			 u64 registers)
{
	u64 at = registers ? read_root(registers) : 0;
	const struct vtd_entry *context;
	u64 low;

	if (!at)
		return "the registers of its IOMMU cannot be read";
	if (at & RTADDR_MODE)
		return "its IOMMU is not in legacy mode";
	context = find_context(at, to_pci_dev(dev));
	low = context ? READ_ONCE(context->low) : 0;
	if (!(low & PRESENT) || FIELD_GET(CONTEXT_TYPE, low) >= TYPE_PASSED)
		return "its IOMMU has no page table for it";
	root->levels = FIELD_GET(CONTEXT_WIDTH, context->high) + WIDTH_LEVELS;
	if (root->levels > LEVELS_MAX)
		return "its page table has more levels than are known";
	root->first = table_at(low);
	return root->first ? NULL : "its page table is not in memory";
}

u64 *xs_root_entry(const struct xs_root *root, u64 iova)
{
	u32 shift = PAGE_SHIFT + root->levels * XS_TABLE_LG2;
	u64 *table = root->first;

	if (iova >> shift)
		return NULL;
	while (table) {
		u64 *entry, value;

		shift -= XS_TABLE_LG2;
		entry = &table[iova >> shift & (XS_TABLE_ENTRIES - 1)];
		if (shift == PAGE_SHIFT)
			return entry;
		value = READ_ONCE(*entry);
		if (!(value & (XS_ENTRY_READ | XS_ENTRY_WRITE)) ||
		    value & XS_ENTRY_LARGE)
			return NULL;
		table = table_at(value);
	}
	return NULL;
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
