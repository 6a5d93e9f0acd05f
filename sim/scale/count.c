// SPDX-License-Identifier: GPL-2.0-only
/* Transfers, locks, flushes and commands under traffic. */
#include "hooks.h"
#include "allocator.h"
#include "run.h"
#include "spread.h"
#include "tally.h"

/* Read the engine's statistics without disturbing the model. */
static void read_stats(struct xs_engine *engine, struct xs_stats *stats)
{
	tally_on = false;
	xs_engine_stats(engine, stats);
	tally_on = true;
}

static void tell_events(void)
{
	for (u32 class = 0; class < LINE_CLASSES; class++) {
		run_tell_open(line_class_name(class));
		for (u32 event = 0; event < LINE_EVENTS; event++)
			run_tell(line_event_name(event), tally.events[class][event]);
		run_tell_close();
	}
}

static void tell_locks(const char *key, const struct tally_locks *locks)
{
	run_tell_open(key);
	run_tell("taken", locks->taken);
	run_tell("fetched", locks->fetched);
	run_tell("waits", locks->waits);
	run_tell_close();
}

static void tell_flushes(const struct xs_stats *before, const struct xs_stats *after)
{
	run_tell_open("flushes");
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		run_tell(xs_flush_name(i), after->flushes[i] - before->flushes[i]);
	run_tell_close();
	run_tell("immediate_pages", after->counts.immediate_pages - before->counts.immediate_pages);
}

static void tell_traffic(void)
{
	run_tell("polls", traffic_count.polls);
	run_tell("maps", traffic_count.maps);
	run_tell("unmaps", traffic_count.unmaps);
	run_tell("completed", traffic_count.completed);
	run_tell("handed", traffic_count.handed);
	run_tell("accesses", tally.accesses);
	run_tell("commands_page", tally.commands_page);
	run_tell("commands_domain", tally.commands_domain);
}

static void tell_spread(struct xs_engine *engine)
{
	struct spread spread = spread_now();
	struct path_iova iova;

	tally_on = false;
	iova = path_iova(engine);
	tally_on = true;
	run_tell_open("iova");
	run_tell("live_pages", spread.live_pages);
	run_tell("blocks", spread.blocks);
	run_tell("taken_pages", iova.taken_pages);
	run_tell_close();
}

static void tell_site(u64 pc, u64 transfers)
{
	static const char digits[] = "0123456789abcdef";
	char text[17] = { 0 };

	for (u32 i = 0; i < 16; i++)
		text[i] = digits[pc >> (60 - 4 * i) & 15];
	run_tell(text, transfers);
}

void run_count(const struct run_options *options)
{
	static struct xs_stats before, after;
	const struct traffic_config *traffic = &options->traffic;
	struct xs_engine *engine;

	hooks_stack_top = (u64)__builtin_frame_address(0) + 65536;
	tally_on = true;
	engine = traffic_begin(traffic);
	while (traffic_count.polls < (u64)traffic->cpus * options->warm_polls)
		traffic_turn();
	traffic_count = (struct traffic_count) { 0 };
	read_stats(engine, &before);
	tally_start();
	while (traffic_count.polls < (u64)traffic->cpus * options->polls)
		traffic_turn();
	read_stats(engine, &after);
	run_tell_traffic(traffic);
	tell_traffic();
	tell_flushes(&before, &after);
	tell_events();
	tell_locks("locks", &tally.locks);
	tell_locks("queue_lock", &tally.queue);
	tell_spread(engine);
	if (options->sites) {
		run_tell_open("sites");
		tally_sites(tell_site);
		run_tell_close();
	}
	run_tell_line();
	traffic_end();
}
