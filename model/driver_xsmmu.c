// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include "driver.h"

static u64 release(u64 ns, u32 queue, struct descriptor *descriptor, u32 i)
{
	u32 page = descriptor->pages[i];

	return driver_cache_put(queue, page) ? ns : driver_unmap_later(ns, page);
}

const struct driver_ops driver_xsmmu = {
	.init = driver_cache_init,
	.fill = driver_cache_fill,
	.release = release,
	.unref = driver_free_page,
};
