// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. A descriptor has one page, of which the NIC writes a half. */
#include "count.h"
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "page.h"

/* Pages that the next descriptors use again. */
static struct page_ring *again;

static void init(void)
{
	again = model_new(model.params.queues, sizeof(*again));
	for (u64 i = 0; i < model.params.queues; i++)
		page_ring_init(&again[i], (u32)model.params.ring);
}

static u64 fill(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 page = page_ring_get(&again[queue]);

	if (page == PAGE_NONE)
		return driver_new_page(ns, queue, &descriptor->pages[i]);
	descriptor->pages[i] = page;
	counts.recycled++;
	return ns;
}

static u64 release(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 page = descriptor->pages[i];

	if (page_at(page)->refs <= 1 && page_ring_put(&again[queue], page))
		return ns;
	return driver_unmap(ns, page);
}

const struct driver_ops driver_half_pages = {
	.one_packet = true,
	.init = init,
	.fill = fill,
	.release = release,
	.unref = driver_free_page,
};
