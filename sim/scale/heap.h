/* SPDX-License-Identifier: GPL-2.0-only */
/* Queues of mapped buffers, ordered by time or by arrival. */
#ifndef SCALE_HEAP_H
#define SCALE_HEAP_H

#include "platform_scale.h"

/*
 * struct packet - a buffer that is mapped
 * @due:	number of the poll of the CPU that unmaps the buffer; used in a heap only
 */
struct packet {
	u64 iova;
	u64 phys;
	u64 due;
	u32 pages;
};

/* A heap; packets[0] is due first. */
struct heap {
	struct packet *packets;
	u32 count;
	u32 room;
};

void heap_add(struct heap *heap, const struct packet *packet);
struct packet heap_take(struct heap *heap);

/* First in, first out. */
struct fifo {
	struct packet *packets;
	u32 first;
	u32 count;
	u32 room;		/* a power of two, or 0 */
};

void fifo_add(struct fifo *fifo, const struct packet *packet);
struct packet fifo_take(struct fifo *fifo);

static inline const struct packet *fifo_at(const struct fifo *fifo, u32 at)
{
	return &fifo->packets[(fifo->first + at) & (fifo->room - 1)];
}

#endif
