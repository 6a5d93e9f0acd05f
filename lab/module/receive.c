// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `receive`: the life of a receive buffer in a fast NIC, between driver and page pool.
 *
 * The device transfers nothing: the driver finds packets where the device would have written them.
 * All work of driver and stack with a packet is real: NAPI polls, skbs with page fragments, the
 * kernel's page pool, the DMA API. The device's registers and completion entries, checksums, GRO,
 * the protocols and sockets are left out for all policies.
 *
 * The model is mlx5 of Linux 6.0, which both research systems (F&S, xSMMU) changed:
 *
 * - A descriptor is a multi-packet work queue entry of 64 pages. Packets fill a descriptor in
 *   strides of 256 bytes. A packet may begin in a page and end in the next page; the rest of a
 *   descriptor, too small for a packet, is skipped. At an MTU of 4,096 bytes a descriptor has 60
 *   packets.
 * - Each packet gets an skb: up to 256 bytes are copied into its head, the rest becomes page
 *   fragments with a reference each.
 * - When a descriptor is used up, each page is released to the driver's cache, a FIFO with a slot
 *   that is always free. A refill takes the cache's oldest page if only the driver has a reference
 *   to the page; otherwise a refill takes a page from the page pool and maps the page. A page that
 *   finds the cache full is unmapped and goes to the page pool. The page pool keeps a page without
 *   further references, and gives other pages to the allocator. The pool does no mapping (no
 *   PP_FLAG_DMA_MAP).
 * - A poll takes up to `budget` packets, then refills if two descriptors are used up.
 * - Without recycling (recycle=0) there is no cache, and every page goes to the allocator.
 *
 * The stack keeps the last `hold` packets of each queue. The reader, in process context between the
 * polls, copies the data of earlier packets out (copy=1), as recv() does, and frees the packets.
 *
 * Pages that leave the driver are unmapped by `release`:
 *
 *	page		each page by an ordinary unmap: the unmodified driver
 *	descriptor	F&S: the 64 pages of a descriptor are a block of IOVAs with the lifetime of
 *			the descriptor. All are unmapped without a flush, flushed once, then freed.
 *			recycle=0 only
 *	pending		xSMMU: pages are mapped singly; leaving pages are unmapped without a flush
 *			and put on a list. After a single flush, at the end of the poll or when the
 *			list has `threshold` pages, the pages go to the pool or the allocator
 *	blocks		as pending, but the fresh pages of a refill are mapped as a block. Recycled
 *			pages stay mapped in their blocks
 *	whole		the 64 pages of a descriptor are a block, and are recycled together: the
 *			cache has room for cache / 64 descriptors, and gives the oldest if only the
 *			driver has references to its pages. A leaving descriptor is unmapped as a
 *			whole and waits on the list as under pending
 *
 * All but `page` need a batch-aware driver, which also maps all pages of a refill without a flush,
 * and flushes once, before the driver would tell the device of the pages. Set-up, tear-down and a
 * warm-up of two whole rings are not measured.
 *
 * Several queues are polled in turn. Each queue has a ring, a cache and a page pool of its own; all
 * queues use the single NAPI of the device.
 *
 * fail=n: the n-th allocation or mapping fails, and the run ends with -ENOMEM. A real driver would
 * retry, but the figures of a run with a failure would be useless.
 */
#include <linux/if_ether.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#ifdef LAB_HAVE_PAGE_POOL_FOLDER
#include <net/page_pool/helpers.h>
#else
/* until a9ca9f9ceff3 ("page_pool: split types and declarations from page_pool.h", 6.6) */
#include <net/page_pool.h>
#endif

#include "params.h"
#include "ring.h"

#define DESCRIPTOR_PAGES XSMMU_BLOCK_PAGES
#define DESCRIPTOR_BYTES (DESCRIPTOR_PAGES * PAGE_SIZE)
#define STRIDE_BYTES 256
#define HEAD_BYTES 256
#define REFILL_DESCRIPTORS 2	/* used-up descriptors that start a refill */
#define PENDING_MAX_PAGES 1024
#define ATTRS DMA_ATTR_SKIP_CPU_SYNC	/* the driver calls dma_sync for each part before a read */

