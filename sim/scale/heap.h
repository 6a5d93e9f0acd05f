/* SPDX-License-Identifier: GPL-2.0-only */
/* What is mapped, and queues of it: in order of time, or of arrival. */
#ifndef SCALE_HEAP_H
#define SCALE_HEAP_H

#include "platform_scale.h"

/*
 * struct packet - a buffer that is mapped
 * @due:	number of the poll of its CPU that undoes it, if it is in a heap
 */
struct packet {
	u64 iova;
	u64 phys;
	u64 due;
	u32 pages;
};

/* The one that is due first is packets[0]. */
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
