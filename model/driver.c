// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include "count.h"
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "page.h"

/* Threshold of xSMMU's list (CLAIMS A), and of a batch of the engine. */
#define PENDING_PAGES	1024u

/* Pages that are unmapped and not flushed, by queue. */
static struct page_ring *pending;

const struct driver_ops *driver(void)
{
	static const struct driver_ops *const all[DRIVER_COUNT] = {
		[DRIVER_NONE] = &driver_none,
		[DRIVER_MLX5_CACHE] = &driver_mlx5_cache,
		[DRIVER_PAGE_POOL] = &driver_page_pool,
		[DRIVER_HALF_PAGES] = &driver_half_pages,
		[DRIVER_FANDS] = &driver_fands,
		[DRIVER_XSMMU] = &driver_xsmmu,
		[DRIVER_LARGE_PAGES] = &driver_large_pages,
	};

	return all[model.params.driver];
}

void driver_init(void)
{
	pending = model_new(model.params.queues, sizeof(*pending));
	for (u64 i = 0; i < model.params.queues; i++)
		page_ring_init(&pending[i], PENDING_PAGES);
	if (driver()->init)
		driver()->init();
}

/* Pages that are unmapped together are flushed once, and only then let go. */
u64 driver_end(u64 ns, u32 queue)
{
	u32 page;

	if (!pending[queue].count && !model.params.aware)
		return ns;
	ns = dma_flush(ns);
	while (page = page_ring_get(&pending[queue]), page != PAGE_NONE)
		ns = driver_let_go(ns, page);
	return ns;
}

u64 driver_unmap_later(u64 ns, u32 page)
{
	u32 queue = page_at(page)->queue;

	ns = dma_unmap_later(ns, page_at(page)->iova, 1, DMA_WHOLE);
	page_ring_put(&pending[queue], page);
	return pending[queue].count == PENDING_PAGES ? driver_end(ns, queue) : ns;
}

u64 driver_unmap(u64 ns, u32 page)
{
	if (model.params.aware)
		return driver_unmap_later(ns, page);
	ns = dma_unmap(ns, page_at(page)->iova, 1, DMA_WHOLE);
	return driver_let_go(ns, page);
}

u64 driver_new_page(u64 ns, u32 queue, u32 *page)
{
	*page = page_take(queue);
	return dma_map(ns + model.params.page_ns / 2, page_phys(*page), 1, DMA_WHOLE,
		       &page_at(*page)->iova);
}

u64 driver_free_page(u64 ns, u32 page)
{
	page_give(page);
	return ns + model.params.page_ns / 2;
}

u64 driver_let_go(u64 ns, u32 page)
{
	page_at(page)->owned = false;
	dma_let_go(page_at(page)->iova);
	return page_at(page)->refs ? ns : driver_free_page(ns, page);
}

void page_ring_init(struct page_ring *ring, u32 room)
{
	ring->pages = model_new(room, sizeof(*ring->pages));
	ring->room = room;
	ring->first = 0;
	ring->count = 0;
}

bool page_ring_put(struct page_ring *ring, u32 page)
{
	if (ring->count == ring->room)
		return false;
	ring->pages[(ring->first + ring->count++) % ring->room] = page;
	return true;
}

u32 page_ring_first(const struct page_ring *ring)
{
	return ring->count ? ring->pages[ring->first] : PAGE_NONE;
}

u32 page_ring_get(struct page_ring *ring)
{
	u32 page = page_ring_first(ring);

	if (page == PAGE_NONE)
		return PAGE_NONE;
	ring->first = (ring->first + 1) % ring->room;
	ring->count--;
	return page;
}
