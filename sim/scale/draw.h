/* SPDX-License-Identifier: GPL-2.0-only */
/* Numbers drawn from a seed. */
#ifndef SCALE_DRAW_H
#define SCALE_DRAW_H

#include "platform_scale.h"

void draw_seed(u64 seed);
u64 draw_bits(void);

/* Draw a number below @bound. */
u32 draw(u32 bound);

/* Draw the waiting time of an event with mean distance @mean; at least 1. */
u64 draw_exponential(u64 mean);

#endif
