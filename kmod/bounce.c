// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an untrusted device maps and is not copied to the pool (copy.c). Of a page that is
 * not all the buffer's the device gets another one, with the buffer's bytes, and zeros
 * beside them: it can only be the first or the last one of a mapping. Those between are
 * the driver's own. Part of path.c.
 */
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "xsmmu.h"

/*
 * A mapping with such a page; in group->bounces at the IOVA of each
 * @handle, @size: as the driver knows it
 * @phys:	its memory
 * @dir:	what the device may do, whatever a sync or the unmap says
 * @first, @last: what the device has instead of its first and its last page, or NULL;
 *		of one page there is no last one
 * @seen:	the bytes of its head, as they were when they were last copied, or given to
 *		the device by a sync that copies nothing
 */
struct bounce {
	u64 handle;
	size_t size;
	phys_addr_t phys;
	enum dma_data_direction dir;
	struct page *first;
	struct page *last;
	u8 seen[3];
};

/* The buffer's bytes in its first page. */
static size_t in_first(const struct bounce *bounce)
{
	return min_t(size_t, bounce->size,
		     PAGE_SIZE - offset_in_page(bounce->phys));
}

/* And in the last one, if that is another one and not all the buffer's. */
static size_t in_last(const struct bounce *bounce)
{
	return offset_in_page(bounce->size - in_first(bounce));
}

/* No device reaches it. */
static void bounce_free(struct bounce *bounce)
{
	if (bounce->first)
		__free_page(bounce->first);
	if (bounce->last)
		__free_page(bounce->last);
	kfree(bounce);
}

/* NULL: no memory. */
static struct bounce *bounce_new(struct device *dev, phys_addr_t phys,
				 size_t size, enum dma_data_direction dir)
{
	struct bounce *bounce = kzalloc(sizeof(*bounce),
					GFP_ATOMIC | __GFP_NOWARN);
	bool whole;

	if (!bounce)
		return NULL;
	bounce->size = size;
	bounce->phys = phys;
	bounce->dir = dir;
	whole = in_first(bounce) == PAGE_SIZE;
	if (!whole)
		bounce->first = alloc_contiguous(dev, PAGE_SIZE, GFP_ATOMIC);
	if (in_last(bounce))
		bounce->last = alloc_contiguous(dev, PAGE_SIZE, GFP_ATOMIC);
	if ((whole || bounce->first) && (!in_last(bounce) || bounce->last))
		return bounce;
	bounce_free(bounce);
	return NULL;
}

/* Bytes @from .. @to - 1 of the buffer that are at @start .. @end - 1 of it, in @page. */
static void copy_part(const struct bounce *bounce, struct page *page,
		      size_t start, size_t end, size_t from, size_t to,
		      bool to_device)
{
	void *theirs, *ours;

	from = max(from, start);
	to = min(to, end);
	if (!page || from >= to)
		return;
	theirs = phys_to_virt(bounce->phys + from);
	ours = page_address(page) + offset_in_page(bounce->phys + from);
	if (to_device)
		memcpy(ours, theirs, to - from);
	else
		memcpy(theirs, ours, to - from);
}

/*
 * The head: a buffer's bytes before the first address that is a multiple of four. Its
 * driver may write them itself, as xs_offset_in_cell() says, but here the place cannot be
 * chosen. So one comes back only if the device has changed it since it was last copied,
 * or given to the device.
 */
static size_t in_head(const struct bounce *bounce)
{
	return min_t(size_t, bounce->size, -bounce->phys & 3);
}

/* To the device only if it @copies: it may have written already. */
static void copy_head(struct bounce *bounce, size_t from, size_t to,
		      bool to_device, bool copies)
{
	u8 *theirs = phys_to_virt(bounce->phys);
	u8 *ours;

	/* Then there is a first page. */
	if (!in_head(bounce))
		return;
	ours = page_address(bounce->first) + offset_in_page(bounce->phys);
	for (size_t at = from; at < min(to, in_head(bounce)); at++) {
		u8 now = READ_ONCE(*(to_device ? theirs + at : ours + at));

		if (to_device && copies)
			ours[at] = now;
		else if (!to_device && now != bounce->seen[at])
			theirs[at] = now;
		bounce->seen[at] = now;
	}
}

/* Bytes @from .. @to - 1 of the buffer, as far as the device has others. */
static void bounce_copy(struct bounce *bounce, size_t from, size_t to,
			bool to_device)
{
	copy_head(bounce, from, to, to_device, true);
	copy_part(bounce, bounce->first, in_head(bounce), in_first(bounce),
		  from, to, to_device);
	copy_part(bounce, bounce->last, bounce->size - in_last(bounce),
		  bounce->size, from, to, to_device);
}

