/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The flush: take the records of a batch, remove the pages from the page table, invalidate and
 * wait, and only then release held references and free the IOVAs. Six functions implement the
 * order, and no other function does: xs_flush_some() for a batch; xs_claim_flush() and
 * xs_claim_failed_map() for a small mapping; xs_flush_extent() for a mapping of whole blocks;
 * xs_stuck_try() for stuck pages; and xs_engine_mend() for torn mappings.
 */
#ifndef XSMMU_FLUSH_H
#define XSMMU_FLUSH_H

#include <xsmmu/engine.h>

/**
 * xs_cpu_lock - take the lock of the running CPU
 * @engine: engine
 * @flags: result, for xs_cpu_unlock()
 *
 * Context: entered.
 * Return: the CPU.
 */
static xs_inline struct xs_cpu *xs_cpu_lock(struct xs_engine *engine,
					    xs_flags_t *flags)
{
	struct xs_cpu *cpu;

	*flags = xs_local_save();
	cpu = engine->cpus[xs_cpu_id()];
	xs_lock(&cpu->lock);
	return cpu;
}

/**
 * xs_cpu_unlock - undo xs_cpu_lock()
 * @cpu: CPU
 * @flags: from xs_cpu_lock()
 *
 * Context: CPU's lock, which the call releases.
 */
static xs_inline void xs_cpu_unlock(struct xs_cpu *cpu, xs_flags_t flags)
{
	xs_unlock(&cpu->lock);
	xs_local_restore(flags);
}

/**
 * xs_cpu_lock_any - enter, and take the lock of any CPU
 * @cpu: CPU
 *
 * A call for all CPUs enters for each CPU, so that the time with preemption and interrupts off
 * does not grow with the number of CPUs. The caller keeps the engine alive.
 *
 * Context: any.
 * Return: flags for xs_cpu_unlock_any().
 */
static xs_inline xs_flags_t xs_cpu_lock_any(struct xs_cpu *cpu)
{
	xs_enter();
	return xs_lock_irqsave(&cpu->lock);
}

/**
 * xs_cpu_unlock_any - undo xs_cpu_lock_any()
 * @cpu: CPU
 * @flags: from xs_cpu_lock_any()
 *
 * Context: CPU's lock, which the call releases.
 */
static xs_inline void xs_cpu_unlock_any(struct xs_cpu *cpu, xs_flags_t flags)
{
	xs_unlock_irqrestore(&cpu->lock, flags);
	xs_exit();
}

/**
 * xs_policy_of - policy in force for a call that begins
 * @engine: engine
 *
 * Context: entered; the result is valid until xs_exit().
 * Return: the policy.
 */
static xs_inline const struct xs_policy *
xs_policy_of(const struct xs_engine *engine)
{
	return xs_load_acquire(&engine->policy);
}

/**
 * xs_flushes_on - test a flush point of a policy
 * @policy: policy
 * @point: flush point
 *
 * Context: any.
 * Return: true if @point causes a flush.
 */
static xs_inline bool xs_flushes_on(const struct xs_policy *policy,
				    enum xs_flush_point point)
{
	return policy->flushes & XS_FLUSH_BIT(point);
}

/**
 * xs_flush_batch - flush the batch of a CPU
 * @engine: engine
 * @cpu: CPU
 * @cause: flush point to count
 *
 * Context: entered, CPU's lock.
 */
void xs_flush_batch(struct xs_engine *engine, struct xs_cpu *cpu,
		    enum xs_flush_point cause);

/**
 * xs_flush_block - flush this CPU's deferred unmaps of a block
 * @engine: engine
 * @block: block
 *
 * Context: entered.
 */
void xs_flush_block(struct xs_engine *engine, struct xs_block *block);

/**
 * xs_flush_now - remove and invalidate a mapping that is not deferred
 * @engine: engine
 * @page: first page
 * @pages: size of the mapping, which was unmapped
 *
 * Counts an immediate flush.
 *
 * Context: entered.
 * Return: false if the backend could not remove all pages.
 */
bool xs_flush_now(struct xs_engine *engine, u64 page, u32 pages);

/**
 * xs_flush_part - remove and invalidate a part of a torn mapping (tear.h)
 * @engine: engine
 * @part: pages to remove
 * @whole: the mapping, which may have holes
 *
 * Counts an immediate flush, but no pages.
 *
 * Context: entered.
 * Return: result of the backend's remove_part().
 */
int xs_flush_part(struct xs_engine *engine, const struct xs_range *part,
		  const struct xs_range *whole);

/**
 * xs_flush_again - remove and invalidate pages that an earlier removal has left
 * @engine: engine
 * @page: first page
 * @pages: number of pages
 * @sent: the commands sent are added here
 *
 * Counts nothing.
 *
 * Context: any.
 * Return: false if the backend has failed again.
 */
bool xs_flush_again(struct xs_engine *engine, u64 page, u32 pages,
		    struct xs_commands *sent);

/**
 * xs_flush_failed_map - xs_flush_now() of a map that failed with XS_MAP_NOT_UNDONE
 * @engine: engine
 * @page: first page
 * @pages: size of the mapping; some pages may not be mapped
 *
 * Context: entered.
 * Return: false if the backend could not remove all pages.
 */
bool xs_flush_failed_map(struct xs_engine *engine, u64 page, u32 pages);

/**
 * xs_flush_extent - remove, invalidate and free an extent of whole blocks
 * @engine: engine
 * @iova: start in bytes
 * @pages: size of the mapping
 * @again: some pages may not be mapped
 *
 * The IOVAs stay taken if the extent is stuck.
 *
 * Context: any; not entered.
 * Return: false if the backend could not remove all pages.
 */
bool xs_flush_extent(struct xs_engine *engine, u64 iova, u32 pages, bool again);

/**
 * xs_flush_alloc_records - allocate records in the batch of the running CPU
 * @engine: engine
 * @cpu: running CPU
 * @count: number of records
 * @pages: size of the mapping
 * @at: result, number of the first record
 *
 * The caller holds the lock until the records are written and xs_flush_if_full() has returned.
 *
 * Context: entered, CPU's lock.
 * Return: false without room; the mapping cannot be deferred.
 */
bool xs_flush_alloc_records(struct xs_engine *engine, struct xs_cpu *cpu, u32 count,
			    u32 pages, u64 *at);

/**
 * xs_flush_if_full - flush a full batch, or set the limit of the fast path
 * @engine: engine
 * @cpu: running CPU
 *
 * Context: entered, CPU's lock.
 */
void xs_flush_if_full(struct xs_engine *engine, struct xs_cpu *cpu);

/**
 * xs_flush_deadline - time at which the timer of a batch must fire
 * @engine: engine
 * @cpu: CPU with a batch that is not empty
 *
 * Context: CPU's lock.
 * Return: time in ns (clock() of the backend).
 */
u64 xs_flush_deadline(const struct xs_engine *engine, struct xs_cpu *cpu);

/**
 * xs_flush_next_deadline - xs_flush_deadline() of a batch that begins now
 * @engine: engine
 *
 * Context: any.
 * Return: time in ns (clock() of the backend).
 */
u64 xs_flush_next_deadline(const struct xs_engine *engine);

#endif
