// SPDX-License-Identifier: GPL-2.0-only
/*
 * mode=api: every kind of mapping and its unmap; a failed probe logs the wrong result. mode=kernel:
 * the same, as far as the kernel's own path supports the calls.
 */
#include <linux/anon_inodes.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/mman.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "dma_api.h"

/* Set by the probe; false in mode=kernel. */
static bool is_ours;

/* ---- single mappings ---- */

/* Maps @size bytes at @offset of a buffer of 256 KiB and checks the translation of each page. */
static int check_single(struct device *dev, void *buffer, size_t offset, size_t size, u64 mask)
{
	dma_addr_t iova = dma_map_single(dev, buffer + offset, size, DMA_BIDIRECTIONAL);
	int error = 0;
	size_t at;

	if (dma_mapping_error(dev, iova))
		return wrong(dev, "dma_map_single() failed");
	if (iova + size - 1 > mask)
		error = wrong(dev, "an IOVA above the device's mask");
	if (offset_in_page(iova) != offset_in_page(buffer + offset))
		error = wrong(dev, "the offset in the page is lost");
	for (at = 0; at < size && !error; at += min_t(size_t, PAGE_SIZE, size - at))
		if (translated(dev, iova + at) !=
		    virt_to_phys(buffer + offset) + at)
			error = wrong(dev, "a page of a mapping is not translated");
	dma_sync_single_for_cpu(dev, iova, size, DMA_BIDIRECTIONAL);
	dma_sync_single_for_device(dev, iova, size, DMA_BIDIRECTIONAL);
	dma_unmap_single(dev, iova, size, DMA_BIDIRECTIONAL);
	return error;
}

static int check_singles(struct device *dev, u64 mask)
{
	static const struct {
		size_t offset;
		size_t size;
	} parts[] = {
		{ 0, 1 }, { 0, 4096 }, { 4095, 1 }, { 4095, 2 }, { 1, 4096 },
		{ 100, 9000 }, { 0, 65536 }, { 0, 65537 }, { 1, 65536 },
		{ 0, 253952 }, { 0, 262144 }, { 4095, 258049 },
	};
	void *buffer = alloc_pages_exact(262144, GFP_KERNEL);
	int error = 0;
	size_t i;

	if (!buffer)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(parts) && !error; i++)
		error = check_single(dev, buffer, parts[i].offset, parts[i].size, mask);
	free_pages_exact(buffer, 262144);
	return error;
}

/* ---- scatter-gather ---- */

#define SG_ORDER	4

/* Segment i has i * 700 + 1 bytes of a buffer of its own and may start in a later page. */
static int make_sg(struct sg_table *table, u32 segments)
{
	struct scatterlist *sg;
	int i;

	if (sg_alloc_table(table, segments, GFP_KERNEL))
		return -ENOMEM;
	for_each_sgtable_sg(table, sg, i) {
		struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP, SG_ORDER);

		if (!page)
			return -ENOMEM;
		sg_set_page(sg, page, i * 700 + 1, i * 100 % 4096 + i % 3 * 4096);
	}
	return 0;
}

static void free_sg(struct sg_table *table)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(table, sg, i)
		if (sg_page(sg))
			__free_pages(sg_page(sg), SG_ORDER);
	sg_free_table(table);
}

/* A reused list contains the addresses and lengths of its last map. */
static void use_sg(struct scatterlist *sgl, int nents)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		sg_dma_address(sg) = 0x1000;
		sg_dma_len(sg) = 4096;
	}
}

/* Returns whether the entries behind the first @count are empty. Drivers walk up to length 0. */
static bool is_clear_behind(struct scatterlist *sgl, int nents, int count)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i)
		if (i >= count && (sg_dma_address(sg) != DMA_MAPPING_ERROR ||
				   sg_dma_len(sg)))
			return false;
	return true;
}

/* A list that cannot be mapped has no DMA segments. */
static int check_empty_sg(struct device *dev)
{
	struct sg_table table;
	struct scatterlist *sg;
	int error, i;

	if (sg_alloc_table(&table, 3, GFP_KERNEL))
		return -ENOMEM;
	for_each_sgtable_sg(&table, sg, i)
		sg_set_page(sg, virt_to_page(dev), 0, 0);
	use_sg(table.sgl, table.orig_nents);
	error = dma_map_sgtable(dev, &table, DMA_TO_DEVICE, 0);
	if (!error || sg_dma_address(table.sgl) != DMA_MAPPING_ERROR ||
	    sg_dma_len(table.sgl))
		error = wrong(dev, "a list of no bytes was mapped");
	else if (!is_clear_behind(table.sgl, table.orig_nents, 0))
		error = wrong(dev, "a refused list has DMA segments");
	else
		error = 0;
	sg_free_table(&table);
	return error;
}

