/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A neighbour: a lab device that shares its IOMMU group, so its domain, with another driver's
 * device, and attacks what that driver unmaps.
 */
#ifndef XSMMU_LAB_NEIGHBOUR_H
#define XSMMU_LAB_NEIGHBOUR_H

struct lab_device;

/* End the attack that is going on, if any. Process context, may sleep. */
void lab_neighbour_disarm(struct lab_device *dev);

#endif
