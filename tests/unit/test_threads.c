// SPDX-License-Identifier: GPL-2.0-only
/*
 * Concurrent CPUs: mappings made on one CPU and unmapped on another, with polls, timers,
 * explicit flushes, policy changes and trims in between, and with interrupts that do the same.
 * Run freely, for ThreadSanitizer and the real machine, and by turns, where a seed determines
 * the interleaving and a run can be repeated.
 */
#include "unit_world.h"

#define SLOTS	48

/* A place for mappings. The CPU that takes a pointer out owns the mapping. */
struct shared {
	struct world *world;
	u64 seed;
	u32 steps;
	u32 cpus;
	const struct xs_policy *only;	/* no policy changes if set */
	bool emptying;		/* single pages, so that many blocks get empty */
	bool interrupts;
	bool changing;		/* CPU 0 only changes policies */
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

/* Release and acquire: the order that a driver's own ring provides. */
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

/* Unmap this mapping and other available mappings with one flush. */
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
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
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
	tuning.batch_aware = !below(cpu, 3);
	world_set_policy(cpu->shared->world, policy, &tuning);
}

/* Sums taken under traffic are slightly old, but never impossible. */
static void check_accounts(struct world *world)
{
	struct xs_stats *sum = test_alloc(sizeof(*sum));

	xs_engine_stats(&world->engine, sum);
	CHECK(xs_counts_unmapped(&sum->counts) >=
	      sum->counts.immediate_pages + sum->flushed_pages);
	test_free(sum);
	CHECK(xs_engine_live_pages(&world->engine) >= 0);
}

/* Actions of CPU 0 only: there is one operator, and one clock. */
static void operate(struct cpu *cpu)
{
	struct world *world = cpu->shared->world;

	switch (below(cpu, 10)) {
	case 0:
		set(cpu);
		break;
	case 1:
	case 2:
		check_accounts(world);
		break;
	case 3:
		world_trim(world, below(cpu, 2));
		break;
	case 4:
		world_settle(world);
		break;
	default:
		__atomic_fetch_add(&world->now_ns, below(cpu, 300000),
				   __ATOMIC_RELAXED);
	}
}

/* Actions allowed in any context. */
static void act(struct cpu *cpu, u32 what)
{
	struct world *world = cpu->shared->world;

	if (what < 45)
		map(cpu);
	else if (what < 80)
		unmap(cpu, exchange(cpu, NULL));
	else if (what < 86)
		world_poll(world);
	else if (what < 92)
		world_fire(world, cpu->id);
	else if (what < 94)
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
	else
		xs_engine_retire_cpu(&world->engine, cpu->id);
}

static void interrupt(void *argument)
{
	struct cpu *cpu = argument;

	act(cpu, below(cpu, 95));
}

static void run(void *argument, u32 id)
{
	struct shared *shared = argument;
	struct cpu cpu = { shared, shared->seed * TEST_CPUS + id, id };
	struct cpu inner = cpu;

	inner.random ^= 1ULL << 63;
	if (shared->interrupts)
		test_interrupts(interrupt, &inner);
	for (u32 step = 0; step < shared->steps && !test_failed(); step++) {
		u32 what = below(&cpu, 100);

		test_replay(shared->seed, step);
		if (!id && shared->changing && what < 50)
			set(&cpu);
		else if (what < 95)
			act(&cpu, what);
		else if (!id)
			operate(&cpu);
		if (step % 256 == 0)
			test_relax();
	}
	test_interrupts(NULL, NULL);
}

enum how { FREELY, BY_TURNS, EMPTYING, CHANGING };

/*
 * Run one CPU at a time, by @seed, or freely. @how: mode of the run. Returns false if the platform does
 * not support seeds.
 */
static bool together(u64 seed, u32 steps, enum how how)
{
	const struct xs_policy *only = how == EMPTYING ?
		xs_policy_find("fands") : NULL;
	struct shared *shared = test_alloc(sizeof(*shared));
	struct world_config config = {
		.blocks = 4 + seed % 3 * 20,
		.cpus = 2 + seed / 3 % 3,
		.policy = only ? only : &xs_policies[seed % xs_policy_count],
		.start = seed % 2 << 32,
	};
	struct cpu cpu = { shared, 1, 0 };
	bool done;

	shared->world = world_new(&config, 0);
	shared->world->engine.space.empty_min = 0;
	shared->seed = seed;
	shared->steps = steps;
	shared->cpus = config.cpus;
	shared->changing = how == CHANGING;
	shared->only = only || (seed / 5 % 2 && !shared->changing) ?
		config.policy : NULL;
	shared->emptying = only;
	shared->interrupts = seed % 8;
	done = test_threads(config.cpus, how == FREELY ? 0 : seed, run, shared);
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
	together(seed, 3000, FREELY);
}

