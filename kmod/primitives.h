/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Locks, atomics and bits of <xsmmu/needs.h> in Linux. The rest of the platform is in
 * platform.h.
 */
#ifndef XSMMU_PRIMITIVES_H
#define XSMMU_PRIMITIVES_H

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/lockdep.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include <asm/page.h>

#ifdef CONFIG_PREEMPT_RT
#error "xsmmu flushes with interrupts off, which PREEMPT_RT does not allow"
#endif

typedef spinlock_t xs_lock_t;
typedef unsigned long xs_flags_t;
typedef atomic64_t xs_atomic64_t;

#define XS_PAGE_LG2		PAGE_SHIFT

#define xs_inline		__always_inline
#define xs_noinline		noinline
#define xs_no_canary		__no_stack_protector

#define xs_lock_init(l)		spin_lock_init(l)
#define xs_unlock_irqrestore(l, flags)	spin_unlock_irqrestore(l, flags)
#define xs_local_save()		({ unsigned long f; local_irq_save(f); f; })
#define xs_local_restore(flags)	local_irq_restore(flags)

static inline xs_flags_t xs_lock_irqsave(xs_lock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

#define xs_lock(l)	spin_lock(l)
#define xs_unlock(l)	spin_unlock(l)
#define xs_assert_locked(l)	lockdep_assert_held(l)

#define xs_a64_read(a)		((u64)atomic64_read(a))
#define xs_a64_set(a, v)	atomic64_set(a, v)
#define xs_a64_set_release(a, v)	atomic64_set_release(a, v)
#define xs_a64_or(a, v)		((u64)atomic64_fetch_or(v, a))
#define xs_a64_andnot(a, v)	((u64)atomic64_fetch_andnot(v, a))
#define xs_a64_swap(a, v)	((u64)atomic64_xchg(a, v))
#define xs_a64_try(a, old, v)	atomic64_try_cmpxchg(a, (s64 *)(old), v)
#define xs_a64_or_relaxed(a, v)	((u64)atomic64_fetch_or_relaxed(v, a))
#define xs_a64_andnot_relaxed(a, v)	((u64)atomic64_fetch_andnot_relaxed(v, a))
#define xs_a64_swap_relaxed(a, v)	((u64)atomic64_xchg_relaxed(a, v))
#define xs_a64_swap_release(a, v)	((u64)atomic64_xchg_release(a, v))
#define xs_a64_try_relaxed(a, old, v) \
	atomic64_try_cmpxchg_relaxed(a, (s64 *)(old), v)
#define xs_a64_try_acquire(a, old, v) \
	atomic64_try_cmpxchg_acquire(a, (s64 *)(old), v)

/* One cmpxchg without a LOCK prefix on x86; the relaxed operation elsewhere. */
#ifdef try_cmpxchg_local
#define xs_a64_try_local(a, old, v) \
	try_cmpxchg_local(&(a)->counter, (s64 *)(old), (s64)(v))
#else
static __always_inline bool xs_a64_try_local(atomic64_t *a, u64 *old, u64 v)
{
	s64 found = cmpxchg_local(&a->counter, (s64)*old, (s64)v);
	bool is_swapped = (u64)found == *old;

	*old = found;
	return is_swapped;
}
#endif

#define xs_popcount(x)		((u32)hweight64((u64)(x)))
#define xs_ctz(x)		__ffs(x)
#define xs_log2(x)		((u32)(63 - __builtin_clzll(x)))

#define xs_load(p)		READ_ONCE(*(p))
#define xs_store(p, v)		WRITE_ONCE(*(p), v)
#define xs_load_acquire(p)	smp_load_acquire(p)
#define xs_store_release(p, v)	smp_store_release(p, v)

#define xs_likely(c)		likely(c)
#define xs_unlikely(c)		unlikely(c)
#define xs_assume(c)		do { if (!(c)) __builtin_unreachable(); } while (0)

#endif
