/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A world that only counts: one thread, in which CPUs take turns between calls
 * of the engine. Which CPU runs is a variable.
 *
 * The engine is compiled twice against this. With -fsanitize=thread each of its
 * accesses to memory calls hooks.c, and locks are functions that count. Without,
 * it is as fast as it can be, for the ageing run.
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

#define XS_PAGE_LG2	12

#define xs_inline	inline __attribute__((always_inline))
#define xs_noinline	__attribute__((noinline))
#define xs_no_canary

#define xs_likely(c)	__builtin_expect(!!(c), 1)
#define xs_unlikely(c)	__builtin_expect(!!(c), 0)
#define xs_assume(c)	do { if (!(c)) __builtin_unreachable(); } while (0)

#define SCALE_CPUS	64

/* The CPU that runs. */
extern u32 scale_cpu;

/* Print why this run means nothing, and end it. */
void scale_fail(const char *text) __attribute__((noreturn, cold));

/* ---- locks: a word, as a kernel's spinlock without debugging is ---- */

typedef struct {
	u32 word;
} xs_lock_t;

typedef u32 xs_flags_t;

#if defined(__SANITIZE_THREAD__) || defined(SCALE_HOOKS)
void scale_lock(xs_lock_t *lock);
void scale_unlock(xs_lock_t *lock);
/* Interrupts go off and on, a section is entered and left; nested. */
void scale_off(void);
void scale_on(void);
void scale_enter(void);
void scale_exit(void);
#else
#define scale_off()	((void)0)
#define scale_on()	((void)0)
#define scale_enter()	((void)0)
#define scale_exit()	((void)0)

static xs_inline void scale_lock(xs_lock_t *lock)
{
	if (__atomic_exchange_n(&lock->word, 1, __ATOMIC_SEQ_CST))
		scale_fail("a lock is taken that is held");
}

static xs_inline void scale_unlock(xs_lock_t *lock)
{
	__atomic_store_n(&lock->word, 0, __ATOMIC_RELEASE);
}
#endif

static xs_inline void xs_lock_init(xs_lock_t *lock)
{
	lock->word = 0;
}

static xs_inline xs_flags_t xs_local_save(void)
{
	scale_off();
	return 0;
}

static xs_inline xs_flags_t xs_lock(xs_lock_t *lock)
{
	scale_off();
	scale_lock(lock);
	return 0;
}

#define xs_local_restore(flags)	((void)(flags), scale_on())
#define xs_unlock(lock, flags)	((void)(flags), scale_unlock(lock), scale_on())
#define xs_lock_nested(lock)	scale_lock(lock)
#define xs_unlock_nested(lock)	scale_unlock(lock)
#define xs_assert_locked(lock)	((void)(lock))
#define xs_enter()		scale_enter()
#define xs_exit()		scale_exit()
#define xs_cpu_id()		scale_cpu

/* ---- atomics ---- */

typedef u64 xs_atomic64_t;

#define xs_a64_read(a)		__atomic_load_n(a, __ATOMIC_RELAXED)
#define xs_a64_set(a, v)	__atomic_store_n(a, v, __ATOMIC_RELAXED)
#define xs_a64_set_release(a, v)	__atomic_store_n(a, v, __ATOMIC_RELEASE)
#define xs_a64_or(a, v)		__atomic_fetch_or(a, v, __ATOMIC_SEQ_CST)
#define xs_a64_andnot(a, v)	__atomic_fetch_and(a, ~(u64)(v), __ATOMIC_SEQ_CST)
#define xs_a64_swap(a, v)	__atomic_exchange_n(a, v, __ATOMIC_SEQ_CST)
#define xs_a64_try(a, old, v) \
	__atomic_compare_exchange_n(a, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)

/* All are one here: there is one thread. */
#define xs_a64_or_relaxed(a, v)	xs_a64_or(a, v)
#define xs_a64_andnot_relaxed(a, v)	xs_a64_andnot(a, v)
#define xs_a64_swap_relaxed(a, v)	xs_a64_swap(a, v)
#define xs_a64_swap_release(a, v)	xs_a64_swap(a, v)
#define xs_a64_try_relaxed(a, old, v)	xs_a64_try(a, old, v)
#define xs_a64_try_acquire(a, old, v)	xs_a64_try(a, old, v)

#define xs_popcount(x)	((u32)__builtin_popcountll(x))
#define xs_ctz(x)	((u32)__builtin_ctzll(x))
#define xs_log2(x)	(63 - (u32)__builtin_clzll(x))

#define xs_load(p)		__atomic_load_n(p, __ATOMIC_RELAXED)
#define xs_store(p, v)		__atomic_store_n(p, v, __ATOMIC_RELAXED)
#define xs_load_acquire(p)	__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define xs_store_release(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)

/* ---- the seam ---- */

#define xs_ops(engine)		((engine)->ops)
#define xs_world(engine)	((engine)->world)

static xs_inline bool xs_warn_once(bool broken, const char *text)
{
	if (xs_unlikely(broken))
		scale_fail(text);
	return false;
}

typedef struct {
	u64 pages;
} xs_gather_t;

typedef void *xs_ref_t;

typedef u64 xs_memory_t;

#define xs_memory_at(phys)	(phys)
#define xs_memory_ref(memory)	xs_ref_of(memory)
/* Asks for the line once, for the read and the write that follow (hooks.c). */
void scale_prefetchw(const void *at);

#define xs_prefetchw(p)		scale_prefetchw(p)

xs_ref_t xs_ref_of(u64 phys);
u32 xs_ref_span(xs_ref_t ref, u64 phys);
bool xs_ref_hold(xs_ref_t ref);
void xs_ref_release(xs_ref_t ref);
#define xs_ref_hold_fast(ref)	xs_ref_hold(ref)

/* No traffic is copied here. */
#define xs_copy_in(cell, phys, bytes) \
	((void)(cell), (void)(phys), (void)(bytes), scale_fail("a copy"))
#define xs_copy_out(phys, cell, bytes)	xs_copy_in(cell, phys, bytes)

struct xs_counts;
typedef struct xs_counts xs_counts_t;

/* One CPU's counts have lines of their own, as per-CPU memory of a kernel has. */
#define SCALE_COUNTS_BYTES	128

xs_counts_t *xs_counts_new(void);
void xs_counts_free(xs_counts_t *counts);
#define xs_counts_of(c, cpu) \
	((struct xs_counts *)((u8 *)(c) + (size_t)(cpu) * SCALE_COUNTS_BYTES))
#define xs_count_cpu(c)	(xs_counts_of(c, scale_cpu)->cpu)
#define xs_count(c, field, n)	((void)(xs_counts_of(c, scale_cpu)->field += (n)))

#endif