/* A list of a single segment takes another path. */
static int check_refused_segment(struct device *dev)
{
	struct scatterlist sg;

	sg_init_table(&sg, 1);
	sg_set_page(&sg, virt_to_page(dev), 0, 0);
	use_sg(&sg, 1);
	if (dma_map_sg(dev, &sg, 1, DMA_TO_DEVICE))
		return wrong(dev, "a segment of no bytes was mapped");
	if (!is_clear_behind(&sg, 1, 0))
		return wrong(dev, "a refused segment has an address");
	return 0;
}

/*
 * Returns whether the device reaches a page between two segments. The kernel's path allows
 * this.
 */
static bool is_gap_mapped(struct device *dev, struct scatterlist *out)
{
	struct scatterlist *next = sg_next(out);
	u64 end = PAGE_ALIGN(sg_dma_address(out) + sg_dma_len(out));

	return is_ours && next && sg_dma_len(next) &&
	       end < (sg_dma_address(next) & PAGE_MASK) && translated(dev, end);
}

/* Walks both lists in parallel and compares the address of every byte. */
static int compare_sg(struct device *dev, struct sg_table *table)
{
	u64 boundary = dma_get_seg_boundary(dev);
	struct scatterlist *sg, *out = table->sgl;
	size_t used = 0;
	int i;

	for_each_sgtable_sg(table, sg, i) {
		size_t at = 0;

		while (at < sg->length) {
			size_t left = min(sg_dma_len(out) - used, sg->length - at);
			size_t step = min_t(size_t, left, 512);

			if (translated(dev, sg_dma_address(out) + used) !=
			    sg_phys(sg) + at)
				return wrong(dev, "a byte of a list is not translated");
			at += step;
			used += step;
			if (used < sg_dma_len(out))
				continue;
			if ((sg_dma_address(out) & ~boundary) !=
			    ((sg_dma_address(out) + used - 1) & ~boundary))
				return wrong(dev, "a segment crosses the boundary");
			if (sg_dma_len(out) > dma_get_max_seg_size(dev))
				return wrong(dev, "a segment is too long");
			if (is_gap_mapped(dev, out))
				return wrong(dev, "a page outside the list is mapped");
			out = sg_next(out);
			used = 0;
		}
	}
	return 0;
}

/*
 * Only the boundary separates the pages, so the list has no more segments than the boundary
 * needs.
 */
static bool is_joined(struct device *dev, const struct sg_table *table)
{
	u64 boundary = dma_get_seg_boundary(dev);

	return dma_get_max_seg_size(dev) <= boundary ||
	       table->nents <= ((u64)table->orig_nents * PAGE_SIZE - 1) / (boundary + 1) + 1;
}

/* @pages: each segment is a whole page. */
static int check_list(struct device *dev, u32 segments, bool pages)
{
	struct sg_table table;
	struct scatterlist *sg;
	int error, i;

	error = make_sg(&table, segments);
	if (!error && pages)
		for_each_sgtable_sg(&table, sg, i)
			sg_set_page(sg, sg_page(sg), PAGE_SIZE, 0);
	if (!error)
		use_sg(table.sgl, table.orig_nents);
	if (!error)
		error = dma_map_sgtable(dev, &table, DMA_TO_DEVICE, 0);
	if (!error) {
		error = compare_sg(dev, &table);
		if (!error && !is_clear_behind(table.sgl, table.orig_nents, table.nents))
			error = wrong(dev, "entries behind the last segment have lengths");
		if (!error && pages && is_ours && !is_joined(dev, &table))
			error = wrong(dev, "pages of a list are not joined");
		dma_unmap_sgtable(dev, &table, DMA_TO_DEVICE, 0);
	}
	free_sg(&table);
	return error;
}

