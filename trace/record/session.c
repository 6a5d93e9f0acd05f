// SPDX-License-Identifier: GPL-2.0-only
/*
 * The recorder looks at the rings by time, so that events need not wake it: each TICK_NS, or at
 * once while a ring is more than half full.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "identity.h"
#include "json.h"
#include "merge.h"
#include "overhead.h"
#include "programs.h"
#include "session.h"
#include "tally.h"
#include "tracefs.h"

#define TICK_NS 10000000ull
#define SECOND_NS 1000000000ull
#define SLICES 1000
#define FUNCTIONS 2048

/**
 * struct slice - time that was recorded
 * @begin: ns since the recording's begin
 * @end: ns since the recording's begin
 */
struct slice {
	uint64_t begin;
	uint64_t end;
};

/**
 * struct session - a running recording
 * @options: what was asked for
 * @programs: BPF programs, NULL with @tracefs
 * @tracefs: tracepoints in the place of BPF programs, else NULL
 * @merge: their events
 * @overhead: their cost
 * @found: the cost at the end, without that of detaching and of the last block
 * @identity: of addresses
 * @writer: the file
 * @tally: what was written
 * @check: others' counts of the same calls
 * @begin: time of the begin
 * @last_ns: time of the last event
 * @page_shift: of the machine
 * @is_on: whether it records now
 * @since: time at which it went on or off
 * @covered_ns: recorded time that is over
 * @slices: the first slices, while there is a limit of the overhead
 * @slice_count: number of all slices
 * @missed: calls that the kernel did not pass to a program, and that were told
 * @missed_before: of them, those before the begin
 * @removed: devices' removals that were told
 * @now: the devices as they were a moment ago; once physical, a device stays so
 */
struct session {
	const struct session_options *options;
	struct programs *programs;
	struct tracefs *tracefs;
	struct merge *merge;
	struct overhead *overhead;
	struct overhead_found found;
	struct identity *identity;
	struct trace_writer *writer;
	struct tally tally;
	struct check check;
	uint64_t begin;
	uint64_t last_ns;
	unsigned int page_shift;
	bool is_on;
	uint64_t since;
	uint64_t covered_ns;
	struct slice slices[SLICES];
	uint64_t slice_count;
	uint64_t missed;
	uint64_t missed_before;
	uint64_t removed[RAW_DEVICES];
	struct device now[RAW_DEVICES];
};

static sig_atomic_t stopping;

void session_stop(void)
{
	__atomic_store_n(&stopping, 1, __ATOMIC_RELAXED);
}

static bool is_stopping(void)
{
	return __atomic_load_n(&stopping, __ATOMIC_RELAXED);
}

/* ---- the header ---- */

static unsigned int cpus_of(const struct session *session)
{
	return session->programs ? programs_cpus(session->programs) : sysconf(_SC_NPROCESSORS_CONF);
}

/* Ticks a second of the kernel, by its configuration beside it; 0 if that is not there. */
static unsigned int hz_of(const char *release)
{
	char path[128], line[256];
	unsigned int hz = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/boot/config-%.100s", release);
	file = fopen(path, "r");
	while (file && !hz && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "CONFIG_HZ=%u", &hz) != 1)
			hz = 0;
	}
	if (file)
		fclose(file);
	return hz;
}

/* Why buffers that are given as pages have no identity; NULL if they have. */
static const char *why_no_pages(const struct session *session)
{
	return session->programs ? programs_why_no_pages(session->programs) : NULL;
}

