// SPDX-License-Identifier: GPL-2.0-only
/*
 * DMA operations of devices: for each group that may be attached, one instance with operations that
 * map all buffers (streaming.c) and one whose operations copy small buffers (bounce.c), and the
 * operations of blocked devices. Part of path.c.
 */
#include "ops.h"

#ifdef XS_HAVE_ALLOC_PAGES_OP
#define ALLOC_PAGES	.alloc_pages_op = alloc_noncoherent
#else
#define ALLOC_PAGES	.alloc_pages = alloc_noncoherent
#endif

#ifdef XS_HAVE_ALLOC_NONCONTIGUOUS
#define NONCONTIGUOUS	.alloc_noncontiguous = alloc_noncontiguous, \
			.free_noncontiguous = free_noncontiguous,
#else
#define NONCONTIGUOUS
#endif

#ifdef XS_HAVE_MAP_PHYS
#define MAP_ONE		.map_phys = map_phys, .unmap_phys = unmap_memory
#define COPY_ONE	.map_phys = map_phys_or_copy, .unmap_phys = uncopy
#else
#define MAP_ONE		.map_page = map_page, .unmap_page = unmap_memory, \
			.map_resource = map_mmio, .unmap_resource = unmap_memory
#define COPY_ONE	.map_page = map_page_or_copy, .unmap_page = uncopy, \
			.map_resource = map_mmio, .unmap_resource = unmap_memory
#endif

/* ---- blocked devices ---- */

static void *alloc_nothing(struct device *dev, size_t size, dma_addr_t *handle,
			   gfp_t gfp, unsigned long attrs)
{
	return NULL;
}

/* A blocked device has nothing to free or to unmap. */
static void free_nothing(struct device *dev, size_t size, void *address,
			 dma_addr_t handle, unsigned long attrs)
{
}

static int map_sg_nothing(struct device *dev, struct scatterlist *sgl,
			  int nents, enum dma_data_direction dir,
			  unsigned long attrs)
{
	return -EIO;
}

static void unmap_sg_nothing(struct device *dev, struct scatterlist *sgl,
			     int nents, enum dma_data_direction dir,
			     unsigned long attrs)
{
}

static void unmap_nothing(struct device *dev, dma_addr_t handle, size_t size,
			  enum dma_data_direction dir, unsigned long attrs)
{
}

#ifdef XS_HAVE_MAP_PHYS
static dma_addr_t map_nothing(struct device *dev, phys_addr_t phys, size_t size,
			      enum dma_data_direction dir, unsigned long attrs)
{
	return DMA_MAPPING_ERROR;
}

#define MAP_NOTHING	.map_phys = map_nothing, .unmap_phys = unmap_nothing
#else
static dma_addr_t map_nothing(struct device *dev, struct page *page,
			      unsigned long offset, size_t size,
			      enum dma_data_direction dir, unsigned long attrs)
{
	return DMA_MAPPING_ERROR;
}

static dma_addr_t map_no_mmio(struct device *dev, phys_addr_t phys, size_t size,
			      enum dma_data_direction dir, unsigned long attrs)
{
	return DMA_MAPPING_ERROR;
}

#define MAP_NOTHING	.map_page = map_nothing, .unmap_page = unmap_nothing, \
			.map_resource = map_no_mmio, .unmap_resource = unmap_nothing
#endif

const struct dma_map_ops xs_blocked_ops = {
	.alloc = alloc_nothing,
	.free = free_nothing,
	MAP_NOTHING,
	.map_sg = map_sg_nothing,
	.unmap_sg = unmap_sg_nothing,
};

/* ---- attached devices ---- */

#define COMMON \
	.alloc = alloc_coherent, \
	.free = free_coherent, \
	ALLOC_PAGES, \
	.free_pages = free_noncoherent, \
	NONCONTIGUOUS \
	.mmap = mmap_coherent, \
	.get_sgtable = get_sgtable, \
	.opt_mapping_size = opt_mapping_size

static const struct dma_map_ops plain_ops __initconst = {
	COMMON,
	MAP_ONE,
	.map_sg = map_sg,
	.unmap_sg = unmap_sg,
	.get_merge_boundary = get_merge_boundary,
};

static const struct dma_map_ops copying_ops __initconst = {
	COMMON,
	COPY_ONE,
	.map_sg = map_sg_or_copy,
	.unmap_sg = uncopy_sg,
	.sync_single_for_cpu = sync_for_cpu,
	.sync_single_for_device = sync_for_device,
	.sync_sg_for_cpu = sync_sg_for_cpu,
	.sync_sg_for_device = sync_sg_for_device,
};

void __init xs_ops_init(void)
{
	for (u32 i = 0; i < 2 * XS_INSTANCES; i++) {
		xs_ops_instances[i].ops = i < XS_INSTANCES ? plain_ops : copying_ops;
		xs_ops_instances[i].backend = &xs_instance_backends[i % XS_INSTANCES];
	}
}
