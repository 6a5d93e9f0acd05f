// SPDX-License-Identifier: GPL-2.0-only
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tracefs.h"

#ifndef FOLDER
#define FOLDER "/sys/kernel/tracing"
#endif
#define INSTANCE FOLDER "/instances/xsmmu-record-"
#define INSTANCE_BYTES 64
#define BUFFER_KIB "4096"
#define LINE_BYTES (64u << 10)
#define ENTRIES 128 /* that the kernel prints of a list */
#define COMM 16 /* columns of the name of the task, with which a line begins */

/* A tracepoint, and the kind of its events; 0 if it does not say enough. */
static const struct point {
	const char *name;
	unsigned char kind;
	bool is_mmio;
} points[] = {
	{ "dma_map_page", TRACE_MAP, false },
	{ "dma_map_phys", TRACE_MAP, false },
	{ "dma_map_resource", TRACE_MAP, true },
	{ "dma_unmap_page", TRACE_UNMAP, false },
	{ "dma_unmap_phys", TRACE_UNMAP, false },
	{ "dma_unmap_resource", TRACE_UNMAP, true },
	{ "dma_map_sg", TRACE_MAP_LIST, false },
	{ "dma_unmap_sg", 0, false },
	{ "dma_alloc", TRACE_ALLOC, false },
	{ "dma_alloc_pages", TRACE_ALLOC, false },
	{ "dma_alloc_sgt", TRACE_ALLOC, false },
	{ "dma_free", TRACE_FREE, false },
	{ "dma_free_pages", TRACE_FREE, false },
	{ "dma_free_sgt", TRACE_FREE, false },
	{ "dma_sync_single_for_cpu", TRACE_SYNC_CPU, false },
	{ "dma_sync_single_for_device", TRACE_SYNC_DEVICE, false },
};

#define POINTS (sizeof(points) / sizeof(points[0]))

/**
 * struct tracefs - an instance
 * @devices: recorded devices
 * @count: number of devices
 * @folder: of the instance
 * @has: whether the kernel has a tracepoint
 * @pipe: file descriptor of its events as text
 * @text: read, and not parsed
 * @used: bytes of @text
 * @queue: events of the last line
 * @next: first of them that was not given out
 * @ready: number of them
 * @last_ns: time of the last event
 */
struct tracefs {
	const struct device *devices;
	unsigned int count;
	char folder[INSTANCE_BYTES];
	bool has[POINTS];
	int pipe;
	char text[LINE_BYTES + 1];
	size_t used;
	struct merge_event queue[ENTRIES + 2];
	unsigned int next;
	unsigned int ready;
	uint64_t last_ns;
};

/* ---- the instance ---- */

