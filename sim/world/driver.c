// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver: maps memory, lets devices use it, unmaps and frees it at once, on
 * any CPU, in tasks and in interrupts. What an operator does is here too.
 */
#include "world.h"

static const char *const policy_names[] = { "strict", "lazy", "fands", "xsmmu", "fused" };

#define POLICIES	(sizeof(policy_names) / sizeof(policy_names[0]))

/* ---- calls of the engine ---- */

static void sync_begin(enum sim_call call, u32 cpu)
{
	sim_call_begin();
	sim_event(EV_CALL, sim_cpu_now(), cpu, 0, call, 0);
}

static void sync_end(enum sim_call call, u32 cpu, bool steady)
{
	sim_call_end();
	sim_event(EV_RETURN, sim_cpu_now(), cpu, sim.calls, call, steady);
}

/* ---- map ---- */

static void choose_size(struct sim_mapping *mapping)
{
	mapping->pages = 1;
	mapping->part_count = 0;
	if (sim_chance(sim.config.multi))
		mapping->pages = 2 + sim_draw(1 + sim_draw(XS_BLOCK_PAGES - 1));
	if (sim_chance(sim.config.large)) {
		mapping->pages = XS_BLOCK_PAGES + 1 + sim_draw(sim.config.blocks * 16);
		mapping->kind = MEMORY_PERMANENT;
	}
	if (mapping->pages > 1 && sim_chance(sim.config.scatter))
		mapping->part_count = 1 + sim_draw(SIM_PARTS);
}

u32 driver_kind(void)
{
	u32 at = sim_draw(sim.config.kinds[0] + sim.config.kinds[1] + sim.config.kinds[2] +
			  sim.config.kinds[3]);
	u32 kind = 0;

	while (at >= sim.config.kinds[kind])
		at -= sim.config.kinds[kind++];
	return kind;
}

static u32 parts_of(const struct sim_mapping *mapping)
{
	return mapping->part_count ? mapping->part_count : 1;
}

static void drop_memory(const struct sim_mapping *mapping, u32 parts)
{
	for (u32 i = 0; i < parts; i++)
		memory_drop(mapping->memory[i], mapping->part_pages[i], mapping->kind);
}

/* Memory for each part. The last page of a range in parts may stay unfilled. */
static bool take_memory(struct sim_mapping *mapping)
{
	u32 parts = parts_of(mapping);
	u32 rest = mapping->pages - (mapping->part_count && sim_draw(2));

	if (mapping->part_count > rest)
		parts = mapping->part_count = rest;
	for (u32 i = 0; i < parts; i++) {
		u32 pages = i + 1 < parts ? 1 + sim_draw(rest - (parts - i - 1)) : rest;

		if (!memory_take(pages, mapping->kind, &mapping->memory[i])) {
			drop_memory(mapping, i);
			return false;
		}
		mapping->part_pages[i] = pages;
		rest -= pages;
	}
	return true;
}

void driver_tell_mapped(u32 page, u32 pages, u32 memory, u32 prot)
{
	prot |= sim.config.first_stage ? ENTRY_READ : 0;
	sim_event(EV_MAPPED, sim_cpu_now(), page, pages, memory, prot);
}

static void tell_mapped(const struct sim_mapping *mapping, u32 page, u32 part)
{
	driver_tell_mapped(page, mapping->part_pages[part], mapping->memory[part], mapping->prot);
}

static void count_map(const struct sim_mapping *mapping)
{
	sim.maps++;
	sim.mapped_pages += mapping->pages;
}

static bool map_whole(struct sim_mapping *mapping, u64 last)
{
	u64 phys = (u64)mapping->memory[0] << XS_PAGE_LG2;
	u32 page;

	sim_call_begin();
	if (mapping->pages == 1)
		mapping->iova = path_map_one(&sim.engine, phys, mapping->prot, last);
	else
		mapping->iova = xs_engine_map(&sim.engine, phys, mapping->pages, mapping->prot,
					      last);
	sim_call_end();
	if (!mapping->iova) {
		sim.map_failures++;
		return false;
	}
	page = (u32)(mapping->iova >> XS_PAGE_LG2);
	sim_event(EV_HANDED, sim_cpu_now(), page, mapping->pages, (u32)(last >> XS_PAGE_LG2), 0);
	tell_mapped(mapping, page, 0);
	count_map(mapping);
	return true;
}

