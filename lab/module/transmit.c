// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `transmit`: the life of a fast NIC's sent packets, from the sender's pages to their
 * release.
 *
 * The device transfers nothing. The skbs, their pages, the DMA API, and the NAPI polls that handle
 * completions are real. The device's registers and entries, checksums, the protocols, sockets and
 * queueing are left out for all policies.
 *
 * Packets come in a fixed order that repeats after 34 packets:
 *
 * - Each packet has a linear part of 66 bytes (Ethernet, IPv4 and TCP headers) in slab memory,
 *   allocated with the skb as TCP does, and k pages of data; k goes through 0 to 16, in steps of 7
 *   modulo 17. So a packet has up to 64 KiB of data, the limit of TCP segmentation offload. (With
 *   pages of 4 KiB. With larger pages k is smaller, and the order repeats earlier.)
 * - Every second packet is of a file (sendfile): its data is k order-0 pages of the 1,024 pages of
 *   the page cache, in an order without adjacent neighbours, each page a segment. With the linear
 *   part such a packet has 1 to 17 segments.
 * - The other packets are of a socket (send): the data is copied (copy=1) into the socket's page
 *   fragment, compound pages of 32 KiB from skb_page_frag_refill(), with a segment for each. Such a
 *   packet has 1 to 4 segments.
 *
 * The sender, in process context with bottom halves off, maps each segment and fills the ring up to
 * `depth` packets. A poll then completes the oldest `completions` packets. The model is mlx5 of
 * Linux 6.0, which both research systems changed: at most 128 completions in a poll, each packet
 * unmapped segment by segment and then freed.
 *
 * Completed packets are unmapped by `release`:
 *
 *	page	each segment by an ordinary unmap, then the packet is freed: the unmodified driver,
 *		and F&S, which is about receiving only
 *	packet	xSMMU: a packet of more than `threshold` segments is unmapped without a flush, then
 *		flushed once and freed. A packet of fewer segments is unmapped as under `page`
 *	poll	xSMMU's option: as `packet`, but packets wait for a single flush at the end of the
 *		poll, and are freed only then
 *
 * `packet` and `poll` need a batch-aware driver, which also maps all segments of a packet without a
 * flush, and flushes once, before the driver would tell the device of the packet. fail=n: the n-th
 * allocation or mapping fails, and the run ends with -ENOMEM.
 */
#include <linux/if_ether.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/skbuff.h>
#include <linux/slab.h>

#include "params.h"
#include "ring.h"

#define HEADER_BYTES 66
#define HEADROOM_BYTES 128	/* for headers that lower layers might push */
#define FILE_PAGES 1024
#define FILE_STEP 389		/* distance of pages sent in sequence; coprime to FILE_PAGES */
#define DATA_PAGES_MAX ((u32)(SZ_64K / PAGE_SIZE))
#define SEGMENTS_MAX (1 + DATA_PAGES_MAX)
#define COMPLETIONS_MAX 128	/* MLX5E_TX_CQ_POLL_BUDGET */
#define WARMUP_PACKETS 2048

enum release { RELEASE_PAGE, RELEASE_PACKET, RELEASE_POLL, RELEASES };

static const char *const release_words[RELEASES] = { "page", "packet", "poll" };

struct tx_segment {
	dma_addr_t addr;
	u32 bytes;
};

struct tx_packet {
	struct sk_buff *skb;
	u32 count;	/* of segments that are mapped */
	struct tx_segment segments[SEGMENTS_MAX];	/* the first is the linear part */
};

struct transmit {
	struct ring_meter meter;
	struct device *dev;
	struct tx_packet *ring;		/* [depth] */
	u32 head, tail;			/* next to complete, next to send; they only grow */
	struct sk_buff *flushed_later[COMPLETIONS_MAX];	/* of one poll */
	u32 flushed_later_count;

	struct page *file[FILE_PAGES];
	u32 file_next;
	struct page_frag socket;
	void *data;			/* the application's data, 64 KiB */

	/* The parameters. */
	u32 packets, depth, completions, threshold, copy, release, fail;
};

/* ---- packets ---- */

static void fragment_add(struct sk_buff *skb, struct page *page, u32 offset, u32 bytes)
{
	get_page(page);
	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, offset, bytes, bytes);
}

static void add_file(struct transmit *transmit, struct sk_buff *skb, u32 pages)
{
	for (; pages; pages--) {
		fragment_add(skb, transmit->file[transmit->file_next], 0, PAGE_SIZE);
		transmit->file_next = (transmit->file_next + FILE_STEP) % FILE_PAGES;
	}
}

static int add_socket(struct transmit *transmit, struct sk_buff *skb, u32 pages)
{
	struct page_frag *socket = &transmit->socket;
	u32 bytes, done, size = pages * PAGE_SIZE;

	for (done = 0; done < size; done += bytes) {
		if (ring_fails(&transmit->meter) || !skb_page_frag_refill(32, socket, GFP_KERNEL))
			return -ENOMEM;
		bytes = min(size - done, socket->size - socket->offset);
		if (transmit->copy)
			memcpy(page_address(socket->page) + socket->offset, transmit->data + done,
			       bytes);
		fragment_add(skb, socket->page, socket->offset, bytes);
		socket->offset += bytes;
	}
	return 0;
}

