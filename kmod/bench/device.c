// SPDX-License-Identifier: GPL-2.0-only
/* A device that workloads are run on; see device.h. */
#include <linux/errno.h>
#include <linux/iommu.h>
#include <linux/sched/signal.h>

#include "device.h"

int lab_device_interrupted(const struct lab_device *dev, const char *workload)
{
	if (READ_ONCE(dev->leaving)) {
		dev_err(&dev->pdev->dev, "%s: ended early, the driver is being unbound\n", workload);
		return -ENODEV;
	}
	if (signal_pending(current)) {
		dev_err(&dev->pdev->dev, "%s: ended early, a signal is pending\n", workload);
		return -EINTR;
	}
	return 0;
}

bool lab_device_translated(const struct lab_device *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&dev->pdev->dev);

	return domain && domain->type != IOMMU_DOMAIN_IDENTITY;
}
