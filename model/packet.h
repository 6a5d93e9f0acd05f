/* SPDX-License-Identifier: GPL-2.0-only */
/* Packets on their way to the application. */
#ifndef MODEL_PACKET_H
#define MODEL_PACKET_H

#include "records.h"

#define PACKET_NONE	RECORD_NONE
#define PACKET_PARTS	18u	/* 64 KiB that begin anywhere in a page */

/*
 * struct packet_part - the part of a packet in a page
 * @descriptor:	of the queue, by its place in the ring
 */
struct packet_part {
	u32 page;
	u32 descriptor;
	u32 bytes;
};

/*
 * struct packet - a packet
 * @seq:	number of the packet in its flow
 * @done_ns:	time from which on CPUs see the completion
 * @next:	in the list that has the packet
 * @bytes:	size, with Ethernet's header
 */
struct packet {
	u32 flow;
	u32 seq;
	u64 done_ns;
	u32 next;
	u32 bytes;
	u32 part_count;
	struct packet_part parts[PACKET_PARTS];
};

/* A first-in-first-out list. */
struct packet_list {
	u32 first, last;
	u32 count;
};

/* A packet of the MTU's size. */
u32 packet_take(u32 flow, u32 seq);
struct packet *packet_at(u32 number);
void packet_give(u32 number);

void packet_push(struct packet_list *list, u32 number);
u32 packet_pop(struct packet_list *list);

/* The stack frees a packet with its pages. Returns the CPU's time at the end. */
u64 packet_free(u64 ns, u32 number);

#endif
