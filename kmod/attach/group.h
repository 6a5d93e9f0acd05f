/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * IOMMU groups and their devices.
 *
 * The devices of an IOMMU group share an address space, and so a policy and, while any of them has
 * a driver, an engine. A policy is chosen while no driver is bound. The group is attached when the
 * first driver binds: the DMA operations of its devices become those of the module. The group is
 * detached when the last driver is gone and nothing is mapped any more.
 *
 * Memory that a driver has allocated may be freed long after the driver is gone. Until then the
 * group is orphaned: the devices keep the module's operations and the engine keeps its records,
 * but the module no longer uses the domain, which may change or go.
 *
 * Locks, outermost first (DESIGN.md section 6 has a table of all locks, with those of the engine):
 *
 *   device_lock()	guards the DMA bits of struct device (see attach.c)
 *   xs_mutex		guards the list of groups and all state of groups and devices, except the
 *			engine; sleeps, and is never taken on the DMA path
 *   group mutex	of the IOMMU core; held where iommu_group_for_each_dev() calls back
 *   work_lock		of struct xs_backend: guards the pool's chunks, the retries of removals,
 *			changes of the domain and the engine's mode
 *
 * CPU-hotplug callbacks do not take xs_mutex: the IOMMU core waits for CPU hotplug with the group
 * mutex held, and the module takes the group mutex with xs_mutex held. xs_running changes with
 * xs_mutex and cpus_read_lock() held, so a CPU-hotplug callback may read the list.
 */
#ifndef XSMMU_GROUP_H
#define XSMMU_GROUP_H

#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>

#include "../domain/domain.h"
#include "../iommu/iommu.h"
#include "../policy/assignment.h"

struct xs_ops_instance;

#define XS_MSI_PAGES	8

/**
 * struct xs_stale - mappings in the default domain that the module did not make
 *
 * Lifetime: of the group. Written under xs_mutex.
 *
 * @is_clean:	the last scan found nothing mapped below 4 GiB, the kernel maps no MSI pages in the
 *		domain, and no driver has used the kernel's own path since
 * @msi_pages:	IOVAs of MSI pages that the last scan found
 * @msi_page_count: number of @msi_pages
 */
struct xs_stale {
	bool is_clean;
	u64 msi_pages[XS_MSI_PAGES];
	u32 msi_page_count;
};

/**
 * struct xs_attachment - the module's hold of a group's DMA
 *
 * Lifetime: from the attach to the detach, except @failure. Written under xs_mutex.
 *
 * @instance:	the dma_ops instance of the devices; not NULL while the group is attached, orphaned
 *		included
 * @running:	entry in xs_running while @instance is not NULL; changes under xs_mutex and
 *		cpus_read_lock()
 * @geometry:	geometry of the default domain when the engine was made
 * @drivers:	number of devices with a driver that the module serves, blocked devices included
 * @is_aware:	all drivers of those devices are batch-aware
 * @is_active:	the engine has counted a map
 * @failure:	reason why the last attach failed; NULL if it succeeded
 */
struct xs_attachment {
	const struct xs_ops_instance *instance;
	struct list_head running;
	struct iommu_domain_geometry geometry;
	u32 drivers;
	bool is_aware;
	bool is_active;
	const char *failure;
};

/**
 * struct xs_group_stats - statistics of a group
 *
 * Lifetime: of the group. Written under xs_mutex.
 *
 * @past:	sum of the statistics of earlier engines
 * @sum:	scratch for readers of statistics
 */
struct xs_group_stats {
	struct xs_stats past;
	struct xs_stats sum;
};

/**
 * struct xs_group - an IOMMU group; exists while it has a device
 * @backend:	the engine and its backend; has its own locks
 * @assignment:	what policy has decided; written under xs_mutex, by xs_group_assign() only
 * @attachment:	the module's hold of the group's DMA
 * @stale:	mappings that the module did not make
 * @stats:	statistics
 * @list:	entry in xs_groups; under xs_mutex
 * @iommu_group: referenced; constant
 * @devices:	list of struct xs_device, one for each PCI device of the group; under xs_mutex
 */
struct xs_group {
	struct xs_backend backend;
	struct xs_assignment assignment;
	struct xs_attachment attachment;
	struct xs_stale stale;
	struct xs_group_stats stats;
	struct list_head list;
	struct iommu_group *iommu_group;
	struct list_head devices;
};