enum release {
	RELEASE_PAGE, RELEASE_DESCRIPTOR, RELEASE_PENDING, RELEASE_BLOCKS, RELEASE_WHOLE, RELEASES,
};

static const char *const release_words[RELEASES] = {
	"page", "descriptor", "pending", "blocks", "whole",
};

/* Whether fresh pages are mapped as a block, and whether the pages of a descriptor stay a block. */
static const bool release_maps_blocks[RELEASES] = {
	[RELEASE_DESCRIPTOR] = true, [RELEASE_BLOCKS] = true, [RELEASE_WHOLE] = true,
};

static const bool release_keeps_blocks[RELEASES] = {
	[RELEASE_DESCRIPTOR] = true, [RELEASE_WHOLE] = true,
};

struct rx_page {
	struct page *page;
	dma_addr_t addr;
};

struct rx_descriptor {
	u32 count;	/* mapped pages: DESCRIPTOR_PAGES, or fewer after a failed refill, or 0 */
	struct xsmmu_block *block;	/* of all pages, or NULL */
	struct rx_page pages[DESCRIPTOR_PAGES];
};

/*
 * Used by its poll, and by the reader between polls (held). `missing` descriptors before `filling`
 * (modulo the ring) are used up and have no pages.
 */
struct rx_queue {
	struct receive *receive;
	struct page_pool *pool;
	struct rx_descriptor *ring;	/* [descriptors] */
	u32 filling, missing;
	u32 offset;			/* of the next packet in its descriptor, in bytes */

	struct rx_page *cache;		/* [cache_pages] */
	u32 cache_head, cache_tail;	/* oldest, next free; equal: empty */
	struct rx_descriptor *store;	/* [cache_pages / DESCRIPTOR_PAGES], for `whole` */
	u32 store_head, store_count;	/* oldest, number of descriptors */

	struct page *pending[PENDING_MAX_PAGES];	/* unmapped, not flushed */
	u32 pending_count;
	struct page *fresh[DESCRIPTOR_PAGES];	/* of a refill that maps a block */

	struct sk_buff_head held;	/* by the stack */
};

struct receive {
	struct ring_meter meter;
	struct device *dev;
	struct rx_queue *queues[8];
	void *copy_to;		/* the reader's buffer, one packet */
	int error;		/* errno that ended a poll early */

	/* The parameters. */
	u32 mtu, descriptors, budget, hold, cache_pages, recycle, queue_count, threshold, copy;
	u32 packets, release, fail;
};

static u32 frame_bytes(const struct receive *receive)
{
	return receive->mtu + ETH_HLEN;
}

/* ---- release of pages ---- */

static void page_to_pool(struct rx_queue *queue, struct page *page)
{
	struct receive *receive = queue->receive;

	if (receive->recycle) {
		if (page_ref_count(page) == 1)
			receive->meter.counts[RING_POOL_RECYCLED]++;
		page_pool_recycle_direct(queue->pool, page);
		return;
	}
	/* The pool does not keep a page with another reference. */
	get_page(page);
	page_pool_recycle_direct(queue->pool, page);
	put_page(page);
}

static void pending_write(struct rx_queue *queue)
{
	u32 i;

	if (!queue->pending_count)
		return;
	ring_flush(&queue->receive->meter);
	for (i = 0; i < queue->pending_count; i++)
		page_to_pool(queue, queue->pending[i]);
	queue->pending_count = 0;
}

static void page_reuse(struct receive *receive, const struct rx_page *page)
{
	receive->meter.counts[RING_CACHE_REUSED]++;
	dma_sync_single_for_device(receive->dev, page->addr, PAGE_SIZE, DMA_FROM_DEVICE);
}

