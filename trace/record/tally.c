// SPDX-License-Identifier: GPL-2.0-only
#include "tally.h"

static const char *const names[TRACE_KINDS] = {
	[TRACE_MAP] = "map",
	[TRACE_UNMAP] = "unmap",
	[TRACE_MAP_LIST] = "map_list",
	[TRACE_ENTRY] = "entry",
	[TRACE_UNMAP_LIST] = "unmap_list",
	[TRACE_ALLOC] = "alloc",
	[TRACE_FREE] = "free",
	[TRACE_SYNC_CPU] = "sync_cpu",
	[TRACE_SYNC_DEVICE] = "sync_device",
	[TRACE_IOVA_ALLOC] = "iova_alloc",
	[TRACE_IOVA_LINK] = "iova_link",
	[TRACE_IOVA_SYNC] = "iova_sync",
	[TRACE_IOVA_UNLINK] = "iova_unlink",
	[TRACE_IOVA_FREE] = "iova_free",
	[TRACE_POLL] = "poll",
	[TRACE_LOST] = "lost",
};

static uint64_t pages(uint64_t begin, uint64_t bytes, unsigned int page_shift)
{
	uint64_t mask = (1ull << page_shift) - 1;

	return ((begin & mask) + bytes + mask) >> page_shift;
}

void tally_add(struct tally *tally, const struct trace_event *event, uint64_t list_pages,
	       unsigned int page_shift)
{
	uint64_t covered = pages(event->iova, event->bytes, page_shift);

	tally->kinds[event->kind]++;
	if (event->kind == TRACE_LOST) {
		tally->lost += event->bytes;
		return;
	}
	tally->devices[event->device]++;
	if (event->flags & TRACE_FAILED)
		return;
	switch (event->kind) {
	case TRACE_MAP:
	case TRACE_ALLOC:
	case TRACE_IOVA_LINK:
		tally->mapped_pages += covered;
		break;
	case TRACE_MAP_LIST:
		tally->mapped_pages += list_pages;
		break;
	case TRACE_UNMAP_LIST:
		tally->unmapped_pages += list_pages;
		tally->unmapped_calls++;
		break;
	case TRACE_UNMAP:
	case TRACE_FREE:
	case TRACE_IOVA_UNLINK:
		tally->unmapped_pages += covered;
		tally->unmapped_calls++;
		break;
	case TRACE_IOVA_FREE:
		if (event->bytes) {
			tally->unmapped_pages += covered;
			tally->unmapped_calls++;
		}
		break;
	}
}

const char *tally_name(unsigned int kind)
{
	return kind < TRACE_KINDS && names[kind] ? names[kind] : "unknown";
}

uint64_t tally_events(const struct tally *tally)
{
	uint64_t events = 0;

	for (int kind = 1; kind < TRACE_LOST; kind++)
		events += tally->kinds[kind];
	return events;
}

void tally_print(const struct tally *tally, FILE *to)
{
	const char *separator = "";

	fputc('{', to);
	for (int kind = 1; kind < TRACE_KINDS; kind++) {
		if (!tally->kinds[kind])
			continue;
		fprintf(to, "%s\"%s\":%llu", separator, names[kind],
			(unsigned long long)tally->kinds[kind]);
		separator = ",";
	}
	fputc('}', to);
}
