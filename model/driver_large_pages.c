// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include "count.h"
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "page.h"

/*
 * struct pool - pages of a queue that nobody uses, last in first out
 * @room:	of @pages
 */
struct pool {
	u32 *pages;
	u32 count, room;
};

static struct pool *pools;

static void init(void)
{
	pools = model_new(model.params.queues, sizeof(*pools));
}

static u64 put(u64 ns, u32 page)
{
	struct pool *pool = &pools[page_at(page)->queue];

	if (pool->count == pool->room) {
		pool->room += DMA_LARGE_PAGES;
		pool->pages = model_again(pool->pages, pool->room * sizeof(*pool->pages));
	}
	pool->pages[pool->count++] = page;
	return ns;
}

/* Allocates and maps 2 MiB. */
static u64 extend(u64 ns, u32 queue)
{
	u64 iova;

	ns = dma_map_large(ns + model.params.page_ns, &iova);
	for (u32 i = 0; i < DMA_LARGE_PAGES; i++) {
		u32 page = page_take(queue);

		page_at(page)->iova = iova + i;
		page_at(page)->owned = false;
		put(ns, page);
	}
	return ns;
}

static u64 fill(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	struct pool *pool = &pools[queue];

	if (!pool->count)
		ns = extend(ns, queue);
	else
		counts.recycled++;
	descriptor->pages[i] = pool->pages[--pool->count];
	page_at(descriptor->pages[i])->owned = true;
	return ns;
}

static u64 release(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	struct page *page = page_at(descriptor->pages[i]);

	page->owned = false;
	return page->refs ? ns : put(ns, descriptor->pages[i]);
}

const struct driver_ops driver_large_pages = {
	.init = init,
	.fill = fill,
	.release = release,
	.unref = put,
};
