/* SPDX-License-Identifier: GPL-2.0-only */
/* /sys/bus/pci/devices/<bdf>/xsmmu/: the operator's interface. */
#ifndef XSMMU_SYSFS_H
#define XSMMU_SYSFS_H

#include "attach/group.h"

/**
 * xs_sysfs_add - make the folder xsmmu/ of a device
 * @xdev: the device
 *
 * Context: xs_mutex; sleeps.
 * Return: 0 or -ENOMEM.
 */
int xs_sysfs_add(struct xs_device *xdev);

/**
 * xs_sysfs_remove - remove the folder xsmmu/ of a device, and wait for its open files
 * @xdev: the device
 *
 * Context: xs_mutex; sleeps.
 */
void xs_sysfs_remove(struct xs_device *xdev);

#endif
