// SPDX-License-Identifier: GPL-2.0-only
/*
 * The DMA API of a device with copying of small buffers (xsmmu/pool.h). Each buffer is copied
 * by the operations here, or mapped by those of streaming.c; the address tells them apart later.
 * Part of path.c.
 *
 * A list is copied segment by segment if all its segments together are small. Else the list is
 * mapped in one range, which needs one flush.
 */
#include <linux/dma-mapping.h>
#include <linux/memremap.h>
#include <linux/scatterlist.h>

#include "../trace.h"
#include "instance.h"

static const u8 directions[] = {
	[DMA_BIDIRECTIONAL] = XS_DIRECTION_BOTH,
	[DMA_TO_DEVICE] = XS_DIRECTION_READ,
	[DMA_FROM_DEVICE] = XS_DIRECTION_WRITE,
};

/* ---- one buffer ---- */

/*
 * The kernel's own path never copies whole pages, so drivers share whole pages with the device
 * for long and do not call dma_sync_*() (memory regions of RDMA, buffers of GPUs, rings that
 * are used in halves). A whole page that is mapped shows the device no bytes of others. Whole
 * pages are copied only for receive rings whose driver declares that it syncs each part by
 * itself, because the driver hands on parts while the device owns the page. In a list this
 * declaration does not count: exporters of buffers make it, too.
 */
static __always_inline bool may_be_shared(phys_addr_t phys, size_t size,
					  enum dma_data_direction dir,
					  unsigned long attrs, bool listed)
{
	return attrs & DMA_ATTR_REQUIRE_COHERENT ||
	       (!offset_in_page(phys | size) &&
		(dir != DMA_FROM_DEVICE || listed ||
		 !(attrs & DMA_ATTR_SKIP_CPU_SYNC)));
}

/* Where a buffer is. */
enum place {
	ALONE,
	IN_LIST,
	IN_ROW,		/* in a list of pages: copied only with the same offset in the page */
};

/*
 * Copies a buffer. Returns the IOVA, or 0 if the buffer is too large, if the pool has no room,
 * or if the buffer must not be copied. Keeps the offset in the page if the device needs the
 * offset (dma_get_min_align_mask()).
 */
static __always_inline u64 copy_one(struct device *dev, phys_addr_t phys,
				    size_t size, enum dma_data_direction dir,
				    unsigned long attrs, enum place place)
{
	struct xs_backend *backend;
	u64 iova = 0;

	if (unlikely(is_batch_aware_call(attrs) || attrs & DMA_ATTR_PRIVILEGED ||
		     dev->bus_dma_limit ||
		     may_be_shared(phys, size, dir, attrs, place != ALONE)))
		return 0;
	xs_enter();
	backend = xs_backend_now(dev);
	if (likely(backend && !READ_ONCE(backend->maps_fail) &&
		   size <= READ_ONCE(backend->engine.tuning.copy_bytes)))
		iova = xs_pool_map_one(&backend->engine.pool, phys, size,
				       directions[dir], *dev->dma_mask,
				       (place == IN_ROW ? PAGE_SIZE - 1 : 0) |
				       dma_get_min_align_mask(dev),
				       !(attrs & DMA_ATTR_SKIP_CPU_SYNC));
	xs_exit();
	if (iova)
		trace_map(dev, iova & PAGE_MASK, 1);
	return iova;
}

/* Frees a copy. False: the address is not in the pool. */
static __always_inline bool uncopy_one(struct device *dev, dma_addr_t handle,
				       unsigned long attrs)
{
	struct xs_backend *backend = xs_backend_of(dev);

	if (!xs_pool_has(&backend->engine.pool, handle))
		return false;
	trace_unmap(dev, handle & PAGE_MASK, 1);
	xs_enter();
	if (unlikely(!xs_pool_unmap_one(&backend->engine.pool, handle,
					!(attrs & DMA_ATTR_SKIP_CPU_SYNC))))
		xs_engine_report_ignored(&backend->engine, handle,
					 "an unmap of a copy that is not there");
	xs_exit();
	return true;
}

static __no_stack_protector dma_addr_t
copy_or_map(struct device *dev, phys_addr_t phys, size_t size,
	    enum dma_data_direction dir, unsigned long attrs)
{
	u64 iova = copy_one(dev, phys, size, dir, attrs, ALONE);

	if (likely(iova))
		return iova;
	return map_memory(dev, pfn_to_page(PHYS_PFN(phys)),
			  offset_in_page(phys), size, dir, attrs, false);
}

#ifdef XS_HAVE_MAP_PHYS
static dma_addr_t map_phys_or_copy(struct device *dev, phys_addr_t phys,
				   size_t size, enum dma_data_direction dir,
				   unsigned long attrs)
{
	if (unlikely(attrs & DMA_ATTR_MMIO))
		return map_mmio(dev, phys, size, dir, attrs);
	return copy_or_map(dev, phys, size, dir, attrs);
}
#else
static dma_addr_t map_page_or_copy(struct device *dev, struct page *page,
				   unsigned long offset, size_t size,
				   enum dma_data_direction dir,
				   unsigned long attrs)
{
	return copy_or_map(dev, page_to_phys(page) + offset, size, dir, attrs);
}
#endif

