/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulation as a world of the engine: a CPU is a coroutine.
 *
 * All CPUs share one thread, so nothing here is atomic by itself. What makes
 * it honest is sim_point(): at each lock, atomic operation, load that others
 * may write and call into the world, another CPU may go on, an interrupt may
 * come, or a device may look. When that happens is drawn from the seed.
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

#define xs_inline	inline __attribute__((always_inline))
#define xs_noinline	__attribute__((noinline))
#define xs_no_canary

#define xs_likely(c)	__builtin_expect(!!(c), 1)
#define xs_unlikely(c)	__builtin_expect(!!(c), 0)
#define xs_assume(c)	((void)xs_warn_once(!(c), "assumed " #c))

#define SIM_CPUS	8

#define XS_UNSYNCED_RUNS	4u

/* ---- points ---- */

/* Points to go until something else happens; and passed by the CPU that runs. */
extern u32 sim_points_left;
extern u64 *sim_points;

/* Something else happens. */
void sim_turn(void);

static xs_inline void sim_point(void)
{
	++*sim_points;
	if (xs_unlikely(!--sim_points_left))
		sim_turn();
}

#define sim_at_point(access)	(sim_point(), (access))

/* ---- locks: 1 + the CPU that has it, 0: nobody ---- */

typedef struct {
	u32 owner;
} xs_lock_t;

typedef u32 xs_flags_t;

void xs_lock_init(xs_lock_t *lock);
xs_flags_t xs_lock(xs_lock_t *lock);
void xs_unlock(xs_lock_t *lock, xs_flags_t flags);
void xs_lock_nested(xs_lock_t *lock);
void xs_unlock_nested(xs_lock_t *lock);
xs_flags_t xs_local_save(void);
void xs_local_restore(xs_flags_t flags);
void xs_assert_locked(xs_lock_t *lock);
void xs_enter(void);
void xs_exit(void);
u32 xs_cpu_id(void);

/* The CPU that the caller runs on, kept there or not. */
u32 sim_cpu_now(void);

/* ---- atomics ---- */

typedef u64 xs_atomic64_t;

#define xs_a64_read(a)		sim_at_point(*(a))
#define xs_a64_set(a, v)	((void)(*(a) = (v)))
#define xs_a64_set_release(a, v)	xs_a64_set(a, v)

static xs_inline u64 xs_a64_or(xs_atomic64_t *word, u64 bits)
{
	u64 old = sim_at_point(*word);

	*word = old | bits;
	return old;
}

static xs_inline u64 xs_a64_andnot(xs_atomic64_t *word, u64 bits)
{
	u64 old = sim_at_point(*word);

	*word = old & ~bits;
	return old;
}

static xs_inline u64 xs_a64_swap(xs_atomic64_t *word, u64 value)
{
	u64 old = sim_at_point(*word);

	*word = value;
	return old;
}

static xs_inline bool xs_a64_try(xs_atomic64_t *word, u64 *old, u64 value)
{
	u64 found = sim_at_point(*word);

	if (found != *old) {
		*old = found;
		return false;
	}
	*word = value;
	return true;
}

/* All are one here: each is fully ordered. */
#define xs_a64_or_relaxed(a, v)	xs_a64_or(a, v)
#define xs_a64_andnot_relaxed(a, v)	xs_a64_andnot(a, v)
#define xs_a64_swap_relaxed(a, v)	xs_a64_swap(a, v)
#define xs_a64_swap_release(a, v)	xs_a64_swap(a, v)
#define xs_a64_try_relaxed(a, old, v)	xs_a64_try(a, old, v)
#define xs_a64_try_acquire(a, old, v)	xs_a64_try(a, old, v)

#define xs_popcount(x)	((u32)__builtin_popcountll(x))
#define xs_ctz(x)	((u32)__builtin_ctzll(x))
#define xs_log2(x)	(63 - (u32)__builtin_clzll(x))

#define xs_load(p)		sim_at_point(*(p))
#define xs_store(p, v)		((void)(*(p) = (v)))
#define xs_load_acquire(p)	xs_load(p)
#define xs_store_release(p, v)	xs_store(p, v)

/* ---- the seam ---- */

#define xs_ops(engine)		((engine)->ops)
#define xs_world(engine)	((engine)->world)

/* An engine that warns has failed: the driver of this world makes no mistake. */
bool xs_warn_once(bool broken, const char *text);

/*
 * What removals leave behind until their invalidation: a list of runs of IOVA
 * pages and one of page-table pages.
 */
typedef struct {
	u32 first_page;
	u32 first_table;
	bool refused;
	bool ready;
} xs_gather_t;

typedef void *xs_ref_t;

typedef u64 xs_memory_t;

#define xs_memory_at(phys)	(phys)
#define xs_memory_ref(memory)	xs_ref_of(memory)
#define xs_prefetchw(p)		((void)(p))

xs_ref_t xs_ref_of(u64 phys);
u32 xs_ref_span(xs_ref_t ref, u64 phys);
bool xs_ref_hold(xs_ref_t ref);
bool xs_ref_hold_fast(xs_ref_t ref);
void xs_ref_release(xs_ref_t ref);

void xs_copy_in(void *cell, u64 phys, u32 bytes);
void xs_copy_out(u64 phys, const void *cell, u32 bytes);

struct xs_counts;
typedef struct xs_counts xs_counts_t;

xs_counts_t *xs_counts_new(void);
void xs_counts_free(xs_counts_t *counts);
struct xs_counts *xs_counts_of(xs_counts_t *counts, u32 cpu);
#define xs_count_cpu(c)	(xs_counts_of(c, xs_cpu_id())->cpu)
#define xs_count(c, field, n)	((void)(xs_counts_of(c, sim_cpu_now())->field += (n)))

#endif
