/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The part of a platform that all userspace programs share: types, hints, bits, and atomic
 * operations of the compiler. See needs.h for the meaning of each name.
 *
 * A platform may define, before it includes this file:
 *   xs_point()        runs before each load and each atomic operation. The value to be written
 *                     is computed before xs_point(), so a change by another CPU is not missed.
 *   xs_store_point()  runs before each store.
 *   xs_a64_try_local()  by default as strong as xs_a64_try_relaxed().
 *   XS_OWN_ATOMICS    leaves out the atomic operations; the platform has its own.
 */
#ifndef XSMMU_USERSPACE_H
#define XSMMU_USERSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

/* The CPU's page size; `-D` selects a larger one. */
#ifndef XS_PAGE_LG2
#define XS_PAGE_LG2	12
#endif

#define xs_inline	inline __attribute__((always_inline))
#define xs_noinline	__attribute__((noinline))
#define xs_no_canary

#define xs_likely(c)	__builtin_expect(!!(c), 1)
#define xs_unlikely(c)	__builtin_expect(!!(c), 0)

#define xs_popcount(x)	((u32)__builtin_popcountll(x))
#define xs_ctz(x)	((u32)__builtin_ctzll(x))
#define xs_log2(x)	(63 - (u32)__builtin_clzll(x))

/* A struct, as in Linux, so that no program reads it as a number. */
typedef struct {
	u64 word;
} xs_atomic64_t;

#ifndef XS_OWN_ATOMICS
#ifndef xs_point
#define xs_point()		((void)0)
#endif
#ifndef xs_store_point
#define xs_store_point()	((void)0)
#endif

#define xs_load_as(p, order)	(xs_point(), __atomic_load_n(p, order))
#define xs_store_as(p, v, order) \
	(xs_store_point(), __atomic_store_n(p, v, order))
#define xs_rmw_as(name, a, v, order) ({			\
	u64 xs_value_ = (v);					\
								\
	xs_point();						\
	__atomic_##name(a, xs_value_, order);			\
})
#define xs_try_as(a, old, v, order) ({				\
	u64 xs_value_ = (v);					\
								\
	xs_point();						\
	__atomic_compare_exchange_n(a, old, xs_value_, false,	\
				    order, __ATOMIC_RELAXED);	\
})

#define xs_a64_read(a)		xs_load_as(&(a)->word, __ATOMIC_RELAXED)
#define xs_a64_set(a, v)	xs_store_as(&(a)->word, v, __ATOMIC_RELAXED)
#define xs_a64_set_release(a, v)	xs_store_as(&(a)->word, v, __ATOMIC_RELEASE)
#define xs_a64_or(a, v)		xs_rmw_as(fetch_or, &(a)->word, v, __ATOMIC_SEQ_CST)
#define xs_a64_andnot(a, v)	xs_rmw_as(fetch_and, &(a)->word, ~(u64)(v), __ATOMIC_SEQ_CST)
#define xs_a64_swap(a, v)	xs_rmw_as(exchange_n, &(a)->word, v, __ATOMIC_SEQ_CST)
#define xs_a64_try(a, old, v)	xs_try_as(&(a)->word, old, v, __ATOMIC_SEQ_CST)
#define xs_a64_or_relaxed(a, v)	xs_rmw_as(fetch_or, &(a)->word, v, __ATOMIC_RELAXED)
#define xs_a64_andnot_relaxed(a, v) \
	xs_rmw_as(fetch_and, &(a)->word, ~(u64)(v), __ATOMIC_RELAXED)
#define xs_a64_swap_relaxed(a, v)	xs_rmw_as(exchange_n, &(a)->word, v, __ATOMIC_RELAXED)
#define xs_a64_swap_release(a, v)	xs_rmw_as(exchange_n, &(a)->word, v, __ATOMIC_RELEASE)
#define xs_a64_try_relaxed(a, old, v)	xs_try_as(&(a)->word, old, v, __ATOMIC_RELAXED)
#define xs_a64_try_acquire(a, old, v)	xs_try_as(&(a)->word, old, v, __ATOMIC_ACQUIRE)
#ifndef xs_a64_try_local
#define xs_a64_try_local(a, old, v)	xs_a64_try_relaxed(a, old, v)
#endif

#define xs_load(p)		xs_load_as(p, __ATOMIC_RELAXED)
#define xs_store(p, v)		xs_store_as(p, v, __ATOMIC_RELAXED)
#define xs_load_acquire(p)	xs_load_as(p, __ATOMIC_ACQUIRE)
#define xs_store_release(p, v)	xs_store_as(p, v, __ATOMIC_RELEASE)
#endif

#endif
