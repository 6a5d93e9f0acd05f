// SPDX-License-Identifier: GPL-2.0-only
/* Operations on page tables of any format. */
#include <linux/iommu.h>

#include "table.h"

u64 *xs_root_entry(const struct xs_root *root, u64 iova)
{
	const struct xs_format *format = root->format;
	u32 levels = root->levels;
	u64 *table = root->first;

	if (root->device) {
		u64 device = READ_ONCE(*root->device);

		levels = format->levels(device);
		table = levels ? xs_table_at(device) : NULL;
	}
	if (levels * XS_TABLE_LG2 + PAGE_SHIFT < 64 &&
	    iova >> (levels * XS_TABLE_LG2 + PAGE_SHIFT))
		return NULL;
	while (table) {
		u32 shift = PAGE_SHIFT + --levels * XS_TABLE_LG2;
		u64 *entry = &table[iova >> shift & (XS_TABLE_ENTRIES - 1)];
		u64 value;

		if (!levels)
			return entry;
		value = READ_ONCE(*entry);
		table = format->refers(value, levels) ? xs_table_at(value) :
							NULL;
	}
	return NULL;
}

const char *xs_tables_learn(struct xs_tables *tables, u64 entry, u64 phys,
			    u32 prot)
{
	u64 *known = &tables->bits[xs_tables_kind(prot)];
	const char *why;
	u64 bits;

	why = tables->root.format->learn(&tables->root, entry, phys, prot,
					 &bits);
	if (why)
		return why;
	if (READ_ONCE(*known) && READ_ONCE(*known) != bits)
		return "entries of the same kind differ";
	WRITE_ONCE(*known, bits);
	return NULL;
}
