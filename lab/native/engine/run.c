// SPDX-License-Identifier: GPL-2.0-only
/* The course of a run, its checks, and its result; see run.h. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "run.h"

#define WARM_POLLS	16u	/* steady polls of each CPU before the measurement */
#define POLLS_MIN	8u	/* a measurement goes on until each CPU has recorded so many */
#define MORE_MS		10u
#define LONGEST_MS	5000u	/* of the time before the measurement, and of the measurement */
#define HUGE_BYTES	(2ULL << 20)

struct run run = { .grow_lock = PTHREAD_MUTEX_INITIALIZER };

void *run_alloc(size_t count, size_t bytes)
{
	size_t all = (count * bytes + 63) & ~(size_t)63;
	void *memory = aligned_alloc(64, all);

	if (!memory)
		native_fail("no memory");
	return memset(memory, 0, all);
}

/* Zeroed memory in huge pages, as the kernel's own mapping of its memory has; or in small pages. */
static void *map_huge(size_t bytes)
{
	u8 *memory = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		native_fail("no address space for memory");
	memory += -(u64)memory & (HUGE_BYTES - 1);
	madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

/* ---- set-up ---- */

static void make_memory(void)
{
	u64 pages = (u64)run.options.count * run.options.ring;

	native_table = map_huge((NATIVE_IOVA_END >> XS_PAGE_LG2) * sizeof(*native_table));
	native_pages = map_huge(pages * sizeof(*native_pages));
	native_memory = map_huge(pages << XS_PAGE_LG2);
	for (u64 i = 0; i < pages; i++)
		native_pages[i].refs = 1;
	if (run.options.bytes)
		memset(native_memory, 1, pages << XS_PAGE_LG2);
}

static void make_workers(void)
{
	const struct run_options *options = &run.options;

	run.workers = run_alloc(options->count, sizeof(*run.workers));
	if (options->elsewhere && options->count > 1)
		run.mailboxes = run_alloc((size_t)options->count * options->count,
					  sizeof(*run.mailboxes));
	for (u32 i = 0; i < options->count; i++) {
		struct worker *worker = &run.workers[i];

		native_make_cpu(i);
		worker->id = i;
		worker->phys = (u64)i * options->ring << XS_PAGE_LG2;
		worker->iovas = run_alloc(options->ring, sizeof(u64));
		worker->unmaps = run_alloc(2 * (size_t)options->ring, sizeof(u64));
		worker->drawn = 0x9e3779b97f4a7c15ULL * (i + 1);
		worker->map_ps = run_alloc(POLLS_MAX, sizeof(u64));
		worker->unmap_ps = run_alloc(POLLS_MAX, sizeof(u64));
	}
}

static void make_engine(void)
{
	struct xs_tuning tuning = xs_tuning_default(run.options.policy);
	struct xs_engine_config config = {
		.ops = &native_ops,
		.start = XS_PAGE_BYTES,
		.end = NATIVE_IOVA_END,
		.cpu_count = run.options.count,
		.policy = run.options.policy,
		.tuning = &tuning,
	};

	tuning.batch_aware = run.options.aware;
	tuning.pool_mib = XS_POOL_MAX_MIB;
	if (run.options.bytes)
		tuning.copy_bytes = run.options.bytes;
	run.engine = run_alloc(1, sizeof(*run.engine));
	if (xs_engine_init(run.engine, &config))
		native_fail("the engine does not start");
	if (run.options.bytes && xs_engine_add_pool(run.engine))
		native_fail("the engine has no pool");
}

/* ---- the measurement ---- */

static void sleep_ms(u32 ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&time, NULL);
}

static bool all_are_warm(void)
{
	for (u32 i = 0; i < run.options.count; i++)
		if (xs_load(&run.workers[i].steady) < WARM_POLLS)
			return false;
	return true;
}

static bool all_have_recorded(void)
{
	for (u32 i = 0; i < run.options.count; i++)
		if (xs_load(&run.workers[i].polls) < POLLS_MIN)
			return false;
	return true;
}

