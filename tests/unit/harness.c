// SPDX-License-Identifier: GPL-2.0-only
/* The harness code common to both platforms. */
#include "harness.h"

static const struct test *const files[] = {
	policy_tests, stats_tests, slot_tests, space_tests, block_tests,
	magazine_tests, batch_tests, pool_tests, engine_tests, place_tests, bad_unmap_tests,
	stuck_tests, identity_tests, sequence_tests, thread_tests,
};

static struct test_options asked;

/* The running test. Threads fail the test too, so accesses are atomic. */
static struct {
	const char *name;
	bool failed;
	u64 seed;
	u32 step;
	bool threads;
} running;

bool test_failed(void)
{
	return __atomic_load_n(&running.failed, __ATOMIC_RELAXED);
}

bool test_has_threads(void)
{
	return running.threads;
}

void test_replay(u64 seed, u32 step)
{
	__atomic_store_n(&running.seed, seed, __ATOMIC_RELAXED);
	__atomic_store_n(&running.step, step, __ATOMIC_RELAXED);
}

bool test_check(bool ok, const char *file, int line, const char *text)
{
	u64 seed;

	if (xs_likely(ok) ||
	    __atomic_exchange_n(&running.failed, true, __ATOMIC_RELAXED))
		return ok;
	test_print("# %s:%d: %s", file, line, text);
	seed = __atomic_load_n(&running.seed, __ATOMIC_RELAXED);
	if (seed)
		test_print("# in step %u; replay: only=%s seed=%llu",
			   __atomic_load_n(&running.step, __ATOMIC_RELAXED),
			   running.name, (unsigned long long)seed);
	return ok;
}

void test_seeds(u32 count, void (*run)(u64 seed))
{
	count = count * asked.percent / 100 + 1;
	if (asked.seed) {
		run(asked.seed);
		return;
	}
	for (u64 seed = 1; seed <= count && !test_failed(); seed++) {
		run(seed);
		test_relax();
	}
}

/* Source: Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014 (SplitMix64).
 */
u64 test_random(u64 *state)
{
	u64 z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

u32 test_below(u64 *state, u32 limit)
{
	return (u32)((test_random(state) >> 32) * limit >> 32);
}

/* ---- enter and exit ---- */

/* @passages is odd while the CPU is inside; only the CPU itself uses @depth. */
static struct {
	u64 passages;
	u32 depth;
} stays[TEST_CPUS];

void xs_enter(void)
{
	u32 cpu = test_cpu();

	if (!stays[cpu].depth++)
		__atomic_add_fetch(&stays[cpu].passages, 1, __ATOMIC_SEQ_CST);
	test_point();
}

void xs_exit(void)
{
	u32 cpu = test_cpu();

	test_point();
	CHECK(stays[cpu].depth);
	if (!--stays[cpu].depth)
		__atomic_add_fetch(&stays[cpu].passages, 1, __ATOMIC_SEQ_CST);
	test_point();
}

bool test_is_entered(u32 cpu)
{
	return stays[cpu].depth;
}

void test_quiesce(void)
{
	CHECK(test_can_sleep() && !test_is_entered(test_cpu()));
	for (u32 cpu = 0; cpu < TEST_CPUS; cpu++) {
		u64 *passages = &stays[cpu].passages;
		/* A CPU that enters later sees all earlier stores of the caller. */
		u64 begun = __atomic_fetch_add(passages, 0, __ATOMIC_SEQ_CST);

		while (begun & 1 &&
		       __atomic_load_n(passages, __ATOMIC_ACQUIRE) == begun)
			test_relax();
	}
}

/* ---- running ---- */

static bool is_name(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

static bool run_one(const struct test *test, u32 number)
{
	running.name = test->name;
	running.threads = test->threads;
	running.failed = false;
	test_replay(0, 0);
	test_be_cpu(0);
	test_begin(test->name);
	test->run();
	test_relax();
	test_print("%sok %u - %s", running.failed ? "not " : "", number,
		   test->name);
	return !running.failed;
}

static void run_file(const struct test *test, struct test_result *result)
{
	for (; test->name; test++) {
		if ((asked.only && !is_name(asked.only, test->name)) ||
		    (asked.threads && !test->threads) ||
		    (asked.stop && result->failed))
			continue;
		if (run_one(test, result->passed + result->failed + 1))
			result->passed++;
		else
			result->failed++;
	}
}

struct test_result test_run(const struct test_options *options)
{
	struct test_result result = { 0, 0 };

	asked = *options;
	for (u32 i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		run_file(files[i], &result);
	test_print("1..%u", result.passed + result.failed);
	test_print("# %u passed, %u failed", result.passed, result.failed);
	return result;
}
