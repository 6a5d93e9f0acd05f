// SPDX-License-Identifier: GPL-2.0-only
/* Finds the kind of an IOMMU, and sets the properties that all kinds share. */
#include <linux/device.h>
#include <linux/kstrtox.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "../compat/compat.h"
#include "iommu.h"

static const struct xs_iommu_kind *const kinds[] = {
#ifdef CONFIG_X86
	&xs_iommu_vtd,
	&xs_iommu_amd,
#endif
#ifdef CONFIG_ARM64
	&xs_iommu_smmuv3,
#endif
	&xs_iommu_virtio,
};

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

static const struct xs_iommu_kind *kind_of(struct device *dev)
{
	for (u32 i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i]->is(dev))
			return kinds[i];
	return NULL;
}

const char *xs_iommu_check(struct device *dev)
{
	if (!dev->iommu || !dev->iommu->iommu_dev)
		return "it is behind no IOMMU";
	if (!kind_of(dev))
		return "its IOMMU is none that was tried (Intel VT-d, AMD-Vi, Arm SMMUv3 and virtio-iommu were)";
	return NULL;
}

const struct xs_format *xs_iommu_format(struct device *dev)
{
	const struct xs_iommu_kind *kind = kind_of(dev);

	return kind ? kind->format : NULL;
}

const char *xs_iommu_describe(struct xs_iommu *iommu, struct device *dev,
			      struct iommu_domain *domain)
{
	const struct xs_iommu_kind *kind = kind_of(dev);

	memset(iommu, 0, sizeof(*iommu));
	iommu->flushes_maps = domain->ops->iotlb_sync_map;
	iommu->unmap_covers_holes = xs_domain_is_generic(domain);
	return kind ? kind->describe(iommu, dev, domain) : NULL;
}
