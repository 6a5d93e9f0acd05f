/* SPDX-License-Identifier: GPL-2.0-only */
/* A watch on how long interrupts are off, while others work. */
#ifndef XSMMU_LAB_LATENCY_H
#define XSMMU_LAB_LATENCY_H

struct lab_device;

/* End the watch that is going on, if it is the device's. Process context, may sleep. */
void lab_watch_end(struct lab_device *dev);

#endif
