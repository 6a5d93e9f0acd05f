// SPDX-License-Identifier: GPL-2.0-only
/* xsmmu-scale: counts effects of several CPUs. Same arguments and same sources, same output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "allocator.h"
#include "run.h"

/* The largest IOVA space of the module. */
#define IOVA_END	(32ULL << 30)

void scale_fail(const char *text)
{
	fprintf(stderr, "xsmmu-scale: %s\n", text);
	exit(1);
}

static int usage(void)
{
	fprintf(stderr,
		"usage: xsmmu-scale count|ageing --policy NAME [--cpus N] [--elsewhere PERCENT] [--aware]\n"
		"         [--life short|mixed|aged] [--seed N] [--end IOVA]\n"
		"         count: [--warm POLLS] [--polls POLLS] [--sites]\n"
		"         ageing: [--maps N,N...]\n"
		"       xsmmu-scale stretch --policy NAME [--cpus N]\n"
		"       xsmmu-scale lines ACCESS...\n");
	return 2;
}

static bool parse_life(struct run_options *options, const char *value)
{
	for (u32 i = 0; i < LIFE_COUNT; i++) {
		options->traffic.life = i;
		if (!strcmp(value, traffic_life_name(i)))
			return true;
	}
	return false;
}

/* 1e6,1e8 */
static bool parse_maps(struct run_options *options, const char *value)
{
	const u32 max = sizeof(options->maps) / sizeof(options->maps[0]);
	char *end;

	for (options->checkpoints = 0; options->checkpoints < max; value = end + 1) {
		options->maps[options->checkpoints++] = (u64)strtod(value, &end);
		if (end == value)
			return false;
		if (*end != ',')
			return !*end;
	}
	return false;
}

static bool parse_number(struct run_options *options, const char *word, const char *value)
{
	struct traffic_config *traffic = &options->traffic;
	char *end = NULL;

	if (!strcmp(word, "--cpus"))
		traffic->cpus = (u32)strtoul(value, &end, 0);
	else if (!strcmp(word, "--elsewhere"))
		traffic->elsewhere = (u32)strtoul(value, &end, 0);
	else if (!strcmp(word, "--seed"))
		traffic->seed = strtoull(value, &end, 0);
	else if (!strcmp(word, "--end"))
		traffic->end = strtoull(value, &end, 0);
	else if (!strcmp(word, "--warm"))
		options->warm_polls = (u32)strtoul(value, &end, 0);
	else if (!strcmp(word, "--polls"))
		options->polls = (u32)strtoul(value, &end, 0);
	return end && end != value && !*end;
}

static bool parse_value(struct run_options *options, const char *word, const char *value)
{
	if (!strcmp(word, "--policy")) {
		options->traffic.policy = xs_policy_find(value);
		return options->traffic.policy;
	}
	if (!strcmp(word, "--life"))
		return parse_life(options, value);
	if (!strcmp(word, "--maps"))
		return parse_maps(options, value);
	return parse_number(options, word, value);
}

static bool parse(struct run_options *options, int count, char **words)
{
	for (int i = 2; i < count; i++) {
		if (!strcmp(words[i], "--aware"))
			options->traffic.aware = true;
		else if (!strcmp(words[i], "--sites"))
			options->sites = true;
		else if (i + 1 == count || !parse_value(options, words[i], words[i + 1]))
			return false;
		else
			i++;
	}
	return options->traffic.policy && options->traffic.cpus &&
	       options->traffic.cpus <= SCALE_CPUS && options->traffic.elsewhere <= 100;
}

int main(int count, char **words)
{
	struct run_options options = {
		.traffic = { .cpus = 1, .seed = 1, .end = IOVA_END },
		.warm_polls = 20,
		.polls = 20,
		.maps = { 1000000 },
		.checkpoints = 1,
	};
	bool ageing = count > 1 && !strcmp(words[1], "ageing");
	bool stretch = count > 1 && !strcmp(words[1], "stretch");

	options.traffic.sizes = ageing;
	options.traffic.life = ageing ? LIFE_AGED : LIFE_SHORT;
	arena_init();
	memory_init();
	if (count > 1 && !strcmp(words[1], "lines"))
		run_lines((u32)count - 2, words + 2);
	else if (!ageing && !stretch && (count < 2 || strcmp(words[1], "count")))
		return usage();
	else if (!parse(&options, count, words))
		return usage();
	else if (ageing)
		run_ageing(&options);
	else if (stretch)
		run_stretch(&options);
	else
		run_count(&options);
	return 0;
}
