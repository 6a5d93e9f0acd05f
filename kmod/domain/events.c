// SPDX-License-Identifier: GPL-2.0-only
/*
 * The two flush points that come from outside the engine: the end of a NAPI poll, and a timer.
 * Part of path.c.
 */
#include <linux/cpu.h>
#include <linux/hrtimer.h>
#include <trace/events/napi.h>

#include "../compat/compat.h"
#include "domain.h"

/* Backends with deferred unmaps that the end of this CPU's next NAPI poll flushes. */
static DEFINE_PER_CPU(struct list_head, xs_dirty);

/*
 * Called with interrupts off. For another CPU only the timer is started. The timer then fires on
 * this CPU and queues @home on the other CPU, until the other CPU starts the timer again. @at is
 * on the other CPU's list as long as that CPU's batch is not empty, or its poll is under way.
 */
static void backend_deferred(void *data, u32 cpu, bool arm, u64 deadline_ns)
{
	struct xs_backend *backend = data;
	struct xs_backend_cpu *at = &backend->cpus[cpu];

	if (likely(cpu == smp_processor_id()) && list_empty(&at->dirty))
		list_add(&at->dirty, this_cpu_ptr(&xs_dirty));
	if (!arm)
		return;
	spin_lock(&at->lock);
	hrtimer_start(&at->timer, ns_to_ktime(deadline_ns),
		      HRTIMER_MODE_ABS_PINNED);
	spin_unlock(&at->lock);
}

/*
 * Only the CPU itself can end a group of its batch (xsmmu/batch.h). On another CPU the timer
 * would fire again and again while the CPU defers nothing, so a work on the CPU ends the group.
 */
static enum hrtimer_restart expire(struct hrtimer *timer)
{
	struct xs_backend_cpu *at = container_of(timer, struct xs_backend_cpu,
						 timer);
	u64 next = xs_engine_expire(&at->backend->engine, at->cpu);

	if (!next)
		return HRTIMER_NORESTART;
	/* A concurrent start has set a newer deadline. */
	spin_lock(&at->lock);
	if (!hrtimer_is_queued(timer))
		hrtimer_start(timer, ns_to_ktime(next),
			      HRTIMER_MODE_ABS_PINNED);
	spin_unlock(&at->lock);
	if (at->cpu != smp_processor_id())
		schedule_work_on(at->cpu, &at->home);
	return HRTIMER_NORESTART;
}

/* A further deadline needs no start of the timer: expire() has started the timer for it. */
static void expire_home(struct work_struct *work)
{
	struct xs_backend_cpu *at = container_of(work, struct xs_backend_cpu,
						 home);

	xs_engine_expire(&at->backend->engine, at->cpu);
}

/*
 * Flushes the first group of a list of this CPU. The group stays listed if deferred unmaps are
 * left.
 */
static void flush_dirty(struct list_head *due)
{
	struct xs_backend_cpu *at = list_first_entry(due, struct xs_backend_cpu,
						     dirty);

	list_del_init(&at->dirty);
	if (!xs_engine_poll(&at->backend->engine) && list_empty(&at->dirty))
		list_add(&at->dirty, this_cpu_ptr(&xs_dirty));
}

/*
 * Probe of the kernel's tracepoint napi_poll, which fires after each poll, on the CPU of the
 * poll. Interrupts are off for one group at a time.
 */
static void poll_ended(void *unused, struct napi_struct *napi, int work,
		       int budget)
{
	unsigned long flags;
	LIST_HEAD(due);

	local_irq_save(flags);
	list_splice_init(this_cpu_ptr(&xs_dirty), &due);
	while (!list_empty(&due)) {
		flush_dirty(&due);
		local_irq_restore(flags);
		local_irq_save(flags);
	}
	local_irq_restore(flags);
}

int xs_backend_start(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		INIT_LIST_HEAD(per_cpu_ptr(&xs_dirty, cpu));
	return register_trace_napi_poll(poll_ended, NULL);
}

void xs_backend_stop(void)
{
	unregister_trace_napi_poll(poll_ended, NULL);
	tracepoint_synchronize_unregister();
}

void xs_backend_forget_cpu(struct xs_backend *backend, u32 cpu)
{
	list_del_init(&backend->cpus[cpu].dirty);
}

static void forget_this_cpu(void *backend)
{
	xs_backend_forget_cpu(backend, smp_processor_id());
}

/*
 * Takes @backend off the lists of all CPUs. No CPU comes or goes meanwhile, so nobody else
 * changes the list of an offline CPU.
 */
static void forget_all(struct xs_backend *backend)
{
	u32 cpu;

	cpus_read_lock();
	on_each_cpu(forget_this_cpu, backend, 1);
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		if (!cpu_online(cpu))
			xs_backend_forget_cpu(backend, cpu);
	cpus_read_unlock();
}
