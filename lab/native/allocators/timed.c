// SPDX-License-Identifier: GPL-2.0-only
/* xsmmu-allocators-time: times an allocator on real CPUs; see timed.h. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timed.h"

#define IOVA_END	(1ULL << 40)	/* room for what waits in mailboxes */
#define POLLS_MIN	4u	/* the measurement goes on until each thread has recorded so many */
#define LONGEST_MS	20000u
#define PARKED_RINGS	100u

struct timed timed;
struct waits timed_waits[NATIVE_CPUS];

/* ---- the program's part of the interface ---- */

const struct xs_backend_ops *const program_ops = &native_ops;

void *program_alloc(size_t bytes)
{
	size_t room = (bytes + 63) & ~(size_t)63;
	void *memory = aligned_alloc(64, room);

	if (!memory)
		native_fail("no memory");
	return memset(memory, 0, room);
}

void program_free(void *memory, size_t bytes)
{
	(void)bytes;
	free(memory);
}

void program_fail(const char *text)
{
	native_fail(text);
}

/* ---- locks ---- */

void __real_native_lock_wait(xs_lock_t *lock);
void __wrap_native_lock_wait(xs_lock_t *lock);

/* A thread that shares a CPU must let the lock's owner run. */
static void wait_and_yield(xs_lock_t *lock)
{
	u32 unlocked = 0;

	while (!__atomic_compare_exchange_n(&lock->word, &unlocked, NATIVE_LOCKED, false,
					    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		unlocked = 0;
		sched_yield();
	}
}

/* The linker puts this before the platform's wait, which only a contended lock reaches. */
void __wrap_native_lock_wait(xs_lock_t *lock)
{
	struct waits *waits = &timed_waits[xs_cpu_id()];
	u64 start = native_now(), ns;

	if (timed.options.shared)
		wait_and_yield(lock);
	else
		__real_native_lock_wait(lock);
	ns = native_now() - start;
	waits->count++;
	if (ns > waits->longest_ns)
		waits->longest_ns = ns;
}

/* ---- the run ---- */

static void make_pollers(void)
{
	const struct timed_options *options = &timed.options;

	timed.pollers = program_alloc(options->count * sizeof(*timed.pollers));
	if (options->elsewhere && options->count > 1)
		timed.mailboxes = program_alloc((size_t)options->count * options->count *
						sizeof(*timed.mailboxes));
	for (u32 i = 0; i < options->count; i++) {
		struct poller *poller = &timed.pollers[i];

		native_make_cpu(i);
		poller->id = i;
		poller->drawn = 0x9e3779b97f4a7c15ULL * (i + 1);
		poller->ring = program_alloc(options->ring * sizeof(u64));
		poller->sizes = program_alloc(options->ring * sizeof(u32));
		poller->unmaps = program_alloc(2 * (size_t)options->ring * sizeof(u64));
		poller->pair_ps = program_alloc(POLLS_MAX * sizeof(u64));
		if (options->mixed)
			poller->parked_count = options->ring * PARKED_RINGS / PARKED_PART;
		poller->parked = program_alloc((poller->parked_count + 1) * sizeof(u64));
		poller->kept_count = options->kept / options->count;
		poller->kept = program_alloc((poller->kept_count + 1) * sizeof(u64));
	}
}

static void sleep_ms(u32 ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&time, NULL);
}

static bool all_have_recorded(void)
{
	for (u32 i = 0; i < timed.options.count; i++)
		if (xs_load(&timed.pollers[i].polls) < POLLS_MIN)
			return false;
	return true;
}

static void measure(void)
{
	sleep_ms(timed.options.warm_ms);
	xs_store_release(&timed.phase, TIMED_MEASURE);
	sleep_ms(timed.options.ms);
	for (u32 more = 0; !all_have_recorded(); more += timed.options.ms) {
		if (more > LONGEST_MS)
			native_fail("a thread makes no polls: another program runs on its CPU");
		sleep_ms(timed.options.ms);
	}
	xs_store_release(&timed.phase, TIMED_STOP);
}

/* ---- the result ---- */

static int compare(const void *a, const void *b)
{
	u64 left = *(const u64 *)a, right = *(const u64 *)b;

	return left < right ? -1 : left > right;
}

static u64 median_ps(void)
{
	u64 polls = 0, at = 0, *all, median;

	for (u32 i = 0; i < timed.options.count; i++)
		polls += timed.pollers[i].polls;
	all = program_alloc(polls * sizeof(*all));
	for (u32 i = 0; i < timed.options.count; i++) {
		memcpy(all + at, timed.pollers[i].pair_ps, timed.pollers[i].polls * sizeof(*all));
		at += timed.pollers[i].polls;
	}
	qsort(all, polls, sizeof(*all), compare);
	median = all[polls / 2];
	free(all);
	return median;
}