static bool cache_put(struct rx_queue *queue, const struct rx_page *page)
{
	struct receive *receive = queue->receive;
	u32 next = queue->cache_tail + 1;

	if (!receive->recycle || !receive->cache_pages)
		return false;
	if (next == receive->cache_pages)
		next = 0;
	if (next == queue->cache_head) {
		receive->meter.counts[RING_CACHE_FULL]++;
		return false;
	}
	queue->cache[queue->cache_tail] = *page;
	queue->cache_tail = next;
	return true;
}

static bool cache_get(struct rx_queue *queue, struct rx_page *page)
{
	struct receive *receive = queue->receive;

	if (queue->cache_head == queue->cache_tail)
		return false;
	if (page_ref_count(queue->cache[queue->cache_head].page) != 1) {
		receive->meter.counts[RING_CACHE_BUSY]++;
		return false;
	}
	*page = queue->cache[queue->cache_head];
	if (++queue->cache_head == receive->cache_pages)
		queue->cache_head = 0;
	page_reuse(receive, page);
	return true;
}

static bool store_put(struct rx_queue *queue, const struct rx_descriptor *descriptor)
{
	struct receive *receive = queue->receive;
	u32 room = receive->cache_pages / DESCRIPTOR_PAGES;

	if (!receive->recycle || !room)
		return false;
	if (queue->store_count == room) {
		receive->meter.counts[RING_CACHE_FULL] += DESCRIPTOR_PAGES;
		return false;
	}
	queue->store[(queue->store_head + queue->store_count++) % room] = *descriptor;
	return true;
}

/* Checks the last page first, because the stack usually frees the last page last. */
static bool store_get(struct rx_queue *queue, struct rx_descriptor *descriptor)
{
	struct receive *receive = queue->receive;
	const struct rx_descriptor *oldest = &queue->store[queue->store_head];
	u32 i;

	if (!queue->store_count)
		return false;
	for (i = DESCRIPTOR_PAGES; i--; ) {
		if (page_ref_count(oldest->pages[i].page) != 1) {
			receive->meter.counts[RING_CACHE_BUSY] += DESCRIPTOR_PAGES;
			return false;
		}
	}
	*descriptor = *oldest;
	queue->store_head = (queue->store_head + 1) % (receive->cache_pages / DESCRIPTOR_PAGES);
	queue->store_count--;
	for (i = 0; i < DESCRIPTOR_PAGES; i++)
		page_reuse(receive, &descriptor->pages[i]);
	return true;
}

static void page_release(struct rx_queue *queue, const struct rx_page *page)
{
	struct receive *receive = queue->receive;

	if (cache_put(queue, page))
		return;
	receive->meter.counts[RING_PAGES_UNMAPPED]++;
	if (receive->release == RELEASE_PAGE) {
		dma_unmap_page_attrs(receive->dev, page->addr, PAGE_SIZE, DMA_FROM_DEVICE, ATTRS);
		page_to_pool(queue, page->page);
		return;
	}
	xsmmu_unmap_page_attrs_deferred(receive->dev, page->addr, PAGE_SIZE, DMA_FROM_DEVICE,
					ATTRS);
	queue->pending[queue->pending_count++] = page->page;
	if (queue->pending_count == receive->threshold)
		pending_write(queue);
}

/* Unmap all pages of a descriptor in a single call: they are a block. */
static void block_release(struct rx_queue *queue, struct rx_descriptor *descriptor)
{
	struct receive *receive = queue->receive;
	u32 i;

	if (queue->pending_count + descriptor->count > receive->threshold)
		pending_write(queue);
	xsmmu_block_unmap_pages_deferred(descriptor->block, DMA_FROM_DEVICE, ATTRS);
	xsmmu_block_free(descriptor->block);
	descriptor->block = NULL;
	receive->meter.counts[RING_PAGES_UNMAPPED] += descriptor->count;
	for (i = 0; i < descriptor->count; i++)
		queue->pending[queue->pending_count++] = descriptor->pages[i].page;
	if (receive->release == RELEASE_DESCRIPTOR)
		pending_write(queue);
}

