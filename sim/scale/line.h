/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of coherent caches: each CPU has one that never loses a line unless
 * another CPU writes it. So what is counted is what sharing costs, and nothing
 * that a larger cache would save.
 *
 * A transfer is one request of a CPU that another CPU's cache has to answer:
 *
 *   read_dirty  reads what another CPU wrote last
 *   read_clean  reads for the first time what others have only read since
 *   fetch       writes what only others have
 *   upgrade     writes what it has a copy of, and others too
 *
 * The first access of all to a line is cold, and no transfer.
 */
#ifndef SCALE_LINE_H
#define SCALE_LINE_H

#include "platform_scale.h"

#define LINE_LG2	6
#define LINE_BYTES	(1u << LINE_LG2)

enum line_event {
	LINE_HIT,
	LINE_COLD,
	LINE_READ_DIRTY,
	LINE_READ_CLEAN,
	LINE_FETCH,
	LINE_UPGRADE,
	LINE_EVENTS
};

/* Whose lines. Kernel structures are modelled by hand, see scale_world.c. */
enum line_class {
	LINE_ENGINE,
	LINE_TABLE,		/* page-table entries */
	LINE_PAGE,		/* the reference count of a page, in calls of the engine */
	LINE_QUEUE,		/* the IOMMU's queue: its lock and its tail */
	LINE_DRIVER,		/* reference counts, outside of calls of the engine */
	LINE_CLASSES
};

/*
 * @holders: bit per CPU that has a copy, 0: nobody yet
 * @dirty:	the only holder has written it
 */
struct line {
	u64 holders;
	bool dirty;
};

enum line_event line_read(struct line *line, u32 cpu);
enum line_event line_write(struct line *line, u32 cpu);

static inline bool line_is_transfer(enum line_event event)
{
	return event >= LINE_READ_DIRTY;
}

const char *line_event_name(enum line_event event);
const char *line_class_name(enum line_class class);

#endif
