// SPDX-License-Identifier: GPL-2.0-only
/* xsmmu-native-engine: times the engine on real CPUs. `xsmmu lab native-engine` calls it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

static int usage(void)
{
	fprintf(stderr,
		"usage: xsmmu-native-engine --policy NAME [--aware] [--cpus N,N...] [--elsewhere PERCENT]\n"
		"         [--ring PAGES] [--bytes BYTES] [--wait NS] [--warm MS] [--ms MS]\n");
	return 2;
}

static bool is_listed(const struct run_options *options, int cpu)
{
	for (u32 i = 0; i < options->count; i++)
		if (options->cpus[i] == cpu)
			return true;
	return false;
}

/* 0,2,3: each CPU once, for a thread each. */
static bool parse_cpus(struct run_options *options, const char *value)
{
	char *end;

	for (options->count = 0; options->count < NATIVE_CPUS; value = end + 1) {
		int cpu = (int)strtoul(value, &end, 10);

		if (end == value || is_listed(options, cpu))
			return false;
		options->cpus[options->count++] = cpu;
		if (*end != ',')
			return !*end;
	}
	return false;
}

static bool parse_number(struct run_options *options, const char *word, const char *value)
{
	char *end;
	u64 number = strtoull(value, &end, 10);

	if (end == value || *end)
		return false;
	if (!strcmp(word, "--elsewhere"))
		options->elsewhere = (u32)number;
	else if (!strcmp(word, "--ring"))
		options->ring = (u32)number;
	else if (!strcmp(word, "--bytes"))
		options->bytes = (u32)number;
	else if (!strcmp(word, "--wait"))
		native_wait_ns = number;
	else if (!strcmp(word, "--warm"))
		options->warm_ms = (u32)number;
	else if (!strcmp(word, "--ms"))
		options->ms = (u32)number;
	else
		return false;
	return true;
}

static bool parse(struct run_options *options, int count, char **words)
{
	for (int i = 1; i < count; i++) {
		const char *value = i + 1 < count ? words[i + 1] : "";

		if (!strcmp(words[i], "--aware")) {
			options->aware = true;
			continue;
		}
		if (!strcmp(words[i], "--policy"))
			options->policy = xs_policy_find(value);
		else if (!strcmp(words[i], "--cpus") && !parse_cpus(options, value))
			return false;
		else if (strcmp(words[i], "--cpus") && !parse_number(options, words[i], value))
			return false;
		i++;
	}
	return options->policy && options->elsewhere <= 100 && options->ring &&
	       options->ring <= 1u << 16 && options->bytes <= XS_BOUNCE_MAX_BYTES;
}

int main(int count, char **words)
{
	run.options = (struct run_options) {
		.count = 1, .ring = 1024, .warm_ms = 10, .ms = 20,
	};
	if (!parse(&run.options, count, words))
		return usage();
	run_do();
	return 0;
}
