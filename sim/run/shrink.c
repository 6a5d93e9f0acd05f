// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shrinking: each step draws from a separate stream, so single steps can be left out. Shrinking
 * first leaves out the beginning of the run, then ever smaller groups of steps (Zeller's delta
 * debugging).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shrink.h"

#define SECONDS	15

static struct {
	struct sim_config config;
	struct sim_run run;
	const char *checker;
	u8 *skipped;
	u64 steps;
	time_t end;
} it;

static void skip(u64 step, bool on)
{
	if (on)
		it.skipped[step / 8] |= (u8)(1u << step % 8);
	else
		it.skipped[step / 8] &= (u8)~(1u << step % 8);
}

static bool is_skipped(u64 step)
{
	return it.skipped[step / 8] >> (step % 8) & 1;
}

static bool fails(void)
{
	sim_run(&it.config, &it.run);
	if (!sim.failure.failed || strcmp(sim.failure.checker, it.checker))
		return false;
	if (sim.steps < it.run.skipped_steps)
		it.run.skipped_steps = sim.steps;
	return true;
}

static bool is_late(void)
{
	return time(NULL) >= it.end;
}

/* Try to leave out all steps of [@from, @to). */
static bool try_without(u64 from, u64 to)
{
	u8 *before;
	bool done;

	before = malloc(it.steps / 8 + 1);
	if (!before)
		abort();
	memcpy(before, it.skipped, it.steps / 8 + 1);
	for (u64 i = from; i < to; i++)
		skip(i, true);
	done = fails();
	if (!done)
		memcpy(it.skipped, before, it.steps / 8 + 1);
	free(before);
	return done;
}

static u64 left(void)
{
	u64 count = 0;

	for (u64 i = 0; i < it.run.skipped_steps; i++)
		count += !is_skipped(i);
	return count;
}

/* Leave out all but the last steps; doubles their number until the run fails. */
static void leave_out_beginning(void)
{
	for (u64 keep = 4; keep < it.run.skipped_steps && !is_late(); keep *= 2)
		if (try_without(0, it.run.skipped_steps - keep))
			return;
}

static void leave_out_ranges(void)
{
	u64 piece = 1;

	while (piece < it.run.skipped_steps)
		piece *= 2;
	for (bool again = true; again && !is_late(); again = again && piece == 1) {
		again = false;
		for (piece = piece > 1 ? piece / 2 : 1; piece && !is_late(); piece /= 2)
			for (u64 at = 0; at < it.run.skipped_steps && !is_late(); at += piece) {
				u64 to = at + piece;
				bool any = false;

				if (to > it.run.skipped_steps)
					to = it.run.skipped_steps;
				for (u64 i = at; i < to; i++)
					any |= !is_skipped(i);
				if (any)
					again |= try_without(at, to);
			}
		piece = 1;
	}
}

void shrink(const struct sim_config *config, const struct sim_run *run)
{
	it.config = *config;
	it.run = *run;
	it.checker = sim.failure.checker;
	it.steps = sim.steps;
	it.end = time(NULL) + SECONDS;
	it.skipped = calloc(1, it.steps / 8 + 1);
	if (!it.skipped)
		abort();
	it.run.skipped = it.skipped;
	it.run.skipped_steps = it.steps;
	it.run.operations = ~0ULL;
	if (!fails()) {
		printf("not shrunk: the run ends otherwise\n");
		free(it.skipped);
		return;
	}
	leave_out_beginning();
	leave_out_ranges();
	printf("shrunk from %llu to %llu steps; what happens in them:\n",
	       (unsigned long long)it.steps, (unsigned long long)left());
	it.run.traced = true;
	fails();
	printf("FAIL %s: %s\n", sim.failure.checker, sim.failure.text);
	free(it.skipped);
}
