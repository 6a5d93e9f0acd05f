// SPDX-License-Identifier: GPL-2.0-only
/*
 * A libFuzzer target. The first bytes of the input choose the world; all other bytes are the
 * draws: steps, sizes, scheduling, faults. Coverage therefore guides the calls of the engine
 * and the interleaving.
 *
 * "--policy=NAME" fixes the first policy; otherwise the world chooses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../world/sim.h"

#define HEAD		4u
#define OPERATIONS	2000u

int LLVMFuzzerInitialize(int *count, char ***words);
int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count);

static const struct xs_policy *policy;

int LLVMFuzzerInitialize(int *count, char ***words)
{
	static const char option[] = "--policy=";

	for (int i = 1; i < *count; i++) {
		const char *word = (*words)[i];

		if (strncmp(word, option, sizeof(option) - 1))
			continue;
		policy = xs_policy_find(word + sizeof(option) - 1);
		if (!policy) {
			fprintf(stderr, "unknown policy: %s\n", word);
			exit(2);
		}
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count)
{
	struct sim_run run = { .operations = OPERATIONS, .bytes = bytes + HEAD };
	struct sim_config config;
	u64 seed = 0;

	if (count <= HEAD)
		return 0;
	memcpy(&seed, bytes, HEAD);
	run.byte_count = count - HEAD;
	config = sim_config_drawn(policy, seed);
	/* Each draw uses a byte: rare turns leave bytes for other draws. */
	config.blocks = 2 + config.blocks % 32;
	sim_run(&config, &run);
	if (sim.failure.failed) {
		printf("FAIL %s: %s\n", sim.failure.checker, sim.failure.text);
		fflush(stdout);
		abort();
	}
	return 0;
}
