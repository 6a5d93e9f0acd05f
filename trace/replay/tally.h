/* SPDX-License-Identifier: GPL-2.0-only */
/* All figures of a run; the sums over all devices. */
#ifndef REPLAY_TALLY_H
#define REPLAY_TALLY_H

#include <xsmmu/policy.h>

#include "measure.h"

/* Why an event, or a part of it, was not replayed. */
enum left_out {
	LEFT_UNMAP,		/* an unmap of a buffer that the recording does not map */
	LEFT_UNMAP_LIST,
	LEFT_FREE,
	LEFT_UNLINK,
	LEFT_IOVA_FREE,
	LEFT_SIZE,		/* an unmap of another size than its map: the mapping is unmapped */
	LEFT_MAP_LOST,		/* a map of an address whose unmap was lost: unmapped first */
	LEFT_LINK,		/* a link outside of any reserved range: mapped on its own */
	LEFT_ENTRY,		/* an entry without its list */
	LEFT_LIST,		/* a list without all of its entries: mapped as far as known */
	LEFT_EMPTY,		/* a map of 0 bytes, or of more than a mapping can have */
	LEFT_FAILED,		/* a call that failed when it was recorded */
	LEFT_CPU,		/* a CPU that the machine does not have */
	LEFT_LATE,		/* later than any recording is long */
	LEFT_TIME,		/* time goes back: replayed at the time before */
	LEFT_KIND,		/* not known */
	LEFT_LOST,		/* a gap: events that the recorder has lost, or a damaged block */
	LEFT_COUNT
};

/*
 * struct left - events left out for one reason
 * @number, @ns, @cpu, @device, @iova: of the first
 */
struct left {
	u64 count;
	u64 number;
	u64 ns;
	u64 iova;
	u32 cpu;
	u32 device;
};

/*
 * struct tally - figures
 * @maps, @unmaps: calls; a list is one call
 * @flushes:	by cause; those of the kernel's modes are unmap, full and time
 * @lifetime:	times from map to unmap of buffers, lists, coherent memory and links
 * @revived:	pages mapped again before their flush (identity placement), which ends no exposure
 * @held:	pages of memory that the engine holds
 * @mapped:	IOVA pages that drivers have mapped
 * @pending:	IOVA pages that are unmapped and not invalidated
 * @tables:	page-table pages, of all levels
 * @bytes:	memory of the engines
 * @taken:	most IOVA pages that the engines, or the kernel's model, took from their spaces
 * @regions:	2 MiB regions touched by maps, counted anew after each TALLY_REGION_MAPS maps
 * @lost:	events that the recorder has lost
 */
struct tally {
	u64 maps, unmaps;
	u64 pages_mapped, pages_unmapped;
	u64 copied_maps, copied_bytes;
	u64 commands_page, commands_domain;
	u64 flushes[XS_FLUSH_COUNT];
	u64 revived;
	struct times exposure;
	struct times lifetime;
	struct gauge held, mapped, pending, tables, bytes;
	u64 taken;
	u64 regions;
	u64 lost;
	struct left left[LEFT_COUNT];
};

#define TALLY_REGION_MAPS	1000u

extern struct tally tally;

/* Count a map of @pages pages, and an unmap. */
void tally_map(u32 pages);
void tally_unmap(u32 pages);

/* Returns the number of the present stretch of TALLY_REGION_MAPS maps, from 1. */
u32 tally_stretch(void);

/* The recording has ended: averages end here, and not with the last flush. */
void tally_average(void);

/* Count the event in progress as left out. */
void tally_leave_out(enum left_out reason);

const char *tally_left_name(enum left_out reason);

#endif
