/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A test harness for two platforms: the same files run in userspace and inside a kernel module.
 * Tests call only this header, unit_world.h and the engine.
 *
 * A test is a function. A failed CHECK() fails the test and continues, so loops check
 * test_failed(). The first failure of a test is printed with seed and step.
 */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include <xsmmu/needs.h>

struct test {
	const char *name;
	void (*run)(void);
	bool threads;	/* the test calls test_threads() */
};

/* Tests of each file, in the order of running; an empty name ends each list. */
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
extern const struct test identity_tests[];
extern const struct test sequence_tests[];
extern const struct test thread_tests[];

/* Selects tests. @only: a test's name, NULL for all. */
struct test_options {
	const char *only;
	bool threads;	/* only tests with threads */
	u64 seed;	/* the only seed of a randomized test, 0: the test's own range */
	u32 percent;	/* share of the seeds to run, for slow platforms */
	bool stop;	/* at the first failure */
};

struct test_result {
	u32 passed;
	u32 failed;
};

/* Run the tests and print a TAP line each. */
struct test_result test_run(const struct test_options *options);

/* ---- in a test ---- */

#define CHECK(condition) \
	test_check(!!(condition), __FILE__, __LINE__, #condition)

/* Returns @ok; false fails the running test. Any context. */
bool test_check(bool ok, const char *file, int line, const char *text);

bool test_failed(void);

/* Does the running test have threads? */
bool test_has_threads(void);

/* Name the run of a randomized test, for the report of a failure. */
void test_replay(u64 seed, u32 step);

/* Call @run with @count seeds, or with the requested seed; stops at a failure. */
void test_seeds(u32 count, void (*run)(u64 seed));

/* Returns the next 64 random bits; the initial @state is the seed. */
u64 test_random(u64 *state);

/* Returns a random number below @limit, which is not 0. */
u32 test_below(u64 *state, u32 limit);

/* Is @cpu between xs_enter() and xs_exit()? */
bool test_is_entered(u32 cpu);

/*
 * Wait until each CPU between xs_enter() and xs_exit() has left once. The caller is not between
 * them.
 */
void test_quiesce(void);

/* ---- functions of the platform (user.c, tests/kmod/main.c) ---- */

/* Print a line, formatted as by printf with %s, %u, %d and %llu. */
void test_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns zeroed memory that starts on a cache line; never NULL. Any context. */
void *test_alloc(size_t bytes);
void test_free(void *memory);

/* Become CPU @cpu, below TEST_CPUS. */
void test_be_cpu(u32 cpu);

/* May the caller sleep? */
bool test_can_sleep(void);

/* Begin a test, with a limit on the running time. */
void test_begin(const char *name);

/* Let other threads run, in a long or waiting loop. The caller holds no lock. */
void test_relax(void);

/*
 * Call @handler with @argument now and then on this thread, at any test_point() with interrupts
 * on, as an interrupt would; NULL: stop. Platforms without points never call the handler.
 */
void test_interrupts(void (*handler)(void *argument), void *argument);

/*
 * Run @run on @count CPUs at once, from CPU 0 up. If @seed is not 0, only one CPU runs at a
 * time, and @seed determines the switches at each test_point(), so that a run can be repeated.
 * Returns false if the platform does not support seeds.
 */
bool test_threads(u32 count, u64 seed, void (*run)(void *argument, u32 cpu),
		  void *argument);

#endif
