/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A test harness for two worlds: the same files run in userspace and inside a
 * kernel module. Tests call nothing but this, unit_world.h and the engine.
 *
 * A test is a function; CHECK() fails it and goes on, so that loops look at
 * test_failed(). The first failure of a test is printed with its seed and step.
 */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include <xsmmu/needs.h>

struct test {
	const char *name;
	void (*run)(void);
	bool threads;	/* it calls test_threads() */
};

/* Each file's tests, in the order that they run; ends with an empty name. */
extern const struct test policy_tests[];
extern const struct test slot_tests[];
extern const struct test space_tests[];
extern const struct test block_tests[];
extern const struct test magazine_tests[];
extern const struct test batch_tests[];
extern const struct test pool_tests[];
extern const struct test stats_tests[];
extern const struct test engine_tests[];
extern const struct test place_tests[];
extern const struct test bad_unmap_tests[];
extern const struct test stuck_tests[];
extern const struct test sequence_tests[];
extern const struct test thread_tests[];

/* What to run. @only: a test's name, NULL for all. */
struct test_options {
	const char *only;
	bool threads;	/* only those that have threads */
	u64 seed;	/* the only seed of a randomized test, 0: its own range */
	u32 percent;	/* of the seeds to run, to make slow worlds bearable */
	bool stop;	/* at the first failure */
};

struct test_result {
	u32 passed;
	u32 failed;
};

/* Run the tests and print one TAP line each. */
struct test_result test_run(const struct test_options *options);

/* ---- in a test ---- */

#define CHECK(condition) \
	test_check(!!(condition), __FILE__, __LINE__, #condition)

/* Returns @ok, fails the running test if that is false. Any context. */
bool test_check(bool ok, const char *file, int line, const char *text);

bool test_failed(void);

/* Does the running test have threads? */
bool test_has_threads(void);

/* The run of a randomized test that a failure belongs to. */
void test_replay(u64 seed, u32 step);

/* Call @run with @count seeds, or the one asked for; stops at a failure. */
void test_seeds(u32 count, void (*run)(u64 seed));

/* The next 64 random bits; @state is the seed at first. */
u64 test_random(u64 *state);

/* A random number below @limit, which is not 0. */
u32 test_below(u64 *state, u32 limit);

/* Is @cpu between xs_enter() and xs_exit()? */
bool test_is_entered(u32 cpu);

/*
 * Wait until each CPU that is between xs_enter() and xs_exit() has left once. This
 * one is not.
 */
void test_quiesce(void);

/* ---- what each world brings (user.c, tests/kmod/main.c) ---- */

/* Print one line, formatted as by printf with %s, %u, %d and %llu. */
void test_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed memory that starts on a cache line; never NULL. Any context. */
void *test_alloc(size_t bytes);
void test_free(void *memory);

/* Become CPU @cpu, below TEST_CPUS. */
void test_be_cpu(u32 cpu);

/* May the caller sleep? */
bool test_can_sleep(void);

/* A test begins; it must not take for ever. */
void test_begin(const char *name);

/* Let others run, in a loop that is long or waits for them; nothing is locked. */
void test_relax(void);

/*
 * Call @handler with @argument now and then on this thread, at any test_point()
 * with interrupts on, as an interrupt would; NULL: no more. Where the world has
 * no such points it never is.
 */
void test_interrupts(void (*handler)(void *argument), void *argument);

/*
 * Run @run on @count CPUs at once, from CPU 0 up. With @seed not 0 only one
 * runs at a time, and which one goes on at a test_point() is drawn from it, so
 * that each run can be repeated; false if this world cannot do that.
 */
bool test_threads(u32 count, u64 seed, void (*run)(void *argument, u32 cpu),
		  void *argument);

#endif
