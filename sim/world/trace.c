// SPDX-License-Identifier: GPL-2.0-only
/* Events as lines that a person can read. */
#include <stdio.h>

#include "sim.h"

static const char *const call_names[] = { "poll", "expire", "flush", "set policy", "retire" };

static void range(const struct sim_event *event)
{
	if (event->pages > 1)
		printf(" iova %u..%u", event->page, event->page + event->pages - 1);
	else
		printf(" iova %u", event->page);
}

static const char *prot_name(u64 prot)
{
	static const char *const names[] = { "none", "read", "write", "read-write" };

	return names[prot & ENTRY_PROT];
}

static void trace_driver(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_HANDED:
		printf("driver: has%s%s", event->b ? " reserved" : "", "");
		range(event);
		break;
	case EV_MAP:
	case EV_MAP_END:
		printf(event->kind == EV_MAP ? "driver: map of the page of" :
		       event->b ? "driver: map returns with" : "driver: map returns without");
		range(event);
		break;
	case EV_DROPPED:
		printf("driver: drops");
		range(event);
		break;
	case EV_MAPPED:
		printf("driver: maps");
		range(event);
		printf(" to memory %u, %s", event->a, prot_name(event->b));
		break;
	case EV_NAMED:
	case EV_NAMED_END:
	case EV_GONE:
		printf(event->kind == EV_NAMED ? "driver: unmap a part," :
		       event->kind == EV_GONE ? "driver: all unmapped of" : "driver: unmapped");
		range(event);
		break;
	case EV_UNMAP:
		printf("driver: unmaps");
		range(event);
		printf(event->b & UNMAP_NOW ? ", to flush at once" : "");
		break;
	case EV_UNMAPPED:
		printf("driver: unmap returns:");
		range(event);
		break;
	case EV_LEFT:
		printf("driver: unmap returns, its flush is to follow:");
		range(event);
		break;
	case EV_CALL:
		printf("call: %s (CPU %u)", call_names[event->a], event->page);
		break;
	case EV_RETURN:
		printf("return: %s (CPU %u)", call_names[event->a], event->page);
		break;
	}
}

static void trace_hardware(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_ENTRY:
		printf("table: set");
		range(event);
		printf(" to memory %u, %s", event->a, prot_name(event->b));
		break;
	case EV_UNDONE:
		printf("table: undone are");
		range(event);
		break;
	case EV_REMOVED:
	case EV_PART_REMOVED:
		printf("table: remove");
		range(event);
		break;
	case EV_STUCK:
		printf("engine: stuck");
		range(event);
		break;
	case EV_TABLE_UNLINKED:
		printf("table: unlink table %u of", event->a);
		range(event);
		break;
	case EV_TABLE_FREED:
		printf("table: free table %u of", event->a);
		range(event);
		break;
	case EV_COMMAND:
		printf("iommu: invalidate");
		printf(event->pages ? "" : " all");
		if (event->pages)
			range(event);
		printf(event->a ? " in device %u" : event->b ? " with hint" : "", event->a - 1);
		break;
	case EV_FLUSHED:
		printf("flush done:");
		range(event);
		break;
	case EV_ACCESS:
		printf("device %u: %s memory %u by", event->cpu,
		       event->b & ACCESS_WRITE ? "writes" : "reads", event->a);
		range(event);
		break;
	}
}

void trace_event(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_TIME:
	case EV_ACCOUNTS:
	case EV_READING:
	case EV_FULL:
	case EV_LISTED:
	case EV_FLUSH:
	case EV_MAP_FLUSH:
	case EV_REFUSED:
		return;
	case EV_POLICY:
		printf("%10llu  policy %u, %s, window %llu us%s\n",
		       (unsigned long long)event->now_ns, event->page,
		       xs_level_name(event->pages), (unsigned long long)WINDOW_OF(event->b) / 1000,
		       event->a ? " (changing)" : "");
		return;
	case EV_ALLOCATED:
	case EV_FREED:
		printf("%10llu  memory: %s %u..%u\n", (unsigned long long)event->now_ns,
		       event->kind == EV_FREED ? "free" : "allocate", event->a,
		       event->a + event->pages - 1);
		return;
	}
	printf("%10llu  CPU %u  ", (unsigned long long)event->now_ns, sim_cpu_now());
	trace_driver(event);
	trace_hardware(event);
	putchar('\n');
}