/* Sleeps for a time, and longer until a condition holds. Returns false after LONGEST_MS. */
static bool sleep_until(bool (*holds)(void), u32 ms)
{
	sleep_ms(ms);
	for (u32 more = 0; !holds(); more += MORE_MS) {
		if (more >= LONGEST_MS)
			return false;
		sleep_ms(MORE_MS);
	}
	return true;
}

static void measure(void)
{
	/* A pool that is too small stays so: the result says how many buffers were copied. */
	sleep_until(all_are_warm, run.options.warm_ms);
	xs_store_release(&run.phase, RUN_MEASURE);
	if (!sleep_until(all_have_recorded, run.options.ms))
		native_fail("a CPU makes no polls: another program runs there, or the wait is too long");
	xs_store_release(&run.phase, RUN_STOP);
}

/* ---- the result ---- */

static int compare(const void *a, const void *b)
{
	u64 left = *(const u64 *)a, right = *(const u64 *)b;

	return left < right ? -1 : left > right;
}

/* Prints median and mean over the polls of all CPUs, of maps, unmaps, or both. */
static void tell_times(const char *name, bool maps, bool unmaps)
{
	u64 polls = 0, sum = 0, at = 0;
	u64 *all;

	for (u32 i = 0; i < run.options.count; i++)
		polls += run.workers[i].polls;
	all = run_alloc(polls, sizeof(*all));
	for (u32 i = 0; i < run.options.count; i++) {
		const struct worker *worker = &run.workers[i];

		for (u32 poll = 0; poll < worker->polls; poll++) {
			u64 ps = (maps ? worker->map_ps[poll] : 0) +
				 (unmaps ? worker->unmap_ps[poll] : 0);

			all[at++] = ps;
			sum += ps;
		}
	}
	qsort(all, polls, sizeof(*all), compare);
	printf(", \"%s_ps\": %llu, \"%s_mean_ps\": %llu", name,
	       (unsigned long long)all[polls / 2], name, (unsigned long long)(sum / polls));
	free(all);
}

/* Prints a list of numbers with an element for each CPU. */
static void tell_each(const char *name, u64 (*value)(const struct worker *worker))
{
	printf(", \"%s\": [", name);
	for (u32 i = 0; i < run.options.count; i++)
		printf("%s%llu", i ? ", " : "", (unsigned long long)value(&run.workers[i]));
	printf("]");
}

static u64 cpu_of(const struct worker *worker)
{
	return (u64)run.options.cpus[worker->id];
}

static u64 running_permille(const struct worker *worker)
{
	u64 ns = worker->ended_ns - worker->began_ns;

	return (worker->ended_cpu_ns - worker->began_cpu_ns) * 1000 / (ns ? ns : 1);
}

static u64 cmpxchg_before(const struct worker *worker)
{
	return worker->cmpxchg_ps[0];
}

static u64 cmpxchg_after(const struct worker *worker)
{
	return worker->cmpxchg_ps[1];
}

static u64 clock_of(const struct worker *worker)
{
	return worker->clock_ps[0];
}

static u64 polls_of(const struct worker *worker)
{
	return worker->polls;
}

static u64 commands_of(const struct worker *worker)
{
	return worker->ended_commands - worker->began_commands;
}

static u64 copies_of(const struct worker *worker)
{
	return worker->recorded_copies;
}

static u64 unmaps_of(const struct worker *worker)
{
	return worker->recorded_unmaps;
}

static void tell_number(const char *name, u64 value)
{
	printf(", \"%s\": %llu", name, (unsigned long long)value);
}

static void tell_counts(const struct xs_stats *stats)
{
	struct native_area sum = { 0 };

	for (u32 i = 0; i < run.options.count; i++) {
		sum.commands_page += native_areas[i]->commands_page;
		sum.commands_domain += native_areas[i]->commands_domain;
	}
	printf(", \"sent\": {\"page\": %llu, \"domain\": %llu, \"global\": 0}",
	       (unsigned long long)sum.commands_page, (unsigned long long)sum.commands_domain);
	printf(", \"counted\": {\"page\": %llu, \"domain\": %llu, \"global\": %llu}",
	       (unsigned long long)stats->commands_page,
	       (unsigned long long)stats->commands_domain,
	       (unsigned long long)stats->commands_global);
	printf(", \"flushes\": {");
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		printf("%s\"%s\": %llu", i ? ", " : "", xs_flush_name(i),
		       (unsigned long long)stats->flushes[i]);
	printf("}");
}

