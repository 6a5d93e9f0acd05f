// SPDX-License-Identifier: GPL-2.0-only
/*
 * The recorder (trace/record) on a kernel, a clock and a memory that a script moves, so that its
 * merge, its losses and its identities can be tested exactly, without BPF and without waiting.
 *
 *   recorder FILE SECONDS [raw]	reads the script from standard input
 *
 * A line of the script is a time, a word and numbers; lines are in order of their times, in ns
 * since the recording's begin:
 *
 *   TIME event CPU KIND NS IOVA PHYS BYTES SPAN DEVICE FLAGS	the event is in the ring
 *   TIME lose CPU EVENTS NS	the ring had no room, the last time at NS
 *   TIME stop CPU, TIME go CPU	the ring begins, or does not, with an unfinished event
 *   TIME missed CALLS	the kernel passed so many more calls to no program
 *   TIME off, TIME on	the limit of the overhead is reached, or not any more
 *   TIME kill	the recorder is killed
 *   TIME identity	the group of device 0 translates no more
 *   TIME count CPU MAPS BYTES UNMAPS BYTES	calls that iommu:map and iommu:unmap have counted
 *
 * The machine has 2 CPUs and 1 GiB of memory, and the addresses of device 1 are physical.
 */
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../trace/record/overhead.h"
#include "../../trace/record/session.h"

#define FOLDER		"/sys/bus/pci/devices"
#define CPUS		2u
#define RING_EVENTS	4096u
#define RING_BYTES	(64u << 10)
#define EVENT_BYTES	(sizeof(struct raw_event) + 8)	/* with the ring's own head */
#define BEGIN_NS	5000000000ull
#define NUMBERS		9

static const char memory[] = "00000000-3fffffff : System RAM\n"
			     "  00000000-000fffff : System RAM of a part\n"
			     "40000000-ffffffff : PCI Bus 0000:00\n";

struct ring {
	ring_buffer_sample_fn take;
	void *context;
	struct raw_event events[RING_EVENTS];
	unsigned int at;
	unsigned int count;
	bool stopped;
};

struct programs {
	bool is_open;
};

struct overhead {
	bool is_on;
};

static struct ring rings[CPUS];
static struct raw_cpu counts[CPUS];
static struct raw_device devices[RAW_DEVICES];
static struct programs programs;
static struct overhead overhead = { true };
static uint64_t now_ns = BEGIN_NS, missed;
static char type[] = "DMA-FQ\0\0";

/* ---- the script ---- */

static void put_event(const uint64_t *n)
{
	struct ring *ring = &rings[n[0] % CPUS];

	if (ring->count == RING_EVENTS)
		exit(2);
	ring->events[ring->count++] = (struct raw_event) {
		.kind = (unsigned char)n[1], .ns = BEGIN_NS + n[2], .iova = n[3], .phys = n[4],
		.bytes = n[5], .span = (unsigned int)n[6], .device = (unsigned short)n[7],
		.flags = (unsigned char)n[8],
	};
}

static void act(const char *word, const uint64_t *n)
{
	struct raw_cpu *cpu = &counts[n[0] % CPUS];

	if (!strcmp(word, "event")) {
		put_event(n);
	} else if (!strcmp(word, "lose")) {
		cpu->lost += n[1];
		cpu->lost_ns = BEGIN_NS + n[2];
	} else if (!strcmp(word, "stop") || !strcmp(word, "go")) {
		rings[n[0] % CPUS].stopped = !strcmp(word, "stop");
	} else if (!strcmp(word, "missed")) {
		missed += n[0];
	} else if (!strcmp(word, "on") || !strcmp(word, "off")) {
		overhead.is_on = !strcmp(word, "on");
	} else if (!strcmp(word, "kill")) {
		_exit(0);
	} else if (!strcmp(word, "identity")) {
		strcpy(type, "identity");
	} else if (!strcmp(word, "count")) {
		cpu->maps += n[1];
		cpu->map_bytes += n[2];
		cpu->unmaps += n[3];
		cpu->unmap_bytes += n[4];
	} else {
		exit(2);
	}
}

/* Has all lines come true that are due. */
static void advance(uint64_t ns)
{
	static char line[256];
	char word[16];
	uint64_t due, n[NUMBERS] = { 0 };
	int used, more;

	now_ns += ns;
	while (line[0] || fgets(line, sizeof(line), stdin)) {
		const char *at = line;

		if (sscanf(at, "%" SCNu64 " %15s%n", &due, word, &used) != 2)
			exit(2);
		if (BEGIN_NS + due > now_ns)
			return;
		at += used;
		for (int i = 0; i < NUMBERS && sscanf(at, "%" SCNu64 "%n", &n[i], &more) == 1; i++)
			at += more;
		act(word, n);
		line[0] = 0;
	}
}

/* ---- the C library ---- */

int clock_gettime(clockid_t clock, struct timespec *time)
{
	(void)clock;
	time->tv_sec = (time_t)(now_ns / 1000000000);
	time->tv_nsec = (long)(now_ns % 1000000000);
	return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)left;
	advance((uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_nsec);
	return 0;
}

