// SPDX-License-Identifier: GPL-2.0-only
#include <inttypes.h>
#include <stdio.h>

#include "print.h"
#include "tally.h"

static const char *const directions[] = { "both", "to-device", "from-device", "none" };

static void print_event(const struct trace_event *event)
{
	printf("%" PRIu64 " %u %u %s 0x%" PRIx64 " %" PRIu64 " page=0x%" PRIx64 "+%u span=%" PRIu64,
	       event->ns, event->cpu, event->device, tally_name(event->kind), event->iova,
	       event->bytes, event->page, event->offset, event->span);
	printf(" queue=%u %s%s%s%s%s\n", event->queue, directions[event->flags & TRACE_DIRECTION],
	       event->flags & TRACE_FAILED ? " failed" : "",
	       event->flags & TRACE_SKIP_SYNC ? " skip-sync" : "",
	       event->flags & TRACE_MMIO ? " mmio" : "",
	       event->flags & TRACE_UNHELD ? " unheld" : "");
}

/* Text of a file, which may be anybody's: control characters are for terminals. */
static void print_text(const char *text)
{
	printf("# ");
	for (; *text; text++)
		putchar((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text);
	putchar('\n');
}

bool print_recording(const char *file, struct trace_error *error)
{
	struct trace_reader *reader = trace_open(file, error);
	const struct trace_damage *damage;
	struct trace_event event;

	if (!reader)
		return false;
	print_text(trace_header(reader));
	printf("# ns cpu device kind iova bytes\n");
	while (trace_next(reader, &event))
		print_event(&event);
	damage = trace_damage(reader);
	if (damage->blocks || damage->bytes)
		printf("# %" PRIu64 " damaged blocks, %" PRIu64 " bytes\n", damage->blocks,
		       damage->bytes);
	if (trace_summary(reader))
		print_text(trace_summary(reader));
	trace_close(reader);
	return true;
}
