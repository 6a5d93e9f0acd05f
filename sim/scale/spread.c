// SPDX-License-Identifier: GPL-2.0-only
/* Spread of IOVAs; see spread.h. */
#include <stdlib.h>

#include "spread.h"
#include "traffic.h"

static struct xs_range *ranges;
static u32 count, room;

static void tell(const struct packet *packet)
{
	if (count == room) {
		room = room ? 2 * room : 1024;
		ranges = realloc(ranges, room * sizeof(*ranges));
		if (!ranges)
			scale_fail("no memory to look at all mappings");
	}
	ranges[count++] = (struct xs_range) { packet->iova >> XS_PAGE_LG2, packet->pages };
}

static int compare(const void *left, const void *right)
{
	const struct xs_range *a = left, *b = right;

	return a->page < b->page ? -1 : a->page > b->page;
}

/* Number of groups of 2^@lg2 pages in @range that end after @until. */
static u64 groups(const struct xs_range *range, u32 lg2, u64 until)
{
	u64 first = range->page >> lg2;
	u64 last = (range->page + range->pages - 1) >> lg2;

	if (until && first == (until - 1) >> lg2)
		first++;
	return last + 1 - first;
}

struct spread spread_now(void)
{
	struct spread spread = { .live_pages = 0 };
	u64 until = 0;

	count = 0;
	traffic_each(tell);
	qsort(ranges, count, sizeof(*ranges), compare);
	for (u32 i = 0; i < count; i++) {
		if (ranges[i].page < until)
			scale_fail("two mappings have the same IOVA");
		spread.live_pages += ranges[i].pages;
		spread.blocks += groups(&ranges[i], 6, until);
		spread.tables += groups(&ranges[i], 9, until);
		until = ranges[i].page + ranges[i].pages;
	}
	return spread;
}
