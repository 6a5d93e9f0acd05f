// SPDX-License-Identifier: GPL-2.0-only
/* Single buffers and lists of each kind: which are copied, and their content. */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>

#include "bounce.h"

static void fill(const struct buffer *buffer, u8 value)
{
	memset(buffer->memory, value, buffer->bytes);
}

/* A copy starts with the buffer's bytes, and the unmap copies device writes back. */
static int check_unmap(struct device *dev, struct buffer *buffer)
{
	bool comes_back = buffer->dir != DMA_TO_DEVICE;
	u64 stale;
	int error;

	fill(buffer, 0x11);
	error = map(dev, buffer, true);
	if (error)
		return error;
	stale = buffer->iova;
	if (!is_like(dev, stale, buffer->memory, buffer->bytes))
		return wrong(dev, "a copy is not like its buffer");
	writes(dev, stale, buffer->bytes, 0x22);
	if (!is_filled(buffer->memory, buffer->bytes, 0x11))
		return wrong(dev, "a device write reaches a copied buffer");
	unmap(dev, buffer, 0);
	if (!is_filled(buffer->memory, buffer->bytes, comes_back ? 0x22 : 0x11))
		return wrong(dev, "an unmap copies back wrongly, or not at all");
	writes(dev, stale, buffer->bytes, 0x33);
	if (is_filled(buffer->memory, buffer->bytes, 0x33))
		return wrong(dev, "a stale write has reached the buffer");
	return 0;
}

/* An unmap with DMA_ATTR_SKIP_CPU_SYNC copies nothing back. */
static int check_skip(struct device *dev, struct buffer *buffer)
{
	int error;

	fill(buffer, 0x44);
	error = map(dev, buffer, true);
	if (error)
		return error;
	writes(dev, buffer->iova, buffer->bytes, 0x55);
	unmap(dev, buffer, DMA_ATTR_SKIP_CPU_SYNC);
	if (!is_filled(buffer->memory, buffer->bytes, 0x44))
		return wrong(dev, "an unmap with DMA_ATTR_SKIP_CPU_SYNC copies back");
	return 0;
}

/* A partial sync copies exactly its part, in its direction. */
static int check_sync(struct device *dev, struct buffer *buffer)
{
	size_t at = buffer->bytes / 3, part = buffer->bytes / 3;
	u8 *bytes = buffer->memory;
	bool reads = buffer->dir != DMA_FROM_DEVICE;
	bool wrote = buffer->dir != DMA_TO_DEVICE;
	int error;

	fill(buffer, 0x66);
	error = map(dev, buffer, true);
	if (error)
		return error;
	if (!dma_need_sync(dev, buffer->iova))
		return wrong(dev, "a copy seems to need no syncs");
	writes(dev, buffer->iova, buffer->bytes, 0x77);
	dma_sync_single_range_for_cpu(dev, buffer->iova, at, part, buffer->dir);
	if (!is_filled(bytes + at, part, wrote ? 0x77 : 0x66))
		return wrong(dev, "a sync for the CPU copies wrongly, or not at all");
	if (!is_filled(bytes, at, 0x66) ||
	    !is_filled(bytes + at + part, buffer->bytes - at - part, 0x66))
		return wrong(dev, "a sync of a part has copied more");
	fill(buffer, 0x88);
	dma_sync_single_range_for_device(dev, buffer->iova, at, part, buffer->dir);
	if (part && (*found(dev, buffer->iova + at) == 0x88) != reads)
		return wrong(dev, "a sync for the device copies wrongly, or not at all");
	if (at && *found(dev, buffer->iova) != 0x77)
		return wrong(dev, "a sync of a part for the device has copied more");
	unmap(dev, buffer, 0);
	return 0;
}

/* A map and an unmap leave the bytes beside the buffer alone. */
static int check_beside(struct device *dev, struct buffer *buffer, u8 *first, u8 *end)
{
	int error;

	memset(first, 0x99, end - first);
	error = map(dev, buffer, true);
	if (error)
		return error;
	if (found(dev, buffer->iova + buffer->bytes - 1) !=
	    found(dev, buffer->iova) + buffer->bytes - 1)
		return wrong(dev, "a copy is not contiguous");
	memset(first, 0xaa, end - first);
	unmap(dev, buffer, 0);
	if (!is_filled(first, buffer->memory - first, 0xaa) ||
	    !is_filled(buffer->memory + buffer->bytes, end - buffer->memory - buffer->bytes, 0xaa))
		return wrong(dev, "an unmap has changed bytes beside the buffer");
	return 0;
}

