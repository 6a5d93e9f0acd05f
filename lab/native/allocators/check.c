// SPDX-License-Identifier: GPL-2.0-only
/*
 * Looks for broken promises of an allocator, with requests of all kinds in a small space: no page
 * is given twice, limit and alignment are kept, room that there is is found, and nothing is left
 * after the last free.
 */
#include <stdlib.h>

#include "../../../sim/scale/draw.h"
#include "check.h"

#define CPUS		4u
#define SPACE_PAGES	65536u
#define LIVE_MAX	1024u
#define STEPS		200000u
#define LARGE_PAGES	512u

struct given {
	u64 iova;
	u32 pages;
};

static const struct iova_allocator *checked;
static void *state;
static struct given live[LIVE_MAX];
static u32 live_count;
static u64 live_pages;

/* A byte for each page of the space. */
static u8 *in_use;

static void mark(u64 iova, u32 pages, bool use)
{
	u64 first = iova >> IOVA_PAGE_LG2;

	for (u64 page = first; page < first + pages; page++) {
		if (in_use[page] == use)
			program_fail("an IOVA is given twice");
		in_use[page] = use;
	}
}

static u32 draw_pages(void)
{
	switch (draw(8)) {
	case 0:
		return 1 + draw(LARGE_PAGES);
	case 1:
	case 2:
		return 1 + draw(64);
	default:
		return 1;
	}
}

/* No limit; or one in the upper half, in the second quarter, or near the start. */
static u64 draw_last(void)
{
	static const u32 firsts[] = { SPACE_PAGES / 2, SPACE_PAGES / 4, SPACE_PAGES / 64 };
	u32 drawn = draw(6);

	if (drawn >= sizeof(firsts) / sizeof(firsts[0]))
		return ~0ULL;
	return ((u64)(firsts[drawn] + draw(firsts[drawn])) << IOVA_PAGE_LG2) - 1;
}

static void check_one(const struct iova_request *request, u64 iova)
{
	u64 bytes = (u64)request->pages << IOVA_PAGE_LG2;
	u32 align = request->align_pages < checked->align_max ? request->align_pages :
							      checked->align_max;

	if (iova + bytes - 1 > request->last)
		program_fail("an IOVA is above the limit");
	if (align && iova & (((u64)align << IOVA_PAGE_LG2) - 1))
		program_fail("an IOVA is not aligned");
	if (iova + bytes > (u64)SPACE_PAGES << IOVA_PAGE_LG2)
		program_fail("an IOVA is above the end of the space");
	mark(iova, request->pages, true);
}

static void allocate(u64 last)
{
	u32 pages = draw_pages();
	struct iova_request request = {
		/* The n-th live buffer has a place of its own. */
		.phys = (u64)(live_count + 1) * 64 << IOVA_PAGE_LG2,
		.last = last,
		.pages = checked->align_max ? pages : 1,
		.align_pages = iova_natural(pages),
	};
	u64 iova = checked->alloc(state, &request);

	if (!iova) {
		if (last == ~0ULL && live_pages < SPACE_PAGES / 8 && !checked->fails_early)
			program_fail("there is room, and no IOVA");
		return;
	}
	check_one(&request, iova);
	live[live_count++] = (struct given) { iova, request.pages };
	live_pages += request.pages;
}

/* `identity` frees the last buffer, so that each live one keeps its place. */
static void release(void)
{
	u32 at = checked->align_max ? draw(live_count) : live_count - 1;
	struct given given = live[at];

	live[at] = live[--live_count];
	live_pages -= given.pages;
	mark(given.iova, given.pages, false);
	checked->free(state, given.iova, given.pages);
}

void check_allocator(const struct iova_allocator *allocator, u64 seed)
{
	checked = allocator;
	draw_seed(seed);
	in_use = calloc(SPACE_PAGES, 1);
	state = allocator->make(CPUS, (u64)SPACE_PAGES << IOVA_PAGE_LG2);
	for (u32 i = 0; i < STEPS; i++) {
		/* More and fewer buffers live, in turn. */
		u32 most = i / 4096 & 1 ? LIVE_MAX : LIVE_MAX / 16;

		scale_cpu = draw(CPUS);
		if (live_count == LIVE_MAX || draw(most) < live_count)
			release();
		else
			allocate(draw_last());
	}
	while (live_count)
		release();
	if (allocator->left(state))
		program_fail("IOVAs are left after the last free");
	for (u32 i = 0; i < CPUS; i++) {
		scale_cpu = i;
		allocate(~0ULL);
	}
	while (live_count)
		release();
}
