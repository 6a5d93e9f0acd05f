// SPDX-License-Identifier: GPL-2.0-only
/* Configurations: the plain world, and worlds drawn from a seed; see config.h. */
#include "config.h"

static void use_window(struct sim_config *config)
{
	config->window = config->memory_pages;
	config->again = 4;
	config->recycle = 2;
}

struct sim_config sim_config_plain(const struct xs_policy *policy)
{
	struct sim_config config = {
		.policy = policy,
		.tuning = xs_tuning_default(policy),
		.cpus = 4,
		.blocks = 24,
		.memory_pages = 512,
		.live_max = 96,
		.table_lg2 = 6,
		.directory_lg2 = 2,
		.iotlb = 64,
		.walk = 8,
		.device_tlb = 16,
		.devices = 2,
		.ats = 1,
		.queue = 8,
		.turn = 100,
		.wait_turn = 8,
		.step_ns = 500,
		.looks = 1,
		.attack = 50,
		.step = { 40, 40, 4, 4, 1, 4, 1, 8 },
		.multi = 16,
		.large = 800,
		.scatter = 4,
		.aware = 16,
		.at_once = 64,
		.low = 32,
		.kinds = { 8, 2, 1, 1 },
		.fault = {
			[FAULT_ALLOC] = 64,
			[FAULT_TABLE] = 64,
			[FAULT_QUEUE_FULL] = 64,
			[FAULT_SLOW] = 64,
			[FAULT_LOST] = 64,
			[FAULT_EVICT] = 2,
			[FAULT_REMOVAL] = 200,
			[FAULT_FLUSH] = 100,
			[FAULT_JUMP] = 50,
			[FAULT_LATE_TIMER] = 8,
			[FAULT_OFFLINE] = 20,
			[FAULT_UNSURE] = 16,
			[FAULT_TRIM] = 50,
			[FAULT_BAD_UNMAP] = 20,
			[FAULT_FREED_EARLY] = 64,
			[FAULT_TWICE] = 20,
			[FAULT_TABLES] = 50,
			[FAULT_MIGRATE] = 8,
		},
	};

	if (config.tuning.batch_pages > 128)
		config.tuning.batch_pages = 128;
	config.tuning.pool_mib = SIM_POOL_MIB;
	if (policy->placement == XS_PLACE_IDENTITY)
		use_window(&config);
	return config;
}

/* ---- drawn worlds ---- */

static u64 state;

static u32 draw(u32 limit)
{
	u64 z = state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return (u32)(((z ^ (z >> 31)) >> 32) * limit >> 32);
}

/* Draw a size from @low to @high; small sizes are as likely as large sizes. */
static u32 draw_size(u32 low, u32 high)
{
	u32 doublings = 0, limit;

	while (low << doublings < high)
		doublings++;
	limit = low << draw(doublings + 1);
	if (limit > high)
		limit = high;
	return low + draw(limit - low + 1);
}

static u32 draw_power(u32 lg2_low, u32 lg2_high)
{
	return 1u << (lg2_low + draw(lg2_high - lg2_low + 1));
}

/* Draw a rate: off, rare, or every second turn. */
static u32 draw_rate(u32 rare)
{
	return draw(3) ? draw_size(2, rare) : 0;
}

static void draw_hardware(struct sim_config *config)
{
	config->table_lg2 = 4 + draw(SIM_TABLE_LG2 - 3);
	config->directory_lg2 = 1 + draw(3);
	config->first_stage = draw(2);
	config->caching = !draw(3);
	config->iotlb = draw_power(0, 8);
	config->walk = draw_power(0, 5);
	config->device_tlb = draw_power(0, 7);
	config->devices = 1 + draw(4);
	config->ats = draw(config->devices + 1);
	config->queue = draw_size(2, 32);
}