static void tell(void)
{
	u64 maps = 0, unmaps = 0, handed = 0, waits = 0, longest_ns = 0, running = 1000;

	for (u32 i = 0; i < timed.options.count; i++) {
		const struct poller *poller = &timed.pollers[i];
		u64 permille = poller->cpu_ns * 1000 / (poller->ns ? poller->ns : 1);

		maps += poller->maps;
		unmaps += poller->unmapped;
		handed += poller->handed;
		waits += timed_waits[i].count;
		running = permille < running ? permille : running;
		if (timed_waits[i].longest_ns > longest_ns)
			longest_ns = timed_waits[i].longest_ns;
	}
	printf("{\"allocator\": \"%s\", \"threads\": %u, \"shared\": %s, \"pair_ps\": %llu, "
	       "\"maps\": %llu, \"unmaps\": %llu, \"handed\": %llu, \"waits\": %llu, "
	       "\"longest_ns\": %llu, \"running_permille\": %llu}\n",
	       timed.options.allocator->name, timed.options.count,
	       timed.options.shared ? "true" : "false", (unsigned long long)median_ps(),
	       (unsigned long long)maps, (unsigned long long)unmaps, (unsigned long long)handed,
	       (unsigned long long)waits, (unsigned long long)longest_ns,
	       (unsigned long long)running);
}

static void run(void)
{
	u32 count = timed.options.count;

	make_pollers();
	native_become(0);
	timed.state = timed.options.allocator->make(count, IOVA_END);
	pthread_barrier_init(&timed.barrier, NULL, count + 1);
	for (u32 i = 0; i < count; i++)
		if (pthread_create(&timed.pollers[i].thread, NULL, poller_main, &timed.pollers[i]))
			native_fail("a thread does not start");
	pthread_barrier_wait(&timed.barrier);
	measure();
	pthread_barrier_wait(&timed.barrier);
	for (u32 i = 0; i < count; i++)
		pthread_join(timed.pollers[i].thread, NULL);
	tell();
	for (u32 i = 0; i < count; i++)
		poller_drain(&timed.pollers[i]);
	if (timed.options.allocator->left(timed.state))
		native_fail("IOVAs are left after the last free");
}

/* ---- options ---- */

static int usage(void)
{
	fprintf(stderr,
		"usage: xsmmu-allocators-time --allocator NAME [--cpus N,N...] [--elsewhere PERCENT]\n"
		"         [--ring BUFFERS] [--kept N] [--pages N] [--sizes] [--mixed] [--warm MS]\n"
		"         [--ms MS]\n");
	return 2;
}

/* 0,1,0,1: a thread each. */
static bool parse_cpus(struct timed_options *options, const char *value)
{
	char *end;

	for (options->count = 0; options->count < NATIVE_CPUS; value = end + 1) {
		int cpu = (int)strtoul(value, &end, 10);

		if (end == value)
			return false;
		for (u32 i = 0; i < options->count; i++)
			options->shared |= options->cpus[i] == cpu;
		options->cpus[options->count++] = cpu;
		if (*end != ',')
			return !*end;
	}
	return false;
}

static bool parse_number(struct timed_options *options, const char *word, const char *value)
{
	const struct {
		const char *word;
		u32 *to;
	} numbers[] = {
		{ "--elsewhere", &options->elsewhere }, { "--ring", &options->ring },
		{ "--kept", &options->kept }, { "--pages", &options->pages },
		{ "--warm", &options->warm_ms }, { "--ms", &options->ms },
	};
	char *end;

	for (u32 i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!strcmp(word, numbers[i].word)) {
			*numbers[i].to = (u32)strtoul(value, &end, 10);
			return end != value && !*end;
		}
	return false;
}

static bool parse(struct timed_options *options, int words, char **word)
{
	for (int i = 1; i < words; i++) {
		if (!strcmp(word[i], "--sizes"))
			options->sizes = true;
		else if (!strcmp(word[i], "--mixed"))
			options->mixed = true;
		else if (i + 1 == words)
			return false;
		else if (!strcmp(word[i], "--allocator"))
			options->allocator = iova_find(word[++i]);
		else if (!strcmp(word[i], "--cpus") && parse_cpus(options, word[i + 1]))
			i++;
		else if (parse_number(options, word[i], word[i + 1]))
			i++;
		else
			return false;
	}
	return options->allocator && options->elsewhere <= 100 && options->ring &&
	       options->ring <= 1u << 16 && options->pages <= 512 && options->ms;
}

int main(int words, char **word)
{
	timed.options = (struct timed_options) {
		.count = 1, .ring = 1024, .warm_ms = 10, .ms = 20,
	};
	if (!parse(&timed.options, words, word))
		return usage();
	run();
	return 0;
}
