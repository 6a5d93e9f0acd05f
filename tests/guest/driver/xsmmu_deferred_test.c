// SPDX-License-Identifier: GPL-2.0-only
/*
 * A batch-aware driver for QEMU's iommu-testdev, with the mistakes that such a
 * driver may make. The driver starts no device DMA. A failed probe logs the reason.
 */
#include <linux/delay.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>

#include <xsmmu/dma.h>

#include "test_driver.h"

static bool waits = true;
module_param(waits, bool, 0644);
MODULE_PARM_DESC(waits, "after a flush nothing is translated; false for a lazy policy");

#define PAGES	100

static struct page *pages[PAGES];
static dma_addr_t addrs[PAGES];

/* False on the kernel's own path. */
static bool is_attached;

static int wrong(struct device *dev, const char *what)
{
	dev_err(dev, "aware: wrong: %s\n", what);
	return -EIO;
}

static bool is_translated(struct device *dev, dma_addr_t addr)
{
	return iommu_iova_to_phys(iommu_get_domain_for_dev(dev), addr);
}

/* Called after the driver's flush, or after an unmap with a flush. */
static int check_gone(struct device *dev, dma_addr_t addr, const char *what)
{
	if (is_attached && waits && is_translated(dev, addr))
		return wrong(dev, what);
	return 0;
}

static int check_all_gone(struct device *dev, const dma_addr_t *at, u32 count, const char *what)
{
	int error = 0;

	for (u32 i = 0; i < count && !error; i++)
		error = check_gone(dev, at[i], what);
	return error;
}

static void unmap_pages_deferred(struct device *dev, const dma_addr_t *at, u32 count)
{
	for (u32 i = 0; i < count; i++)
		xsmmu_unmap_page_deferred(dev, at[i], PAGE_SIZE, DMA_FROM_DEVICE);
}

/* A map has failed after @count of @pages were mapped: unmaps them. */
static int map_failed(struct device *dev, u32 count)
{
	unmap_pages_deferred(dev, addrs, count);
	xsmmu_flush(dev);
	return wrong(dev, "a map of a page failed");
}

static int map_all(struct device *dev)
{
	u32 i;

	for (i = 0; i < PAGES; i++) {
		addrs[i] = dma_map_page(dev, pages[i], 0, PAGE_SIZE, DMA_FROM_DEVICE);
		if (dma_mapping_error(dev, addrs[i]))
			return map_failed(dev, i);
	}
	return 0;
}

/* @atomic: run as a poll, on a fixed CPU. */
static int check_pages(struct device *dev, bool atomic)
{
	int error = map_all(dev);

	if (error)
		return error;
	if (atomic)
		local_bh_disable();
	unmap_pages_deferred(dev, addrs, PAGES);
	xsmmu_flush(dev);
	if (atomic)
		local_bh_enable();
	return check_all_gone(dev, addrs, PAGES, "a page after the flush");
}

/* Slab memory (cannot be held), more than a page, more than a block. */
static int check_singles(struct device *dev)
{
	static const size_t sizes[] = { 64, 3000, 9000, 300000 };
	int error = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes) && !error; i++) {
		void *buffer;
		dma_addr_t addr;

		if (sizes[i] > dma_max_mapping_size(dev))
			break;
		buffer = kmalloc(sizes[i], GFP_KERNEL);
		if (!buffer)
			return -ENOMEM;
		addr = dma_map_single(dev, buffer, sizes[i], DMA_TO_DEVICE);
		if (dma_mapping_error(dev, addr)) {
			error = wrong(dev, "dma_map_single() failed");
		} else {
			xsmmu_unmap_single_deferred(dev, addr, sizes[i], DMA_TO_DEVICE);
			xsmmu_flush(dev);
			error = check_gone(dev, addr, "a buffer after the flush");
		}
		kfree(buffer);
	}
	return error;
}

