/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts of what is written to the file, to be compared with others' counts of the same calls.
 */
#ifndef RECORD_TALLY_H
#define RECORD_TALLY_H

#include <stdio.h>

#include "raw.h"
#include "trace.h"

/**
 * struct tally - counts
 * @kinds: events by kind
 * @devices: events by device
 * @mapped_pages: pages that the maps cover
 * @unmapped_pages: pages that the unmaps cover
 * @unmapped_calls: calls that unmap
 * @lost: sum of the events that TRACE_LOST names
 */
struct tally {
	uint64_t kinds[TRACE_KINDS];
	uint64_t devices[RAW_DEVICES];
	uint64_t mapped_pages;
	uint64_t unmapped_pages;
	uint64_t unmapped_calls;
	uint64_t lost;
};

/* @list_pages: of a list, the pages of its entries. */
void tally_add(struct tally *tally, const struct trace_event *event, uint64_t list_pages,
	       unsigned int page_shift);
/* The name of a kind of events. */
const char *tally_name(unsigned int kind);
uint64_t tally_events(const struct tally *tally);
/* A JSON object of the counts by kind. */
void tally_print(const struct tally *tally, FILE *to);

#endif