static void print_header(const struct session *session, FILE *to)
{
	const struct session_options *options = session->options;
	const char *why = why_no_pages(session);
	char functions[FUNCTIONS];
	struct utsname kernel;

	uname(&kernel);
	fputs("{\"recorder\":\"xsmmu-record\",", to);
	if (session->tracefs) {
		tracefs_print(session->tracefs, functions, sizeof(functions));
		fputs("\"method\":\"tracepoints\",\"missing\":" TRACEFS_MISSING ",", to);
	} else {
		programs_print(session->programs, functions, sizeof(functions));
		fputs("\"method\":\"bpf\",\"missing\":[],", to);
	}
	fputs("\"kernel\":", to);
	json_string(to, kernel.release);
	fputs(",\"machine\":", to);
	json_string(to, kernel.machine);
	fprintf(to, ",\"cpus\":%u,\"page_bytes\":%u,", cpus_of(session), 1u << session->page_shift);
	fprintf(to, "\"memory_pages\":%" PRIu64 ",\"raw\":%s,",
		identity_end(session->identity, session->page_shift),
		options->raw ? "true" : "false");
	if (hz_of(kernel.release))
		fprintf(to, "\"hz\":%u,", hz_of(kernel.release));
	fprintf(to, "\"pages\":\"%s\",\"frame_bytes\":%u,\"pages_known\":%s,",
		options->raw ? "raw" : "permuted", 1u << IDENTITY_SHIFT, why ? "false" : "true");
	if (why)
		fprintf(to, "\"pages_unknown\":\"%s\",", why);
	fprintf(to, "\"unheld_known\":%s,",
		session->programs && programs_know_unheld(session->programs) ? "true" : "false");
	fprintf(to, "\"sampled\":%s,\"functions\":[%s],\"devices\":[",
		options->share > 0 ? "true" : "false", functions);
	for (unsigned int at = 0; at < options->count; at++) {
		fputs(at ? "," : "", to);
		device_print(&options->devices[at], to);
	}
	fputs("]}", to);
}

/* ---- events ---- */

static bool is_list(const struct raw_event *raw)
{
	return raw->kind == TRACE_MAP_LIST || raw->kind == TRACE_UNMAP_LIST;
}

/* The physical address of the buffer, 0 if it is not known. */
static uint64_t phys_of(const struct session *session, const struct raw_event *raw)
{
	if (raw->flags & RAW_PAGE)
		return programs_phys(session->programs, raw->phys, session->page_shift, raw->span);
	if (raw->kind == TRACE_MAP || raw->kind == TRACE_ENTRY || raw->kind == TRACE_IOVA_ALLOC ||
	    raw->kind == TRACE_IOVA_LINK)
		return raw->phys;
	return 0;
}

static void convert(struct session *session, const struct merge_event *from, struct trace_event *to)
{
	const struct raw_event *raw = &from->raw;
	const struct device *device = &session->now[raw->device];
	uint64_t phys = phys_of(session, raw);

	memset(to, 0, sizeof(*to));
	to->ns = raw->ns > session->begin ? raw->ns - session->begin : 0;
	to->bytes = raw->bytes;
	to->cpu = from->cpu;
	to->device = raw->device;
	to->kind = raw->kind;
	to->flags = raw->flags & ~RAW_PAGE;
	if (raw->kind == TRACE_LOST) {
		to->span = from->span_ns < to->ns ? from->span_ns : to->ns;
		return;
	}
	to->iova = device->is_physical ? identity_address(session->identity, raw->iova) : raw->iova;
	if (is_list(raw) || raw->kind == TRACE_ENTRY)
		to->span = raw->span;
	else if (raw->kind == TRACE_POLL)
		to->queue = raw->span;
	if (phys) {
		to->page = identity_page(session->identity, phys, session->page_shift);
		to->offset = phys & ((1u << session->page_shift) - 1);
	}
}

static const struct merge_event *next_event(struct session *session)
{
	return session->tracefs ? tracefs_next(session->tracefs) : merge_next(session->merge);
}

static void fill(struct session *session, bool last)
{
	if (session->merge)
		merge_fill(session->merge, last);
}

static bool write_ready(struct session *session, struct trace_error *error)
{
	const struct merge_event *event;

	while ((event = next_event(session))) {
		struct trace_event written;

		convert(session, event, &written);
		tally_add(&session->tally, &written, event->raw.phys, session->page_shift);
		session->last_ns = written.ns;
		if (!trace_write(session->writer, &written, error))
			return false;
	}
	return true;
}

