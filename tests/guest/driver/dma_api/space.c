// SPDX-License-Identifier: GPL-2.0-only
/* So many maps that the IOVA space or its page tables matter. */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/msi.h>
#include <linux/slab.h>

#include "dma_api.h"

/* Maps @page until no IOVA is left. Returns the number of maps, at most @most. */
u32 map_often(struct device *dev, struct page *page, size_t size, dma_addr_t *iovas, u32 most)
{
	u32 count = 0;

	while (count < most) {
		iovas[count] = dma_map_page(dev, page, 0, size, DMA_TO_DEVICE);
		if (dma_mapping_error(dev, iovas[count]))
			break;
		count++;
		cond_resched();
	}
	return count;
}

void unmap_often(struct device *dev, size_t size, const dma_addr_t *iovas, u32 count)
{
	for (u32 i = 0; i < count; i++) {
		dma_unmap_page(dev, iovas[i], size, DMA_TO_DEVICE);
		cond_resched();
	}
}

/* Many mappings of a page, whose page tables are worth freeing, or not. */
int probe_many(struct device *dev, u32 count)
{
	dma_addr_t *iovas = kvmalloc_array(count, sizeof(*iovas), GFP_KERNEL);
	struct page *page = alloc_page(GFP_KERNEL);
	u32 done = 0;

	if (iovas && page) {
		done = map_often(dev, page, PAGE_SIZE, iovas, count);
		unmap_often(dev, PAGE_SIZE, iovas, done);
	}
	if (page)
		__free_page(page);
	kvfree(iovas);
	return done == count ? 0 : wrong(dev, "not all were mapped");
}

#define ROW	(2 * 64 + 1)

/* The pages of two blocks and the first page of a third: their flush removes all of them. */
int probe_row(struct device *dev, u32 unused)
{
	static dma_addr_t iovas[ROW];
	struct page *page = alloc_page(GFP_KERNEL);
	int error = 0;
	u32 done;

	if (!page)
		return -ENOMEM;
	done = map_often(dev, page, PAGE_SIZE, iovas, ROW);
	if (done != ROW)
		error = wrong(dev, "dma_map_page() failed");
	unmap_often(dev, PAGE_SIZE, iovas, done);
	msleep(50);
	for (u32 i = 0; i < ROW && !error; i++)
		if (translated(dev, iovas[i]))
			error = wrong(dev, "a page of a row is left after its flush");
	__free_page(page);
	return error;
}

#define WHOLE_MAPS	65536
#define WHOLE_ORDER	get_order(SZ_2M)

/*
 * Returns the address of the device's MSI page, an IOVA if interrupts are translated; 0 if
 * none.
 */
static u64 interrupts_of(struct pci_dev *pdev)
{
	struct msi_msg message;

	if (pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI | PCI_IRQ_MSIX) < 0)
		return 0;
	get_cached_msi_msg(pci_irq_vector(pdev, 0), &message);
	return (u64)message.address_hi << 32 | message.address_lo;
}

/*
 * Maps of 2 MiB and then of a page until nothing below 4 GiB is free: no map covers the device's
 * MSI page.
 */
static int check_whole(struct pci_dev *pdev, struct page *page, dma_addr_t *iovas)
{
	struct device *dev = &pdev->dev;
	u64 doorbell = interrupts_of(pdev);
	phys_addr_t behind = translated(dev, doorbell);
	u32 large, all;
	int error = 0;

	large = map_often(dev, page, SZ_2M, iovas, WHOLE_MAPS);
	all = large + map_often(dev, page, PAGE_SIZE, iovas + large, WHOLE_MAPS - large);
	dev_info(dev, "rude: %u maps of 2 MiB, %u of a page; interrupts: %llx\n",
		 large, all - large, doorbell);
	if (!doorbell || (u64)large * SZ_2M < SZ_1G || all == WHOLE_MAPS)
		error = wrong(dev, "the maps do not fill the space below 4 GiB");
	if (translated(dev, doorbell) != behind)
		error = wrong(dev, "interrupts go elsewhere");
	for (u32 i = 0; i < all; i++)
		if (doorbell - iovas[i] < (i < large ? SZ_2M : PAGE_SIZE))
			error = wrong(dev, "a map is where interrupts go");
	unmap_often(dev, SZ_2M, iovas, large);
	unmap_often(dev, PAGE_SIZE, iovas + large, all - large);
	return error;
}

#define AHEAD	40	/* maps of 2 MiB: more than MSI_PAGE_BYTES of kmod/attach/regions.c */

/* Maps more than the module keeps free for MSI pages, then allocates interrupts. */
static int check_ahead(struct pci_dev *pdev, struct page *page, dma_addr_t *iovas)
{
	u32 count = map_often(&pdev->dev, page, SZ_2M, iovas, AHEAD);
	bool found = count == AHEAD && interrupts_of(pdev);

	unmap_often(&pdev->dev, SZ_2M, iovas, count);
	return found ? 0 : wrong(&pdev->dev, "there is no room, or no interrupt");
}

int probe_whole(struct device *dev, u32 ahead)
{
	struct pci_dev *pdev = to_pci_dev(dev);
	dma_addr_t *iovas = kvmalloc_array(WHOLE_MAPS, sizeof(*iovas), GFP_KERNEL);
	struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP, WHOLE_ORDER);
	int error = -ENOMEM;

	if (iovas && page)
		error = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(32));
	if (!error)
		error = ahead ? check_ahead(pdev, page, iovas) : check_whole(pdev, page, iovas);
	pci_free_irq_vectors(pdev);
	if (page)
		__free_pages(page, WHOLE_ORDER);
	kvfree(iovas);
	return error;
}
