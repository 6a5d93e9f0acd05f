// SPDX-License-Identifier: GPL-2.0-only
/*
 * xsmmu-replay: replays a recording of the DMA API through the engine, or through a model of the
 * kernel's modes, and prints figures as a JSON object. Same file and same arguments, same figures,
 * except those of the rate.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "count.h"
#include "driver.h"
#include "memory.h"
#include "replay.h"
#include "report.h"
#include "tally.h"
#include "world.h"

#define HZ_MIN	24u
#define HZ_MAX	10000u

#define PROGRESS_EVENTS	(1u << 20)

/* Pages between the memory of a pass and that of the next. */
#define PASS_PAGES	(512ULL * 61)

struct replay replay = { .options = { .check = REPLAY_DEVICES, .repeat = 1 } };

/* ---- ends ---- */

static void print_place(void)
{
	if (replay.number)
		fprintf(stderr, ", at event %llu (%llu ns, CPU %u, device %u, address 0x%llx)",
			(unsigned long long)replay.number, (unsigned long long)replay.event.ns,
			replay.event.cpu, replay.event.device,
			(unsigned long long)replay.event.iova);
	fprintf(stderr, "\n");
}

void replay_violated(u32 invariant, const char *format, ...)
{
	va_list words;

	fprintf(stderr, "xsmmu-replay: %s: ", replay.options.file);
	if (invariant)
		fprintf(stderr, "invariant %u: ", invariant);
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	print_place();
	exit(STATUS_BROKEN);
}

void engine_broken(const char *text)
{
	replay_violated(0, "%s", text);
}

void replay_stop(const char *format, ...)
{
	va_list words;

	fprintf(stderr, "xsmmu-replay: %s: ", replay.options.file);
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	print_place();
	exit(STATUS_FILE);
}

/* ---- options ---- */

enum word {
	WORD_POLICY = 256, WORD_AWARE, WORD_GAP, WORD_CPUS, WORD_HZ, WORD_MEMORY, WORD_RAW,
	WORD_PROGRESS, WORD_CHECK, WORD_COUNTS, WORD_REPEAT, WORD_WINDOW, WORD_BATCH, WORD_RANGES,
	WORD_COPY, WORD_POOL, WORD_HELP,
};

