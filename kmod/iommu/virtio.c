// SPDX-License-Identifier: GPL-2.0-only
/*
 * virtio-iommu (virtio specification, 5.13). Maps and unmaps are requests in a queue. An
 * invalidation notifies the device of the queue and waits: a removed page is out of reach when
 * its request is done, and there is no other cache.
 *
 * The driver keeps a record of each map. For a range that is not mapped from end to end, the
 * driver drops the records and sends nothing, and the range stays mapped in the device.
 */
#include <linux/string.h>

#include "attribute.h"
#include "iommu.h"

static bool is_virtio(struct device *dev)
{
	return !strcmp(xs_iommu_driver(dev), "virtio_iommu");
}

/* Each removal was counted as a command when the pages were removed. */
static u32 no_commands(const struct xs_iommu *iommu, u64 page, u64 pages)
{
	return 0;
}

static const char *describe_virtio(struct xs_iommu *iommu, struct device *dev,
				   struct iommu_domain *domain)
{
	iommu->kicks = true;
	iommu->commands = no_commands;
	iommu->unmap_covers_holes = true;
	iommu->exact_unmap = true;
	return NULL;
}

const struct xs_iommu_kind xs_iommu_virtio = {
	.is = is_virtio,
	.describe = describe_virtio,
};