static int check_lists(struct device *dev)
{
	static const struct {
		u32 segments;
		bool pages;
	} lists[] = {
		/* More pages than a block. */
		{ 40 },
		/* Gaps; of 20, a single gap of a page with a boundary of 64 KiB. */
		{ 20 }, { 16 }, { 6 },
		/* Short lists. */
		{ 3 }, { 2 },
		/* A whole block of pages, a page less and a page more. */
		{ 63, true }, { 64, true }, { 65, true },
	};
	int error = 0;

	for (u32 i = 0; i < ARRAY_SIZE(lists) && !error; i++)
		error = check_list(dev, lists[i].segments, lists[i].pages);
	return error;
}

static int check_sg(struct device *dev)
{
	static const struct {
		u64 boundary;
		unsigned int longest;
	} limits[] = {
		{ DMA_BIT_MASK(32), 65536 }, { 0xffff, 65536 }, { 0x7fff, 32768 },
	};
	int error = 0;

	for (u32 i = 0; i < ARRAY_SIZE(limits) && !error; i++) {
		dma_set_seg_boundary(dev, limits[i].boundary);
		dma_set_max_seg_size(dev, limits[i].longest);
		error = check_lists(dev);
	}
	return error;
}

/* ---- coherent memory ---- */

/* Coherent memory as a file for mmap(). */
struct shared {
	struct device *dev;
	size_t size;
	void *memory;
	dma_addr_t iova;
};

static int shared_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct shared *shared = file->private_data;

	return dma_mmap_coherent(shared->dev, vma, shared->memory, shared->iova, shared->size);
}

static const struct file_operations shared_ops = { .mmap = shared_mmap };

/*
 * Maps @bytes of the memory from @skipped on into the process that binds the driver, and compares.
 * No mapping may reach beyond the memory, wherever the mapping begins.
 */
static int check_mmap(struct shared *shared, size_t skipped, size_t bytes, unsigned long flags,
		      bool fits)
{
	struct file *file = anon_inode_getfile("rude", &shared_ops, shared, O_RDWR);
	unsigned long user;
	int error = 0;
	u32 found;

	if (IS_ERR(file))
		return PTR_ERR(file);
	user = vm_mmap(file, 0, bytes, PROT_READ | PROT_WRITE, flags, skipped);
	fput(file);
	if (IS_ERR_VALUE(user))
		return fits ? wrong(shared->dev, "dma_mmap_coherent()") : 0;
	if (!fits)
		error = wrong(shared->dev, "more was mapped than there is");
	for (size_t at = 0; at < bytes && !error; at += PAGE_SIZE)
		if (get_user(found, (u32 __user *)(user + at)) ||
		    found != (skipped + at) >> PAGE_SHIFT)
			error = wrong(shared->dev, "another page was mapped");
	vm_munmap(user, bytes);
	return error;
}

static int check_mmaps(struct device *dev, size_t size)
{
	const struct {
		size_t skipped, bytes;
		unsigned long flags;
		bool fits;
	} maps[] = {
		{ 0, size, MAP_SHARED, true },
		{ 2 * PAGE_SIZE, size - 2 * PAGE_SIZE, MAP_SHARED, true },
		{ 0, size, MAP_PRIVATE, true },
		{ 0, size + PAGE_SIZE, MAP_SHARED, false },
		{ 2 * PAGE_SIZE, size, MAP_SHARED, false },
		{ size, PAGE_SIZE, MAP_SHARED, false },
		{ size + PAGE_SIZE, PAGE_SIZE, MAP_SHARED, false },
	};
	struct shared shared = { .dev = dev, .size = size };
	int error = 0;
	size_t at;

	shared.memory = dma_alloc_coherent(dev, size, &shared.iova, GFP_KERNEL);
	if (!shared.memory)
		return wrong(dev, "dma_alloc_coherent() failed");
	for (at = 0; at < size; at += PAGE_SIZE)
		*(u32 *)(shared.memory + at) = at >> PAGE_SHIFT;
	for (u32 i = 0; i < ARRAY_SIZE(maps) && !error; i++)
		error = check_mmap(&shared, maps[i].skipped, maps[i].bytes, maps[i].flags,
				   maps[i].fits);
	dma_free_coherent(dev, size, shared.memory, shared.iova);
	return error;
}

