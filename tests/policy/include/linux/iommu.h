/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A group and a domain of the IOMMU core, and parts of kmod/domain and kmod/iommu of which only
 * pointers are used: their headers are left out.
 */
#ifndef TEST_LINUX_IOMMU_H
#define TEST_LINUX_IOMMU_H

#define XSMMU_DOMAIN_H
#define XSMMU_IOMMU_H

#include <errno.h>

#include <xsmmu/engine.h>

struct iommu_group;

struct iommu_domain_geometry {
	u64 aperture_start, aperture_end;
};

struct dma_map_ops;

struct xs_backend {
	int unused;
};

struct xs_seen {
	const char *no_tables;
};

static inline int iommu_group_id(const struct iommu_group *group)
{
	return 7;
}

#endif