static void freely(void)
{
	test_seeds(20, freely_seed);
}

static void by_turns_seed(u64 seed)
{
	test_replay(seed, 0);
	together(seed, 150, BY_TURNS);
}

static void by_turns(void)
{
	test_seeds(150, by_turns_seed);
}

/* The last pages of blocks are unmapped on any CPU, and flushed on another CPU. */
static void emptying_seed(u64 seed)
{
	test_replay(seed, 0);
	together(seed, 300, EMPTYING);
}

static void emptying(void)
{
	test_seeds(200, emptying_seed);
}

/* Policy changes, one after the other, during unmaps. */
static void changing_seed(u64 seed)
{
	test_replay(seed, 0);
	together(seed, 80, CHANGING);
}

static void changing(void)
{
	test_seeds(200, changing_seed);
}

/* ---- statistics ---- */

struct traffic {
	struct world *world;
	u64 seed;
	u64 stopped;	/* CPUs */
};

/* CPU 0 reads, other CPUs map and unmap. */
static void count_run(void *argument, u32 cpu)
{
	struct traffic *traffic = argument;
	struct world *world = traffic->world;

	for (u32 i = 0; cpu && i < 60 && !test_failed(); i++) {
		struct mapping mapping = { .pages = 1 + i % 3 / 2 * 3 };

		if (driver_map(world, &mapping, ~0ULL))
			driver_unmap(world, &mapping, i % 16 == 0);
		if (i % 4 == 0)
			world_poll(world);
	}
	__atomic_fetch_add(&traffic->stopped, 1, __ATOMIC_RELAXED);
	while (!cpu && !test_failed() &&
	       __atomic_load_n(&traffic->stopped, __ATOMIC_RELAXED) < 3) {
		check_accounts(world);
		test_relax();
	}
}

static void count_seed(u64 seed)
{
	struct world_config config = {
		.blocks = 64, .cpus = 3,
		.policy = &xs_policies[seed % xs_policy_count],
	};
	struct traffic traffic = { world_new(&config, 0), seed, 0 };

	test_replay(seed, 0);
	/* With a seed, or running freely where seeds are not supported. */
	if (!test_threads(3, seed, count_run, &traffic))
		test_threads(3, 0, count_run, &traffic);
	test_be_cpu(0);
	if (test_failed())
		world_free(traffic.world);
	else
		world_end(traffic.world);
}

static void counting(void)
{
	test_seeds(100, count_seed);
}

/* ---- maps and the number of live pages ---- */

#define LIVE_MAPS	30

/*
 * A CPU that makes maps fail and waits for all sections finds every mapped page counted as
 * live: a failing map gives back nothing after the section. Outside of sections both counts
 * agree.
 */
struct living {
	struct world *world;
	u64 seed;
	struct mapping mappings[LIVE_MAPS];
	u32 count;
};

static void live_look(void *argument)
{
	struct living *living = argument;
	struct world *world = living->world;
	s64 pages = 0;

	if (test_is_entered(test_cpu()))
		return;
	for (u32 i = 0; i < world->end_page; i++)
		pages += !!(world->word[i] & WORD_TABLE);
	CHECK(xs_engine_live_pages(&world->engine) == pages);
}

static void live_run(void *argument, u32 cpu)
{
	struct living *living = argument;
	u64 random = living->seed;

	test_interrupts(live_look, living);
	for (u32 i = 0; i < LIVE_MAPS && !test_failed(); i++) {
		struct mapping *mapping = &living->mappings[living->count];

		/* Larger mappings are in a section of the caller. */
		mapping->pages = 1;
		if (!test_below(&random, 3))
			mapping->pages += test_below(&random, XS_BLOCK_PAGES);
		living->count += driver_map(living->world, mapping, ~0ULL);
	}
	test_interrupts(NULL, NULL);
	live_look(living);
}

