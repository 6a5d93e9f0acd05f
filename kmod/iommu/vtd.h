/* SPDX-License-Identifier: GPL-2.0-only */
/* Intel VT-d: what its tables are written by as well (tables/vtd.c). */
#ifndef XSMMU_IOMMU_VTD_H
#define XSMMU_IOMMU_VTD_H

#include <linux/device.h>

/*
 * struct xs_vtd_table - the page table that the hardware has for a device
 * @first:	its first page
 * @levels:	that it has
 * @is_first_stage: as the CPU's; else of the second
 * @flushes:	the IOMMU does not look into the CPU's caches
 */
struct xs_vtd_table {
	u64 *first;
	u32 levels;
	bool is_first_stage;
	bool flushes;
};

/* NULL, and the table of @dev, or why it was not found. Reads only; may sleep. */
const char *xs_vtd_find_table(struct xs_vtd_table *table, struct device *dev);

#endif
