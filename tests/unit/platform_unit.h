/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Userspace as a platform of the engine: a CPU is a thread.
 *
 * Under test_threads() with a seed, each atomic operation and each lock is a point at which
 * another CPU may continue. With interrupts on, an interrupt may come there; see
 * test_interrupts().
 */
#ifndef XSMMU_PLATFORM_UNIT_H
#define XSMMU_PLATFORM_UNIT_H

#include <pthread.h>

/* Another CPU may continue here, or an interrupt come; see test_threads(). */
void test_point(void);

#define xs_point()		test_point()
#define xs_store_point()	test_point()

#include <xsmmu/userspace.h>

typedef struct {
	pthread_mutex_t mutex;
} xs_lock_t;

typedef unsigned long xs_flags_t;

/* Locks; xs_lock() and xs_unlock() check that interrupts are off. */
void xs_lock_init(xs_lock_t *lock);
xs_flags_t xs_lock_irqsave(xs_lock_t *lock);
void xs_unlock_irqrestore(xs_lock_t *lock, xs_flags_t flags);
void xs_lock(xs_lock_t *lock);
void xs_unlock(xs_lock_t *lock);
void xs_assert_locked(xs_lock_t *lock);
xs_flags_t xs_local_save(void);
void xs_local_restore(xs_flags_t flags);
u32 xs_cpu_id(void);

#define xs_assume(c) \
	(xs_warn_once(!(c), "assumed " #c) ? __builtin_trap() : (void)0)

#include "platform_test.h"

#endif
