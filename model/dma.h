/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The DMA API of the machine's device: the unchanged engine, the model of the kernel's modes, or
 * nothing (kernel-off), above translation and command queue. Page tables have no contents here: the
 * NIC uses only what is mapped, and walks need addresses only.
 *
 * Each call runs on running_cpu, takes the CPU's time and returns the CPU's time at its end.
 */
#ifndef MODEL_DMA_H
#define MODEL_DMA_H

#include <xsmmu/needs.h>

/* Memory that the page allocator does not hand out by pages, so that the engine cannot hold it. */
#define DMA_SLAB	(1ULL << 40)

/* Pages of a large page. */
#define DMA_LARGE_PAGES	512u

/* Bytes of a buffer that fills its pages. */
#define DMA_WHOLE	0

void dma_init(void);

/* Age the allocator's IOVAs (aged_pages). What is mapped before keeps its addresses. */
void dma_age(void);

/**
 * dma_map - map contiguous memory
 * @ns: time
 * @phys: physical address
 * @pages: number of pages
 * @bytes: size, if the buffer is a part of a page; DMA_WHOLE
 * @iova: set to the first IOVA page; to the physical page without an IOMMU
 *
 * Return: time at the end.
 */
u64 dma_map(u64 ns, u64 phys, u32 pages, u32 bytes, u64 *iova);

/* Map a large page. @iova: as in dma_map(). */
u64 dma_map_large(u64 ns, u64 *iova);

/* Unmap. @bytes: as in the map. */
u64 dma_unmap(u64 ns, u64 iova, u32 pages, u32 bytes);

/*
 * Unmap without an invalidation: the caller keeps the memory until dma_flush() has returned on the
 * same CPU, so nothing is exposed. In the kernel's modes this is the fork's (CLAIMS A): dma_flush()
 * sends a domain-selective command.
 */
u64 dma_unmap_later(u64 ns, u64 iova, u32 pages, u32 bytes);
u64 dma_flush(u64 ns);

/*
 * The caller keeps the memory of a map no longer. Before the flush of what dma_unmap_later() has
 * unmapped this is a driver's bug, and counts as exposure from the unmap to the flush.
 */
void dma_let_go(u64 iova);

/*
 * Map single pages at contiguous IOVAs, up to a block, and unmap the whole with an invalidation.
 * In the kernel's modes this is F&S's (CLAIMS A, E).
 */
u64 dma_map_block(u64 ns, const u64 *phys, u32 pages, u64 *iova);
u64 dma_unmap_block(u64 ns, u64 iova, u32 pages);

/* A poll has ended on the running CPU. */
u64 dma_poll_end(u64 ns);

/* The timer of a CPU, or of the kernel's lazy mode, is due. Returns the CPU's time at the end. */
u64 dma_timer(u64 ns, u32 cpu);

#endif