static void descriptor_release(struct rx_queue *queue, struct rx_descriptor *descriptor)
{
	u32 i;

	if (!descriptor->block)
		for (i = 0; i < descriptor->count; i++)
			page_release(queue, &descriptor->pages[i]);
	else if (!store_put(queue, descriptor))
		block_release(queue, descriptor);
	descriptor->count = 0;
	descriptor->block = NULL;
}

/* ---- supply of pages ---- */

static int page_map(struct rx_queue *queue, struct rx_descriptor *descriptor, struct page *page)
{
	struct receive *receive = queue->receive;
	struct rx_page *slot = &descriptor->pages[descriptor->count];

	slot->page = page;
	slot->addr = DMA_MAPPING_ERROR;
	if (!ring_fails(&receive->meter))
		slot->addr = receive->release == RELEASE_PAGE ?
			     dma_map_page_attrs(receive->dev, page, 0, PAGE_SIZE, DMA_FROM_DEVICE,
						ATTRS) :
			     xsmmu_map_page_attrs_unflushed(receive->dev, page, 0, PAGE_SIZE,
							    DMA_FROM_DEVICE, ATTRS);
	if (dma_mapping_error(receive->dev, slot->addr)) {
		page_to_pool(queue, page);
		return -ENOMEM;
	}
	receive->meter.counts[RING_PAGES_MAPPED]++;
	descriptor->count++;
	return 0;
}

/* Undo a block that was mapped in part, and give all its pages back. */
static void fresh_undo(struct rx_queue *queue, struct xsmmu_block *block, u32 count)
{
	struct receive *receive = queue->receive;
	u32 i;

	for (i = 0; i < count; i++) {
		if (block && block->mapped >> i & 1)
			dma_unmap_page_attrs(receive->dev, block->handles[i], PAGE_SIZE,
					     DMA_FROM_DEVICE, ATTRS);
		page_to_pool(queue, queue->fresh[i]);
	}
	xsmmu_block_free(block);
}

static int fresh_map(struct rx_queue *queue, struct rx_descriptor *descriptor, u32 count)
{
	struct receive *receive = queue->receive;
	struct xsmmu_block *block = NULL;
	struct rx_page *slot;
	u32 i;

	if (!ring_fails(&receive->meter))
		block = xsmmu_block_alloc(receive->dev, count, GFP_ATOMIC);
	if (!block || ring_fails(&receive->meter) ||
	    xsmmu_block_map_pages_unflushed(block, queue->fresh, DMA_FROM_DEVICE, ATTRS)) {
		fresh_undo(queue, block, count);
		return -ENOMEM;
	}
	receive->meter.counts[RING_PAGES_MAPPED] += count;
	for (i = 0; i < count; i++) {
		slot = &descriptor->pages[descriptor->count++];
		slot->page = queue->fresh[i];
		slot->addr = block->handles[i];
	}
	if (release_keeps_blocks[receive->release])
		descriptor->block = block;
	else
		xsmmu_block_free(block);	/* each page has a lifetime of its own */
	return 0;
}

static struct page *pool_page(struct rx_queue *queue)
{
	return ring_fails(&queue->receive->meter) ? NULL : page_pool_dev_alloc_pages(queue->pool);
}

static int descriptor_fill(struct rx_queue *queue, struct rx_descriptor *descriptor)
{
	struct receive *receive = queue->receive;
	u32 fresh = 0;
	struct page *page;

	if (store_get(queue, descriptor))
		return 0;
	while (descriptor->count + fresh < DESCRIPTOR_PAGES) {
		if (cache_get(queue, &descriptor->pages[descriptor->count])) {
			descriptor->count++;
			continue;
		}
		page = pool_page(queue);
		if (!page) {
			fresh_undo(queue, NULL, fresh);
			return -ENOMEM;
		}
		if (release_maps_blocks[receive->release])
			queue->fresh[fresh++] = page;
		else if (page_map(queue, descriptor, page))
			return -ENOMEM;
	}
	return fresh ? fresh_map(queue, descriptor, fresh) : 0;
}

