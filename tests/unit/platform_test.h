/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parts of the test platforms common to userspace and the kernel, beside locks and atomics:
 * pages, gathers and counts of the tests' world.
 */
#ifndef XSMMU_PLATFORM_TEST_H
#define XSMMU_PLATFORM_TEST_H

#define TEST_CPUS	8

/* Half of the CPUs. */
#define XS_RECLAIM_CPUS	4u

/* Counted per CPU, so that a test can wait for an exit; see test_quiesce(). */
void xs_enter(void);
void xs_exit(void);

/* Counts the engine's warnings; see unit_world.h. */
bool xs_warn_once(bool broken, const char *text);

/* @removed pages of the world's table carry the tag @id until an invalidation covers them. */
typedef struct {
	u32 id;
	u32 removed;
} xs_gather_t;

#include <xsmmu/modelled.h>

#define xs_count_cpu(c)	(xs_counts_of(c, xs_cpu_id())->cpu)
#define xs_count(c, field, n) \
	((void)__atomic_fetch_add(&xs_counts_of(c, test_cpu())->field, n, __ATOMIC_RELAXED))

/* Returns the caller's CPU, whether pinned or not. */
u32 test_cpu(void);

#endif
