// SPDX-License-Identifier: GPL-2.0-only
/* Drivers that share a buffer, or a part of a page, with their device. */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>
#include <linux/skbuff.h>

#include "bounce.h"

/*
 * Drivers of NICs (qede, mlx4, atlantic, fm10k) map a page as a whole and use the page in
 * halves. The driver passes the first half up with an skb_shared_info at its end (build_skb())
 * while the device owns the second half, and unmaps the page without DMA_ATTR_SKIP_CPU_SYNC.
 * @syncs: the driver syncs a packet before reading; qede and hfi1 do not
 */
int probe_flip(struct device *dev, u32 syncs)
{
	struct buffer page = { .memory = memory, .bytes = PAGE_SIZE, .dir = DMA_FROM_DEVICE };
	u8 *shared = memory + 2048 - sizeof(struct skb_shared_info);
	int error = map_soon(dev, &page, 0, TRIES);
	dma_addr_t iova = page.iova;

	if (error)
		return error;
	dev_info(dev, "copied: flip: the page is %s\n",
		 is_copied(dev, &page) ? "copied" : "mapped");
	/* The device receives into the first half. */
	writes(dev, iova + 64, 1514, 0x22);
	if (syncs)
		dma_sync_single_range_for_cpu(dev, iova, 64, 1514, DMA_FROM_DEVICE);
	if (!is_filled(memory + 64, 1514, 0x22))
		error = wrong(dev, "flip: the driver does not see the received packet");
	/* build_skb(): the network stack owns the first half from here on. */
	memset(shared, 0x77, sizeof(struct skb_shared_info));
	writes(dev, iova + 2048 + 64, 1514, 0x33);
	if (syncs)
		dma_sync_single_range_for_cpu(dev, iova, 2048 + 64, 1514, DMA_FROM_DEVICE);
	/* The device writes nothing more. */
	unmap(dev, &page, 0);
	if (!is_filled(shared, sizeof(struct skb_shared_info), 0x77)) {
		dev_err(dev, "copied: flip: skb_shared_info begins with %02x\n", *shared);
		error = wrong(dev, "flip: the unmap has overwritten the stack's half of the page");
	}
	return error;
}

static const struct {
	int segments;
	size_t bytes;		/* of each segment */
	size_t first, second;	/* offset in the first page of each segment */
} alignments[] = {
	[ALIGN_1] = { 1, 512, 1, 0 },
	[ALIGN_2] = { 2, 512, 1, 17 },
	/* Looks like contiguous pages at the first segment's end, the second's begin, or both. */
	[ALIGN_BEGIN] = { 2, 512, 1, 0 },
	[ALIGN_END] = { 2, 511, PAGE_SIZE - 511, 17 },
	[ALIGN_ROW] = { 2, 511, PAGE_SIZE - 511, 0 },
	/* In a bounce buffer of a page. */
	[ALIGN_PAGE] = { 1, 3000, 1, 0 },
	[ALIGN_FEW] = { 1, 2, PAGE_SIZE - 3, 0 },
	[ALIGN_LARGE] = { 1, 8192, 1, 0 },
};

/*
 * As sdhci with ADMA: the device writes the unaligned bytes (up to a multiple of four)
 * elsewhere, and the driver copies those bytes into the buffer after a sync and before the
 * unmap (sdhci_adma_table_post(), sdhci_request_done()).
 */
int probe_align(struct device *dev, u32 alignment)
{
	const size_t bytes = alignments[alignment].bytes;
	const int segments = alignments[alignment].segments;
	struct scatterlist list[2], *sg;
	int i, count, error = 0;

	sg_init_table(list, segments);
	for_each_sg(list, sg, segments, i)
		sg_set_page(sg, virt_to_page(memory + i * BUFFER_BYTES), bytes,
			    i ? alignments[alignment].second : alignments[alignment].first);
	count = map_list_soon(dev, list, segments, DMA_FROM_DEVICE, 0, 10);
	if (count < 0)
		return count;
	dev_info(dev, "copied: align: %d of %zu bytes, %s, at 0x%llx\n", segments, bytes,
		 found(dev, sg_dma_address(list)) == sg_virt(list) ? "mapped" : "copied",
		 (u64)sg_dma_address(list));
	for_each_sg(list, sg, count, i) {
		size_t skip = min_t(size_t, -sg_dma_address(sg) & 3, sg_dma_len(sg));

		writes(dev, sg_dma_address(sg) + skip, sg_dma_len(sg) - skip, 0x22);
	}
	dma_sync_sg_for_cpu(dev, list, segments, DMA_FROM_DEVICE);
	for_each_sg(list, sg, count, i)
		memset(sg_virt(sg), 0x22, min_t(size_t, -sg_dma_address(sg) & 3, sg_dma_len(sg)));
	dma_unmap_sg(dev, list, segments, DMA_FROM_DEVICE);
	for_each_sg(list, sg, segments, i)
		if (!is_filled(sg_virt(sg), bytes, 0x22))
			error = wrong(dev, "align: the unmap has overwritten the driver's bytes");
	return error;
}