static bool map_parts(struct sim_mapping *mapping, u64 last)
{
	bool small = mapping->pages <= XS_BLOCK_PAGES;
	u32 page, filled;

	sim_call_begin();
	mapping->iova = xs_engine_reserve(&sim.engine, mapping->pages, last);
	sim_call_end();
	if (!mapping->iova) {
		sim.map_failures++;
		return false;
	}
	count_map(mapping);
	page = (u32)(mapping->iova >> XS_PAGE_LG2);
	sim_event(EV_HANDED, sim_cpu_now(), page, mapping->pages, (u32)(last >> XS_PAGE_LG2), 1);
	for (u32 i = 0; i < mapping->part_count; i++) {
		int error;

		sim_call_begin();
		error = xs_engine_fill(&sim.engine, (u64)page << XS_PAGE_LG2,
				       (u64)mapping->memory[i] << XS_PAGE_LG2,
				       mapping->part_pages[i], mapping->prot, small);
		sim_call_end();
		if (error) {
			sim.map_failures++;
			driver_unmap(mapping, true);
			return false;
		}
		tell_mapped(mapping, page, i);
		page += mapping->part_pages[i];
	}
	filled = page - (u32)(mapping->iova >> XS_PAGE_LG2);
	if (small && filled < mapping->pages)
		xs_engine_skip(&sim.engine, (u64)page << XS_PAGE_LG2, mapping->pages - filled);
	return true;
}

u64 driver_limit(void)
{
	if (!sim_chance(sim.config.low))
		return ~0ULL;
	return (2 + sim_draw(sim.config.blocks)) * XS_BLOCK_BYTES - 1;
}

static void map(u32 pages)
{
	struct sim_mapping mapping = { .kind = (u8)driver_kind() };
	u64 last;
	bool done;

	choose_size(&mapping);
	if (pages) {
		mapping.pages = pages;
		mapping.part_count = 0;
	}
	mapping.prot = 1 + sim_draw(3);
	mapping.device = (u8)sim_draw(sim.config.devices);
	last = driver_limit();
	if (!take_memory(&mapping))
		return;
	sim.in_flight++;
	done = mapping.part_count ? map_parts(&mapping, last) : map_whole(&mapping, last);
	sim.in_flight--;
	if (done)
		sim.live[(sim.live_first + sim.live_count++) % SIM_MAPPINGS] = mapping;
	else
		drop_memory(&mapping, parts_of(&mapping));
}

/* ---- unmap ---- */

void driver_unmap(const struct sim_mapping *mapping, bool now)
{
	u32 page = (u32)(mapping->iova >> XS_PAGE_LG2);
	u32 serial = ++sim.unmap_serial;

	device_note_stale(page + sim_draw(mapping->pages));
	sim_event(EV_UNMAP, sim_cpu_now(), page, mapping->pages, serial, now);
	sim_call_begin();
	if (mapping->pages == 1 && !now)
		path_unmap_one(&sim.engine, mapping->iova);
	else
		xs_engine_unmap(&sim.engine, mapping->iova, mapping->pages, now);
	sim_call_end();
	sim.unmaps++;
	sim.unmapped_pages += mapping->pages;
	sim_event(EV_UNMAPPED, sim_cpu_now(), page, mapping->pages, serial, now);
}

/* The mapping that is @index-th of the ring is the driver's no more. */
static struct sim_mapping take_live(u32 index)
{
	struct sim_mapping *first = &sim.live[sim.live_first % SIM_MAPPINGS];
	struct sim_mapping *at = &sim.live[(sim.live_first + index) % SIM_MAPPINGS];
	struct sim_mapping taken = *at;

	*at = *first;
	sim.live_first = (sim.live_first + 1) % SIM_MAPPINGS;
	sim.live_count--;
	return taken;
}

/* ---- batch-aware ---- */

#define AWARE_MAX	8u

struct driver_promise driver_promise_begin(void)
{
	struct driver_promise promise = { .settings = sim.settings, .steady = !sim.setting };

	return promise;
}

void driver_promise_end(struct driver_promise *promise)
{
	promise->steady &= promise->settings == sim.settings;
	promise->waits = xs_policy_waits(sim.engine.policy);
	promise->strict = promise->steady &&
			  xs_policy_level(sim.engine.policy, true) == XS_LEVEL_STRICT;
}

/* Without a sync. Returns whether nothing may be left after the driver's own. */
static bool unmap_no_sync(const struct sim_mapping *mapping, u32 serial)
{
	struct driver_promise promise = driver_promise_begin();
	u32 page = (u32)(mapping->iova >> XS_PAGE_LG2);

	device_note_stale(page + sim_draw(mapping->pages));
	sim_event(EV_UNMAP, sim_cpu_now(), page, mapping->pages, serial, 0);
	sim_call_begin();
	if (mapping->pages == 1)
		path_unmap_one_no_sync(&sim.engine, mapping->iova);
	else
		xs_engine_unmap_no_sync(&sim.engine, mapping->iova, mapping->pages);
	sim_call_end();
	driver_promise_end(&promise);
	return promise.strict;
}

/*
 * This mapping and some more, with one sync. A task that may be moved has to
 * look on all CPUs; one that is bound to its CPU can still be interrupted.
 */
