/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The smallest platform: everything that xsmmu/needs.h asks for, from the compiler alone. `make
 * tidy` compiles the engine with this platform; no program runs the result.
 */
#ifndef XSMMU_PLATFORM_BARE_H
#define XSMMU_PLATFORM_BARE_H

#include <xsmmu/userspace.h>

typedef struct {
	u32 taken;
} xs_lock_t;

typedef unsigned long xs_flags_t;

typedef struct {
	u64 first;
} xs_gather_t;

#include <xsmmu/modelled.h>

#define xs_count_cpu(c)	(xs_counts_of(c, xs_cpu_id())->cpu)
#define xs_count(c, field, n)	((void)(xs_counts_of(c, xs_cpu_id())->field += (n)))

xs_flags_t xs_lock_irqsave(xs_lock_t *lock);
void xs_lock_init(xs_lock_t *lock);
void xs_unlock_irqrestore(xs_lock_t *lock, xs_flags_t flags);
void xs_lock(xs_lock_t *lock);
void xs_unlock(xs_lock_t *lock);
void xs_assert_locked(xs_lock_t *lock);
xs_flags_t xs_local_save(void);
void xs_local_restore(xs_flags_t flags);
u32 xs_cpu_id(void);
void xs_enter(void);
void xs_exit(void);
bool xs_warn_once(bool broken, const char *text);

#define xs_assume(c)		do { if (!(c)) __builtin_unreachable(); } while (0)

#endif
