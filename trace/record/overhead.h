/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What recording costs the machine: the time of the programs, by the kernel's own measurement, and
 * the recorder's CPU time, as a share of the time that CPUs were busy.
 *
 * The kernel's measurement costs some time itself, so it is on during a tenth of the recording;
 * with a limit it is always on. It leaves out the way into a program (about 200 instructions a
 * call).
 */
#ifndef RECORD_OVERHEAD_H
#define RECORD_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "programs.h"

struct overhead;

/**
 * struct overhead_found - the cost so far
 * @known: the kernel has measured the programs
 * @run_ns: mean time of a call of a program
 * @programs_ns: time of all programs, scaled to the whole recording
 * @recorder_ns: CPU time of the recorder
 * @busy_ns: time in which CPUs were not idle, all together
 * @share: programs and recorder by busy time
 */
struct overhead_found {
	bool known;
	double run_ns;
	double programs_ns;
	double recorder_ns;
	double busy_ns;
	double share;
};

/* @limit: the largest share, 0 for none. */
struct overhead *overhead_new(struct programs *programs, double limit);
void overhead_free(struct overhead *overhead);

/* Called again and again; returns whether to record now. */
bool overhead_tick(struct overhead *overhead, uint64_t now);

void overhead_found(struct overhead *overhead, struct overhead_found *found);

#endif