static int check_list(struct device *dev)
{
	struct sg_table table;
	dma_addr_t first;
	struct scatterlist *sg;
	int i;

	if (sg_alloc_table(&table, 40, GFP_KERNEL))
		return -ENOMEM;
	for_each_sgtable_sg(&table, sg, i)
		sg_set_page(sg, pages[i], 4096, 0);
	if (dma_map_sgtable(dev, &table, DMA_TO_DEVICE, 0)) {
		sg_free_table(&table);
		return wrong(dev, "dma_map_sgtable() failed");
	}
	first = sg_dma_address(table.sgl);
	xsmmu_unmap_sgtable_deferred(dev, &table, DMA_TO_DEVICE, 0);
	xsmmu_flush(dev);
	sg_free_table(&table);
	return check_gone(dev, first, "a list after the flush");
}

/* An ordinary unmap of a batch-aware driver flushes. */
static int check_ordinary(struct device *dev)
{
	dma_addr_t addr = dma_map_page(dev, pages[0], 0, PAGE_SIZE, DMA_TO_DEVICE);

	if (dma_mapping_error(dev, addr))
		return wrong(dev, "dma_map_page() failed");
	dma_unmap_page(dev, addr, PAGE_SIZE, DMA_TO_DEVICE);
	return check_gone(dev, addr, "a page after an ordinary unmap");
}

/* Checks the IOVA of page @index of a block. */
static bool is_at(struct xsmmu_block *block, u32 index)
{
	return !is_attached ||
	       (block->base && block->handles[index] == block->base + index * PAGE_SIZE &&
		iommu_iova_to_phys(iommu_get_domain_for_dev(block->dev), block->handles[index]) ==
		page_to_phys(pages[index]));
}

/* Maps all pages at once, or the first @taken pages singly. */
static int map_whole_block(struct xsmmu_block *block, u32 taken)
{
	u32 i;

	for (i = 0; i < taken; i++)
		if (xsmmu_block_map_page(block, i, pages[i], DMA_FROM_DEVICE, 0) ==
		    DMA_MAPPING_ERROR)
			return wrong(block->dev, "xsmmu_block_map_page() failed");
	if (!taken && xsmmu_block_map_pages(block, pages, DMA_FROM_DEVICE, 0))
		return wrong(block->dev, "a whole block does not map");
	for (i = 0; i < (taken ? taken : block->pages); i++)
		if (!is_at(block, i))
			return wrong(block->dev, "a page of a whole block");
	return 0;
}

/* Maps as map_whole_block() and unmaps all at once; leaves nothing mapped on failure either. */
static int check_whole_block(struct device *dev, u32 count, u32 taken)
{
	struct xsmmu_block *block = xsmmu_block_alloc(dev, count, GFP_KERNEL);
	int error;

	if (!block)
		return wrong(dev, "xsmmu_block_alloc() failed");
	error = map_whole_block(block, taken);
	if (block->mapped)
		xsmmu_block_unmap_pages_deferred(block, DMA_FROM_DEVICE, 0);
	xsmmu_flush(dev);
	error = error ?: check_all_gone(dev, block->handles, taken ?: count,
					"a whole block after the flush");
	xsmmu_block_free(block);
	return error;
}

/* The last pages of a block, from @half on, outlive the block's struct. */
static int check_block(struct device *dev, u32 count, u32 used)
{
	struct xsmmu_block *block = xsmmu_block_alloc(dev, count, GFP_KERNEL);
	u32 half = used / 2;
	int error = 0;

	if (!block)
		return wrong(dev, "xsmmu_block_alloc() failed");
	if (used)
		error = map_whole_block(block, used);
	for (u32 i = 0; i < (error ? count : half); i++)
		if (block->mapped & BIT_ULL(i))
			xsmmu_block_unmap_page_deferred(block, i, DMA_FROM_DEVICE, 0);
	xsmmu_flush(dev);
	memcpy(addrs, block->handles, used * sizeof(*addrs));
	xsmmu_block_free(block);
	if (error)
		return error;
	error = check_all_gone(dev, addrs, half, "a block's page after the flush");
	if (is_attached && used && !is_translated(dev, addrs[used - 1]))
		error = wrong(dev, "a page went with its block's struct");
	unmap_pages_deferred(dev, addrs + half, used - half);
	xsmmu_flush(dev);
	return error;
}

