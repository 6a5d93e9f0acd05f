// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include "count.h"
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "page.h"

static struct page_ring *pools;

static void init(void)
{
	pools = model_new(model.params.queues, sizeof(*pools));
	for (u64 i = 0; i < model.params.queues; i++)
		page_ring_init(&pools[i], (u32)model.params.cache_pages);
}

static u64 fill(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 page = page_ring_get(&pools[queue]);

	if (page == PAGE_NONE)
		return driver_new_page(ns, queue, &descriptor->pages[i]);
	page_at(page)->owned = true;
	descriptor->pages[i] = page;
	counts.recycled++;
	return ns;
}

/* Nobody uses the page: back to the pool, or unmapped if the pool is full. */
static u64 put(u64 ns, u32 page)
{
	if (page_ring_put(&pools[page_at(page)->queue], page))
		return ns;
	return driver_unmap(ns, page);
}

static u64 release(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	struct page *page = page_at(descriptor->pages[i]);

	page->owned = false;
	return page->refs ? ns : put(ns, descriptor->pages[i]);
}

const struct driver_ops driver_page_pool = {
	.init = init,
	.fill = fill,
	.release = release,
	.unref = put,
};
