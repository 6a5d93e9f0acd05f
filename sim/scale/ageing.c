// SPDX-License-Identifier: GPL-2.0-only
/*
 * A long life: use of the IOVA space and cost of a map and an unmap, after given numbers of
 * maps. Runs without the line model.
 */
#include "arena.h"
#include "run.h"
#include "spread.h"
#include "step.h"
#include "tally.h"

/* Polls of each CPU whose instructions are counted. */
#define WINDOW	16

static void finish_polls(u32 polls)
{
	u64 until = traffic_count.polls + polls;

	while (traffic_count.polls < until)
		traffic_turn();
}

/* Print the engine's instructions in the next whole polls, and the pages of these polls. */
static void tell_instructions(const struct run_options *options)
{
	struct traffic_count before;
	u64 counted = step_counted();

	finish_polls(1);
	before = traffic_count;
	traffic_stepping = true;
	finish_polls(options->traffic.cpus * WINDOW);
	traffic_stepping = false;
	run_tell_open("window");
	run_tell("instructions", step_counted() - counted);
	run_tell("maps", traffic_count.maps - before.maps);
	run_tell("unmaps", traffic_count.unmaps - before.unmaps);
	run_tell("mapped_pages", traffic_count.mapped_pages - before.mapped_pages);
	run_tell("unmapped_pages", traffic_count.unmapped_pages - before.unmapped_pages);
	run_tell_close();
}

static void tell_checkpoint(const struct run_options *options, struct xs_engine *engine)
{
	struct spread spread = spread_now();
	struct path_iova iova = path_iova(engine);

	run_tell_traffic(&options->traffic);
	run_tell("maps", traffic_count.maps);
	run_tell("live_pages", spread.live_pages);
	run_tell("taken_pages", iova.taken_pages);
	run_tell("given_pages", iova.given_pages);
	run_tell("tables", spread.tables);
	run_tell("memory_bytes", arena_used());
	tell_instructions(options);
	run_tell_line();
}

void run_ageing(const struct run_options *options)
{
	struct xs_engine *engine;

	step_init();
	engine = traffic_begin(&options->traffic);
	for (u32 i = 0; i < options->checkpoints; i++) {
		while (traffic_count.maps < options->maps[i])
			traffic_turn();
		tell_checkpoint(options, engine);
	}
	traffic_end();
}
