// SPDX-License-Identifier: GPL-2.0-only
/*
 * The DMA API of an attached device.
 *
 * Each operation becomes a map or an unmap of whole pages in the group's engine. Devices are
 * coherent (others are refused at attach), so there is no cache maintenance and no bouncing
 * here. free() returns memory of alloc() to the allocator, so its unmap is flushed at once,
 * whatever the policy.
 */
#include <linux/dma-mapping.h>
#include <linux/memremap.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "compat/compat.h"
#include "xsmmu.h"
#include "trace.h"

/* Number of pages; 0, which no mapping has, if @size is 0 or more than a mapping can have. */
static u32 pages_of(u64 offset, size_t size)
{
	u64 pages = (size >> PAGE_SHIFT) +
		    ((offset_in_page(offset) + offset_in_page(size) +
		      PAGE_SIZE - 1) >> PAGE_SHIFT);

	return pages <= U32_MAX ? pages : 0;
}

/* Checks that @size bytes at @offset are within one page. @offset may be any address. */
static __always_inline bool is_in_page(u64 offset, size_t size)
{
	return size <= PAGE_SIZE - offset_in_page(offset);
}

/* The last address that the device can use with @mask; the end of a page. */
static u64 last_of(struct device *dev, u64 mask)
{
	if (dev->bus_dma_limit)
		mask = PAGE_ALIGN_DOWN(min(mask, dev->bus_dma_limit) + 1) - 1;
	return mask;
}

static const u32 prots[] = {
	[DMA_BIDIRECTIONAL] = IOMMU_CACHE | IOMMU_READ | IOMMU_WRITE,
	[DMA_TO_DEVICE] = IOMMU_CACHE | IOMMU_READ,
	[DMA_FROM_DEVICE] = IOMMU_CACHE | IOMMU_WRITE,
};

static u32 prot_of(enum dma_data_direction dir, unsigned long attrs)
{
	return prots[dir] | (attrs & DMA_ATTR_PRIVILEGED ? IOMMU_PRIV : 0);
}

/*
 * The kernel's debugging of the DMA API (CONFIG_DMA_API_DEBUG) knows only mappings of the
 * API's own calls. Where it is built in, the calls of batch-aware drivers go through the API,
 * too, marked by these attributes.
 */
#define ATTR_BATCH_AWARE	BIT(31)
#define ATTR_MAP_UNFLUSHED	BIT(30)

/* IOVA for the page of a block that this CPU is mapping through the DMA API. */
static DEFINE_PER_CPU(u64, block_iova);

static bool is_marked(unsigned long attrs)
{
	return IS_ENABLED(CONFIG_DMA_API_DEBUG) && attrs & ATTR_BATCH_AWARE;
}

static bool is_unflushed(unsigned long attrs)
{
	return IS_ENABLED(CONFIG_DMA_API_DEBUG) && attrs & ATTR_MAP_UNFLUSHED;
}

/*
 * Code that looks up a group's engine does so in a section: an RCU section of the engine, or,
 * for a range of more than a block, which may take long, an SRCU section of xs_backend_srcu.
 * The module waits for both before a group's domain or engine goes.
 */
static int section_begin(u32 pages)
{
	if (pages > XS_BLOCK_PAGES)
		return srcu_read_lock(&xs_backend_srcu);
	xs_enter();
	return 0;
}

static void section_end(u32 pages, int section)
{
	if (pages > XS_BLOCK_PAGES)
		srcu_read_unlock(&xs_backend_srcu, section);
	else
		xs_exit();
}

/* ---- streaming ---- */

/* Maps any range of memory. */
static noinline dma_addr_t map_pages(struct device *dev, phys_addr_t phys,
				     size_t size, u32 prot)
{
	u32 pages = pages_of(phys, size);
	int section = section_begin(pages);
	struct xs_group *group = xs_group_now(dev);
	u64 iova = 0;

	if (group)
		iova = xs_engine_map(&group->engine, phys & PAGE_MASK, pages,
				     prot, last_of(dev, *dev->dma_mask));
	section_end(pages, section);
	if (!iova)
		return DMA_MAPPING_ERROR;
	trace_map(dev, iova, pages);
	return iova + offset_in_page(phys);
}

