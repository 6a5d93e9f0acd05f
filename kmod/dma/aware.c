// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions for batch-aware drivers; see include/xsmmu/dma.h. On a device that is not attached
 * each function uses the ordinary DMA API. Part of path.c.
 */
#include <linux/export.h>

#include <xsmmu/dma.h>

#include "../debug.h"
#include "../trace.h"
#include "instance.h"
#include "misuse.h"

static bool is_attached_now(struct device *dev)
{
	return xs_is_instance(dev->dma_ops);
}

/* True for an attached device without copying. */
static bool is_attached_plain(struct device *dev)
{
	return xs_is_instance(dev->dma_ops) && !xs_instance_copies(dev->dma_ops);
}

/*
 * True if the caller may have moved to another CPU since its unmaps. Code in an interrupt or with
 * bottom halves or interrupts off cannot have moved. Preemption cannot be detected in every
 * configuration, so other code is taken to have moved.
 */
static bool may_have_moved(void)
{
	return !in_interrupt() && !irqs_disabled();
}

/*
 * For a flush on all CPUs the engine enters a section for each CPU, so that the time without
 * preemption does not grow with the number of CPUs. An SRCU section keeps the group meanwhile.
 */
static int flush_enter(bool all_cpus)
{
	if (all_cpus)
		return srcu_read_lock(&xs_backend_srcu);
	xs_enter();
	return 0;
}

static void flush_exit(bool all_cpus, int section)
{
	if (all_cpus)
		srcu_read_unlock(&xs_backend_srcu, section);
	else
		xs_exit();
}

/* Unmaps a buffer of a device that is not attached, or that may be copied. */
static noinline void unmap_any_deferred(struct device *dev, dma_addr_t addr,
					size_t size, enum dma_data_direction dir,
					unsigned long attrs)
{
	if (!is_attached_now(dev))
		dma_unmap_page_attrs(dev, addr, size, dir, attrs);
	else if (!uncopy_one(dev, addr, attrs))
		unmap_memory_deferred(dev, addr, size);
}

void __xsmmu_unmap_deferred(struct device *dev, dma_addr_t addr, size_t size,
			    enum dma_data_direction dir, unsigned long attrs)
{
	if (IS_ENABLED(CONFIG_DMA_API_DEBUG) && is_attached_now(dev))
		dma_unmap_page_attrs(dev, addr, size, dir,
				     attrs | ATTR_BATCH_AWARE);
	else if (likely(is_attached_plain(dev)))
		unmap_memory_deferred(dev, addr, size);
	else
		unmap_any_deferred(dev, addr, size, dir, attrs);
}
EXPORT_SYMBOL_GPL(__xsmmu_unmap_deferred);

void __xsmmu_unmap_sg_deferred(struct device *dev, struct scatterlist *sgl,
			       int nents, enum dma_data_direction dir,
			       unsigned long attrs)
{
	if (!is_attached_now(dev)) {
		dma_unmap_sg_attrs(dev, sgl, nents, dir, attrs);
	} else if (IS_ENABLED(CONFIG_DMA_API_DEBUG)) {
		dma_unmap_sg_attrs(dev, sgl, nents, dir,
				   attrs | ATTR_BATCH_AWARE);
	} else if (!is_attached_plain(dev) && is_copied(dev, sgl)) {
		uncopy_each(dev, sgl, nents, attrs);
	} else {
		unmap_list(dev, sgl, nents, true);
	}
}
EXPORT_SYMBOL_GPL(__xsmmu_unmap_sg_deferred);

void __xsmmu_flush(struct device *dev)
{
	bool all_cpus = may_have_moved();
	int section = flush_enter(all_cpus);
	struct xs_backend *backend = xs_backend_now(dev);

	if (backend)
		xs_engine_flush_explicit(&backend->engine, all_cpus);
	flush_exit(all_cpus, section);
	if (backend)
		xs_debug_flush(dev);
}
EXPORT_SYMBOL_GPL(__xsmmu_flush);

dma_addr_t __xsmmu_map_unflushed(struct device *dev, struct page *page,
				 unsigned long offset, size_t size,
				 enum dma_data_direction dir, unsigned long attrs)
{
	if (WARN_ON_ONCE(!valid_dma_direction(dir)))
		return DMA_MAPPING_ERROR;
	/* Not attached: the ordinary DMA API. Copying: a bounce buffer stays mapped. */
	if (unlikely(!is_attached_plain(dev)))
		return dma_map_page_attrs(dev, page, offset, size, dir, attrs);
	if (IS_ENABLED(CONFIG_DMA_API_DEBUG))
		return dma_map_page_attrs(dev, page, offset, size, dir,
					  attrs | ATTR_MAP_UNFLUSHED);
	if (unlikely(offset >= PAGE_SIZE)) {
		page += offset >> PAGE_SHIFT;
		offset = offset_in_page(offset);
	}
	return map_memory(dev, page, offset, size, dir, attrs, true);
}
EXPORT_SYMBOL_GPL(__xsmmu_map_unflushed);

void __xsmmu_flush_maps(struct device *dev)
{
	bool all_cpus = may_have_moved();
	int section = flush_enter(all_cpus);
	struct xs_backend *backend = xs_backend_now(dev);

	if (backend && xs_backend_unflushed_flag(backend))
		xs_engine_flush_maps(&backend->engine, all_cpus);
	flush_exit(all_cpus, section);
	if (backend && xs_debug_on())
		xs_debug_flush_maps(dev, all_cpus);
}
EXPORT_SYMBOL_GPL(__xsmmu_flush_maps);

