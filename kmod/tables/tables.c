// SPDX-License-Identifier: GPL-2.0-only
/* What tables of any format have in common. */
#include "../iommu/iommu.h"
#include "tables.h"

const char *xs_root_find(struct xs_root *root, struct device *dev)
{
	const struct xs_format *format = xs_iommu_format(dev);
	const char *why;

	memset(root, 0, sizeof(*root));
	if (!format)
		return "its IOMMU is none whose page tables we know";
	why = format->find(root, dev);
	root->format = why ? NULL : format;
	return why;
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
