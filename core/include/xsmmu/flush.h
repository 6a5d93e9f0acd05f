/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The flush: take what a batch has, remove it from the page table, invalidate and
 * wait, and only then release what was held and let the IOVAs go. That order is
 * the product, and stands in four places only: xs_flush_some() for a batch,
 * xs_claim_flush() for one mapping, xs_flush_extent() for one of whole blocks,
 * xs_engine_mend() for one that unmaps did not match.
 */
#ifndef XSMMU_FLUSH_H
#define XSMMU_FLUSH_H

#include <xsmmu/engine.h>

/* This CPU, locked; *@flags for the unlock. */
static xs_inline struct xs_cpu *xs_cpu_lock(struct xs_engine *engine,
					    xs_flags_t *flags)
{
	struct xs_cpu *cpu;

	*flags = xs_local_save();
	cpu = engine->cpus[xs_cpu_id()];
	xs_lock_nested(&cpu->lock);
	return cpu;
}

static xs_inline void xs_cpu_unlock(struct xs_cpu *cpu, xs_flags_t flags)
{
	xs_unlock_nested(&cpu->lock);
	xs_local_restore(flags);
}

/*
 * Any CPU, locked, in a section of its own. A call that does something for each CPU
 * in turn enters for each, so that the time without preemption and without interrupts
 * does not grow with the number of CPUs. The engine does not go meanwhile.
 */
static xs_inline xs_flags_t xs_cpu_visit(struct xs_cpu *cpu)
{
	xs_enter();
	return xs_lock(&cpu->lock);
}

static xs_inline void xs_cpu_leave(struct xs_cpu *cpu, xs_flags_t flags)
{
	xs_unlock(&cpu->lock, flags);
	xs_exit();
}

/* The row that is in force for a call that begins here. Entered. */
static xs_inline const struct xs_policy *
xs_policy_of(const struct xs_engine *engine)
{
	return xs_load_acquire(&engine->policy);
}

static xs_inline bool xs_flushes_on(const struct xs_policy *policy,
				    enum xs_flush_point point)
{
	return policy->flushes & XS_FLUSH_BIT(point);
}

/* Flush all that is in the batch of @cpu, whose lock is held. Entered. */
void xs_flush_batch(struct xs_engine *engine, struct xs_cpu *cpu,
		    enum xs_flush_point cause);

/* Flush what this CPU's batch has of one block. Entered. */
void xs_flush_block(struct xs_engine *engine, struct xs_block *block);

/*
 * Remove and invalidate @pages pages from page @page on, one mapping that was unmapped and
 * is not deferred, before the return. False: the backend could not remove all of them. Entered.
 */
bool xs_flush_now(struct xs_engine *engine, u64 page, u32 pages);

/*
 * The same of @part of the torn mapping @whole, which may have holes (tear.h). Returns what
 * remove_part() of the backend does. Entered.
 */
int xs_flush_part(struct xs_engine *engine, const struct xs_range *part,
		  const struct xs_range *whole);

/*
 * The same of what the backend has failed to remove; it is not counted. *@sent: what was sent.
 * False: the backend has failed again. Need not be entered.
 */
bool xs_flush_again(struct xs_engine *engine, u64 page, u32 pages,
		    struct xs_commands *sent);

/* The same of a map that has failed and left some of them mapped; it is counted. Entered. */
bool xs_flush_left(struct xs_engine *engine, u64 page, u32 pages);

/*
 * The same of an extent of whole blocks, whose IOVAs it lets go, unless they are stuck.
 * @again: some of its pages may not be mapped. Not entered.
 */
bool xs_flush_extent(struct xs_engine *engine, u64 iova, u32 pages, bool again);

/*
 * Room for @count records of a mapping of @pages pages in this CPU's batch, whose
 * lock is held until they are written and xs_flush_if_full() has been called. False:
 * there is none, so it cannot be deferred. *@at: number of the first one.
 */
bool xs_flush_reserve(struct xs_engine *engine, struct xs_cpu *cpu, u32 count,
		      u32 pages, u64 *at);
void xs_flush_if_full(struct xs_engine *engine, struct xs_cpu *cpu);

/* When the timer of the batch of @cpu, which has something, is to fire. */
u64 xs_flush_deadline(const struct xs_engine *engine, struct xs_cpu *cpu);

#endif
