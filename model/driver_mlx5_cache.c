// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include "count.h"
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "page.h"

static struct page_ring *caches;

void driver_cache_init(void)
{
	caches = model_new(model.params.queues, sizeof(*caches));
	for (u64 i = 0; i < model.params.queues; i++)
		page_ring_init(&caches[i], (u32)model.params.cache_pages);
}

u64 driver_cache_fill(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 page = page_ring_first(&caches[queue]);

	if (page == PAGE_NONE || page_at(page)->refs)
		return driver_new_page(ns, queue, &descriptor->pages[i]);
	descriptor->pages[i] = page_ring_get(&caches[queue]);
	counts.recycled++;
	return ns;
}

bool driver_cache_put(u32 queue, u32 page)
{
	return page_ring_put(&caches[queue], page);
}

static u64 release(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 page = descriptor->pages[i];

	if (driver_cache_put(queue, page))
		return ns;
	return driver_unmap(ns, page);
}

const struct driver_ops driver_mlx5_cache = {
	.init = driver_cache_init,
	.fill = driver_cache_fill,
	.release = release,
	.unref = driver_free_page,
};
