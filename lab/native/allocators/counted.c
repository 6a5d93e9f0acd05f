// SPDX-License-Identifier: GPL-2.0-only
/*
 * xsmmu-allocators-count: counts an allocator under the traffic of sim/scale. Same arguments and
 * same sources, same output.
 *
 * The traffic's engine maps nothing here; it is there because the traffic also polls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../sim/scale/allocator.h"
#include "../../../sim/scale/arena.h"
#include "../../../sim/scale/hooks.h"
#include "../../../sim/scale/path.h"
#include "../../../sim/scale/run.h"
#include "../../../sim/scale/scale_world.h"
#include "../../../sim/scale/spread.h"
#include "../../../sim/scale/step.h"
#include "../../../sim/scale/tally.h"
#include "check.h"

#define IOVA_END	(32ULL << 30)
#define SAMPLES		16u	/* looks at the shape during the count */
#define STEP_EVERY	4u	/* a call in so many is single-stepped */

/*
 * Physical addresses of mappings of several pages: each of the traffic's pages stands for
 * LARGE_PAGES pages there, so that `identity` gives no IOVA twice.
 */
#define LARGE_PHYS	(1ULL << 45)
#define LARGE_PAGES	512u

/*
 * struct options - options of a run
 * @steps: count instructions, not accesses
 * @check_seed: check the allocator instead, unless 0
 */
struct options {
	struct traffic_config traffic;
	u32 warm_polls;
	u32 polls;
	bool steps;
	u64 check_seed;
};

static const struct iova_allocator *allocator;
static void *state;

/* ---- the program's part of the interface ---- */

const struct xs_backend_ops *const program_ops = &world_ops;

void *program_alloc(size_t bytes)
{
	return arena_alloc(bytes);
}

void program_free(void *memory, size_t bytes)
{
	arena_free(memory, bytes);
}

void program_fail(const char *text)
{
	scale_fail(text);
}

void scale_fail(const char *text)
{
	fprintf(stderr, "xsmmu-allocators-count: %s\n", text);
	exit(1);
}

/* ---- the traffic's maps ---- */

/* Calls while instructions are counted, and those of them that were single-stepped. */
static bool stepping;
static u64 calls, stepped;

static bool is_stepped(void)
{
	bool is = stepping && !(calls % STEP_EVERY);

	calls += stepping;
	stepped += is;
	return is;
}

u64 path_map(struct xs_engine *engine, u64 phys, u32 pages)
{
	struct iova_request request = {
		.phys = pages > 1 ? LARGE_PHYS + phys * LARGE_PAGES : phys,
		.last = ~0ULL,
		.pages = pages,
		.align_pages = iova_natural(pages),
	};

	bool steps = is_stepped();
	u64 iova;

	(void)engine;
	if (steps)
		step_begin();
	iova = allocator->alloc(state, &request);
	if (steps)
		step_end();
	return iova;
}

void path_unmap(struct xs_engine *engine, u64 iova, u32 pages)
{
	bool steps = is_stepped();

	(void)engine;
	if (steps)
		step_begin();
	allocator->free(state, iova, pages);
	if (steps)
		step_end();
}

/* No driver is batch-aware: the allocators have no deferred unmaps. */
void path_unmap_deferred(struct xs_engine *engine, u64 iova, u32 pages)
{
	path_unmap(engine, iova, pages);
}

/* The traffic's own engine gives nothing. */
struct path_iova path_iova(struct xs_engine *engine)
{
	(void)engine;
	return (struct path_iova) { 0 };
}

/* Begin and end of all instructions of this static program. */
__asm__(".globl path_text_begin, path_text_end\n"
	".set path_text_begin, 0\n"
	".set path_text_end, 0x7fffffff\n");

/* ---- the run ---- */

static void tell_shape(const char *key, const struct iova_shape *shape)
{
	run_tell_open(key);
	run_tell("nodes", shape->nodes);
	run_tell("deepest", shape->deepest);
	run_tell("depth_sum", shape->depth_sum);
	run_tell_close();
}

/* The shape, without disturbing the model. */
static struct iova_shape look(void)
{
	struct iova_shape shape;
	bool was_on = tally_on;

	tally_on = false;
	shape = allocator->shape(state);
	tally_on = was_on;
	return shape;
}

static void do_polls(const struct options *options, u32 polls)
{
	u64 until = traffic_count.polls + (u64)options->traffic.cpus * polls;

	while (traffic_count.polls < until)
		traffic_turn();
}

/* Does the polls that count, and returns the largest shape seen meanwhile. */
static struct iova_shape do_counted_polls(const struct options *options)
{
	u64 all = (u64)options->traffic.cpus * options->polls;
	struct iova_shape most = { 0 };

	for (u32 i = 1; i <= SAMPLES; i++) {
		struct iova_shape shape;

		while (traffic_count.polls < all * i / SAMPLES)
			traffic_turn();
		shape = look();
		if (shape.nodes > most.nodes)
			most = shape;
	}
	return most;
}

