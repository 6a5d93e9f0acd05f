// SPDX-License-Identifier: GPL-2.0-only
/*
 * Userspace part of the harness: CPUs as threads, and a scheduler that runs one thread at a
 * time for repeatable runs.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

/* ---- this thread ---- */

static _Thread_local struct {
	u32 cpu;
	bool scheduled;		/* by turns, see below */
	u32 off;		/* nesting depth of disabled interrupts */
	u32 locks;		/* number of locks held */
	u64 random;
	void (*interrupt)(void *argument);
	void *argument;
} me;

void test_be_cpu(u32 cpu)
{
	me.cpu = cpu;
}

u32 test_cpu(void)
{
	return me.cpu;
}

u32 xs_cpu_id(void)
{
	CHECK(me.off || test_is_entered(me.cpu));
	return me.cpu;
}

bool test_can_sleep(void)
{
	return !me.off && !me.locks;
}

/* ---- turns: one thread runs at a time ---- */

static struct {
	u32 count;
	u64 random;
	bool done[TEST_CPUS];
	sem_t go[TEST_CPUS];
} turns;

/* Let another living thread continue. */
static void pass_turn(void)
{
	u32 next = test_below(&turns.random, turns.count);

	while (turns.done[next])
		next = (next + 1) % turns.count;
	if (next == me.cpu)
		return;
	sem_post(&turns.go[next]);
	while (sem_wait(&turns.go[me.cpu]))
		;
}

void test_interrupts(void (*handler)(void *argument), void *argument)
{
	me.argument = argument;
	me.interrupt = handler;
}

void test_point(void)
{
	if (me.scheduled && !test_below(&turns.random, 3))
		pass_turn();
	if (!me.interrupt || me.off || test_below(&me.random, 64))
		return;
	me.off++;
	me.interrupt(me.argument);
	CHECK(--me.off == 0);
}

/* The last turn of this thread. */
static void end_turns(void)
{
	turns.done[me.cpu] = true;
	for (u32 i = 0; i < turns.count; i++)
		if (!turns.done[i]) {
			sem_post(&turns.go[i]);
			return;
		}
}

struct thread {
	pthread_t thread;
	void (*run)(void *argument, u32 cpu);
	void *argument;
	u32 cpu;
	u64 seed;
};

static void *thread_main(void *argument)
{
	struct thread *thread = argument;

	me.cpu = thread->cpu;
	me.random = thread->seed + thread->cpu;
	me.scheduled = thread->seed;
	if (me.scheduled)
		while (sem_wait(&turns.go[me.cpu]))
			;
	thread->run(thread->argument, thread->cpu);
	if (me.scheduled)
		end_turns();
	return NULL;
}

/* Pin threads to this CPU: passing a turn to another CPU takes several times as long. */
static void stay_here(pthread_attr_t *attributes)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	pthread_attr_setaffinity_np(attributes, sizeof(here), &here);
}

bool test_threads(u32 count, u64 seed, void (*run)(void *argument, u32 cpu),
		  void *argument)
{
	struct thread threads[TEST_CPUS];
	pthread_attr_t attributes;

	CHECK(test_has_threads());
	pthread_attr_init(&attributes);
	if (seed)
		stay_here(&attributes);
	turns.count = count;
	turns.random = seed;
	for (u32 i = 0; i < count; i++) {
		turns.done[i] = false;
		sem_init(&turns.go[i], 0, i == 0);
		threads[i] = (struct thread){ .run = run, .argument = argument,
					      .cpu = i, .seed = seed };
	}
	for (u32 i = 0; i < count; i++)
		/* If the CPU is gone, run on any CPU. */
		if (pthread_create(&threads[i].thread, &attributes,
				   thread_main, &threads[i]) &&
		    pthread_create(&threads[i].thread, NULL, thread_main,
				   &threads[i]))
			abort();
	pthread_attr_destroy(&attributes);
	for (u32 i = 0; i < count; i++)
		pthread_join(threads[i].thread, NULL);
	for (u32 i = 0; i < count; i++)
		sem_destroy(&turns.go[i]);
	return true;
}

