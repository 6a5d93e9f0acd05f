// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "page.h"

/* The list's threshold (CLAIMS A). */
#define PENDING_PAGES	1024u

static struct page_ring *pending;

static void init(void)
{
	driver_cache_init();
	pending = model_new(model.params.queues, sizeof(*pending));
	for (u64 i = 0; i < model.params.queues; i++)
		page_ring_init(&pending[i], PENDING_PAGES);
}

static u64 end(u64 ns, u32 queue)
{
	u32 page;

	ns = dma_flush(ns);
	while (page = page_ring_get(&pending[queue]), page != PAGE_NONE)
		ns = driver_let_go(ns, page);
	return ns;
}

static u64 release(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 page = descriptor->pages[i];

	if (driver_cache_put(queue, page))
		return ns;
	ns = dma_unmap_later(ns, page_at(page)->iova);
	page_ring_put(&pending[queue], page);
	return pending[queue].count == PENDING_PAGES ? end(ns, queue) : ns;
}

const struct driver_ops driver_xsmmu = {
	.init = init,
	.fill = driver_cache_fill,
	.release = release,
	.unref = driver_free_page,
	.end = end,
};
