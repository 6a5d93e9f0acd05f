// SPDX-License-Identifier: GPL-2.0-only
/*
 * xsmmu-sim: runs of the simulated world. Same seed and same sources give the same run, bit for
 * bit. A failure prints the command line that repeats the run, then the shortest trace found.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../check/check.h"
#include "shrink.h"

struct options {
	u64 seed;
	u64 seeds;
	u64 events;
	double seconds;
	const struct xs_policy *policy;
	const char *mutant;	/* planted at build time: for the replay line only */
	bool swarm;
	bool quick;		/* do not shrink */
	bool verbose;
};

static int usage(void)
{
	fprintf(stderr, "usage: xsmmu-sim [--seed N] [--seeds N] [--policy NAME] [--events N] [--swarm]\n"
		"                 [--seconds N] [--no-shrink] [--verbose] [--mutant NAME]\n"
		"policies:");
	for (u32 i = 0; i < xs_policy_count; i++)
		fprintf(stderr, " %s", xs_policies[i].name);
	fprintf(stderr, "; with --swarm also 'any'\n");
	return 2;
}

static bool parse_value(struct options *options, const char *word, const char *value)
{
	char *end = NULL;

	if (!strcmp(word, "--policy")) {
		options->policy = xs_policy_find(value);
		return options->policy || !strcmp(value, "any");
	}
	if (!strcmp(word, "--mutant")) {
		options->mutant = value;
		return true;
	}
	if (!strcmp(word, "--seed"))
		options->seed = strtoull(value, &end, 0);
	else if (!strcmp(word, "--seeds"))
		options->seeds = strtoull(value, &end, 0);
	else if (!strcmp(word, "--events"))
		options->events = strtoull(value, &end, 0);
	else if (!strcmp(word, "--seconds"))
		options->seconds = strtod(value, &end);
	return end && end != value && !*end;
}

static bool parse(struct options *options, int count, char **words)
{
	for (int i = 1; i < count; i++) {
		if (!strcmp(words[i], "--swarm"))
			options->swarm = true;
		else if (!strcmp(words[i], "--no-shrink"))
			options->quick = true;
		else if (!strcmp(words[i], "--verbose"))
			options->verbose = true;
		else if (i + 1 == count || !parse_value(options, words[i], words[i + 1]))
			return false;
		else
			i++;
	}
	return options->swarm || options->policy;
}

static double seconds_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct sim_config config_of(const struct options *options, u64 seed)
{
	if (options->swarm)
		return sim_config_drawn(options->policy, seed);
	return sim_config_plain(options->policy);
}

static void tell_failure(const struct options *options, u64 seed, u64 before)
{
	struct sim_config config = config_of(options, seed);
	struct sim_run run = { .seed = seed, .operations = options->events };

	printf("FAIL %s: %s\n", sim.failure.checker, sim.failure.text);
	printf("operations: %llu\n", (unsigned long long)(before + sim.operations));
	printf("replay: make sim SEED=%llu POLICY=%s EVENTS=%llu%s%s%s%s\n",
	       (unsigned long long)seed, options->policy ? options->policy->name : "any",
	       (unsigned long long)options->events, options->swarm ? " SWARM=1" : "",
	       XS_PAGE_LG2 == 12 ? "" : XS_PAGE_LG2 == 14 ? " PAGE=16K" : " PAGE=64K",
	       options->mutant ? " MUTANT=" : "", options->mutant ? options->mutant : "");
	fflush(stdout);
	if (!options->quick)
		shrink(&config, &run);
}

static void crashed(int signal, siginfo_t *info, void *context)
{
	sim_fail("crash", "%s at %p", strsignal(signal), info->si_addr);
}

/*
 * A wild access of the engine is a failure like any other: the failure gets a replay line and
 * is shrunk. The handler has a separate stack, because a CPU's stack may be broken, and leaves
 * by a jump to the beginning of the run.
 */
static void catch_crashes(void)
{
	static char stack[64 << 10];
	const stack_t own = { .ss_sp = stack, .ss_size = sizeof(stack) };
	const struct sigaction action = {
		.sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER
	};
	static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };

	sigaltstack(&own, NULL);
	for (u32 i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
}

/*
 * @points, @pages: most points and pages in a stretch without interrupts; @step_points: most
 * points in a step.
 */
static void tell_more(const u64 *faults, u64 points, u32 pages, u64 step_points)
{
	printf("  no interrupts for at most %llu points, %u pages; a step has at most %llu points\n",
	       (unsigned long long)points, pages, (unsigned long long)step_points);
	for (u32 i = 0; i < FAULT_COUNT; i++)
		printf("  %-22s %llu\n", sim_fault_name(i), (unsigned long long)faults[i]);
}

int main(int count, char **words)
{
	struct options options = { .seed = 1, .seeds = 1, .events = 1000000, .seconds = 1e9 };
	u64 operations = 0, accesses = 0, digest = 0, points = 0, step_points = 0, seed;
	u32 pages = 0;
	u64 faults[FAULT_COUNT] = { 0 };
	enum xs_level observed = XS_LEVEL_STRICT;
	double start = seconds_of(CLOCK_MONOTONIC), taken;

	if (!parse(&options, count, words))
		return usage();
	catch_crashes();
	for (seed = options.seed; seed < options.seed + options.seeds; seed++) {
		struct sim_config config = config_of(&options, seed);
		struct sim_run run = { .seed = seed, .operations = options.events };

		if (seconds_of(CLOCK_MONOTONIC) - start > options.seconds)
			break;
		sim_run(&config, &run);
		if (sim.failure.failed) {
			tell_failure(&options, seed, operations);
			return 1;
		}
		operations += sim.operations;
		accesses += sim.accesses;
		digest = (digest ^ sim.digest) * 0x9fb21c651e98df25;
		points = sim.off_most_points > points ? sim.off_most_points : points;
		pages = sim.off_most_pages > pages ? sim.off_most_pages : pages;
		step_points = sim.step_most_points > step_points ? sim.step_most_points :
								   step_points;
		for (u32 i = 0; i < FAULT_COUNT; i++)
			faults[i] += sim.faults[i];
		if (check_observed_level() < observed)
			observed = check_observed_level();
	}
	taken = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
	if (options.verbose)
		tell_more(faults, points, pages, step_points);
	printf("ok: seeds %llu..%llu, %llu operations, %llu accesses, observed %s, digest %016llx\n",
	       (unsigned long long)options.seed, (unsigned long long)seed - 1,
	       (unsigned long long)operations, (unsigned long long)accesses,
	       xs_level_name(observed), (unsigned long long)digest);
	fprintf(stderr, "%.1f s on a CPU, %.2f million operations a second\n", taken,
		(double)operations / taken / 1e6);
	return 0;
}
