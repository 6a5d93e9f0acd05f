/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DMA API of xsmmu.ko for batch-aware drivers.
 *
 * A driver that unmaps many buffers at once needs one invalidation for all of
 * them, if it waits for that before it frees or hands on any. It says so once,
 * at probe, and then
 *
 *	xsmmu_set_batch_aware(dev);
 *	...
 *	xsmmu_unmap_page_attrs_deferred(dev, ...);		as often as it likes
 *	xsmmu_flush(dev);
 *	... only now free, recycle or hand on the buffers
 *
 * Ordering: what a flush covers is what its caller has unmapped without one
 * before, on the CPU that it runs on. A caller that may have moved to another
 * CPU in between (process context: neither in an interrupt, nor with bottom
 * halves or interrupts disabled) gets a flush of all CPUs. So both belong into
 * one context, as a NAPI poll or an interrupt handler is. Until the flush the
 * device may still use the buffer; its IOVA is not used again before.
 *
 * Maps, too: some IOMMUs have to be told of each (virtio-iommu, AMD-Vi below a
 * hypervisor, and VT-d in caching mode or where its write buffer must be flushed).
 * A driver that maps many buffers before it tells its device of any has that done
 * once:
 *
 *	xsmmu_map_page_attrs_unflushed(dev, ...);		as often as it likes
 *	xsmmu_flush_maps(dev);
 *	... only now write the doorbell, or what else lets the device use them
 *
 * What this flush covers is ordered as above. Before it the device may fault at the
 * buffers; it never reaches other memory. They may be unmapped before it, which
 * an error path does. Other IOMMUs need no such flush, and none is sent.
 *
 * The level of such a driver is `strict` under every policy that waits for the
 * driver's flush. An ordinary unmap of a batch-aware driver is flushed before it
 * returns, so it stays correct where the driver has one buffer only.
 *
 * Without the module, on a device that is not taken over, and on one without an
 * IOMMU all of this is the ordinary DMA API: an unmap without a flush is an
 * unmap, a map without one is a map, a flush does nothing. The module must be
 * loaded before the driver to be found by it (its symbols are weak), and stays as
 * long as the driver does.
 *
 * The module's parameter debug=1 finds misuse: memory that is freed before its
 * flush, unmaps and maps that are not followed by a flush of their device, and
 * unmaps without a flush of what was mapped without one, and had none. It finds
 * these on all IOMMUs.
 */
#ifndef XSMMU_DMA_H
#define XSMMU_DMA_H

#include <linux/dma-mapping.h>
#include <linux/slab.h>

/* What xsmmu.ko exports; NULL where it was not there. By xsmmu_find() only. */
int __weak __xsmmu_set_batch_aware(struct device *dev);
void __weak __xsmmu_unmap_deferred(struct device *dev, dma_addr_t addr,
				   size_t size, enum dma_data_direction dir,
				   unsigned long attrs);
void __weak __xsmmu_unmap_sg_deferred(struct device *dev, struct scatterlist *sgl,
				      int nents, enum dma_data_direction dir,
				      unsigned long attrs);
void __weak __xsmmu_flush(struct device *dev);
dma_addr_t __weak __xsmmu_map_unflushed(struct device *dev, struct page *page,
					unsigned long offset, size_t size,
					enum dma_data_direction dir,
					unsigned long attrs);
void __weak __xsmmu_flush_maps(struct device *dev);
dma_addr_t __weak __xsmmu_block_take(struct device *dev, unsigned int pages);
unsigned int __weak __xsmmu_block_map_pages(struct device *dev, dma_addr_t base,
					    struct page **pages,
					    unsigned int count,
					    enum dma_data_direction dir,
					    unsigned long attrs,
					    dma_addr_t *addrs);
unsigned int __weak
__xsmmu_block_map_pages_unflushed(struct device *dev, dma_addr_t base,
				  struct page **pages, unsigned int count,
				  enum dma_data_direction dir, unsigned long attrs,
				  dma_addr_t *addrs);
void __weak __xsmmu_block_unmap_deferred(struct device *dev, dma_addr_t base,
					 u64 mask, enum dma_data_direction dir,
					 unsigned long attrs);
void __weak __xsmmu_block_drop(struct device *dev, dma_addr_t addr);

/*
 * What @call is, or NULL. On arm64 read from memory: no code there calls a weak symbol that is
 * not there, or has its address, that the kernel's loader of modules would take.
 */
#ifdef CONFIG_ARM64
#define xsmmu_find(call) \
	({ static typeof(call) *const xsmmu_found = call; READ_ONCE(xsmmu_found); })
#else
#define xsmmu_find(call) call
#endif

