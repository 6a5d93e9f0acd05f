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

/* Bytes of the arena that the engine may use. */
static u64 room = ARENA_BYTES;

/* Pages that were unmapped while accesses were counted. */
static u64 pages, pages_before;

/*
 * The arena and the states of its lines are address space, of which little becomes memory: they
 * must not use up the limit. Half of the limit is for them, and half for the rest of a replay.
 */
static void allow(void)
{
	u64 line_bytes = LINE_BYTES + sizeof(struct line), half;
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return;
	half = limit.rlim_cur / 2;
	if (half / line_bytes * LINE_BYTES < room)
		room = half / line_bytes * LINE_BYTES;
	limit.rlim_cur = half + (ARENA_BYTES >> LINE_LG2) * line_bytes;
	if (setrlimit(RLIMIT_AS, &limit))
		replay_stop("counts of transfers need %llu GiB of address space: raise the limit (ulimit -v)",
			    (unsigned long long)limit.rlim_cur >> 30);
}

void count_init(void)
{
	if (replay.options.cpus > CPUS_MAX)
		replay_stop("transfers of lines can be counted of at most %u CPUs, and the recording has %u: leave out --counts",
			    CPUS_MAX, replay.options.cpus);
	allow();
	arena_init();
	hooks_stack_top = (u64)__builtin_frame_address(0) + STACK_BYTES;
}

void count_begin(void)
{
	tally_on = replay.options.counts;
	pages_before = tally.pages_unmapped;
}

void count_end(void)
{
	tally_on = false;
	pages += tally.pages_unmapped - pages_before;
}

void *count_alloc(size_t bytes)
{
	u8 *got = arena_alloc(bytes);

	if ((u64)(got - arena_base) + bytes <= room)
		return got;
	arena_free(got, bytes);
	return NULL;
}

void count_free(void *memory, size_t bytes)
{
	arena_free(memory, bytes);
}

/* ---- the report ---- */

void count_print(void)
{
	const u64 *events = lines_tally.events[LINE_ENGINE];
	u64 all = 0;

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
