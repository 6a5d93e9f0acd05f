/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The platform of the simulation: a CPU is a coroutine.
 *
 * All CPUs share one thread, so code between two points runs atomically. sim_point() restores
 * concurrency: at each lock, atomic operation, load of shared data and call into the backend,
 * another CPU may continue, an interrupt may come, or a device may access memory. The seed
 * determines the points.
 */
#ifndef XSMMU_PLATFORM_SIM_H
#define XSMMU_PLATFORM_SIM_H

#define xs_point()	sim_point()
#include <xsmmu/userspace.h>

#define xs_assume(c)	((void)xs_warn_once(!(c), "assumed " #c))

#define SIM_CPUS	8

#define XS_UNFLUSHED_EXTENTS	4u

/* ---- points ---- */

/* Points until the next turn, and points passed by the running CPU. */
extern u32 sim_points_left;
extern u64 *sim_points;

/* Another CPU, an interrupt or a device has a turn. */
void sim_turn(void);

static xs_inline void sim_point(void)
{
	++*sim_points;
	if (xs_unlikely(!--sim_points_left))
		sim_turn();
}

/* ---- locks: 1 + the owning CPU, 0: free ---- */

typedef struct {
	u32 owner;
} xs_lock_t;

typedef u32 xs_flags_t;

void xs_lock_init(xs_lock_t *lock);
xs_flags_t xs_lock_irqsave(xs_lock_t *lock);
void xs_unlock_irqrestore(xs_lock_t *lock, xs_flags_t flags);
void xs_lock(xs_lock_t *lock);
void xs_unlock(xs_lock_t *lock);
xs_flags_t xs_local_save(void);
void xs_local_restore(xs_flags_t flags);
void xs_assert_locked(xs_lock_t *lock);
void xs_enter(void);
void xs_exit(void);
u32 xs_cpu_id(void);

/* Returns the CPU that the caller runs on, whether pinned or not. */
u32 sim_cpu_now(void);

/* ---- the seam ---- */

/* A warning of the engine is a failure: this world's driver makes no mistakes. */
bool xs_warn_once(bool broken, const char *text);

/*
 * State that removals leave until their invalidation: a list of extents of IOVA pages and a
 * list of page-table pages.
 */
typedef struct {
	u32 first_page;
	u32 first_table;
	bool refused;
	bool ready;
} xs_gather_t;

#include <xsmmu/modelled.h>

#define xs_count_cpu(c)	(xs_counts_of(c, xs_cpu_id())->cpu)
#define xs_count(c, field, n)	((void)(xs_counts_of(c, sim_cpu_now())->field += (n)))

#endif
