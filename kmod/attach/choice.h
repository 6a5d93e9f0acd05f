/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Choices for a group: of the operator, and when a device appears or gets a driver. Each function
 * asks policy/ for an assignment, checks that the group can have it, and has attach.c apply it.
 */
#ifndef XSMMU_CHOICE_H
#define XSMMU_CHOICE_H

#include "group.h"

/**
 * xs_device_appear - choose for the group of a device that has appeared
 * @xdev: the device
 *
 * Context: xs_mutex; may sleep.
 */
void xs_device_appear(struct xs_device *xdev);

/**
 * xs_device_bind - choose for the group of a device that a driver is about to probe, and attach it
 * @xdev: the device; the kernel has set up its DMA path
 *
 * Context: the lock of the device and xs_mutex; sleeps.
 */
void xs_device_bind(struct xs_device *xdev);

/**
 * xs_group_choose - make a choice of the operator
 * @group: the group
 * @policy: policy; NULL for none, and with @is_auto
 * @is_auto: let `auto` choose the policy
 *
 * Context: xs_mutex; sleeps.
 * Return: 0 or a negative errno. A log line gives the reason of a refusal.
 */
int xs_group_choose(struct xs_group *group, const struct xs_policy *policy,
		    bool is_auto);

/**
 * xs_group_tune - change the tunables of a group for the operator
 * @group: the group
 * @tuning: all tunables
 * @copies: the operator has set copy_bytes
 *
 * Context: xs_mutex; may sleep.
 * Return: 0; -ENODATA without a policy or with `auto`; -ERANGE for a value out of range; or
 * another negative errno, with a log line.
 */
int xs_group_tune(struct xs_group *group, const struct xs_tuning *tuning,
		  bool copies);

/**
 * xs_group_choose_tables - choose between direct tables and the IOMMU driver's operations
 * @group: the group
 * @direct: use direct tables
 *
 * Context: xs_mutex; sleeps.
 * Return: 0; -ENODATA without a policy; or another negative errno, with a log line.
 */
int xs_group_choose_tables(struct xs_group *group, bool direct);

#endif