static struct sk_buff *packet_build(struct transmit *transmit, u32 index)
{
	u32 pages = index / 2 * 7 % (DATA_PAGES_MAX + 1);
	struct sk_buff *skb = NULL;

	if (!ring_fails(&transmit->meter))
		skb = alloc_skb(HEADROOM_BYTES + HEADER_BYTES, GFP_KERNEL);
	if (!skb)
		return NULL;
	skb_reserve(skb, HEADROOM_BYTES);
	skb_put_zero(skb, HEADER_BYTES);
	if (index % 2 == 0) {
		add_file(transmit, skb, pages);
	} else if (add_socket(transmit, skb, pages)) {
		kfree_skb(skb);
		return NULL;
	}
	return skb;
}

/* ---- the driver: sending ---- */

static int segment_add(struct transmit *transmit, struct tx_packet *packet, dma_addr_t addr,
		       u32 bytes)
{
	if (dma_mapping_error(transmit->dev, addr))
		return -ENOMEM;
	packet->segments[packet->count].addr = addr;
	packet->segments[packet->count++].bytes = bytes;
	transmit->meter.counts[RING_PAGES_MAPPED] += ring_pages(addr, bytes);
	return 0;
}

static dma_addr_t segment_map(struct transmit *transmit, struct page *page, u32 offset, u32 bytes)
{
	if (transmit->release == RELEASE_PAGE)
		return dma_map_page(transmit->dev, page, offset, bytes, DMA_TO_DEVICE);
	return xsmmu_map_page_unflushed(transmit->dev, page, offset, bytes, DMA_TO_DEVICE);
}

static int packet_map(struct transmit *transmit, struct tx_packet *packet)
{
	struct sk_buff *skb = packet->skb;
	const skb_frag_t *frag;
	dma_addr_t addr;
	u32 i;
	int ret;

	addr = ring_fails(&transmit->meter) ? DMA_MAPPING_ERROR :
	       segment_map(transmit, virt_to_page(skb->data), offset_in_page(skb->data),
			   skb_headlen(skb));
	ret = segment_add(transmit, packet, addr, skb_headlen(skb));
	for (i = 0; i < skb_shinfo(skb)->nr_frags && !ret; i++) {
		frag = &skb_shinfo(skb)->frags[i];
		addr = ring_fails(&transmit->meter) ? DMA_MAPPING_ERROR :
		       segment_map(transmit, skb_frag_page(frag), skb_frag_off(frag),
				   skb_frag_size(frag));
		ret = segment_add(transmit, packet, addr, skb_frag_size(frag));
	}
	return ret;
}

/* The first segment is slab memory, mapped by its address; the other segments are pages. */
static void packet_unmap(struct transmit *transmit, struct tx_packet *packet)
{
	u64 *pages_unmapped = &transmit->meter.counts[RING_PAGES_UNMAPPED];
	struct tx_segment *segment = packet->segments;
	u32 i;

	for (i = 0; i < packet->count; i++, segment++) {
		*pages_unmapped += ring_pages(segment->addr, segment->bytes);
		if (i)
			dma_unmap_page(transmit->dev, segment->addr, segment->bytes, DMA_TO_DEVICE);
		else
			dma_unmap_single(transmit->dev, segment->addr, segment->bytes,
					 DMA_TO_DEVICE);
	}
}

static void packet_unmap_deferred(struct transmit *transmit, struct tx_packet *packet)
{
	u64 *pages_unmapped = &transmit->meter.counts[RING_PAGES_UNMAPPED];
	struct tx_segment *segment = packet->segments;
	u32 i;

	for (i = 0; i < packet->count; i++, segment++) {
		*pages_unmapped += ring_pages(segment->addr, segment->bytes);
		xsmmu_unmap_page_deferred(transmit->dev, segment->addr, segment->bytes,
					  DMA_TO_DEVICE);
	}
}

static int packet_send(struct transmit *transmit)
{
	struct tx_packet *packet = &transmit->ring[transmit->tail % transmit->depth];
	int ret;

	packet->count = 0;
	packet->skb = packet_build(transmit, transmit->tail);
	if (!packet->skb)
		return -ENOMEM;
	local_bh_disable();
	ret = packet_map(transmit, packet);
	if (ret) {
		packet_unmap(transmit, packet);
		kfree_skb(packet->skb);
	} else {
		transmit->tail++;
		/* The doorbell would follow. */
		if (transmit->release != RELEASE_PAGE)
			ring_flush_maps(&transmit->meter);
	}
	local_bh_enable();
	return ret;
}

/* ---- the driver: completions ---- */