/* ---- which mappings have some ---- */

static unsigned long first_index(const struct bounce *bounce)
{
	return bounce->handle >> PAGE_SHIFT;
}

static unsigned long last_index(const struct bounce *bounce)
{
	return (bounce->handle + bounce->size - 1) >> PAGE_SHIFT;
}

static void forget_locked(struct xs_group *group, struct bounce *bounce)
{
	__xa_erase(&group->bounces, first_index(bounce));
	__xa_erase(&group->bounces, last_index(bounce));
}

/*
 * What is there has been unmapped as what it was not, since its IOVA is another mapping's now.
 * The caller's, or NULL.
 */
static struct bounce *forget_stale(struct xs_group *group, unsigned long index)
{
	struct bounce *stale = xa_load(&group->bounces, index);

	if (stale)
		forget_locked(group, stale);
	return stale;
}

/* 0 or -ENOMEM. */
static int bounce_remember(struct xs_group *group, struct bounce *bounce)
{
	gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN;
	struct bounce *stale[2];
	unsigned long flags;
	int error = 0;

	xa_lock_irqsave(&group->bounces, flags);
	stale[0] = forget_stale(group, first_index(bounce));
	stale[1] = forget_stale(group, last_index(bounce));
	if (bounce->first)
		error = xa_err(__xa_store(&group->bounces, first_index(bounce),
					  bounce, gfp));
	if (bounce->last && !error)
		error = xa_err(__xa_store(&group->bounces, last_index(bounce),
					  bounce, gfp));
	if (!error && xs_fails())
		error = -ENOMEM;
	if (error)
		forget_locked(group, bounce);
	xa_unlock_irqrestore(&group->bounces, flags);
	for (u32 i = 0; i < ARRAY_SIZE(stale); i++) {
		if (!stale[i])
			continue;
		pr_warn_ratelimited("%s: a buffer was unmapped as what it was not\n",
				    group->name);
		bounce_free(stale[i]);
	}
	return error;
}

/* Is it what an unmap of @size bytes at @handle is of? As the engine sees it: by pages. */
static bool is_of(const struct bounce *bounce, u64 handle, size_t size)
{
	return bounce && !((bounce->handle ^ handle) >> PAGE_SHIFT) &&
	       pages_of(bounce->handle, bounce->size) == pages_of(handle, size);
}

/* The caller's, or NULL if that mapping has none. */
static struct bounce *bounce_take(struct xs_group *group, u64 handle, size_t size)
{
	struct bounce *bounce;
	unsigned long flags;

	xa_lock_irqsave(&group->bounces, flags);
	bounce = xa_load(&group->bounces, handle >> PAGE_SHIFT);
	if (!bounce)
		bounce = xa_load(&group->bounces,
				 (handle + size - 1) >> PAGE_SHIFT);
	if (is_of(bounce, handle, size))
		forget_locked(group, bounce);
	else
		bounce = NULL;
	xa_unlock_irqrestore(&group->bounces, flags);
	return bounce;
}

/*
 * Nothing is mapped any more, and nobody maps: what is left was unmapped as what it was not,
 * by dma_free_coherent() for one, and must not be taken for a mapping to come.
 */
void xs_bounces_drop(struct xs_group *group)
{
	struct bounce *bounce;
	unsigned long index;
	u32 count = 0;

	xa_for_each(&group->bounces, index, bounce) {
		xa_lock_irq(&group->bounces);
		forget_locked(group, bounce);
		xa_unlock_irq(&group->bounces);
		bounce_free(bounce);
		count++;
	}
	if (count)
		pr_warn("%s: %u buffers were unmapped as what they were not\n",
			group->name, count);
}

/* ---- the DMA API ---- */

/* A mapping of at most a block. The IOVA of its first page, 0: none; *@lost as map_end(). */
static u64 map_few(struct device *dev, const struct bounce *bounce, u32 pages,
		   u32 prot, bool *lost)
{
	u64 phys[XS_BLOCK_PAGES];

	for (u32 i = 0; i < pages; i++)
		phys[i] = (bounce->phys & PAGE_MASK) + ((u64)i << PAGE_SHIFT);
	if (bounce->first)
		phys[0] = page_to_phys(bounce->first);
	if (bounce->last)
		phys[pages - 1] = page_to_phys(bounce->last);
	return map_segments(dev, NULL, 0, phys, pages, prot, lost);
}

