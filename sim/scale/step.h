/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts instructions by single-stepping. Slow, exact, identical on each run, and independent
 * of hardware counters and permissions.
 */
#ifndef SCALE_STEP_H
#define SCALE_STEP_H

#include "platform_scale.h"

void step_init(void);

/* Count each instruction between begin and end. */
void step_begin(void);
void step_end(void);

/* Number of the engine's instructions, without the backend's. */
u64 step_counted(void);

#endif
