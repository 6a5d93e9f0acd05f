// SPDX-License-Identifier: GPL-2.0-only
/* What the operator chooses for a group, and what may not be. */
#include <linux/dma-map-ops.h>
#include <linux/pci.h>

#include "xsmmu.h"

static int refuse(struct xs_device *xdev, int error, const char *why)
{
	dev_err(xdev->dev, "xsmmu: refused: %s\n", why);
	return error;
}

int xs_device_check(struct xs_device *xdev)
{
	struct pci_dev *pdev = to_pci_dev(xdev->dev);

	if (pdev->untrusted || pdev->external_facing)
		return refuse(xdev, -EPERM,
			      "untrusted (external-facing) device: only the kernel's own path bounces its partial pages");
	if (!dev_is_dma_coherent(xdev->dev))
		return refuse(xdev, -EOPNOTSUPP,
			      "its DMA is not coherent with the CPU's caches");
	return 0;
}

/* Between the kernel's path and ours only while no driver uses either. */
static int check_unbound(struct xs_device *xdev)
{
	if (xs_device_has_driver(xdev))
		return refuse(xdev, -EBUSY,
			      "a driver is bound: unbind the drivers of its whole IOMMU group first");
	return 0;
}

int xs_group_choose(struct xs_group *group, const struct xs_policy *policy)
{
	struct xs_device *xdev;
	int error;

	lockdep_assert_held(&xs_mutex);
	if (policy == group->policy)
		return 0;
	if (!policy && group->front && !group->attached) {
		pr_err("group %d: refused: it lingers, as %lld pages are still in use after their driver has gone\n",
		       iommu_group_id(group->iommu_group),
		       xs_group_live(group));
		return -EBUSY;
	}
	list_for_each_entry(xdev, &group->devices, list) {
		error = policy ? xs_device_check(xdev) : 0;
		if (!error && (!policy || !group->policy))
			error = check_unbound(xdev);
		if (error)
			return error;
	}
	group->policy = policy;
	group->failure = NULL;
	if (!policy)
		return 0;
	group->tuning = xs_tuning_default(policy);
	xs_group_set(group);
	return 0;
}

/*
 * Choose for a new device by the module's parameter. What has no NAPI poll to
 * end would defer to the timer all the time, so anything but a network device
 * is strict, and so is a group that has one.
 */
void xs_device_choose_default(struct xs_device *xdev,
			      const struct xs_policy *policy)
{
	struct xs_group *group = xdev->group;
	bool polls = to_pci_dev(xdev->dev)->class >> 16 ==
		     PCI_BASE_CLASS_NETWORK;

	lockdep_assert_held(&xs_mutex);
	if (!polls)
		policy = xs_policy_find("strict");
	if (!xdev->dev->driver && (!group->policy || !polls))
		xs_group_choose(group, policy);
}

int xs_group_tune(struct xs_group *group, const struct xs_tuning *tuning)
{
	lockdep_assert_held(&xs_mutex);
	if (!group->policy)
		return -ENODATA;
	if (!tuning->window_us || tuning->window_us > XS_WINDOW_MAX_US ||
	    !tuning->batch_pages || tuning->batch_pages > XS_BATCH_MAX_PAGES ||
	    !tuning->range_commands_max ||
	    tuning->range_commands_max > XS_RANGES_MAX)
		return -ERANGE;
	group->tuning = *tuning;
	xs_group_set(group);
	return 0;
}
