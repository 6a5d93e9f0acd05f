/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a platform of the tests has beside locks and atomics, in userspace and
 * in the kernel alike: pages, gathers and counts of the tests' own world.
 */
#ifndef XSMMU_PLATFORM_TEST_H
#define XSMMU_PLATFORM_TEST_H

#define TEST_CPUS	8

/* Half of them. */
#define XS_RECLAIM_CPUS	4u

/* Counted for each CPU, so that a world can wait for an exit; see test_quiesce(). */
void xs_enter(void);
void xs_exit(void);

/* Counts what the engine warns of; see unit_world.h. */
bool xs_warn_once(bool broken, const char *text);

/* @removed pages of the world's table carry the tag @id until they are covered. */
typedef struct {
	u32 id;
	u32 removed;
} xs_gather_t;

#include <xsmmu/modelled.h>

#define xs_count_cpu(c)	(xs_counts_of(c, xs_cpu_id())->cpu)
#define xs_count(c, field, n) \
	((void)__atomic_fetch_add(&xs_counts_of(c, test_cpu())->field, n, __ATOMIC_RELAXED))

/* The CPU that the caller is, whether it is bound to it or not. */
u32 test_cpu(void);

#endif