static bool put(const struct tracefs *tracefs, const char *file, const char *word)
{
	char path[256];
	int fd;
	bool done;

	snprintf(path, sizeof(path), "%s/%s", tracefs->folder, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	done = write(fd, word, strlen(word)) == (ssize_t)strlen(word);
	close(fd);
	return done;
}

static bool put_point(const struct tracefs *tracefs, const char *point, const char *file,
		      const char *word)
{
	char name[128];

	snprintf(name, sizeof(name), "events/dma/%s/%s", point, file);
	return put(tracefs, name, word);
}

/* The kernel leaves out other devices' events. */
static bool find_points(struct tracefs *tracefs)
{
	char filter[RAW_DEVICES * (RAW_NAME + 20)];
	size_t used = 0;
	bool found = false;

	for (unsigned int at = 0; at < tracefs->count; at++)
		used += snprintf(filter + used, sizeof(filter) - used, "%sdevice == \"%s\"",
				 at ? " || " : "", tracefs->devices[at].name);
	for (size_t at = 0; at < POINTS; at++) {
		tracefs->has[at] = put_point(tracefs, points[at].name, "filter", filter);
		found |= tracefs->has[at];
	}
	return found;
}

static bool open_pipe(struct tracefs *tracefs)
{
	char path[256];

	if (!put(tracefs, "trace_clock", "mono") || !put(tracefs, "buffer_size_kb", BUFFER_KIB))
		return false;
	snprintf(path, sizeof(path), "%s/trace_pipe", tracefs->folder);
	tracefs->pipe = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	return tracefs->pipe >= 0;
}

/*
 * A recorder that was killed has left its instance. The kernel keeps an instance in use, such as
 * that of a recorder whose number another PID namespace has.
 */
static void remove_left(void)
{
	DIR *instances = opendir(FOLDER "/instances");
	struct dirent *entry;
	char path[INSTANCE_BYTES];
	int number;

	while (instances && (entry = readdir(instances))) {
		if (sscanf(entry->d_name, "xsmmu-record-%d", &number) != 1 || number <= 0 ||
		    !kill(number, 0) || errno != ESRCH)
			continue;
		snprintf(path, sizeof(path), INSTANCE "%d", number);
		rmdir(path);
	}
	if (instances)
		closedir(instances);
}

struct tracefs *tracefs_open(const struct device *devices, unsigned int count,
			     struct trace_error *error)
{
	struct tracefs *tracefs = calloc(1, sizeof(*tracefs));

	if (!tracefs)
		return NULL;
	tracefs->devices = devices;
	tracefs->count = count;
	tracefs->pipe = -1;
	remove_left();
	snprintf(tracefs->folder, sizeof(tracefs->folder), INSTANCE "%d", getpid());
	if (mkdir(tracefs->folder, 0700)) {
		snprintf(error->text, sizeof(error->text), "%s: %s", FOLDER "/instances",
			 strerror(errno));
		free(tracefs);
		return NULL;
	}
	if (find_points(tracefs) && open_pipe(tracefs))
		return tracefs;
	snprintf(error->text, sizeof(error->text),
		 "this kernel has no tracepoints dma:* (Linux 6.12 or later)");
	tracefs_close(tracefs);
	return NULL;
}

void tracefs_close(struct tracefs *tracefs)
{
	if (!tracefs)
		return;
	if (tracefs->pipe >= 0)
		close(tracefs->pipe);
	rmdir(tracefs->folder);
	free(tracefs);
}

void tracefs_record(struct tracefs *tracefs, bool on)
{
	for (size_t at = 0; at < POINTS; at++) {
		if (tracefs->has[at])
			put_point(tracefs, points[at].name, "enable", on ? "1" : "0");
	}
}

void tracefs_print(const struct tracefs *tracefs, char *text, size_t room)
{
	size_t used = 0;

	text[0] = 0;
	for (size_t at = 0; at < POINTS && used < room; at++) {
		if (tracefs->has[at])
			used += snprintf(text + used, room - used, "%s\"dma:%s\"", used ? "," : "",
					 points[at].name);
	}
}

/* ---- lines ---- */

static uint64_t number(const char *line, const char *name, int base)
{
	const char *found = strstr(line, name);

	return found ? strtoull(found + strlen(name), NULL, base) : 0;
}

/* The next number of an array such as {0x1000,0x2000}; false at its end. */
static bool next_number(const char **at, uint64_t *found)
{
	char *end;

	if (!*at || (**at != '{' && **at != ','))
		return false;
	*found = strtoull(*at + 1, &end, 0);
	if (end == *at + 1)
		return false;
	*at = end;
	return true;
}

static const char *array(const char *line, const char *name)
{
	const char *found = strstr(line, name);

	return found ? found + strlen(name) : NULL;
}

static unsigned char flags_of(const char *line, bool is_mmio)
{
	unsigned char flags = is_mmio || strstr(line, "MMIO") ? TRACE_MMIO : 0;

	if (strstr(line, "dir=TO_DEVICE"))
		flags |= 1;
	else if (strstr(line, "dir=FROM_DEVICE"))
		flags |= 2;
	if (strstr(line, "SKIP_CPU_SYNC"))
		flags |= TRACE_SKIP_SYNC;
	return flags;
}

static int device_of(const struct tracefs *tracefs, const char *line)
{
	for (unsigned int at = 0; at < tracefs->count; at++) {
		size_t bytes = strlen(tracefs->devices[at].name);

		if (!strncmp(line, tracefs->devices[at].name, bytes) && line[bytes] == ' ')
			return at;
	}
	return -1;
}

static struct merge_event *add(struct tracefs *tracefs, const struct merge_event *like)
{
	struct merge_event *event = &tracefs->queue[tracefs->ready++];

	*event = *like;
	return event;
}

/* Entries have their own sizes only if none was merged; the kernel prints the first 128. */
static void add_list(struct tracefs *tracefs, const char *line, const struct merge_event *like)
{
	struct merge_event *list = add(tracefs, like);
	const char *pages = array(line, "phys_addrs="), *iovas = array(line, "dma_addrs=");
	const char *sizes = array(line, "sizes=");
	uint64_t page, iova, bytes;

	list->raw.bytes = 0;
	while (tracefs->ready <= ENTRIES && next_number(&pages, &page)) {
		struct merge_event *entry = add(tracefs, like);
		bool has_iova = next_number(&iovas, &iova) && next_number(&sizes, &bytes);

		entry->raw.kind = TRACE_ENTRY;
		entry->raw.phys = page;
		entry->raw.iova = has_iova ? iova : 0;
		entry->raw.bytes = has_iova ? bytes : 0;
		entry->raw.span = entry->raw.bytes;
		list->raw.bytes += entry->raw.bytes;
		list->raw.span++;
		if (list->raw.span == 1)
			list->raw.iova = entry->raw.iova;
	}
}

/* Entries that the kernel did not print are lost events. */
static void add_rest(struct tracefs *tracefs, const char *line, const struct merge_event *like)
{
	const char *counts = strstr(line, " nents=");
	unsigned long printed, all;
	struct merge_event *lost;

	if (!counts || sscanf(counts, " nents=%lu/%lu", &printed, &all) != 2 || all <= printed)
		return;
	lost = add(tracefs, like);
	lost->raw.kind = TRACE_LOST;
	lost->raw.bytes = all - printed;
}

static void parse_event(struct tracefs *tracefs, const struct point *point, const char *line,
			struct merge_event *event)
{
	int device = device_of(tracefs, line);

	if (device < 0)
		return;
	event->raw.device = device;
	event->raw.kind = point->kind;
	if (!point->kind) {
		event->raw.kind = TRACE_LOST;
		event->raw.bytes = 1;
		add(tracefs, event);
		return;
	}
	event->raw.flags = flags_of(line, point->is_mmio);
	event->raw.iova = number(line, " dma_addr=", 16);
	event->raw.bytes = number(line, " size=", 10);
	event->raw.phys = number(line, " phys_addr=", 16);
	if (point->kind == TRACE_MAP && event->raw.iova == UINT64_MAX) {
		event->raw.iova = 0;
		event->raw.flags |= TRACE_FAILED;
	}
	if (point->kind == TRACE_MAP_LIST) {
		add_list(tracefs, line, event);
		add_rest(tracefs, line, event);
	} else {
		add(tracefs, event);
	}
}

/* Such as "iperf3-12 [001] ..... 12.345678: dma_map_page: 0000:00:02.0 dir=..."; a task can give
 * itself any name, also that of an event. */
static void parse(struct tracefs *tracefs, char *line)
{
	struct merge_event event = { .raw.ns = tracefs->last_ns };
	char *name = strlen(line) > COMM ? strstr(line + COMM, ": dma_") : NULL, *cpu, *time;
	unsigned long seconds, micros, lost;
	unsigned int of;

	if (sscanf(line, "CPU:%u [LOST %lu EVENTS]", &of, &lost) == 2) {
		event.raw.kind = TRACE_LOST;
		event.raw.bytes = lost;
		event.cpu = of;
		add(tracefs, &event);
		return;
	}
	if (!name)
		return;
	*name = 0;
	time = strrchr(line, ' ');
	cpu = strrchr(line, '[');
	if (!time || !cpu || sscanf(time, " %lu.%lu", &seconds, &micros) != 2)
		return;
	event.raw.ns = seconds * 1000000000ull + micros * 1000ull;
	event.cpu = strtoul(cpu + 1, NULL, 10);
	if (event.raw.ns < tracefs->last_ns)
		event.raw.ns = tracefs->last_ns;
	tracefs->last_ns = event.raw.ns;
	name += 2;
	for (size_t at = 0; at < POINTS; at++) {
		size_t bytes = strlen(points[at].name);

		if (!strncmp(name, points[at].name, bytes) && !strncmp(name + bytes, ": ", 2))
			parse_event(tracefs, &points[at], name + bytes + 2, &event);
	}
}

/* Parses the next whole line; false if more text is needed. */
static bool next_line(struct tracefs *tracefs)
{
	char *end = memchr(tracefs->text, '\n', tracefs->used);
	size_t bytes = end ? (size_t)(end - tracefs->text) : tracefs->used;

	/* No line is as long as the buffer: what is there is dropped. */
	if (!end && tracefs->used < LINE_BYTES)
		return false;
	tracefs->text[bytes] = 0;
	parse(tracefs, tracefs->text);
	bytes += end ? 1 : 0;
	tracefs->used -= bytes;
	memmove(tracefs->text, tracefs->text + bytes, tracefs->used);
	return true;
}

void tracefs_miss(struct tracefs *tracefs, uint64_t ns, uint64_t span_ns)
{
	struct merge_event event = { .raw.ns = ns, .raw.kind = TRACE_LOST, .cpu = MERGE_EVERY_CPU };

	event.span_ns = span_ns;
	tracefs->last_ns = ns > tracefs->last_ns ? ns : tracefs->last_ns;
	if (tracefs->ready <= ENTRIES)
		add(tracefs, &event);
}

const struct merge_event *tracefs_next(struct tracefs *tracefs)
{
	while (tracefs->next == tracefs->ready) {
		ssize_t bytes;

		tracefs->next = 0;
		tracefs->ready = 0;
		if (next_line(tracefs))
			continue;
		bytes = read(tracefs->pipe, tracefs->text + tracefs->used,
			     LINE_BYTES - tracefs->used);
		if (bytes <= 0)
			return NULL;
		tracefs->used += bytes;
	}
	return &tracefs->queue[tracefs->next++];
}
