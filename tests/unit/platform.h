/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Userspace as a world of the engine: a CPU is a thread.
 *
 * Under test_threads() with a seed each atomic operation and each lock is a point
 * where another CPU may go on, and where interrupts are on, a point where one may
 * come; see test_interrupts().
 */
#ifndef XSMMU_PLATFORM_H
#define XSMMU_PLATFORM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define xs_inline		inline __attribute__((always_inline))
#define xs_noinline		__attribute__((noinline))
#define xs_no_canary

typedef struct {
	pthread_mutex_t mutex;
} xs_lock_t;

typedef unsigned long xs_flags_t;
typedef u64 xs_atomic64_t;

/* Locks; the nested ones check that interrupts are off. */
void xs_lock_init(xs_lock_t *lock);
xs_flags_t xs_lock(xs_lock_t *lock);
void xs_unlock(xs_lock_t *lock, xs_flags_t flags);
void xs_lock_nested(xs_lock_t *lock);
void xs_unlock_nested(xs_lock_t *lock);
void xs_assert_locked(xs_lock_t *lock);
xs_flags_t xs_local_save(void);
void xs_local_restore(xs_flags_t flags);
u32 xs_cpu_id(void);

/* Another CPU may go on here, or an interrupt come; see test_threads(). */
void test_point(void);

#define test_at_point(access)	(test_point(), (access))

#define xs_a64_read(a)		test_at_point(__atomic_load_n(a, __ATOMIC_RELAXED))
#define xs_a64_set(a, v)	test_at_point(__atomic_store_n(a, v, __ATOMIC_RELAXED))
#define xs_a64_set_release(a, v) \
	test_at_point(__atomic_store_n(a, v, __ATOMIC_RELEASE))
#define xs_a64_andnot(a, v) \
	test_at_point(__atomic_fetch_and(a, ~(v), __ATOMIC_SEQ_CST))
#define xs_a64_or(a, v) \
	test_at_point(__atomic_fetch_or(a, v, __ATOMIC_SEQ_CST))
#define xs_a64_swap(a, v) \
	test_at_point(__atomic_exchange_n(a, v, __ATOMIC_SEQ_CST))
#define xs_a64_try(a, old, v) \
	test_at_point(__atomic_compare_exchange_n(a, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
#define xs_a64_or_relaxed(a, v) \
	test_at_point(__atomic_fetch_or(a, v, __ATOMIC_RELAXED))
#define xs_a64_andnot_relaxed(a, v) \
	test_at_point(__atomic_fetch_and(a, ~(v), __ATOMIC_RELAXED))
#define xs_a64_swap_relaxed(a, v) \
	test_at_point(__atomic_exchange_n(a, v, __ATOMIC_RELAXED))
#define xs_a64_swap_release(a, v) \
	test_at_point(__atomic_exchange_n(a, v, __ATOMIC_RELEASE))
#define xs_a64_try_relaxed(a, old, v) \
	test_at_point(__atomic_compare_exchange_n(a, old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
#define xs_a64_try_acquire(a, old, v) \
	test_at_point(__atomic_compare_exchange_n(a, old, v, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))

#define xs_popcount(x)		((u32)__builtin_popcountll(x))
#define xs_ctz(x)		((u32)__builtin_ctzll(x))
#define xs_log2(x)		(63 - (u32)__builtin_clzll(x))

#define xs_load(p)		test_at_point(__atomic_load_n(p, __ATOMIC_RELAXED))
#define xs_store(p, v)		test_at_point(__atomic_store_n(p, v, __ATOMIC_RELAXED))
#define xs_load_acquire(p)	test_at_point(__atomic_load_n(p, __ATOMIC_ACQUIRE))
#define xs_store_release(p, v) \
	test_at_point(__atomic_store_n(p, v, __ATOMIC_RELEASE))

#define xs_likely(c)		__builtin_expect(!!(c), 1)
#define xs_unlikely(c)		__builtin_expect(!!(c), 0)
#define xs_assume(c) \
	(xs_warn_once(!(c), "assumed " #c) ? __builtin_trap() : (void)0)

#include "platform_test.h"

#endif
