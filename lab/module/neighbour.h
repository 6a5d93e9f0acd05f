/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A neighbour: a lab device that shares an IOMMU group, and so a domain, with the device of another
 * driver, and attacks the memory that the driver unmaps.
 */
#ifndef XSMMU_LAB_NEIGHBOUR_H
#define XSMMU_LAB_NEIGHBOUR_H

struct lab_device;

/**
 * lab_neighbour_disarm() - end the running attack of a device, if any
 * @dev: the device
 *
 * Context: process, may sleep.
 */
void lab_neighbour_disarm(struct lab_device *dev);

#endif