static void packet_complete(struct transmit *transmit, struct tx_packet *packet)
{
	struct ring_meter *meter = &transmit->meter;

	meter->counts[RING_PACKETS]++;
	meter->counts[RING_BYTES] += packet->skb->len;
	if (transmit->release == RELEASE_PAGE || packet->count <= transmit->threshold) {
		packet_unmap(transmit, packet);
	} else {
		packet_unmap_deferred(transmit, packet);
		if (transmit->release == RELEASE_POLL) {
			transmit->flushed_later[transmit->flushed_later_count++] = packet->skb;
			return;
		}
		ring_flush(meter);
	}
	napi_consume_skb(packet->skb, NAPI_POLL_WEIGHT);
}

/* The poll. */
static void transmit_work(void *context)
{
	struct transmit *transmit = context;
	u32 i;

	for (i = 0; i < transmit->completions && transmit->head != transmit->tail; i++)
		packet_complete(transmit, &transmit->ring[transmit->head++ % transmit->depth]);
	if (!transmit->flushed_later_count)
		return;
	ring_flush(&transmit->meter);
	for (i = 0; i < transmit->flushed_later_count; i++)
		napi_consume_skb(transmit->flushed_later[i], NAPI_POLL_WEIGHT);
	transmit->flushed_later_count = 0;
}

/* ---- the run ---- */

static int transmit_packets(struct transmit *transmit, u32 packets)
{
	u32 last = transmit->head + packets;
	int ret = 0;

	while ((s32)(last - transmit->head) > 0 && !ret) {
		ret = lab_device_interrupted(transmit->meter.dev, "transmit");
		while (!ret && transmit->tail - transmit->head < transmit->depth)
			ret = packet_send(transmit);
		ring_meter_poll(&transmit->meter, transmit_work, transmit);
		cond_resched();
	}
	return ret;
}

static int transmit_allocate(struct transmit *transmit)
{
	u32 i;

	transmit->ring = kvcalloc(transmit->depth, sizeof(*transmit->ring), GFP_KERNEL);
	transmit->data = kvzalloc(DATA_PAGES_MAX * PAGE_SIZE, GFP_KERNEL);
	if (!transmit->ring || !transmit->data)
		return -ENOMEM;
	for (i = 0; i < FILE_PAGES; i++) {
		transmit->file[i] = alloc_page(GFP_KERNEL);
		if (!transmit->file[i])
			return -ENOMEM;
	}
	return 0;
}

static void transmit_free(struct transmit *transmit)
{
	u32 i;

	for (i = 0; i < FILE_PAGES; i++)
		if (transmit->file[i])
			__free_page(transmit->file[i]);
	if (transmit->socket.page)
		put_page(transmit->socket.page);
	kvfree(transmit->data);
	kvfree(transmit->ring);
	kvfree(transmit);
}

static int transmit_parse(struct transmit *transmit, char *text)
{
	const struct lab_param params[] = {
		{ "packets", &transmit->packets, 1, 10000000 },
		{ "depth", &transmit->depth, COMPLETIONS_MAX, 8192 },
		{ "completions", &transmit->completions, 1, COMPLETIONS_MAX },
		{ "threshold", &transmit->threshold, 0, 255 },
		{ "copy", &transmit->copy, 0, 1 },
		{ "fail", &transmit->fail, 0, U32_MAX },
		{ "release", &transmit->release, 0, RELEASES - 1, release_words },
	};
	int ret = lab_params_parse(transmit->dev, "transmit", text, params, ARRAY_SIZE(params));

	if (ret)
		return ret;
	if (transmit->release == RELEASE_PAGE)
		return 0;
	return ring_needs_batch_aware(transmit->meter.dev, "transmit",
				      release_words[transmit->release]);
}

static int transmit_measure(struct transmit *transmit)
{
	int ret = transmit_packets(transmit, WARMUP_PACKETS + transmit->depth);

	if (ret)
		return ret;
	ring_meter_start(&transmit->meter);
	ret = transmit_packets(transmit, transmit->packets);
	ring_meter_stop(&transmit->meter);
	return ret;
}

static int transmit_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	struct transmit *transmit = kvzalloc(sizeof(*transmit), GFP_KERNEL);
	int ret;

	if (!transmit)
		return -ENOMEM;
	transmit->meter.dev = dev;
	transmit->dev = &dev->pdev->dev;
	transmit->packets = 4096;
	transmit->depth = 256;
	transmit->completions = COMPLETIONS_MAX;
	transmit->threshold = 2;
	transmit->copy = 1;
	ret = transmit_parse(transmit, text);
	if (!ret)
		ret = transmit_allocate(transmit);
	if (!ret)
		ret = ring_meter_open(&transmit->meter, dev, "transmit");
	if (ret)
		goto out_free;
	transmit->meter.fail = transmit->fail;
	ret = transmit_measure(transmit);
	while (transmit->head != transmit->tail)
		ring_meter_poll(&transmit->meter, transmit_work, transmit);
	ring_meter_close(&transmit->meter);
	if (!ret)
		ring_meter_print(&transmit->meter, release_words[transmit->release],
				 RING_COMMON_COUNTS, result);
out_free:
	if (ret == -ENOMEM)
		dev_err(&dev->pdev->dev, "transmit: no memory, or no mapping\n");
	transmit_free(transmit);
	return ret;
}

const struct lab_workload lab_transmit = { .name = "transmit", .run = transmit_run };
