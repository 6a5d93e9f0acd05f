// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `storage`: the life of a disk's requests, from the pages of a user's buffer to their
 * completion.
 *
 * The device transfers nothing. The scatter lists and the DMA API are real. The block layer and the
 * device's queues and entries are left out for all policies. So passthrough costs almost nothing,
 * and only the cost that a policy adds is a figure.
 *
 * `depth` requests of `pages` pages are in flight, as in fio with this iodepth and direct I/O: each
 * slot has a buffer of its own for the whole run, and a request holds a reference to each piece of
 * the buffer while in flight. A piece is `segment` contiguous pages: segment=1 are order-0 pages,
 * in an order without adjacent neighbours; segment=pages is a buffer in huge pages. Requests are
 * submitted in process context, and read from the disk (the device writes).
 *
 * An interrupt, modelled by a section with interrupts off, completes the oldest `batch` requests,
 * which are then submitted again. Storage has no NAPI polls. Completed requests are unmapped by
 * `release`:
 *
 *	page	each request by an ordinary unmap, then ended: the unmodified driver
 *	batch	all requests of the batch are unmapped without a flush; after a single flush all are
 *		ended. A batch of one request is unmapped as under `page`
 *
 * `batch` is xSMMU's method for NVMe, and needs a batch-aware driver. fail=n: the n-th mapping
 * fails, and the run ends with -ENOMEM.
 */
#include <linux/dma-mapping.h>
#include <linux/gcd.h>
#include <linux/irqflags.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "params.h"
#include "ring.h"

#define BATCH_MAX 32
#define PAGES_MAX 256
#define PIECE_STEP 61	/* least distance of pieces that are allocated in sequence */
#define WARMUP_REQUESTS 1024

enum release { RELEASE_PAGE, RELEASE_BATCH, RELEASES };

static const char *const release_words[RELEASES] = { "page", "batch" };

struct request_slot {
	struct page **pieces;	/* in storage->pieces, [range_count] */
	struct sg_table table;
};

struct storage {
	struct ring_meter meter;
	struct device *dev;
	struct page **pieces;		/* [depth * range_count], the first page of each */
	u32 range_count;		/* of a request */
	struct request_slot *slots;	/* [depth] */
	u32 head, tail;			/* next to complete, next to submit; they only grow */

	/* The parameters. */
	u32 requests, page_count, segment_pages, depth, batch, release, fail;
};

static struct request_slot *slot_of(struct storage *storage, u32 index)
{
	return &storage->slots[index % storage->depth];
}

static void request_end(struct storage *storage, struct request_slot *slot)
{
	u32 i;

	for (i = 0; i < storage->range_count; i++)
		put_page(slot->pieces[i]);
}

static int request_submit(struct storage *storage)
{
	struct request_slot *slot = slot_of(storage, storage->tail);
	struct scatterlist *entry;
	u32 i;
	int ret;

	for_each_sgtable_sg(&slot->table, entry, i) {
		get_page(slot->pieces[i]);
		sg_set_page(entry, slot->pieces[i], storage->segment_pages * PAGE_SIZE, 0);
	}
	ret = ring_fails(&storage->meter) ? -ENOMEM :
	      dma_map_sgtable(storage->dev, &slot->table, DMA_FROM_DEVICE, 0);
	if (ret) {
		request_end(storage, slot);
		return -ENOMEM;
	}
	storage->meter.counts[RING_PAGES_MAPPED] += storage->page_count;
	storage->tail++;
	return 0;
}

static void request_unmap(struct storage *storage, struct request_slot *slot, bool flush)
{
	struct ring_meter *meter = &storage->meter;

	meter->counts[RING_PACKETS]++;
	meter->counts[RING_BYTES] += storage->page_count * PAGE_SIZE;
	meter->counts[RING_PAGES_UNMAPPED] += storage->page_count;
	if (flush)
		dma_unmap_sgtable(storage->dev, &slot->table, DMA_FROM_DEVICE, 0);
	else
		xsmmu_unmap_sgtable_deferred(storage->dev, &slot->table, DMA_FROM_DEVICE, 0);
}

/* The interrupt. */
static void storage_complete(struct storage *storage)
{
	u32 i, count = min(storage->batch, storage->tail - storage->head);
	bool flush_each = storage->release == RELEASE_PAGE || count == 1;
	unsigned long flags;

	local_irq_save(flags);
	for (i = 0; i < count; i++) {
		request_unmap(storage, slot_of(storage, storage->head + i), flush_each);
		if (flush_each)
			request_end(storage, slot_of(storage, storage->head + i));
	}
	if (!flush_each) {
		ring_flush(&storage->meter);
		for (i = 0; i < count; i++)
			request_end(storage, slot_of(storage, storage->head + i));
	}
	storage->head += count;
	local_irq_restore(flags);
}

