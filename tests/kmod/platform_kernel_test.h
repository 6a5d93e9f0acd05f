/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel as the unit tests' platform: Linux's own locks and atomics, and the tests' pages,
 * gathers and counts. Here, too, a CPU is a thread.
 */
#ifndef XSMMU_PLATFORM_KERNEL_TEST_H
#define XSMMU_PLATFORM_KERNEL_TEST_H

#include <linux/kernel.h>

#include "../../kmod/primitives.h"

#define xs_cpu_id()		test_cpu()

/* No turns between CPUs here; see test_threads(). */
#define test_point()		((void)0)

#include "../unit/platform_test.h"

#endif
