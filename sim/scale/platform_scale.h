/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A platform that only counts: one thread, in which CPUs take turns between calls of the
 * engine. A variable names the running CPU.
 *
 * The engine is compiled twice. With -fsanitize=thread each memory access calls hooks.c, and
 * locks are counting functions. Without, the engine runs at full speed for the ageing run.
 */
#ifndef XSMMU_PLATFORM_SCALE_H
#define XSMMU_PLATFORM_SCALE_H

#include <xsmmu/userspace.h>

#define xs_assume(c)	do { if (!(c)) __builtin_unreachable(); } while (0)

#define SCALE_CPUS	64

/* The running CPU. */
extern u32 scale_cpu;

/* Print the reason why the run is invalid, and exit. */
void scale_fail(const char *text) __attribute__((noreturn, cold));

/* ---- locks: a word, like a kernel's spinlock without debugging ---- */

typedef struct {
	u32 word;
} xs_lock_t;

typedef u32 xs_flags_t;

#if defined(__SANITIZE_THREAD__) || defined(SCALE_HOOKS)
void scale_lock(xs_lock_t *lock);
void scale_unlock(xs_lock_t *lock);
/* Disable and enable interrupts around a section; calls nest. */
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

static xs_inline xs_flags_t xs_lock_irqsave(xs_lock_t *lock)
{
	scale_off();
	scale_lock(lock);
	return 0;
}

#define xs_local_restore(flags)	((void)(flags), scale_on())
#define xs_unlock_irqrestore(lock, flags)	((void)(flags), scale_unlock(lock), scale_on())
#define xs_lock(lock)	scale_lock(lock)
#define xs_unlock(lock)	scale_unlock(lock)
#define xs_assert_locked(lock)	((void)(lock))
#define xs_enter()		scale_enter()
#define xs_exit()		scale_exit()
#define xs_cpu_id()		scale_cpu

/* ---- the seam ---- */

static xs_inline bool xs_warn_once(bool broken, const char *text)
{
	if (xs_unlikely(broken))
		scale_fail(text);
	return false;
}

typedef struct {
	u64 pages;
} xs_gather_t;

/* Requests the line once, for the following read and write (hooks.c). */
void scale_prefetchw(const void *at);

#define xs_prefetchw(p)		scale_prefetchw(p)

#define xs_ref_hold_fast(ref)	xs_ref_hold(ref)

/* No buffers are copied here. */
#define xs_copy_in(bounce, phys, bytes) \
	((void)(bounce), (void)(phys), (void)(bytes), scale_fail("a copy"))
#define xs_copy_out(phys, bounce, bytes)	xs_copy_in(bounce, phys, bytes)

/* Each CPU's counts have separate lines, like a kernel's per-CPU memory. */
#define SCALE_COUNTS_BYTES	192

#define xs_counts_of(c, cpu) \
	((struct xs_counts *)((u8 *)(c) + (size_t)(cpu) * SCALE_COUNTS_BYTES))

#include <xsmmu/modelled.h>

#define xs_count_cpu(c)	(xs_counts_of(c, scale_cpu)->cpu)
#define xs_count(c, field, n)	((void)(xs_counts_of(c, scale_cpu)->field += (n)))

#endif
