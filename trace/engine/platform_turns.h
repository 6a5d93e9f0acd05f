/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The engine's platform in programs of one thread, in which CPUs take turns between calls of the
 * engine. A variable names the running CPU.
 */
#ifndef XSMMU_PLATFORM_TURNS_H
#define XSMMU_PLATFORM_TURNS_H

#include <xsmmu/userspace.h>

#define xs_assume(c)	do { if (!(c)) __builtin_unreachable(); } while (0)

/* The running CPU. */
extern u32 running_cpu;

/* Ends the run: the engine has reported a broken invariant. */
void engine_broken(const char *text) __attribute__((noreturn, cold));

/* ---- locks: nothing runs at the same time, so a lock that is held is a fault ---- */

typedef struct {
	u32 word;
} xs_lock_t;

typedef u32 xs_flags_t;

static xs_inline void xs_lock_init(xs_lock_t *lock)
{
	lock->word = 0;
}

static xs_inline void xs_lock(xs_lock_t *lock)
{
	if (xs_unlikely(lock->word))
		engine_broken("a lock is taken that is held");
	lock->word = 1;
}

static xs_inline void xs_unlock(xs_lock_t *lock)
{
	lock->word = 0;
}

static xs_inline xs_flags_t xs_lock_irqsave(xs_lock_t *lock)
{
	xs_lock(lock);
	return 0;
}

static xs_inline xs_flags_t xs_local_save(void)
{
	return 0;
}

#define xs_local_restore(flags)	((void)(flags))
#define xs_unlock_irqrestore(lock, flags)	((void)(flags), xs_unlock(lock))
#define xs_assert_locked(lock)	((void)(lock))
#define xs_enter()		((void)0)
#define xs_exit()		((void)0)
#define xs_cpu_id()		running_cpu

/* ---- the seam ---- */

static xs_inline bool xs_warn_once(bool broken, const char *text)
{
	if (xs_unlikely(broken))
		engine_broken(text);
	return false;
}

/*
 * struct xs_gather_t - removals of a flush
 * @frees: a removal has freed a page-table page
 */
typedef struct {
	bool frees;
} xs_gather_t;

/* In a program that counts accesses to lines, a request of the line. */
#ifdef __SANITIZE_THREAD__
void scale_prefetchw(const void *at);

#define xs_prefetchw(p)		scale_prefetchw(p)
#endif

#define xs_ref_hold_fast(ref)	xs_ref_hold(ref)

/* Memory has no contents. */
#define xs_copy_in(bounce, phys, bytes)	((void)(bounce), (void)(phys), (void)(bytes))
#define xs_copy_out(phys, bounce, bytes)	((void)(phys), (void)(bounce), (void)(bytes))

/* Each CPU's counts have separate lines. */
#define TURNS_COUNTS_BYTES	192

#define xs_counts_of(c, cpu) \
	((struct xs_counts *)((u8 *)(c) + (size_t)(cpu) * TURNS_COUNTS_BYTES))

#include <xsmmu/modelled.h>

#define xs_count_cpu(c)	(xs_counts_of(c, running_cpu)->cpu)
#define xs_count(c, field, n)	((void)(xs_counts_of(c, running_cpu)->field += (n)))

#endif
