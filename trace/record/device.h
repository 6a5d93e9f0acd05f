/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device that is recorded: its facts in sysfs, and the module's counts of its IOMMU group.
 */
#ifndef RECORD_DEVICE_H
#define RECORD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "raw.h"
#include "trace.h"

/**
 * struct device - a recorded device
 * @name: its PCI address
 * @driver: of the device, "" without one
 * @vendor: PCI vendor, in hexadecimal
 * @product: PCI device identity
 * @class: PCI class
 * @type: type of its IOMMU group, "none" without one
 * @policy: the module's policy, "" without one
 * @group: number of the IOMMU group, -1 without one
 * @is_physical: the device's addresses are physical ones, or as good as
 */
struct device {
	char name[RAW_NAME];
	char driver[64];
	char vendor[16];
	char product[16];
	char class[16];
	char type[16];
	char policy[32];
	int group;
	bool is_physical;
};

/**
 * struct device_counts - the module's counts of a group
 * @known: the group is attached to the module
 * @mapped: pages
 * @unmapped: pages
 */
struct device_counts {
	bool known;
	uint64_t mapped;
	uint64_t unmapped;
};

/* Reads the facts; false if there is no such device. */
bool device_read(struct device *device, const char *name, struct trace_error *error);
bool device_exists(const struct device *device);
void device_counts(const struct device *device, struct device_counts *counts);
/* A JSON object. */
void device_print(const struct device *device, FILE *to);

#endif