/* A buffer above the limit is mapped without a copy. */
static int check_large(struct device *dev, struct buffer *buffer)
{
	buffer->bytes = limit + 1;
	return map(dev, buffer, false);
}

static int check_buffer(struct device *dev, size_t offset, size_t bytes,
			enum dma_data_direction dir)
{
	struct buffer buffer = { .memory = memory + offset, .bytes = bytes, .dir = dir };
	int error = check_unmap(dev, &buffer) ?:
		    check_skip(dev, &buffer) ?:
		    check_sync(dev, &buffer) ?:
		    check_beside(dev, &buffer, memory, memory + BUFFER_BYTES) ?:
		    check_large(dev, &buffer);

	unmap(dev, &buffer, 0);
	return error;
}

/* A whole page may be shared between driver and device without any sync. */
static bool is_shared(size_t offset, size_t bytes)
{
	return !offset_in_page(offset | bytes);
}

static int check_buffers(struct device *dev)
{
	static const size_t sizes[] = { 1, 60, 255, 256, 257, 1514, 2048, 4095, 4096 };
	static const size_t offsets[] = { 0, 100, 2048, 4000 };
	int dir, error = 0;
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(sizes) && sizes[i] <= limit; i++)
		for (j = 0; j < ARRAY_SIZE(offsets); j++)
			for (dir = DMA_BIDIRECTIONAL; dir <= DMA_FROM_DEVICE && !error; dir++)
				if (!is_shared(offsets[j], sizes[i]))
					error = check_buffer(dev, offsets[j], sizes[i], dir);
	return error;
}

/* Buffers whose direction or attributes decide about the copy. */
static const struct {
	size_t offset, bytes;
	enum dma_data_direction dir;
	unsigned long attrs;
	bool copied;
	const char *wrong;
} singles[] = {
	/* Memory regions of RDMA and GPU buffers: CPU and device see each other's writes. */
	{ 0, PAGE_SIZE, DMA_BIDIRECTIONAL, 0, false, "a shared page is copied" },
	{ 0, PAGE_SIZE, DMA_TO_DEVICE, 0, false, "a page that the device reads is copied" },
	{ 0, PAGE_SIZE, DMA_FROM_DEVICE, 0, false, "a page that the device writes is copied" },
	{ 0, PAGE_SIZE, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC, false,
	  "a page whose user syncs by itself is copied" },
	{ 0, PAGE_SIZE, DMA_TO_DEVICE, DMA_ATTR_SKIP_CPU_SYNC, false,
	  "a page that the device reads, and whose user syncs by itself, is copied" },
	/*
	 * A receive page of a driver that syncs by itself is copied, so the device cannot reach the
	 * driver's data.
	 */
	{ 0, PAGE_SIZE, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC, true,
	  "a page of a receive ring is not copied" },
#ifdef DMA_ATTR_REQUIRE_COHERENT
	{ 100, 200, DMA_FROM_DEVICE, DMA_ATTR_REQUIRE_COHERENT, false,
	  "a buffer without syncs is copied" },
#endif
	/* Bounce buffers have no special access rights; a privileged buffer is mapped directly. */
	{ 100, 200, DMA_BIDIRECTIONAL, DMA_ATTR_PRIVILEGED, false,
	  "a privileged buffer is copied" },
};

/* The pool has memory by now, so that a single map shows whether the module copies. */
static int check_singles(struct device *dev)
{
	int error = 0;

	for (u32 i = 0; i < ARRAY_SIZE(singles) && !error; i++) {
		struct buffer buffer = { .memory = memory + singles[i].offset,
					 .bytes = singles[i].bytes, .dir = singles[i].dir };

		if (singles[i].copied && buffer.bytes > limit)
			continue;
		error = map_soon(dev, &buffer, singles[i].attrs, 1);
		if (error)
			break;
		if (is_copied(dev, &buffer) != singles[i].copied)
			error = wrong(dev, singles[i].wrong);
		unmap(dev, &buffer, singles[i].attrs);
	}
	return error;
}

