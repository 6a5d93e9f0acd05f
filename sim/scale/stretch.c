// SPDX-License-Identifier: GPL-2.0-only
/*
 * The worst case of a call that keeps a CPU from interrupts and tasks: the engine's accesses
 * and the awaited invalidations, from disabling interrupts or preemption to enabling them. Each
 * CPU has the largest amount of state that the call may have to process.
 */
#include <string.h>

#include "hooks.h"
#include "allocator.h"
#include "run.h"
#include "tally.h"
#include "scale_world.h"

/* Per CPU: more blocks than a search of another CPU's list visits; and deferred pages. */
#define BLOCKS		40u
#define DEFERRED	64u
#define PAGES		(BLOCKS * XS_BLOCK_PAGES)

static struct xs_engine *engine;
static struct packet packets[SCALE_CPUS][PAGES];

static struct packet map_one(void)
{
	struct packet packet = { .phys = memory_take(), .pages = 1 };

	packet.iova = path_map(engine, packet.phys, 1);
	if (!packet.iova)
		scale_fail("the engine has no IOVA left");
	return packet;
}

static void unmap_one(const struct packet *packet)
{
	path_unmap(engine, packet->iova, 1);
	memory_put(packet->phys);
}

/*
 * Fill blocks of each CPU and free all but a page of each block, so that all blocks are
 * partial.
 */
static void fill_lists(u32 cpus)
{
	for (scale_cpu = 0; scale_cpu < cpus; scale_cpu++) {
		struct packet *mine = packets[scale_cpu];

		for (u32 i = 0; i < PAGES; i++)
			mine[i] = map_one();
		for (u32 i = 0; i < PAGES; i++)
			if (i % XS_BLOCK_PAGES)
				unmap_one(&mine[i]);
	}
	scale_cpu = 0;
	xs_engine_flush(engine, XS_FLUSH_DRAIN);
}

static void empty_lists(u32 cpus)
{
	for (scale_cpu = 0; scale_cpu < cpus; scale_cpu++)
		for (u32 i = 0; i < PAGES; i += XS_BLOCK_PAGES)
			unmap_one(&packets[scale_cpu][i]);
	scale_cpu = 0;
}

/* Leave unmapped, unflushed pages on each CPU. */
static void defer(u32 cpus, bool aware)
{
	for (scale_cpu = 0; scale_cpu < cpus; scale_cpu++) {
		struct packet *mine = packets[scale_cpu];

		for (u32 i = 0; i < DEFERRED; i++)
			mine[i] = map_one();
		for (u32 i = 0; i < DEFERRED; i++) {
			if (aware)
				path_unmap_deferred(engine, mine[i].iova, 1);
			else
				path_unmap(engine, mine[i].iova, 1);
			memory_put(mine[i].phys);
		}
	}
	scale_cpu = 0;
}

static void begin(void)
{
	memset(&tally_stretches, 0, sizeof(tally_stretches));
}

static void tell_stretch(const char *key, const struct tally_stretch *stretch)
{
	run_tell_open(key);
	run_tell("accesses", stretch->most_accesses);
	run_tell("flushes", stretch->most_flushes);
	run_tell_close();
}

static void tell(const char *call)
{
	run_tell_open(call);
	tell_stretch("off", &tally_stretches.off);
	tell_stretch("entered", &tally_stretches.entered);
	run_tell_close();
}

/* No IOVA exists below the first block, so the map fails. */
static void map_in_vain(void)
{
	if (path_map_below(engine, memory_take(), 1, XS_BLOCK_BYTES - 1))
		scale_fail("an IOVA below the first one is handed out");
}

/* Returns a policy of the other placement. */
static const struct xs_policy *other_than(const struct xs_policy *policy)
{
	for (u32 i = 0; i < xs_policy_count; i++)
		if (xs_policies[i].placement != policy->placement)
			return &xs_policies[i];
	scale_fail("all policies have one placement");
}

static void change(const struct xs_policy *policy)
{
	const struct xs_policy *other = other_than(policy);
	struct xs_tuning tuning = xs_tuning_default(other);

	xs_engine_set(engine, other, &tuning);
}

void run_stretch(const struct run_options *options)
{
	const struct traffic_config *traffic = &options->traffic;
	u32 cpus = traffic->cpus;

	hooks_stack_top = (u64)__builtin_frame_address(0) + 65536;
	tally_on = true;
	engine = world_engine(traffic->policy, cpus, traffic->end);
	run_tell_traffic(traffic);
	fill_lists(cpus);
	begin();
	map_in_vain();
	tell("search");
	empty_lists(cpus);
	xs_engine_flush(engine, XS_FLUSH_DRAIN);
	/* Let time pass, so that the engine asks CPUs for cached IOVAs again. */
	tally_spend(1000000000);
	defer(cpus, false);
	begin();
	map_in_vain();
	tell("reclaim");
	defer(cpus, false);
	begin();
	xs_engine_flush(engine, XS_FLUSH_DRAIN);
	tell("drain");
	defer(cpus, true);
	begin();
	xs_engine_flush_explicit(engine, true);
	tell("explicit");
	defer(cpus, false);
	begin();
	change(traffic->policy);
	tell("change");
	run_tell_line();
}
