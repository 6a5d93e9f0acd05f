// SPDX-License-Identifier: GPL-2.0-only
/* The pool: full, with a chunk that it frees, and with a new one. */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "bounce.h"

#define FILLED	1100
#define CHUNK_BUFFERS	512	/* in a chunk of 2 MiB */
#define FILLED_BYTES	(PAGE_SIZE - 1)

/*
 * GONE is enough free bounce buffers to put their area back into use; LEFT is too few for a
 * list.
 */
#define GONE	20
#define LEFT	3

static int map_again(struct device *dev, struct buffer *buffers, u32 count)
{
	int error = 0;

	for (u32 i = 0; i < count && !error; i++) {
		error = map_soon(dev, &buffers[i], 0, 1);
		if (!error && !is_copied(dev, &buffers[i]))
			error = wrong(dev, "bounce buffers are lost");
	}
	return error;
}

/*
 * A list is mapped without copies if the pool has too few bounce buffers; copies that were made
 * before the pool ran out are freed. With this alignment mask each segment takes a bounce
 * buffer of a page.
 */
static int list_in_full_pool(struct device *dev, struct buffer *buffers, bool full)
{
	const size_t small[] = { 1, 20, 60 };
	int error;
	u32 i;

	if (!full)
		return 0;
	/* The last copied buffers share an area. */
	buffers += FILLED - 1;
	while (!is_copied(dev, buffers))
		buffers--;
	buffers -= GONE - 1;
	for (i = 0; i < GONE; i++)
		unmap(dev, &buffers[i], 0);
	/* A CPU that found no bounce buffer does not search again for a while. */
	msleep(20);
	error = map_again(dev, buffers, GONE - LEFT);
	dma_set_min_align_mask(dev, PAGE_SIZE - 1);
	if (!error)
		error = check_list(dev, small, false);
	dma_set_min_align_mask(dev, 0);
	for (i = 0; i < GONE - LEFT; i++)
		unmap(dev, &buffers[i], 0);
	msleep(20);
	return error ? error : map_again(dev, buffers, GONE);
}

/*
 * The module copies as many buffers as the pool holds; the device reads the right bytes of
 * every buffer.
 */
int probe_fill(struct device *dev, u32 grows)
{
	u32 least = grows ? 600 : 300, most = grows ? FILLED : CHUNK_BUFFERS;
	struct buffer *buffers = kvcalloc(FILLED, sizeof(*buffers), GFP_KERNEL);
	u32 i, copied = 0, done;
	int error = 0;

	if (!buffers)
		return -ENOMEM;
	for (done = 0; done < FILLED && !error; done++) {
		struct buffer *buffer = &buffers[done];

		buffer->memory = (u8 *)__get_free_page(GFP_KERNEL);
		buffer->bytes = FILLED_BYTES;
		memset(buffer->memory, done, PAGE_SIZE);
		error = map_soon(dev, buffer, 0, 1);
		/* Let the worker add memory to the pool. */
		if (done % 100 == 0)
			msleep(20);
	}
	for (i = 0; i < done && !error; i++) {
		copied += is_copied(dev, &buffers[i]);
		if (!is_like(dev, buffers[i].iova, buffers[i].memory, FILLED_BYTES))
			error = wrong(dev, "the device reads wrong bytes");
	}
	if (!error && (copied < least || copied > most))
		error = wrong(dev, "more were copied than there is room for, or few");
	if (!error)
		error = list_in_full_pool(dev, buffers, copied == most);
	/* The worker that frees unused chunks finds every chunk in use. */
	if (grows)
		msleep(12000);
	for (i = 0; i < done; i++) {
		unmap(dev, &buffers[i], 0);
		free_page((unsigned long)buffers[i].memory);
	}
	kvfree(buffers);
	return error;
}

/*
 * When the pool frees a chunk, the device's cached translations of the chunk must go, too. The
 * pool holds a single chunk, so a buffer of another kind replaces the chunk and may reuse the
 * chunk's memory.
 */
int probe_stale(struct device *dev, u32 unused)
{
	struct buffer other = { .memory = memory, .bytes = 100, .dir = DMA_TO_DEVICE };
	struct buffer one = { .memory = memory, .bytes = 100, .dir = DMA_FROM_DEVICE };
	void __iomem *registers = pcim_iomap(to_pci_dev(dev), 0, 0);
	u32 *bounce;
	int error;

	if (!registers)
		return -ENOMEM;
	pci_set_master(to_pci_dev(dev));
	error = map(dev, &one, true);
	if (error)
		return error;
	bounce = (u32 *)found(dev, one.iova);
	if (!test_write_lands(registers, one.iova, bounce))
		error = wrong(dev, "the device does not reach a copy");
	unmap(dev, &one, 0);
	if (!error)
		error = map(dev, &other, true);
	if (error)
		return error;
	if (test_write_lands(registers, one.iova, bounce))
		error = wrong(dev, "the device reaches memory that the pool has freed");
	unmap(dev, &other, 0);
	return error;
}

/* A new chunk shows the device nothing of the memory's earlier content. Needs init_on_alloc=0. */
int probe_fresh(struct device *dev, u32 unused)
{
	struct buffer buffer = { .memory = memory, .bytes = 1 };
	struct page *pages[16];
	int error = 0;
	u32 i, at;
	u8 *page;

	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		pages[i] = alloc_pages(GFP_KERNEL | __GFP_NOWARN, 9);
		if (pages[i])
			memset(page_address(pages[i]), 0x5a, PAGE_SIZE << 9);
	}
	for (i = 0; i < ARRAY_SIZE(pages); i++)
		if (pages[i])
			__free_pages(pages[i], 9);
	error = map(dev, &buffer, true);
	if (error)
		return error;
	for (i = 0; i < 512 && !error; i++) {
		page = found(dev, (buffer.iova & ~(dma_addr_t)(0x200000 - 1)) + i * PAGE_SIZE);
		for (at = 0; at < PAGE_SIZE && !error; at++)
			if (page[at])
				error = wrong(dev, "the device finds earlier content of a chunk's memory");
	}
	unmap(dev, &buffer, 0);
	return error;
}
