// SPDX-License-Identifier: GPL-2.0-only
/* Queues; see heap.h. */
#include <stdlib.h>

#include "heap.h"

static struct packet *grown(struct packet *packets, u32 room)
{
	packets = realloc(packets, room * sizeof(*packets));
	if (!packets)
		scale_fail("no memory for packets");
	return packets;
}

void heap_add(struct heap *heap, const struct packet *packet)
{
	u32 at = heap->count++;

	if (heap->count > heap->room) {
		heap->room = heap->room ? 2 * heap->room : 64;
		heap->packets = grown(heap->packets, heap->room);
	}
	for (; at && heap->packets[(at - 1) / 2].due > packet->due; at = (at - 1) / 2)
		heap->packets[at] = heap->packets[(at - 1) / 2];
	heap->packets[at] = *packet;
}

struct packet heap_take(struct heap *heap)
{
	struct packet first = heap->packets[0];
	const struct packet *last = &heap->packets[--heap->count];
	u32 at = 0, below;

	while ((below = 2 * at + 1) < heap->count) {
		if (below + 1 < heap->count &&
		    heap->packets[below + 1].due < heap->packets[below].due)
			below++;
		if (heap->packets[below].due >= last->due)
			break;
		heap->packets[at] = heap->packets[below];
		at = below;
	}
	heap->packets[at] = *last;
	return first;
}

void fifo_add(struct fifo *fifo, const struct packet *packet)
{
	if (fifo->count == fifo->room) {
		u32 old = fifo->room;

		fifo->room = old ? 2 * old : 64;
		fifo->packets = grown(fifo->packets, fifo->room);
		/* Entries that had wrapped around go behind the rest. */
		for (u32 i = 0; i < fifo->first; i++)
			fifo->packets[old + i] = fifo->packets[i];
	}
	fifo->packets[(fifo->first + fifo->count++) & (fifo->room - 1)] = *packet;
}

struct packet fifo_take(struct fifo *fifo)
{
	struct packet packet = fifo->packets[fifo->first];

	fifo->first = (fifo->first + 1) & (fifo->room - 1);
	fifo->count--;
	return packet;
}
