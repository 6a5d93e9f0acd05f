// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel and the operator around the driver: ends of polls, flushes, policy changes, CPU
 * and device hotplug, readers of the statistics. Also selects the kind of each step.
 */
#include "sim.h"

/* ---- flush points ---- */

static void flush_begin(enum sim_call call, u32 cpu, enum xs_flush_point cause)
{
	sim_call_begin(XS_FLUSH_BIT(cause));
	sim_event(EV_CALL, sim_cpu_now(), cpu, 0, call, 0);
}

static void flush_end(enum sim_call call, u32 cpu)
{
	sim_call_end();
	sim_event(EV_RETURN, sim_cpu_now(), cpu, sim.calls, call, 0);
}

/*
 * The end of a poll calls the engine only if the engine asked for a call, so the engine must
 * have asked if a flush is due.
 */
static void poll(void)
{
	struct sim_cpu *cpu = &sim.cpus[sim_cpu_now()];
	xs_flags_t flags;

	/* Polls of a CPU do not interrupt each other. */
	if (cpu->polling)
		return;
	cpu->polling = true;
	flush_begin(CALL_POLL, sim_cpu_now(), XS_FLUSH_POLL);
	flags = xs_local_save();
	if (cpu->poll_due && xs_engine_poll(&sim.engine))
		cpu->poll_due = false;
	xs_local_restore(flags);
	flush_end(CALL_POLL, sim_cpu_now());
	cpu->polling = false;
}

void operator_flush(enum xs_flush_point cause)
{
	flush_begin(CALL_FLUSH, 0, cause);
	xs_engine_flush(&sim.engine, cause);
	flush_end(CALL_FLUSH, 0);
}

/* ---- the operator, and faults ---- */

/* @changing: the previous policy is still in force, too. */
void operator_tell(const struct xs_policy *policy, const struct xs_tuning *tuning, bool changing)
{
	bool weak = xs_policy_level(policy, true) < XS_LEVEL_STRICT;

	sim.era++;
	sim.weak_periods += sim.weak || weak;
	sim.weak = weak || (changing && sim.weak);
	sim_event(EV_POLICY, 0, (u32)(policy - xs_policies),
		  xs_policy_level(policy, tuning->batch_aware), changing,
		  tuning->window_us * 1000ULL | (u64)tuning->batch_pages << 40 |
			  (u64)tuning->range_commands_max << 56);
}

static struct xs_tuning any_tuning(const struct xs_policy *policy)
{
	struct xs_tuning tuning = xs_tuning_default(policy);

	if (sim_draw(2))
		tuning.window_us = 1 + sim_draw(2 * sim.config.tuning.window_us);
	if (sim_draw(2))
		tuning.batch_pages = 1 + sim_draw(2 * sim.config.tuning.batch_pages);
	tuning.range_commands_max = 1 + sim_draw(XS_RANGES_MAX);
	tuning.batch_aware = !sim_draw(4);
	tuning.pool_mib = SIM_POOL_MIB;
	if (tuning.batch_pages > XS_BATCH_MAX_PAGES)
		tuning.batch_pages = XS_BATCH_MAX_PAGES;
	return tuning;
}

static void change_policy(void)
{
	const struct xs_policy *policy = sim.config.policy;
	struct xs_tuning tuning;

	if (sim.setting || sim.trimming)
		return;
	sim.setting = true;
	if (sim_draw(2))
		policy = &xs_policies[sim_draw(xs_policy_count)];
	tuning = any_tuning(policy);
	operator_tell(policy, &tuning, true);
	flush_begin(CALL_SET, 0, XS_FLUSH_DRAIN);
	xs_engine_set(&sim.engine, policy, &tuning);
	flush_end(CALL_SET, 0);
	operator_tell(policy, &tuning, false);
	sim.setting = false;
}

static void change_tables(void)
{
	if (!sim.config.direct || sim.forgetting)
		return;
	if (!sim.direct) {
		sim.direct = true;
		return;
	}
	sim.forgetting = true;
	sim.direct = false;
	/*
	 * First switch off recording, then direct writes, with the same grace period in between
	 * as before.
	 */
	cpus_quiesce(NULL);
	xs_space_clear_entries(&sim.engine.space);
	xs_identity_forget_entries(&sim.engine);
	cpus_quiesce(NULL);
	sim.forgetting = false;
}

void operator_retire(u32 cpu)
{
	flush_begin(CALL_RETIRE, cpu, XS_FLUSH_DRAIN);
	xs_engine_retire_cpu(&sim.engine, cpu);
	flush_end(CALL_RETIRE, cpu);
}