static int map_block(struct device *dev, u32 unused)
{
	return check_whole_block(dev, XSMMU_BLOCK_PAGES, 0);
}

#define NEIGHBOURS	8

/* Each page is unmapped singly, also if pages are neighbours in memory. */
static int check_neighbours(struct device *dev, struct page **row)
{
	struct xsmmu_block *block = xsmmu_block_alloc(dev, NEIGHBOURS, GFP_KERNEL);
	int error = 0;
	u32 i;

	if (!block)
		return wrong(dev, "xsmmu_block_alloc() failed");
	if (xsmmu_block_map_pages(block, row, DMA_TO_DEVICE, 0)) {
		error = wrong(dev, "a block of neighbours does not map");
		xsmmu_block_unmap_pages_deferred(block, DMA_TO_DEVICE, 0);
		xsmmu_flush(dev);
		goto free;
	}
	for (i = 1; i < NEIGHBOURS; i += 2)
		xsmmu_block_unmap_page_deferred(block, i, DMA_TO_DEVICE, 0);
	xsmmu_flush(dev);
	for (i = 0; i < NEIGHBOURS && !error; i++) {
		if (i % 2)
			error = check_gone(dev, block->handles[i], "every second page of a block");
		else if (is_attached && !is_translated(dev, block->handles[i]))
			error = wrong(dev, "a page went with its neighbour");
	}
	for (i = 0; i < NEIGHBOURS; i += 2)
		xsmmu_block_unmap_page_deferred(block, i, DMA_TO_DEVICE, 0);
	xsmmu_flush(dev);
free:
	xsmmu_block_free(block);
	return error;
}

static int check_row(struct device *dev)
{
	struct page *first = alloc_pages(GFP_KERNEL, ilog2(NEIGHBOURS)), *row[NEIGHBOURS];
	int error;
	u32 i;

	if (!first)
		return -ENOMEM;
	split_page(first, ilog2(NEIGHBOURS));
	for (i = 0; i < NEIGHBOURS; i++)
		row[i] = first + i;
	error = check_neighbours(dev, row);
	for (i = 0; i < NEIGHBOURS; i++)
		__free_page(row[i]);
	return error;
}

static int check_blocks(struct device *dev)
{
	static const u32 counts[][2] = { { 1, 1 }, { 64, 64 }, { 64, 10 },
					 { 7, 7 }, { 33, 0 } };
	static const u32 wholes[][2] = { { 64, 0 }, { 1, 0 }, { 37, 0 },
					 { 64, 5 } };
	int error = 0;
	size_t i;

	if (xsmmu_block_alloc(dev, 0, GFP_KERNEL) ||
	    xsmmu_block_alloc(dev, XSMMU_BLOCK_PAGES + 1, GFP_KERNEL))
		return wrong(dev, "an impossible block");
	for (i = 0; i < ARRAY_SIZE(wholes) && !error; i++)
		error = check_whole_block(dev, wholes[i][0], wholes[i][1]);
	for (i = 0; i < ARRAY_SIZE(counts) && !error; i++)
		error = check_block(dev, counts[i][0], counts[i][1]);
	return error ? error : check_row(dev);
}

/* ---- unflushed maps ---- */

static int map_all_unflushed(struct device *dev)
{
	u32 i;

	for (i = 0; i < PAGES; i++) {
		addrs[i] = i % 2 ? xsmmu_map_page_unflushed(dev, pages[i], 0, PAGE_SIZE,
							    DMA_FROM_DEVICE) :
				   xsmmu_map_single_unflushed(dev, page_address(pages[i]),
							      PAGE_SIZE, DMA_FROM_DEVICE);
		if (dma_mapping_error(dev, addrs[i])) {
			xsmmu_flush_maps(dev);
			return map_failed(dev, i);
		}
	}
	return 0;
}

#define LARGE_BYTES	300000