static int queue_refill(struct rx_queue *queue)
{
	struct receive *receive = queue->receive;
	u32 slot;
	int ret = 0;

	for (; queue->missing && !ret; queue->missing--) {
		slot = queue->filling + receive->descriptors - queue->missing;
		ret = descriptor_fill(queue, &queue->ring[slot % receive->descriptors]);
	}
	/* The doorbell would follow. */
	if (receive->release != RELEASE_PAGE)
		ring_flush_maps(&receive->meter);
	return ret;
}

/* ---- packets ---- */

static void fragment_add(struct receive *receive, struct sk_buff *skb, const struct rx_page *page,
			 u32 offset, u32 bytes)
{
	dma_sync_single_for_cpu(receive->dev, page->addr + offset, bytes, DMA_FROM_DEVICE);
	page_ref_inc(page->page);
	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page->page, offset, bytes,
			ALIGN(bytes, STRIDE_BYTES));
}

/* Build the skb of the packet at @at in a descriptor. A packet's head never crosses a page. */
static struct sk_buff *packet_build(struct receive *receive, const struct rx_page *pages, u32 at)
{
	const struct rx_page *page = &pages[at / PAGE_SIZE];
	u32 offset = at % PAGE_SIZE, left = frame_bytes(receive);
	u32 bytes = min_t(u32, left, HEAD_BYTES);
	struct sk_buff *skb = NULL;

	if (!ring_fails(&receive->meter))
		skb = napi_alloc_skb(&receive->meter.dev->poll.napi, HEAD_BYTES);
	if (!skb)
		return NULL;
	dma_sync_single_for_cpu(receive->dev, page->addr + offset, bytes, DMA_FROM_DEVICE);
	skb_put_data(skb, page_address(page->page) + offset, bytes);
	for (left -= bytes; left; left -= bytes) {
		offset += bytes;
		if (offset == PAGE_SIZE) {
			offset = 0;
			page++;
		}
		bytes = min_t(u32, left, PAGE_SIZE - offset);
		fragment_add(receive, skb, page, offset, bytes);
	}
	return skb;
}

/* Take a packet from the ring. */
static int queue_receive(struct rx_queue *queue)
{
	struct receive *receive = queue->receive;
	struct rx_descriptor *descriptor = &queue->ring[queue->filling];
	u32 strides_bytes = ALIGN(frame_bytes(receive), STRIDE_BYTES);
	struct sk_buff *skb = packet_build(receive, descriptor->pages, queue->offset);

	if (!skb)
		return -ENOMEM;
	__skb_queue_tail(&queue->held, skb);
	receive->meter.counts[RING_PACKETS]++;
	receive->meter.counts[RING_BYTES] += receive->mtu;
	queue->offset += strides_bytes;
	if (queue->offset + strides_bytes <= DESCRIPTOR_BYTES)
		return 0;
	descriptor_release(queue, descriptor);
	queue->offset = 0;
	queue->filling = (queue->filling + 1) % receive->descriptors;
	queue->missing++;
	return 0;
}

/* The poll. */
static void receive_work(void *context)
{
	struct rx_queue *queue = context;
	struct receive *receive = queue->receive;
	int ret = 0;
	u32 i;

	for (i = 0; i < receive->budget && !ret; i++)
		ret = queue_receive(queue);
	if (!ret && queue->missing >= REFILL_DESCRIPTORS)
		ret = queue_refill(queue);
	pending_write(queue);
	receive->error = ret;
}

static void fill_work(void *context)
{
	struct rx_queue *queue = context;

	queue->missing = queue->receive->descriptors;
	queue->receive->error = queue_refill(queue);
}

