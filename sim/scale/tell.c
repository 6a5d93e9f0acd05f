// SPDX-License-Identifier: GPL-2.0-only
/* One line of JSON for each result. */
#include <stdio.h>

#include "run.h"

static bool follows;

static void tell_key(const char *key)
{
	printf("%s\"%s\": ", follows ? ", " : "{", key);
	follows = true;
}

void run_tell(const char *key, u64 value)
{
	tell_key(key);
	printf("%llu", (unsigned long long)value);
}

void run_tell_text(const char *key, const char *value)
{
	tell_key(key);
	printf("\"%s\"", value);
}

void run_tell_open(const char *key)
{
	tell_key(key);
	follows = false;
}

void run_tell_close(void)
{
	printf(follows ? "}" : "{}");
	follows = true;
}

void run_tell_line(void)
{
	printf("}\n");
	fflush(stdout);
	follows = false;
}

void run_tell_traffic(const struct traffic_config *traffic)
{
	run_tell_text("policy", traffic->policy->name);
	run_tell("aware", traffic->aware);
	run_tell("cpus", traffic->cpus);
	run_tell("elsewhere", traffic->elsewhere);
	run_tell_text("life", traffic_life_name(traffic->life));
	run_tell("seed", traffic->seed);
}