static const struct option words[] = {
	{ "policy", required_argument, NULL, WORD_POLICY },
	{ "aware", no_argument, NULL, WORD_AWARE },
	{ "gap-us", required_argument, NULL, WORD_GAP },
	{ "cpus", required_argument, NULL, WORD_CPUS },
	{ "hz", required_argument, NULL, WORD_HZ },
	{ "memory-gib", required_argument, NULL, WORD_MEMORY },
	{ "raw", no_argument, NULL, WORD_RAW },
	{ "progress", no_argument, NULL, WORD_PROGRESS },
	{ "check", required_argument, NULL, WORD_CHECK },
	{ "counts", required_argument, NULL, WORD_COUNTS },
	{ "repeat", required_argument, NULL, WORD_REPEAT },
	{ "window-us", required_argument, NULL, WORD_WINDOW },
	{ "batch-pages", required_argument, NULL, WORD_BATCH },
	{ "range-commands-max", required_argument, NULL, WORD_RANGES },
	{ "copy-bytes", required_argument, NULL, WORD_COPY },
	{ "pool-mib", required_argument, NULL, WORD_POOL },
	{ "help", no_argument, NULL, WORD_HELP },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: xsmmu-replay FILE --policy NAME [OPTION...]\n"
	"Replays a recording of the DMA API; prints figures as a JSON object.\n"
	"  --policy NAME            a policy, kernel-strict or kernel-lazy\n"
	"  --aware                  as if the drivers were batch-aware\n"
	"  --gap-us N               with --aware: a pause of so long ends a batch, too (20)\n"
	"  --cpus N                 CPUs of the recorded machine (the recording's, else 64)\n"
	"  --memory-gib N           its memory (the recording's, else 64)\n"
	"  --hz N                   its ticks a second, for kernel-lazy (the recording's, else 250)\n"
	"  --raw                    pages are page frame numbers (as the recording says)\n"
	"  --window-us N, --batch-pages N, --range-commands-max N, --copy-bytes N, --pool-mib N\n"
	"                           tunables of the policy\n"
	"  --check N                have the checkers of sim/check watch the engine of device N\n"
	"  --counts N               of xsmmu-replay-lines: replay N events, and count transfers of lines\n"
	"  --repeat N               replay N times in a row, each time at other addresses\n"
	"  --progress               print the number of events to standard error\n"
	"Status: 0; 1 if an invariant is broken; 2 for wrong arguments; 3 if the file cannot be read.\n";

static bool shows_progress;

static void wrong(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void wrong(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "xsmmu-replay: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "; see xsmmu-replay --help\n");
	exit(STATUS_USAGE);
}

static u64 value_of(const char *name, const char *value, u64 least, u64 most)
{
	char *end;
	u64 found = strtoull(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || found < least || found > most)
		wrong("--%s takes a number from %llu to %llu, not '%s'", name,
		      (unsigned long long)least, (unsigned long long)most, value);
	return found;
}

static void set_policy(const char *name)
{
	struct replay_options *options = &replay.options;

	options->name = name;
	options->policy = xs_policy_find(name);
	if (options->policy)
		options->tuning = xs_tuning_default(options->policy);
	else if (!strcmp(name, "kernel-strict"))
		options->side = SIDE_KERNEL_STRICT;
	else if (!strcmp(name, "kernel-lazy"))
		options->side = SIDE_KERNEL_LAZY;
	else
		wrong("unknown policy '%s'", name);
}

/* A tunable is set after the policy, whose defaults it changes. */
static void set_tunable(enum word word, const char *name, const char *value)
{
	struct xs_tuning *tuning = &replay.options.tuning;

	if (word == WORD_WINDOW)
		tuning->window_us = (u32)value_of(name, value, 1, XS_WINDOW_MAX_US);
	else if (word == WORD_BATCH)
		tuning->batch_pages = (u32)value_of(name, value, 1, XS_BATCH_MAX_PAGES);
	else if (word == WORD_RANGES)
		tuning->range_commands_max = (u32)value_of(name, value, 1, XS_RANGES_MAX);
	else if (word == WORD_COPY)
		tuning->copy_bytes = (u32)value_of(name, value, 0, XS_BOUNCE_MAX_BYTES);
	else if (word == WORD_POOL)
		tuning->pool_mib = (u32)value_of(name, value, 2, XS_POOL_MAX_MIB);
}

static void set_option(enum word word, const char *name, const char *value)
{
	struct replay_options *options = &replay.options;

	if (word == WORD_POLICY)
		set_policy(value);
	else if (word == WORD_AWARE)
		options->aware = true;
	else if (word == WORD_RAW)
		options->raw = true;
	else if (word == WORD_PROGRESS)
		shows_progress = true;
	else if (word == WORD_CHECK)
		options->check = (u32)value_of(name, value, 0, REPLAY_DEVICES - 1);
	else if (word == WORD_COUNTS)
		options->counts = value_of(name, value, 1, 1ULL << 32);
	else if (word == WORD_REPEAT)
		options->repeat = value_of(name, value, 1, 1u << 31);
	else if (word == WORD_GAP)
		options->gap_ns = value_of(name, value, 1, 1000000) * 1000;
	else if (word == WORD_CPUS)
		options->cpus = (u32)value_of(name, value, 1, REPLAY_CPUS_MAX);
	else if (word == WORD_HZ)
		options->hz = (u32)value_of(name, value, HZ_MIN, HZ_MAX);
	else if (word == WORD_MEMORY)
		options->memory_pages = value_of(name, value, 1, 16384) << (30 - XS_PAGE_LG2);
}

static void parse(int count, char **arguments)
{
	int word, at;

	while (word = getopt_long(count, arguments, "h", words, &at), word != -1) {
		if (word == 'h' || word == WORD_HELP) {
			fputs(help, stdout);
			exit(0);
		}
		if (word < WORD_POLICY)
			exit(STATUS_USAGE);
		set_option((enum word)word, words[at].name, optarg);
	}
	optind = 1;
	while (word = getopt_long(count, arguments, "h", words, &at), word != -1)
		set_tunable((enum word)word, words[at].name, optarg);
	if (optind + 1 != count)
		wrong("one file is needed");
	if (!replay.options.name)
		wrong("--policy is needed");
	if (replay.options.aware && !replay.options.policy)
		wrong("the kernel's modes have no batch-aware drivers");
	if (replay.options.check < REPLAY_DEVICES && !replay.options.policy)
		wrong("--check is for policies, as the kernel's modes have no engine");
	if (replay.options.counts && (!replay.options.policy || !count_can))
		wrong("--counts is for policies, and for the program xsmmu-replay-lines");
	replay.options.file = arguments[optind];
	replay.options.tuning.batch_aware = replay.options.aware;
}

/* ---- the recording ---- */

#define BLANKS	" \t\r\n"

/*
 * Returns the value of the next field of this name in the header, which is JSON; or NULL. A string
 * of this text, such as in a list, is no field.
 */
static const char *value_in(const char *header, const char *name)
{
	char quoted[64];
	const char *at = header;

	snprintf(quoted, sizeof(quoted), "\"%s\"", name);
	while ((at = strstr(at, quoted))) {
		at += strlen(quoted);
		at += strspn(at, BLANKS);
		if (*at == ':')
			return at + 1 + strspn(at + 1, BLANKS);
	}
	return NULL;
}

/* Returns the number of a field; @other if there is none. */
static u64 field_of(const char *header, const char *name, u64 other)
{
	const char *at = value_in(header, name);

	return at && *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : other;
}

/* The same; the largest number stands for all larger ones. */
static u32 small_field_of(const char *header, const char *name, u32 other)
{
	u64 found = field_of(header, name, other);

	return found < UINT32_MAX ? (u32)found : UINT32_MAX;
}

/* Devices of an IOMMU group share its domain. The devices are in the header in their order. */
static void read_groups(const char *header)
{
	const char *at = value_in(header, "devices");
	static long groups[REPLAY_DEVICES];

	for (u32 i = 0; at && i < REPLAY_DEVICES; i++) {
		at = value_in(at, "group");
		if (!at)
			return;
		groups[i] = strtol(at, NULL, 10);
		for (u32 j = 0; j < i && groups[i] >= 0; j++)
			if (groups[j] == groups[i]) {
				world_share(i, j);
				break;
			}
	}
}

/* Options of the command line come before the header's fields. */
static void read_header(const char *header)
{
	struct replay_options *options = &replay.options;
	u64 page_bytes = field_of(header, "page_bytes", XS_PAGE_BYTES);
	const char *pages, *unheld;

	if (page_bytes != XS_PAGE_BYTES)
		replay_stop("the recording is of pages of %llu bytes, and only 4096 can be replayed: record on a kernel with such pages",
			    (unsigned long long)page_bytes);
	if (!options->cpus)
		options->cpus = small_field_of(header, "cpus", 64);
	if (!options->cpus || options->cpus > REPLAY_CPUS_MAX)
		replay_stop("the recording is of %u CPUs, and at most %u can be replayed",
			    options->cpus, REPLAY_CPUS_MAX);
	if (!options->hz)
		options->hz = small_field_of(header, "hz", 250);
	if (!options->hz)
		options->hz = 250;
	if (options->hz < HZ_MIN || options->hz > HZ_MAX)
		replay_stop("the recording is of a kernel with %u ticks a second: name the right number with --hz",
			    options->hz);
	if (!options->memory_pages)
		options->memory_pages = field_of(header, "memory_pages",
						 64ULL << (30 - XS_PAGE_LG2));
	if (options->memory_pages > REPLAY_MEMORY_MAX)
		replay_stop("the recording is of a machine with %llu pages of memory, and at most %llu can be replayed",
			    (unsigned long long)options->memory_pages, REPLAY_MEMORY_MAX);
	pages = value_in(header, "pages");
	options->raw |= pages && !strncmp(pages, "\"raw\"", 5);
	unheld = value_in(header, "unheld_known");
	options->unheld_known = unheld && !strncmp(unheld, "true", 4);
	if (!options->gap_ns)
		options->gap_ns = 20000;
}

/* CPU time: other programs of the machine do not count. */
static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/*
 * Each pass comes after the one before, at other addresses and in other memory. The distance of
 * pages within 2 MiB stays.
 */
static void shift(struct trace_event *event, u64 pass, u64 begin_ns)
{
	const struct replay_options *options = &replay.options;
	u64 end = (options->raw ? options->memory_pages : 1ULL << 38) & ~511ULL;

	event->ns += begin_ns;
	event->iova += (pass & 255) << 48;
	if (event->page && event->page < end)
		event->page = (event->page + pass * PASS_PAGES) % end;
}

static void play(struct trace_reader *reader, u64 pass)
{
	u64 begin_ns = replay.now_ns;
	struct trace_event event;

	while (trace_next(reader, &event)) {
		if (pass)
			shift(&event, pass, begin_ns);
		if (replay.options.counts && replay.number == replay.options.counts)
			return;
		replay.event = event;
		replay.number++;
		count_begin();
		driver_event(&event);
		count_end();
		if (shows_progress && !(replay.number & (PROGRESS_EVENTS - 1)))
			fprintf(stderr, "events %llu\n", (unsigned long long)replay.number);
	}
}

/* Replays the recording once, or again. */
static void play_pass(struct trace_reader *reader, u64 pass)
{
	play(reader, pass);
	if (pass + 1 == replay.options.repeat)
		driver_finish();
	else
		driver_again();
}

static struct trace_reader *open_file(void)
{
	struct trace_error error;
	struct trace_reader *reader = trace_open(replay.options.file, &error);

	if (reader)
		return reader;
	fprintf(stderr, "xsmmu-replay: %s\n", error.text);
	exit(STATUS_FILE);
}

/*
 * A few hundred bytes of a file can map more than any machine has: such a replay ends with the
 * place of the event, and not other programs by want of memory. The sanitizer's shadow is larger.
 */
static void limit_memory(void)
{
#ifndef __SANITIZE_ADDRESS__
	u64 half = (u64)sysconf(_SC_PHYS_PAGES) * (u64)sysconf(_SC_PAGESIZE) / 2;
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur <= half)
		return;
	limit.rlim_cur = half;
	setrlimit(RLIMIT_AS, &limit);
#endif
}

static u64 live;

static void sum_live(struct world *world)
{
	live += world_balance(world);
}

int main(int count, char **arguments)
{
	struct trace_reader *reader;
	double began;

	parse(count, arguments);
	limit_memory();
	reader = open_file();
	read_header(trace_header(reader));
	read_groups(trace_header(reader));
	count_init();
	memory_init();
	driver_init();
	began = now_s();
	for (u64 pass = 0; pass < replay.options.repeat; pass++) {
		if (pass) {
			trace_close(reader);
			reader = open_file();
		}
		play_pass(reader, pass);
	}
	tally_average();
	world_finish();
	world_each(sum_live);
	world_check_sums();
	report_print(trace_header(reader), trace_damage(reader), live, now_s() - began);
	trace_close(reader);
	return fflush(stdout) ? STATUS_FILE : 0;
}