/* The application reads all packets that the stack does not keep. */
static void queue_read(struct rx_queue *queue, u32 keep)
{
	struct receive *receive = queue->receive;
	struct sk_buff *skb;

	while (skb_queue_len(&queue->held) > keep) {
		skb = __skb_dequeue(&queue->held);
		if (receive->copy)
			skb_copy_bits(skb, 0, receive->copy_to, skb->len);
		consume_skb(skb);
	}
}

/* ---- the run ---- */

/*
 * Release all pages, without recycling. Runs in a poll, because only the consumer may use the page
 * pool's own cache.
 */
static void empty_work(void *context)
{
	struct rx_queue *queue = context;
	struct receive *receive = queue->receive;
	u32 i;

	receive->recycle = 0;
	for (i = 0; i < receive->descriptors; i++)
		descriptor_release(queue, &queue->ring[i]);
	for (i = 0; i < queue->store_count; i++)
		descriptor_release(queue, &queue->store[(queue->store_head + i) %
							(receive->cache_pages / DESCRIPTOR_PAGES)]);
	for (; queue->cache_head != queue->cache_tail;
	     queue->cache_head = (queue->cache_head + 1) % receive->cache_pages)
		page_release(queue, &queue->cache[queue->cache_head]);
	pending_write(queue);
}

static void queue_destroy(struct receive *receive, struct rx_queue *queue)
{
	queue_read(queue, 0);
	if (queue->pool) {
		ring_meter_poll(&receive->meter, empty_work, queue);
		page_pool_destroy(queue->pool);
	}
	kvfree(queue->store);
	kvfree(queue->cache);
	kvfree(queue->ring);
	kvfree(queue);
}

static int queue_create(struct receive *receive, struct rx_queue **slot)
{
	struct page_pool_params params = {
		.pool_size = receive->descriptors * DESCRIPTOR_PAGES,
		.nid = NUMA_NO_NODE,
		.dev = receive->dev,
		.dma_dir = DMA_FROM_DEVICE,
	};
	struct rx_queue *queue = kvzalloc(sizeof(*queue), GFP_KERNEL);

	if (!queue)
		return -ENOMEM;
	*slot = queue;
	queue->receive = receive;
	__skb_queue_head_init(&queue->held);
	queue->ring = kvcalloc(receive->descriptors, sizeof(*queue->ring), GFP_KERNEL);
	queue->cache = kvcalloc(receive->cache_pages + 1, sizeof(*queue->cache), GFP_KERNEL);
	queue->store = kvcalloc(receive->cache_pages / DESCRIPTOR_PAGES + 1, sizeof(*queue->store),
				GFP_KERNEL);
	if (!queue->ring || !queue->cache || !queue->store)
		return -ENOMEM;
	queue->pool = page_pool_create(&params);
	if (IS_ERR(queue->pool)) {
		queue->pool = NULL;
		return -ENOMEM;
	}
	ring_meter_poll(&receive->meter, fill_work, queue);
	return receive->error;
}

/* Receive at least @packets on each queue. */
static int receive_packets(struct receive *receive, u32 packets)
{
	u32 i, received;
	int ret;

	for (received = 0; received < packets; received += receive->budget) {
		ret = lab_device_interrupted(receive->meter.dev, "receive");
		for (i = 0; i < receive->queue_count && !ret; i++) {
			ring_meter_poll(&receive->meter, receive_work, receive->queues[i]);
			queue_read(receive->queues[i], receive->hold);
			ret = receive->error;
		}
		if (ret)
			return ret;
		cond_resched();
	}
	return 0;
}

static int receive_measure(struct receive *receive)
{
	u32 in_descriptor = DESCRIPTOR_BYTES / ALIGN(frame_bytes(receive), STRIDE_BYTES);
	int ret;

	ret = receive_packets(receive, 2 * receive->descriptors * in_descriptor + receive->hold);
	if (ret)
		return ret;
	ring_meter_start(&receive->meter);
	ret = receive_packets(receive, receive->packets);
	ring_meter_stop(&receive->meter);
	return ret;
}

