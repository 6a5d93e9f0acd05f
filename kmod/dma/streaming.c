// SPDX-License-Identifier: GPL-2.0-only
/*
 * Streaming mappings of an attached device: single buffers and device registers. Part of path.c.
 *
 * Each operation becomes a map or an unmap of whole pages in the group's engine. Devices are
 * coherent (others are refused at attach), so there is no cache maintenance and no bouncing
 * here.
 */
#include <linux/dma-mapping.h>

#include "../compat/compat.h"
#include "../debug.h"
#include "../trace.h"
#include "instance.h"
#include "misuse.h"

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
static u64 last_address(struct device *dev, u64 mask)
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

static bool is_batch_aware_call(unsigned long attrs)
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

/* Maps any range of memory. */
static noinline dma_addr_t map_pages(struct device *dev, phys_addr_t phys,
				     size_t size, u32 prot)
{
	u32 pages = pages_of(phys, size);
	int section = section_begin(pages);
	struct xs_backend *backend = xs_backend_now(dev);
	u64 iova = 0;

	if (backend)
		iova = xs_engine_map(&backend->engine, phys & PAGE_MASK, pages,
				     prot, last_address(dev, *dev->dma_mask));
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
	struct xs_backend *backend = xs_backend_now(dev);
	u32 flag = backend ? xs_backend_unflushed_flag(backend) : 0;
	u64 last = last_address(dev, *dev->dma_mask);
	u64 iova = 0;

	if (flag)
		iova = xs_engine_map_unflushed(&backend->engine, phys & PAGE_MASK,
					       pages, prot | flag, last);
	else if (backend)
		iova = xs_engine_map(&backend->engine, phys & PAGE_MASK, pages,
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
static u32 map_some_in_block(struct xs_backend *backend, u64 iova, const u64 *phys,
			     u32 count, u32 prot, bool unflushed)
{
	u32 step = xs_backend_maps_singly(backend) ? 1 : count;
	u32 done = 0, some = step;

	for (; done < count && some == step; done += some)
		some = (unflushed ? xs_engine_map_in_block_unflushed :
				  xs_engine_map_in_block)(
			&backend->engine, iova + done * PAGE_SIZE, phys + done,
			step, prot);
	return done;
}

/*
 * Maps contiguous pages of a block from @iova, with one flush for all; with @unflushed the
 * driver flushes. Returns the number of pages that are mapped.
 */
static u32 map_in_block(struct device *dev, u64 iova, const u64 *phys,
			u32 count, u32 prot, bool unflushed)
{
	struct xs_range range = { iova >> PAGE_SHIFT };
	struct xs_backend *backend;
	u32 flag;

	xs_enter();
	backend = xs_backend_now(dev);
	if (backend) {
		flag = xs_backend_unflushed_flag(backend);
		range.pages = map_some_in_block(backend, iova, phys, count,
						prot | flag,
						unflushed && flag);
		if (range.pages && flag && !unflushed)
			xs_ops(&backend->engine)->flush_maps(backend, &range, 1);
	}
	xs_exit();
	if (!range.pages)
		return 0;
	trace_map(dev, iova, range.pages);
	for (u64 at = 0; unflushed && xs_debug_on() && at < range.pages; at++)
		xs_debug_map(dev, iova + at * PAGE_SIZE);
	return range.pages;
}

static dma_addr_t map_block_page(struct device *dev, struct page *page, u32 prot,
				 bool unflushed)
{
	u64 iova = this_cpu_read(block_iova);
	u64 phys = page_to_phys(page);

	return map_in_block(dev, iova, &phys, 1, prot, unflushed) ?
		iova : DMA_MAPPING_ERROR;
}

/* The device was detached. Ends the section. */
static noinline dma_addr_t map_after_detach(void)
{
	xs_exit();
	return DMA_MAPPING_ERROR;
}

/* Maps a page without the map-side flush, which the driver does. Ends the section. */
static noinline dma_addr_t map_one_unflushed(struct device *dev,
					     struct xs_backend *backend,
					     phys_addr_t phys,
					     enum dma_data_direction dir)
{
	u64 iova = xs_engine_map_unflushed(&backend->engine, phys & PAGE_MASK, 1,
					   prots[dir] | XS_MAP_UNFLUSHED,
					   *dev->dma_mask);

	xs_exit();
	return iova ? iova + offset_in_page(phys) : DMA_MAPPING_ERROR;
}

/*
 * Maps @size bytes at @offset of @page; with @unflushed as map_pages_unflushed(). Rare cases
 * are left to map_pages() and map_pages_unflushed(), which get all that they need as
 * arguments.
 */
static __always_inline dma_addr_t map_memory(struct device *dev,
					     struct page *page,
					     unsigned long offset, size_t size,
					     enum dma_data_direction dir,
					     unsigned long attrs, bool unflushed)
{
	const struct dma_map_ops *ops;
	u64 iova;

	if (is_batch_aware_call(attrs))
		return map_block_page(dev, page, prot_of(dir, attrs),
				      is_unflushed(attrs));
	/* With debug=1 each unflushed map is recorded. */
	if (unflushed ? unlikely(xs_debug_on()) : is_unflushed(attrs))
		return map_pages_unflushed(dev, page_to_phys(page) + offset, size,
					   prot_of(dir, attrs));
	if (unlikely(offset >= PAGE_SIZE || size > PAGE_SIZE - offset ||
		     attrs & DMA_ATTR_PRIVILEGED || dev->bus_dma_limit ||
		     trace_map_enabled()))
		return (unflushed ? map_pages_unflushed : map_pages)(
			dev, page_to_phys(page) + offset, size,
			prot_of(dir, attrs));
	xs_enter();
	/* As xs_backend_now(). */
	ops = READ_ONCE(dev->dma_ops);
	if (unlikely(!xs_is_instance(ops)))
		return map_after_detach();
	if (unflushed && unlikely(xs_instance_backend(ops)->domain.iommu.flushes_maps))
		return map_one_unflushed(dev, xs_instance_backend(ops),
					 page_to_phys(page) + offset, dir);
	/* Ends the section. */
	iova = xs_engine_map_one(&xs_instance_backend(ops)->engine, page,
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
	unmapped = xs_engine_unmap(&xs_backend_of(dev)->engine,
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
	xs_engine_unmap_deferred(&xs_backend_of(dev)->engine, handle & PAGE_MASK,
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
		xs_engine_unmap_one_deferred(&xs_backend_of(dev)->engine, handle);
}

static void unmap_memory(struct device *dev, dma_addr_t handle, size_t size,
			 enum dma_data_direction dir, unsigned long attrs)
{
	if (is_batch_aware_call(attrs))
		unmap_memory_deferred(dev, handle, size);
	else if (unlikely(!is_in_page(handle, size) || trace_unmap_enabled()))
		unmap_pages(dev, handle, size, false);
	else
		xs_engine_unmap_one(&xs_backend_of(dev)->engine, handle);
}

/*
 * Ends a map of several steps: flushes the map; or, if a step has failed with @error, undoes
 * all of it. Returns @iova, or 0 after an error. *@lost: the IOMMU driver could not undo the
 * map, so devices may access the memory and nobody may free the memory.
 */
static __always_inline u64 map_end(struct xs_backend *backend, u64 iova, u32 pages,
				   int error, bool *lost)
{
	if (!error)
		error = xs_backend_flush_maps(backend, iova, pages);
	if (likely(!error))
		return iova;
	*lost = !xs_backend_undo(backend, iova, pages, error);
	return 0;
}

/*
 * The backend of @dev in which a map of several pages may allocate IOVAs. NULL: there is none, or
 * the group is leaving its domain. Then each map fails and is counted as failed; after a
 * failed removal the undo of the map would fail, too, and IOVAs and memory would be lost with
 * each map. Called in an SRCU section of xs_backend_srcu.
 */
static struct xs_backend *backend_to_map(struct device *dev)
{
	struct xs_backend *backend = xs_backend_now(dev);

	if (likely(!backend || !READ_ONCE(backend->maps_fail)))
		return backend;
	xs_enter();
	xs_engine_map_failed(&backend->engine);
	xs_exit();
	return NULL;
}

/* Device registers have no memory to hold, and may have no struct page. */
static dma_addr_t map_mmio(struct device *dev, phys_addr_t phys, size_t size,
			   enum dma_data_direction dir, unsigned long attrs)
{
	int section = srcu_read_lock(&xs_backend_srcu);
	struct xs_backend *backend = backend_to_map(dev);
	u32 pages = pages_of(phys, size);
	u64 iova = 0;
	int error = 0;

	if (backend)
		iova = xs_engine_alloc_iova(&backend->engine, pages,
					    last_address(dev, *dev->dma_mask));
	if (iova) {
		error = xs_engine_fill(&backend->engine, iova, phys & PAGE_MASK,
				       pages, prot_of(dir, attrs) | IOMMU_MMIO);
		xs_engine_publish(&backend->engine, iova, pages);
	}
	if (error) {
		xs_backend_undo(backend, iova, pages, error);
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

/* Mappings larger than a block are not placed in blocks, and their own unmap flushes them. */
static size_t opt_mapping_size(void)
{
	return XS_BLOCK_BYTES;
}

/* Segments that meet at a page boundary can be joined. */
static unsigned long get_merge_boundary(struct device *dev)
{
	return PAGE_SIZE - 1;
}
