// SPDX-License-Identifier: GPL-2.0-only
/* See packet.h. */
#include "driver.h"
#include "model.h"
#include "packet.h"
#include "page.h"

#define ETHERNET_BYTES	14u

static struct packet *packets;
static u32 count, room;
static struct packet_list spare;

u32 packet_take(u32 flow, u32 seq)
{
	u32 number = packet_pop(&spare);

	if (number == PACKET_NONE) {
		if (count == room) {
			room = room ? 2 * room : 4096;
			packets = model_again(packets, room * sizeof(*packets));
		}
		number = count ? count : 1;
		count = number + 1;
	}
	packets[number].flow = flow;
	packets[number].seq = seq;
	packets[number].part_count = 0;
	packets[number].bytes = (u32)model.params.mtu_bytes + ETHERNET_BYTES;
	return number;
}

struct packet *packet_at(u32 number)
{
	return &packets[number];
}

void packet_give(u32 number)
{
	packet_push(&spare, number);
}

void packet_push(struct packet_list *list, u32 number)
{
	packets[number].next = PACKET_NONE;
	if (list->count++)
		packets[list->last].next = number;
	else
		list->first = number;
	list->last = number;
}

u32 packet_pop(struct packet_list *list)
{
	u32 number = list->first;

	if (!list->count)
		return PACKET_NONE;
	list->first = packets[number].next;
	list->count--;
	return number;
}

u64 packet_free(u64 ns, u32 number)
{
	struct packet *packet = &packets[number];

	for (u32 i = 0; i < packet->part_count; i++) {
		struct page *page = page_at(packet->parts[i].page);

		if (!--page->refs && !page->owned)
			ns = driver()->unref(ns, packet->parts[i].page);
	}
	packet_give(number);
	return ns;
}