/*
 * With a minimum alignment mask the offset in the page stays; a buffer across pages is then
 * mapped.
 */
static int check_offset(struct device *dev)
{
	struct buffer buffer = { .memory = memory + 1000, .bytes = 200 };
	int error;

	dma_set_min_align_mask(dev, PAGE_SIZE - 1);
	error = map(dev, &buffer, true);
	if (!error && offset_in_page(buffer.iova) != 1000)
		error = wrong(dev, "the offset in the page is lost");
	unmap(dev, &buffer, 0);
	buffer.memory = memory + 4000;
	error = error ?: map(dev, &buffer, false);
	unmap(dev, &buffer, 0);
	dma_set_min_align_mask(dev, 0);
	return error;
}

/* ---- lists ---- */

#define SEGMENTS	12

/* Segment i has @bytes[i % 3] bytes in pages of its own. */
static int make_list(struct sg_table *table, const size_t *bytes)
{
	struct scatterlist *sg;
	int i;

	if (sg_alloc_table(table, SEGMENTS, GFP_KERNEL))
		return -ENOMEM;
	for_each_sgtable_sg(table, sg, i) {
		struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP, 2);

		if (!page)
			return -ENOMEM;
		sg_set_page(sg, page, bytes[i % 3], i * 10);
		memset(page_address(page), i + 1, 4 * PAGE_SIZE);
	}
	return 0;
}

static void free_list(struct sg_table *table)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(table, sg, i)
		if (sg_page(sg))
			__free_pages(sg_page(sg), 2);
	sg_free_table(table);
}

/* Compares each byte of a mapped list with the device's view, then writes as the device. */
static int compare_list(struct device *dev, struct sg_table *table)
{
	struct scatterlist *sg, *out = table->sgl;
	size_t used = 0;
	int i;

	for_each_sgtable_sg(table, sg, i) {
		u8 *bytes = sg_virt(sg);
		size_t at, part;

		for (at = 0; at < sg->length; at += part) {
			dma_addr_t iova = sg_dma_address(out) + used;
			u8 *page = found(dev, iova);

			part = in_page(iova, min(sg->length - at, sg_dma_len(out) - used));
			if (!page || memcmp(page, bytes + at, part))
				return wrong(dev, "the device finds another list");
			memset(page, 0xbb, part);
			used += part;
			if (used < sg_dma_len(out))
				continue;
			out = sg_next(out);
			used = 0;
		}
	}
	return 0;
}

static bool is_list_filled(struct sg_table *table, u8 value)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(table, sg, i)
		if (!is_filled(sg_virt(sg), sg->length, value))
			return false;
	return true;
}

static void fill_list(struct sg_table *table, u8 value)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(table, sg, i)
		memset(sg_virt(sg), value, sg->length);
}

static bool is_list_copied(struct device *dev, struct sg_table *table)
{
	return found(dev, sg_dma_address(table->sgl)) != sg_virt(table->sgl);
}

/* Maps, syncs and unmaps a list; @copied says whether the module must copy the list. */
int check_list(struct device *dev, const size_t *bytes, bool copied)
{
	struct sg_table table;
	int error = make_list(&table, bytes);

	if (!error)
		error = dma_map_sgtable(dev, &table, DMA_BIDIRECTIONAL, 0);
	if (error)
		goto free;
	if (is_list_copied(dev, &table) != copied)
		error = wrong(dev, "the first of a list is not copied, or is");
	if (!error)
		error = compare_list(dev, &table);
	dma_sync_sgtable_for_cpu(dev, &table, DMA_BIDIRECTIONAL);
	if (!error && !is_list_filled(&table, 0xbb))
		error = wrong(dev, "a sync does not bring a list back");
	fill_list(&table, 0xcc);
	dma_sync_sgtable_for_device(dev, &table, DMA_BIDIRECTIONAL);
	if (!error)
		error = compare_list(dev, &table);
	writes(dev, sg_dma_address(table.sgl), table.sgl->length, 0xdd);
	dma_unmap_sgtable(dev, &table, DMA_BIDIRECTIONAL, 0);
	if (!error && *(u8 *)sg_virt(table.sgl) != 0xdd)
		error = wrong(dev, "an unmap does not bring a list back");
free:
	free_list(&table);
	return error;
}

