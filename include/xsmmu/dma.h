/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DMA API of xsmmu.ko for batch-aware drivers. drivers/README.md of the source explains how to
 * convert a driver, and how to build the driver against this header.
 *
 * A driver that unmaps many buffers at once needs a single invalidation for all of them, if the
 * driver waits for the invalidation before it frees or hands on any buffer. Such a driver
 * declares itself at probe, and then unmaps in batches:
 *
 *	xsmmu_set_batch_aware(dev);
 *	...
 *	xsmmu_unmap_page_attrs_deferred(dev, ...);		any number of times
 *	xsmmu_flush(dev);
 *	... only now free, recycle or hand on the buffers
 *
 * Ordering: a flush in an interrupt, or with interrupts or bottom halves off, covers only
 * buffers that were unmapped before on the same CPU. So unmap and flush within one run of the
 * NAPI poll or interrupt handler: the next run may be on another CPU, where its flush does not
 * cover the buffers, and the device could still use memory that the driver has freed. A flush
 * in process context, with interrupts and bottom halves on, covers the unmaps of all CPUs.
 * Until the flush the device may still use the buffer, and the IOVA is not used again.
 *
 * Maps: some IOMMUs must be told of each map (virtio-iommu, AMD-Vi below a hypervisor, and VT-d
 * in caching mode or with a write buffer that must be flushed). A driver that maps many buffers
 * before it tells its device of any buffer flushes once for all of them:
 *
 *	xsmmu_map_page_attrs_unflushed(dev, ...);		any number of times
 *	xsmmu_flush_maps(dev);
 *	... only now write the doorbell, or let the device use the buffers otherwise
 *
 * The ordering rule above also says which maps a flush of maps covers. Before the flush the
 * device may fault at the buffers; the device never reaches other memory. Buffers may be
 * unmapped before the flush, for example on an error path. Other IOMMUs need no flush of maps,
 * and none is sent.
 *
 * The level of a batch-aware driver is `strict` under every policy except `lazy`. An ordinary
 * unmap of a batch-aware driver is flushed before the unmap returns, so code with a single
 * buffer stays correct. Unmaps by the core kernel for the driver, such as the unmaps of a page
 * pool, are ordinary unmaps, too: declare a driver as batch-aware only if its frequent unmaps
 * use the _deferred forms.
 *
 * Context `any` below: process context, soft and hard interrupts, also with spinlocks held; not
 * NMI. A flush waits for the IOMMU with interrupts off.
 *
 * Without the module, on a device that is not attached, and on a device without an IOMMU, all
 * calls are the ordinary DMA API: an unmap without a flush is an unmap, a map without a flush
 * is a map, and a flush does nothing. The module must be loaded before the driver, because the
 * driver finds the module by weak symbols (at boot: `softdep <driver> pre: xsmmu`); the module
 * then stays as long as the driver does. If the driver was loaded first, all calls are the
 * ordinary DMA API until the driver is loaded again, and stats/flush_explicit stays 0.
 *
 * The module's parameter debug=1 finds misuse on all IOMMUs: memory that is freed before its
 * flush; unmaps and maps that are not followed by a flush of their device; and unmaps without a
 * flush of buffers that were mapped without a flush and never had one.
 */
#ifndef XSMMU_DMA_H
#define XSMMU_DMA_H

#include <linux/dma-mapping.h>
#include <linux/slab.h>

/* Exports of xsmmu.ko; NULL if the module was not loaded. Use through xsmmu_find() only. */
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
 * Address of @call, or NULL. On arm64 the address is read from memory: the kernel's module loader
 * rejects code that calls, or computes the address of, a weak symbol without a definition.
 */
#ifdef CONFIG_ARM64
#define xsmmu_find(call) \
	({ static typeof(call) *const xsmmu_found = call; READ_ONCE(xsmmu_found); })
#else
#define xsmmu_find(call) call
#endif

/**
 * xsmmu_set_batch_aware - declare that a driver flushes its unmaps
 * @dev: device that the driver is probing
 *
 * The driver unmaps with the _deferred() forms and xsmmu_flush(), or with ordinary unmaps,
 * which are then flushed before they return. Lasts until the driver is unbound. In a group of
 * several devices the declaration has an effect when all drivers have made it.
 *
 * Context: process, may sleep.
 * Return: 0; -ENODEV: the calls are the ordinary DMA API, which is no error.
 */
static inline int xsmmu_set_batch_aware(struct device *dev)
{
	return xsmmu_find(__xsmmu_set_batch_aware) ?
		xsmmu_find(__xsmmu_set_batch_aware)(dev) : -ENODEV;
}

