/* SPDX-License-Identifier: GPL-2.0-only */
/* The explorer as a platform of the engine; see explore.h and xsmmu/needs.h. */
#ifndef XSMMU_PLATFORM_LITMUS_H
#define XSMMU_PLATFORM_LITMUS_H

#include "explore.h"

#define XS_OWN_ATOMICS
#include <xsmmu/userspace.h>

typedef struct {
	u64 word;
} xs_lock_t;

typedef bool xs_flags_t;

#define xs_lock_init(l)		ex_lock_init(l)
#define xs_lock(l) \
	ex_lock(l, EX_SITE(EX_ACQUIRE, "lock " #l))
#define xs_unlock(l) \
	ex_unlock(l, EX_SITE(EX_RELEASE, "unlock " #l))
#define xs_lock_irqsave(l) ({						\
	xs_flags_t xs_flags_ = ex_irq_save();				\
	xs_lock(l);							\
	xs_flags_;							\
})
#define xs_unlock_irqrestore(l, flags) \
	(xs_unlock(l), ex_irq_restore(flags))
#define xs_assert_locked(l)	ex_assert_locked(l)
#define xs_local_save()		ex_irq_save()
#define xs_local_restore(flags)	ex_irq_restore(flags)
#define xs_cpu_id()		ex_cpu()

#define xs_enter()		ex_enter(EX_SITE(EX_ACQUIRE, "enter"))
#define xs_exit()		ex_exit(EX_SITE(EX_RELEASE, "exit"))

#define xs_a64_read(a)		ex_load(a, 8, EX_SITE(EX_RELAXED, "read " #a))
#define xs_a64_set(a, v) \
	ex_store(a, 8, v, EX_SITE(EX_RELAXED, "set " #a " = " #v))
#define xs_a64_set_release(a, v) \
	ex_store(a, 8, v, EX_SITE(EX_RELEASE, "set_release " #a " = " #v))
#define xs_a64_or(a, v) \
	ex_rmw(a, 8, EX_OR, v, EX_SITE(EX_FULL, "or " #a " |= " #v))
#define xs_a64_andnot(a, v) \
	ex_rmw(a, 8, EX_ANDNOT, v, EX_SITE(EX_FULL, "andnot " #a " &= ~" #v))
#define xs_a64_swap(a, v) \
	ex_rmw(a, 8, EX_SWAP, v, EX_SITE(EX_FULL, "swap " #a " <- " #v))
#define xs_a64_try(a, old, v) \
	ex_try(a, 8, old, v, EX_SITE(EX_FULL, "try " #a " <- " #v))
#define xs_a64_or_relaxed(a, v) \
	ex_rmw(a, 8, EX_OR, v, EX_SITE(EX_RELAXED, "or " #a " |= " #v))
#define xs_a64_andnot_relaxed(a, v) \
	ex_rmw(a, 8, EX_ANDNOT, v, EX_SITE(EX_RELAXED, "andnot " #a " &= ~" #v))
#define xs_a64_swap_relaxed(a, v) \
	ex_rmw(a, 8, EX_SWAP, v, EX_SITE(EX_RELAXED, "swap " #a " <- " #v))
#define xs_a64_swap_release(a, v) \
	ex_rmw(a, 8, EX_SWAP, v, EX_SITE(EX_RELEASE, "swap " #a " <- " #v))
#define xs_a64_try_relaxed(a, old, v) \
	ex_try(a, 8, old, v, EX_SITE(EX_RELAXED, "try " #a " <- " #v))
#define xs_a64_try_acquire(a, old, v) \
	ex_try(a, 8, old, v, EX_SITE(EX_ACQUIRE, "try " #a " <- " #v))
/* Atomic against the CPU's own interrupts only: another CPU's write in between is lost. */
#define xs_a64_try_local(a, old, v) ({					\
	bool xs_were_on_ = ex_irq_save();				\
	u64 xs_value_ = (v);						\
	u64 xs_seen_ = ex_load(a, 8, EX_SITE(EX_RELAXED, "read " #a));	\
	bool xs_is_ = xs_seen_ == *(old);				\
									\
	if (xs_is_)							\
		ex_store(a, 8, xs_value_,				\
			 EX_SITE(EX_RELAXED, "try_local " #a " <- " #v));	\
	else								\
		*(old) = xs_seen_;					\
	ex_irq_restore(xs_were_on_);					\
	xs_is_;								\
})
#define xs_mb()			ex_fence(EX_SITE(EX_FULL, "mb"))

#define ex_read_as(p, order, text) \
	((__typeof__(*(p)))ex_load(p, sizeof(*(p)), EX_SITE(order, text)))
#define ex_write_as(p, v, order, text) \
	ex_store(p, sizeof(*(p)), (u64)(uintptr_t)(v), EX_SITE(order, text))
#define xs_load(p)		ex_read_as(p, EX_RELAXED, "load " #p)
#define xs_load_acquire(p)	ex_read_as(p, EX_ACQUIRE, "load_acquire " #p)
#define xs_store(p, v)		ex_write_as(p, v, EX_RELAXED, "store " #p " = " #v)
#define xs_store_release(p, v) \
	ex_write_as(p, v, EX_RELEASE, "store_release " #p " = " #v)

#define xs_assume(c)		((void)xs_warn_once(!(c), "assumed " #c))

/* Fails, unless the program expects the warning. */
bool xs_warn_once(bool broken, const char *text);

/* The IOVA pages that a flush has removed, and whether they are part of a mapping. */
#define LITMUS_REMOVED	128

typedef struct {
	u32 count;
	bool part;
	u32 pages[LITMUS_REMOVED];
} xs_gather_t;

/* Small enough that a program can fill and wrap a batch. */
#define XS_BATCH_RECORDS	8u
#define XS_BATCH_GROUP		4u

#define xs_ref_hold_fast(ref)	xs_ref_hold(ref)

#include <xsmmu/modelled.h>

/* Each CPU has private counts and adds in one step; other CPUs may read. */
#define xs_count_cpu(c)		(xs_counts_of(c, ex_cpu())->cpu)
#define xs_count(c, field, n) ({					\
	bool xs_were_on_ = ex_irq_save();				\
	__typeof__(xs_counts_of(c, 0)->field) *xs_at_ =		\
		&xs_counts_of(c, ex_cpu())->field;			\
	xs_store(xs_at_, *xs_at_ + (n));				\
	ex_irq_restore(xs_were_on_);					\
})

#endif