static void draw_work(struct sim_config *config)
{
	config->live_max = draw_size(1, 4000);
	config->step[STEP_MAP] = 40;
	config->step[STEP_UNMAP] = 20 + draw(60);
	config->step[STEP_POLL] = draw(3) ? draw_size(1, 40) : 0;
	config->step[STEP_LOOK] = draw(40);
	config->step[STEP_FLUSH] = draw(2) ? draw_size(1, 8) : 0;
	config->looks = draw(4);
	config->attack = draw(100);
	config->multi = draw(3) ? draw_size(2, 64) : 0;
	config->large = draw(3) ? draw_size(50, 2000) : 0;
	config->scatter = draw(3) * 2;
	config->fifo = draw(2);
	config->aware = draw(2) ? draw_size(1, 64) : 0;
	config->at_once = draw(2) ? draw_size(4, 200) : 0;
	config->low = draw(2) ? draw_size(2, 200) : 0;
	config->kinds[0] = 1 + draw(8);
	for (u32 i = 1; i < 4; i++)
		config->kinds[i] = draw(2) ? draw(8) : 0;
}

/*
 * A wide world has many mappings all over the space, because limits vary, and few flushes.
 * Batches then hold hundreds of extents, a combination that independent draws hardly produce.
 */
static void widen(struct sim_config *config)
{
	config->tuning.window_us = 10000;
	config->tuning.batch_pages = XS_BATCH_MAX_PAGES;
	config->cpus = 1 + draw(2);
	config->blocks = 320;
	config->memory_pages = 4096;
	config->live_max = 3900;
	config->step_ns = 100;
	config->step[STEP_UNMAP] = 20;
	config->step[STEP_POLL] = 0;
	config->step[STEP_FLUSH] = 0;
	config->step[STEP_BLOCK] = 0;
	config->multi = 0;
	config->large = 0;
	config->aware = 0;
	config->at_once = 0;
	config->low = 3;
	config->fifo = false;
	config->kinds[MEMORY_SLAB] = 0;
	/* Otherwise undo mappings in the order of their maps, so that extents are long. */
	if (draw(2)) {
		config->fifo = true;
		config->low = 0;
		config->low_blocks = 0;
		config->table_lg2 = SIM_TABLE_LG2;
	}
	config->fault[FAULT_FLUSH] = 0;
	config->fault[FAULT_JUMP] = 0;
	config->fault[FAULT_POLICY] = 0;
	config->fault[FAULT_OFFLINE] = 0;
	config->fault[FAULT_REMOVAL] = 0;
}

/*
 * A narrow world has batch-aware drivers on several CPUs and in interrupts, all in a few blocks
 * that are constantly handed out, flushed and handed out again.
 */
static void narrow(struct sim_config *config)
{
	config->tuning = xs_tuning_default(config->policy);
	config->tuning.batch_aware = !draw(8);
	config->cpus = 3 + draw(4);
	config->blocks = 2 + draw(2);
	config->low_blocks = 0;
	config->live_max = draw_size(8, 60);
	config->turn = 1 + draw(6);
	config->wait_turn = 1 + draw(2);
	config->step[STEP_LOOK] = 0;
	config->looks = 0;
	config->aware = 2;
	config->multi = 0;
	config->large = 0;
	config->low = 0;
}

/* Entries are written in place, with tables of the size that the engine supports (flush.c). */
static void draw_direct(struct sim_config *config)
{
	config->direct = !draw(3);
	if (!config->direct)
		return;
	config->table_lg2 = SIM_TABLE_LG2;
	/* Mappings of many pages free tables. */
	config->large = draw_size(20, 200);
}

/*
 * A crowded world has few pages of memory, which drivers on several CPUs and in interrupts map,
 * recycle and map more than once.
 */
static void crowd(struct sim_config *config)
{
	config->cpus = 2 + draw(5);
	config->memory_pages = draw_size(4, 64);
	config->live_max = draw_size(4, 200);
	config->turn = 1 + draw(12);
	config->wait_turn = 1 + draw(3);
	config->multi = draw(2) ? draw_size(2, 64) : 0;
	config->low = draw(2) ? draw_size(20, 200) : 0;
	config->again = 2;
	config->recycle = 2;
	if (draw(2))
		return;
	/* Pages that are stuck, and that a driver has freed too early. */
	config->remembers = draw(4);
	config->fault[FAULT_REMOVE] = 8;
	config->fault[FAULT_FREED_EARLY] = 4;
	config->kinds[MEMORY_SLAB] = config->kinds[MEMORY_COUNTED];
}