static void tell_counts(void)
{
	u64 transfers = 0;

	for (u32 event = 0; event < LINE_EVENTS; event++)
		if (line_is_transfer(event))
			transfers += tally.events[LINE_ENGINE][event];
	run_tell("maps", traffic_count.maps);
	run_tell("unmaps", traffic_count.unmaps);
	run_tell("handed", traffic_count.handed);
	run_tell("completed", traffic_count.completed);
	run_tell("accesses", tally.accesses);
	run_tell("transfers", transfers);
	run_tell_open("locks");
	run_tell("taken", tally.locks.taken);
	run_tell("fetched", tally.locks.fetched);
	run_tell("waits", tally.locks.waits);
	run_tell("longest_ns", tally.locks.longest_ns);
	run_tell_close();
}

static void tell_spread(void)
{
	struct spread spread = spread_now();

	run_tell_open("iova");
	run_tell("live_pages", spread.live_pages);
	run_tell("blocks", spread.blocks);
	run_tell("regions", spread.tables);
	run_tell_close();
}

static void count(const struct options *options)
{
	struct iova_shape rest = look(), load;

	do_polls(options, options->warm_polls);
	traffic_count = (struct traffic_count) { 0 };
	tally_start();
	load = do_counted_polls(options);
	tell_counts();
	tell_shape("rest", &rest);
	tell_shape("load", &load);
	tell_spread();
}

/* Instructions of step_begin() and step_end() themselves. */
static u64 steps_of_nothing(void)
{
	u64 before = step_counted();

	step_begin();
	step_end();
	return step_counted() - before;
}

static void count_instructions(const struct options *options)
{
	u64 nothing, before;

	step_init();
	nothing = steps_of_nothing();
	do_polls(options, options->warm_polls);
	before = step_counted();
	stepping = true;
	do_polls(options, options->polls);
	stepping = false;
	run_tell("calls", stepped);
	run_tell("instructions", step_counted() - before - stepped * nothing);
}

static void run(const struct options *options)
{
	hooks_stack_top = (u64)__builtin_frame_address(0) + 65536;
	memory_init();
	state = allocator->make(options->traffic.cpus, options->traffic.end);
	tally_on = true;
	traffic_begin(&options->traffic);
	run_tell_text("allocator", allocator->name);
	run_tell("cpus", options->traffic.cpus);
	if (options->steps)
		count_instructions(options);
	else
		count(options);
	traffic_end();
	tally_on = false;
	if (allocator->left(state))
		scale_fail("IOVAs are left after the last free");
	run_tell_line();
}

/* ---- options ---- */

static int usage(void)
{
	fprintf(stderr,
		"usage: xsmmu-allocators-count --allocator NAME [--cpus N] [--elsewhere PERCENT]\n"
		"         [--mixed] [--sizes] [--pages N] [--kept N] [--warm POLLS] [--polls POLLS]\n"
		"         [--steps]\n"
		"       xsmmu-allocators-count --allocator NAME --check SEED\n");
	return 2;
}

static bool parse_number(struct options *options, const char *word, const char *value)
{
	struct traffic_config *traffic = &options->traffic;
	const struct {
		const char *word;
		u32 *to;
	} numbers[] = {
		{ "--cpus", &traffic->cpus }, { "--elsewhere", &traffic->elsewhere },
		{ "--pages", &traffic->pages }, { "--kept", &traffic->kept },
		{ "--warm", &options->warm_polls }, { "--polls", &options->polls },
	};
	char *end;

	for (u32 i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!strcmp(word, numbers[i].word)) {
			*numbers[i].to = (u32)strtoul(value, &end, 10);
			return end != value && !*end;
		}
	return false;
}

static bool parse(struct options *options, int words, char **word)
{
	for (int i = 1; i < words; i++) {
		if (!strcmp(word[i], "--steps"))
			options->steps = true;
		else if (!strcmp(word[i], "--sizes"))
			options->traffic.sizes = true;
		else if (!strcmp(word[i], "--mixed"))
			options->traffic.life = LIFE_MIXED;
		else if (i + 1 == words)
			return false;
		else if (!strcmp(word[i], "--allocator"))
			allocator = iova_find(word[++i]);
		else if (!strcmp(word[i], "--check"))
			options->check_seed = strtoull(word[++i], NULL, 10);
		else if (!parse_number(options, word[i], word[i + 1]))
			return false;
		else
			i++;
	}
	return allocator && options->traffic.cpus && options->traffic.cpus <= SCALE_CPUS &&
	       options->traffic.elsewhere <= 100 && options->traffic.pages <= LARGE_PAGES;
}

int main(int words, char **word)
{
	struct options options = {
		.traffic = { .cpus = 1, .seed = 1, .end = IOVA_END },
		.warm_polls = 20,
		.polls = 20,
	};

	options.traffic.policy = xs_policy_find("strict");
	if (!parse(&options, words, word))
		return usage();
	arena_init();
	if (options.check_seed)
		check_allocator(allocator, options.check_seed);
	else
		run(&options);
	return 0;
}
