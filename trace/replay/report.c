// SPDX-License-Identifier: GPL-2.0-only
/* See report.h. */
#include <stdio.h>

#include "checks.h"
#include "count.h"
#include "json.h"
#include "replay.h"
#include "report.h"
#include "tally.h"
#include "timeline.h"
#include "world.h"

static void fraction(const char *name, double value)
{
	json_key(name);
	printf("%.6g", value);
}

static double per(u64 value, u64 each)
{
	return each ? (double)value / (double)each : 0;
}

static void print_options(void)
{
	const struct replay_options *options = &replay.options;

	json_text("policy", options->name);
	json_truth("aware", options->aware);
	json_text("level", xs_level_name(world_level()));
	json_open("tunables");
	if (options->policy) {
		json_number("window_us", options->tuning.window_us);
		json_number("batch_pages", options->tuning.batch_pages);
		json_number("range_commands_max", options->tuning.range_commands_max);
		json_number("copy_bytes", options->tuning.copy_bytes);
		json_number("pool_mib", options->tuning.pool_mib);
	} else {
		json_number("hz", options->hz);
	}
	if (options->aware)
		json_number("gap_ns", options->gap_ns);
	json_close();
	json_number("cpus", options->cpus);
	json_truth("unheld_known", options->unheld_known);
}

static void print_work(u64 live)
{
	json_number("maps", tally.maps);
	json_number("unmaps", tally.unmaps);
	json_number("pages_mapped", tally.pages_mapped);
	json_number("pages_unmapped", tally.pages_unmapped);
	json_number("pages_still_mapped", live);
	json_number("pages_revived", tally.revived);
	json_number("copied_maps", tally.copied_maps);
	json_number("copied_bytes", tally.copied_bytes);
}

static void print_flushes(void)
{
	u64 commands = tally.commands_page + tally.commands_domain;

	json_open("commands");
	json_number("page", tally.commands_page);
	json_number("domain", tally.commands_domain);
	json_close();
	fraction("commands_per_page_unmapped", per(commands, tally.pages_unmapped));
	json_open("flushes");
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		json_number(xs_flush_name((enum xs_flush_point)i), tally.flushes[i]);
	json_close();
	json_open("exposure_ns");
	json_number("p50", times_quantile(&tally.exposure, 0.5));
	json_number("p99", times_quantile(&tally.exposure, 0.99));
	json_number("max", tally.exposure.max_ns);
	json_number("pages", tally.exposure.count);
	json_close();
}

/* Numbers of times by powers of two of ns, from the smallest that has any to the largest. */
static void print_powers(const char *name, const struct times *times)
{
	bool any = false;

	json_key(name);
	printf("[");
	for (u32 lg2 = 0; lg2 < 64; lg2++) {
		u64 count = times_between(times, lg2);

		if (!count)
			continue;
		printf("%s[%llu, %llu]", any ? ", " : "", 1ULL << lg2, (unsigned long long)count);
		any = true;
	}
	printf("]");
}

static void print_lifetimes(void)
{
	json_open("lifetime_ns");
	json_number("p50", times_quantile(&tally.lifetime, 0.5));
	json_number("p99", times_quantile(&tally.lifetime, 0.99));
	json_number("max", tally.lifetime.max_ns);
	json_number("mappings", tally.lifetime.count);
	print_powers("from_ns", &tally.lifetime);
	json_close();
}

static u64 maps_of(const struct timeline_step *step)
{
	return step->maps;
}

static u64 commands_of(const struct timeline_step *step)
{
	return step->commands;
}

static u64 mapped_of(const struct timeline_step *step)
{
	return step->mapped;
}

static u64 held_of(const struct timeline_step *step)
{
	return step->held;
}

static void print_line(const char *name, u64 (*value)(const struct timeline_step *step))
{
	json_key(name);
	printf("[");
	for (u32 i = 0; i < timeline_count(); i++) {
		struct timeline_step step = timeline_step(i);

		printf(i ? ", %llu" : "%llu", (unsigned long long)value(&step));
	}
	printf("]");
}

static void print_timeline(void)
{
	json_open("timeline");
	json_number("step_ns", timeline_step_ns());
	print_line("maps", maps_of);
	print_line("commands", commands_of);
	print_line("mapped_pages", mapped_of);
	print_line("held_pages", held_of);
	json_close();
}

static void print_gauge(const char *name, const struct gauge *gauge)
{
	json_open(name);
	json_number("max", gauge->max);
	fraction("mean", gauge->mean);
	json_number("end", gauge->now);
	json_close();
}

static void print_space(void)
{
	print_gauge("memory_held_pages", &tally.held);
	print_gauge("iova_mapped_pages", &tally.mapped);
	print_gauge("iova_held_pages", &tally.pending);
	json_number("iova_taken_pages", tally.taken);
	print_gauge("table_pages", &tally.tables);
	fraction("regions_per_1000_maps", per(tally.regions * TALLY_REGION_MAPS, tally.maps));
	print_gauge("engine_bytes", &tally.bytes);
}

static void print_left(void)
{
	json_open("not_replayed");
	for (u32 i = 0; i < LEFT_COUNT; i++) {
		const struct left *left = &tally.left[i];

		if (!left->count)
			continue;
		json_open(tally_left_name((enum left_out)i));
		json_number("count", left->count);
		json_open("first");
		json_number("event", left->number);
		json_number("ns", left->ns);
		json_number("cpu", left->cpu);
		json_number("device", left->device);
		json_number("iova", left->iova);
		json_close();
		json_close();
	}
	json_close();
}

static void print_checks(void)
{
	if (!checks_world)
		return;
	json_open("checked");
	json_number("device", replay.options.check);
	json_number("events", checks_events());
	json_number("accesses", checks_accesses());
	json_text("observed_level", checks_level());
	json_close();
}

void report_print(const char *header, const struct trace_damage *damage, u64 live, double seconds)
{
	printf("{");
	print_options();
	json_number("events", replay.number);
	json_number("recording_ns", replay.event.ns);
	if (replay.options.repeat > 1)
		json_number("repeat", replay.options.repeat);
	print_work(live);
	print_flushes();
	print_space();
	print_lifetimes();
	print_timeline();
	json_text("header", header);
	print_left();
	json_open("damage");
	json_number("blocks", damage->blocks);
	json_number("bytes", damage->bytes);
	json_truth("cut", damage->cut);
	json_number("lost_events", tally.lost);
	json_close();
	print_checks();
	if (replay.options.counts)
		count_print();
	json_open("rate");
	fraction("cpu_seconds", seconds);
	fraction("events_per_second", seconds > 0 ? (double)replay.number / seconds : 0);
	json_close();
	printf("}\n");
}
