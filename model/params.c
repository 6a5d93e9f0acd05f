// SPDX-License-Identifier: GPL-2.0-only
/* See params.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xsmmu/backend.h>
#include <xsmmu/policy.h>

#include "params.h"

#define LINE_BYTES	256
#define PAGES_MOST	16777216u
#define PACKETS_MOST	67108864u
#define STATUS_USAGE	2

/*
 * struct number - a parameter that is a number
 * @offset:	of the field in struct model_params
 */
struct number {
	const char *name;
	u64 lowest;
	u64 highest;
	size_t offset;
};

#define MODEL_ROW(name, lowest, highest) \
	{ #name, lowest, highest, offsetof(struct model_params, name) },

static const struct number numbers[] = {
	MODEL_NUMBERS(MODEL_ROW)
	{ "seed", 0, ~0ULL, offsetof(struct model_params, seed) },
	{ "time_ms", 1, 100000, offsetof(struct model_params, time_ms) },
};

#define NUMBERS	(sizeof(numbers) / sizeof(numbers[0]))

static const char *const driver_names[DRIVER_COUNT] = {
	[DRIVER_NONE] = "none",
	[DRIVER_MLX5_CACHE] = "mlx5_cache",
	[DRIVER_PAGE_POOL] = "page_pool",
	[DRIVER_HALF_PAGES] = "half_pages",
	[DRIVER_FANDS] = "fands",
	[DRIVER_XSMMU] = "xsmmu",
	[DRIVER_LARGE_PAGES] = "large_pages",
};

static const char *const hint_names[HINT_COUNT] = {
	[HINT_DROPPED] = "dropped",
	[HINT_KEPT] = "kept",
};

/* Words that a point needs beside its numbers. */
enum { WORD_DRIVER, WORD_HINT, WORD_POLICY, WORDS };

static const char *const word_names[WORDS] = { "driver", "hint", "policy" };

static bool seen[NUMBERS + WORDS];

static void wrong(const char *format, ...)
	__attribute__((noreturn, cold, format(printf, 1, 2)));

static void wrong(const char *format, ...)
{
	va_list words;

	fprintf(stderr, "xsmmu-model: ");
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	fprintf(stderr, "\n");
	exit(STATUS_USAGE);
}

static void see(u32 at, const char *name)
{
	if (seen[at])
		wrong("%s is given twice: give each parameter once", name);
	seen[at] = true;
}

static u64 number_of(const struct number *number, const char *value)
{
	char *end;
	u64 found = strtoull(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || strlen(value) > 19 ||
	    found < number->lowest || found > number->highest)
		wrong("%s takes a whole number from %llu to %llu, not '%s'", number->name,
		      (unsigned long long)number->lowest, (unsigned long long)number->highest,
		      value);
	return found;
}

static u32 choice(const char *name, const char *value, const char *const *words, u32 count)
{
	for (u32 i = 0; i < count; i++)
		if (!strcmp(value, words[i]))
			return i;
	fprintf(stderr, "xsmmu-model: %s cannot be '%s', only one of", name, value);
	for (u32 i = 0; i < count; i++)
		fprintf(stderr, " %s", words[i]);
	fprintf(stderr, "\n");
	exit(STATUS_USAGE);
}

/* Takes an ending off a name. Returns whether the name has the ending. */
static bool drop_ending(char *name, const char *ending)
{
	size_t bytes = strlen(name), end = strlen(ending);

	if (bytes <= end || strcmp(name + bytes - end, ending))
		return false;
	name[bytes - end] = 0;
	return true;
}

/* A policy of the engine may end in -aware, -direct, or -direct-aware. */
static void set_policy(struct model_params *params, const char *value)
{
	char *name = strdup(value);

	params->policy_name = strdup(value);
	if (!strcmp(value, "kernel-off"))
		params->side = SIDE_OFF;
	else if (!strcmp(value, "kernel-strict"))
		params->side = SIDE_KERNEL_STRICT;
	else if (!strcmp(value, "kernel-lazy"))
		params->side = SIDE_KERNEL_LAZY;
	else
		params->side = SIDE_ENGINE;
	if (params->side != SIDE_ENGINE) {
		free(name);
		return;
	}
	params->aware = drop_ending(name, "-aware");
	params->direct = drop_ending(name, "-direct");
	params->policy = xs_policy_find(name);
	if (!params->policy || params->policy->placement == XS_PLACE_IDENTITY)
		wrong("policy '%s' is not modelled: give kernel-off, kernel-strict, kernel-lazy, copy, strict, lazy, fands, xsmmu or fused, the last six also with -direct, -aware or both",
		      value);
	free(name);
}

static void set_word(struct model_params *params, u32 word, const char *value)
{
	if (word == WORD_DRIVER)
		params->driver = choice("driver", value, driver_names, DRIVER_COUNT);
	else if (word == WORD_HINT)
		params->hint = choice("hint", value, hint_names, HINT_COUNT);
	else
		set_policy(params, value);
}

static void set(struct model_params *params, const char *name, const char *value)
{
	for (u32 i = 0; i < NUMBERS; i++)
		if (!strcmp(name, numbers[i].name)) {
			see(i, name);
			*(u64 *)((char *)params + numbers[i].offset) =
				number_of(&numbers[i], value);
			return;
		}
	for (u32 i = 0; i < WORDS; i++)
		if (!strcmp(name, word_names[i])) {
			see((u32)NUMBERS + i, name);
			set_word(params, i, value);
			return;
		}
	wrong("unknown parameter '%s': model/parameters.toml lists all", name);
}

/* What a ring must hold, and the memory that a point may take. */
static void check_sizes(const struct model_params *params)
{
	u64 descriptors = params->ring / params->descriptor_packets;
	u64 bytes = params->descriptor_pages * XS_PAGE_BYTES;
	u64 pages = params->queues * descriptors * params->descriptor_pages;
	u64 packets = params->flows * 4 * (params->window_bytes / params->mtu_bytes + 1);

	if (params->flows && (params->mtu_bytes + 14 + bytes - 1) / bytes > descriptors + 1)
		wrong("ring %llu is too small for a packet of mtu_bytes %llu",
		      (unsigned long long)params->ring, (unsigned long long)params->mtu_bytes);
	if (pages > PAGES_MOST)
		wrong("ring %llu with %llu queues has more than %u pages",
		      (unsigned long long)params->ring, (unsigned long long)params->queues,
		      PAGES_MOST);
	if (packets > PACKETS_MOST)
		wrong("window_bytes %llu with %llu flows is more than %u packets",
		      (unsigned long long)params->window_bytes, (unsigned long long)params->flows,
		      PACKETS_MOST);
}

/* Parameters that are impossible together. */
static void check(const struct model_params *params)
{
	if (params->iotlb_entries % params->iotlb_ways)
		wrong("iotlb_entries %llu is not a multiple of iotlb_ways %llu",
		      (unsigned long long)params->iotlb_entries,
		      (unsigned long long)params->iotlb_ways);
	if (params->descriptor_pages * XS_PAGE_BYTES % params->stride_bytes)
		wrong("stride_bytes %llu does not divide a descriptor of %llu pages",
		      (unsigned long long)params->stride_bytes,
		      (unsigned long long)params->descriptor_pages);
	if (params->nic_buffer_bytes < 2 * params->mtu_bytes)
		wrong("nic_buffer_bytes %llu is less than two packets of mtu_bytes %llu",
		      (unsigned long long)params->nic_buffer_bytes,
		      (unsigned long long)params->mtu_bytes);
	check_sizes(params);
	if (!params->jobs && !params->flows && !params->send_flows)
		wrong("flows 0 with send_flows 0: give at least a connection");
	if (params->queues > params->cores)
		wrong("queues %llu is more than cores %llu: a core serves at most a queue",
		      (unsigned long long)params->queues, (unsigned long long)params->cores);
}

void params_read(struct model_params *params)
{
	char line[LINE_BYTES], name[LINE_BYTES], value[LINE_BYTES], rest;

	while (fgets(line, sizeof(line), stdin)) {
		int count = sscanf(line, "%s %s %c", name, value, &rest);

		if (count < 1 || *name == '#')
			continue;
		if (count != 2)
			wrong("a line is 'name value', not '%.*s'", (int)strcspn(line, "\n"), line);
		set(params, name, value);
	}
	for (u32 i = 0; i < NUMBERS + WORDS; i++)
		if (!seen[i])
			wrong("%s is missing: give each parameter of model/parameters.toml",
			      i < NUMBERS ? numbers[i].name : word_names[i - NUMBERS]);
	check(params);
}
