// SPDX-License-Identifier: GPL-2.0-only
/* See report.h. */
#include <stdio.h>

#include "checks.h"
#include "replay.h"
#include "report.h"
#include "tally.h"
#include "timeline.h"
#include "world.h"

/* Print "key": value, after a comma unless the pair is the first of its object. */
static bool first = true;

static void key(const char *name)
{
	printf(first ? "\"%s\": " : ", \"%s\": ", name);
	first = false;
}

static void number(const char *name, u64 value)
{
	key(name);
	printf("%llu", (unsigned long long)value);
}

static void fraction(const char *name, double value)
{
	key(name);
	printf("%.6g", value);
}

static void text(const char *name, const char *value)
{
	key(name);
	printf("\"%s\"", value);
}

/* Text of a file, which may have any characters. */
static void quoted(const char *name, const char *value)
{
	key(name);
	printf("\"");
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			printf("\\%c", *value);
		else if ((unsigned char)*value < ' ')
			printf("\\u%04x", *value);
		else
			putchar(*value);
	}
	printf("\"");
}

static void truth(const char *name, bool value)
{
	key(name);
	printf("%s", value ? "true" : "false");
}

static void open_object(const char *name)
{
	key(name);
	printf("{");
	first = true;
}

static void close_object(void)
{
	printf("}");
	first = false;
}

static double per(u64 value, u64 each)
{
	return each ? (double)value / (double)each : 0;
}

static void print_options(void)
{
	const struct replay_options *options = &replay.options;

	text("policy", options->name);
	truth("aware", options->aware);
	text("level", xs_level_name(world_level()));
	open_object("tunables");
	if (options->policy) {
		number("window_us", options->tuning.window_us);
		number("batch_pages", options->tuning.batch_pages);
		number("range_commands_max", options->tuning.range_commands_max);
		number("copy_bytes", options->tuning.copy_bytes);
		number("pool_mib", options->tuning.pool_mib);
	} else {
		number("hz", options->hz);
	}
	if (options->aware)
		number("gap_ns", options->gap_ns);
	close_object();
	number("cpus", options->cpus);
	truth("unheld_known", options->unheld_known);
}

static void print_work(u64 live)
{
	number("maps", tally.maps);
	number("unmaps", tally.unmaps);
	number("pages_mapped", tally.pages_mapped);
	number("pages_unmapped", tally.pages_unmapped);
	number("pages_still_mapped", live);
	number("pages_revived", tally.revived);
	number("copied_maps", tally.copied_maps);
	number("copied_bytes", tally.copied_bytes);
}

static void print_flushes(void)
{
	u64 commands = tally.commands_page + tally.commands_domain;

	open_object("commands");
	number("page", tally.commands_page);
	number("domain", tally.commands_domain);
	close_object();
	fraction("commands_per_page_unmapped", per(commands, tally.pages_unmapped));
	open_object("flushes");
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		number(xs_flush_name((enum xs_flush_point)i), tally.flushes[i]);
	close_object();
	open_object("exposure_ns");
	number("p50", times_quantile(&tally.exposure, 0.5));
	number("p99", times_quantile(&tally.exposure, 0.99));
	number("max", tally.exposure.max_ns);
	number("pages", tally.exposure.count);
	close_object();
}

/* Numbers of times by powers of two of ns, from the smallest that has any to the largest. */
static void print_powers(const char *name, const struct times *times)
{
	bool any = false;

	key(name);
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
	open_object("lifetime_ns");
	number("p50", times_quantile(&tally.lifetime, 0.5));
	number("p99", times_quantile(&tally.lifetime, 0.99));
	number("max", tally.lifetime.max_ns);
	number("mappings", tally.lifetime.count);
	print_powers("from_ns", &tally.lifetime);
	close_object();
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
	key(name);
	printf("[");
	for (u32 i = 0; i < timeline_count(); i++) {
		struct timeline_step step = timeline_step(i);

		printf(i ? ", %llu" : "%llu", (unsigned long long)value(&step));
	}
	printf("]");
}

static void print_timeline(void)
{
	open_object("timeline");
	number("step_ns", timeline_step_ns());
	print_line("maps", maps_of);
	print_line("commands", commands_of);
	print_line("mapped_pages", mapped_of);
	print_line("held_pages", held_of);
	close_object();
}

static void print_gauge(const char *name, const struct gauge *gauge)
{
	open_object(name);
	number("max", gauge->max);
	fraction("mean", gauge->mean);
	number("end", gauge->now);
	close_object();
}

static void print_space(void)
{
	print_gauge("memory_held_pages", &tally.held);
	print_gauge("iova_mapped_pages", &tally.mapped);
	print_gauge("iova_held_pages", &tally.pending);
	number("iova_taken_pages", tally.taken);
	print_gauge("table_pages", &tally.tables);
	fraction("regions_per_1000_maps", per(tally.regions * TALLY_REGION_MAPS, tally.maps));
	print_gauge("engine_bytes", &tally.bytes);
}

static void print_left(void)
{
	open_object("not_replayed");
	for (u32 i = 0; i < LEFT_COUNT; i++) {
		const struct left *left = &tally.left[i];

		if (!left->count)
			continue;
		open_object(tally_left_name((enum left_out)i));
		number("count", left->count);
		open_object("first");
		number("event", left->number);
		number("ns", left->ns);
		number("cpu", left->cpu);
		number("device", left->device);
		number("iova", left->iova);
		close_object();
		close_object();
	}
	close_object();
}

static void print_checks(void)
{
	if (!checks_world)
		return;
	open_object("checked");
	number("device", replay.options.check);
	number("events", checks_events());
	number("accesses", checks_accesses());
	text("observed_level", checks_level());
	close_object();
}

void report_print(const char *header, const struct trace_damage *damage, u64 live, double seconds)
{
	printf("{");
	print_options();
	number("events", replay.number);
	number("recording_ns", replay.event.ns);
	if (replay.options.repeat > 1)
		number("repeat", replay.options.repeat);
	print_work(live);
	print_flushes();
	print_space();
	print_lifetimes();
	print_timeline();
	quoted("header", header);
	print_left();
	open_object("damage");
	number("blocks", damage->blocks);
	number("bytes", damage->bytes);
	truth("cut", damage->cut);
	number("lost_events", tally.lost);
	close_object();
	print_checks();
	open_object("rate");
	fraction("cpu_seconds", seconds);
	fraction("events_per_second", seconds > 0 ? (double)replay.number / seconds : 0);
	close_object();
	printf("}\n");
}
