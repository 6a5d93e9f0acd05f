// SPDX-License-Identifier: GPL-2.0-only
/* See heap.h. */
#include <stdlib.h>

#include "heap.h"
#include "model.h"

static bool before(const struct event *a, const struct event *b)
{
	return a->ns != b->ns ? a->ns < b->ns : a->order < b->order;
}

void heap_add(struct heap *heap, u64 ns, u32 kind, u32 at)
{
	struct event event = { ns, heap->added++, kind, at };
	u32 place = heap->count++;

	if (place == heap->room) {
		heap->room = heap->room ? 2 * heap->room : 64;
		heap->events = model_again(heap->events, heap->room * sizeof(event));
	}
	while (place) {
		u32 parent = (place - 1) / 2;

		if (!before(&event, &heap->events[parent]))
			break;
		heap->events[place] = heap->events[parent];
		place = parent;
	}
	heap->events[place] = event;
}

bool heap_take(struct heap *heap, struct event *event)
{
	const struct event *last;
	u32 place = 0, child;

	if (!heap->count)
		return false;
	*event = heap->events[0];
	last = &heap->events[--heap->count];
	while (child = 2 * place + 1, child < heap->count) {
		if (child + 1 < heap->count &&
		    before(&heap->events[child + 1], &heap->events[child]))
			child++;
		if (!before(&heap->events[child], last))
			break;
		heap->events[place] = heap->events[child];
		place = child;
	}
	heap->events[place] = *last;
	return true;
}