/*
 * Worlds without identity placement have a window too, for changes of the policy. A window has all
 * memory, or a part.
 */
static void draw_window(struct sim_config *config)
{
	bool used = config->policy->placement == XS_PLACE_IDENTITY;

	if (!draw(used ? 16 : 4))
		return;
	config->again = draw(2) ? draw_size(2, 32) : 0;
	config->recycle = draw(4) ? draw_size(1, 16) : 0;
	if ((used || config->fault[FAULT_POLICY]) && !draw(3))
		crowd(config);
	config->window = draw(4) ? SIM_WINDOW : 1 + draw(config->memory_pages);
}

struct sim_config sim_config_drawn(const struct xs_policy *policy, u64 seed)
{
	struct sim_config config = { 0 };

	state = seed ^ 0x5851f42d4c957f2d;
	config.policy = policy ? policy : &xs_policies[draw(xs_policy_count)];
	config.tuning = xs_tuning_default(config.policy);
	if (draw(2))
		config.tuning.window_us = draw_size(8, 10000);
	if (draw(4))
		config.tuning.batch_pages = draw_size(1, XS_BATCH_MAX_PAGES);
	config.tuning.range_commands_max = 1 + draw(XS_RANGES_MAX);
	config.tuning.batch_aware = !draw(8);
	config.cpus = 1 + draw(6);
	config.blocks = draw_size(2, 320);
	if (config.blocks > 16 && !draw(4))
		config.low_blocks = 16 * (1 + draw((config.blocks - 1) / 16));
	config.memory_pages = draw_size(16, 4096);
	config.turn = draw_size(4, 2000);
	config.wait_turn = draw_size(1, 64);
	config.step_ns = draw_size(50, 20000);
	draw_hardware(&config);
	draw_work(&config);
	for (u32 i = 0; i < FAULT_REMOVE; i++)
		config.fault[i] = draw_rate(400);
	config.step[STEP_BLOCK] = draw(2) ? draw_size(1, 40) : 0;
	config.step[STEP_READ] = draw(2) ? draw_size(1, 8) : 0;
	config.step[STEP_COPY] = draw(3) ? 0 : draw_size(1, 80);
	config.copy_alike = draw(2);
	if (!draw(8))
		widen(&config);
	else if (!draw(4))
		narrow(&config);
	draw_direct(&config);
	/* Drawn last, so that worlds without these faults stay the same for a given seed. */
	config.fault[FAULT_REMOVE] = draw(2) ? draw_size(8, 2000) : 0;
	config.remembers = config.fault[FAULT_REMOVE] && draw(4);
	config.fault[FAULT_MIGRATE] = draw(2) ? draw_size(1, 64) : 0;
	config.tuning.pool_mib = SIM_POOL_MIB;
	draw_window(&config);
	return config;
}

const char *sim_fault_name(enum sim_fault fault)
{
	static const char *const names[FAULT_COUNT] = {
		[FAULT_ALLOC] = "no memory",
		[FAULT_TABLE] = "no table",
		[FAULT_QUEUE_FULL] = "queue full",
		[FAULT_SLOW] = "slow completion",
		[FAULT_LOST] = "lost completion",
		[FAULT_EVICT] = "eviction",
		[FAULT_REMOVAL] = "device removal",
		[FAULT_FLUSH] = "flush from another CPU",
		[FAULT_JUMP] = "time jump",
		[FAULT_LATE_TIMER] = "late timer",
		[FAULT_POLICY] = "change of policy",
		[FAULT_OFFLINE] = "CPU offline",
		[FAULT_UNSURE] = "hold the long way",
		[FAULT_TRIM] = "trim",
		[FAULT_BAD_UNMAP] = "bad unmap",
		[FAULT_FREED_EARLY] = "freed before unmap",
		[FAULT_TWICE] = "unmapped twice",
		[FAULT_TABLES] = "change of tables",
		[FAULT_REMOVE] = "removal fails",
		[FAULT_MIGRATE] = "migration",
	};

	return names[fault];
}
