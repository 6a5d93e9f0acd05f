// SPDX-License-Identifier: GPL-2.0-only
/* See tally.h. */
#include "replay.h"
#include "tally.h"

struct tally tally;

void tally_map(u32 pages)
{
	tally.maps++;
	tally.pages_mapped += pages;
}

void tally_unmap(u32 pages)
{
	tally.unmaps++;
	tally.pages_unmapped += pages;
}

u32 tally_stretch(void)
{
	return (u32)(tally.maps / TALLY_REGION_MAPS + 1);
}

void tally_average(void)
{
	gauge_average(&tally.held);
	gauge_average(&tally.mapped);
	gauge_average(&tally.pending);
	gauge_average(&tally.tables);
	gauge_average(&tally.bytes);
}

void tally_leave_out(enum left_out reason)
{
	struct left *left = &tally.left[reason];

	if (left->count++)
		return;
	left->number = replay.number;
	left->ns = replay.event.ns;
	left->iova = replay.event.iova;
	left->cpu = replay.event.cpu;
	left->device = replay.event.device;
}

const char *tally_left_name(enum left_out reason)
{
	static const char *const names[LEFT_COUNT] = {
		[LEFT_UNMAP] = "unmap_without_map",
		[LEFT_UNMAP_LIST] = "unmap_list_without_map",
		[LEFT_FREE] = "free_without_alloc",
		[LEFT_UNLINK] = "unlink_without_link",
		[LEFT_IOVA_FREE] = "iova_free_without_alloc",
		[LEFT_SIZE] = "unmap_of_other_size",
		[LEFT_MAP_LOST] = "unmap_lost_before_map",
		[LEFT_LINK] = "link_without_range",
		[LEFT_ENTRY] = "entry_without_list",
		[LEFT_LIST] = "list_cut",
		[LEFT_EMPTY] = "size_out_of_range",
		[LEFT_FAILED] = "failed_call",
		[LEFT_CPU] = "unknown_cpu",
		[LEFT_LATE] = "time_out_of_range",
		[LEFT_TIME] = "time_back",
		[LEFT_KIND] = "unknown_kind",
		[LEFT_LOST] = "gap",
	};

	return names[reason];
}