static void unmap_aware(const struct sim_mapping *first)
{
	struct sim_cpu *cpu = &sim.cpus[sim_cpu_now()];
	struct sim_mapping mappings[AWARE_MAX] = { *first };
	u32 wanted = 1 + sim_draw(AWARE_MAX);
	bool bound = cpu->interrupted || sim_draw(2);
	bool strict[AWARE_MAX];
	u32 serials[AWARE_MAX];
	u32 count = 0;

	cpu->bound += bound;
	do {
		serials[count] = ++sim.unmap_serial;
		strict[count] = unmap_no_sync(&mappings[count], serials[count]);
		if (++count == wanted || !sim.live_count)
			break;
		mappings[count] = take_live(sim.config.fifo ? 0 : sim_draw(sim.live_count));
		sim.in_flight++;
	} while (true);
	sim_call_begin();
	xs_engine_sync_explicit(&sim.engine, !bound);
	sim_call_end();
	cpu->bound -= bound;
	for (u32 i = 0; i < count; i++) {
		const struct sim_mapping *at = &mappings[i];

		sim.unmaps++;
		sim.unmapped_pages += at->pages;
		sim_event(EV_UNMAPPED, sim_cpu_now(), (u32)(at->iova >> XS_PAGE_LG2), at->pages,
			  serials[i], strict[i]);
		if (i)
			drop_memory(at, parts_of(at));
	}
	sim.in_flight -= count - 1;
}

static void unmap_index(u32 index, bool now)
{
	struct sim_mapping mapping = take_live(index);
	/* Of a folio the rest may be another's while its head is held for us. */
	bool early = mapping.kind != MEMORY_FOLIO && sim_fault(FAULT_FREED_EARLY);

	sim.in_flight++;
	if (early)
		drop_memory(&mapping, parts_of(&mapping));
	if (!early && !now && sim_chance(sim.config.aware))
		unmap_aware(&mapping);
	else
		driver_unmap(&mapping, now);
	if (!early)
		drop_memory(&mapping, parts_of(&mapping));
	sim.in_flight--;
}

static void unmap(void)
{
	bool now = sim_chance(sim.config.at_once);

	if (sim.live_count)
		unmap_index(sim.config.fifo ? 0 : sim_draw(sim.live_count), now);
}

/* ---- sync points ---- */

static void poll(void)
{
	struct sim_cpu *cpu = &sim.cpus[sim_cpu_now()];
	u64 settings = sim.settings;
	bool steady = !sim.setting;

	if (!cpu->poll_due)
		return;
	cpu->poll_due = false;
	sync_begin(CALL_POLL, sim_cpu_now());
	xs_engine_poll(&sim.engine);
	sync_end(CALL_POLL, sim_cpu_now(), steady && settings == sim.settings);
}

static void sync(enum xs_sync cause)
{
	sync_begin(CALL_SYNC, 0);
	xs_engine_sync(&sim.engine, cause);
	sync_end(CALL_SYNC, 0, true);
}

/* ---- the operator, and what goes wrong ---- */

static u32 number_of(const struct xs_policy *policy)
{
	u32 number = 0;

	while (number < POLICIES && xs_policy_find(policy_names[number]) != policy)
		number++;
	return number;
}

static void tell_policy(const struct xs_policy *policy, u64 window_us, bool changing)
{
	sim_event(EV_POLICY, 0, number_of(policy), xs_policy_level(policy, false), changing,
		  window_us * 1000);
}

static struct xs_tuning any_tuning(const struct xs_policy *policy)
{
	struct xs_tuning tuning = xs_tuning_default(policy);

	if (sim_draw(2))
		tuning.window_us = 1 + sim_draw(2 * sim.config.tuning.window_us);
	if (sim_draw(2))
		tuning.batch_pages = 1 + sim_draw(2 * sim.config.tuning.batch_pages);
	tuning.range_commands_max = 1 + sim_draw(XS_RANGES_MAX);
	if (tuning.batch_pages > XS_BATCH_MAX_PAGES)
		tuning.batch_pages = XS_BATCH_MAX_PAGES;
	return tuning;
}

static void change_policy(void)
{
	const struct xs_policy *policy = sim.config.policy;
	struct xs_tuning tuning;

	if (sim.setting)
		return;
	sim.setting = true;
	sim.settings++;
	if (sim_draw(2))
		policy = &xs_policies[sim_draw(xs_policy_count)];
	tuning = any_tuning(policy);
	tell_policy(policy, tuning.window_us, true);
	sync_begin(CALL_SET, 0);
	xs_engine_set(&sim.engine, policy, &tuning);
	sync_end(CALL_SET, 0, true);
	tell_policy(policy, tuning.window_us, false);
	sim.settings++;
	sim.setting = false;
}