/**
 * struct xs_device - a PCI device behind an IOMMU
 *
 * All fields are guarded by xs_mutex, except where said.
 *
 * @list:	entry in the devices of @group
 * @dev:	the device; referenced while @is_attached
 * @group:	the group; constant
 * @seen:	result of the last xs_group_look()
 * @on_kernel_path: the device has a driver that uses the kernel's own path, or had a driver that
 *		failed to probe
 * @is_bound:	the device has a driver that the module serves, or the device is @is_blocked
 * @is_aware:	the driver is batch-aware
 * @is_attached: the device's DMA operations are those of the module
 * @is_removed:	the device was removed; the structure stays until the group is detached
 * @is_blocked:	the device cannot be attached, but its group is: all its maps fail
 * @pins_domain: a use of the default domain is held, so nobody can change the group's type
 * @said_line:	the line of `auto` that was last logged for the device
 * @said_refusal: the reason that was last logged for leaving the group to the kernel's own path
 * @dma:	the kernel's own DMA operations and DMA bit while @is_attached, to be restored.
 *		@dma.iommu may be restored later, under the lock of @dev: see xs_device_settle()
 * @released:	entry in the list of devices that the kernel is releasing from their IOMMU; guarded
 *		by release_lock in attach.c
 * @release_ops: DMA operations to restore after that release; guarded by release_lock
 * @kobj:	the folder xsmmu/ of the device in sysfs; NULL if it could not be made
 * @stats:	the folder xsmmu/stats/ of the device in sysfs
 */
struct xs_device {
	struct list_head list;
	struct device *dev;
	struct xs_group *group;
	struct xs_seen seen;
	bool on_kernel_path;
	bool is_bound;
	bool is_aware;
	bool is_attached;
	bool is_removed;
	bool is_blocked;
	bool pins_domain;
	const struct xs_auto_line *said_line;
	const char *said_refusal;
	struct {
		const struct dma_map_ops *ops;
		bool iommu;
	} dma;
	struct list_head released;
	const struct dma_map_ops *release_ops;
	struct kobject *kobj;
	struct kobject *stats;
};

extern struct mutex xs_mutex;
extern struct list_head xs_groups;
extern struct list_head xs_running;

/**
 * xs_device_find - find the xs_device of a device in all groups
 * @dev: the device
 *
 * Context: xs_mutex.
 * Return: the device, or NULL if none is known or the device was removed.
 */
struct xs_device *xs_device_find(struct device *dev);

/**
 * xs_group_device - find the xs_device of a device in one group
 * @group: the group
 * @dev: the device
 *
 * Context: xs_mutex.
 * Return: the device, or NULL if none is known or the device was removed.
 */
struct xs_device *xs_group_device(const struct xs_group *group,
				  struct device *dev);

/**
 * xs_group_look - update @seen of each device of a group
 * @group: the group
 *
 * Called when a device appears, when a driver is about to probe, after a domain was attached, and
 * when the operator chooses. No other code follows dev->iommu of a device without a driver. A
 * device that is being removed is skipped: xs_device_remove() comes before the kernel releases the
 * device from its IOMMU.
 *
 * Context: xs_mutex; takes the mutex of the IOMMU group and sleeps.
 */
void xs_group_look(struct xs_group *group);

/**
 * xs_device_add - make the xs_device of a PCI device, and its group if the group is new
 * @dev: the device, for which there is no xs_device
 *
 * Context: xs_mutex; sleeps.
 * Return: the device; NULL if it is not behind an IOMMU.
 */
struct xs_device *xs_device_add(struct device *dev);

/**
 * xs_device_free - free an xs_device
 * @xdev: the device; not attached
 *
 * Context: xs_mutex.
 */
void xs_device_free(struct xs_device *xdev);

/**
 * xs_group_clean - free the removed devices of a group, and the group if it has no other device
 * @group: a group that is not attached
 *
 * Context: xs_mutex.
 */
void xs_group_clean(struct xs_group *group);

/* Checks whether a group is attached, orphaned included. Context: xs_mutex. */
static inline bool xs_group_is_attached(const struct xs_group *group)
{
	return group->attachment.instance;
}

/**
 * xs_group_situation - the facts of a group on which decisions depend
 * @group: the group
 *
 * Context: xs_mutex, after xs_group_look().
 */
struct xs_situation xs_group_situation(const struct xs_group *group);

/**
 * xs_others_use_kernel_path - check whether a driver of another device in the group uses the
 *			       kernel's own path
 * @xdev: the device
 *
 * Context: xs_mutex.
 * Return: true if such a driver is bound. A driver that is about to probe and waits for xs_mutex
 * does not count.
 */
bool xs_others_use_kernel_path(struct xs_device *xdev);

/**
 * xs_device_refusal - reason why the module cannot attach a device
 * @xdev: the device
 *
 * Context: xs_mutex, after xs_group_look().
 * Return: the reason, a constant string; NULL if the module can.
 */
const char *xs_device_refusal(const struct xs_device *xdev);

/**
 * xs_group_refusal - find the first device of a group that the module cannot attach
 * @group: the group
 * @why: result: the reason, if a device is returned
 *
 * Context: xs_mutex, after xs_group_look().
 * Return: the device; NULL if there is none, and for an attached group, in which such a device is
 * blocked.
 */
struct xs_device *xs_group_refusal(const struct xs_group *group,
				   const char **why);

/**
 * xs_device_has_driver - check whether a device has a driver that uses the DMA API
 * @xdev: the device
 *
 * Drivers of bridges do not use the DMA API, or manage DMA themselves, but not all of them declare
 * driver_managed_dma (shpchp).
 *
 * Context: xs_mutex.
 */
bool xs_device_has_driver(const struct xs_device *xdev);

#endif