static void live_seed(u64 seed)
{
	struct world_config config = {
		.blocks = 64, .cpus = 1,
		.policy = &xs_policies[seed % xs_policy_count],
	};
	struct living *living = test_alloc(sizeof(*living));

	living->world = world_new(&config, 0);
	living->seed = seed;
	test_replay(seed, 0);
	/* With a seed and one CPU, so that a run can be repeated. */
	if (!test_threads(1, seed, live_run, living))
		test_threads(1, 0, live_run, living);
	test_be_cpu(0);
	for (u32 i = 0; i < living->count && !test_failed(); i++)
		driver_unmap(living->world, &living->mappings[i], false);
	if (test_failed())
		world_free(living->world);
	else
		world_end(living->world);
	test_free(living);
}

static void living(void)
{
	test_seeds(200, live_seed);
}

/* ---- the flushes of batch-aware drivers ---- */

#define POLLS		20
#define POLL_PAGES	24

/*
 * Each CPU has a ring and unmaps completed mappings in a poll; a third of the mappings are
 * handed to another CPU.
 */
struct polls {
	struct world *world;
	u64 seed;
	struct mapping *rings[TEST_CPUS][POLL_PAGES];
};

static void poll_once(struct polls *polls, u32 cpu, u64 *random)
{
	struct mapping *mappings[POLL_PAGES], done[AWARE_MAX];
	struct world *world = polls->world;
	u32 count = 0;

	for (u32 i = 0; i < POLL_PAGES; i++) {
		u32 other = (cpu + 1 + test_below(random, TEST_CPUS - 1)) %
			    TEST_CPUS;
		struct mapping **place = &polls->rings[i % 3 ? cpu : other][i];
		struct mapping *mapping = test_alloc(sizeof(*mapping));

		mapping->pages = 1;
		if (CHECK(driver_map(world, mapping, ~0ULL)))
			mapping = __atomic_exchange_n(place, mapping,
						      __ATOMIC_ACQ_REL);
		if (mapping)
			mappings[count++] = mapping;
	}
	for (u32 i = 0; i < count; i++) {
		if (i < AWARE_MAX)
			done[i] = *mappings[i];
		else
			driver_unmap_deferred(world, mappings[i]);
	}
	/* One flush at the end. */
	if (count)
		driver_unmap_aware(world, done,
				   count < AWARE_MAX ? count : AWARE_MAX, false);
	for (u32 i = 0; i < count; i++) {
		if (i >= AWARE_MAX) {
			CHECK(!driver_reachable(world, mappings[i]));
			driver_free(world, mappings[i]);
		}
		test_free(mappings[i]);
	}
}

static void poll_run(void *argument, u32 cpu)
{
	struct polls *polls = argument;
	u64 random = polls->seed * TEST_CPUS + cpu;

	for (u32 i = 0; i < POLLS && !test_failed(); i++)
		poll_once(polls, cpu, &random);
}

/*
 * A driver's flush covers only pages unmapped on the CPU: mapping on another CPU, or neighbours
 * of another CPU, cost nothing.
 */
static void poll_seed(u64 seed)
{
	struct world_config config = {
		.blocks = WORLD_BLOCKS_MAX, .cpus = TEST_CPUS,
		.policy = xs_policy_find(seed % 2 ? "fused" : "xsmmu"),
	};
	struct polls *polls = test_alloc(sizeof(*polls));
	u64 flushes = 0;

	test_replay(seed, 0);
	polls->seed = seed;
	polls->world = world_new(&config, 0);
	if (seed % 4 == 0 || !test_threads(TEST_CPUS, seed, poll_run, polls))
		test_threads(TEST_CPUS, 0, poll_run, polls);
	test_be_cpu(0);
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		flushes += world_stats(polls->world)->flushes[i];
	CHECK(10 * flushes <= 11 * TEST_CPUS * POLLS);
	for (u32 i = 0; i < TEST_CPUS * POLL_PAGES; i++) {
		struct mapping *mapping =
			polls->rings[i / POLL_PAGES][i % POLL_PAGES];

		if (mapping)
			driver_unmap(polls->world, mapping, false);
		test_free(mapping);
	}
	if (test_failed())
		world_free(polls->world);
	else
		world_end(polls->world);
	test_free(polls);
}

static void polling(void)
{
	test_seeds(12, poll_seed);
}

const struct test thread_tests[] = {
	{ "threads_by_turns", by_turns, .threads = true },
	{ "threads_emptying_blocks", emptying, .threads = true },
	{ "threads_changing", changing, .threads = true },
	{ "threads_counting", counting, .threads = true },
	{ "threads_living", living, .threads = true },
	{ "threads_polling", polling, .threads = true },
	{ "threads_freely", freely, .threads = true },
	{ NULL, NULL },
};