/*
 * Maps any range of memory. A flush, if the map needs one, is left to __xsmmu_flush_maps(),
 * except that a range of more than a block is flushed at once.
 */
static noinline dma_addr_t map_pages_unflushed(struct device *dev,
					       phys_addr_t phys, size_t size,
					       u32 prot)
{
	u32 pages = pages_of(phys, size);
	int section = section_begin(pages);
	struct xs_group *group = xs_group_now(dev);
	u32 unflushed = group ? xs_backend_map_unflushed(group) : 0;
	u64 last = last_of(dev, *dev->dma_mask);
	u64 iova = 0;

	if (unflushed)
		iova = xs_engine_map_unflushed(&group->engine, phys & PAGE_MASK,
					       pages, prot | unflushed, last);
	else if (group)
		iova = xs_engine_map(&group->engine, phys & PAGE_MASK, pages,
				     prot, last);
	section_end(pages, section);
	if (!iova)
		return DMA_MAPPING_ERROR;
	trace_map(dev, iova, pages);
	if (xs_debug_on())
		xs_debug_map(dev, iova);
	return iova + offset_in_page(phys);
}

/*
 * Maps contiguous pages of a block from @iova. With XS_MAP_UNFLUSHED in @prot the maps are not
 * flushed. Returns the number of pages that are mapped.
 */
static u32 map_some_in_block(struct xs_group *group, u64 iova, const u64 *phys,
			     u32 count, u32 prot, bool deferred)
{
	u32 step = is_mapped_singly(group) ? 1 : count;
	u32 done = 0, some = step;

	for (; done < count && some == step; done += some)
		some = (deferred ? xs_engine_map_in_block_unflushed :
				  xs_engine_map_in_block)(
			&group->engine, iova + done * PAGE_SIZE, phys + done,
			step, prot);
	return done;
}

/*
 * Maps contiguous pages of a block from @iova, with one flush for all; with @deferred the
 * driver flushes. Returns the number of pages that are mapped.
 */
static u32 map_in_block(struct device *dev, u64 iova, const u64 *phys,
			u32 count, u32 prot, bool deferred)
{
	struct xs_range range = { iova >> PAGE_SHIFT };
	struct xs_group *group;
	u32 unflushed;

	xs_enter();
	group = xs_group_now(dev);
	if (group) {
		unflushed = xs_backend_map_unflushed(group);
		range.pages = map_some_in_block(group, iova, phys, count,
						prot | unflushed,
						deferred && unflushed);
		if (range.pages && unflushed && !deferred)
			xs_ops(&group->engine)->flush_maps(group, &range, 1);
	}
	xs_exit();
	if (!range.pages)
		return 0;
	trace_map(dev, iova, range.pages);
	for (u64 at = 0; deferred && xs_debug_on() && at < range.pages; at++)
		xs_debug_map(dev, iova + at * PAGE_SIZE);
	return range.pages;
}

static dma_addr_t map_marked(struct device *dev, struct page *page, u32 prot,
			     bool deferred)
{
	u64 iova = this_cpu_read(block_iova);
	u64 phys = page_to_phys(page);

	return map_in_block(dev, iova, &phys, 1, prot, deferred) ?
		iova : DMA_MAPPING_ERROR;
}

/* The device was detached. Ends the section. */
static noinline dma_addr_t map_late(void)
{
	xs_exit();
	return DMA_MAPPING_ERROR;
}

/* Maps a page without the map-side flush, which the driver does. Ends the section. */
static noinline dma_addr_t map_one_unflushed(struct device *dev,
					     struct xs_group *group,
					     phys_addr_t phys,
					     enum dma_data_direction dir)
{
	u64 iova = xs_engine_map_unflushed(&group->engine, phys & PAGE_MASK, 1,
					   prots[dir] | XS_MAP_UNFLUSHED,
					   *dev->dma_mask);

	xs_exit();
	return iova ? iova + offset_in_page(phys) : DMA_MAPPING_ERROR;
}