static void row_add(struct scatterlist *row, u32 *parts, u32 *pages,
		    struct page *page, u32 count)
{
	if (!count)
		return;
	sg_set_page(&row[*parts], page, count << PAGE_SHIFT, 0);
	sg_dma_address(&row[*parts]) = (u64)*pages << PAGE_SHIFT;
	++*parts;
	*pages += count;
}

/* The same of a larger one. */
static u64 map_row(struct device *dev, const struct bounce *bounce, u32 pages,
		   u32 prot, bool *lost)
{
	struct page *own = pfn_to_page(PHYS_PFN(bounce->phys));
	struct scatterlist row[3];
	u32 parts = 0, done = 0;

	sg_init_table(row, ARRAY_SIZE(row));
	row_add(row, &parts, &done, bounce->first, !!bounce->first);
	row_add(row, &parts, &done, own + done, pages - done - !!bounce->last);
	row_add(row, &parts, &done, bounce->last, !!bounce->last);
	return map_segments(dev, row, parts, NULL, pages, prot, lost);
}

/* Nothing is mapped that would keep the group. */
static void count_failure(struct device *dev)
{
	struct xs_group *group;

	xs_enter();
	group = xs_group_now(dev);
	if (group)
		xs_engine_map_failed(&group->engine);
	xs_exit();
}

/* At least one of its pages is not all its own. */
static noinline dma_addr_t bounce_map(struct device *dev, phys_addr_t phys,
				      size_t size, enum dma_data_direction dir,
				      unsigned long attrs)
{
	u32 pages = pages_of(phys, size);
	u32 prot = prot_of(dir, attrs);
	struct bounce *bounce;
	bool lost = false;
	u64 iova;

	if (!size || size > INT_MAX || attrs & DMA_ATTR_REQUIRE_COHERENT)
		return DMA_MAPPING_ERROR;
	bounce = bounce_new(dev, phys, size, dir);
	if (!bounce)
		goto no_memory;
	bounce_copy(bounce, 0, size, true);
	iova = pages <= XS_BLOCK_PAGES ?
		map_few(dev, bounce, pages, prot, &lost) :
		map_row(dev, bounce, pages, prot, &lost);
	if (!iova) {
		if (lost)
			tell_lost(dev, (!!bounce->first + !!bounce->last) *
					       PAGE_SIZE);
		else
			bounce_free(bounce);
		return DMA_MAPPING_ERROR;
	}
	trace_map(dev, iova, pages);
	bounce->handle = iova + offset_in_page(phys);
	if (!bounce_remember(xs_group_of(dev), bounce))
		return bounce->handle;
	if (unmap_pages(dev, bounce->handle, size, true))
		bounce_free(bounce);
no_memory:
	count_failure(dev);
	return DMA_MAPPING_ERROR;
}

/* Any mapping of an untrusted device that is no copy. */
static noinline void bounce_unmap(struct device *dev, dma_addr_t handle,
				  size_t size, unsigned long attrs)
{
	struct bounce *bounce = bounce_take(xs_group_of(dev), handle, size);

	/* If somebody else unmaps it, too, or it is stuck, it may be the device's: it is lost. */
	if (!unmap_pages(dev, handle, size, true) || !bounce)
		return;
	if (bounce->dir != DMA_TO_DEVICE && !(attrs & DMA_ATTR_SKIP_CPU_SYNC))
		bounce_copy(bounce, 0, bounce->size, false);
	bounce_free(bounce);
}

/*
 * Of a part, as far as the device has other pages there. Without @copies the driver gives
 * it to a device that only writes, whatever it was mapped for: nothing is copied.
 */
static noinline void bounce_sync(struct xs_group *group, u64 handle,
				 size_t size, bool to_device, bool copies)
{
	struct bounce *bounce, *before = NULL;
	unsigned long flags, index;
	bool stray = false;

	xa_lock_irqsave(&group->bounces, flags);
	xa_for_each_range(&group->bounces, index, bounce, handle >> PAGE_SHIFT,
			  (handle + size - 1) >> PAGE_SHIFT) {
		size_t from = handle - bounce->handle;

		if (bounce == before)
			continue;
		before = bounce;
		if (handle < bounce->handle)
			stray = true;
		else if (copies && bounce->dir != (to_device ? DMA_FROM_DEVICE :
							       DMA_TO_DEVICE))
			bounce_copy(bounce, from, from + size, to_device);
		else if (to_device)
			copy_head(bounce, from, from + size, true, false);
	}
	xa_unlock_irqrestore(&group->bounces, flags);
	if (unlikely(stray))
		xs_engine_stray(&group->engine, handle,
				"a sync that begins before what is mapped");
}
