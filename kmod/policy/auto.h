/* SPDX-License-Identifier: GPL-2.0-only */
/* The choices of `auto`: the first line of a table that has only facts that are true of a group. */
#ifndef XSMMU_POLICY_AUTO_H
#define XSMMU_POLICY_AUTO_H

#include <linux/bits.h>
#include <linux/types.h>

/* Facts of a group. A fact is true of one of its devices, of all its drivers, or of the group. */
#define XS_FACT_FLOOR_STRICT	BIT(0)	/* no lower level is allowed */
#define XS_FACT_AWARE		BIT(1)	/* all drivers are batch-aware */
#define XS_FACT_STORAGE		BIT(2)	/* a device of class 01 */
#define XS_FACT_OTHER		BIT(3)	/* a device of any other class */
#define XS_FACT_ETHERNET	BIT(4)	/* a device of class 0200 */
#define XS_FACT_IOMMU_UNKNOWN	BIT(5)	/* unknown, or does not translate */
#define XS_FACT_KERNEL_STRICT	BIT(6)	/* the group's type is DMA, not DMA-FQ */
#define XS_FACT_TOLD_OF_MAPS	BIT(7)	/* the IOMMU needs a command or a request for each map */

/**
 * struct xs_auto_line - a line of the table of `auto`
 * @facts:	the line matches a group that has all these facts
 * @policy:	name of the policy that is chosen then
 * @why:	reason, for the log and for sysfs
 */
struct xs_auto_line {
	u32 facts;
	const char *policy;
	const char *why;
};

/**
 * xs_auto_find - find the line of `auto` for a group
 * @facts: XS_FACT_* of its devices
 * @is_aware: all drivers of its attached devices are batch-aware
 *
 * Context: any, after xs_floor_start().
 * Return: the first line that matches; never NULL.
 */
const struct xs_auto_line *xs_auto_find(u32 facts, bool is_aware);

#endif
