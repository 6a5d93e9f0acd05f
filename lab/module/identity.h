/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Static 1:1 tables: baselines in which the IOMMU translates each address to itself.
 *
 * The default domain of an IOMMU group maps all memory of the machine 1:1, for reading and writing,
 * with leaves of one size, from before the first driver of the group is bound until after the last
 * driver is unbound. The devices of the group use the DMA API's direct path as in passthrough: an
 * address is the physical address, and a map or an unmap touches no table. So there is no
 * protection: the level is none.
 *
 * /sys/kernel/debug/xsmmu_lab/identity chooses: `<bdf> 4k`, `2m`, `1g` or `none`, for the whole
 * group of the device, while the group has no driver. A read gives a line for each chosen group:
 * the group's number, and a JSON object.
 */
#ifndef XSMMU_LAB_IDENTITY_H
#define XSMMU_LAB_IDENTITY_H

#include <linux/types.h>

struct dentry;
struct device;

/**
 * lab_identity_init() - create the file, and follow the drivers of PCI devices
 * @folder: folder of the file
 *
 * Return: 0 or a negative errno.
 */
int lab_identity_init(struct dentry *folder);

/**
 * lab_identity_exit() - forget all choices
 *
 * The caller has removed the file. No group has a table, because a table holds a reference to the
 * module.
 */
void lab_identity_exit(void);

/**
 * lab_identity_has() - check whether a device reaches all memory by a static 1:1 table
 * @dev: a device with a driver
 *
 * Context: process, may sleep.
 */
bool lab_identity_has(struct device *dev);

#endif
