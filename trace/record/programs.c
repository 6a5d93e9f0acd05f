// SPDX-License-Identifier: GPL-2.0-only
/*
 * The BPF programs of record.bpf.c. A kernel lacks some of their functions, and a missing one would
 * fail the whole object, so each program is loaded if BTF has its function, and if no other program
 * records the same calls.
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "place.h"
#include "programs.h"
#include "record.skel.h"

#define PROGRAMS_MAX 64
#define RINGS_BYTES (256u << 20)
#define RING_BYTES_MAX (4u << 20)
#define RING_BYTES_MIN (256u << 10)
#define SAID 200

/**
 * struct programs - the loaded programs
 * @skeleton: the object
 * @links: attached programs; those that are loaded and have no function stay NULL
 * @rings: file descriptors by CPU, -1 if there is none
 * @cpus: number of possible CPUs
 * @ring_bytes: size of each ring
 * @stats: file descriptor that has the kernel measure, or -1
 * @is_refused: the kernel does not run the program that reads the place of pages
 */
struct programs {
	struct record_bpf *skeleton;
	struct bpf_link *links[PROGRAMS_MAX];
	int *rings;
	unsigned int cpus;
	uint32_t ring_bytes;
	int stats;
	bool is_refused;
};

/* A program is left out if the kernel has a function that its function calls, or has instead. */
static const struct {
	const char *function;
	const char *instead;
} superseded[] = {
	{ "dma_map_page_attrs", "dma_map_phys" },
	{ "dma_unmap_page_attrs", "dma_unmap_phys" },
	{ "dma_map_resource", "dma_map_phys" },
	{ "dma_unmap_resource", "dma_unmap_phys" },
	{ "dma_sync_single_for_cpu", "__dma_sync_single_for_cpu" },
	{ "dma_sync_single_for_device", "__dma_sync_single_for_device" },
	{ "dma_sync_sg_for_cpu", "__dma_sync_sg_for_cpu" },
	{ "dma_sync_sg_for_device", "__dma_sync_sg_for_device" },
};

/* The last warning of libbpf, for messages. */
static char said[SAID];

static int keep_warning(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (getenv("XSMMU_RECORD_VERBOSE"))
		return vfprintf(stderr, format, arguments);
	if (level == LIBBPF_WARN)
		vsnprintf(said, sizeof(said), format, arguments);
	return 0;
}

static void failed(struct trace_error *error, const char *what, int code)
{
	if (code == -EPERM || code == -EACCES)
		snprintf(
			error->text, sizeof(error->text),
			"%s: %s: record as root, or with the capabilities BPF and PERFMON; see also /sys/kernel/security/lockdown",
			what, strerror(-code));
	else
		snprintf(error->text, sizeof(error->text), "%s: %s: %.100s", what, strerror(-code),
			 said[0] ? said : "XSMMU_RECORD_VERBOSE=1 prints the reason");
	error->text[strcspn(error->text, "\n")] = 0;
}

/* ---- which programs ---- */

static bool has(const struct btf *btf, const char *function)
{
	return btf__find_by_name_kind(btf, function, BTF_KIND_FUNC) > 0;
}

static bool is_superseded(const struct btf *btf, const char *function)
{
	for (size_t at = 0; at < sizeof(superseded) / sizeof(superseded[0]); at++) {
		if (!strcmp(function, superseded[at].function) && has(btf, superseded[at].instead))
			return true;
	}
	return false;
}

static bool has_tracepoint(const struct btf *btf, const char *name)
{
	char type[64];

	snprintf(type, sizeof(type), "btf_trace_%s", name);
	return btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF) > 0;
}

static bool is_wanted(const struct btf *btf, const char *section, bool check)
{
	const char *name = strchr(section, '/');

	if (!name)
		return true;
	name++;
	if (!strncmp(section, "tp_btf/", strlen("tp_btf/"))) {
		bool is_count = !strcmp(name, "map") || !strcmp(name, "unmap");

		return has_tracepoint(btf, name) && (check || !is_count);
	}
	return has(btf, name) && !is_superseded(btf, name);
}

