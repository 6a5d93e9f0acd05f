/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages of memory, each with a reference count on a separate line, and per-CPU free lists like
 * a kernel's allocator. Accesses of the allocator are not counted.
 */
#ifndef SCALE_ALLOCATOR_H
#define SCALE_ALLOCATOR_H

#include "platform_scale.h"

#define MEMORY_PAGES	(1u << 26)

void memory_init(void);

/* Take a page for a buffer; returns the address. The driver has the only reference. */
u64 memory_take(void);

/* Drop the driver's reference. */
void memory_put(u64 phys);

/* Number of pages with references. */
u64 memory_out(void);

#endif
