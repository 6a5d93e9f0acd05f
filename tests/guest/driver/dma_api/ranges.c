// SPDX-License-Identifier: GPL-2.0-only
/*
 * mode=ranges: on a write to the parameter ranges, a list of 1 GiB and some pages that maps the
 * same memory repeatedly; to the parameter large, maps that an IOMMU could map with large entries;
 * to the parameter chunk, a copy. mode=unrecorded, mode=unrecorded_chunk: the virtio-iommu driver
 * loses its records of a mapping, or of a pool's chunk.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "dma_api.h"

#define HUGE_ORDER	10	/* more pages than a last-level page table maps */
#define HUGE_PARTS	((1u << 30 >> PAGE_SHIFT) >> HUGE_ORDER)
#define HUGE_REST	23	/* neither a power of two nor a sum of few powers */

/* More than the largest VT-d second-stage command covers, with an odd number of pages. */
static int huge(struct device *dev)
{
	struct page *memory = alloc_pages(GFP_KERNEL, HUGE_ORDER);
	struct scatterlist *sg;
	struct sg_table table;
	bool mapped;
	int error, i;

	if (!memory)
		return -ENOMEM;
	error = sg_alloc_table(&table, HUGE_PARTS + 1, GFP_KERNEL);
	if (error)
		goto out;
	for_each_sgtable_sg(&table, sg, i)
		sg_set_page(sg, memory, i < HUGE_PARTS ? PAGE_SIZE << HUGE_ORDER :
							 HUGE_REST * PAGE_SIZE, 0);
	error = dma_map_sgtable(dev, &table, DMA_TO_DEVICE, 0);
	if (error)
		wrong(dev, "a list of 1 GiB does not map");
	mapped = !error;
	for (i = 0; !error && i < HUGE_PARTS; i++) {
		u64 last = (u64)(i + 1) * (PAGE_SIZE << HUGE_ORDER) - PAGE_SIZE;

		if (iommu_iova_to_phys(iommu_get_domain_for_dev(dev),
				       sg_dma_address(table.sgl) + last) !=
		    page_to_phys(memory) + (PAGE_SIZE << HUGE_ORDER) - PAGE_SIZE)
			error = wrong(dev, "the last page of a part is elsewhere");
	}
	if (mapped)
		dma_unmap_sgtable(dev, &table, DMA_TO_DEVICE, 0);
	sg_free_table(&table);
out:
	__free_pages(memory, HUGE_ORDER);
	return error;
}

static struct device *of_ranges;

static int set_ranges(const char *text, const struct kernel_param *param)
{
	return of_ranges ? huge(of_ranges) : -ENODEV;
}
TEST_PARAM(ranges, 0200, "write: mode=ranges maps and unmaps", .set = set_ranges);

/* Bytes of IOVA that a last-level page table covers. */
#define TABLE_BYTES	(PAGE_SIZE * PAGE_SIZE / sizeof(u64))
#define LARGE_STEP	(64 * PAGE_SIZE)

/*
 * Maps more than a last-level page table covers, from successive offsets at the same IOVA: for
 * some offset, memory and IOVA are aligned alike and a large entry is possible.
 */
static int large(struct device *dev)
{
	struct page *memory = alloc_pages(GFP_KERNEL, HUGE_ORDER);
	size_t size = PAGE_SIZE << HUGE_ORDER;
	bool could = false;
	size_t offset = 0;
	int error = 0;

	if (!memory)
		return -ENOMEM;
	for (; offset < TABLE_BYTES && !error; offset += LARGE_STEP) {
		dma_addr_t iova = dma_map_page(dev, memory, offset, size - offset, DMA_TO_DEVICE);
		u64 phys = page_to_phys(memory) + offset;

		if (dma_mapping_error(dev, iova)) {
			error = wrong(dev, "a large map failed");
			break;
		}
		could |= !((iova ^ phys) & (TABLE_BYTES - 1));
		for (size_t at = 0; at < size - offset; at += PAGE_SIZE)
			if (translated(dev, iova + at) != phys + at)
				error = wrong(dev, "a page of a large map is elsewhere");
		dma_unmap_page(dev, iova, size - offset, DMA_TO_DEVICE);
		if (translated(dev, iova + size - offset - PAGE_SIZE))
			error = wrong(dev, "a large map is still there");
	}
	if (!error && !could)
		error = wrong(dev, "no map was where a large entry can be");
	__free_pages(memory, HUGE_ORDER);
	return error;
}

static int set_large(const char *text, const struct kernel_param *param)
{
	return of_ranges ? large(of_ranges) : -ENODEV;
}
TEST_PARAM(large, 0200,
	   "write: mode=ranges maps and unmaps where large entries can be",
	   .set = set_large);

