// SPDX-License-Identifier: GPL-2.0-only
/*
 * Scatter lists of an attached device. Part of path.c.
 */
#include <linux/dma-mapping.h>
#include <linux/memremap.h>
#include <linux/scatterlist.h>

#include "../trace.h"
#include "instance.h"

/* Number of pages of a segment. */
static __always_inline u32 sg_size(const struct scatterlist *sg)
{
	return ((u64)offset_in_page(sg->offset) + sg->length + PAGE_SIZE - 1) >>
	       PAGE_SHIFT;
}

/*
 * The layout of a list: each segment starts on an IOVA page of its own, and the pages of all
 * segments are contiguous. Where a segment would cross the device's segment boundary, padding
 * moves the segment up to the boundary; the start of the range is aligned at least as far.
 * Returns the number of pages before the next segment, which has @size pages and follows
 * @pages pages.
 */
static __always_inline u32 sg_pad(u64 boundary, u32 size, u32 pages)
{
	if (size - 1 <= boundary && (pages & boundary) + size - 1 > boundary)
		return ALIGN((u64)pages, boundary + 1);
	return pages;
}

/*
 * Number of pages of the whole range, padding included, or a negative errno for a list that
 * cannot be mapped. Writes the physical addresses of the pages to @phys, from the first page
 * up to at most a block, and the offset of each segment in the range to the segment.
 */
static s64 sg_pages(struct device *dev, struct scatterlist *sgl, int nents,
		    u64 *phys)
{
	u64 boundary = dma_get_seg_boundary(dev) >> PAGE_SHIFT;
	struct scatterlist *sg;
	u64 pages = 0;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		u64 at = sg_phys(sg) & PAGE_MASK;
		u32 size = sg_size(sg);
		u64 first = sg_pad(boundary, size, pages);
		u64 end = first + size;

		if (is_pci_p2pdma_page(sg_page(sg)))
			return -EREMOTEIO;
		if (unlikely(end > INT_MAX))
			return -EINVAL;
		sg_dma_address(sg) = first << PAGE_SHIFT;
		if (likely(end <= XS_BLOCK_PAGES)) {
			while (unlikely(pages < first))
				phys[pages++] = XS_PHYS_NONE;
			for (; pages < end; at += PAGE_SIZE)
				phys[pages++] = at;
		}
		pages = end;
	}
	return pages;
}

/*
 * Maps the segments of a range of more pages than a block. Physically contiguous segments are
 * mapped in one call.
 */
static int sg_fill_segments(struct xs_engine *engine, struct scatterlist *sgl,
			    int nents, u64 iova, u32 prot)
{
	u64 extent_iova = 0, extent_phys = 0;
	struct scatterlist *sg;
	u32 extent_pages = 0;
	int error, i;

	for_each_sg(sgl, sg, nents, i) {
		u64 phys = sg_phys(sg) & PAGE_MASK;
		u64 at = iova + sg_dma_address(sg);

		if (extent_pages &&
		    (phys != extent_phys + ((u64)extent_pages << PAGE_SHIFT) ||
		     at != extent_iova + ((u64)extent_pages << PAGE_SHIFT))) {
			error = xs_engine_fill(engine, extent_iova, extent_phys,
					       extent_pages, prot);
			if (error)
				return error;
			extent_pages = 0;
		}
		if (!extent_pages) {
			extent_iova = at;
			extent_phys = phys;
		}
		extent_pages += sg_size(sg);
	}
	return xs_engine_fill(engine, extent_iova, extent_phys, extent_pages, prot);
}

/* As xs_engine_fill_each(), for a range of more pages than a block. */
static int sg_fill(struct xs_engine *engine, struct scatterlist *sgl, int nents,
		   u64 iova, u32 pages, u32 prot)
{
	int error = sg_fill_segments(engine, sgl, nents, iova, prot);

	xs_engine_publish(engine, iova, pages);
	return error;
}

/* As on the kernel's own path. A driver may walk a list up to the first length of 0. */
static void sg_clear(struct scatterlist *sg, int count)
{
	for (; count; count--, sg = sg_next(sg)) {
		sg_dma_address(sg) = DMA_MAPPING_ERROR;
		sg_dma_len(sg) = 0;
	}
}

/*
 * Writes the DMA addresses and joins segments that are neighbours in IOVA as far as the device
 * allows. Clears the entries behind the last DMA segment. Returns the number of DMA segments.
 */
static int sg_finish(struct device *dev, struct scatterlist *sgl, int nents,
		     u64 iova)
{
	unsigned int longest = dma_get_max_seg_size(dev);
	u64 boundary = dma_get_seg_boundary(dev);
	struct scatterlist *sg, *out = NULL;
	int count = 0, i;

	for_each_sg(sgl, sg, nents, i) {
		u64 at = iova + sg_dma_address(sg) +
			 offset_in_page(sg->offset);
		unsigned int length = sg->length;

		/*
		 * Clears all entries. @out is @sg or an earlier entry, and is written after this.
		 */
		sg_dma_address(sg) = DMA_MAPPING_ERROR;
		sg_dma_len(sg) = 0;
		if (out && at == sg_dma_address(out) + sg_dma_len(out) &&
		    length <= longest - min(longest, sg_dma_len(out)) &&
		    (sg_dma_address(out) | boundary) ==
		    ((at + length - 1) | boundary)) {
			sg_dma_len(out) += length;
			continue;
		}
		out = out ? sg_next(out) : sgl;
		sg_dma_address(out) = at;
		sg_dma_len(out) = length;
		count++;
	}
	return count;
}

