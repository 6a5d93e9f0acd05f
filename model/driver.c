// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include "count.h"
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "page.h"

const struct driver_ops *driver(void)
{
	static const struct driver_ops *const all[DRIVER_COUNT] = {
		[DRIVER_NONE] = &driver_none,
		[DRIVER_MLX5_CACHE] = &driver_mlx5_cache,
		[DRIVER_PAGE_POOL] = &driver_page_pool,
		[DRIVER_HALF_PAGES] = &driver_half_pages,
		[DRIVER_FANDS] = &driver_fands,
		[DRIVER_XSMMU] = &driver_xsmmu,
	};

	return all[model.params.driver];
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