static int receive_parse(struct receive *receive, char *text)
{
	const struct lab_param params[] = {
		{ "packets", &receive->packets, 1, 10000000 },
		{ "mtu", &receive->mtu, 68, 9000 },
		{ "descriptors", &receive->descriptors, 4, 256 },
		{ "budget", &receive->budget, 1, NAPI_POLL_WEIGHT },
		{ "hold", &receive->hold, 0, 65536 },
		{ "cache", &receive->cache_pages, 0, 65536 },
		{ "recycle", &receive->recycle, 0, 1 },
		{ "queues", &receive->queue_count, 1, ARRAY_SIZE(receive->queues) },
		{ "threshold", &receive->threshold, 1, PENDING_MAX_PAGES },
		{ "copy", &receive->copy, 0, 1 },
		{ "fail", &receive->fail, 0, U32_MAX },
		{ "release", &receive->release, 0, RELEASES - 1, release_words },
	};
	int ret = lab_params_parse(receive->dev, "receive", text, params, ARRAY_SIZE(params));

	if (ret)
		return ret;
	if (release_keeps_blocks[receive->release] && receive->threshold < DESCRIPTOR_PAGES) {
		dev_err(receive->dev, "receive: threshold=%u is less than a descriptor, expected %u to %u with release=%s\n",
			receive->threshold, DESCRIPTOR_PAGES, PENDING_MAX_PAGES,
			release_words[receive->release]);
		return -ERANGE;
	}
	if (receive->release == RELEASE_DESCRIPTOR && receive->recycle) {
		dev_err(receive->dev, "receive: release=descriptor cannot recycle, expected recycle=0 too\n");
		return -EINVAL;
	}
	if (receive->release == RELEASE_PAGE)
		return 0;
	return ring_needs_batch_aware(receive->meter.dev, "receive",
				      release_words[receive->release]);
}

static int receive_queues(struct receive *receive)
{
	u32 i;
	int ret = 0;

	receive->copy_to = kvmalloc(frame_bytes(receive), GFP_KERNEL);
	if (!receive->copy_to)
		return -ENOMEM;
	for (i = 0; i < receive->queue_count && !ret; i++)
		ret = queue_create(receive, &receive->queues[i]);
	return ret;
}

static int receive_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	struct receive *receive = kvzalloc(sizeof(*receive), GFP_KERNEL);
	u32 i;
	int ret;

	if (!receive)
		return -ENOMEM;
	receive->meter.dev = dev;
	receive->dev = &dev->pdev->dev;
	receive->packets = 16384;
	receive->mtu = 4096;
	receive->descriptors = 32;
	receive->budget = NAPI_POLL_WEIGHT;
	receive->hold = 256;
	receive->cache_pages = 256;
	receive->recycle = 1;
	receive->queue_count = 1;
	receive->threshold = PENDING_MAX_PAGES;
	receive->copy = 1;
	ret = receive_parse(receive, text);
	if (!ret)
		ret = ring_meter_open(&receive->meter, dev, "receive");
	if (ret)
		goto out_free;
	receive->meter.fail = receive->fail;
	ret = receive_queues(receive);
	if (!ret)
		ret = receive_measure(receive);
	for (i = 0; i < receive->queue_count; i++)
		if (receive->queues[i])
			queue_destroy(receive, receive->queues[i]);
	ring_meter_close(&receive->meter);
	if (ret == -ENOMEM)
		dev_err(receive->dev, "receive: no memory, or no mapping\n");
	if (!ret)
		ring_meter_print(&receive->meter, release_words[receive->release],
				 RING_COUNTS, result);
out_free:
	kvfree(receive->copy_to);
	kvfree(receive);
	return ret;
}

const struct lab_workload lab_receive = { .name = "receive", .run = receive_run };
