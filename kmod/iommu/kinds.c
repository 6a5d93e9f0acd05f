// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds the kind of an IOMMU, sets the properties that all kinds share, and finds page tables by
 * the format of the kind.
 */
#include <linux/device.h>
#include <linux/string.h>

#include "../compat/compat.h"
#include "iommu.h"
#include "table.h"

static const struct xs_iommu_kind *const kinds[] = {
#ifdef CONFIG_X86
	&xs_iommu_vtd,
	&xs_iommu_amd,
#endif
#ifdef CONFIG_ARM64
	&xs_iommu_smmuv3,
#endif
#ifdef CONFIG_UML_FAKE_IOMMU
	&xs_iommu_fake,
#endif
	&xs_iommu_virtio,
};

static const struct xs_iommu_kind *kind_of(struct device *dev)
{
	for (u32 i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i]->is(dev))
			return kinds[i];
	return NULL;
}

static const char *describe(struct xs_iommu *iommu, struct device *dev,
			    struct iommu_domain *domain)
{
	memset(iommu, 0, sizeof(*iommu));
	iommu->flushes_maps = domain->ops->iotlb_sync_map;
	iommu->unmap_covers_holes = xs_domain_is_generic(domain);
	return kind_of(dev)->describe(iommu, dev, domain);
}

const char *xs_root_find(struct xs_root *root, struct device *dev)
{
	const struct xs_iommu_kind *kind = kind_of(dev);
	const char *why;

	memset(root, 0, sizeof(*root));
	if (!kind || !kind->format)
		return "the format of its page tables is not supported";
	why = kind->format->find(root, dev);
	root->format = why ? NULL : kind->format;
	return why;
}

static const char *check(struct device *dev)
{
	if (!dev->iommu || !dev->iommu->iommu_dev)
		return "it is behind no IOMMU";
	if (!kind_of(dev))
		return "its IOMMU is not supported (Intel VT-d, AMD-Vi, Arm SMMUv3 and virtio-iommu are)";
	return NULL;
}

void xs_iommu_look(struct xs_seen *seen, struct device *dev,
		   struct iommu_domain *domain)
{
	struct xs_root root;

	memset(seen, 0, sizeof(*seen));
	seen->type = IOMMU_DOMAIN_BLOCKED;
	seen->untried = check(dev);
	seen->no_tables = seen->untried;
	if (seen->untried)
		return;
	seen->iommu = dev->iommu->iommu_dev;
	seen->no_tables = xs_root_find(&root, dev);
	if (domain)
		seen->type = domain->type;
	if (seen->type & __IOMMU_DOMAIN_DMA_API)
		seen->unserved = describe(&seen->like, dev, domain);
}
