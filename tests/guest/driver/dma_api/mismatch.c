// SPDX-License-Identifier: GPL-2.0-only
/* Unmaps and frees that match no mapping. */
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "dma_api.h"

/* Returns whether a device write to @iova changes @word, the memory behind @iova. */
static bool lands(void __iomem *registers, dma_addr_t iova, u32 *word)
{
	WRITE_ONCE(*word, 0x5a5a5a5a);
	return test_write_lands(registers, iova, word);
}

/* A free with a wrong handle frees nothing. */
int probe_free(struct device *dev, u32 unused)
{
	dma_addr_t iova, iova_of_pages;
	void *memory = dma_alloc_coherent(dev, PAGE_SIZE, &iova, GFP_KERNEL);
	struct page *pages = dma_alloc_pages(dev, PAGE_SIZE, &iova_of_pages,
					     DMA_BIDIRECTIONAL, GFP_KERNEL);
	int error = 0;

	if (!memory || !pages) {
		error = -ENOMEM;
		goto free;
	}
	get_page(virt_to_page(memory));
	get_page(pages);
	dma_free_coherent(dev, PAGE_SIZE, memory, iova + (1ULL << 40));
	dma_free_pages(dev, PAGE_SIZE, pages, iova_of_pages + (1ULL << 40), DMA_BIDIRECTIONAL);
	if (page_count(virt_to_page(memory)) != 2 || page_count(pages) != 2)
		error = wrong(dev, "a bad free has freed memory");
	put_page(virt_to_page(memory));
	put_page(pages);
	if (error)
		return error;
free:
	if (memory)
		dma_free_coherent(dev, PAGE_SIZE, memory, iova);
	if (pages)
		dma_free_pages(dev, PAGE_SIZE, pages, iova_of_pages, DMA_BIDIRECTIONAL);
	return error;
}

/* Three bad unmaps, two of which remove a mapping in parts; then the right unmap. */
int probe_bad_unmap(struct device *dev, u32 unused)
{
	struct page *page = alloc_pages(GFP_KERNEL, 2);
	dma_addr_t iova;
	int error = 0;

	if (!page)
		return -ENOMEM;
	iova = dma_map_page(dev, page, 0, 4 * PAGE_SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, iova)) {
		error = wrong(dev, "dma_map_page() failed");
		goto free;
	}
	dma_unmap_page(dev, iova, PAGE_SIZE, DMA_TO_DEVICE);
	dma_unmap_page(dev, iova + PAGE_SIZE, 3 * PAGE_SIZE, DMA_TO_DEVICE);
	dma_unmap_page(dev, iova + (1ULL << 40), PAGE_SIZE, DMA_TO_DEVICE);
	for (u32 i = 0; i < 4; i++)
		if (translated(dev, iova + i * PAGE_SIZE))
			error = wrong(dev, "a bad unmap has left a page");
	dma_unmap_page(dev, iova, 4 * PAGE_SIZE, DMA_TO_DEVICE);
free:
	__free_pages(page, 2);
	return error;
}

/*
 * A mapping and an unmap that does not match.
 * @bytes, @offset: size, and offset in the first page, of a single buffer
 * @from: first page of the unmap; with @list, first segment
 * @named: bytes of the unmap
 * @list: map a list of pages instead of a single buffer
 * @twice: unmap correctly first
 */
struct tear {
	const char *name;
	u32 bytes;
	u32 offset;
	u32 from;
	u32 named;
	bool list;
	bool twice;
};

#define TEAR_PAGES	256

static const struct tear tears[] = {
	/* ftgmac100 maps a fragment and unmaps another length. */
	{ "short", 1536, 3072, 0, 42 },
	{ "first", 4 * PAGE_SIZE, 0, 0, PAGE_SIZE },
	{ "middle", 4 * PAGE_SIZE, 0, 1, 2 * PAGE_SIZE },
	{ "rest", 4 * PAGE_SIZE, 0, 1, 3 * PAGE_SIZE },
	{ "longer", 4 * PAGE_SIZE, 0, 0, 7 * PAGE_SIZE },
	{ "beyond", 4 * PAGE_SIZE, 0, 2, 4 * PAGE_SIZE },
	{ "list_rest", 4 * PAGE_SIZE, 0, 1, 3 * PAGE_SIZE, .list = true },
	{ "large_first", 200 * PAGE_SIZE, 0, 0, PAGE_SIZE },
	{ "large_middle", 200 * PAGE_SIZE, 0, 70, 66 * PAGE_SIZE },
	{ "large_longer", 200 * PAGE_SIZE, 0, 0, 240 * PAGE_SIZE },
	{ "twice", PAGE_SIZE, 0, 0, PAGE_SIZE, .twice = true },
};

static u32 pages_from(u32 offset, u32 bytes)
{
	return (offset % PAGE_SIZE + bytes + PAGE_SIZE - 1) / PAGE_SIZE;
}

/* Segments are at most a page, so no segments are merged. */
static int tear_list(struct sg_table *table, struct page *memory, u32 pages)
{
	struct scatterlist *sg;
	u32 i;

	if (sg_alloc_table(table, pages, GFP_KERNEL))
		return -ENOMEM;
	for_each_sgtable_sg(table, sg, i)
		sg_set_page(sg, memory + i, PAGE_SIZE, 0);
	return 0;
}

