// SPDX-License-Identifier: GPL-2.0-only
/*
 * Transfers of cache lines between CPUs: see trace/replay/count.h and sim/scale/line.h. Only the
 * engine's memory is modelled: neither page tables nor the IOMMU's queue, nor the references of
 * pages.
 */
#define XSMMU_PLATFORM_SCALE_H
#include <sys/resource.h>

#include <xsmmu/engine.h>

#include "count.h"
#include "json.h"
#include "replay.h"
#include "tally.h"

/* The name of the replay's own figures, too. */
#define tally lines_tally
#include "../../sim/scale/arena.h"
#include "../../sim/scale/tally.h"
#undef tally

#define CPUS_MAX	64u

/* Bytes of the stack below main() in which the engine may have variables. */
#define STACK_BYTES	(1u << 20)

extern u64 hooks_stack_top;

const bool count_can = true;

struct lines_tally lines_tally;
bool tally_on;
struct tally_stretches tally_stretches;

/* The arena is address space, of which little becomes memory: it must not use up the limit. */
static void allow(u64 bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return;
	limit.rlim_cur += bytes;
	setrlimit(RLIMIT_AS, &limit);
}

void count_init(void)
{
	if (replay.options.cpus > CPUS_MAX)
		replay_stop("transfers of lines can be counted of at most %u CPUs, and the recording has %u",
			    CPUS_MAX, replay.options.cpus);
	allow(ARENA_BYTES + (ARENA_BYTES >> LINE_LG2) * sizeof(struct line));
	arena_init();
	hooks_stack_top = (u64)__builtin_frame_address(0) + STACK_BYTES;
}

void count_begin(void)
{
	tally_on = replay.options.counts;
}

void count_end(void)
{
	tally_on = false;
}

void *count_alloc(size_t bytes)
{
	return arena_alloc(bytes);
}

void count_free(void *memory, size_t bytes)
{
	arena_free(memory, bytes);
}

/* ---- what sim/scale calls ---- */

void tally_event(enum line_class class, enum line_event event, u64 pc)
{
	(void)pc;
	lines_tally.events[class][event]++;
}

enum line_event tally_read(struct line *line, enum line_class class, u64 pc)
{
	enum line_event event = line_read(line, running_cpu);

	tally_event(class, event, pc);
	return event;
}

enum line_event tally_write(struct line *line, enum line_class class, u64 pc)
{
	enum line_event event = line_write(line, running_cpu);

	tally_event(class, event, pc);
	return event;
}

/* Not called, as the platform here has other locks. */

void tally_lock(struct tally_locks *locks, u64 address, bool fetched)
{
	(void)address;
	locks->taken++;
	locks->fetched += fetched;
}

void tally_unlock(u64 address)
{
	(void)address;
}

void tally_stretch_begin(struct tally_stretch *stretch)
{
	stretch->depth++;
}

void tally_stretch_end(struct tally_stretch *stretch)
{
	stretch->depth--;
}

/* ---- the report ---- */

void count_print(void)
{
	const u64 *events = lines_tally.events[LINE_ENGINE];
	u64 pages = tally.pages_unmapped, all = 0;

	json_open("lines");
	json_number("events", replay.number);
	json_number("pages_unmapped", pages);
	json_number("accesses", lines_tally.accesses);
	for (u32 i = LINE_READ_DIRTY; i < LINE_EVENTS; i++) {
		json_number(line_event_name((enum line_event)i), events[i]);
		all += events[i];
	}
	json_key("transfers_per_page_unmapped");
	printf("%.6g", pages ? (double)all / (double)pages : 0);
	json_close();
}
