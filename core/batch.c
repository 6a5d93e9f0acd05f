// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Deferred unmaps of one CPU; see batch.h. */
#include <xsmmu/batch.h>

void xs_batch_add(struct xs_batch *batch, u32 block, u64 now_ns)
{
	struct xs_entry *entry = &batch->entries[batch->count];

	entry->block = block;
	entry->oldest_ns = now_ns;
	if (!batch->count++) {
		batch->oldest_ns = now_ns;
		batch->recount_at = 0;
	}
}

bool xs_batch_full(struct xs_batch *batch, const struct xs_space *space,
		   u32 limit_pages)
{
	u32 pages = 0;

	if (batch->count < batch->recount_at ||
	    batch->count * XS_BLOCK_PAGES < limit_pages)
		return false;
	for (u32 i = 0; i < batch->count; i++) {
		u32 block = batch->entries[i].block;

		pages += xs_popcount(xs_a64_read(&space->blocks[block].dead));
	}
	if (pages >= limit_pages)
		return true;
	batch->recount_at = batch->count + 1 +
			    (limit_pages - pages) / (2 * XS_BLOCK_PAGES);
	return false;
}

/* One pass of Shell's method. */
static void sort_gap(struct xs_entry *entries, u32 count, u32 gap)
{
	for (u32 i = gap; i < count; i++) {
		struct xs_entry entry;
		u32 at = i;

		if (xs_likely(entries[i - gap].block <= entries[i].block))
			continue;
		entry = entries[i];
		for (; at >= gap && entries[at - gap].block > entry.block;
		     at -= gap)
			entries[at] = entries[at - gap];
		entries[at] = entry;
	}
}

/* Few and mostly in order: large gaps only pay for many. */
void xs_batch_sort(struct xs_entry *entries, u32 count)
{
	if (count > 32) {
		sort_gap(entries, count, 57);
		sort_gap(entries, count, 23);
		sort_gap(entries, count, 10);
		sort_gap(entries, count, 4);
	}
	sort_gap(entries, count, 1);
}

/* Is @high the upper half of an aligned range whose lower half is @low? */
static bool are_halves(const struct xs_range *low, const struct xs_range *high)
{
	return low->pages == high->pages &&
	       low->page + low->pages == high->page &&
	       !(low->page & (2 * low->pages - 1));
}

/* Each new block joins the ranges before it as a counter carries. */
u32 xs_batch_ranges(const struct xs_entry *entries, u32 count,
		    struct xs_range *ranges, u32 max)
{
	u32 found = 0;

	for (u32 i = 0; i < count; i++) {
		struct xs_range range = {
			(u64)entries[i].block << XS_BLOCK_LG2, XS_BLOCK_PAGES
		};

		if (!entries[i].mask)
			continue;
		while (found && are_halves(&ranges[found - 1], &range)) {
			range.page = ranges[--found].page;
			range.pages *= 2;
		}
		if (found == max)
			return max + 1;
		ranges[found++] = range;
	}
	return found;
}