/* Returns 0 if there is no block, as for a device that is not attached. */
dma_addr_t __xsmmu_block_take(struct device *dev, unsigned int pages)
{
	struct xs_backend *backend;
	u64 iova = 0;

	xs_enter();
	backend = xs_backend_now(dev);
	if (backend)
		iova = xs_engine_alloc_block(&backend->engine, pages,
					     last_address(dev, *dev->dma_mask));
	xs_exit();
	return iova;
}
EXPORT_SYMBOL_GPL(__xsmmu_block_take);

/*
 * Maps a page of a block through the DMA API. Interrupts are off, so that this CPU makes no
 * other map meanwhile.
 */
static dma_addr_t map_through_api(struct device *dev, u64 iova, struct page *page,
				  enum dma_data_direction dir, unsigned long attrs,
				  bool unflushed)
{
	unsigned long flags;
	dma_addr_t addr;

	local_irq_save(flags);
	this_cpu_write(block_iova, iova);
	addr = dma_map_page_attrs(dev, page, 0, PAGE_SIZE, dir,
				  attrs | ATTR_BATCH_AWARE |
				  (unflushed ? ATTR_MAP_UNFLUSHED : 0));
	local_irq_restore(flags);
	return addr;
}

/* Returns the number of pages that are mapped, from the first; writes their addresses. */
static __always_inline u32 block_map_pages(struct device *dev, dma_addr_t base,
					   struct page **pages, u32 count,
					   enum dma_data_direction dir,
					   unsigned long attrs,
					   dma_addr_t *addrs, bool unflushed)
{
	u32 done, i;

	static_assert(sizeof(*addrs) == sizeof(u64));
	if (IS_ENABLED(CONFIG_DMA_API_DEBUG)) {
		for (i = 0; i < count; i++) {
			addrs[i] = map_through_api(dev, base + i * PAGE_SIZE,
						   pages[i], dir, attrs, unflushed);
			if (dma_mapping_error(dev, addrs[i]))
				break;
		}
		return i;
	}
	for (i = 0; i < count; i++)
		addrs[i] = page_to_phys(pages[i]);
	done = map_in_block(dev, base, addrs, count, prot_of(dir, attrs),
			    unflushed);
	for (i = 0; i < done; i++)
		addrs[i] = base + i * PAGE_SIZE;
	return done;
}

unsigned int __xsmmu_block_map_pages(struct device *dev, dma_addr_t base,
				     struct page **pages, unsigned int count,
				     enum dma_data_direction dir,
				     unsigned long attrs, dma_addr_t *addrs)
{
	return block_map_pages(dev, base, pages, count, dir, attrs, addrs,
			       false);
}
EXPORT_SYMBOL_GPL(__xsmmu_block_map_pages);

unsigned int __xsmmu_block_map_pages_unflushed(struct device *dev, dma_addr_t base,
					       struct page **pages,
					       unsigned int count,
					       enum dma_data_direction dir,
					       unsigned long attrs,
					       dma_addr_t *addrs)
{
	return block_map_pages(dev, base, pages, count, dir, attrs, addrs,
			       true);
}
EXPORT_SYMBOL_GPL(__xsmmu_block_map_pages_unflushed);

/* Reports contiguous pages to debugging and tracing. */
static noinline void report_unmap(struct device *dev, dma_addr_t base, u64 mask)
{
	while (mask) {
		u32 at = xs_ctz(mask);
		u32 run = xs_mask_extent(mask);

		mask &= ~xs_mask_of(at, run);
		if (xs_debug_on())
			xs_debug_unmap(dev, base + at * PAGE_SIZE,
				       run * PAGE_SIZE);
		trace_unmap(dev, base + at * PAGE_SIZE, run);
	}
}

void __xsmmu_block_unmap_deferred(struct device *dev, dma_addr_t base, u64 mask,
				  enum dma_data_direction dir, unsigned long attrs)
{
	struct xs_backend *backend;

	if (IS_ENABLED(CONFIG_DMA_API_DEBUG)) {
		for (; mask; mask &= mask - 1)
			__xsmmu_unmap_deferred(dev,
					       base + xs_ctz(mask) * PAGE_SIZE,
					       PAGE_SIZE, dir, attrs);
		return;
	}
	if (xs_debug_on() || trace_unmap_enabled())
		report_unmap(dev, base, mask);
	xs_enter();
	backend = xs_backend_now(dev);
	if (backend)
		xs_engine_unmap_in_block_deferred(&backend->engine, base, mask);
	xs_exit();
}
EXPORT_SYMBOL_GPL(__xsmmu_block_unmap_deferred);

/* A block does not outlive its engine, so a late call has nothing to do. */
void __xsmmu_block_drop(struct device *dev, dma_addr_t addr)
{
	struct xs_backend *backend;

	xs_enter();
	backend = xs_backend_now(dev);
	if (backend)
		xs_engine_drop_in_block(&backend->engine, addr, 1);
	xs_exit();
}
EXPORT_SYMBOL_GPL(__xsmmu_block_drop);