static int storage_requests(struct storage *storage, u32 requests)
{
	u32 last = storage->head + requests;
	int ret = 0;

	while ((s32)(last - storage->head) > 0 && !ret) {
		ret = lab_device_interrupted(storage->meter.dev, "storage");
		while (!ret && storage->tail - storage->head < storage->depth)
			ret = request_submit(storage);
		storage_complete(storage);
		cond_resched();
	}
	return ret;
}

static int storage_allocate(struct storage *storage)
{
	u32 order = ilog2(storage->segment_pages), step = PIECE_STEP, count, i;
	struct request_slot *slot;
	struct page **place;

	storage->range_count = storage->page_count / storage->segment_pages;
	count = storage->depth * storage->range_count;
	storage->pieces = kvcalloc(count, sizeof(*storage->pieces), GFP_KERNEL);
	storage->slots = kvcalloc(storage->depth, sizeof(*storage->slots), GFP_KERNEL);
	if (!storage->pieces || !storage->slots)
		return -ENOMEM;
	/* Allocations in sequence are often neighbours in memory, so spread them. */
	while (gcd(step, count) != 1)
		step++;
	for (i = 0; i < count; i++) {
		place = &storage->pieces[i * step % count];
		*place = alloc_pages(GFP_KERNEL | (order ? __GFP_COMP : 0), order);
		if (!*place)
			return -ENOMEM;
	}
	for (i = 0; i < storage->depth; i++) {
		slot = &storage->slots[i];
		slot->pieces = &storage->pieces[i * storage->range_count];
		if (sg_alloc_table(&slot->table, storage->range_count, GFP_KERNEL))
			return -ENOMEM;
	}
	return 0;
}

static void storage_free(struct storage *storage)
{
	u32 i;

	for (i = 0; storage->slots && i < storage->depth; i++)
		sg_free_table(&storage->slots[i].table);
	for (i = 0; storage->pieces && i < storage->depth * storage->range_count; i++)
		if (storage->pieces[i])
			__free_pages(storage->pieces[i], ilog2(storage->segment_pages));
	kvfree(storage->slots);
	kvfree(storage->pieces);
}

static int storage_parse(struct storage *storage, char *text)
{
	const struct lab_param params[] = {
		{ "requests", &storage->requests, 1, 10000000 },
		{ "pages", &storage->page_count, 1, PAGES_MAX },
		{ "segment", &storage->segment_pages, 1, PAGES_MAX },
		{ "depth", &storage->depth, 1, 128 },
		{ "batch", &storage->batch, 1, BATCH_MAX },
		{ "fail", &storage->fail, 0, U32_MAX },
		{ "release", &storage->release, 0, RELEASES - 1, release_words },
	};
	int ret = lab_params_parse(storage->dev, "storage", text, params, ARRAY_SIZE(params));

	if (ret)
		return ret;
	if (storage->batch > storage->depth) {
		dev_err(storage->dev, "storage: batch=%u is more than depth=%u\n", storage->batch,
			storage->depth);
		return -ERANGE;
	}
	if (!is_power_of_2(storage->segment_pages) ||
	    storage->page_count % storage->segment_pages) {
		dev_err(storage->dev, "storage: segment=%u is out of range, expected a power of two that divides pages=%u\n",
			storage->segment_pages, storage->page_count);
		return -ERANGE;
	}
	if (storage->release == RELEASE_PAGE)
		return 0;
	return ring_needs_batch_aware(storage->meter.dev, "storage",
				      release_words[storage->release]);
}

static int storage_measure(struct storage *storage)
{
	int ret = storage_requests(storage, WARMUP_REQUESTS);

	if (ret)
		return ret;
	ring_meter_start(&storage->meter);
	ret = storage_requests(storage, storage->requests);
	ring_meter_stop(&storage->meter);
	return ret;
}

static int storage_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	struct storage storage = {
		.meter.dev = dev, .dev = &dev->pdev->dev, .requests = 4096, .page_count = 32,
		.segment_pages = 1, .depth = 32, .batch = 32,
	};
	int ret = storage_parse(&storage, text);

	if (!ret)
		ret = storage_allocate(&storage);
	if (!ret)
		ret = ring_meter_open(&storage.meter, dev, "storage");
	if (ret)
		goto out_free;
	storage.meter.fail = storage.fail;
	ret = storage_measure(&storage);
	while (storage.head != storage.tail)
		storage_complete(&storage);
	ring_meter_close(&storage.meter);
	if (!ret)
		ring_meter_print(&storage.meter, release_words[storage.release],
				 RING_COMMON_COUNTS, result);
out_free:
	if (ret == -ENOMEM)
		dev_err(&dev->pdev->dev, "storage: no memory, or no mapping\n");
	storage_free(&storage);
	return ret;
}

const struct lab_workload lab_storage = { .name = "storage", .run = storage_run };