static void tear_unmap(struct device *dev, const struct tear *tear,
		       struct sg_table *table, dma_addr_t iova)
{
	if (tear->list)
		dma_unmap_sg(dev, sg_next(table->sgl), table->orig_nents - 1, DMA_BIDIRECTIONAL);
	else
		dma_unmap_page(dev, iova + tear->from * PAGE_SIZE, tear->named, DMA_BIDIRECTIONAL);
}

/*
 * Counts the pages that the device reaches before and after the unmap. The device caches all
 * translations before.
 */
static int tear_one(struct device *dev, void __iomem *registers,
		    struct page *memory, const struct tear *tear, bool left)
{
	u32 pages = pages_from(tear->offset, tear->bytes);
	u32 end = tear->from + pages_from(tear->offset, tear->named);
	u32 reached = 0, others = 0, more = 0;
	struct sg_table table = { };
	dma_addr_t iova;
	int error = 0;

	if (tear->list)
		error = tear_list(&table, memory, pages) ?:
			dma_map_sgtable(dev, &table, DMA_BIDIRECTIONAL, 0);
	if (error)
		return error;
	/* Each page has a segment of its own. */
	iova = tear->list ? sg_dma_address(table.sgl) :
			    dma_map_page(dev, memory, tear->offset, tear->bytes,
					 DMA_BIDIRECTIONAL);
	if (dma_mapping_error(dev, iova))
		return wrong(dev, "a map failed");
	for (u32 i = 0; i < pages; i++)
		if (!lands(registers, (iova & PAGE_MASK) + i * PAGE_SIZE,
			   page_address(memory + i)))
			error = wrong(dev, "the device does not reach a mapped page");
	if (tear->twice)
		dma_unmap_page(dev, iova, tear->bytes, DMA_BIDIRECTIONAL);
	tear_unmap(dev, tear, &table, iova);
	for (u32 i = 0; i < pages; i++) {
		bool reach = lands(registers, (iova & PAGE_MASK) + i * PAGE_SIZE,
				   page_address(memory + i));
		bool named = i >= tear->from && i < end;

		reached += named && reach;
		others += !named && reach;
		more += !named;
	}
	dev_info(dev, "rude: tear %s %u %u %u\n", tear->name, reached, others, more);
	if (!left && !tear->twice && tear->list)
		dma_unmap_sgtable(dev, &table, DMA_BIDIRECTIONAL, 0);
	else if (!left && !tear->twice)
		dma_unmap_page(dev, iova, tear->bytes, DMA_BIDIRECTIONAL);
	sg_free_table(&table);
	return error;
}

/*
 * Maps two buffers and unmaps from the second page of the first to the first page of the
 * second.
 */
static int tear_two(struct device *dev, void __iomem *registers, struct page *memory, bool left)
{
	struct page *pages[2] = { memory, memory + 2 };
	u32 reached = 0, others = 0;
	dma_addr_t iovas[2];

	for (u32 i = 0; i < 2; i++) {
		iovas[i] = dma_map_page(dev, pages[i], 0, 2 * PAGE_SIZE, DMA_BIDIRECTIONAL);
		if (dma_mapping_error(dev, iovas[i]))
			return wrong(dev, "a map failed");
	}
	if (iovas[0] > iovas[1]) {
		swap(iovas[0], iovas[1]);
		swap(pages[0], pages[1]);
	}
	dma_unmap_page(dev, iovas[0] + PAGE_SIZE, iovas[1] - iovas[0], DMA_BIDIRECTIONAL);
	for (u32 i = 0; i < 2; i++) {
		others += lands(registers, iovas[i] + i * PAGE_SIZE, page_address(pages[i] + i));
		reached += lands(registers, iovas[i] + !i * PAGE_SIZE,
				 page_address(pages[i] + !i));
	}
	dev_info(dev, "rude: tear two %u %u 2\n", reached, others);
	for (u32 i = 0; i < 2 && !left; i++)
		dma_unmap_page(dev, iovas[i], 2 * PAGE_SIZE, DMA_BIDIRECTIONAL);
	return 0;
}

int probe_tear(struct device *dev, u32 left)
{
	struct pci_dev *pdev = to_pci_dev(dev);
	void __iomem *registers = ioremap(pci_resource_start(pdev, 0), PAGE_SIZE);
	struct page *memory = alloc_pages(GFP_KERNEL, get_order(TEAR_PAGES * PAGE_SIZE));
	int error = 0;

	if (!registers || !memory)
		return -ENOMEM;
	pci_set_master(pdev);
	dma_set_max_seg_size(dev, PAGE_SIZE);
	for (u32 i = 0; i < ARRAY_SIZE(tears) && !error; i++)
		error = tear_one(dev, registers, memory, &tears[i], left);
	if (!error)
		error = tear_two(dev, registers, memory, left);
	dma_set_max_seg_size(dev, SZ_64K);
	pci_clear_master(pdev);
	iounmap(registers);
	/* Pages that are still mapped may be written to, so they are not freed. */
	if (!left && !error)
		__free_pages(memory, get_order(TEAR_PAGES * PAGE_SIZE));
	return error;
}