/**
 * xsmmu_unmap_page_attrs_deferred - dma_unmap_page_attrs() without its flush
 * @dev: device
 * @addr: result of dma_map_page_attrs() or dma_map_single_attrs()
 * @size: in bytes, as mapped
 * @dir: as mapped
 * @attrs: as for dma_unmap_page_attrs()
 *
 * The driver must not free, recycle or hand on the memory before xsmmu_flush() of the same
 * device.
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
 * The driver must not free, recycle or hand on the memory before xsmmu_flush() of the same
 * device.
 *
 * Context: any.
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
 * xsmmu_flush - end all access to buffers that were unmapped without a flush
 * @dev: device
 *
 * On return the device can use no buffer that the caller has unmapped without a flush before
 * the call, neither through the page table nor through a cache. In an interrupt, or with
 * interrupts or bottom halves off, only buffers count that were unmapped on the same CPU.
 *
 * Context: any. Sends a command to the IOMMU and waits for completion, unless nothing is
 *   outstanding.
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
 * @page: as for dma_map_page_attrs()
 * @offset: in @page, in bytes
 * @size: in bytes
 * @dir: direction
 * @attrs: as for dma_map_page_attrs()
 *
 * The driver must not tell the device of the buffer before xsmmu_flush_maps() of the same
 * device. The buffer is unmapped like any other buffer.
 *
 * Context: any.
 * Return: the DMA address; DMA_MAPPING_ERROR on failure: the buffer is not mapped, and earlier
 *   maps still wait for their flush.
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

/**
 * xsmmu_map_single_attrs_unflushed - dma_map_single_attrs() without its flush
 * @dev: device
 * @memory: buffer; not from vmalloc(), as for dma_map_single_attrs()
 * @size: in bytes
 * @dir: direction
 * @attrs: as for dma_map_single_attrs()
 *
 * Context: any.
 * Return: as xsmmu_map_page_attrs_unflushed().
 */
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
 * xsmmu_flush_maps - let a device use buffers that were mapped without a flush
 * @dev: device
 *
 * On return the device can use all buffers that the caller has mapped without a flush before
 * the call. To be called before the write that tells the device of the buffers. Cannot fail on
 * the IOMMUs that the module serves.
 *
 * Context: any. Sends a few commands to the IOMMU and waits for completion, if the IOMMU needs
 *   commands and maps are outstanding.
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
 * struct xsmmu_block - contiguous IOVAs for the pages of a descriptor
 * @dev: device
 * @base: first IOVA; 0 if the pages have unrelated IOVAs (the ordinary DMA API)
 * @pages: number of pages, 1 to XSMMU_BLOCK_PAGES
 * @mapped: bit for each page that was ever mapped
 * @handles: DMA addresses of the pages
 *
 * Each page is mapped at most once in the life of a block, and has a life of its own
 * afterwards: a recycled page stays mapped when the struct is freed long before, and is
 * unmapped by its address. The IOVAs are used again when the last mapped page is unmapped and
 * flushed, and the struct is freed.
 */
struct xsmmu_block {
	struct device *dev;
	dma_addr_t base;
	unsigned int pages;
	u64 mapped;
	dma_addr_t handles[];
};

/**
 * xsmmu_block_alloc - allocate contiguous IOVAs
 * @dev: device
 * @pages: number of pages, 1 to XSMMU_BLOCK_PAGES
 * @gfp: for the struct; may be GFP_ATOMIC
 *
 * Without contiguous IOVAs the pages get unrelated IOVAs.
 *
 * Context: any that @gfp allows.
 * Return: the block; NULL without memory, or for a wrong number of pages.
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
 * xsmmu_block_map_page - map the page of an index
 * @block: block
 * @index: less than @block->pages; each index is mapped at most once
 * @page: a whole page
 * @dir: direction
 * @attrs: as for dma_map_page_attrs()
 *
 * Context: any.
 * Return: the DMA address; DMA_MAPPING_ERROR on failure, and for an index that is out of range
 *   or was mapped before.
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
 * @pages: @block->pages pages
 * @dir: direction
 * @attrs: as for dma_map_page_attrs()
 *
 * Maps all pages by a single call. Neighbours in memory share a walk of the page table; other
 * pages need a walk each, because an IOMMU driver accepts no list.
 *
 * Context: any.
 * Return: 0; -EINVAL for a block that is not fresh; -ENOMEM: the pages before the failed page
 *   are mapped, as @block->mapped says.
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
 * @pages: @block->pages pages
 * @dir: direction
 * @attrs: as for dma_map_page_attrs()
 *
 * As for xsmmu_map_page_attrs_unflushed(), xsmmu_flush_maps() must follow before the device is
 * told. xsmmu_block_map_pages() needs a flush for each block.
 *
 * Context: any.
 * Return: as for xsmmu_block_map_pages().
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
 * xsmmu_block_unmap_page_deferred - unmap the page of an index, without a flush
 * @block: block
 * @index: index of a page that is mapped
 * @dir: as mapped
 * @attrs: as for dma_unmap_page_attrs()
 *
 * The same as xsmmu_unmap_page_attrs_deferred() of the page's address.
 *
 * Context: any.
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
 * xsmmu_block_unmap_pages_deferred - unmap all mapped pages of a block, without a flush
 * @block: block
 * @dir: as mapped
 * @attrs: as for dma_unmap_page_attrs()
 *
 * No page of the block was unmapped before.
 *
 * Context: any.
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
 * xsmmu_block_free - free a block's struct, and the IOVAs of pages that were never mapped
 * @block: block, or NULL; mapped pages stay mapped
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
