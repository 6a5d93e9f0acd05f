/* SPDX-License-Identifier: GPL-2.0-only */
/* Ranges of a group's default domain in which the engine must not map. */
#ifndef XSMMU_REGIONS_H
#define XSMMU_REGIONS_H

#include "group.h"

/**
 * xs_regions_reserve - reserve all ranges in which the engine must not map, MSI pages included
 * @group: the group; its engine was just made
 *
 * Context: xs_mutex, after xs_regions_check(); sleeps.
 * Return: 0 or -ENOMEM.
 */
int xs_regions_reserve(struct xs_group *group);

/**
 * xs_regions_check - scan a domain for mappings that the module did not make
 * @group: the group; the result goes to @stale
 * @domain: default domain of the group
 *
 * Only the kernel's own path can unmap what a driver has left mapped there, and the engine must not
 * map at those IOVAs. Scans only if a driver may have used the kernel's own path since.
 *
 * Context: xs_mutex; sleeps.
 * Return: the reason to refuse the domain; NULL if an engine can use it.
 */
const char *xs_regions_check(struct xs_group *group,
			     struct iommu_domain *domain);

#endif
