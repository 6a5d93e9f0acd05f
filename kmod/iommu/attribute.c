// SPDX-License-Identifier: GPL-2.0-only
/* Attributes of an IOMMU: see attribute.h. */
#include <linux/device.h>
#include <linux/gfp.h>
#include <linux/iommu.h>
#include <linux/kstrtox.h>
#include <linux/string.h>

#include "attribute.h"

bool xs_iommu_attribute(struct device *dev, const char *group_name,
			const char *name, u64 *value)
{
	struct device *iommu = dev->iommu->iommu_dev->dev;
	const struct attribute_group **group;
	struct attribute **at;
	bool found = false;
	char *page;

	if (!iommu || !iommu->groups)
		return false;
	page = (char *)get_zeroed_page(GFP_KERNEL);
	if (!page)
		return false;
	for (group = iommu->groups; *group && !found; group++) {
		if (!(*group)->name || strcmp((*group)->name, group_name))
			continue;
		for (at = (*group)->attrs; *at && !found; at++) {
			struct device_attribute *attribute =
				container_of(*at, struct device_attribute,
					     attr);

			if (strcmp((*at)->name, name) || !attribute->show)
				continue;
			found = attribute->show(iommu, attribute, page) > 0 &&
				!kstrtou64(strim(page), 16, value);
		}
	}
	free_page((unsigned long)page);
	return found;
}

const char *xs_iommu_driver(struct device *dev)
{
	struct device *iommu = dev->iommu->iommu_dev->dev;

	if (!iommu || !iommu->parent)
		return "";
	return dev_driver_string(iommu->parent);
}
