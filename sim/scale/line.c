// SPDX-License-Identifier: GPL-2.0-only
/* One line of the model; see line.h. */
#include "line.h"

enum line_event line_read(struct line *line, u32 cpu)
{
	u64 mine = 1ULL << cpu;
	enum line_event event = line->dirty ? LINE_READ_DIRTY : LINE_READ_CLEAN;

	if (line->holders & mine)
		return LINE_HIT;
	if (!line->holders)
		event = LINE_COLD;
	line->holders |= mine;
	line->dirty = false;
	return event;
}

enum line_event line_write(struct line *line, u32 cpu)
{
	u64 mine = 1ULL << cpu;
	enum line_event event = line->holders & mine ? LINE_UPGRADE : LINE_FETCH;

	if (!line->holders)
		event = LINE_COLD;
	else if (line->holders == mine)
		event = LINE_HIT;
	line->holders = mine;
	line->dirty = true;
	return event;
}

const char *line_event_name(enum line_event event)
{
	static const char *const names[LINE_EVENTS] = {
		[LINE_HIT] = "hit",
		[LINE_COLD] = "cold",
		[LINE_READ_DIRTY] = "read_dirty",
		[LINE_READ_CLEAN] = "read_clean",
		[LINE_FETCH] = "fetch",
		[LINE_UPGRADE] = "upgrade",
	};

	return names[event];
}

const char *line_class_name(enum line_class class)
{
	static const char *const names[LINE_CLASSES] = {
		[LINE_ENGINE] = "engine",
		[LINE_TABLE] = "table",
		[LINE_PAGE] = "page",
		[LINE_QUEUE] = "queue",
		[LINE_DRIVER] = "driver",
	};

	return names[class];
}
