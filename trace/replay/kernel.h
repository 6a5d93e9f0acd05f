/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of the kernel's own two modes, after Linux 6.12.118 (Debian): drivers/iommu/dma-iommu.c,
 * iova.c, iommu.c (iommu_pgsize()) and intel/cache.c.
 *
 * Strict: an unmap is one gather. The range is unmapped in up to three parts, around the aligned
 * 2 MiB in it, and each part is one page-selective command, widened to an aligned power of two.
 *
 * Lazy: a flush queue of 256 entries for each CPU, which is full with 255. An unmap that finds its
 * queue full invalidates the domain first, which covers the queues of all CPUs; so does the timer,
 * which starts with the first unmap after it fired. The timer's 10 ms are counted in ticks and
 * rounded up to the tick after; ticks are at multiples of 1/HZ s of the recording's time.
 *
 * IOVAs come from magazines of 127 for each CPU and size (a power of two up to 32 pages; two
 * magazines each, and a depot without a limit), like iova.c's. The tree of free ranges is not
 * modelled: a fresh range is the aligned range below all others, from 4 GiB down and then from
 * 2^47 down; a range of more than 32 pages is kept by its rounded size and used again, last freed
 * first.
 */
#ifndef REPLAY_KERNEL_H
#define REPLAY_KERNEL_H

#include <xsmmu/needs.h>

struct world;
struct kernel;

struct kernel *kernel_new(struct world *world);

/* Returns the first IOVA page of a range. */
u64 kernel_alloc(struct world *world, u64 pages);

/* Frees a range in which nothing is mapped. */
void kernel_free(struct world *world, u64 page, u64 pages);

/* Unmaps a range. With @frees the range is freed, and its flush deferred in lazy mode. */
void kernel_unmap(struct world *world, u64 page, u64 pages, bool frees);

/* The timer is due. */
void kernel_expire(struct world *world);

#endif
