/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tracepoints dma:* of Linux 6.12 and later as a source of events, where the kernel refuses
 * BPF.
 *
 * They lack polls, the two-step API, syncs of coherent devices, addresses of the unmaps of lists,
 * and nanoseconds; an unmap of a list becomes a lost event. The kernel merges the CPUs by time.
 */
#ifndef RECORD_TRACEFS_H
#define RECORD_TRACEFS_H

#include <stdbool.h>
#include <stddef.h>

#include "device.h"
#include "merge.h"

#define TRACEFS_MISSING                                                      \
	"[\"polls\",\"two-step calls\",\"addresses of unmapped lists\"," \
	"\"pages of coherent memory\",\"nanoseconds\"]"

struct tracefs;

/* Finds the tracepoints, in an instance of its own; NULL if there are none: @error says why. */
struct tracefs *tracefs_open(const struct device *devices, unsigned int count,
			     struct trace_error *error);
void tracefs_close(struct tracefs *tracefs);
void tracefs_record(struct tracefs *tracefs, bool on);
/* Notes a gap, as merge_miss(). */
void tracefs_miss(struct tracefs *tracefs, uint64_t ns, uint64_t span_ns);
/* The next event, which is valid until the next call; NULL if there is none now. */
const struct merge_event *tracefs_next(struct tracefs *tracefs);
/* Names of the tracepoints, as JSON strings with commas. */
void tracefs_print(const struct tracefs *tracefs, char *text, size_t room);

#endif