/* Maps a block, and a buffer larger than a block, with a single flush. */
static int map_more_unflushed(struct device *dev, struct xsmmu_block *block, void *large,
			      size_t bytes, dma_addr_t *at)
{
	if (xsmmu_block_map_pages_unflushed(block, pages, DMA_TO_DEVICE, 0))
		return wrong(dev, "a block does not map without a flush");
	*at = xsmmu_map_single_unflushed(dev, large, bytes, DMA_TO_DEVICE);
	return dma_mapping_error(dev, *at) ? wrong(dev, "a large map without a flush") : 0;
}

static int check_large_maps(struct device *dev)
{
	struct xsmmu_block *block = xsmmu_block_alloc(dev, XSMMU_BLOCK_PAGES, GFP_KERNEL);
	size_t bytes = min_t(size_t, LARGE_BYTES, dma_max_mapping_size(dev));
	void *large = kmalloc(LARGE_BYTES, GFP_KERNEL);
	dma_addr_t at = DMA_MAPPING_ERROR;
	int error = -ENOMEM;

	if (block && large)
		error = map_more_unflushed(dev, block, large, bytes, &at);
	xsmmu_flush_maps(dev);
	if (!error && (!is_at(block, 0) || !is_at(block, XSMMU_BLOCK_PAGES - 1)))
		error = wrong(dev, "a page of a block without a flush");
	if (at != DMA_MAPPING_ERROR)
		dma_unmap_single(dev, at, bytes, DMA_TO_DEVICE);
	if (block && block->mapped)
		xsmmu_block_unmap_pages_deferred(block, DMA_TO_DEVICE, 0);
	xsmmu_flush(dev);
	if (block)
		xsmmu_block_free(block);
	kfree(large);
	return error;
}

/*
 * Maps as in a poll (@atomic), or in a task that may migrate. Half of the maps are unmapped
 * before the flush, by ordinary unmaps, as in an error path.
 */
static int check_maps(struct device *dev, bool atomic)
{
	int error;
	u32 i;

	if (atomic)
		local_bh_disable();
	error = map_all_unflushed(dev);
	for (i = 0; i < PAGES / 2 && !error; i++)
		dma_unmap_page(dev, addrs[i], PAGE_SIZE, DMA_FROM_DEVICE);
	xsmmu_flush_maps(dev);
	for (i = PAGES / 2; i < PAGES && !error; i++)
		if (is_attached && !is_translated(dev, addrs[i]))
			error = wrong(dev, "a page after the flush of its map");
	if (!error)
		unmap_pages_deferred(dev, addrs + PAGES / 2, PAGES - PAGES / 2);
	xsmmu_flush(dev);
	if (atomic)
		local_bh_enable();
	return error ?: check_all_gone(dev, addrs, PAGES, "a page after all flushes");
}

/* The guest script counts the flushes. */
static int maps_once(struct device *dev, u32 unused)
{
	int error = xsmmu_set_batch_aware(dev);

	local_bh_disable();
	error = error ?: map_all_unflushed(dev);
	xsmmu_flush_maps(dev);
	xsmmu_flush_maps(dev);
	if (!error)
		unmap_pages_deferred(dev, addrs, PAGES);
	xsmmu_flush(dev);
	local_bh_enable();
	return error;
}

static int check_api(struct device *dev, u32 attached)
{
	int error = xsmmu_set_batch_aware(dev);

	is_attached = attached;
	if (error != (is_attached ? 0 : -ENODEV))
		return wrong(dev, "xsmmu_set_batch_aware()");
	return check_pages(dev, false) ?:
	       check_pages(dev, true) ?:
	       check_singles(dev) ?:
	       check_list(dev) ?:
	       check_ordinary(dev) ?:
	       check_blocks(dev) ?:
	       check_maps(dev, false) ?:
	       check_maps(dev, true) ?:
	       check_large_maps(dev);
}

/* ---- copies ---- */

static void device_writes(struct device *dev, dma_addr_t addr, size_t bytes)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	for (; bytes--; addr++)
		*(u8 *)phys_to_virt(iommu_iova_to_phys(domain, addr)) = 0x22;
}

#define COPY_BYTES	200