/**
 * xsmmu_set_batch_aware - say that a driver flushes what it unmaps
 * @dev: device that the driver is probing
 *
 * The driver unmaps with the _deferred() forms and xsmmu_flush(), or
 * with ordinary unmaps that are then flushed at once. Counts until the driver
 * is unbound; in a group of several devices when all drivers have said so.
 *
 * Context: process, may sleep.
 * Return: 0, or -ENODEV: the ordinary DMA API is used, which is no error.
 */
static inline int xsmmu_set_batch_aware(struct device *dev)
{
	return xsmmu_find(__xsmmu_set_batch_aware) ?
		xsmmu_find(__xsmmu_set_batch_aware)(dev) : -ENODEV;
}

/**
 * xsmmu_unmap_page_attrs_deferred - dma_unmap_page_attrs() without its flush
 * @dev: device
 * @addr: as dma_map_page_attrs() or dma_map_single_attrs() returned it
 * @size: as mapped
 * @dir: as mapped
 * @attrs: as for dma_unmap_page_attrs()
 *
 * Memory and device are not to meet again before xsmmu_flush() of the
 * same device: the memory is not freed, recycled or given to another owner.
 *
 * Context: any.
 */
static inline void xsmmu_unmap_page_attrs_deferred(struct device *dev,
						   dma_addr_t addr, size_t size,
						   enum dma_data_direction dir,
						   unsigned long attrs)
{
	if (xsmmu_find(__xsmmu_unmap_deferred))
		xsmmu_find(__xsmmu_unmap_deferred)(dev, addr, size, dir, attrs);
	else
		dma_unmap_page_attrs(dev, addr, size, dir, attrs);
}

/**
 * xsmmu_unmap_sg_attrs_deferred - dma_unmap_sg_attrs() without its flush
 * @dev: device
 * @sgl: list that dma_map_sg_attrs() mapped
 * @nents: as given to dma_map_sg_attrs()
 * @dir: as mapped
 * @attrs: as for dma_unmap_sg_attrs()
 *
 * Ordering and context as for xsmmu_unmap_page_attrs_deferred().
 */
static inline void xsmmu_unmap_sg_attrs_deferred(struct device *dev,
						 struct scatterlist *sgl,
						 int nents,
						 enum dma_data_direction dir,
						 unsigned long attrs)
{
	if (xsmmu_find(__xsmmu_unmap_sg_deferred))
		xsmmu_find(__xsmmu_unmap_sg_deferred)(dev, sgl, nents, dir, attrs);
	else
		dma_unmap_sg_attrs(dev, sgl, nents, dir, attrs);
}

/**
 * xsmmu_flush - make what was unmapped without a flush unreachable
 * @dev: device
 *
 * When it returns, the device can use nothing of what the caller has unmapped
 * without a flush before: neither through the page table nor through a cache.
 *
 * Context: any. Sends a command to the IOMMU and waits for it, unless nothing
 * is outstanding.
 */
static inline void xsmmu_flush(struct device *dev)
{
	if (xsmmu_find(__xsmmu_flush))
		xsmmu_find(__xsmmu_flush)(dev);
}

#define xsmmu_unmap_page_deferred(dev, addr, size, dir) \
	xsmmu_unmap_page_attrs_deferred(dev, addr, size, dir, 0)
#define xsmmu_unmap_single_attrs_deferred(dev, addr, size, dir, attrs) \
	xsmmu_unmap_page_attrs_deferred(dev, addr, size, dir, attrs)
#define xsmmu_unmap_single_deferred(dev, addr, size, dir) \
	xsmmu_unmap_page_attrs_deferred(dev, addr, size, dir, 0)
#define xsmmu_unmap_sg_deferred(dev, sgl, nents, dir) \
	xsmmu_unmap_sg_attrs_deferred(dev, sgl, nents, dir, 0)
#define xsmmu_unmap_sgtable_deferred(dev, table, dir, attrs) \
	xsmmu_unmap_sg_attrs_deferred(dev, (table)->sgl, (table)->orig_nents, \
				      dir, attrs)

/* ---- maps ---- */

/**
 * xsmmu_map_page_attrs_unflushed - dma_map_page_attrs() without its flush
 * @dev: device
 * @page: as for dma_map_page_attrs(), and all that follow
 * @offset: in @page
 * @size: in bytes
 * @dir: direction
 * @attrs: as for dma_map_page_attrs()
 *
 * The device is not to be told of the buffer before xsmmu_flush_maps() of the
 * same device. It is unmapped as any other.
 *
 * Context: any. Return: the DMA address; DMA_MAPPING_ERROR on failure, then
 * nothing is mapped, and others wait for their flush as before.
 */