static void range_no_more(void *unused)
{
	of_ranges = NULL;
}

/* The test counts later commands; the commands of the attach are done by then. */
int probe_ranges(struct device *dev, u32 unused)
{
	of_ranges = dev;
	return devm_add_action(dev, range_no_more, NULL);
}

/*
 * The virtio-iommu driver drops its records of a mapping when asked to unmap more than the
 * mapping, or when the driver has no memory for the request. In both cases the driver sends no
 * request.
 */
static void drop_records(struct device *dev, dma_addr_t iova, u32 pages)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	struct iommu_iotlb_gather gather;

	iommu_iotlb_gather_init(&gather);
	domain->ops->unmap_pages(domain, iova, PAGE_SIZE, pages + 1, &gather);
}

int probe_unrecorded(struct device *dev, u32 unused)
{
	struct page *page = alloc_pages(GFP_KERNEL, 2);
	int error = 0;
	dma_addr_t iova;

	if (!page)
		return -ENOMEM;
	for (u32 pages = 1; pages <= 4 && !error; pages++) {
		iova = dma_map_page(dev, page, 0, pages * PAGE_SIZE, DMA_FROM_DEVICE);
		if (dma_mapping_error(dev, iova)) {
			error = wrong(dev, "dma_map_page() failed");
			break;
		}
		if (translated(dev, iova + pages * PAGE_SIZE))
			error = wrong(dev, "the page after the mapping is mapped");
		else
			drop_records(dev, iova, pages);
		if (translated(dev, iova))
			error = wrong(dev, "the driver keeps its records");
		dma_unmap_page(dev, iova, pages * PAGE_SIZE, DMA_FROM_DEVICE);
	}
	__free_pages(page, 2);
	return error;
}

#define CHUNK_BYTES	(2u << 20)

/*
 * Maps a small buffer until the module copies the buffer; returns 0 if the module never does.
 * The first map of a direction is not copied but starts the allocation of a chunk.
 */
static dma_addr_t map_copied(struct device *dev, void *memory, enum dma_data_direction direction)
{
	for (u32 i = 0; i < 500; i++) {
		dma_addr_t iova = dma_map_single(dev, memory, 64, direction);

		if (dma_mapping_error(dev, iova))
			return 0;
		if (translated(dev, iova) != virt_to_phys(memory))
			return iova;
		dma_unmap_single(dev, iova, 64, direction);
		msleep(10);
	}
	return 0;
}

static int set_chunk(const char *text, const struct kernel_param *param)
{
	struct device *dev = of_ranges;
	void *memory = dev ? kmalloc(64, GFP_KERNEL) : NULL;
	dma_addr_t iova;

	if (!memory)
		return -ENODEV;
	iova = map_copied(dev, memory, DMA_TO_DEVICE);
	if (iova) {
		dev_info(dev, "rude: a copy at IOVA 0x%llx\n", (u64)iova);
		dma_unmap_single(dev, iova, 64, DMA_TO_DEVICE);
	}
	kfree(memory);
	return iova ? 0 : wrong(dev, "a small buffer is never copied");
}
TEST_PARAM(chunk, 0200, "write: mode=ranges has a small buffer copied", .set = set_chunk);

/*
 * As probe_unrecorded(), for the pool's memory, which stays mapped. Another direction uses another
 * chunk, and the records of that chunk stay.
 */
int probe_unrecorded_chunk(struct device *dev, u32 unused)
{
	void *memory = kmalloc(64, GFP_KERNEL);
	dma_addr_t to, from, chunk;
	int error = 0;

	if (!memory)
		return -ENOMEM;
	to = map_copied(dev, memory, DMA_TO_DEVICE);
	from = map_copied(dev, memory, DMA_FROM_DEVICE);
	chunk = round_down(from, CHUNK_BYTES);
	if (!to || !from)
		error = wrong(dev, "a buffer is not copied");
	else if (!translated(dev, chunk) ||
		 !translated(dev, chunk + CHUNK_BYTES - PAGE_SIZE) ||
		 translated(dev, chunk + CHUNK_BYTES))
		error = wrong(dev, "a chunk is not mapped as expected");
	else
		drop_records(dev, chunk, CHUNK_BYTES / PAGE_SIZE);
	if (!error && translated(dev, from))
		error = wrong(dev, "the driver keeps its records");
	if (to)
		dma_unmap_single(dev, to, 64, DMA_TO_DEVICE);
	if (from)
		dma_unmap_single(dev, from, 64, DMA_FROM_DEVICE);
	kfree(memory);
	return error;
}
