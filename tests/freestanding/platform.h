/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A world with nothing in it: what xsmmu/needs.h asks for, from the compiler
 * alone. `make tidy` compiles the engine against it, and it runs nowhere.
 */
#ifndef XSMMU_PLATFORM_H
#define XSMMU_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

/* The CPU's pages; `-D` makes it a world of larger ones. */
#ifndef XS_PAGE_LG2
#define XS_PAGE_LG2	12
#endif

typedef struct {
	u32 taken;
} xs_lock_t;

typedef unsigned long xs_flags_t;
typedef u64 xs_atomic64_t;

typedef struct {
	u64 first;
} xs_gather_t;

typedef void *xs_ref_t;

struct xs_counts;
typedef struct xs_counts xs_counts_t;

xs_counts_t *xs_counts_new(void);
void xs_counts_free(xs_counts_t *counts);
struct xs_counts *xs_counts_of(xs_counts_t *counts, u32 cpu);
#define xs_count_cpu(c)	(xs_counts_of(c, xs_cpu_id())->cpu)
#define xs_count(c, field, n)	((void)(xs_counts_of(c, xs_cpu_id())->field += (n)))

xs_flags_t xs_lock(xs_lock_t *lock);
void xs_lock_init(xs_lock_t *lock);
void xs_unlock(xs_lock_t *lock, xs_flags_t flags);
void xs_lock_nested(xs_lock_t *lock);
void xs_unlock_nested(xs_lock_t *lock);
void xs_assert_locked(xs_lock_t *lock);
xs_flags_t xs_local_save(void);
void xs_local_restore(xs_flags_t flags);
u32 xs_cpu_id(void);
void xs_enter(void);
void xs_exit(void);
bool xs_warn_once(bool broken, const char *text);
typedef u64 xs_memory_t;

#define xs_memory_at(phys)	(phys)
#define xs_memory_ref(memory)	xs_ref_of(memory)
#define xs_prefetchw(p)		((void)(p))

xs_ref_t xs_ref_of(u64 phys);
bool xs_ref_hold(xs_ref_t ref);
bool xs_ref_hold_fast(xs_ref_t ref);
u32 xs_ref_span(xs_ref_t ref, u64 phys);
void xs_ref_release(xs_ref_t ref);

void xs_copy_in(void *cell, u64 phys, u32 bytes);
void xs_copy_out(u64 phys, const void *cell, u32 bytes);

#define xs_a64_read(a)		__atomic_load_n(a, __ATOMIC_RELAXED)
#define xs_a64_set(a, v)	__atomic_store_n(a, v, __ATOMIC_RELAXED)
#define xs_a64_or(a, v)		__atomic_fetch_or(a, v, __ATOMIC_SEQ_CST)
#define xs_a64_set_release(a, v)	__atomic_store_n(a, v, __ATOMIC_RELEASE)
#define xs_a64_andnot(a, v)	__atomic_fetch_and(a, ~(v), __ATOMIC_SEQ_CST)
#define xs_a64_swap(a, v)	__atomic_exchange_n(a, v, __ATOMIC_SEQ_CST)
#define xs_a64_try(a, old, v) \
	__atomic_compare_exchange_n(a, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)
#define xs_a64_or_relaxed(a, v)	__atomic_fetch_or(a, v, __ATOMIC_RELAXED)
#define xs_a64_andnot_relaxed(a, v)	__atomic_fetch_and(a, ~(v), __ATOMIC_RELAXED)
#define xs_a64_swap_relaxed(a, v)	__atomic_exchange_n(a, v, __ATOMIC_RELAXED)
#define xs_a64_swap_release(a, v)	__atomic_exchange_n(a, v, __ATOMIC_RELEASE)
#define xs_a64_try_relaxed(a, old, v) \
	__atomic_compare_exchange_n(a, old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#define xs_a64_try_acquire(a, old, v) \
	__atomic_compare_exchange_n(a, old, v, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)

#define xs_popcount(x)		((u32)__builtin_popcountll(x))
#define xs_ctz(x)		((u32)__builtin_ctzll(x))
#define xs_log2(x)		(63 - (u32)__builtin_clzll(x))

#define xs_load(p)		__atomic_load_n(p, __ATOMIC_RELAXED)
#define xs_store(p, v)		__atomic_store_n(p, v, __ATOMIC_RELAXED)
#define xs_load_acquire(p)	__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define xs_store_release(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)

#define xs_inline		inline __attribute__((always_inline))
#define xs_noinline		__attribute__((noinline))
#define xs_no_canary
#define xs_ops(engine)		((engine)->ops)
#define xs_world(engine)	((engine)->world)

#define xs_likely(c)		__builtin_expect(!!(c), 1)
#define xs_unlikely(c)		__builtin_expect(!!(c), 0)
#define xs_assume(c)		do { if (!(c)) __builtin_unreachable(); } while (0)

#endif
