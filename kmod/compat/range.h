/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The range of kernels that this module supports. A shim covers changes that headers show, but
 * helpers and IOMMU drivers can also change behind the same declaration. The source of 6.1,
 * 6.12, 7.2 and 7.3 was read (docs/kernels.md); the series between are accepted unread.
 * dkms.conf and the tool name the same range, and a test compares them.
 */
#ifndef XSMMU_COMPAT_RANGE_H
#define XSMMU_COMPAT_RANGE_H

#include <linux/version.h>

#define XS_OLDEST_MAJOR	6
#define XS_OLDEST_MINOR	1
#define XS_NEWEST_MAJOR	7
#define XS_NEWEST_MINOR	3

#if LINUX_VERSION_CODE < KERNEL_VERSION(XS_OLDEST_MAJOR, XS_OLDEST_MINOR, 0)
#error "this kernel is too old for xsmmu: build for Linux 6.1 or later"
#endif

/* On arm64, 6.1 clears a device's DMA operations after the module's last look at the device. */
#if defined(CONFIG_ARM64) && LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#error "this kernel is too old for xsmmu on arm64: build for Linux 6.12 or later"
#endif

#endif