static void choose(struct record_bpf *skeleton, const struct btf *btf, bool check)
{
	struct bpf_program *program;

	bpf_object__for_each_program (program, skeleton->obj)
		bpf_program__set_autoload(
			program, is_wanted(btf, bpf_program__section_name(program), check));
}

/* ---- rings ---- */

static uint32_t ring_size(unsigned int cpus)
{
	uint32_t bytes = RING_BYTES_MAX;

	while (bytes > RING_BYTES_MIN && (uint64_t)bytes * cpus > RINGS_BYTES)
		bytes /= 2;
	return bytes;
}

static bool add_rings(struct programs *programs, struct trace_error *error)
{
	int outer = bpf_map__fd(programs->skeleton->maps.rings);

	for (unsigned int cpu = 0; cpu < programs->cpus; cpu++) {
		int ring = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "xsmmu_ring", 0, 0,
					  programs->ring_bytes, NULL);
		int code = ring;

		if (ring >= 0) {
			programs->rings[cpu] = ring;
			code = bpf_map_update_elem(outer, &cpu, &ring, BPF_ANY);
		}
		if (code < 0) {
			failed(error, "no ring for the events of a CPU",
			       code == -1 ? -errno : code);
			return false;
		}
	}
	return true;
}

/* ---- load ---- */

/* Without a place, buffers that are given as pages have no identity: programs_why_no_pages(). */
static void place_pages(struct programs *programs)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);
	struct record_bpf__bss *shared = programs->skeleton->bss;

	if (bpf_prog_test_run_opts(bpf_program__fd(programs->skeleton->progs.read_symbol),
				   &options)) {
		programs->is_refused = true;
		return;
	}
	shared->vmemmap = place_vmemmap(shared->symbol_value);
}

static bool load(struct programs *programs, const struct programs_options *options,
		 struct trace_error *error)
{
	struct btf *btf = btf__load_vmlinux_btf();
	struct record_bpf *skeleton = record_bpf__open();
	int code;

	programs->skeleton = skeleton;
	if (!btf || !skeleton) {
		failed(error,
		       btf ? "the BPF program cannot be read"
			   : "this kernel has no BTF (CONFIG_DEBUG_INFO_BTF, /sys/kernel/btf/vmlinux)",
		       -errno);
		btf__free(btf);
		return false;
	}
	choose(skeleton, btf, options->check);
	btf__free(btf);
	skeleton->rodata->device_count = options->devices;
	for (unsigned int at = 0; at < options->devices; at++)
		snprintf((char *)skeleton->rodata->names[at], RAW_NAME, "%s", options->names[at]);
	skeleton->rodata->page_shift = __builtin_ctzl(sysconf(_SC_PAGESIZE));
	skeleton->rodata->symbol = place_symbol();
	bpf_map__set_max_entries(skeleton->maps.rings, programs->cpus);
	code = record_bpf__load(skeleton);
	if (code) {
		failed(error, "the kernel refuses the BPF program", code);
		return false;
	}
	place_pages(programs);
	return add_rings(programs, error);
}

static bool attach(struct programs *programs, struct trace_error *error)
{
	struct bpf_program *program;
	unsigned int count = 0;

	bpf_object__for_each_program (program, programs->skeleton->obj) {
		if (!bpf_program__autoload(program) ||
		    !strchr(bpf_program__section_name(program), '/'))
			continue;
		if (count == PROGRAMS_MAX)
			break;
		programs->links[count] = bpf_program__attach(program);
		if (!programs->links[count]) {
			char what[128];

			snprintf(what, sizeof(what), "%s cannot be followed",
				 bpf_program__section_name(program));
			failed(error, what, -errno);
			return false;
		}
		count++;
	}
	return true;
}

struct programs *programs_open(const struct programs_options *options, struct trace_error *error)
{
	struct programs *programs = calloc(1, sizeof(*programs));
	int cpus = libbpf_num_possible_cpus();

