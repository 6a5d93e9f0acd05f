// SPDX-License-Identifier: GPL-2.0-only
/* Events of this run, to be printed on failure. */
#include <stdio.h>
#include <string.h>

#include "inside.h"

#define EVENTS	4096

static struct {
	const struct ex_site *site;
	u64 value;
	const char *note;
	u32 number;
	u32 thread;
} events[EVENTS];

static u32 count;

void trace_reset(void)
{
	count = 0;
}

void trace_event(const struct ex_site *site, u64 value, const char *note, u32 number)
{
	if (count == EVENTS)
		return;
	events[count].site = site;
	events[count].value = value;
	events[count].note = note;
	events[count].number = number;
	events[count++].thread = ex_thread();
}

void trace_print(void)
{
	for (u32 i = 0; i < count; i++) {
		const char *file = strrchr(events[i].site->file, '/');

		printf("  T%u %s:%-4u %-56s %#llx", events[i].thread,
		       file ? file + 1 : events[i].site->file,
		       events[i].site->line, events[i].site->text,
		       (unsigned long long)events[i].value);
		if (events[i].note)
			printf("  (%s", events[i].note);
		if (events[i].note && events[i].number)
			printf(" %u", events[i].number);
		puts(events[i].note ? ")" : "");
	}
}