static inline dma_addr_t xsmmu_map_page_attrs_unflushed(struct device *dev,
							struct page *page,
							unsigned long offset,
							size_t size,
							enum dma_data_direction dir,
							unsigned long attrs)
{
	return xsmmu_find(__xsmmu_map_unflushed) ?
		xsmmu_find(__xsmmu_map_unflushed)(dev, page, offset, size, dir,
						  attrs) :
		dma_map_page_attrs(dev, page, offset, size, dir, attrs);
}

/* As dma_map_single_attrs(), which maps no memory of vmalloc()'s. */
static inline dma_addr_t xsmmu_map_single_attrs_unflushed(struct device *dev,
							  void *memory, size_t size,
							  enum dma_data_direction dir,
							  unsigned long attrs)
{
	if (!xsmmu_find(__xsmmu_map_unflushed) || is_vmalloc_addr(memory))
		return dma_map_single_attrs(dev, memory, size, dir, attrs);
	return xsmmu_find(__xsmmu_map_unflushed)(dev, virt_to_page(memory),
						 offset_in_page(memory), size, dir,
						 attrs);
}

/**
 * xsmmu_flush_maps - let a device use what was mapped without a flush
 * @dev: device
 *
 * When it returns, the device can use all that the caller has mapped without a
 * flush before. To be called before the write that tells the device of it.
 *
 * Context: any. Sends the IOMMU a command, or few, and waits, if it needs that and
 * something is outstanding. It cannot fail on the IOMMUs that the module serves.
 */
static inline void xsmmu_flush_maps(struct device *dev)
{
	if (xsmmu_find(__xsmmu_flush_maps))
		xsmmu_find(__xsmmu_flush_maps)(dev);
}

#define xsmmu_map_page_unflushed(dev, page, offset, size, dir) \
	xsmmu_map_page_attrs_unflushed(dev, page, offset, size, dir, 0)
#define xsmmu_map_single_unflushed(dev, memory, size, dir) \
	xsmmu_map_single_attrs_unflushed(dev, memory, size, dir, 0)

/* ---- blocks ---- */

#define XSMMU_BLOCK_PAGES	64

/**
 * struct xsmmu_block - contiguous IOVAs for the pages of one descriptor
 * @dev: device
 * @base: first IOVA, 0 if each page gets any (the ordinary DMA API)
 * @pages: how many, 1 to XSMMU_BLOCK_PAGES
 * @mapped: which were mapped at some time
 * @handles: their DMA addresses
 *
 * Each page is mapped at most once in a block's life. It lives on its own from
 * then: a page that is recycled stays mapped when the struct is freed long
 * before, and is unmapped by its address. The IOVAs are used again when the
 * last page that was mapped is unmapped and flushed, and the struct is freed.
 */
struct xsmmu_block {
	struct device *dev;
	dma_addr_t base;
	unsigned int pages;
	u64 mapped;
	dma_addr_t handles[];
};

/**
 * xsmmu_block_alloc - allocate IOVAs in a row
 * @dev: device
 * @pages: 1 to XSMMU_BLOCK_PAGES
 * @gfp: for the struct; may be GFP_ATOMIC
 *
 * Context: any that @gfp allows. Return: the block, NULL without memory or for
 * an impossible number of pages. Without IOVAs in a row the pages get any.
 */
static inline struct xsmmu_block *xsmmu_block_alloc(struct device *dev,
						    unsigned int pages, gfp_t gfp)
{
	struct xsmmu_block *block;

	if (!pages || pages > XSMMU_BLOCK_PAGES)
		return NULL;
	block = kmalloc(struct_size(block, handles, pages), gfp);
	if (!block)
		return NULL;
	block->dev = dev;
	block->pages = pages;
	block->mapped = 0;
	block->base = xsmmu_find(__xsmmu_block_take) ?
		xsmmu_find(__xsmmu_block_take)(dev, pages) : 0;
	return block;
}

/**
 * xsmmu_block_map_page - map the @index-th page of a block
 * @block: block
 * @index: below @block->pages; each is mapped at most once
 * @page: a whole page
 * @dir: direction
 * @attrs: as for dma_map_page_attrs()
 *
 * Context: any. Return: the DMA address, DMA_MAPPING_ERROR on failure and for
 * an index that is out of range or was mapped before.
 */
static inline dma_addr_t xsmmu_block_map_page(struct xsmmu_block *block,
					      unsigned int index,
					      struct page *page,
					      enum dma_data_direction dir,
					      unsigned long attrs)
{
	dma_addr_t addr;

	if (WARN_ON_ONCE(index >= block->pages || block->mapped >> index & 1))
		return DMA_MAPPING_ERROR;
	if (!block->base)
		addr = dma_map_page_attrs(block->dev, page, 0, PAGE_SIZE, dir,
					  attrs);
	else if (!xsmmu_find(__xsmmu_block_map_pages)(
			 block->dev, block->base + index * PAGE_SIZE, &page, 1,
			 dir, attrs, &addr))
		addr = DMA_MAPPING_ERROR;
	if (dma_mapping_error(block->dev, addr))
		return DMA_MAPPING_ERROR;
	block->handles[index] = addr;
	block->mapped |= 1ULL << index;
	return addr;
}