static int check_coherent(struct device *dev, size_t size, gfp_t gfp, u64 mask)
{
	dma_addr_t iova;
	struct sg_table table;
	u8 *memory = dma_alloc_coherent(dev, size, &iova, gfp);
	int error = 0;
	size_t at;

	if (!memory)
		return wrong(dev, "dma_alloc_coherent() failed");
	if (iova + size - 1 > mask)
		error = wrong(dev, "coherent memory above the device's mask");
	for (at = 0; at < size; at += PAGE_SIZE)
		if (!translated(dev, iova + at) || memory[at])
			error = wrong(dev, "coherent memory not mapped, or not zero");
	memset(memory, 0x5a, size);
	if (!error && gfp == GFP_KERNEL) {
		error = dma_get_sgtable(dev, &table, memory, iova, size);
		if (!error) {
			if (sg_phys(table.sgl) != translated(dev, iova))
				error = wrong(dev, "dma_get_sgtable() is elsewhere");
			sg_free_table(&table);
		}
	}
	dma_free_coherent(dev, size, memory, iova);
	return error;
}

/*
 * The device gets a single segment, and CONFIG_DMA_API_DEBUG compares the segment with the
 * device's limits.
 */
static struct sg_table *alloc_noncontiguous(struct device *dev, size_t size)
{
	dma_set_seg_boundary(dev, ULONG_MAX);
	dma_set_max_seg_size(dev, UINT_MAX);
	return dma_alloc_noncontiguous(dev, size, DMA_BIDIRECTIONAL, GFP_KERNEL, 0);
}

static int check_noncontiguous(struct device *dev, size_t size)
{
	struct sg_table *table = alloc_noncontiguous(dev, size);
	struct scatterlist *sg;
	int i, error = 0;
	size_t at = 0;
	u8 *address;

	if (!table)
		return wrong(dev, "dma_alloc_noncontiguous()");
	if (sg_dma_len(table->sgl) < size)
		error = wrong(dev, "noncontiguous memory has several segments for the device");
	for_each_sgtable_sg(table, sg, i) {
		size_t in;

		for (in = 0; in < sg->length; in += PAGE_SIZE, at += PAGE_SIZE)
			if (translated(dev, sg_dma_address(table->sgl) + at) !=
			    sg_phys(sg) + in)
				error = wrong(dev, "noncontiguous memory is elsewhere");
	}
	if (at != PAGE_ALIGN(size))
		error = wrong(dev, "noncontiguous memory is of another size");
	address = dma_vmap_noncontiguous(dev, size, table);
	if (address) {
		memset(address, 1, size);
		dma_vunmap_noncontiguous(dev, address);
	} else {
		error = wrong(dev, "dma_vmap_noncontiguous()");
	}
	dma_free_noncontiguous(dev, size, table, DMA_BIDIRECTIONAL);
	return error;
}