/*
 * Maps @size bytes at @offset of @page; with @deferred as map_pages_unflushed(). Rare cases
 * are left to map_pages() and map_pages_unflushed(), which get all that they need as
 * arguments.
 */
static __always_inline dma_addr_t map_memory(struct device *dev,
					     struct page *page,
					     unsigned long offset, size_t size,
					     enum dma_data_direction dir,
					     unsigned long attrs, bool deferred)
{
	const struct dma_map_ops *ops;
	u64 iova;

	if (is_marked(attrs))
		return map_marked(dev, page, prot_of(dir, attrs),
				  is_unflushed(attrs));
	if (deferred ? unlikely(xs_debug_on()) : is_unflushed(attrs))
		return map_pages_unflushed(dev, page_to_phys(page) + offset, size,
					   prot_of(dir, attrs));
	if (unlikely(offset >= PAGE_SIZE || size > PAGE_SIZE - offset ||
		     attrs & DMA_ATTR_PRIVILEGED || dev->bus_dma_limit ||
		     trace_map_enabled()))
		return (deferred ? map_pages_unflushed : map_pages)(
			dev, page_to_phys(page) + offset, size,
			prot_of(dir, attrs));
	xs_enter();
	/* As xs_group_now(). */
	ops = READ_ONCE(dev->dma_ops);
	if (unlikely(!xs_is_instance(ops)))
		return map_late();
	if (deferred && unlikely(xs_instance_group(ops)->iommu.flushes_maps))
		return map_one_unflushed(dev, xs_instance_group(ops),
					 page_to_phys(page) + offset, dir);
	iova = xs_engine_map_one(&xs_instance_group(ops)->engine, page,
				 page_to_phys(page), prots[dir],
				 *dev->dma_mask);
	if (unlikely(!iova))
		return DMA_MAPPING_ERROR;
	return iova + offset;
}

/*
 * Unmaps any range. False: the range is not mapped as named; or, with @now, the device may
 * still access the range.
 */
static noinline bool unmap_pages(struct device *dev, dma_addr_t handle,
				 size_t size, bool now)
{
	u32 pages = pages_of(handle, size);
	bool unmapped;
	int section;

	trace_unmap(dev, handle & PAGE_MASK, pages);
	section = section_begin(pages);
	unmapped = xs_engine_unmap(&xs_group_of(dev)->engine,
				   handle & PAGE_MASK, pages, now);
	section_end(pages, section);
	return unmapped;
}

/* Unmaps any range without a flush. */
static noinline void unmap_pages_deferred(struct device *dev, dma_addr_t handle,
					  size_t size)
{
	u32 pages = pages_of(handle, size);
	int section;

	if (xs_debug_on())
		xs_debug_unmap(dev, handle, size);
	trace_unmap(dev, handle & PAGE_MASK, pages);
	section = section_begin(pages);
	xs_engine_unmap_deferred(&xs_group_of(dev)->engine, handle & PAGE_MASK,
				 pages);
	section_end(pages, section);
}

static __always_inline void unmap_memory_deferred(struct device *dev,
						  dma_addr_t handle, size_t size)
{
	if (unlikely(!is_in_page(handle, size) || trace_unmap_enabled() ||
		     xs_debug_on()))
		unmap_pages_deferred(dev, handle, size);
	else
		xs_engine_unmap_one_deferred(&xs_group_of(dev)->engine, handle);
}

static void unmap_memory(struct device *dev, dma_addr_t handle, size_t size,
			 enum dma_data_direction dir, unsigned long attrs)
{
	if (is_marked(attrs))
		unmap_memory_deferred(dev, handle, size);
	else if (unlikely(!is_in_page(handle, size) || trace_unmap_enabled()))
		unmap_pages(dev, handle, size, false);
	else
		xs_engine_unmap_one(&xs_group_of(dev)->engine, handle);
}

/*
 * Ends a map of several steps: flushes the map; or, if a step has failed with @error, undoes
 * all of it. Returns @iova, or 0 after an error. *@lost: the IOMMU driver could not undo the
 * map, so devices may access the memory and nobody may free the memory.
 */