static void switch_cpu(void)
{
	u32 cpu = sim_draw(sim.config.cpus);
	struct sim_cpu *at = &sim.cpus[cpu];

	if (at->busy)
		return;
	at->online = !at->online;
	if (at->online)
		return;
	at->poll_due = false;
	sync_begin(CALL_RETIRE, cpu);
	xs_engine_retire_cpu(&sim.engine, cpu);
	sync_end(CALL_RETIRE, cpu, true);
}

static void remove_device(void)
{
	u32 device = sim_draw(sim.config.devices);

	for (u32 i = 0; i < sim.live_count;) {
		if (sim.live[(sim.live_first + i) % SIM_MAPPINGS].device == device)
			unmap_index(i, false);
		else
			i++;
	}
	sync(XS_SYNC_DRAIN);
}

static void go_wrong(void)
{
	if (sim_fault(FAULT_JUMP))
		time_jump();
	else if (sim_fault(FAULT_POLICY))
		change_policy();
	else if (sim_fault(FAULT_OFFLINE))
		switch_cpu();
	else if (sim_fault(FAULT_SYNC))
		sync(XS_SYNC_DRAIN);
	else if (sim_fault(FAULT_REMOVAL))
		remove_device();
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
	if (at == STEP_MAP && sim.live_count + sim.in_flight >= sim.config.live_max)
		at = STEP_UNMAP;
	switch (at) {
	case STEP_MAP:
		map(0);
		break;
	case STEP_UNMAP:
		unmap();
		break;
	case STEP_POLL:
		poll();
		break;
	case STEP_LOOK:
		device_look();
		break;
	case STEP_SYNC:
		sync(XS_SYNC_EXPLICIT);
		break;
	case STEP_BLOCK:
		block_step();
		break;
	}
}

void driver_step(void)
{
	time_pass(sim_draw(2 * sim.config.step_ns));
	sim_interrupt_if_due();
	for (u32 looks = sim_draw(sim.config.looks + 1); looks; looks--)
		device_look();
	if (!sim_draw(64))
		go_wrong();
	ordinary_step();
}

void driver_interrupt(void)
{
	if (sim_step_begin())
		ordinary_step();
}

/* ---- begin and end ---- */

void driver_begin(void)
{
	const struct xs_engine_config config = {
		.ops = &sim_ops,
		.start = 0,
		.end = sim.config.blocks * XS_BLOCK_BYTES,
		.cpu_count = sim.config.cpus,
		.policy = sim.config.policy,
	};

	if (xs_engine_init(&sim.engine, &config))
		sim_fail("world", "the engine cannot be made");
	xs_engine_set(&sim.engine, sim.config.policy, &sim.config.tuning);
	tell_policy(sim.config.policy, sim.config.tuning.window_us, false);
	block_begin();
}

static void tell_accounts(bool end)
{
	static struct xs_ledger ledger;
	struct sim_accounts accounts = {
		.maps = sim.maps,
		.mapped_pages = sim.mapped_pages,
		.map_failures = sim.map_failures,
		.unmaps = sim.unmaps,
		.unmapped_pages = sim.unmapped_pages,
		.unmaps_spread = sim.unmaps_spread,
		.live_pages = sim.mapped_pages - sim.unmapped_pages,
		.commands_page = sim.commands_page,
		.commands_domain = sim.commands_domain,
		.syncs = sim.syncs,
		.memory_out = sim.memory_out,
		.off_ns = sim.off_ever_ns,
		.end = end,
		.ledger = &ledger,
	};

	accounts.audit = xs_engine_audit(&sim.engine, &ledger);
	sim_event(EV_ACCOUNTS, 0, 0, 0, 0, (u64)(size_t)&accounts);
}

/* All IOVAs can be handed out again: nothing was lost on the way. */
static void check_space(void)
{
	u32 before;

	do {
		before = sim.live_count;
		map(XS_BLOCK_PAGES);
	} while (sim.live_count > before);
	if (before != sim.config.blocks - 1)
		sim_fail("accounts", "%u of %u blocks can be handed out at the end", before,
			 sim.config.blocks - 1);
	while (sim.live_count)
		unmap_index(0, true);
}

void driver_end(void)
{
	sim.calm = true;
	block_end();
	tell_accounts(false);
	while (sim.live_count)
		unmap_index(0, false);
	sync(XS_SYNC_DRAIN);
	tell_accounts(true);
	for (u32 i = 0; i < sim.config.cpus; i++)
		xs_engine_retire_cpu(&sim.engine, i);
	for (u32 i = 0; i < MEMORY_KINDS; i++)
		sim.config.kinds[i] = i == MEMORY_PERMANENT;
	sim.config.large = 0;
	sim.config.low = 0;
	check_space();
	tell_accounts(true);
	xs_engine_destroy(&sim.engine);
	if (sim.allocations)
		sim_fail("accounts", "%llu allocations of the engine are left",
			 (unsigned long long)sim.allocations);
}
