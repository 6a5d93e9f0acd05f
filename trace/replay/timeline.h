/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Figures over the recording's time, in at most TIMELINE_STEPS steps of equal length. A recording
 * of unknown length begins with short steps; when they are used up, pairs of steps become one.
 */
#ifndef REPLAY_TIMELINE_H
#define REPLAY_TIMELINE_H

#include <xsmmu/needs.h>

#define TIMELINE_STEPS	256u

/*
 * struct timeline_step - a step
 * @maps, @commands: totals at the step's end
 * @mapped, @held: most pages mapped, and most pages of memory held, after an event of the step
 * @mapped_last, @held_last: at the step's end
 */
struct timeline_step {
	u64 maps;
	u64 commands;
	u64 mapped, mapped_last;
	u64 held, held_last;
};

/* Write down the present figures. Steps without events get those of the step before. */
void timeline_note(void);

/* Returns the number of steps, up to the last event. */
u32 timeline_count(void);

u64 timeline_step_ns(void);

/* Returns a step; its totals are those since the step before. */
struct timeline_step timeline_step(u32 number);

#endif