/* More than the page allocator can provide contiguously; see kmod/dma/streaming.c. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#define NONCONTIGUOUS_MAX	(5 << 20)
#else
#define NONCONTIGUOUS_MAX	(1 << 20)
#endif

static int check_pages(struct device *dev)
{
	struct page *page;
	dma_addr_t iova;
	int error = 0;

	page = dma_alloc_pages(dev, 3 * PAGE_SIZE, &iova, DMA_BIDIRECTIONAL, GFP_KERNEL);
	if (!page || translated(dev, iova) != page_to_phys(page))
		error = wrong(dev, "dma_alloc_pages()");
	if (page)
		dma_free_pages(dev, 3 * PAGE_SIZE, page, iova, DMA_BIDIRECTIONAL);
	return error ?: check_noncontiguous(dev, 9 * PAGE_SIZE) ?:
	       check_noncontiguous(dev, NONCONTIGUOUS_MAX);
}

static int check_coherents(struct device *dev, u64 mask)
{
	static const size_t sizes[] = { 1, 4096, 12288, 32768, 65536, 262144,
					4 << 20 };
	int error = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes) && !error; i++) {
		error = check_coherent(dev, sizes[i], GFP_KERNEL, mask);
		if (!error && sizes[i] <= 65536)
			error = check_coherent(dev, sizes[i], GFP_ATOMIC, mask);
	}
	return error ?: check_mmaps(dev, 4 * PAGE_SIZE) ?: check_mmaps(dev, 300 * PAGE_SIZE) ?:
	       check_pages(dev);
}

/* Freed memory is unreachable when the call returns, under every policy. */
static int check_freed(struct device *dev, size_t size)
{
	dma_addr_t iova;
	struct sg_table *table;
	struct page *pages;
	void *memory = dma_alloc_coherent(dev, size, &iova, GFP_KERNEL);

	if (!memory)
		return -ENOMEM;
	dma_free_coherent(dev, size, memory, iova);
	if (translated(dev, iova))
		return wrong(dev, "freed coherent memory is translated");
	pages = dma_alloc_pages(dev, size, &iova, DMA_BIDIRECTIONAL, GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	dma_free_pages(dev, size, pages, iova, DMA_BIDIRECTIONAL);
	if (translated(dev, iova))
		return wrong(dev, "freed pages are translated");
	table = alloc_noncontiguous(dev, size);
	if (!table)
		return -ENOMEM;
	iova = sg_dma_address(table->sgl);
	dma_free_noncontiguous(dev, size, table, DMA_BIDIRECTIONAL);
	if (translated(dev, iova))
		return wrong(dev, "freed noncontiguous memory is translated");
	return 0;
}

/* ---- device registers of a peer ---- */

static int check_resource(struct device *dev)
{
	phys_addr_t registers = pci_resource_start(to_pci_dev(dev), 0);
	dma_addr_t iova = dma_map_resource(dev, registers, 4096, DMA_BIDIRECTIONAL, 0);
	int error;

	if (dma_mapping_error(dev, iova))
		return wrong(dev, "dma_map_resource() failed");
	error = translated(dev, iova) == registers ? 0 :
		wrong(dev, "device registers are not translated");
	dma_unmap_resource(dev, iova, 4096, DMA_BIDIRECTIONAL, 0);
	return error;
}

#define NEIGHBOURS	8

/* Returns whether every page is translated, except odd pages if @odd_gone. */
static bool are_there(struct device *dev, struct page *page,
		      const dma_addr_t *iovas, bool odd_gone)
{
	u32 i;

	for (i = 0; i < NEIGHBOURS; i++) {
		phys_addr_t wanted = page_to_phys(page + i);

		if (translated(dev, iovas[i]) != (odd_gone && i % 2 ? 0 : wanted))
			return false;
	}
	return true;
}

/* Unmaps every second page from @first to the one before @end. */
static void unmap_neighbours(struct device *dev, const dma_addr_t *iovas, u32 first, u32 end)
{
	for (u32 i = first; i < end; i += 2)
		dma_unmap_page(dev, iovas[i], PAGE_SIZE, i & 4 ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
}

/* Maps each page separately; after an unmap and flush of every second page, the others stay. */
static int check_neighbours(struct device *dev)
{
	struct page *page = alloc_pages(GFP_KERNEL, 3);
	dma_addr_t iovas[NEIGHBOURS];
	int error = 0;
	u32 i;

	if (!page)
		return -ENOMEM;
	for (i = 0; i < NEIGHBOURS; i++) {
		iovas[i] = dma_map_page(dev, page, i * PAGE_SIZE, PAGE_SIZE,
					i & 4 ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
		if (dma_mapping_error(dev, iovas[i])) {
			error = wrong(dev, "a page was not mapped");
			break;
		}
	}
	if (!error && !are_there(dev, page, iovas, false))
		error = wrong(dev, "a page is not translated");
	unmap_neighbours(dev, iovas, 1, i);
	msleep(30);
	if (!error && !are_there(dev, page, iovas, true))
		error = wrong(dev, "an unmap has removed another page");
	unmap_neighbours(dev, iovas, 0, i);
	__free_pages(page, 3);
	return error;
}

int probe_api(struct device *dev, u32 kernel)
{
	static const u32 bits[] = { 64, 32, 24 };
	/* A 24-bit mask: the kernel's own path soon has no long range left below 16 MiB. */
	u32 masks = kernel ? 2 : 3;
	int error = 0;
	size_t i;

	is_ours = !kernel;
	for (i = 0; i < masks && !error; i++) {
		u64 mask = DMA_BIT_MASK(bits[i]);

		if (dma_set_mask_and_coherent(dev, mask))
			return wrong(dev, "a DMA mask was refused");
		error = check_singles(dev, mask) ?: check_coherents(dev, mask) ?: check_sg(dev) ?:
			check_resource(dev);
	}
	if (!error && is_ours)
		error = check_empty_sg(dev) ?: check_refused_segment(dev);
	error = error ?: check_neighbours(dev) ?: check_freed(dev, PAGE_SIZE) ?:
		check_freed(dev, 20 * PAGE_SIZE);
	if (!error && dma_get_required_mask(dev) == 0)
		error = wrong(dev, "no required mask");
	if (!error && dma_max_mapping_size(dev) < 262144)
		error = wrong(dev, "a small dma_max_mapping_size()");
	return error;
}
