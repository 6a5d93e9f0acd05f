// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "page.h"

static u64 fill(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 count = (u32)model.params.descriptor_pages;
	u64 phys[DESCRIPTOR_PAGES] = { 0 };

	descriptor->pages[i] = page_take(queue);
	ns += model.params.page_ns / 2;
	if (i + 1 < count)
		return ns;
	for (u32 each = 0; each < count; each++)
		phys[each] = page_phys(descriptor->pages[each]);
	ns = dma_map_block(ns, phys, count, &descriptor->iova);
	for (u32 each = 0; each < count; each++)
		page_at(descriptor->pages[each])->iova = descriptor->iova + each;
	return ns;
}

static u64 release(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 count = (u32)model.params.descriptor_pages;

	if (!i)
		ns = dma_unmap_block(ns, descriptor->iova, count);
	return driver_let_go(ns, descriptor->pages[i]);
}

const struct driver_ops driver_fands = {
	.fill = fill,
	.release = release,
	.unref = driver_free_page,
};