/*
 * Some devices treat a list as contiguous pages: only page boundaries may separate segments, in
 * IOVA space too, also if the list was copied.
 */
static int check_row(struct device *dev)
{
	struct scatterlist list[2];
	int count, error = 0;

	sg_init_table(list, 2);
	sg_set_buf(&list[0], memory + PAGE_SIZE - 100, 100);
	sg_set_buf(&list[1], memory + 2 * PAGE_SIZE, 50);
	count = map_list_soon(dev, list, 2, DMA_TO_DEVICE, 0, TRIES);
	if (count < 0)
		return count;
	if (found(dev, sg_dma_address(list)) == sg_virt(list))
		error = wrong(dev, "a small row is not copied");
	else if (offset_in_page(sg_dma_address(&list[0]) + 100) ||
		 offset_in_page(sg_dma_address(&list[1])))
		error = wrong(dev, "a row of pages is broken within a page");
	dma_unmap_sg(dev, list, 2, DMA_TO_DEVICE);
	return error;
}

/* Lists of small segments, of some small segments, and of segments that are too large together. */
static int check_lists(struct device *dev)
{
	const struct {
		size_t bytes[3];
		bool copied;
	} lists[] = {
		{ { 1, limit / 16, limit / 8 }, true },
		/* Exactly the limit, if the limit is a multiple of 4. */
		{ { 1, limit / 8, limit / 4 - limit / 8 - 1 }, true },
		{ { 9, 3 * PAGE_SIZE - 5, 7 }, false },
		{ { limit / 12 + 2, limit / 12, limit / 12 + 2 }, false },
		{ { limit + 1, 2 * PAGE_SIZE, 3 * PAGE_SIZE }, false },
	};
	int error = 0;

	for (u32 i = 0; i < ARRAY_SIZE(lists) && !error; i++)
		error = check_list(dev, lists[i].bytes, lists[i].copied);
	return error ?: check_row(dev);
}

/* The pool's addresses are above the mask of such a device or of its bus. */
static int check_narrow(struct device *dev, u64 last)
{
	struct buffer buffer = { .memory = memory + 100, .bytes = 60 };
	int error = map(dev, &buffer, false);

	if (error)
		return error;
	if (buffer.iova + buffer.bytes - 1 > last)
		error = wrong(dev, "an address is above the device's mask");
	unmap(dev, &buffer, 0);
	return error;
}

static int check_narrow_bus(struct device *dev)
{
	int error;

	dev->bus_dma_limit = DMA_BIT_MASK(24);
	error = check_narrow(dev, DMA_BIT_MASK(24));
	dev->bus_dma_limit = 0;
	return error;
}

int probe_plain(struct device *dev, u32 unused)
{
	return check_buffers(dev);
}

int probe_checks(struct device *dev, u32 unused)
{
	int error;

	/* The module copies each segment separately, so segments are not merged. */
	if (dma_get_merge_boundary(dev))
		return wrong(dev, "there is a merge boundary");
	error = check_buffers(dev) ?: check_singles(dev) ?: check_offset(dev) ?: check_lists(dev);
	if (!error && !dma_set_mask(dev, DMA_BIT_MASK(32)))
		error = check_buffers(dev);
	if (!error)
		error = check_narrow_bus(dev);
	if (!error && !dma_set_mask(dev, DMA_BIT_MASK(24)))
		error = check_narrow(dev, DMA_BIT_MASK(24));
	return error;
}

/* A sync longer than any copy is ignored. */
int probe_size(struct device *dev, u32 unused)
{
	struct buffer buffer = { .memory = memory + 100, .bytes = 100, .dir = DMA_FROM_DEVICE };
	int error;

	memset(memory, 0x11, PAGE_SIZE);
	error = map(dev, &buffer, true);
	if (error)
		return error;
	writes(dev, buffer.iova, buffer.bytes, 0x22);
	dma_sync_single_for_cpu(dev, buffer.iova, PAGE_SIZE + 1, buffer.dir);
	if (!is_filled(memory, PAGE_SIZE, 0x11))
		error = wrong(dev, "a sync of too much copies");
	unmap(dev, &buffer, DMA_ATTR_SKIP_CPU_SYNC);
	return error;
}
