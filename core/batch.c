// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Deferred unmaps of one CPU; see batch.h. */
#include <xsmmu/batch.h>
#include <xsmmu/space.h>

void xs_batch_set_limit(struct xs_batch *batch, u32 limit_pages)
{
	u64 head = xs_a64_read(&batch->head);
	u64 end = (head + XS_BATCH_GROUP - 1) & ~(u64)(XS_BATCH_GROUP - 1);
	u64 full = batch->tail + limit_pages - 1;

	if (full < batch->more_pages + head)
		end = head;
	else if (end > full - batch->more_pages)
		end = full - batch->more_pages;
	xs_store(&batch->limit, end);
}

u64 xs_batch_alloc_records(struct xs_batch *batch, u32 count, u32 pages, u64 now_ns)
{
	u64 head = xs_a64_read(&batch->head);

	for (u64 at = head; at < head + count; at++)
		if (!(at & (XS_BATCH_GROUP - 1)))
			*xs_batch_began_ns(batch, at) = now_ns;
	batch->more_pages += pages - count;
	/* An interrupted fast path then fails its compare and swap. */
	xs_a64_set(&batch->head, head + count);
	return head;
}

/* While the limit allows appends, the head is not the start of a group, and so changes. */
void xs_batch_end_group(struct xs_batch *batch)
{
	u64 head = xs_a64_read(&batch->head);
	u64 next = (head + XS_BATCH_GROUP - 1) & ~(u64)(XS_BATCH_GROUP - 1);

	xs_a64_set(&batch->head, next);
	xs_store_release(&batch->tail, next);
	xs_store(&batch->limit, next);
	batch->unended = false;
}

/* ---- extents of a flush ---- */

/* One pass of Shell's method. */
static void xs_extents_sort_gap(u64 *extents, u32 count, u32 gap)
{
	for (u32 i = gap; i < count; i++) {
		u64 extent = extents[i];
		u32 at = i;

		if (xs_likely(extents[i - gap] <= extent))
			continue;
		for (; at >= gap && extents[at - gap] > extent; at -= gap)
			extents[at] = extents[at - gap];
		extents[at] = extent;
	}
}

/* Extents are few and mostly in order: large gaps pay only for many extents. */
static void xs_extents_sort(u64 *extents, u32 count)
{
	if (count > 32) {
		xs_extents_sort_gap(extents, count, 301);
		xs_extents_sort_gap(extents, count, 132);
		xs_extents_sort_gap(extents, count, 57);
		xs_extents_sort_gap(extents, count, 23);
		xs_extents_sort_gap(extents, count, 10);
		xs_extents_sort_gap(extents, count, 4);
	}
	xs_extents_sort_gap(extents, count, 1);
}

u32 xs_extents_join(u64 *extents, u32 count)
{
	u32 last = 0;

	if (!count)
		return 0;
	xs_extents_sort(extents, count);
	for (u32 i = 1; i < count; i++) {
		u64 end = xs_extent_page(extents[last]) + xs_extent_pages(extents[last]);
		u64 new_end = xs_extent_page(extents[i]) + xs_extent_pages(extents[i]);

		if (xs_extent_page(extents[i]) > end)
			extents[++last] = extents[i];
		else if (new_end > end)
			extents[last] += new_end - end;
	}
	return last + 1;
}

/* True if @low and @high are the halves of an aligned range. */
static bool xs_ranges_are_halves(const struct xs_range *low,
				 const struct xs_range *high)
{
	return low->pages == high->pages &&
	       low->page + low->pages == high->page &&
	       !(low->page & (2 * low->pages - 1));
}

/* Each new block joins the ranges before it, like a carry in a counter. */
u32 xs_extents_ranges(const u64 *extents, u32 count, struct xs_range *ranges,
		      u32 max)
{
	u64 next = 0;	/* first page without a range */
	u32 found = 0;

	for (u32 i = 0; i < count; i++) {
		u64 page = xs_extent_page(extents[i]) & ~(u64)(XS_BLOCK_PAGES - 1);
		u64 end = xs_extent_page(extents[i]) + xs_extent_pages(extents[i]);

		for (page = page > next ? page : next; page < end;
		     page += XS_BLOCK_PAGES) {
			struct xs_range range = { page, XS_BLOCK_PAGES };

			while (found && xs_ranges_are_halves(&ranges[found - 1],
							     &range)) {
				range.page = ranges[--found].page;
				range.pages *= 2;
			}
			if (found == max)
				return max + 1;
			ranges[found++] = range;
			next = page + XS_BLOCK_PAGES;
		}
	}
	return found;
}