static void uncopy(struct device *dev, dma_addr_t handle, size_t size,
		   enum dma_data_direction dir, unsigned long attrs)
{
	if (unlikely(!uncopy_one(dev, handle, attrs)))
		unmap_memory(dev, handle, size, dir, attrs);
}

/* ---- lists ---- */

static u32 copy_bytes_of(struct device *dev)
{
	struct xs_backend *backend;
	u32 bytes = 0;

	xs_enter();
	backend = xs_backend_now(dev);
	if (backend)
		bytes = READ_ONCE(backend->engine.tuning.copy_bytes);
	xs_exit();
	return bytes;
}

/* Checks whether all segments can be copied and are small enough together. */
static bool is_small(struct device *dev, struct scatterlist *sgl, int nents)
{
	u32 left = copy_bytes_of(dev);
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		if (sg->length > left || !sg->length ||
		    is_pci_p2pdma_page(sg_page(sg)))
			return false;
		left -= sg->length;
	}
	return true;
}

static void uncopy_each(struct device *dev, struct scatterlist *sgl, int nents,
			unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i)
		uncopy_one(dev, sg_dma_address(sg), attrs);
}

/* A device may take a list for contiguous pages; then the offsets of segments matter. */
static enum place place_of(struct scatterlist *sgl, int nents)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i)
		if ((i && offset_in_page(sg->offset)) ||
		    (i < nents - 1 && offset_in_page(sg->offset + sg->length)))
			return IN_LIST;
	return nents > 1 ? IN_ROW : IN_LIST;
}

/* Copies all segments, or returns false and copies none. */
static bool copy_each(struct device *dev, struct scatterlist *sgl, int nents,
		      enum dma_data_direction dir, unsigned long attrs)
{
	enum place place = place_of(sgl, nents);
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		u64 iova = copy_one(dev, sg_phys(sg), sg->length, dir, attrs,
				    place);

		if (unlikely(!iova)) {
			uncopy_each(dev, sgl, i,
				    attrs | DMA_ATTR_SKIP_CPU_SYNC);
			return false;
		}
		sg_dma_address(sg) = iova;
		sg_dma_len(sg) = sg->length;
	}
	return true;
}

static int map_sg_or_copy(struct device *dev, struct scatterlist *sgl,
			  int nents, enum dma_data_direction dir,
			  unsigned long attrs)
{
	if (is_small(dev, sgl, nents) && copy_each(dev, sgl, nents, dir, attrs))
		return nents;
	return map_sg(dev, sgl, nents, dir, attrs);
}

/* Checks whether the segments of a mapped list are copies. */
static bool is_copied(struct device *dev, struct scatterlist *sgl)
{
	return sg_dma_len(sgl) && xs_pool_has(&xs_backend_of(dev)->engine.pool,
					      sg_dma_address(sgl));
}

static void uncopy_sg(struct device *dev, struct scatterlist *sgl, int nents,
		      enum dma_data_direction dir, unsigned long attrs)
{
	if (is_copied(dev, sgl))
		uncopy_each(dev, sgl, nents, attrs);
	else
		unmap_sg(dev, sgl, nents, dir, attrs);
}

/* ---- dma_sync_*() ---- */

/* A buffer that is not copied needs no sync, because the device uses the driver's memory. */
static void sync_one(struct device *dev, dma_addr_t handle, size_t size,
		     bool to_device)
{
	struct xs_backend *backend = xs_backend_of(dev);

	if (!xs_pool_has(&backend->engine.pool, handle))
		return;
	xs_enter();
	if (unlikely(size > XS_BOUNCE_MAX_BYTES ||
		     !xs_pool_sync(&backend->engine.pool, handle, size, to_device)))
		xs_engine_report_ignored(&backend->engine, handle,
					 "a sync of a copy that is not there");
	xs_exit();
}

static void sync_for_cpu(struct device *dev, dma_addr_t handle, size_t size,
			 enum dma_data_direction dir)
{
	if (dir != DMA_TO_DEVICE)
		sync_one(dev, handle, size, false);
}

static void sync_for_device(struct device *dev, dma_addr_t handle, size_t size,
			    enum dma_data_direction dir)
{
	if (dir != DMA_FROM_DEVICE)
		sync_one(dev, handle, size, true);
}

static void sync_list(struct device *dev, struct scatterlist *sgl, int nents,
		      bool to_device)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		if (!sg_dma_len(sg))
			break;
		sync_one(dev, sg_dma_address(sg), sg_dma_len(sg), to_device);
	}
}

static void sync_sg_for_cpu(struct device *dev, struct scatterlist *sgl,
			    int nents, enum dma_data_direction dir)
{
	if (dir != DMA_TO_DEVICE)
		sync_list(dev, sgl, nents, false);
}

static void sync_sg_for_device(struct device *dev, struct scatterlist *sgl,
			       int nents, enum dma_data_direction dir)
{
	if (dir != DMA_FROM_DEVICE)
		sync_list(dev, sgl, nents, true);
}
