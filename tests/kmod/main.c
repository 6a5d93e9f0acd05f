// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kernel part of the unit tests' harness, and the module that runs the tests on loading. A
 * failing test fails loading; otherwise the parameter "result" holds the number of passed
 * tests.
 */
#include <linux/completion.h>
#include <linux/irqflags.h>
#include <linux/kthread.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "../unit/harness.h"

static char *only;
module_param(only, charp, 0444);
MODULE_PARM_DESC(only, "run this test only");

static unsigned long long seed;
module_param(seed, ullong, 0444);
MODULE_PARM_DESC(seed, "run randomized tests with this seed only");

static unsigned int percent = 10;
module_param(percent, uint, 0444);
MODULE_PARM_DESC(percent, "of the seeds to run");

static char result[40];
module_param_string(result, result, sizeof(result), 0444);
MODULE_PARM_DESC(result, "how the tests went");

/* ---- CPUs ---- */

struct cpu_thread {
	struct task_struct *task;
	struct completion done;
	void (*run)(void *argument, u32 cpu);
	void *argument;
	u32 cpu;
};

static struct cpu_thread threads[TEST_CPUS];

/* CPU number of the thread that loads the module, which is not a cpu_thread. */
static u32 main_cpu;

u32 test_cpu(void)
{
	for (u32 i = 0; i < TEST_CPUS; i++)
		if (READ_ONCE(threads[i].task) == current)
			return i;
	return main_cpu;
}

void test_be_cpu(u32 cpu)
{
	main_cpu = cpu;
}

bool test_can_sleep(void)
{
	return !irqs_disabled();
}

/* There are no points for interrupts; see test_point(). */
void test_interrupts(void (*handler)(void *argument), void *argument)
{
}

/* The kernel's watchdogs detect a hanging test. */
void test_begin(const char *name)
{
}

void test_relax(void)
{
	cond_resched();
}

/* The thread waits for kthread_stop(), so that no thread runs in a removed module. */
static int thread_main(void *argument)
{
	struct cpu_thread *thread = argument;

	thread->run(thread->argument, thread->cpu);
	complete(&thread->done);
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (kthread_should_stop())
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

static bool thread_start(struct cpu_thread *thread)
{
	struct task_struct *task = kthread_create(thread_main, thread,
						  "xsmmu_test/%u", thread->cpu);

	init_completion(&thread->done);
	if (!CHECK(!IS_ERR(task)))
		return false;
	WRITE_ONCE(thread->task, task);
	return true;
}

/* Supports free running only: the kernel's scheduler does not take turns from a seed. */
bool test_threads(u32 count, u64 turns, void (*run)(void *argument, u32 cpu),
		  void *argument)
{
	u32 started = 0;

	if (turns)
		return false;
	for (; started < count; started++) {
		threads[started].run = run;
		threads[started].argument = argument;
		threads[started].cpu = started;
		if (!thread_start(&threads[started]))
			break;
	}
	for (u32 i = 0; i < started; i++)
		wake_up_process(threads[i].task);
	for (u32 i = 0; i < started; i++)
		wait_for_completion(&threads[i].done);
	for (u32 i = 0; i < started; i++) {
		kthread_stop(threads[i].task);
		WRITE_ONCE(threads[i].task, NULL);
	}
	return true;
}

/* ---- memory and output ---- */

/* Only the thread that loads the module asks for large memory. */
#define ATOMIC_MAX	SZ_64K

void *test_alloc(size_t bytes)
{
	/* kmalloc() aligns power-of-two sizes to the size. */
	size_t room = roundup_pow_of_two(max_t(size_t, bytes, SMP_CACHE_BYTES));
	void *memory = bytes > ATOMIC_MAX ? kvzalloc(bytes, GFP_KERNEL) :
					    kzalloc(room, GFP_ATOMIC);

	if (!memory)
		panic("xsmmu_test: no memory");
	return memory;
}

void test_free(void *memory)
{
	kvfree(memory);
}

void test_print(const char *format, ...)
{
	va_list arguments;
	struct va_format line = { .fmt = format, .va = &arguments };

	va_start(arguments, format);
	pr_info("xsmmu_test: %pV\n", &line);
	va_end(arguments);
}

static int __init test_init(void)
{
	const struct test_options options = {
		.only = only, .seed = seed, .percent = percent,
	};
	struct test_result counted = test_run(&options);

	snprintf(result, sizeof(result), "%u passed, %u failed",
		 counted.passed, counted.failed);
	if (!counted.failed && counted.passed)
		return 0;
	pr_err("xsmmu_test: FAILED: %s\n", result);
	return -EIO;
}

static void __exit test_exit(void)
{
}

module_init(test_init);
module_exit(test_exit);
MODULE_DESCRIPTION("xsmmu: the engine's unit tests in the kernel");
MODULE_LICENSE("GPL");