/*
 * As ath9k and e100: the driver polls a bidirectional buffer with syncs for DMA_FROM_DEVICE.
 * The device may write between a sync for the CPU and the sync for the device.
 */
static int polls_of(struct device *dev, u8 *here, size_t bytes)
{
	dma_addr_t iova;
	bool copied = false;
	int try, error = 0;

	/* Wait until the pool has memory. */
	for (try = 0; !error && (try < 3 || (!copied && try < 10)); try++) {
		memset(here, 0, bytes);
		iova = dma_map_single(dev, here, bytes, DMA_BIDIRECTIONAL);
		if (dma_mapping_error(dev, iova))
			return wrong(dev, "polls: not mapped");
		copied = found(dev, iova) != here;
		dma_sync_single_for_cpu(dev, iova, bytes, DMA_FROM_DEVICE);
		writes(dev, iova, bytes, 0x44);
		dma_sync_single_for_device(dev, iova, bytes, DMA_FROM_DEVICE);
		if (found(dev, iova)[0] != 0x44)
			error = wrong(dev, "polls: a sync overwrites the device's bytes");
		dma_sync_single_for_cpu(dev, iova, bytes, DMA_FROM_DEVICE);
		if (!is_filled(here, bytes, 0x44))
			error = wrong(dev, "polls: the device's bytes before a sync are lost");
		/* The driver uses the buffer again, and the device writes the same bytes. */
		memset(here, 0, bytes);
		dma_sync_single_for_device(dev, iova, bytes, DMA_FROM_DEVICE);
		writes(dev, iova, bytes, 0x44);
		dma_unmap_single(dev, iova, bytes, DMA_BIDIRECTIONAL);
		if (!is_filled(here, bytes, 0x44))
			error = wrong(dev, "polls: the device's second bytes are lost");
		msleep(20);
	}
	return error;
}

int probe_polls(struct device *dev, u32 unused)
{
	static const size_t sizes[] = { 2, 300, 2000, 5000 };
	int error = 0;

	for (u32 i = 0; i < ARRAY_SIZE(sizes) && !error; i++)
		error = polls_of(dev, memory + 64, sizes[i]) ?:
			polls_of(dev, memory + 61, sizes[i]);
	return error;
}

/* drm_gem_map_dma_buf() for an importer that writes: a list of a page, without any sync. */
int probe_prime(struct device *dev, u32 unused)
{
	struct scatterlist list;
	int count, error = 0;

	sg_init_one(&list, memory, PAGE_SIZE);
	count = map_list_soon(dev, &list, 1, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC, 10);
	if (count < 0)
		return count;
	writes(dev, sg_dma_address(&list), PAGE_SIZE, 0x22);
	if (!is_filled(memory, PAGE_SIZE, 0x22))
		error = wrong(dev, "prime: the device's bytes are not visible while mapped");
	dma_unmap_sg_attrs(dev, &list, 1, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
	if (!is_filled(memory, PAGE_SIZE, 0x22))
		error = wrong(dev, "prime: the device's bytes are lost");
	return error;
}

/* drm_gpusvm_get_pages() for a GPU that only reads: the CPU continues to write. */
int probe_svm(struct device *dev, u32 unused)
{
	struct buffer page = { .memory = memory, .bytes = PAGE_SIZE, .dir = DMA_TO_DEVICE };
	int error = map_soon(dev, &page, 0, 10);

	if (error)
		return error;
	memset(memory, 0x33, PAGE_SIZE);
	if (!is_like(dev, page.iova, memory, PAGE_SIZE))
		error = wrong(dev, "svm: the device reads old bytes");
	unmap(dev, &page, 0);
	return error;
}
