/* SPDX-License-Identifier: GPL-2.0-only */
/* A watch on the longest time with interrupts off. */
#ifndef XSMMU_LAB_LATENCY_H
#define XSMMU_LAB_LATENCY_H

struct lab_device;

/**
 * lab_watch_end() - end the running watch of a device, if any
 * @dev: the device
 *
 * Context: process, may sleep.
 */
void lab_watch_end(struct lab_device *dev);

#endif
