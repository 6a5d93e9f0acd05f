/* SPDX-License-Identifier: GPL-2.0-only */
/* The result of a run, as a JSON object; docs/replay.md describes the fields. */
#ifndef REPLAY_REPORT_H
#define REPLAY_REPORT_H

#include <xsmmu/needs.h>

struct trace_damage;

/*
 * Print the result. @header: text of the recording's header; @live: pages that are still mapped;
 * @seconds: CPU time of the replay, reading included.
 */
void report_print(const char *header, const struct trace_damage *damage, u64 live, double seconds);

#endif
