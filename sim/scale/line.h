/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of coherent caches: each CPU's cache loses a line only when another CPU
 * writes the line. Counts therefore show the cost of sharing, and nothing that a
 * larger cache would save.
 *
 * A transfer is a request of a CPU that another CPU's cache has to answer:
 *
 *   read_dirty  reads a line that another CPU wrote last
 *   read_clean  first read of a line that other CPUs have only read since
 *   fetch       writes a line that only other CPUs have
 *   upgrade     writes a line that this CPU and other CPUs have
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

/* Owner of a line. Kernel structures are modelled by hand, see scale_world.c. */
enum line_class {
	LINE_ENGINE,
	LINE_TABLE,		/* page-table entries */
	LINE_PAGE,		/* the reference count of a page, in calls of the engine */
	LINE_QUEUE,		/* the IOMMU's queue: lock and tail */
	LINE_DRIVER,		/* reference counts, outside of calls of the engine */
	LINE_CLASSES
};

/*
 * @holders:	bit per CPU with a copy of the line, 0: no CPU yet
 * @dirty:	the only holder has written the line
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