FILE *fopen(const char *name, const char *mode)
{
	if (!strcmp(name, "/proc/iomem"))
		return fmemopen((void *)memory, strlen(memory), "r");
	if (!strcmp(name, FOLDER "/0000:00:01.0/iommu_group/type"))
		return fmemopen(type, strlen(type), "r");
	return fopen64(name, mode);
}

int access(const char *name, int mode)
{
	return strncmp(name, FOLDER, strlen(FOLDER)) ? faccessat(AT_FDCWD, name, mode, 0) : 0;
}

/* ---- libbpf ---- */

struct ring_buffer *ring_buffer__new(int cpu, ring_buffer_sample_fn take, void *context,
				     const struct ring_buffer_opts *options)
{
	(void)options;
	rings[cpu].take = take;
	rings[cpu].context = context;
	return (struct ring_buffer *)rings;
}

int ring_buffer__add(struct ring_buffer *all, int cpu, ring_buffer_sample_fn take, void *context)
{
	(void)all;
	rings[cpu].take = take;
	rings[cpu].context = context;
	return 0;
}

struct ring *ring_buffer__ring(struct ring_buffer *all, unsigned int cpu)
{
	(void)all;
	return &rings[cpu];
}

void ring_buffer__free(struct ring_buffer *all)
{
	(void)all;
}

size_t ring__avail_data_size(const struct ring *ring)
{
	return (ring->count - ring->at) * EVENT_BYTES;
}

int ring__consume_n(struct ring *ring, size_t count)
{
	int done = 0;

	for (; count && !ring->stopped && ring->at < ring->count; count--, done++)
		ring->take(ring->context, &ring->events[ring->at++], sizeof(struct raw_event));
	return done;
}

/* ---- programs.h ---- */

struct programs *programs_open(const struct programs_options *options, struct trace_error *error)
{
	(void)options;
	(void)error;
	return &programs;
}

void programs_detach(struct programs *of)
{
	(void)of;
	for (unsigned int cpu = 0; cpu < CPUS; cpu++)
		rings[cpu].stopped = false;
}

void programs_close(struct programs *of)
{
	(void)of;
}

void programs_record(struct programs *of, bool on)
{
	(void)of;
	(void)on;
}

unsigned int programs_cpus(const struct programs *of)
{
	(void)of;
	return CPUS;
}

int programs_ring(const struct programs *of, unsigned int cpu)
{
	(void)of;
	return (int)cpu;
}

uint32_t programs_ring_bytes(const struct programs *of)
{
	(void)of;
	return RING_BYTES;
}

const struct raw_cpu *programs_cpu(const struct programs *of, unsigned int cpu)
{
	(void)of;
	return &counts[cpu];
}

const struct raw_device *programs_device(const struct programs *of, unsigned int device)
{
	(void)of;
	return &devices[device];
}

uint64_t programs_phys(const struct programs *of, uint64_t page, unsigned int page_shift,
		       uint64_t offset)
{
	(void)of;
	return (page << page_shift) + offset;
}

static const char *why_no_pages;

const char *programs_why_no_pages(const struct programs *of)
{
	(void)of;
	return why_no_pages;
}

bool programs_know_unheld(const struct programs *of)
{
	return !programs_why_no_pages(of);
}

bool programs_measure(struct programs *of, bool on)
{
	(void)of;
	return on;
}

void programs_cost(const struct programs *of, struct programs_cost *cost)
{
	(void)of;
	*cost = (struct programs_cost) { .missed = missed };
}

void programs_print(const struct programs *of, char *text, size_t room)
{
	(void)of;
	snprintf(text, room, "\"dma_map_page_attrs\"");
}

/* ---- overhead.h ---- */

struct overhead *overhead_new(struct programs *of, double limit)
{
	(void)of;
	(void)limit;
	return &overhead;
}

void overhead_free(struct overhead *of)
{
	(void)of;
}

bool overhead_tick(struct overhead *of, uint64_t now)
{
	(void)now;
	return of->is_on;
}

void overhead_found(struct overhead *of, struct overhead_found *found)
{
	(void)of;
	*found = (struct overhead_found) { 0 };
}

int main(int count, char **words)
{
	struct session_options options = { .count = 2, .check = true };
	struct trace_error error = { "" };

	if (count < 3)
		return 2;
	options.file = words[1];
	options.seconds = strtod(words[2], NULL);
	options.raw = count > 3 && !strcmp(words[3], "raw");
	why_no_pages = count > 3 && !strcmp(words[3], "nopages") ? "nobody says" : NULL;
	strcpy(options.devices[0].name, "0000:00:01.0");
	strcpy(options.devices[0].type, type);
	strcpy(options.devices[1].name, "0000:00:02.0");
	strcpy(options.devices[1].type, "none");
	options.devices[1].is_physical = true;
	advance(0);
	if (session_run(&options, &error))
		return 0;
	fprintf(stderr, "recorder: %s\n", error.text);
	return 1;
}
