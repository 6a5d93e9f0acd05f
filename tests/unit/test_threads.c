// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs at the same time: mappings made on one and undone on another, with
 * polls, timers, explicit syncs and policy changes among them. Once freely,
 * for ThreadSanitizer and the real machine, and once by turns, where each
 * interleaving is drawn from a seed and can be repeated.
 */
#include "world.h"

#define SLOTS	48

/* A mapping's place. Who takes the pointer out owns what it points to. */
struct shared {
	struct world *world;
	u64 seed;
	u32 steps;
	u32 cpus;
	const struct xs_policy *only;	/* no policy changes if set */
	bool emptying;		/* single pages, so that many blocks get empty */
	struct mapping *slots[SLOTS];
};

struct cpu {
	struct shared *shared;
	u64 random;
	u32 id;
};

static u32 below(struct cpu *cpu, u32 limit)
{
	return test_below(&cpu->random, limit);
}

/* Release and acquire: as much order as a driver's own ring gives. */
static struct mapping *exchange_at(struct shared *shared, u32 slot,
				   struct mapping *mapping)
{
	return __atomic_exchange_n(&shared->slots[slot], mapping,
				   __ATOMIC_ACQ_REL);
}

static struct mapping *exchange(struct cpu *cpu, struct mapping *mapping)
{
	return exchange_at(cpu->shared, below(cpu, SLOTS), mapping);
}

/* This and what else there is, with one sync. */
static void unmap_aware(struct cpu *cpu, struct mapping *mapping)
{
	struct mapping mappings[AWARE_MAX];
	u32 wanted = 1 + below(cpu, AWARE_MAX);
	u32 count = 0;

	while (mapping) {
		mappings[count++] = *mapping;
		test_free(mapping);
		mapping = count < wanted ? exchange(cpu, NULL) : NULL;
	}
	driver_unmap_aware(cpu->shared->world, mappings, count,
			   !below(cpu, 4));
}

static void unmap(struct cpu *cpu, struct mapping *mapping)
{
	struct world *world = cpu->shared->world;

	if (!mapping)
		return;
	if (!below(cpu, 4))
		driver_check(world, mapping);
	if (!below(cpu, 4)) {
		unmap_aware(cpu, mapping);
		return;
	}
	driver_unmap_only(world, mapping,
			  !cpu->shared->emptying && !below(cpu, 30));
	if (!below(cpu, cpu->shared->emptying ? 6 : 8)) {
		xs_engine_sync(&world->engine, XS_SYNC_EXPLICIT);
		CHECK(!driver_reachable(world, mapping));
	}
	driver_free(world, mapping);
	test_free(mapping);
}

static void map(struct cpu *cpu)
{
	struct mapping *mapping = test_alloc(sizeof(*mapping));

	mapping->pages = 1;
	if (!cpu->shared->emptying && !below(cpu, 4))
		mapping->pages += below(cpu, 70);
	mapping->prot = 1 + below(cpu, 3);
	mapping->parts = !below(cpu, 8);
	mapping->kind = below(cpu, 3) ? MEMORY_COUNTED :
					below(cpu, MEMORY_KINDS);
	if (driver_map(cpu->shared->world, mapping, ~0ULL))
		unmap(cpu, exchange(cpu, mapping));
	else
		test_free(mapping);
}

static void set(struct cpu *cpu)
{
	const struct xs_policy *policy = cpu->shared->only;
	struct xs_tuning tuning;

	if (!policy)
		policy = &xs_policies[below(cpu, xs_policy_count)];
	tuning = xs_tuning_default(policy);
	tuning.window_us = 1 + below(cpu, 1000);
	tuning.batch_pages = 1 + below(cpu, 300);
	world_set_policy(cpu->shared->world, policy, &tuning);
}

/* What only CPU 0 does: there is one operator, and one clock. */
static void operate(struct cpu *cpu)
{
	struct world *world = cpu->shared->world;
	struct xs_ledger *sum;

	switch (below(cpu, 8)) {
	case 0:
		set(cpu);
		break;
	case 1:
		sum = test_alloc(sizeof(*sum));
		xs_engine_ledger(&world->engine, sum);
		test_free(sum);
		break;
	case 2:
		CHECK(xs_engine_live(&world->engine) >= 0);
		break;
	default:
		__atomic_fetch_add(&world->now_ns, below(cpu, 300000),
				   __ATOMIC_RELAXED);
	}
}

static void run(void *argument, u32 id)
{
	struct shared *shared = argument;
	struct cpu cpu = { shared, shared->seed * TEST_CPUS + id, id };

	for (u32 step = 0; step < shared->steps && !test_failed(); step++) {
		u32 what = below(&cpu, 100);

		test_replay(shared->seed, step);
		if (what < 45)
			map(&cpu);
		else if (what < 80)
			unmap(&cpu, exchange(&cpu, NULL));
		else if (what < 86)
			world_poll(shared->world);
		else if (what < 92)
			world_fire(shared->world, id);
		else if (what < 94)
			xs_engine_sync(&shared->world->engine,
				       XS_SYNC_EXPLICIT);
		else if (what < 95)
			xs_engine_retire_cpu(&shared->world->engine, id);
		else if (!id)
			operate(&cpu);
		if (step % 256 == 0)
			test_relax();
	}
}

/*
 * @turns: one CPU at a time, by @seed. @only: with this policy, and blocks that
 * are emptied. False if this world cannot do it.
 */
static bool together(u64 seed, u32 steps, bool turns,
		     const struct xs_policy *only)
{
	struct shared *shared = test_alloc(sizeof(*shared));
	struct world_config config = {
		.blocks = 4 + seed % 3 * 20,
		.cpus = 2 + seed / 3 % 3,
		.policy = only ? only : &xs_policies[seed % xs_policy_count],
	};
	struct cpu cpu = { shared, 1, 0 };
	bool done;

	shared->world = world_new(&config, 0);
	shared->seed = seed;
	shared->steps = steps;
	shared->cpus = config.cpus;
	shared->only = only || seed / 5 % 2 ? config.policy : NULL;
	shared->emptying = only;
	done = test_threads(config.cpus, turns ? seed : 0, run, shared);
	test_be_cpu(0);
	for (u32 i = 0; i < SLOTS && !test_failed(); i++)
		unmap(&cpu, exchange_at(shared, i, NULL));
	if (test_failed())
		world_free(shared->world);
	else
		world_end(shared->world);
	test_free(shared);
	return done;
}

static void freely_seed(u64 seed)
{
	together(seed, 3000, false, NULL);
}

static void freely(void)
{
	test_seeds(20, freely_seed);
}

static void by_turns_seed(u64 seed)
{
	test_replay(seed, 0);
	together(seed, 150, true, NULL);
}

static void by_turns(void)
{
	test_seeds(150, by_turns_seed);
}

/* Blocks whose last pages are unmapped on any CPU, and synced on another. */
static void emptying_seed(u64 seed)
{
	test_replay(seed, 0);
	together(seed, 300, true, xs_policy_find("fands"));
}

static void emptying(void)
{
	test_seeds(400, emptying_seed);
}

const struct test thread_tests[] = {
	{ "threads_by_turns", by_turns },
	{ "threads_emptying_blocks", emptying },
	{ "threads_freely", freely },
	{ NULL, NULL },
};
