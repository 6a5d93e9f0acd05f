// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random sequences on a few CPUs, one CPU at a time: all actions of drivers, operators and the
 * kernel, in a space so small that the space is often full.
 */
#include "unit_world.h"

#define MAPPINGS	200

struct run {
	struct world *world;
	u64 random;
	u64 window_ns;
	u64 start;
	u32 count;
	struct mapping mappings[MAPPINGS];
};

static u32 below(struct run *run, u32 limit)
{
	return test_below(&run->random, limit);
}

static u32 some_pages(struct run *run)
{
	switch (below(run, 8)) {
	case 0:
		return 1 + below(run, 200);
	case 1:
	case 2:
		return 1 + below(run, XS_BLOCK_PAGES);
	case 3:
		return 1 + below(run, 4);
	}
	return 1;
}

static void do_map(struct run *run)
{
	struct mapping *mapping = &run->mappings[run->count];
	u64 last = ~0ULL;

	if (run->count == MAPPINGS)
		return;
	if (!below(run, 8))
		last = run->start + (2 + below(run, 8)) * XS_BLOCK_BYTES - 1 -
		       below(run, 64) * XS_PAGE_BYTES;
	mapping->pages = some_pages(run);
	mapping->prot = 1 + below(run, 3);
	mapping->parts = below(run, 4) ? 0 : 1 + below(run, 4);
	mapping->kind = below(run, 3) ? MEMORY_COUNTED :
					below(run, MEMORY_KINDS);
	if (driver_map(run->world, mapping, last))
		run->count++;
}

static void do_unmap(struct run *run)
{
	u32 at;

	if (!run->count)
		return;
	/* In order, like a ring, or at random. */
	at = below(run, 4) ? 0 : below(run, run->count);
	if (below(run, 6))
		driver_unmap(run->world, &run->mappings[at], !below(run, 20));
	else
		driver_unmap_aware(run->world, &run->mappings[at], 1,
				   below(run, 2));
	run->count--;
	if (below(run, 2))
		run->mappings[at] = run->mappings[run->count];
	else
		for (; at < run->count; at++)
			run->mappings[at] = run->mappings[at + 1];
}

static void do_set(struct run *run)
{
	const struct xs_policy *policy =
		&xs_policies[below(run, xs_policy_count)];
	struct xs_tuning tuning = xs_tuning_default(policy);

	if (below(run, 2))
		tuning.window_us = 1 + below(run, 2000);
	if (below(run, 2))
		tuning.batch_pages = 1 + below(run, XS_BATCH_MAX_PAGES);
	if (below(run, 2))
		tuning.range_commands_max = 1 + below(run, XS_RANGES_MAX);
	tuning.batch_aware = !below(run, 3);
	world_set_policy(run->world, policy, &tuning);
	run->window_ns = tuning.window_us * 1000ULL;
	world_check_flushed(run->world);
}

/* The histogram's maximum is at least the longest exposure that the world saw. */
static void check_accounts(struct run *run)
{
	struct xs_stats *sum = test_alloc(sizeof(*sum));
	s64 live = (s64)world_mapped_pages(run->world);

	CHECK(xs_engine_live_pages(&run->world->engine) == live);
	CHECK(xs_engine_leak_check(&run->world->engine, sum) == live);
	CHECK(sum->exposure_max_ns >= run->world->exposed_max_ns);
	test_free(sum);
}

static void do_rare(struct run *run)
{
	struct world *world = run->world;

	switch (below(run, 10)) {
	case 0:
		do_set(run);
		break;
	case 1:
		xs_engine_flush(&world->engine, XS_FLUSH_EXPLICIT);
		world_check_flushed(world);
		break;
	case 2:
		xs_engine_retire_cpu(&world->engine, below(run, world->cpus));
		break;
	case 3:
		world->alloc_fails_in = 1 + below(run, 4);
		break;
	case 4:
		world->map_fails_in = 1 + below(run, 4);
		break;
	case 5:
		world->alloc_fails_in = 0;
		break;
	case 6:
		check_accounts(run);
		break;
	case 7:
		world_advance(world, below(run, 3) * run->window_ns);
		break;
	case 8:
		world_trim(world, below(run, 2));
		break;
	case 9:
		world_settle(world);
		world_check_flushed(world);
		break;
	}
}

static void do_step(struct run *run, u32 bias)
{
	u32 what = below(run, 100);

	if (what < 12)
		test_be_cpu(below(run, run->world->cpus));
	else if (what < 18)
		world_poll(run->world);
	else if (what < 26)
		world_advance(run->world, below(run, 200000));
	else if (what < 30)
		do_rare(run);
	else if (what < 34 && run->count)
		driver_check(run->world,
			     &run->mappings[below(run, run->count)]);
	else if (below(run, 100) < bias)
		do_map(run);
	else
		do_unmap(run);
}

static void sequence_seed(u64 seed)
{
	struct run *run = test_alloc(sizeof(*run));
	struct world_config config = { 0 };
	u32 bias = 50;

	run->random = seed;
	config.blocks = 2 + below(run, seed & 1 ? 12 : 60);
	config.cpus = 1 + below(run, 4);
	config.policy = &xs_policies[seed % xs_policy_count];
	run->window_ns = config.policy->window_us * 1000ULL;
	if (seed % 3 == 0)
		config.start = (seed % 9 ? 1ULL << 45 : 1ULL << 32) -
			       seed / 3 % 2 * 8 * XS_BLOCK_BYTES;
	run->world = world_new(&config, 0);
	run->world->engine.space.empty_min = 0;
	run->start = config.start;
	for (u32 step = 0; step < 1500 && !test_failed(); step++) {
		test_replay(seed, step);
		if (step % 100 == 0)
			bias = 25 + below(run, 55);
		do_step(run, bias);
		world_check(run->world, run->window_ns);
	}
	while (run->count && !test_failed())
		do_unmap(run);
	test_be_cpu(0);
	if (test_failed()) {
		world_free(run->world);
	} else {
		check_accounts(run);
		world_end(run->world);
	}
	test_free(run);
}

static void sequences(void)
{
	test_seeds(300, sequence_seed);
}

const struct test sequence_tests[] = {
	{ "sequences", sequences },
	{ NULL, NULL },
};
