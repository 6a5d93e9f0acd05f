// SPDX-License-Identifier: GPL-2.0-only
/*
 * A libFuzzer target: what the input says is what happens. Its first bytes
 * choose the world, all others are the draws: steps, sizes, which CPU goes on,
 * faults. So coverage guides the calls of the engine and their interleaving.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../world/world.h"

#define HEAD		4u
#define OPERATIONS	2000u

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count);

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count)
{
	struct sim_run run = { .operations = OPERATIONS, .bytes = bytes + HEAD };
	struct sim_config config;
	u64 seed = 0;

	if (count <= HEAD)
		return 0;
	memcpy(&seed, bytes, HEAD);
	run.byte_count = count - HEAD;
	config = sim_config_drawn(NULL, seed);
	/* A byte is a draw: turns that are rare enough leave some for the rest. */
	config.blocks = 2 + config.blocks % 32;
	sim_run(&config, &run);
	if (sim.failure.failed) {
		printf("FAIL %s: %s\n", sim.failure.checker, sim.failure.text);
		fflush(stdout);
		abort();
	}
	return 0;
}