	libbpf_set_print(keep_warning);
	if (!programs || cpus <= 0 || cpus > RAW_CPUS) {
		snprintf(error->text, sizeof(error->text),
			 "%d possible CPUs: the recorder takes up to %d", cpus, RAW_CPUS);
		free(programs);
		return NULL;
	}
	programs->stats = -1;
	programs->cpus = cpus;
	programs->ring_bytes = options->ring_bytes ? options->ring_bytes : ring_size(cpus);
	programs->rings = malloc(cpus * sizeof(*programs->rings));
	if (programs->rings)
		memset(programs->rings, -1, cpus * sizeof(*programs->rings));
	if (programs->rings && load(programs, options, error) && attach(programs, error))
		return programs;
	programs_close(programs);
	return NULL;
}

void programs_detach(struct programs *programs)
{
	for (unsigned int at = 0; at < PROGRAMS_MAX; at++) {
		bpf_link__destroy(programs->links[at]);
		programs->links[at] = NULL;
	}
}

void programs_close(struct programs *programs)
{
	programs_detach(programs);
	programs_measure(programs, false);
	for (unsigned int cpu = 0; programs->rings && cpu < programs->cpus; cpu++) {
		if (programs->rings[cpu] >= 0)
			close(programs->rings[cpu]);
	}
	free(programs->rings);
	record_bpf__destroy(programs->skeleton);
	free(programs);
}

void programs_record(struct programs *programs, bool on)
{
	__atomic_store_n(&programs->skeleton->bss->recording, on, __ATOMIC_SEQ_CST);
}

unsigned int programs_cpus(const struct programs *programs)
{
	return programs->cpus;
}

int programs_ring(const struct programs *programs, unsigned int cpu)
{
	return programs->rings[cpu];
}

uint32_t programs_ring_bytes(const struct programs *programs)
{
	return programs->ring_bytes;
}

const struct raw_cpu *programs_cpu(const struct programs *programs, unsigned int cpu)
{
	return (const struct raw_cpu *)&programs->skeleton->bss->cpus[cpu];
}

const struct raw_device *programs_device(const struct programs *programs, unsigned int device)
{
	return (const struct raw_device *)&programs->skeleton->bss->devices[device];
}

const char *programs_why_no_pages(const struct programs *programs)
{
	if (programs->skeleton->bss->vmemmap)
		return NULL;
	return programs->is_refused ? "the kernel does not run the program that reads their place"
				    : place_unknown;
}

bool programs_know_unheld(const struct programs *programs)
{
	return programs->skeleton->bss->vmemmap && programs->skeleton->bss->tells_slab;
}

uint64_t programs_phys(const struct programs *programs, uint64_t page, unsigned int page_shift,
		       uint64_t offset)
{
	const struct record_bpf__bss *shared = programs->skeleton->bss;

	if (!page || !shared->vmemmap || !shared->page_struct_bytes)
		return 0;
	return ((page - shared->vmemmap) / shared->page_struct_bytes << page_shift) + offset;
}

/* ---- cost ---- */

bool programs_measure(struct programs *programs, bool on)
{
	if (!programs)
		return false;
	if (on && programs->stats < 0) {
		programs->stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
		return programs->stats >= 0;
	}
	if (!on && programs->stats >= 0) {
		close(programs->stats);
		programs->stats = -1;
	}
	return true;
}

void programs_cost(const struct programs *programs, struct programs_cost *cost)
{
	struct bpf_program *program;

	memset(cost, 0, sizeof(*cost));
	if (!programs)
		return;
	bpf_object__for_each_program (program, programs->skeleton->obj) {
		struct bpf_prog_info info = { 0 };
		uint32_t bytes = sizeof(info);

		if (bpf_program__fd(program) < 0 ||
		    bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &bytes))
			continue;
		cost->ns += info.run_time_ns;
		cost->runs += info.run_cnt;
		cost->missed += info.recursion_misses;
	}
}

void programs_print(const struct programs *programs, char *text, size_t room)
{
	struct bpf_program *program;
	size_t used = 0;

	text[0] = 0;
	bpf_object__for_each_program (program, programs->skeleton->obj) {
		const char *name = strchr(bpf_program__section_name(program), '/');

		if (name && bpf_program__autoload(program) && used < room)
			used += snprintf(text + used, room - used, "%s\"%s\"", used ? "," : "",
					 name + 1);
	}
}
