// SPDX-License-Identifier: GPL-2.0-only
/*
 * DMA operations of devices: for each group that may be attached, one instance whose operations
 * map all buffers (streaming.c) and one whose operations copy small buffers (bounce.c), and the operations of blocked devices. Part of
 * path.c.
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

/* ---- an instance for each group ---- */

struct xs_backend *xs_instance_backends[XS_INSTANCES];

/* The common part of all instances. */
#define INSTANCE(i, ...) { \
		.ops = { \
			.alloc = alloc_coherent, \
			.free = free_coherent, \
			ALLOC_PAGES, \
			.free_pages = free_noncoherent, \
			NONCONTIGUOUS \
			.mmap = mmap_coherent, \
			.get_sgtable = get_sgtable, \
			.opt_mapping_size = opt_mapping_size, \
			__VA_ARGS__ \
		}, \
		.backend = &xs_instance_backends[i], \
	}
#define PLAIN(i)	INSTANCE(i, MAP_ONE, .map_sg = map_sg, .unmap_sg = unmap_sg, \
				 .get_merge_boundary = get_merge_boundary)
#define COPIES(i)	INSTANCE(i, COPY_ONE, .map_sg = map_sg_or_copy, .unmap_sg = uncopy_sg, \
				 .sync_single_for_cpu = sync_for_cpu, \
				 .sync_single_for_device = sync_for_device, \
				 .sync_sg_for_cpu = sync_sg_for_cpu, \
				 .sync_sg_for_device = sync_sg_for_device)
#define FOUR(kind, i)	kind(i), kind(i + 1), kind(i + 2), kind(i + 3)
#define INSTANCES_16(kind, i)	FOUR(kind, i), FOUR(kind, i + 4), \
				FOUR(kind, i + 8), FOUR(kind, i + 12)
#define INSTANCES_64(kind, i)	INSTANCES_16(kind, i), INSTANCES_16(kind, i + 16), \
				INSTANCES_16(kind, i + 32), INSTANCES_16(kind, i + 48)
#define INSTANCES_256(kind)	INSTANCES_64(kind, 0), INSTANCES_64(kind, 64), \
				INSTANCES_64(kind, 128), INSTANCES_64(kind, 192)

const struct xs_ops_instance xs_ops_instances[2 * XS_INSTANCES] = {
	INSTANCES_256(PLAIN), INSTANCES_256(COPIES)
};

const struct xs_ops_instance *xs_instance_get(struct xs_backend *backend,
					      bool copies)
{
	u32 kind = copies ? XS_INSTANCES : 0;
	u32 i;

	for (i = 0; i < XS_INSTANCES; i++) {
		if (!xs_instance_backends[i]) {
			xs_instance_backends[i] = backend;
			return &xs_ops_instances[kind + i];
		}
	}
	return NULL;
}

void xs_instance_put(const struct xs_ops_instance *instance)
{
	*instance->backend = NULL;
}
