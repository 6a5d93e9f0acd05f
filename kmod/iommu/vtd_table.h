/* SPDX-License-Identifier: GPL-2.0-only */
/* Page tables of Intel VT-d. */
#ifndef XSMMU_IOMMU_VTD_TABLE_H
#define XSMMU_IOMMU_VTD_TABLE_H

#include <linux/device.h>

/**
 * struct xs_vtd_table - the page table that the hardware uses for a device
 * @first:	first page of the table
 * @levels:	number of levels
 * @is_first_stage: the table is first-stage; else second-stage
 * @flushes:	the IOMMU does not snoop the CPU's caches
 */
struct xs_vtd_table {
	u64 *first;
	u32 levels;
	bool is_first_stage;
	bool flushes;
};

/**
 * xs_vtd_find_table - find the page table of a device; reads only
 * @table: result
 * @dev: the device
 *
 * Context: as xs_iommu_look(); may sleep.
 * Return: NULL, or the reason why the table was not found.
 */
const char *xs_vtd_find_table(struct xs_vtd_table *table, struct device *dev);

#endif
