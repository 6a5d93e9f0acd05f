/* SPDX-License-Identifier: GPL-2.0-only */
/* Events in the order of their times; of equal times, in the order in which they were added. */
#ifndef MODEL_HEAP_H
#define MODEL_HEAP_H

#include <xsmmu/needs.h>

/*
 * struct event - an event
 * @ns:		time
 * @order:	number of the event, from 0
 * @kind:	what happens; the owner of the heap gives numbers their meaning
 * @at:		to which core, flow, ...
 */
struct event {
	u64 ns;
	u64 order;
	u32 kind;
	u32 at;
};

/*
 * struct heap - a binary heap
 * @added:	events added so far
 */
struct heap {
	struct event *events;
	u32 count;
	u32 room;
	u64 added;
};

/* Add an event. Exits if there is no memory. */
void heap_add(struct heap *heap, u64 ns, u32 kind, u32 at);

/* Take the first event. Returns false if there is none. */
bool heap_take(struct heap *heap, struct event *event);

#endif
