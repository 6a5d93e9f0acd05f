// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page tables of Intel VT-d, of the second stage and of the first (VT-d specification,
 * 9.8 and 9.7), which differ in what is in an entry beside the address.
 */
#include "../iommu/vtd.h"
#include "tables.h"

const char *xs_root_find(struct xs_root *root, struct device *dev)
{
	struct xs_vtd_table table;
	const char *why = xs_vtd_find_table(&table, dev);

	if (why)
		return why;
	root->first = table.first;
	root->levels = table.levels;
	root->flushes = table.flushes;
	root->known = XS_ENTRY_READ | XS_ENTRY_WRITE;
	root->known |= table.is_first_stage ?
		XS_ENTRY_USER | XS_ENTRY_ACCESSED | XS_ENTRY_DIRTY |
			XS_ENTRY_NO_CODE :
		XS_ENTRY_SNOOP;
	return NULL;
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
		table = xs_vtd_table_at(value);
	}
	return NULL;
}

/*
 * The driver of 6.12 lets what may be written be read as well; of the first stage all may
 * be read.
 */
static bool is_right(const struct xs_root *root, u64 bits, u32 prot)
{
	return !(bits & ~root->known) &&
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
	if (!is_right(&tables->root, bits, prot))
		return "an entry is none that we know";
	if (READ_ONCE(*known) && READ_ONCE(*known) != bits)
		return "entries of the same kind differ";
	WRITE_ONCE(*known, bits);
	return NULL;
}
