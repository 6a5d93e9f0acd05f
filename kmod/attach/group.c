// SPDX-License-Identifier: GPL-2.0-only
/* IOMMU groups and their devices. */
#include <linux/cc_platform.h>
#include <linux/device.h>
#include <linux/dma-map-ops.h>
#include <linux/iommu.h>
#include <linux/slab.h>

#include "../compat/compat.h"
#include "group.h"
#include "../policy/auto.h"

DEFINE_MUTEX(xs_mutex);
LIST_HEAD(xs_groups);
LIST_HEAD(xs_running);

struct xs_device *xs_group_device(const struct xs_group *group,
				  struct device *dev)
{
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(xdev, &group->devices, list)
		if (xdev->dev == dev && !xdev->is_removed)
			return xdev;
	return NULL;
}

struct xs_device *xs_device_find(struct device *dev)
{
	struct xs_group *group;
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(group, &xs_groups, list) {
		xdev = xs_group_device(group, dev);
		if (xdev)
			return xdev;
	}
	return NULL;
}

/* The group of @iommu_group, made if it is new. Takes over the caller's reference. */
static struct xs_group *group_get(struct iommu_group *iommu_group)
{
	struct xs_group *group;

	list_for_each_entry(group, &xs_groups, list) {
		if (group->iommu_group == iommu_group) {
			iommu_group_put(iommu_group);
			return group;
		}
	}
	group = kvzalloc(sizeof(*group), GFP_KERNEL | __GFP_NOFAIL);
	group->iommu_group = iommu_group;
	INIT_LIST_HEAD(&group->devices);
	xs_backend_create(&group->backend, iommu_group_id(iommu_group));
	list_add_tail(&group->list, &xs_groups);
	return group;
}

void xs_device_free(struct xs_device *xdev)
{
	lockdep_assert_held(&xs_mutex);
	list_del(&xdev->list);
	kfree(xdev);
}

void xs_group_clean(struct xs_group *group)
{
	struct xs_device *xdev, *next;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry_safe(xdev, next, &group->devices, list)
		if (xdev->is_removed)
			xs_device_free(xdev);
	if (!list_empty(&group->devices))
		return;
	list_del(&group->list);
	iommu_group_put(group->iommu_group);
	kvfree(group);
}

/*
 * All devices must be known: an unknown device would use the kernel's own path in an engine's
 * domain.
 */
struct xs_device *xs_device_add(struct device *dev)
{
	struct iommu_group *iommu_group;
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	iommu_group = iommu_group_get(dev);
	if (!iommu_group)
		return NULL;

	xdev = kzalloc(sizeof(*xdev), GFP_KERNEL | __GFP_NOFAIL);
	xdev->dev = dev;
	INIT_LIST_HEAD(&xdev->released);
	xdev->on_kernel_path = xs_device_has_driver(xdev);
	xdev->group = group_get(iommu_group);
	list_add_tail(&xdev->list, &xdev->group->devices);
	xs_group_look(xdev->group);
	return xdev;
}

/*
 * The mutex of the IOMMU group is held, so the domain stays, and so does dev->iommu of each
 * device that is still in the IOMMU core's list of the group.
 */
static int look(struct device *dev, void *group)
{
	struct xs_device *xdev = xs_group_device(group, dev);

	if (xdev)
		xs_iommu_look(&xdev->seen, dev, xs_locked_domain(dev));
	return 0;
}

void xs_group_look(struct xs_group *group)
{
	lockdep_assert_held(&xs_mutex);
	iommu_group_for_each_dev(group->iommu_group, group, look);
}

/*
 * Two allocators must not share a domain. A driver uses the kernel's own path after a failed
 * attach, for example.
 */
bool xs_others_use_kernel_path(struct xs_device *xdev)
{
	struct xs_device *other;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(other, &xdev->group->devices, list) {
		other->on_kernel_path &= xs_device_has_driver(other);
		if (other != xdev && !other->is_removed && other->on_kernel_path)
			return true;
	}
	return false;
}

bool xs_device_has_driver(const struct xs_device *xdev)
{
	struct device_driver *driver;
	bool has;

	lockdep_assert_held(&xs_mutex);
	/* The driver may be unbound, and its module unloaded, without xs_mutex. */
	rcu_read_lock();
	driver = READ_ONCE(xdev->dev->driver);
	has = driver && !to_pci_driver(driver)->driver_managed_dma;
	rcu_read_unlock();
	return has && !pci_is_bridge(to_pci_dev(xdev->dev));
}

static u32 facts_of_class(struct pci_dev *pdev)
{
	if (pci_is_bridge(pdev))
		return 0;
	if (pdev->class >> 16 == PCI_BASE_CLASS_STORAGE)
		return XS_FACT_STORAGE;
	return pdev->class >> 8 == PCI_CLASS_NETWORK_ETHERNET ? XS_FACT_ETHERNET :
							    XS_FACT_OTHER;
}

static u32 facts_of_iommu(const struct xs_seen *seen)
{
	u32 facts = 0;

	if (seen->untried || seen->unserved ||
	    !(seen->type & __IOMMU_DOMAIN_DMA_API))
		return XS_FACT_IOMMU_UNKNOWN;
	if (seen->type != IOMMU_DOMAIN_DMA_FQ)
		facts |= XS_FACT_KERNEL_STRICT;
	if (seen->like.flushes_maps || seen->like.kicks)
		facts |= XS_FACT_TOLD_OF_MAPS;
	return facts;
}

struct xs_situation xs_group_situation(const struct xs_group *group)
{
	struct xs_situation situation = {
		.now = group->assignment,
		.is_aware = group->attachment.is_aware,
		.is_attached = xs_group_is_attached(group),
	};
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(xdev, &group->devices, list)
		if (!xdev->is_removed)
			situation.facts |=
				facts_of_class(to_pci_dev(xdev->dev)) |
				facts_of_iommu(&xdev->seen);
	return situation;
}

const char *xs_device_refusal(const struct xs_device *xdev)
{
	const struct pci_dev *pdev = to_pci_dev(xdev->dev);

	lockdep_assert_held(&xs_mutex);
	if (xdev->seen.untried)
		return xdev->seen.untried;
	if (xdev->seen.unserved)
		return xdev->seen.unserved;
	/* The kernel's own path first shares memory with the host. */
	if (cc_platform_has(CC_ATTR_GUEST_MEM_ENCRYPT))
		return "the memory of this guest is encrypted, and devices cannot read it";
	/* Devices that are plugged in behind an external-facing port are untrusted. */
	if (pdev->untrusted || pdev->external_facing)
		return "untrusted (external-facing) device: leave its IOMMU group to the kernel's own path (policy none), which is strict for such devices and copies partial pages";
	if (!dev_is_dma_coherent(xdev->dev))
		return "its DMA is not coherent with the CPU's caches";
	return NULL;
}

struct xs_device *xs_group_refusal(const struct xs_group *group,
				   const char **why)
{
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	if (xs_group_is_attached(group))
		return NULL;
	list_for_each_entry(xdev, &group->devices, list) {
		*why = xdev->is_removed ? NULL : xs_device_refusal(xdev);
		if (*why)
			return xdev;
	}
	return NULL;
}
