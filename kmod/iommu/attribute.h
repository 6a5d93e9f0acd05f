/* SPDX-License-Identifier: GPL-2.0-only */
/* Attributes of an IOMMU, as its driver shows them in sysfs. */
#ifndef XSMMU_IOMMU_ATTRIBUTE_H
#define XSMMU_IOMMU_ATTRIBUTE_H

#include <linux/device.h>

/**
 * xs_iommu_attribute - read an attribute of an IOMMU's own sysfs group
 * @dev: a device behind the IOMMU
 * @group_name: name of the sysfs group
 * @name: name of the attribute, a hexadecimal number
 * @value: result; unchanged on failure
 *
 * Context: as xs_iommu_look().
 * Return: false if the attribute cannot be read.
 */
bool xs_iommu_attribute(struct device *dev, const char *group_name,
			const char *name, u64 *value);

/**
 * xs_iommu_driver - name of the driver of an IOMMU
 * @dev: a device behind the IOMMU
 *
 * Context: as xs_iommu_look().
 * Return: the name, or "".
 */
const char *xs_iommu_driver(struct device *dev);

#endif