/* Maps two buffers, as a list or singly. */
static int map_two(struct device *dev, struct scatterlist *sgl, bool list)
{
	u32 i;

	sg_init_table(sgl, 2);
	sg_set_page(&sgl[0], pages[0], COPY_BYTES, 100);
	sg_set_page(&sgl[1], pages[1], COPY_BYTES, 300);
	if (list)
		return dma_map_sg(dev, sgl, 2, DMA_FROM_DEVICE) == 2 ? 0 :
			wrong(dev, "dma_map_sg() failed");
	for (i = 0; i < 2; i++) {
		sg_dma_address(&sgl[i]) = dma_map_page(dev, pages[i], sgl[i].offset,
						       COPY_BYTES, DMA_FROM_DEVICE);
		if (dma_mapping_error(dev, sg_dma_address(&sgl[i]))) {
			if (i)
				dma_unmap_page(dev, sg_dma_address(&sgl[0]), COPY_BYTES,
					       DMA_FROM_DEVICE);
			return wrong(dev, "dma_map_page() failed");
		}
	}
	return 0;
}

static void unmap_two(struct device *dev, struct scatterlist *sgl, bool list, unsigned long attrs)
{
	u32 i;

	if (list)
		xsmmu_unmap_sg_attrs_deferred(dev, sgl, 2, DMA_FROM_DEVICE, attrs);
	for (i = 0; i < 2 && !list; i++)
		xsmmu_unmap_page_attrs_deferred(dev, sg_dma_address(&sgl[i]), COPY_BYTES,
						DMA_FROM_DEVICE, attrs);
	xsmmu_flush(dev);
}

/* Maps buffers until they are bounced: the pool may have no memory at first. */
static int map_copies(struct device *dev, struct scatterlist *sgl, bool list)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	u32 i;

	for (i = 0; i < 100; i++) {
		int error = map_two(dev, sgl, list);

		if (error || iommu_iova_to_phys(domain, sg_dma_address(sgl)) !=
				     sg_phys(sgl))
			return error;
		unmap_two(dev, sgl, list, 0);
		msleep(20);
	}
	return wrong(dev, "a small buffer is not copied");
}

/* Device writes to two copies reach the buffers, unless @attrs skips the CPU sync. */
static int check_copies_of(struct device *dev, bool list, unsigned long attrs)
{
	struct scatterlist sgl[2];
	u8 wanted = attrs ? 0x11 : 0x22;
	int error;
	u32 i;

	for (i = 0; i < 2; i++)
		memset(page_address(pages[i]), 0x11, PAGE_SIZE);
	error = map_copies(dev, sgl, list);
	if (error)
		return error;
	for (i = 0; i < 2; i++)
		device_writes(dev, sg_dma_address(&sgl[i]), COPY_BYTES);
	unmap_two(dev, sgl, list, attrs);
	for (i = 0; i < 2; i++)
		if (memchr_inv(sg_virt(&sgl[i]), wanted, COPY_BYTES))
			return wrong(dev, "an unmap copies back wrongly, or not at all");
	return 0;
}

static int check_copies(struct device *dev, u32 unused)
{
	int error = xsmmu_set_batch_aware(dev);
	int kind;

	for (kind = 0; kind < 4 && !error; kind++)
		error = check_copies_of(dev, kind & 1, kind & 2 ? DMA_ATTR_SKIP_CPU_SYNC : 0);
	return error;
}

/* ---- calls that may fail, and leave nothing behind ---- */

#define SOME_PAGES	8

static void try_pages(struct device *dev)
{
	u32 count = 0;
	u32 i;

	for (i = 0; i < SOME_PAGES; i++) {
		addrs[count] = dma_map_page(dev, pages[i], 0, PAGE_SIZE, DMA_FROM_DEVICE);
		count += !dma_mapping_error(dev, addrs[count]);
	}
	for (i = 0; i < count; i++) {
		if (i % 3)
			xsmmu_unmap_page_deferred(dev, addrs[i], PAGE_SIZE, DMA_FROM_DEVICE);
		else
			dma_unmap_page(dev, addrs[i], PAGE_SIZE, DMA_FROM_DEVICE);
	}
	xsmmu_flush(dev);
}

