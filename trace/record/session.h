/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A recording: from the first event to the summary.
 */
#ifndef RECORD_SESSION_H
#define RECORD_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "trace.h"

/**
 * struct session_options - what was asked for
 * @file: name of the recording
 * @devices: the devices
 * @count: number of devices
 * @seconds: how long, 0 until a signal
 * @share: the largest overhead, as a share of 1; 0 without a limit
 * @ring_bytes: size of a CPU's ring, 0 for the default
 * @raw: page frame numbers as they are
 * @tracepoints: record by tracepoints, though the kernel may take BPF
 * @check: count iommu:map and iommu:unmap
 */
struct session_options {
	const char *file;
	struct device devices[RAW_DEVICES];
	unsigned int count;
	double seconds;
	double share;
	uint32_t ring_bytes;
	bool raw;
	bool check;
	bool tracepoints;
};

/*
 * Records until the time is over or the process is told to end. Prints a line of JSON to standard
 * output when recording begins, each second, and at the end. False if there is no recording, or not
 * all of it: @error says why.
 */
bool session_run(const struct session_options *options, struct trace_error *error);

/* Ends the recording; may be called by a signal handler. */
void session_stop(void);

#endif
