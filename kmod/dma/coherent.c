// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that the DMA API allocates for an attached device. Part of path.c.
 *
 * A free returns the memory to the allocator, so its unmap is flushed at once, whatever the
 * policy.
 */
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "../debug.h"
#include "../trace.h"
#include "instance.h"

/* Logs memory of the module that is not freed, because a failed map could not be undone. */
static void report_lost(struct device *dev, size_t size)
{
	dev_err_ratelimited(dev, "xsmmu: %zu bytes of memory are lost: a map failed, and devices may still access them\n",
			    size);
}

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
	int error;

	if (count > XS_BLOCK_PAGES) {
		error = xs_engine_fill(engine, iova, start, count, prot);
		xs_engine_publish(engine, iova, count);
		return error;
	}
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
	struct xs_backend *backend = backend_to_map(dev);
	u32 count = pages_of(0, size);
	u64 iova = backend ? xs_engine_alloc_iova(&backend->engine, count, last) : 0;
	bool lost = false;
	int error;

	if (iova) {
		error = fill_contiguous(&backend->engine, iova,
					page_to_phys(page), count,
					prot | xs_backend_unflushed_flag(backend));
		iova = map_end(backend, iova, count, error, &lost);
	}
	srcu_read_unlock(&xs_backend_srcu, section);
	if (iova)
		trace_map(dev, iova, count);
	else if (lost)
		report_lost(dev, size);
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
	xs_engine_publish(engine, iova, count);
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
	struct xs_backend *backend = backend_to_map(dev);
	u64 iova = backend ? xs_engine_alloc_iova(&backend->engine, count, last) : 0;
	int error;

	*lost = false;
	if (iova) {
		error = fill_each(&backend->engine, iova, pages, count,
				  prot | xs_backend_unflushed_flag(backend));
		iova = map_end(backend, iova, count, error, lost);
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
		report_lost(dev, size);
	else
		free_each(pages, count);
	return NULL;
}

/* Up to this size, contiguous memory is tried before scattered pages. */
#define CONTIGUOUS_MAX	(PAGE_SIZE << PAGE_ALLOC_COSTLY_ORDER)

static void *alloc_coherent(struct device *dev, size_t size, dma_addr_t *handle,
			    gfp_t gfp, unsigned long attrs)
{
	u64 last = last_address(dev, dev->coherent_dma_mask);
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
			      last_address(dev, dev->coherent_dma_mask));
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
			last_address(dev, dev->coherent_dma_mask), &lost);
	if (!iova)
		goto free_table;
	sg_dma_address(memory->sgt.sgl) = iova;
	sg_dma_len(memory->sgt.sgl) = size;
	return &memory->sgt;

free_table:
	sg_free_table(&memory->sgt);
free_pages:
	if (lost)
		report_lost(dev, size);
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