/**
 * xsmmu_block_map_pages - map all pages of a block
 * @block: fresh block
 * @pages: @block->pages of them
 * @dir: direction
 * @attrs: as for dma_map_page_attrs()
 *
 * One call for all of them. Pages that are neighbours in memory take one walk of
 * the page table together; an IOMMU driver takes no list, so others take one each.
 *
 * Context: any. Return: 0; -EINVAL for a block that is not fresh; -ENOMEM, then
 * those before a failed one are mapped, as @block->mapped says.
 */
static inline int xsmmu_block_map_pages(struct xsmmu_block *block,
					struct page **pages,
					enum dma_data_direction dir,
					unsigned long attrs)
{
	unsigned int done = 0;

	if (WARN_ON_ONCE(block->mapped))
		return -EINVAL;
	if (block->base) {
		done = xsmmu_find(__xsmmu_block_map_pages)(
			block->dev, block->base, pages, block->pages, dir,
			attrs, block->handles);
		if (done)
			block->mapped = ~0ULL >> (XSMMU_BLOCK_PAGES - done);
	} else {
		while (done < block->pages &&
		       xsmmu_block_map_page(block, done, pages[done], dir,
					    attrs) != DMA_MAPPING_ERROR)
			done++;
	}
	return done == block->pages ? 0 : -ENOMEM;
}

/**
 * xsmmu_block_map_pages_unflushed - xsmmu_block_map_pages() without its flush
 * @block: fresh block
 * @pages: @block->pages of them
 * @dir: direction
 * @attrs: as for dma_map_page_attrs()
 *
 * As for xsmmu_map_page_attrs_unflushed(): xsmmu_flush_maps() must follow before the
 * device is told. With its flush a block has one for all of its pages.
 *
 * Context: any. Return: as for xsmmu_block_map_pages().
 */
static inline int xsmmu_block_map_pages_unflushed(struct xsmmu_block *block,
						  struct page **pages,
						  enum dma_data_direction dir,
						  unsigned long attrs)
{
	unsigned int done;

	if (!block->base || !xsmmu_find(__xsmmu_block_map_pages_unflushed))
		return xsmmu_block_map_pages(block, pages, dir, attrs);
	if (WARN_ON_ONCE(block->mapped))
		return -EINVAL;
	done = xsmmu_find(__xsmmu_block_map_pages_unflushed)(
		block->dev, block->base, pages, block->pages, dir, attrs,
		block->handles);
	if (done)
		block->mapped = ~0ULL >> (XSMMU_BLOCK_PAGES - done);
	return done == block->pages ? 0 : -ENOMEM;
}

/**
 * xsmmu_block_unmap_page_deferred - unmap the @index-th page of a block
 * @block: block
 * @index: of a page that is mapped
 * @dir: as mapped
 * @attrs: as for dma_unmap_page_attrs()
 *
 * The same as xsmmu_unmap_page_attrs_deferred() of its address.
 */
static inline void xsmmu_block_unmap_page_deferred(struct xsmmu_block *block,
						   unsigned int index,
						   enum dma_data_direction dir,
						   unsigned long attrs)
{
	xsmmu_unmap_page_attrs_deferred(block->dev, block->handles[index],
					PAGE_SIZE, dir, attrs);
}

/**
 * xsmmu_block_unmap_pages_deferred - unmap all pages of a block that were mapped
 * @block: block, none of whose pages was unmapped yet
 * @dir: as mapped
 * @attrs: as for dma_unmap_page_attrs()
 */
static inline void xsmmu_block_unmap_pages_deferred(struct xsmmu_block *block,
						    enum dma_data_direction dir,
						    unsigned long attrs)
{
	unsigned int i;

	if (block->base) {
		xsmmu_find(__xsmmu_block_unmap_deferred)(
			block->dev, block->base, block->mapped, dir, attrs);
		return;
	}
	for (i = 0; i < block->pages; i++)
		if (block->mapped >> i & 1)
			xsmmu_block_unmap_page_deferred(block, i, dir, attrs);
}

/**
 * xsmmu_block_free - free the struct, and the IOVAs of pages never mapped
 * @block: block, or NULL; pages that are mapped stay so
 *
 * Context: any.
 */
static inline void xsmmu_block_free(struct xsmmu_block *block)
{
	unsigned int i;

	for (i = 0; block && block->base && i < block->pages; i++)
		if (!(block->mapped >> i & 1))
			xsmmu_find(__xsmmu_block_drop)(
				block->dev, block->base + i * PAGE_SIZE);
	kfree(block);
}

#endif
