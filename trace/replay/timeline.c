// SPDX-License-Identifier: GPL-2.0-only
/* See timeline.h. */
#include "replay.h"
#include "tally.h"
#include "timeline.h"

#define FIRST_LG2	10	/* ns of a step at first */

static struct timeline_step steps[TIMELINE_STEPS];
static u32 lg2 = FIRST_LG2;
static u32 count;

static u64 most(u64 a, u64 b)
{
	return a > b ? a : b;
}

static struct timeline_step joined(const struct timeline_step *first,
				   const struct timeline_step *second)
{
	struct timeline_step step = *second;

	step.mapped = most(first->mapped, second->mapped);
	step.held = most(first->held, second->held);
	return step;
}

/* A last step without a partner is a step that goes on. */
static void double_steps(void)
{
	for (u32 i = 0; i < count; i += 2)
		steps[i / 2] = i + 1 < count ? joined(&steps[i], &steps[i + 1]) : steps[i];
	count = (count + 1) / 2;
	lg2++;
}

/* The steps up to @at exist: those that nothing happened in are as the end of the step before. */
static void reach(u32 at)
{
	for (; count <= at; count++) {
		struct timeline_step *step = &steps[count];

		*step = count ? steps[count - 1] : (struct timeline_step) { 0 };
		step->mapped = step->mapped_last;
		step->held = step->held_last;
	}
}

void timeline_note(void)
{
	struct timeline_step *step;

	while (replay.now_ns >> lg2 >= TIMELINE_STEPS)
		double_steps();
	reach((u32)(replay.now_ns >> lg2));
	step = &steps[count - 1];
	step->maps = tally.maps;
	step->commands = tally.commands_page + tally.commands_domain;
	step->mapped_last = tally.mapped.now;
	step->held_last = tally.held.now;
	step->mapped = most(step->mapped, step->mapped_last);
	step->held = most(step->held, step->held_last);
}

u32 timeline_count(void)
{
	return count;
}

u64 timeline_step_ns(void)
{
	return 1ULL << lg2;
}

struct timeline_step timeline_step(u32 number)
{
	struct timeline_step step = steps[number];

	if (number) {
		step.maps -= steps[number - 1].maps;
		step.commands -= steps[number - 1].commands;
	}
	return step;
}