/* ---- on and off ---- */

static void note_gap(struct session *session, uint64_t now)
{
	if (!session->slice_count)
		return;
	if (session->tracefs)
		tracefs_miss(session->tracefs, now, now - session->since);
	else
		merge_miss(session->merge, now, now - session->since, 0);
}

static void set_on(struct session *session, bool on, uint64_t now)
{
	struct slice *slice = &session->slices[session->slice_count % SLICES];

	if (on == session->is_on)
		return;
	if (session->tracefs)
		tracefs_record(session->tracefs, on);
	else
		programs_record(session->programs, on);
	if (on) {
		note_gap(session, now);
		if (session->slice_count < SLICES)
			slice->begin = now - session->begin;
	} else {
		session->covered_ns += now - session->since;
		if (session->slice_count < SLICES)
			slice->end = now - session->begin;
		session->slice_count++;
	}
	session->is_on = on;
	session->since = now;
}

/* ---- each second ---- */

static void note_missed(struct session *session, uint64_t now)
{
	struct programs_cost cost;

	if (!session->programs)
		return;
	programs_cost(session->programs, &cost);
	if (cost.missed > session->missed)
		merge_miss(session->merge, now, SECOND_NS, cost.missed - session->missed);
	session->missed = cost.missed;
}

static uint64_t removals(const struct session *session, unsigned int at)
{
	if (session->programs)
		return programs_device(session->programs, at)->removed;
	return session->removed[at] || !device_exists(&session->options->devices[at]);
}

/* Programs are attached a while before the recording begins. */
static void skip_missed(struct session *session)
{
	struct programs_cost cost;

	programs_cost(session->programs, &cost);
	session->missed = cost.missed;
	session->missed_before = cost.missed;
}

static void note_devices(struct session *session)
{
	for (unsigned int at = 0; at < session->options->count; at++) {
		const struct device *device = &session->options->devices[at];
		uint64_t removed = removals(session, at);

		if (removed == session->removed[at])
			continue;
		session->removed[at] = removed;
		fprintf(stderr,
			"xsmmu-record: %s was removed from the machine: its events end here%s\n",
			device->name,
			session->options->count > 1 ? ", the others' go on"
						    : ", unless it comes back");
	}
}

/* A device may get another policy or type of group, and with it physical addresses. */
static void note_changes(struct session *session)
{
	for (unsigned int at = 0; at < session->options->count; at++) {
		struct device *before = &session->now[at], now;
		struct trace_error error;

		if (!device_read(&now, before->name, &error) ||
		    (!strcmp(now.policy, before->policy) && !strcmp(now.type, before->type)))
			continue;
		fprintf(stderr,
			"xsmmu-record: %s is of policy '%s' and type %s now; the header has '%s' and %s: record again for figures of one policy\n",
			now.name, now.policy, now.type, before->policy, before->type);
		now.is_physical |= before->is_physical;
		*before = now;
	}
}

static void print_progress(struct session *session, uint64_t now)
{
	printf("{\"event\":\"progress\",\"seconds\":%.1f,\"events\":%" PRIu64 ",\"lost\":%" PRIu64
	       "}\n",
	       (now - session->begin) / 1e9, tally_events(&session->tally), session->tally.lost);
	/* Nobody is there who would end the recording. */
	if (fflush(stdout))
		session_stop();
}

static bool is_over(const struct session *session, uint64_t now)
{
	double seconds = session->options->seconds;

	return is_stopping() || (seconds > 0 && now - session->begin >= seconds * 1e9);
}

static bool record(struct session *session, struct trace_error *error)
{
	const struct timespec tick = { .tv_nsec = TICK_NS };
	uint64_t told = session->begin;

	while (true) {
		uint64_t now = merge_now();

		if (is_over(session, now))
			return true;
		set_on(session, overhead_tick(session->overhead, now), now);
		fill(session, false);
		if (!write_ready(session, error))
			return false;
		if (now - told >= SECOND_NS) {
			told = now;
			note_missed(session, now);
			note_devices(session);
			note_changes(session);
			print_progress(session, now);
			if (!trace_flush(session->writer, now - session->begin, error))
				return false;
		}
		if (!session->merge || !merge_is_full(session->merge))
			nanosleep(&tick, NULL);
	}
}

