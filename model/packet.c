// SPDX-License-Identifier: GPL-2.0-only
/* See packet.h. */
#include "driver.h"
#include "model.h"
#include "packet.h"
#include "page.h"

#define ETHERNET_BYTES	14u

static struct records packets;

u32 packet_take(u32 flow, u32 seq)
{
	u32 number = records_take(&packets, sizeof(struct packet));
	struct packet *packet = packet_at(number);

	packet->flow = flow;
	packet->seq = seq;
	packet->part_count = 0;
	packet->bytes = (u32)model.params.mtu_bytes + ETHERNET_BYTES;
	return number;
}

struct packet *packet_at(u32 number)
{
	return (struct packet *)packets.memory + number;
}

void packet_give(u32 number)
{
	records_give(&packets, number);
}

void packet_push(struct packet_list *list, u32 number)
{
	packet_at(number)->next = PACKET_NONE;
	if (list->count++)
		packet_at(list->last)->next = number;
	else
		list->first = number;
	list->last = number;
}

u32 packet_pop(struct packet_list *list)
{
	u32 number = list->first;

	if (!list->count)
		return PACKET_NONE;
	list->first = packet_at(number)->next;
	list->count--;
	return number;
}

u64 packet_free(u64 ns, u32 number)
{
	struct packet *packet = packet_at(number);

	for (u32 i = 0; i < packet->part_count; i++) {
		struct page *page = page_at(packet->parts[i].page);

		if (!--page->refs && !page->owned)
			ns = driver()->unref(ns, packet->parts[i].page);
	}
	packet_give(number);
	return ns;
}