static __always_inline u64 map_end(struct xs_group *group, u64 iova, u32 pages,
				   int error, bool *lost)
{
	if (!error)
		error = xs_backend_flush_maps(group, iova, pages);
	if (likely(!error))
		return iova;
	*lost = !xs_backend_undo(group, iova, pages, error);
	return 0;
}

/* Logs memory of the module that is not freed, because a failed map could not be undone. */
static void tell_lost(struct device *dev, size_t size)
{
	dev_err_ratelimited(dev, "xsmmu: %zu bytes of memory are lost: a map failed, and devices may still access them\n",
			    size);
}

/*
 * The group of @dev in which a map of several pages may reserve IOVAs. NULL: there is none, or
 * the group is leaving its domain. Then each map fails and is counted as failed; after a
 * failed removal the undo of the map would fail, too, and IOVAs and memory would be lost with
 * each map. Called in an SRCU section of xs_backend_srcu.
 */
static struct xs_group *group_to_map(struct device *dev)
{
	struct xs_group *group = xs_group_now(dev);

	if (likely(!group || !READ_ONCE(group->leaves)))
		return group;
	xs_enter();
	xs_engine_map_failed(&group->engine);
	xs_exit();
	return NULL;
}

/* Device registers have no memory to hold, and may have no struct page. */
static dma_addr_t map_mmio(struct device *dev, phys_addr_t phys, size_t size,
			   enum dma_data_direction dir, unsigned long attrs)
{
	int section = srcu_read_lock(&xs_backend_srcu);
	struct xs_group *group = group_to_map(dev);
	u32 pages = pages_of(phys, size);
	u64 iova = 0;
	int error = 0;

	if (group)
		iova = xs_engine_reserve(&group->engine, pages,
					 last_of(dev, *dev->dma_mask));
	if (iova)
		error = xs_engine_fill(&group->engine, iova, phys & PAGE_MASK,
				       pages, prot_of(dir, attrs) | IOMMU_MMIO);
	if (error) {
		xs_backend_undo(group, iova, pages, error);
		iova = 0;
	}
	srcu_read_unlock(&xs_backend_srcu, section);
	if (!iova)
		return DMA_MAPPING_ERROR;
	trace_map(dev, iova, pages);
	return iova + offset_in_page(phys);
}

#ifdef XS_HAVE_MAP_PHYS
static dma_addr_t map_phys(struct device *dev, phys_addr_t phys, size_t size,
			   enum dma_data_direction dir, unsigned long attrs)
{
	if (unlikely(attrs & DMA_ATTR_MMIO))
		return map_mmio(dev, phys, size, dir, attrs);
	return map_memory(dev, pfn_to_page(phys >> PAGE_SHIFT),
			  offset_in_page(phys), size, dir, attrs, false);
}
#else
static __no_stack_protector dma_addr_t map_page(struct device *dev,
			   struct page *page,
			   unsigned long offset, size_t size,
			   enum dma_data_direction dir, unsigned long attrs)
{
	/*
	 * @page is the page of the folio in which the buffer starts, so that @offset is less than
	 * a page.
	 */
	if (unlikely(offset >= PAGE_SIZE)) {
		page += offset >> PAGE_SHIFT;
		offset = offset_in_page(offset);
	}
	return map_memory(dev, page, offset, size, dir, attrs, false);
}
#endif