/* ---- the summary ---- */

static void print_losses(const struct session *session, FILE *to)
{
	const char *separator = "";

	fprintf(to,
		"\"lost\":%" PRIu64 ",\"nested\":%" PRIu64 ",\"late\":%" PRIu64
		",\"lost_by_cpu\":{",
		session->tally.lost, session->missed - session->missed_before,
		session->merge ? merge_late(session->merge) : 0);
	for (unsigned int cpu = 0; session->merge && cpu < cpus_of(session); cpu++) {
		if (!merge_lost(session->merge, cpu))
			continue;
		fprintf(to, "%s\"%u\":%" PRIu64, separator, cpu, merge_lost(session->merge, cpu));
		separator = ",";
	}
	fputs("},", to);
}

static void print_overhead(struct session *session, FILE *to)
{
	double seconds =
		session->since > session->begin ? (session->since - session->begin) / 1e9 : 0;
	const struct overhead_found found = session->found;

	fprintf(to, "\"overhead\":{\"events_per_s\":%.0f,\"recorder_s\":%.3f,\"busy_s\":%.3f,",
		seconds > 0 ? tally_events(&session->tally) / seconds : 0, found.recorder_ns / 1e9,
		found.busy_ns / 1e9);
	if (found.known)
		fprintf(to, "\"programs_s\":%.3f,\"ns_per_call\":%.0f,\"share\":%.4f},",
			found.programs_ns / 1e9, found.run_ns, found.share);
	else
		fprintf(to, "\"programs_s\":null,\"ns_per_call\":null,\"share\":null},");
}

static void print_slices(const struct session *session, FILE *to)
{
	uint64_t kept = session->slice_count < SLICES ? session->slice_count : SLICES;

	fprintf(to,
		"\"seconds\":%.6f,\"covered_seconds\":%.6f,\"slices\":%" PRIu64
		",\"first_slices_ns\":[",
		(session->since - session->begin) / 1e9, session->covered_ns / 1e9,
		session->slice_count);
	for (uint64_t at = 0; at < kept; at++)
		fprintf(to, "%s[%" PRIu64 ",%" PRIu64 "]", at ? "," : "", session->slices[at].begin,
			session->slices[at].end);
	fputs("],", to);
}

static void print_device(const struct session *session, unsigned int at, FILE *to)
{
	fputs(at ? ",{\"address\":" : "{\"address\":", to);
	json_string(to, session->options->devices[at].name);
	fprintf(to, ",\"events\":%" PRIu64 ",\"removed\":%" PRIu64 "}",
		session->tally.devices[at], session->removed[at]);
}

static void print_summary(struct session *session, FILE *to)
{
	fprintf(to, "{\"events\":%" PRIu64 ",\"by_kind\":", tally_events(&session->tally));
	tally_print(&session->tally, to);
	fputc(',', to);
	print_losses(session, to);
	print_slices(session, to);
	print_overhead(session, to);
	fputs("\"devices\":[", to);
	for (unsigned int at = 0; at < session->options->count; at++)
		print_device(session, at, to);
	fputs("],", to);
	fputs("\"check\":", to);
	check_print(&session->check, &session->tally, to);
	fputc('}', to);
}

/* Returns text that the caller frees, or NULL without memory. */
static char *text_of(struct session *session, bool is_summary)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (!to)
		return NULL;
	if (is_summary)
		print_summary(session, to);
	else
		print_header(session, to);
	return fclose(to) ? NULL : text;
}

/* ---- begin and end ---- */

