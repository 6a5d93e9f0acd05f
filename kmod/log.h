/* SPDX-License-Identifier: GPL-2.0-only */
/* The module's messages in the kernel log. */
#ifndef XSMMU_LOG_H
#define XSMMU_LOG_H

#include <linux/printk.h>

#undef pr_fmt
#define pr_fmt(fmt) "xsmmu: " fmt

/*
 * Tells the operator how to get a new domain, for log lines. Linux 6.1 does not change the type of
 * a group of several devices. A group is gone when all its devices are removed, and the devices get
 * another group after a rescan.
 */
#define XS_NEW_DOMAIN(group) \
	"write identity to /sys/kernel/iommu_groups/" group "/type and then DMA-FQ; if that is refused, as Linux 6.1 does for a group of several devices, write 1 to the file remove of each device in /sys/kernel/iommu_groups/" group "/devices, and then to /sys/bus/pci/rescan"

#endif
