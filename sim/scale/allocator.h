/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages of memory, each with a reference count on a line of its own, and lists
 * of free ones per CPU as a kernel's allocator has. What the allocator itself
 * touches is not counted.
 */
#ifndef SCALE_ALLOCATOR_H
#define SCALE_ALLOCATOR_H

#include "platform_scale.h"

void memory_init(void);

/* A page for a buffer; its address. The driver has the only reference. */
u64 memory_take(void);

/* The driver drops its reference. */
void memory_put(u64 phys);

/* Pages that have references. */
u64 memory_out(void);

#endif