static void try_list(struct device *dev)
{
	struct sg_table table;
	struct scatterlist *sg;
	int i;

	if (sg_alloc_table(&table, SOME_PAGES, GFP_KERNEL))
		return;
	for_each_sgtable_sg(&table, sg, i)
		sg_set_page(sg, pages[i], 4096, 0);
	if (!dma_map_sgtable(dev, &table, DMA_TO_DEVICE, 0)) {
		xsmmu_unmap_sgtable_deferred(dev, &table, DMA_TO_DEVICE, 0);
		xsmmu_flush(dev);
	}
	sg_free_table(&table);
}

static void try_coherent(struct device *dev, size_t bytes)
{
	dma_addr_t addr;
	void *memory = dma_alloc_coherent(dev, bytes, &addr, GFP_KERNEL);

	if (memory)
		dma_free_coherent(dev, bytes, memory, addr);
}

static void try_large(struct device *dev)
{
	void *buffer = kmalloc(300000, GFP_KERNEL);
	dma_addr_t addr;

	if (!buffer)
		return;
	addr = dma_map_single(dev, buffer, 300000, DMA_TO_DEVICE);
	if (!dma_mapping_error(dev, addr)) {
		xsmmu_unmap_single_deferred(dev, addr, 300000, DMA_TO_DEVICE);
		xsmmu_flush(dev);
	}
	kfree(buffer);
}

static void try_block(struct device *dev)
{
	struct xsmmu_block *block = xsmmu_block_alloc(dev, SOME_PAGES, GFP_KERNEL);

	if (!block)
		return;
	xsmmu_block_map_pages(block, pages, DMA_FROM_DEVICE, 0);
	xsmmu_block_unmap_pages_deferred(block, DMA_FROM_DEVICE, 0);
	xsmmu_flush(dev);
	xsmmu_block_free(block);
}

static void try_registers(struct device *dev)
{
	phys_addr_t registers = pci_resource_start(to_pci_dev(dev), 0);
	dma_addr_t addr = dma_map_resource(dev, registers, PAGE_SIZE, DMA_BIDIRECTIONAL, 0);

	if (!dma_mapping_error(dev, addr))
		dma_unmap_resource(dev, addr, PAGE_SIZE, DMA_BIDIRECTIONAL, 0);
}

static void try_pages_of_api(struct device *dev)
{
	dma_addr_t addr;
	struct page *page = dma_alloc_pages(dev, 3 * PAGE_SIZE, &addr,
					    DMA_BIDIRECTIONAL, GFP_KERNEL);

	if (page)
		dma_free_pages(dev, 3 * PAGE_SIZE, page, addr, DMA_BIDIRECTIONAL);
}

/*
 * Pages that are no aligned power of two, unmapped before all others: without memory for the
 * records, the pages are flushed as a range.
 */
static void try_block_with_holes(struct device *dev)
{
	struct xsmmu_block *block = xsmmu_block_alloc(dev, SOME_PAGES, GFP_KERNEL);
	u32 i;

	if (!block)
		return;
	for (i = 1; i <= 2; i++)
		xsmmu_block_map_page(block, i, pages[i], DMA_FROM_DEVICE, 0);
	xsmmu_block_unmap_pages_deferred(block, DMA_FROM_DEVICE, 0);
	xsmmu_flush(dev);
	xsmmu_block_free(block);
}

static int sweep(struct device *dev, u32 unused)
{
	xsmmu_set_batch_aware(dev);
	try_block_with_holes(dev);
	try_pages(dev);
	try_list(dev);
	try_block(dev);
	try_large(dev);
	try_coherent(dev, PAGE_SIZE);
	try_coherent(dev, 9 * PAGE_SIZE);
	try_pages_of_api(dev);
	try_registers(dev);
	return 0;
}

