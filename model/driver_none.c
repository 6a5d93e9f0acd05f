// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "page.h"

static u64 fill(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	return driver_new_page(ns, queue, &descriptor->pages[i]);
}

static u64 release(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 page = descriptor->pages[i];

	return driver_unmap(ns, page);
}

const struct driver_ops driver_none = {
	.fill = fill,
	.release = release,
	.unref = driver_free_page,
};
