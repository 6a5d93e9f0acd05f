/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Others' counts of the calls that were recorded: the module's, of attached IOMMU groups, or those
 * of the tracepoints iommu:map and iommu:unmap.
 */
#ifndef RECORD_CHECK_H
#define RECORD_CHECK_H

#include <stdio.h>

#include "device.h"
#include "programs.h"
#include "tally.h"

/**
 * struct check - a comparison
 * @devices: recorded devices
 * @count: number of devices
 * @programs: counts iommu:map and iommu:unmap, or NULL
 * @page_shift: of the machine
 * @begin: the module's counts at the begin
 */
struct check {
	const struct device *devices;
	unsigned int count;
	const struct programs *programs;
	unsigned int page_shift;
	struct device_counts begin[RAW_DEVICES];
};

/* Reads the counts at the begin; the other fields are set. */
void check_begin(struct check *check);

/* A JSON object: what was recorded, and what was counted. */
void check_print(const struct check *check, const struct tally *tally, FILE *to);

#endif