void test_relax(void)
{
	CHECK(test_can_sleep());
	if (me.scheduled)
		pass_turn();
	else
		sched_yield();
}

/* ---- locks ---- */

/*
 * A CPU holds at most a CPU's lock, and below that a partial list's, the depot's or the space's
 * lock.
 */
#define LOCKS_MAX	2

static void take(xs_lock_t *lock)
{
	test_point();
	CHECK(++me.locks <= LOCKS_MAX);
	if (!pthread_mutex_trylock(&lock->mutex))
		return;
	if (!me.scheduled) {
		if (pthread_mutex_lock(&lock->mutex)) {
			test_print("# a lock was taken twice");
			abort();
		}
		return;
	}
	while (pthread_mutex_trylock(&lock->mutex))
		pass_turn();
}

static void drop(xs_lock_t *lock)
{
	me.locks--;
	if (pthread_mutex_unlock(&lock->mutex))
		abort();
	test_point();
}

void xs_lock_init(xs_lock_t *lock)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&lock->mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

xs_flags_t xs_local_save(void)
{
	return me.off++;
}

void xs_local_restore(xs_flags_t flags)
{
	CHECK(--me.off == flags);
}

xs_flags_t xs_lock_irqsave(xs_lock_t *lock)
{
	xs_flags_t flags = xs_local_save();

	take(lock);
	return flags;
}

void xs_unlock_irqrestore(xs_lock_t *lock, xs_flags_t flags)
{
	drop(lock);
	xs_local_restore(flags);
}

void xs_lock(xs_lock_t *lock)
{
	CHECK(me.off);
	take(lock);
}

void xs_unlock(xs_lock_t *lock)
{
	drop(lock);
}

/* Locking fails if any thread has the lock, because an error-checking lock is not taken twice. */
void xs_assert_locked(xs_lock_t *lock)
{
	int error = pthread_mutex_trylock(&lock->mutex);

	CHECK(error);
	if (!error)
		pthread_mutex_unlock(&lock->mutex);
}

/* ---- the rest ---- */

void test_print(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

void *test_alloc(size_t bytes)
{
	void *memory;

	if (posix_memalign(&memory, 64, bytes))
		abort();
	return memset(memory, 0, bytes);
}

void test_free(void *memory)
{
	free(memory);
}

static const char *running;
static u32 limit_s = 300;	/* for one test */

static void hangs(int signal)
{
	static const char text[] = "\nnot ok - hangs: ";

	(void)signal;
	if (write(STDOUT_FILENO, text, sizeof(text) - 1) < 0 ||
	    write(STDOUT_FILENO, running, strlen(running)) < 0 ||
	    write(STDOUT_FILENO, "\n", 1) < 0)
		_exit(3);
	_exit(1);
}

void test_begin(const char *name)
{
	running = name;
	signal(SIGALRM, hangs);
	alarm(limit_s);
}

static bool parse(const char *word, struct test_options *options)
{
	const char *value = strchr(word, '=');

	if (!value++)
		return false;
	if (!strncmp(word, "only=", 5))
		options->only = value;
	else if (!strncmp(word, "threads=", 8))
		options->threads = *value == '1';
	else if (!strncmp(word, "seed=", 5))
		options->seed = strtoull(value, NULL, 0);
	else if (!strncmp(word, "percent=", 8))
		options->percent = (u32)strtoul(value, NULL, 0);
	else if (!strncmp(word, "limit=", 6))
		limit_s = (u32)strtoul(value, NULL, 0);
	else if (!strncmp(word, "stop=", 5))
		options->stop = *value == '1';
	else
		return false;
	return true;
}

int main(int count, char **words)
{
	struct test_options options = { .percent = 100 };

	for (int i = 1; i < count; i++)
		if (!parse(words[i], &options)) {
			test_print("usage: unit [only=TEST] [threads=1] [seed=N] [percent=N] [limit=SECONDS] [stop=1]");
			return 2;
		}
	return test_run(&options).failed ? 1 : 0;
}