/* ---- scatter-gather ---- */

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
static int sg_fill(struct xs_engine *engine, struct scatterlist *sgl,
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
	struct xs_group *group = group_to_map(dev);
	u64 iova = 0;
	bool lost;
	int error;

	if (group)
		iova = xs_engine_reserve(&group->engine, pages,
					 last_of(dev, *dev->dma_mask));
	if (iova) {
		prot |= xs_backend_map_unflushed(group);
		error = phys ?
			xs_engine_fill_each(&group->engine, iova, phys, pages,
					    prot) :
			sg_fill(&group->engine, sgl, nents, iova, prot);
		iova = map_end(group, iova, pages, error, &lost);
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
	struct xs_group *group = xs_group_of(dev);
	u64 start;
	u64 bytes = sg_range(sgl, nents, &start);

	if (unlikely(group->iommu.exact_unmap) && is_padded(sgl, nents)) {
		u32 pages = pages_of(start, bytes);
		int section = section_begin(pages);

		trace_unmap(dev, start, pages);
		xs_backend_unmap_partial(group, start, pages);
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
	unmap_list(dev, sgl, nents, is_marked(attrs));
}

/* ---- coherent memory ---- */

static struct page *alloc_contiguous(struct device *dev, size_t size, gfp_t gfp)
{
	if (xs_fails())
		return NULL;
	return alloc_pages_node(dev_to_node(dev),
				gfp | __GFP_ZERO | __GFP_NOWARN,
				get_order(size));
}

static int fill_contiguous(struct xs_engine *engine, u64 iova, u64 start,
			   u32 count, u32 prot)
{
	u64 phys[XS_BLOCK_PAGES];

	if (count > XS_BLOCK_PAGES)
		return xs_engine_fill(engine, iova, start, count, prot);
	for (u32 i = 0; i < count; i++)
		phys[i] = start + ((u64)i << PAGE_SHIFT);
	return xs_engine_fill_each(engine, iova, phys, count, prot);
}

/*
 * Maps physically contiguous memory for alloc() and alloc_pages(). Returns 0 on failure; then
 * the memory is freed, unless devices may access the memory.
 */
static u64 map_contiguous(struct device *dev, struct page *page, size_t size,
			  u32 prot, u64 last)
{
	int section = srcu_read_lock(&xs_backend_srcu);
	struct xs_group *group = group_to_map(dev);
	u32 count = pages_of(0, size);
	u64 iova = group ? xs_engine_reserve(&group->engine, count, last) : 0;
	bool lost = false;
	int error;

	if (iova) {
		error = fill_contiguous(&group->engine, iova,
					page_to_phys(page), count,
					prot | xs_backend_map_unflushed(group));
		iova = map_end(group, iova, count, error, &lost);
	}
	srcu_read_unlock(&xs_backend_srcu, section);
	if (iova)
		trace_map(dev, iova, count);
	else if (lost)
		tell_lost(dev, size);
	else
		__free_pages(page, get_order(size));
	return iova;
}

/* Allocates @count single pages and the array of them. NULL: no memory. */
static struct page **alloc_each(struct device *dev, u32 count, gfp_t gfp)
{
	struct page **pages = NULL;
	u32 done;

	if (count && !xs_fails())
		pages = kvcalloc(count, sizeof(*pages), GFP_KERNEL);
	for (done = 0; pages && done < count; done++) {
		pages[done] = alloc_contiguous(dev, PAGE_SIZE, gfp);
		if (pages[done])
			continue;
		while (done)
			__free_page(pages[--done]);
		kvfree(pages);
		return NULL;
	}
	return pages;
}

static void free_each(struct page **pages, u32 count)
{
	while (count)
		__free_page(pages[--count]);
	kvfree(pages);
}

static int fill_each(struct xs_engine *engine, u64 iova, struct page **pages,
		     u32 count, u32 prot)
{
	u64 phys[XS_BLOCK_PAGES];
	int error = 0;
	u32 i;

	for (i = 0; i < count && i < XS_BLOCK_PAGES; i++)
		phys[i] = page_to_phys(pages[i]);
	if (count <= XS_BLOCK_PAGES)
		return xs_engine_fill_each(engine, iova, phys, count, prot);
	for (i = 0; i < count && !error; i++)
		error = xs_engine_fill(engine, iova + ((u64)i << PAGE_SHIFT),
				       page_to_phys(pages[i]), 1, prot);
	return error;
}

/*
 * Maps pages to contiguous IOVAs. Returns 0 on failure. *@lost: the device may access the
 * pages, so nobody may free them.
 */
static u64 map_each(struct device *dev, struct page **pages, u32 count,
		    u32 prot, u64 last, bool *lost)
{
	int section = srcu_read_lock(&xs_backend_srcu);
	struct xs_group *group = group_to_map(dev);
	u64 iova = group ? xs_engine_reserve(&group->engine, count, last) : 0;
	int error;

	*lost = false;
	if (iova) {
		error = fill_each(&group->engine, iova, pages, count,
				  prot | xs_backend_map_unflushed(group));
		iova = map_end(group, iova, count, error, lost);
	}
	srcu_read_unlock(&xs_backend_srcu, section);
	if (iova)
		trace_map(dev, iova, count);
	return iova;
}

/*
 * Allocates scattered pages, which vmap() makes contiguous for the CPU and the IOMMU for the
 * device. VM_MAP_PUT_PAGES gives the pages and the array to the vmap area, so vfree() frees
 * everything.
 */
static void *alloc_scattered(struct device *dev, size_t size, gfp_t gfp,
			     u32 prot, u64 last, dma_addr_t *handle)
{
	u32 count = pages_of(0, size);
	struct page **pages = alloc_each(dev, count, gfp);
	void *address = NULL;
	bool lost;
	u64 iova;

	if (!pages)
		return NULL;
	iova = map_each(dev, pages, count, prot, last, &lost);
	if (iova && !xs_fails())
		address = vmap(pages, count, VM_MAP | VM_MAP_PUT_PAGES,
			       PAGE_KERNEL);
	if (address) {
		*handle = iova;
		return address;
	}
	if (iova)
		lost = !unmap_pages(dev, iova, size, true);
	if (lost)
		tell_lost(dev, size);
	else
		free_each(pages, count);
	return NULL;
}

/* Up to this size, contiguous memory is tried before scattered pages. */
#define CONTIGUOUS_MAX	(PAGE_SIZE << PAGE_ALLOC_COSTLY_ORDER)

static void *alloc_coherent(struct device *dev, size_t size, dma_addr_t *handle,
			    gfp_t gfp, unsigned long attrs)
{
	u64 last = last_of(dev, dev->coherent_dma_mask);
	u32 prot = prot_of(DMA_BIDIRECTIONAL, attrs);
	bool scatter = gfpflags_allow_blocking(gfp) &&
		       !(attrs & DMA_ATTR_FORCE_CONTIGUOUS);
	struct page *page = NULL;
	u64 iova;

	if (!scatter || size <= CONTIGUOUS_MAX)
		page = alloc_contiguous(dev, size, gfp);
	if (!page)
		return scatter ? alloc_scattered(dev, size, gfp, prot, last,
						 handle) : NULL;
	iova = map_contiguous(dev, page, size, prot, last);
	if (!iova)
		return NULL;
	*handle = iova;
	return page_address(page);
}

static void free_coherent(struct device *dev, size_t size, void *address,
			  dma_addr_t handle, unsigned long attrs)
{
	int section = srcu_read_lock(&xs_backend_srcu);

	/* Memory that another path has allocated is not freed, either. */
	if (!unmap_pages(dev, handle, PAGE_ALIGN(size), true))
		;
	else if (is_vmalloc_addr(address))
		vfree(address);
	else
		__free_pages(virt_to_page(address), get_order(size));
	srcu_read_unlock(&xs_backend_srcu, section);
}

static struct page *alloc_noncoherent(struct device *dev, size_t size,
				      dma_addr_t *handle,
				      enum dma_data_direction dir, gfp_t gfp)
{
	struct page *page = alloc_contiguous(dev, size, gfp);
	u64 iova;

	if (!page)
		return NULL;
	iova = map_contiguous(dev, page, size, prot_of(dir, 0),
			      last_of(dev, dev->coherent_dma_mask));
	if (!iova)
		return NULL;
	*handle = iova;
	return page;
}

static void free_noncoherent(struct device *dev, size_t size, struct page *page,
			     dma_addr_t handle, enum dma_data_direction dir)
{
	int section = srcu_read_lock(&xs_backend_srcu);

	if (unmap_pages(dev, handle, PAGE_ALIGN(size), true))
		__free_pages(page, get_order(size));
	srcu_read_unlock(&xs_backend_srcu, section);
}

/*
 * An operation up to 6.11. Later, dma_alloc_noncontiguous() allocates contiguous memory unless
 * the operations are the kernel's own.
 */
#ifdef XS_HAVE_ALLOC_NONCONTIGUOUS
static struct sg_table *alloc_noncontiguous(struct device *dev, size_t size,
					    enum dma_data_direction dir,
					    gfp_t gfp, unsigned long attrs)
{
	u32 count = pages_of(0, size);
	struct dma_sgt_handle *memory = xs_fails() ?
		NULL : kzalloc(sizeof(*memory), GFP_KERNEL);
	bool lost = false;
	u64 iova;

	if (!memory)
		return NULL;
	memory->pages = alloc_each(dev, count, gfp);
	if (!memory->pages)
		goto free;
	if (sg_alloc_table_from_pages(&memory->sgt, memory->pages, count, 0,
				      PAGE_ALIGN(size), GFP_KERNEL))
		goto free_pages;
	iova = map_each(dev, memory->pages, count, prot_of(dir, attrs),
			last_of(dev, dev->coherent_dma_mask), &lost);
	if (!iova)
		goto free_table;
	sg_dma_address(memory->sgt.sgl) = iova;
	sg_dma_len(memory->sgt.sgl) = size;
	return &memory->sgt;

free_table:
	sg_free_table(&memory->sgt);
free_pages:
	if (lost)
		tell_lost(dev, size);
	else
		free_each(memory->pages, count);
free:
	kfree(memory);
	return NULL;
}

static void free_noncontiguous(struct device *dev, size_t size,
			       struct sg_table *sgt,
			       enum dma_data_direction dir)
{
	struct dma_sgt_handle *memory = sgt_handle(sgt);
	int section = srcu_read_lock(&xs_backend_srcu);

	if (unmap_pages(dev, sg_dma_address(sgt->sgl), PAGE_ALIGN(size),
			true)) {
		free_each(memory->pages, pages_of(0, size));
		sg_free_table(sgt);
		kfree(memory);
	}
	srcu_read_unlock(&xs_backend_srcu, section);
}
#endif

static struct page *page_at(void *address, size_t offset)
{
	address += offset;
	return is_vmalloc_addr(address) ? vmalloc_to_page(address) :
					  virt_to_page(address);
}

static int mmap_coherent(struct device *dev, struct vm_area_struct *vma,
			 void *address, dma_addr_t handle, size_t size,
			 unsigned long attrs)
{
	size_t pages = PAGE_ALIGN(size) >> PAGE_SHIFT;
	size_t wanted = vma_pages(vma);
	int error = 0;
	size_t i;

	if (vma->vm_pgoff >= pages || wanted > pages - vma->vm_pgoff)
		return -ENXIO;
	address += vma->vm_pgoff << PAGE_SHIFT;
	if (!is_vmalloc_addr(address))
		return remap_pfn_range(vma, vma->vm_start,
				       page_to_pfn(virt_to_page(address)),
				       wanted << PAGE_SHIFT, vma->vm_page_prot);
	for (i = 0; i < wanted && !error; i++)
		error = vm_insert_page(vma, vma->vm_start + (i << PAGE_SHIFT),
				       page_at(address, i << PAGE_SHIFT));
	return error;
}

static int get_sgtable(struct device *dev, struct sg_table *table,
		       void *address, dma_addr_t handle, size_t size,
		       unsigned long attrs)
{
	u32 count = pages_of(0, size);
	struct page **pages;
	int error;
	u32 i;

	pages = kvcalloc(count, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		pages[i] = page_at(address, (size_t)i << PAGE_SHIFT);
	error = sg_alloc_table_from_pages(table, pages, count, 0,
					  PAGE_ALIGN(size), GFP_KERNEL);
	kvfree(pages);
	return error;
}

/* ---- hints ---- */

/* Larger mappings are not placed in blocks, and their own unmap flushes them. */
static size_t opt_mapping_size(void)
{
	return XS_BLOCK_BYTES;
}

/* Segments that meet at a page boundary can be joined. */
static unsigned long get_merge_boundary(struct device *dev)
{
	return PAGE_SIZE - 1;
}
