// SPDX-License-Identifier: GPL-2.0-only
/* See report.h. Fractions are whole numbers of millionths until they are printed. */
#include <stdio.h>

#include "count.h"
#include "json.h"
#include "model.h"
#include "report.h"

#define MILLION		1000000ull

/* Print @value / @each, rounded down to millionths; 0 if @each is 0. */
static void ratio(const char *name, u64 value, u64 each)
{
	u64 whole = each ? value / each : 0;
	u64 rest = each ? value % each : 0;

	/* The product does not overflow. */
	for (; each > ~0ULL / MILLION; each >>= 1)
		rest >>= 1;
	json_key(name);
	printf("%llu.%06llu", (unsigned long long)whole,
	       (unsigned long long)(each ? rest * MILLION / each : 0));
}

/* Print a count for each 4 KiB of data that were delivered or sent. */
static void per_page(const char *name, u64 count)
{
	ratio(name, count * 4096, counts.bytes + counts.sent_bytes);
}

static void print_exposure(void)
{
	json_open("exposure_us");
	ratio("p50", exposure_quantile(500), 1000);
	ratio("p99", exposure_quantile(990), 1000);
	ratio("max", exposure_quantile(1000), 1000);
	json_close();
}

/* What has begun before the end of the run, and ends behind it, does not count beyond. */
static u64 within(u64 value, u64 most)
{
	return value < most ? value : most;
}

static void print_limits(u64 ns)
{
	json_open("limits");
	for (u32 i = 0; i < LIMIT_COUNT; i++)
		ratio(limit_name((enum limit)i), within(counts.limits_ns[i], ns), ns);
	json_close();
}

static void print_counters(void)
{
	u64 commands = counts.commands_page + counts.commands_domain;

	json_open("counters");
	json_number("pages", (counts.bytes + counts.sent_bytes) / 4096);
	json_number("packets", counts.packets);
	json_number("pages_mapped", counts.mapped);
	json_number("pages_unmapped", counts.unmapped);
	json_number("pages_recycled", counts.recycled);
	json_open("commands");
	json_number("page", counts.commands_page);
	json_number("domain", counts.commands_domain);
	json_close();
	ratio("inv_per_page", commands, counts.unmapped);
	ratio("command_us", counts.locked_ns, 1000 * commands);
	per_page("iotlb_misses_per_page", counts.misses);
	per_page("l1_misses_per_page", counts.l1_misses);
	per_page("l2_misses_per_page", counts.l2_misses);
	per_page("l3_misses_per_page", counts.l3_misses);
	per_page("reads_per_page", counts.reads);
	per_page("visits_per_page", counts.visits);
	per_page("acks_per_page", counts.acks);
	per_page("unmapped_per_page", counts.unmapped);
	per_page("merged_per_page", counts.merged);
	per_page("polls_per_page", counts.polls);
	per_page("interrupts_per_page", counts.interrupts);
	ratio("resent_share", counts.resent, counts.arrived);
	json_close();
}

void report_print(u64 ns)
{
	u64 cores_ns = ns * model.params.cores;

	printf("{");
	ratio("throughput_gbps", counts.bytes * 8, ns);
	ratio("kiops", counts.requests * 1000000, ns);
	ratio("transmit_gbps", counts.sent_bytes * 8, ns);
	ratio("cpu_share", within(counts.busy_ns, cores_ns), cores_ns);
	ratio("lock_share", within(counts.locked_ns, cores_ns), cores_ns);
	ratio("drops_share", counts.dropped, counts.arrived);
	print_exposure();
	print_limits(ns);
	print_counters();
	json_number("events", model.events);
	json_number("seed", model.params.seed);
	printf("}\n");
}