static void check(const struct xs_stats *stats, u64 maps, u64 unmaps)
{
	u64 removed = 0, copied = stats->counts.copied_maps;

	for (u32 i = 0; i < run.options.count; i++)
		removed += native_areas[i]->removed_pages;
	if (maps != unmaps)
		native_fail("pages are left in a mailbox");
	if (xs_counts_mapped(&stats->counts) + copied != maps ||
	    xs_counts_unmapped(&stats->counts) + stats->counts.copied_unmaps != unmaps)
		native_fail("the engine has counted other maps or unmaps than were made");
	if (removed != maps - copied)
		native_fail("the backend was told to remove other pages than were mapped");
	for (u64 i = 0; i < (u64)run.options.count * run.options.ring; i++)
		if (native_pages[i].refs != 1)
			native_fail("pages are still held after the last flush");
}

static void tell(const struct xs_stats *stats, u64 maps, u64 unmaps, u64 handed)
{
	printf("{\"policy\": \"%s\", \"aware\": %s", run.options.policy->name,
	       run.options.aware ? "true" : "false");
	tell_number("ring", run.options.ring);
	tell_number("elsewhere", run.options.elsewhere);
	tell_number("bytes", run.options.bytes);
	tell_number("wait_ns", native_wait_ns);
	tell_each("cpus", cpu_of);
	tell_times("map", true, false);
	tell_times("unmap", false, true);
	tell_times("page", true, true);
	tell_number("maps", maps);
	tell_number("unmaps", unmaps);
	tell_number("handed", handed);
	tell_counts(stats);
	tell_each("polls", polls_of);
	tell_each("recorded_commands", commands_of);
	tell_each("recorded_copies", copies_of);
	tell_each("recorded_unmaps", unmaps_of);
	tell_each("running_permille", running_permille);
	tell_each("cmpxchg_before_ps", cmpxchg_before);
	tell_each("cmpxchg_after_ps", cmpxchg_after);
	tell_each("clock_ps", clock_of);
	printf("}\n");
}

/* Unmaps pages that no CPU has taken, flushes, checks, and prints. */
static void finish(void)
{
	static struct xs_stats stats;
	u32 count = run.options.count;
	u64 maps = 0, unmaps = 0, handed = 0, iova;

	for (size_t i = 0; run.mailboxes && i < (size_t)count * count; i++)
		for (; mailbox_take(&run.mailboxes[i], &iova); unmaps++)
			worker_unmap(iova);
	xs_engine_flush(run.engine, XS_FLUSH_DRAIN);
	if (xs_engine_leak_check(run.engine, &stats))
		native_fail("mappings are left after the last unmap");
	for (u32 i = 0; i < count; i++) {
		maps += run.workers[i].maps;
		unmaps += run.workers[i].unmapped;
		handed += run.workers[i].handed;
	}
	check(&stats, maps, unmaps);
	tell(&stats, maps, unmaps, handed);
	xs_engine_destroy(run.engine);
}

void run_do(void)
{
	driver_check_platform();
	make_memory();
	make_workers();
	pthread_barrier_init(&run.barrier, NULL, run.options.count + 1);
	for (u32 i = 0; i < run.options.count; i++)
		if (pthread_create(&run.workers[i].thread, NULL, worker_main, &run.workers[i]))
			native_fail("a thread does not start");
	pthread_barrier_wait(&run.barrier);
	native_become(0);
	make_engine();
	run.limit_ns = native_now() + 3 * LONGEST_MS * 1000000ULL;
	pthread_barrier_wait(&run.barrier);
	/* The CPUs calibrate. */
	pthread_barrier_wait(&run.barrier);
	measure();
	pthread_barrier_wait(&run.barrier);
	/* The CPUs calibrate again. */
	pthread_barrier_wait(&run.barrier);
	for (u32 i = 0; i < run.options.count; i++)
		pthread_join(run.workers[i].thread, NULL);
	finish();
}
