/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Attach and detach. This is the only part that changes what is in force for a group: it applies
 * the assignments of policy/, and it attaches and detaches the devices.
 */
#ifndef XSMMU_ATTACH_H
#define XSMMU_ATTACH_H

#include "group.h"

/* ---- assignment ---- */

/**
 * xs_group_assign - put an assignment in force
 * @group: the group
 * @assignment: the assignment
 *
 * Policy and tunables are in force for an attached group on return. Direct tables that have ended
 * begin anew only if @direct has changed: see xs_group_set_tables().
 *
 * Context: xs_mutex; sleeps.
 * Return: false if the group had an equal assignment; then only the sequence number has changed.
 */
bool xs_group_assign(struct xs_group *group,
		     const struct xs_assignment *assignment);

/**
 * xs_group_set_tables - begin or end direct tables, as assigned
 * @group: the group; does nothing if it is not attached
 *
 * Context: xs_mutex; sleeps.
 */
void xs_group_set_tables(struct xs_group *group);

/**
 * xs_group_log_auto - log the choice of `auto` for each device, if it differs from the last logged
 * @group: the group; nothing is logged if `auto` is not in force
 *
 * Context: xs_mutex.
 */
void xs_group_log_auto(struct xs_group *group);

/**
 * xs_group_fall_back - set policy strict after a fault of the module
 * @group: the group
 *
 * Context: xs_mutex; may sleep.
 */
void xs_group_fall_back(struct xs_group *group);

/**
 * xs_group_tuning - tunables that are in force for a group
 * @group: the group
 *
 * Context: xs_mutex.
 */
struct xs_tuning xs_group_tuning(const struct xs_group *group);

/**
 * xs_group_cannot_copy - check whether copying must wait until all drivers are unbound
 * @group: the group
 *
 * Context: xs_mutex.
 * Return: true if the group is attached and its operations do not copy.
 */
bool xs_group_cannot_copy(const struct xs_group *group);

/* ---- devices ---- */

/**
 * xs_device_prepare - prepare a group for the bind of a driver
 * @xdev: the device; the kernel has set up its DMA path
 *
 * Detaches the group if it is orphaned and nothing is mapped any more, finishes an earlier detach
 * of the device, and looks at the group.
 *
 * Context: the lock of the device and xs_mutex; sleeps.
 */
void xs_device_prepare(struct xs_device *xdev);

/**
 * xs_device_attach - attach a device before its driver probes, if a policy is assigned
 * @xdev: the device, after xs_device_prepare()
 *
 * Logs the reason if the device is not attached.
 *
 * Context: the lock of the device and xs_mutex; sleeps.
 */
void xs_device_attach(struct xs_device *xdev);

/**
 * xs_device_settle - restore the DMA bit of a detached device
 * @xdev: the device
 *
 * Does the part of a detach that had to wait because the lock of the device was taken.
 *
 * Context: the lock of the device and xs_mutex; sleeps.
 */
void xs_device_settle(struct xs_device *xdev);

/**
 * xs_device_remove - forget a device that is being removed
 * @xdev: the device; freed now, or when its group is detached
 *
 * Called before the kernel releases the device from its IOMMU. May free the group.
 *
 * Context: xs_mutex; sleeps.
 */
void xs_device_remove(struct xs_device *xdev);

/**
 * xs_device_released - restore the DMA operations of a device that was released from its IOMMU
 * @dev: the device
 *
 * The kernel may have reset the DMA operations in the release. On return they are those of the
 * device's group again, because coherent memory of the device may be freed at any time. Does
 * nothing for a device that was not attached.
 *
 * Context: any that may take a spinlock; takes no mutex.
 */
void xs_device_released(struct device *dev);

/**
 * xs_look_is_due - check whether a domain was attached after the last look at all groups
 *
 * Context: any.
 */
bool xs_look_is_due(void);

/**
 * xs_group_end_orphan - detach a group if it is orphaned and nothing is mapped any more
 * @group: the group; freed if it is detached and has no device left
 * @locked: device that the caller has locked, or NULL
 *
 * Context: xs_mutex; sleeps.
 */
void xs_group_end_orphan(struct xs_group *group, struct device *locked);

/* ---- lifetime of the module ---- */

/**
 * xs_attach_init - make the workqueue of orphaned groups and follow domain changes
 *
 * Context: module load.
 * Return: 0 or a negative errno.
 */
int xs_attach_init(void);

/**
 * xs_attach_exit - undo xs_attach_init()
 *
 * Context: module load or unload, when no group has an engine; sleeps.
 */
void xs_attach_exit(void);

#endif