/* Device writes to a copy reach the buffer at a deferred unmap. */
static int check_bounce(struct device *dev, u32 unused)
{
	dma_addr_t addr = dma_map_page(dev, pages[0], 0, PAGE_SIZE, DMA_FROM_DEVICE);
	u8 *byte = page_address(pages[0]);
	int error = 0;

	if (dma_mapping_error(dev, addr))
		return wrong(dev, "dma_map_page() failed");
	if (addr == page_to_phys(pages[0]))
		error = wrong(dev, "the buffer is not copied");
	*byte = 1;
	*(u8 *)phys_to_virt(addr) = 2;
	xsmmu_unmap_page_deferred(dev, addr, PAGE_SIZE, DMA_FROM_DEVICE);
	if (*byte != 2)
		error = wrong(dev, "the copy was given back without its content");
	xsmmu_flush(dev);
	return error;
}

/* Unmaps a page without a flush, and frees or forgets the page. */
static int misuse(struct device *dev, u32 early)
{
	struct page *page = alloc_page(GFP_KERNEL);
	dma_addr_t addr;

	if (!page)
		return -ENOMEM;
	addr = dma_map_page(dev, page, 0, PAGE_SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr)) {
		__free_page(page);
		return wrong(dev, "dma_map_page() failed");
	}
	xsmmu_unmap_page_deferred(dev, addr, PAGE_SIZE, DMA_FROM_DEVICE);
	if (early) {
		__free_page(page);
		xsmmu_flush(dev);
		return 0;
	}
	msleep(1100);
	xsmmu_flush(dev);
	__free_page(page);
	return 0;
}

/* A map without a flush stays mapped, or is unmapped as if flushed. */
static int misuse_map(struct device *dev, u32 stays)
{
	dma_addr_t other, addr = xsmmu_map_page_unflushed(dev, pages[0], 0, PAGE_SIZE,
							  DMA_FROM_DEVICE);
	int error = 0;

	if (dma_mapping_error(dev, addr))
		return wrong(dev, "xsmmu_map_page_unflushed() failed");
	if (stays) {
		msleep(1100);
		other = xsmmu_map_page_unflushed(dev, pages[1], 0, PAGE_SIZE, DMA_FROM_DEVICE);
		xsmmu_flush_maps(dev);
		if (dma_mapping_error(dev, other))
			error = wrong(dev, "xsmmu_map_page_unflushed() failed");
		else
			dma_unmap_page(dev, other, PAGE_SIZE, DMA_FROM_DEVICE);
		dma_unmap_page(dev, addr, PAGE_SIZE, DMA_FROM_DEVICE);
	} else {
		xsmmu_unmap_page_deferred(dev, addr, PAGE_SIZE, DMA_FROM_DEVICE);
	}
	xsmmu_flush(dev);
	return error;
}

static const struct test_mode modes[] = {
	{ "api", "all of include/xsmmu/dma.h on an attached device: nothing is translated after a flush",
	  check_api, true },
	{ "kernel", "the same on the kernel's own path", check_api, false },
	{ "bounce", "on an untranslated device with bounce buffers", check_bounce },
	{ "copies", "bounced buffers", check_copies },
	{ "sweep", "all calls again; any call may fail for lack of memory", sweep },
	{ "early", "memory is freed before its flush", misuse, true },
	{ "forget", "an unmap is never flushed", misuse, false },
	{ "maps", "unflushed maps, then a single flush", maps_once },
	{ "block", "a block mapped by a single call", map_block },
	{ "unrung", "a map is never flushed, and stays mapped", misuse_map, true },
	{ "unflushed", "a map is never flushed, and is unmapped as if flushed", misuse_map, false },
};
TEST_MODES(modes);

static int aware_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int error = pcim_enable_device(pdev);
	u32 i;

	if (!error)
		error = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (error)
		return error;
	is_attached = true;
	for (i = 0; i < PAGES && !error; i++) {
		pages[i] = alloc_page(GFP_KERNEL);
		error = pages[i] ? 0 : -ENOMEM;
	}
	if (!error)
		error = test_run_mode(pdev);
	for (i = 0; i < PAGES; i++) {
		if (pages[i])
			__free_page(pages[i]);
		pages[i] = NULL;
	}
	return error;
}

TEST_DRIVER(aware_probe);
module_pci_driver(test_driver);

MODULE_DESCRIPTION("A batch-aware driver, and its faults");
MODULE_LICENSE("GPL");
