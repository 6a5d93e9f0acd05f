/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts instructions by executing them one at a time. Slow, exact, the same on
 * each run, and needs neither counters of the hardware nor permission.
 */
#ifndef SCALE_STEP_H
#define SCALE_STEP_H

#include "platform_scale.h"

void step_init(void);

/* Between these, each instruction is counted. */
void step_begin(void);
void step_end(void);

/* Instructions of the engine, without those of its world. */
u64 step_counted(void);

#endif
