// SPDX-License-Identifier: GPL-2.0-only
/*
 * The recorder's parser of trace_pipe (trace/record/tracefs.c) on standard input.
 *
 *   trace-pipe DEVICE...	prints each event: kind, ns, CPU, device, IOVA, bytes, physical address
 *   trace-pipe --left		removes what killed recorders have left in the folder ./instances
 */
#define FOLDER	"."
#include "../../trace/record/tracefs.c"

int main(int count, char **words)
{
	static struct device devices[RAW_DEVICES];
	struct tracefs tracefs = { .devices = devices, .count = (unsigned int)count - 1 };
	const struct merge_event *event;

	if (count == 2 && !strcmp(words[1], "--left")) {
		remove_left();
		return 0;
	}
	for (int at = 1; at < count; at++)
		snprintf(devices[at - 1].name, sizeof(devices[0].name), "%s", words[at]);
	while ((event = tracefs_next(&tracefs)))
		printf("%u %llu %u %u %llx %llu %llx\n", event->raw.kind, event->raw.ns, event->cpu,
		       event->raw.device, event->raw.iova, event->raw.bytes, event->raw.phys);
	return 0;
}