static void switch_cpu(void)
{
	u32 cpu = sim_draw(sim.config.cpus);
	struct sim_cpu *at = &sim.cpus[cpu];

	if (at->busy || at->retiring)
		return;
	at->online = !at->online;
	if (at->online)
		return;
	at->poll_due = false;
	at->retiring = true;
	operator_retire(cpu);
	at->retiring = false;
}

static void remove_device(void)
{
	u32 device = sim_draw(sim.config.devices);

	for (u32 i = 0; i < sim.live_count;) {
		if (sim.live[(sim.live_first + i) % SIM_MAPPINGS].device == device)
			driver_unmap_index(i, false);
		else
			i++;
	}
	operator_flush(XS_FLUSH_DRAIN);
}

static void go_wrong(void)
{
	if (sim_fault(FAULT_JUMP))
		time_jump();
	else if (sim_fault(FAULT_POLICY))
		change_policy();
	else if (sim_fault(FAULT_OFFLINE))
		switch_cpu();
	else if (sim_fault(FAULT_FLUSH))
		operator_flush(XS_FLUSH_DRAIN);
	else if (sim_fault(FAULT_REMOVAL))
		remove_device();
	else if (sim_fault(FAULT_TRIM))
		life_trim(true);
	else if (sim_fault(FAULT_BAD_UNMAP))
		driver_bad_unmap();
	else if (sim_fault(FAULT_TWICE))
		driver_unmap_twice();
	else if (sim_fault(FAULT_TABLES))
		change_tables();
	else if (sim.retry_due)
		life_retry();
	else if (sim.trim_due)
		life_trim(true);
}

/* ---- readers ---- */

/* Read the statistics while they change. */
static void read_accounts(void)
{
	struct sim_reading reading = {
		.mapped_least = sim.mapped_pages + sim.copied,
		.unmapped_least = sim.unmapped_pages - sim.mending + sim.uncopied,
	};
	static struct xs_stats read[SIM_CPUS][2];
	struct xs_stats *stats = &read[sim_cpu_now()][sim_me->interrupted];
	u64 events;
	bool alone;

	sim_call_begin(0);
	reading.live = xs_engine_live_pages(&sim.engine);
	reading.mapped_most = sim.mapped_pages + sim.mapping_pages + sim.copied + sim.copying;
	reading.unmapped_most = sim.unmapped_pages + sim.unmapping_pages + sim.uncopied +
				sim.uncopying;
	xs_engine_stats(&sim.engine, stats);
	events = sim.events;
	alone = sim.calls == 1;
	reading.stuck = xs_engine_stuck_pages(&sim.engine);
	/* A timer may have fired meanwhile. */
	reading.alone = alone && sim.calls == 1 && sim.events == events;
	sim_call_end();
	reading.stats = stats;
	sim_event(EV_READING, sim_cpu_now(), 0, 0, 0, (u64)(size_t)&reading);
}

/* Report the open blocks on the lists of each CPU. Called only while no CPU changes the lists. */
static void look_at_lists(void)
{
	for (u32 cpu = 0; cpu < sim.config.cpus; cpu++) {
		const struct xs_partial *partial = &sim.engine.cpus[cpu]->partial;
		u32 open = 0;

		for (u32 list = 0; list < XS_PARTIAL_LISTS && !partial->lock.owner; list++) {
			const struct xs_block *block = partial->blocks[list];

			for (u32 i = 0; i < partial->listed[list]; i++, block = block->next)
				open += block->open.word != 0;
		}
		sim_event(EV_LISTED, cpu, 0, open, 0, 0);
	}
}

/* ---- steps ---- */

static void ordinary_step(void)
{
	u32 at = 0, total = 0;

	for (u32 i = 0; i < STEP_COUNT; i++)
		total += sim.config.step[i];
	total = sim_draw(total);
	while (total >= sim.config.step[at])
		total -= sim.config.step[at++];
	if (driver_step_mapping(at))
		return;
	switch (at) {
	case STEP_POLL:
		poll();
		break;
	case STEP_LOOK:
		device_look();
		break;
	case STEP_FLUSH:
		operator_flush(XS_FLUSH_EXPLICIT);
		break;
	case STEP_READ:
		read_accounts();
		break;
	case STEP_COPY:
		copy_step();
		break;
	}
}

void operator_step(void)
{
	time_pass(sim_draw(2 * sim.config.step_ns));
	sim_interrupt_if_due();
	for (u32 looks = sim_draw(sim.config.looks + 1); looks; looks--)
		device_look();
	if (!sim_draw(8))
		look_at_lists();
	if (!sim_draw(64))
		go_wrong();
	ordinary_step();
}

void operator_interrupt(void)
{
	if (sim_step_begin())
		ordinary_step();
}