/* In the place of BPF, of which @error says why it is refused. */
static void open_tracepoints(struct session *session, struct trace_error *error)
{
	struct trace_error second = { "" };

	session->tracefs =
		tracefs_open(session->options->devices, session->options->count, &second);
	if (session->tracefs) {
		fprintf(stderr, "xsmmu-record: BPF: %s; tracepoints are recorded, without %s\n",
			error->text, TRACEFS_MISSING);
	} else {
		char first[186];

		snprintf(first, sizeof(first), "%.185s", error->text);
		snprintf(error->text, sizeof(error->text), "%s; and %.60s", first, second.text);
	}
}

static bool prepare(struct session *session, struct trace_error *error)
{
	const struct session_options *options = session->options;
	const char *names[RAW_DEVICES];
	struct programs_options wanted = { names, options->count, options->check,
					   options->ring_bytes };
	char *header;

	for (unsigned int at = 0; at < options->count; at++)
		names[at] = options->devices[at].name;
	if (options->tracepoints)
		snprintf(error->text, sizeof(error->text), "not asked for");
	else
		session->programs = programs_open(&wanted, error);
	if (session->programs)
		session->merge = merge_new(session->programs, error);
	else
		open_tracepoints(session, error);
	if (!session->merge && !session->tracefs)
		return false;
	session->identity = identity_new(options->raw);
	session->overhead = overhead_new(session->programs, options->share);
	header = session->identity ? text_of(session, false) : NULL;
	/* Page frame numbers are root's: /proc/PID/pagemap shows them to nobody else. */
	if (options->raw)
		umask(077);
	if (session->overhead && header)
		session->writer = trace_create(options->file, header, error);
	else
		snprintf(error->text, sizeof(error->text),
			 "no memory: stop other programs, or name a smaller ring with --ring-kib");
	free(header);
	if (session->writer && why_no_pages(session))
		fprintf(stderr, "xsmmu-record: %s: %s\n",
			"pages have no identity, so a replay cannot show that memory is used again",
			why_no_pages(session));
	return session->writer;
}

static bool finish(struct session *session, struct trace_error *error)
{
	bool done;
	char *summary;

	set_on(session, false, merge_now());
	overhead_found(session->overhead, &session->found);
	if (session->programs)
		programs_detach(session->programs);
	note_missed(session, merge_now());
	do {
		fill(session, true);
		done = write_ready(session, error);
	} while (done && session->merge && merge_is_full(session->merge));
	note_devices(session);
	summary = text_of(session, true);
	done = trace_finish(session->writer, summary ? summary : "{}", error) && done;
	session->writer = NULL;
	if (done && summary)
		printf("{\"event\":\"end\",\"summary\":%s}\n", summary);
	free(summary);
	return done;
}

static bool begin_and_record(struct session *session, struct trace_error *error)
{
	session->check.devices = session->options->devices;
	session->check.count = session->options->count;
	session->check.programs = session->options->check ? session->programs : NULL;
	session->check.page_shift = session->page_shift;
	check_begin(&session->check);
	skip_missed(session);
	session->begin = merge_now();
	set_on(session, true, session->begin);
	puts("{\"event\":\"recording\"}");
	fflush(stdout);
	return record(session, error);
}

bool session_run(const struct session_options *options, struct trace_error *error)
{
	struct session *session = calloc(1, sizeof(*session));
	struct trace_error second;
	bool done;

	if (!session) {
		snprintf(error->text, sizeof(error->text), "no memory");
		return false;
	}
	session->options = options;
	memcpy(session->now, options->devices, sizeof(session->now));
	session->page_shift = __builtin_ctzl(sysconf(_SC_PAGESIZE));
	done = prepare(session, error) && begin_and_record(session, error);
	/* After an error of writing, the file keeps what it has, and the first message stays. */
	if (session->writer)
		done = finish(session, done ? error : &second) && done;
	overhead_free(session->overhead);
	identity_free(session->identity);
	merge_free(session->merge);
	tracefs_close(session->tracefs);
	if (session->programs)
		programs_close(session->programs);
	free(session);
	return done;
}