/* If the driver unmaps the list nevertheless, nothing is unmapped. */
static int sg_refuse(struct scatterlist *sgl, int nents, int error)
{
	sg_clear(sgl, nents);
	return error;
}

/* Maps a list of one segment. The segment starts its range, and so crosses no boundary. */
static int map_segment(struct device *dev, struct scatterlist *sg,
		       enum dma_data_direction dir, unsigned long attrs)
{
	dma_addr_t at;

	if (is_pci_p2pdma_page(sg_page(sg)))
		return sg_refuse(sg, 1, -EREMOTEIO);
	if (!sg->length)
		return sg_refuse(sg, 1, -EINVAL);
	at = map_pages(dev, sg_phys(sg), sg->length, prot_of(dir, attrs));
	if (at == DMA_MAPPING_ERROR)
		return sg_refuse(sg, 1, -ENOMEM);
	sg_dma_address(sg) = at;
	sg_dma_len(sg) = sg->length;
	return 1;
}

/*
 * Maps a list of @pages pages, at @phys if not NULL, to a range. Returns the range's start, or
 * 0.
 */
static u64 map_segments(struct device *dev, struct scatterlist *sgl, int nents,
			const u64 *phys, u32 pages, u32 prot)
{
	int section = srcu_read_lock(&xs_backend_srcu);
	struct xs_backend *backend = backend_to_map(dev);
	u64 iova = 0;
	bool lost;
	int error;

	if (backend)
		iova = xs_engine_alloc_iova(&backend->engine, pages,
					    last_address(dev, *dev->dma_mask));
	if (iova) {
		prot |= xs_backend_unflushed_flag(backend);
		error = phys ?
			xs_engine_fill_each(&backend->engine, iova, phys, pages,
					    prot) :
			sg_fill(&backend->engine, sgl, nents, iova, pages, prot);
		iova = map_end(backend, iova, pages, error, &lost);
	}
	srcu_read_unlock(&xs_backend_srcu, section);
	return iova;
}

static noinline int map_list(struct device *dev, struct scatterlist *sgl,
			     int nents, u32 prot)
{
	u64 phys[XS_BLOCK_PAGES];
	s64 pages;
	u64 iova;

	pages = sg_pages(dev, sgl, nents, phys);
	if (pages <= 0)
		return sg_refuse(sgl, nents, pages ? pages : -EINVAL);
	iova = map_segments(dev, sgl, nents,
			    pages <= XS_BLOCK_PAGES ? phys : NULL, pages, prot);
	if (!iova)
		return sg_refuse(sgl, nents, -ENOMEM);
	trace_map(dev, iova, pages);
	return sg_finish(dev, sgl, nents, iova);
}

static int map_sg(struct device *dev, struct scatterlist *sgl, int nents,
		  enum dma_data_direction dir, unsigned long attrs)
{
	return nents == 1 ? map_segment(dev, sgl, dir, attrs) :
			    map_list(dev, sgl, nents, prot_of(dir, attrs));
}

/* Length of a mapped list in bytes, from *@start, the start of a page. */
static u64 sg_range(struct scatterlist *sgl, int nents, u64 *start)
{
	struct scatterlist *sg;
	u64 end = *start = sg_dma_address(sgl) & PAGE_MASK;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		if (!sg_dma_len(sg))
			break;
		end = sg_dma_address(sg) + sg_dma_len(sg);
	}
	return end - *start;
}

/* Checks whether the range of a list has padding. */
static bool is_padded(struct scatterlist *sgl, int nents)
{
	u64 end = U64_MAX - PAGE_SIZE;
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		if (!sg_dma_len(sg))
			break;
		if ((sg_dma_address(sg) & PAGE_MASK) > PAGE_ALIGN(end))
			return true;
		end = sg_dma_address(sg) + sg_dma_len(sg);
	}
	return false;
}

/*
 * Unmaps a list. Where removals must be exact (@exact_unmap), a range with padding is removed
 * part by part, and flushed at once.
 */
static void unmap_list(struct device *dev, struct scatterlist *sgl, int nents,
		       bool deferred)
{
	struct xs_backend *backend = xs_backend_of(dev);
	u64 start;
	u64 bytes = sg_range(sgl, nents, &start);

	if (unlikely(backend->domain.iommu.exact_unmap) && is_padded(sgl, nents)) {
		u32 pages = pages_of(start, bytes);
		int section = section_begin(pages);

		trace_unmap(dev, start, pages);
		xs_backend_unmap_sparse(backend, start, pages);
		section_end(pages, section);
	} else if (deferred) {
		unmap_pages_deferred(dev, start, bytes);
	} else {
		unmap_pages(dev, start, bytes, false);
	}
}

static void unmap_sg(struct device *dev, struct scatterlist *sgl, int nents,
		     enum dma_data_direction dir, unsigned long attrs)
{
	unmap_list(dev, sgl, nents, is_batch_aware_call(attrs));
}
