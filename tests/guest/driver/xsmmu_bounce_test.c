// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver for QEMU's iommu-testdev that maps small buffers, which the module copies. The probe
 * reads each buffer as the device would, writes to the buffer's IOVA as the device would, and
 * fails if a result differs from the promises of the DMA API or if a write lands outside the
 * buffer. The device itself writes only to kept buffers, on request of the parameter fire.
 *
 * The parameter limit is the size in bytes of the largest buffer that the module copies.
 */
#include <linux/delay.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/scatterlist.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "test_driver.h"

static unsigned int limit = 4096;
module_param(limit, uint, 0644);
MODULE_PARM_DESC(limit, "largest size in bytes of a copied buffer");

static unsigned long registers;
module_param(registers, ulong, 0644);
MODULE_PARM_DESC(registers, "address of the registers of the device's IOMMU, a VT-d in legacy mode; 0: do not check the page table");

#define BUFFER_BYTES	(4 * PAGE_SIZE)
#define MEMORY_BYTES	(2 * BUFFER_BYTES)
#define TRIES		100

static u8 *memory;	/* MEMORY_BYTES for the probe's buffers, zeroed */

static int wrong(struct device *dev, const char *what)
{
	dev_err(dev, "copied: wrong: %s\n", what);
	return -EIO;
}

struct buffer {
	u8 *memory;
	size_t bytes;
	enum dma_data_direction dir;
	dma_addr_t iova;
};

/* ---- the device ---- */

/* Returns the memory behind @iova; NULL if the page is not mapped. */
static u8 *found(struct device *dev, dma_addr_t iova)
{
	phys_addr_t phys = iommu_iova_to_phys(iommu_get_domain_for_dev(dev), iova);

	return phys ? phys_to_virt(phys) : NULL;
}

/* Returns the number of @bytes in the page of @iova; found() translates all of them. */
static size_t in_page(dma_addr_t iova, size_t bytes)
{
	return min(bytes, PAGE_SIZE - offset_in_page(iova));
}

#define ROOT_REGISTER	0x20
#define READS		1
#define WRITES		2
#define LARGE		0x80

static u64 *table_of(u64 entry)
{
	return phys_to_virt(entry & GENMASK_ULL(51, 12));
}

/* Returns the device's rights (READS, WRITES) at @iova, from all levels of the page table. */
static u32 allowed(struct device *dev, dma_addr_t iova)
{
	struct pci_dev *pdev = to_pci_dev(dev);
	void __iomem *at = ioremap(registers, PAGE_SIZE);
	u64 entry, *table;
	u32 may = READS | WRITES, level;

	if (!at)
		return 0;
	table = table_of(readq(at + ROOT_REGISTER));
	iounmap(at);
	table = table_of(table[2 * pdev->bus->number]) + 2 * pdev->devfn;
	level = (table[1] & 7) + 2;
	for (entry = table[0]; level; level--) {
		entry = table_of(entry)[iova >> (3 + 9 * level) & 511];
		may &= entry;
		if (!may || entry & LARGE)
			break;
	}
	return may;
}

/* VT-d drivers before 7.0 let a device read every page that the device may write. */
static bool is_allowed(struct device *dev, const struct buffer *buffer)
{
	static const u32 wanted[] = {
		[DMA_BIDIRECTIONAL] = READS | WRITES,
		[DMA_TO_DEVICE] = READS,
		[DMA_FROM_DEVICE] = LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0) ?
				    WRITES : READS | WRITES,
	};

	return allowed(dev, buffer->iova) == wanted[buffer->dir];
}

/* Writes as the device would, without a check of the IOMMU's permissions. */
static void writes(struct device *dev, dma_addr_t iova, size_t bytes, u8 value)
{
	size_t at, part;

	for (at = 0; at < bytes; at += part) {
		part = in_page(iova + at, bytes - at);
		memset(found(dev, iova + at), value, part);
	}
}

static bool is_like(struct device *dev, dma_addr_t iova, const u8 *bytes, size_t count)
{
	size_t at, part;

	for (at = 0; at < count; at += part) {
		part = in_page(iova + at, count - at);
		if (memcmp(found(dev, iova + at), bytes + at, part))
			return false;
	}
	return true;
}

static bool is_filled(const u8 *bytes, size_t count, u8 value)
{
	return !memchr_inv(bytes, value, count);
}

/* ---- one buffer ---- */

static bool is_copied(struct device *dev, const struct buffer *buffer)
{
	return found(dev, buffer->iova) != buffer->memory;
}

static void unmap(struct device *dev, const struct buffer *buffer, unsigned long attrs)
{
	dma_unmap_single_attrs(dev, buffer->iova, buffer->bytes, buffer->dir, attrs);
}

/*
 * Maps @buffer, and while the module does not copy, unmaps and maps again, @tries times in all:
 * the first maps of a kind may come before the pool has memory.
 */
static int map_soon(struct device *dev, struct buffer *buffer, unsigned long attrs, u32 tries)
{
	for (u32 try = 1;; try++) {
		buffer->iova = dma_map_single_attrs(dev, buffer->memory, buffer->bytes,
						    buffer->dir, attrs);
		if (dma_mapping_error(dev, buffer->iova))
			return wrong(dev, "dma_map_single() failed");
		if (is_copied(dev, buffer) || try == tries)
			return 0;
		unmap(dev, buffer, attrs);
		msleep(20);
	}
}

static int map(struct device *dev, struct buffer *buffer, bool copied)
{
	int error = map_soon(dev, buffer, 0, copied ? TRIES : 1);

	if (error || is_copied(dev, buffer) == copied)
		return error;
	unmap(dev, buffer, 0);
	return wrong(dev, copied ? "a small buffer is not copied" : "a large buffer is copied");
}

/* As map_soon(), for a list. Returns the number of DMA segments. */
static int map_list_soon(struct device *dev, struct scatterlist *list, int segments,
			 enum dma_data_direction dir, unsigned long attrs, u32 tries)
{
	for (u32 try = 1;; try++) {
		int count = dma_map_sg_attrs(dev, list, segments, dir, attrs);

		if (!count)
			return wrong(dev, "dma_map_sg() failed");
		if (found(dev, sg_dma_address(list)) != sg_virt(list) || try == tries)
			return count;
		dma_unmap_sg_attrs(dev, list, segments, dir, attrs);
		msleep(20);
	}
}

/* Maps and unmaps a buffer; returns whether the map succeeded. */
static bool can_map(struct device *dev, struct buffer *buffer)
{
	buffer->iova = dma_map_single(dev, buffer->memory, buffer->bytes, buffer->dir);
	if (dma_mapping_error(dev, buffer->iova))
		return false;
	unmap(dev, buffer, 0);
	return true;
}

static void fill(const struct buffer *buffer, u8 value)
{
	memset(buffer->memory, value, buffer->bytes);
}

/* A copy starts with the buffer's bytes, and the unmap copies device writes back. */
static int check_unmap(struct device *dev, struct buffer *buffer)
{
	bool comes_back = buffer->dir != DMA_TO_DEVICE;
	u64 stale;
	int error;

	fill(buffer, 0x11);
	error = map(dev, buffer, true);
	if (error)
		return error;
	stale = buffer->iova;
	if (!is_like(dev, stale, buffer->memory, buffer->bytes))
		return wrong(dev, "a copy is not like its buffer");
	writes(dev, stale, buffer->bytes, 0x22);
	if (!is_filled(buffer->memory, buffer->bytes, 0x11))
		return wrong(dev, "a device write reaches a copied buffer");
	unmap(dev, buffer, 0);
	if (!is_filled(buffer->memory, buffer->bytes, comes_back ? 0x22 : 0x11))
		return wrong(dev, "an unmap copies back wrongly, or not at all");
	writes(dev, stale, buffer->bytes, 0x33);
	if (is_filled(buffer->memory, buffer->bytes, 0x33))
		return wrong(dev, "a stale write has reached the buffer");
	return 0;
}

/* An unmap with DMA_ATTR_SKIP_CPU_SYNC copies nothing back. */
static int check_skip(struct device *dev, struct buffer *buffer)
{
	int error;

	fill(buffer, 0x44);
	error = map(dev, buffer, true);
	if (error)
		return error;
	writes(dev, buffer->iova, buffer->bytes, 0x55);
	unmap(dev, buffer, DMA_ATTR_SKIP_CPU_SYNC);
	if (!is_filled(buffer->memory, buffer->bytes, 0x44))
		return wrong(dev, "an unmap with DMA_ATTR_SKIP_CPU_SYNC copies back");
	return 0;
}

/* A partial sync copies exactly its part, in its direction. */
static int check_sync(struct device *dev, struct buffer *buffer)
{
	size_t at = buffer->bytes / 3, part = buffer->bytes / 3;
	u8 *bytes = buffer->memory;
	bool reads = buffer->dir != DMA_FROM_DEVICE;
	bool wrote = buffer->dir != DMA_TO_DEVICE;
	int error;

	fill(buffer, 0x66);
	error = map(dev, buffer, true);
	if (error)
		return error;
	if (!dma_need_sync(dev, buffer->iova))
		return wrong(dev, "a copy seems to need no syncs");
	writes(dev, buffer->iova, buffer->bytes, 0x77);
	dma_sync_single_range_for_cpu(dev, buffer->iova, at, part, buffer->dir);
	if (!is_filled(bytes + at, part, wrote ? 0x77 : 0x66))
		return wrong(dev, "a sync for the CPU copies wrongly, or not at all");
	if (!is_filled(bytes, at, 0x66) ||
	    !is_filled(bytes + at + part, buffer->bytes - at - part, 0x66))
		return wrong(dev, "a sync of a part has copied more");
	fill(buffer, 0x88);
	dma_sync_single_range_for_device(dev, buffer->iova, at, part, buffer->dir);
	if (part && (*found(dev, buffer->iova + at) == 0x88) != reads)
		return wrong(dev, "a sync for the device copies wrongly, or not at all");
	if (at && *found(dev, buffer->iova) != 0x77)
		return wrong(dev, "a sync of a part for the device has copied more");
	unmap(dev, buffer, 0);
	return 0;
}

/* A map and an unmap leave the bytes beside the buffer alone. */
static int check_beside(struct device *dev, struct buffer *buffer, u8 *first,
			u8 *end)
{
	int error;

	memset(first, 0x99, end - first);
	error = map(dev, buffer, true);
	if (error)
		return error;
	if (found(dev, buffer->iova + buffer->bytes - 1) !=
	    found(dev, buffer->iova) + buffer->bytes - 1)
		return wrong(dev, "a copy is not contiguous");
	memset(first, 0xaa, end - first);
	unmap(dev, buffer, 0);
	if (!is_filled(first, buffer->memory - first, 0xaa) ||
	    !is_filled(buffer->memory + buffer->bytes,
		       end - buffer->memory - buffer->bytes, 0xaa))
		return wrong(dev, "an unmap has changed bytes beside the buffer");
	return 0;
}

/* A buffer above the limit is mapped without a copy. */
static int check_large(struct device *dev, struct buffer *buffer)
{
	int error;

	buffer->bytes = limit + 1;
	error = map(dev, buffer, false);
	if (error)
		return error;
	unmap(dev, buffer, 0);
	return 0;
}

static int check_buffer(struct device *dev, size_t offset, size_t bytes,
			enum dma_data_direction dir)
{
	struct buffer buffer = { .memory = memory + offset, .bytes = bytes, .dir = dir };

	return check_unmap(dev, &buffer) ?:
	       check_skip(dev, &buffer) ?:
	       check_sync(dev, &buffer) ?:
	       check_beside(dev, &buffer, memory, memory + BUFFER_BYTES) ?:
	       check_large(dev, &buffer);
}

/* A whole page may be shared between driver and device without any sync. */
static bool is_shared(size_t offset, size_t bytes)
{
	return !offset_in_page(offset | bytes);
}

static int check_buffers(struct device *dev)
{
	static const size_t sizes[] = { 1, 60, 255, 256, 257, 1514, 2048, 4095, 4096 };
	static const size_t offsets[] = { 0, 100, 2048, 4000 };
	int dir, error = 0;
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(sizes) && sizes[i] <= limit; i++)
		for (j = 0; j < ARRAY_SIZE(offsets); j++)
			for (dir = DMA_BIDIRECTIONAL; dir <= DMA_FROM_DEVICE && !error; dir++)
				if (!is_shared(offsets[j], sizes[i]))
					error = check_buffer(dev, offsets[j], sizes[i], dir);
	return error;
}

/* Buffers whose direction or attributes decide about the copy. */
static const struct {
	size_t offset, bytes;
	enum dma_data_direction dir;
	unsigned long attrs;
	bool copied;
	const char *wrong;
} singles[] = {
	/* Memory regions of RDMA and GPU buffers: CPU and device see each other's writes at once. */
	{ 0, PAGE_SIZE, DMA_BIDIRECTIONAL, 0, false, "a shared page is copied" },
	{ 0, PAGE_SIZE, DMA_TO_DEVICE, 0, false, "a page that the device reads is copied" },
	{ 0, PAGE_SIZE, DMA_FROM_DEVICE, 0, false, "a page that the device writes is copied" },
	{ 0, PAGE_SIZE, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC, false,
	  "a page whose user syncs by itself is copied" },
	{ 0, PAGE_SIZE, DMA_TO_DEVICE, DMA_ATTR_SKIP_CPU_SYNC, false,
	  "a page that the device reads, and whose user syncs by itself, is copied" },
	/*
	 * A receive page of a driver that syncs by itself is copied, so the device cannot reach the
	 * driver's data.
	 */
	{ 0, PAGE_SIZE, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC, true,
	  "a page of a receive ring is not copied" },
#ifdef DMA_ATTR_REQUIRE_COHERENT
	{ 100, 200, DMA_FROM_DEVICE, DMA_ATTR_REQUIRE_COHERENT, false,
	  "a buffer that is never synced is copied" },
#endif
	/* Bounce buffers have no special access rights, so a privileged buffer is mapped directly. */
	{ 100, 200, DMA_BIDIRECTIONAL, DMA_ATTR_PRIVILEGED, false, "a privileged buffer is copied" },
};

/* The pool has memory by now, so that a single map shows whether the module copies. */
static int check_singles(struct device *dev)
{
	int error = 0;

	for (u32 i = 0; i < ARRAY_SIZE(singles) && !error; i++) {
		struct buffer buffer = { .memory = memory + singles[i].offset,
					 .bytes = singles[i].bytes, .dir = singles[i].dir };

		if (singles[i].copied && buffer.bytes > limit)
			continue;
		error = map_soon(dev, &buffer, singles[i].attrs, 1);
		if (error)
			break;
		if (is_copied(dev, &buffer) != singles[i].copied)
			error = wrong(dev, singles[i].wrong);
		unmap(dev, &buffer, singles[i].attrs);
	}
	return error;
}

/*
 * With a minimum alignment mask the offset in the page stays; a buffer across pages is then
 * mapped.
 */
static int check_offset(struct device *dev)
{
	struct buffer buffer = { .memory = memory + 1000, .bytes = 200 };
	int error;

	dma_set_min_align_mask(dev, PAGE_SIZE - 1);
	error = map(dev, &buffer, true);
	if (!error && offset_in_page(buffer.iova) != 1000)
		error = wrong(dev, "the offset in the page is lost");
	if (!error)
		unmap(dev, &buffer, 0);
	buffer.memory = memory + 4000;
	if (!error)
		error = map(dev, &buffer, false);
	if (!error)
		unmap(dev, &buffer, 0);
	dma_set_min_align_mask(dev, 0);
	return error;
}

/* ---- lists ---- */

#define SEGMENTS	12

/* Segment i has @bytes[i % 3] bytes in pages of its own. */
static int make_list(struct sg_table *table, const size_t *bytes)
{
	struct scatterlist *sg;
	int i;

	if (sg_alloc_table(table, SEGMENTS, GFP_KERNEL))
		return -ENOMEM;
	for_each_sgtable_sg(table, sg, i) {
		struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP, 2);

		if (!page)
			return -ENOMEM;
		sg_set_page(sg, page, bytes[i % 3], i * 10);
		memset(page_address(page), i + 1, 4 * PAGE_SIZE);
	}
	return 0;
}

static void free_list(struct sg_table *table)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(table, sg, i)
		if (sg_page(sg))
			__free_pages(sg_page(sg), 2);
	sg_free_table(table);
}

/* Compares each byte of a mapped list with the device's view, then writes as the device. */
static int compare_list(struct device *dev, struct sg_table *table)
{
	struct scatterlist *sg, *out = table->sgl;
	size_t used = 0;
	int i;

	for_each_sgtable_sg(table, sg, i) {
		u8 *bytes = sg_virt(sg);
		size_t at, part;

		for (at = 0; at < sg->length; at += part) {
			dma_addr_t iova = sg_dma_address(out) + used;
			u8 *page = found(dev, iova);

			part = in_page(iova, min(sg->length - at, sg_dma_len(out) - used));
			if (!page || memcmp(page, bytes + at, part))
				return wrong(dev, "the device finds another list");
			memset(page, 0xbb, part);
			used += part;
			if (used < sg_dma_len(out))
				continue;
			out = sg_next(out);
			used = 0;
		}
	}
	return 0;
}

static bool is_list_filled(struct sg_table *table, u8 value)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(table, sg, i)
		if (!is_filled(sg_virt(sg), sg->length, value))
			return false;
	return true;
}

static void fill_list(struct sg_table *table, u8 value)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(table, sg, i)
		memset(sg_virt(sg), value, sg->length);
}

static bool is_list_copied(struct device *dev, struct sg_table *table)
{
	return found(dev, sg_dma_address(table->sgl)) != sg_virt(table->sgl);
}

/* Maps, syncs and unmaps a list; @copied says whether the module must copy the list. */
static int check_list(struct device *dev, const size_t *bytes, bool copied)
{
	struct sg_table table;
	int error = make_list(&table, bytes);

	if (!error)
		error = dma_map_sgtable(dev, &table, DMA_BIDIRECTIONAL, 0);
	if (error)
		goto free;
	if (is_list_copied(dev, &table) != copied)
		error = wrong(dev, "the first of a list is not copied, or is");
	if (!error)
		error = compare_list(dev, &table);
	dma_sync_sgtable_for_cpu(dev, &table, DMA_BIDIRECTIONAL);
	if (!error && !is_list_filled(&table, 0xbb))
		error = wrong(dev, "a sync does not bring a list back");
	fill_list(&table, 0xcc);
	dma_sync_sgtable_for_device(dev, &table, DMA_BIDIRECTIONAL);
	if (!error)
		error = compare_list(dev, &table);
	writes(dev, sg_dma_address(table.sgl), table.sgl->length, 0xdd);
	dma_unmap_sgtable(dev, &table, DMA_BIDIRECTIONAL, 0);
	if (!error && *(u8 *)sg_virt(table.sgl) != 0xdd)
		error = wrong(dev, "an unmap does not bring a list back");
free:
	free_list(&table);
	return error;
}

/*
 * Some devices treat a list as contiguous pages: only page boundaries may separate segments, in
 * IOVA space too, also if the list was copied.
 */
static int check_row(struct device *dev)
{
	struct scatterlist list[2];
	int count, error = 0;

	sg_init_table(list, 2);
	sg_set_buf(&list[0], memory + PAGE_SIZE - 100, 100);
	sg_set_buf(&list[1], memory + 2 * PAGE_SIZE, 50);
	count = map_list_soon(dev, list, 2, DMA_TO_DEVICE, 0, TRIES);
	if (count < 0)
		return count;
	if (found(dev, sg_dma_address(list)) == sg_virt(list))
		error = wrong(dev, "a small row is not copied");
	else if (offset_in_page(sg_dma_address(&list[0]) + 100) ||
		 offset_in_page(sg_dma_address(&list[1])))
		error = wrong(dev, "a row of pages is broken within a page");
	dma_unmap_sg(dev, list, 2, DMA_TO_DEVICE);
	return error;
}

/* Lists of small segments, of some small segments, and of segments that are too large together. */
static int check_lists(struct device *dev)
{
	const struct {
		size_t bytes[3];
		bool copied;
	} lists[] = {
		{ { 1, limit / 16, limit / 8 }, true },
		/* Exactly the limit, if the limit is a multiple of 4. */
		{ { 1, limit / 8, limit / 4 - limit / 8 - 1 }, true },
		{ { 9, 3 * PAGE_SIZE - 5, 7 }, false },
		{ { limit / 12 + 2, limit / 12, limit / 12 + 2 }, false },
		{ { limit + 1, 2 * PAGE_SIZE, 3 * PAGE_SIZE }, false },
	};
	int error = 0;

	for (u32 i = 0; i < ARRAY_SIZE(lists) && !error; i++)
		error = check_list(dev, lists[i].bytes, lists[i].copied);
	return error ?: check_row(dev);
}

/* The pool's addresses are above the mask of such a device or of its bus. */
static int check_narrow(struct device *dev, u64 last)
{
	struct buffer buffer = { .memory = memory + 100, .bytes = 60 };
	int error = map(dev, &buffer, false);

	if (error)
		return error;
	if (buffer.iova + buffer.bytes - 1 > last)
		error = wrong(dev, "an address is above the device's mask");
	unmap(dev, &buffer, 0);
	return error;
}

static int check_narrow_bus(struct device *dev)
{
	int error;

	dev->bus_dma_limit = DMA_BIT_MASK(24);
	error = check_narrow(dev, DMA_BIT_MASK(24));
	dev->bus_dma_limit = 0;
	return error;
}

static int plain(struct device *dev, u32 unused)
{
	return check_buffers(dev);
}

static int checks(struct device *dev, u32 unused)
{
	int error;

	/* The module copies each segment separately, so segments are not merged. */
	if (dma_get_merge_boundary(dev))
		return wrong(dev, "there is a merge boundary");
	error = check_buffers(dev) ?: check_singles(dev) ?: check_offset(dev) ?: check_lists(dev);
	if (!error && !dma_set_mask(dev, DMA_BIT_MASK(32)))
		error = check_buffers(dev);
	if (!error)
		error = check_narrow_bus(dev);
	if (!error && !dma_set_mask(dev, DMA_BIT_MASK(24)))
		error = check_narrow(dev, DMA_BIT_MASK(24));
	return error;
}

/* A sync longer than any copy is ignored. */
static int sync_too_much(struct device *dev, u32 unused)
{
	struct buffer buffer = { .memory = memory + 100, .bytes = 100, .dir = DMA_FROM_DEVICE };
	int error;

	memset(memory, 0x11, PAGE_SIZE);
	error = map(dev, &buffer, true);
	if (error)
		return error;
	writes(dev, buffer.iova, buffer.bytes, 0x22);
	dma_sync_single_for_cpu(dev, buffer.iova, PAGE_SIZE + 1, buffer.dir);
	if (!is_filled(memory, PAGE_SIZE, 0x11))
		error = wrong(dev, "a sync of too much copies");
	unmap(dev, &buffer, DMA_ATTR_SKIP_CPU_SYNC);
	return error;
}

/* ---- more than there is room for ---- */

#define FILLED	1100
#define CHUNK_BUFFERS	512	/* in a chunk of 2 MiB */
#define FILLED_BYTES	(PAGE_SIZE - 1)

/*
 * GONE is enough free bounce buffers to put their area back into use; LEFT is too few for a
 * list.
 */
#define GONE	20
#define LEFT	3

static int map_again(struct device *dev, struct buffer *buffers, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		buffers[i].iova = dma_map_single(dev, buffers[i].memory,
						 FILLED_BYTES, DMA_BIDIRECTIONAL);
		if (!is_copied(dev, &buffers[i]))
			return wrong(dev, "bounce buffers are lost");
	}
	return 0;
}

/*
 * A list is mapped without copies if the pool has too few bounce buffers; copies that were made
 * before the pool ran out are freed. With this alignment mask each segment takes a bounce
 * buffer of a page.
 */
static int list_in_full_pool(struct device *dev, struct buffer *buffers,
			     bool full)
{
	const size_t small[] = { 1, 20, 60 };
	int error;
	u32 i;

	if (!full)
		return 0;
	/* The last copied buffers share an area. */
	buffers += FILLED - 1;
	while (!is_copied(dev, buffers))
		buffers--;
	buffers -= GONE - 1;
	for (i = 0; i < GONE; i++)
		unmap(dev, &buffers[i], 0);
	/* A CPU that found no bounce buffer does not search again for a while. */
	msleep(20);
	error = map_again(dev, buffers, GONE - LEFT);
	dma_set_min_align_mask(dev, PAGE_SIZE - 1);
	if (!error)
		error = check_list(dev, small, false);
	dma_set_min_align_mask(dev, 0);
	for (i = 0; i < GONE - LEFT; i++)
		unmap(dev, &buffers[i], 0);
	msleep(20);
	return error ? error : map_again(dev, buffers, GONE);
}

/*
 * The module copies as many buffers as the pool holds; the device reads the right bytes of
 * every buffer.
 */
static int fill_pool(struct device *dev, u32 grows)
{
	u32 least = grows ? 600 : 300, most = grows ? FILLED : CHUNK_BUFFERS;
	struct buffer *buffers = kvcalloc(FILLED, sizeof(*buffers), GFP_KERNEL);
	u32 i, copied = 0, done;
	int error = 0;

	if (!buffers)
		return -ENOMEM;
	for (done = 0; done < FILLED && !error; done++) {
		struct buffer *buffer = &buffers[done];

		buffer->memory = (u8 *)__get_free_page(GFP_KERNEL);
		buffer->bytes = FILLED_BYTES;
		memset(buffer->memory, done, PAGE_SIZE);
		buffer->iova = dma_map_single(dev, buffer->memory, FILLED_BYTES,
					      DMA_BIDIRECTIONAL);
		if (dma_mapping_error(dev, buffer->iova))
			error = wrong(dev, "a map failed");
		/* Let the worker add memory to the pool. */
		if (done % 100 == 0)
			msleep(20);
	}
	for (i = 0; i < done && !error; i++) {
		copied += is_copied(dev, &buffers[i]);
		if (!is_like(dev, buffers[i].iova, buffers[i].memory, FILLED_BYTES))
			error = wrong(dev, "the device reads wrong bytes");
	}
	if (!error && (copied < least || copied > most))
		error = wrong(dev, "more were copied than there is room for, or few");
	if (!error)
		error = list_in_full_pool(dev, buffers, copied == most);
	/* The worker that frees unused chunks finds every chunk in use. */
	if (grows)
		msleep(12000);
	for (i = 0; i < done; i++) {
		unmap(dev, &buffers[i], 0);
		free_page((unsigned long)buffers[i].memory);
	}
	kvfree(buffers);
	return error;
}

/* ---- what outlives the driver ---- */

#define KEPT	12

static struct {
	struct device *dev;
	struct buffer buffers[KEPT];
	u32 *bounces[KEPT];	/* the copy that the device reaches */
} kept;

static int keep(struct device *dev, u32 unused)
{
	bool right = true;
	int error = 0;
	u32 i;

	for (i = 0; i < KEPT && !error; i++) {
		struct buffer *buffer = &kept.buffers[i];

		buffer->memory = (u8 *)__get_free_page(GFP_KERNEL);
		buffer->bytes = 100 + i;
		buffer->dir = i % 3;
		memset(buffer->memory, 0x11, PAGE_SIZE);
		error = map(dev, buffer, true);
		if (error)
			break;
		writes(dev, buffer->iova, buffer->bytes, 0x22);
		kept.bounces[i] = (u32 *)found(dev, buffer->iova);
		right &= !registers || is_allowed(dev, buffer);
	}
	kept.dev = get_device(dev);
	if (!error && !right)
		error = wrong(dev, "the device may do other things than its driver has said");
	return error;
}

/* The driver may be unbound, and another driver bound. */
static int release_kept(const char *text, const struct kernel_param *param)
{
	int error = 0;
	u32 i;

	if (!kept.dev)
		return -ENODEV;
	for (i = 0; i < KEPT; i++) {
		struct buffer *buffer = &kept.buffers[i];
		bool comes_back = buffer->dir != DMA_TO_DEVICE;

		unmap(kept.dev, buffer, 0);
		if (!is_filled(buffer->memory, buffer->bytes,
			       comes_back ? 0x22 : 0x11))
			error = wrong(kept.dev, "a late unmap copies back wrongly");
		free_page((unsigned long)buffer->memory);
	}
	put_device(kept.dev);
	kept.dev = NULL;
	return error;
}
TEST_PARAM(release, 0200, "write: unmap the kept buffers", .set = release_kept);

/* A late thread of a removed driver cannot map. */
static int late(const char *text, const struct kernel_param *param)
{
	struct buffer buffer = { .memory = kept.buffers[0].memory, .bytes = 10 };

	if (!kept.dev)
		return -ENODEV;
	if (!can_map(kept.dev, &buffer))
		return 0;
	return wrong(kept.dev, "something was mapped when no driver was left");
}
TEST_PARAM(late, 0200,
	   "write: map for the device of the kept buffers; fails if the map succeeds",
	   .set = late);

static u32 failed_maps;
module_param(failed_maps, uint, 0444);
MODULE_PARM_DESC(failed_maps, "number of failed maps in all writes to scarce");

/* Returns the number of kept buffers that the device still reaches. */
static int get_reached(char *text, const struct kernel_param *param)
{
	u32 i, reached = 0;

	for (i = 0; kept.dev && i < KEPT; i++)
		reached += !!found(kept.dev, kept.buffers[i].iova);
	return sysfs_emit(text, "%u\n", reached);
}
TEST_PARAM(reached, 0400, "number of kept buffers that the device reaches", .get = get_reached);

/* Maps a small buffer of kind @text, which may be copied. No kept buffer has such a kind. */
static int small(const char *text, const struct kernel_param *param)
{
	static const size_t sizes[] = { 100, 300, 600, 3000 };
	struct buffer buffer;
	u8 *page;
	u32 kind;

	if (!kept.dev || kstrtouint(text, 0, &kind))
		return -EINVAL;
	page = (u8 *)__get_free_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	buffer.memory = page + 256;
	buffer.bytes = sizes[kind % 4];
	buffer.dir = kind / 4 % 3;
	can_map(kept.dev, &buffer);
	free_page((unsigned long)page);
	return 0;
}
TEST_PARAM(small, 0200,
	   "write a kind: map a small buffer of the kind for the device of the kept buffers; may fail",
	   .set = small);

/* Maps buffers that are too large to copy, and device registers; each map may fail. */
static int scarce(const char *text, const struct kernel_param *param)
{
	struct buffer buffer = { .bytes = 5000, .dir = DMA_FROM_DEVICE };
	struct device *dev = kept.dev;
	u8 *pages;
	u32 i;

	if (!dev)
		return -ENODEV;
	pages = alloc_pages_exact(BUFFER_BYTES, GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	buffer.memory = pages + 100;
	for (i = 0; i < 6; i++)
		failed_maps += !can_map(dev, &buffer);
	buffer.iova = dma_map_resource(dev, pci_resource_start(to_pci_dev(dev), 0), PAGE_SIZE,
				       DMA_BIDIRECTIONAL, 0);
	if (dma_mapping_error(dev, buffer.iova))
		failed_maps++;
	else
		dma_unmap_resource(dev, buffer.iova, PAGE_SIZE, DMA_BIDIRECTIONAL, 0);
	free_pages_exact(pages, BUFFER_BYTES);
	return 0;
}
TEST_PARAM(scarce, 0200,
	   "write: map large buffers and registers for the device of the kept buffers; may fail",
	   .set = scarce);

/* Returns whether a device write to a kept copy lands. */
static bool lands(void __iomem *registers, u32 at)
{
	return test_write_lands(registers, kept.buffers[at].iova, kept.bounces[at]);
}

/*
 * When the pool frees a chunk, the device's cached translations of the chunk must go, too. The
 * pool holds a single chunk, so a buffer of another kind replaces the chunk and may reuse the
 * chunk's memory.
 */
static int stale(struct device *dev, u32 unused)
{
	struct buffer other = { .memory = memory, .bytes = 100, .dir = DMA_TO_DEVICE };
	struct buffer *one = &kept.buffers[0];
	void __iomem *registers = pcim_iomap(to_pci_dev(dev), 0, 0);
	int error;

	if (!registers)
		return -ENOMEM;
	pci_set_master(to_pci_dev(dev));
	*one = (struct buffer){ .memory = memory, .bytes = 100, .dir = DMA_FROM_DEVICE };
	error = map(dev, one, true);
	if (error)
		return error;
	kept.bounces[0] = (u32 *)found(dev, one->iova);
	if (!lands(registers, 0))
		error = wrong(dev, "the device does not reach a copy");
	unmap(dev, one, 0);
	if (!error)
		error = map(dev, &other, true);
	if (error)
		return error;
	if (lands(registers, 0))
		error = wrong(dev, "the device reaches memory that the pool has freed");
	unmap(dev, &other, 0);
	return error;
}

/* A new chunk shows the device nothing of the memory's earlier content. Needs init_on_alloc=0. */
static int fresh(struct device *dev, u32 unused)
{
	struct buffer buffer = { .memory = memory, .bytes = 1 };
	struct page *pages[16];
	int error = 0;
	u32 i, at;
	u8 *page;

	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		pages[i] = alloc_pages(GFP_KERNEL | __GFP_NOWARN, 9);
		if (pages[i])
			memset(page_address(pages[i]), 0x5a, PAGE_SIZE << 9);
	}
	for (i = 0; i < ARRAY_SIZE(pages); i++)
		if (pages[i])
			__free_pages(pages[i], 9);
	error = map(dev, &buffer, true);
	if (error)
		return error;
	for (i = 0; i < 512 && !error; i++) {
		page = found(dev, (buffer.iova & ~(dma_addr_t)(0x200000 - 1)) + i * PAGE_SIZE);
		for (at = 0; at < PAGE_SIZE && !error; at++)
			if (page[at])
				error = wrong(dev, "the device finds earlier content of a chunk's memory");
	}
	unmap(dev, &buffer, 0);
	return error;
}

static int fire(const char *text, const struct kernel_param *param)
{
	u32 i, landed = 0, allowed = 0, wrongly = 0;
	void __iomem *registers;
	struct pci_dev *pdev;

	if (!kept.dev)
		return -ENODEV;
	pdev = to_pci_dev(kept.dev);
	registers = ioremap(pci_resource_start(pdev, 0), PAGE_SIZE);
	if (!registers)
		return -ENOMEM;
	pci_set_master(pdev);
	for (i = 0; i < KEPT; i++) {
		bool may = kept.buffers[i].dir != DMA_TO_DEVICE;
		bool did = lands(registers, i);

		allowed += may;
		landed += may && did;
		wrongly += !may && did;
	}
	iounmap(registers);
	if (wrongly)
		return -EPERM;
	if (landed && landed != allowed)
		return -EIO;
	return landed ? 0 : -EFAULT;
}
TEST_PARAM(fire, 0200,
	   "write: the device writes to all kept buffers. EFAULT: no write lands; EPERM: a write to a read-only buffer lands",
	   .set = fire);

/*
 * Drivers of NICs (qede, mlx4, atlantic, fm10k) map a page as a whole and use the page in
 * halves. The driver passes the first half up with an skb_shared_info at its end (build_skb())
 * while the device owns the second half, and unmaps the page without DMA_ATTR_SKIP_CPU_SYNC.
 * @syncs: the driver syncs a packet before reading; qede and hfi1 do not
 */
static int flip(struct device *dev, u32 syncs)
{
	struct buffer page = { .memory = memory, .bytes = PAGE_SIZE, .dir = DMA_FROM_DEVICE };
	u8 *shared = memory + 2048 - sizeof(struct skb_shared_info);
	int error = map_soon(dev, &page, 0, TRIES);
	dma_addr_t iova = page.iova;

	if (error)
		return error;
	dev_info(dev, "copied: flip: the page is %s\n", is_copied(dev, &page) ? "copied" : "mapped");
	/* The device receives into the first half. */
	writes(dev, iova + 64, 1514, 0x22);
	if (syncs)
		dma_sync_single_range_for_cpu(dev, iova, 64, 1514, DMA_FROM_DEVICE);
	if (!is_filled(memory + 64, 1514, 0x22))
		error = wrong(dev, "flip: the driver does not see the received packet");
	/* build_skb(): the network stack owns the first half from here on. */
	memset(shared, 0x77, sizeof(struct skb_shared_info));
	writes(dev, iova + 2048 + 64, 1514, 0x33);
	if (syncs)
		dma_sync_single_range_for_cpu(dev, iova, 2048 + 64, 1514, DMA_FROM_DEVICE);
	/* The device writes nothing more. */
	unmap(dev, &page, 0);
	if (!is_filled(shared, sizeof(struct skb_shared_info), 0x77)) {
		dev_err(dev, "copied: flip: skb_shared_info begins with %02x\n", *shared);
		error = wrong(dev, "flip: the unmap has overwritten the stack's half of the page");
	}
	return error;
}

enum alignment { ALIGN_1, ALIGN_2, ALIGN_BEGIN, ALIGN_END, ALIGN_ROW, ALIGN_PAGE, ALIGN_FEW,
		 ALIGN_LARGE };

static const struct {
	int segments;
	size_t bytes;		/* of each segment */
	size_t first, second;	/* offset in the first page of each segment */
} alignments[] = {
	[ALIGN_1] = { 1, 512, 1, 0 },
	[ALIGN_2] = { 2, 512, 1, 17 },
	/* Looks like contiguous pages at the first segment's end, the second's begin, or both. */
	[ALIGN_BEGIN] = { 2, 512, 1, 0 },
	[ALIGN_END] = { 2, 511, PAGE_SIZE - 511, 17 },
	[ALIGN_ROW] = { 2, 511, PAGE_SIZE - 511, 0 },
	/* In a bounce buffer of a page. */
	[ALIGN_PAGE] = { 1, 3000, 1, 0 },
	[ALIGN_FEW] = { 1, 2, PAGE_SIZE - 3, 0 },
	[ALIGN_LARGE] = { 1, 8192, 1, 0 },
};

/*
 * As sdhci with ADMA: the device writes the unaligned bytes (up to a multiple of four)
 * elsewhere, and the driver copies those bytes into the buffer after a sync and before the
 * unmap (sdhci_adma_table_post(), sdhci_request_done()).
 */
static int align(struct device *dev, u32 alignment)
{
	const size_t bytes = alignments[alignment].bytes;
	const int segments = alignments[alignment].segments;
	struct scatterlist list[2], *sg;
	int i, count, error = 0;

	sg_init_table(list, segments);
	for_each_sg(list, sg, segments, i)
		sg_set_page(sg, virt_to_page(memory + i * BUFFER_BYTES), bytes,
			    i ? alignments[alignment].second : alignments[alignment].first);
	count = map_list_soon(dev, list, segments, DMA_FROM_DEVICE, 0, 10);
	if (count < 0)
		return count;
	dev_info(dev, "copied: align: %d of %zu bytes, %s, at 0x%llx\n", segments, bytes,
		 found(dev, sg_dma_address(list)) == sg_virt(list) ? "mapped" : "copied",
		 (u64)sg_dma_address(list));
	for_each_sg(list, sg, count, i) {
		size_t skip = min_t(size_t, -sg_dma_address(sg) & 3, sg_dma_len(sg));

		writes(dev, sg_dma_address(sg) + skip, sg_dma_len(sg) - skip, 0x22);
	}
	dma_sync_sg_for_cpu(dev, list, segments, DMA_FROM_DEVICE);
	for_each_sg(list, sg, count, i)
		memset(sg_virt(sg), 0x22, min_t(size_t, -sg_dma_address(sg) & 3, sg_dma_len(sg)));
	dma_unmap_sg(dev, list, segments, DMA_FROM_DEVICE);
	for_each_sg(list, sg, segments, i)
		if (!is_filled(sg_virt(sg), bytes, 0x22))
			error = wrong(dev, "align: the unmap has overwritten the driver's bytes");
	return error;
}

/*
 * As ath9k and e100: the driver polls a bidirectional buffer with syncs for DMA_FROM_DEVICE.
 * The device may write between a sync for the CPU and the sync for the device.
 */
static int polls_of(struct device *dev, u8 *here, size_t bytes)
{
	dma_addr_t iova;
	bool copied = false;
	int try, error = 0;

	/* Wait until the pool has memory. */
	for (try = 0; !error && (try < 3 || (!copied && try < 10)); try++) {
		memset(here, 0, bytes);
		iova = dma_map_single(dev, here, bytes, DMA_BIDIRECTIONAL);
		if (dma_mapping_error(dev, iova))
			return wrong(dev, "polls: not mapped");
		copied = found(dev, iova) != here;
		dma_sync_single_for_cpu(dev, iova, bytes, DMA_FROM_DEVICE);
		writes(dev, iova, bytes, 0x44);
		dma_sync_single_for_device(dev, iova, bytes, DMA_FROM_DEVICE);
		if (found(dev, iova)[0] != 0x44)
			error = wrong(dev, "polls: a sync overwrites the device's bytes");
		dma_sync_single_for_cpu(dev, iova, bytes, DMA_FROM_DEVICE);
		if (!is_filled(here, bytes, 0x44))
			error = wrong(dev, "polls: the device's bytes before a sync are lost");
		/* The driver uses the buffer again, and the device writes the same bytes. */
		memset(here, 0, bytes);
		dma_sync_single_for_device(dev, iova, bytes, DMA_FROM_DEVICE);
		writes(dev, iova, bytes, 0x44);
		dma_unmap_single(dev, iova, bytes, DMA_BIDIRECTIONAL);
		if (!is_filled(here, bytes, 0x44))
			error = wrong(dev, "polls: the device's second bytes are lost");
		msleep(20);
	}
	return error;
}

static int polls(struct device *dev, u32 unused)
{
	static const size_t sizes[] = { 2, 300, 2000, 5000 };
	int error = 0;

	for (u32 i = 0; i < ARRAY_SIZE(sizes) && !error; i++)
		error = polls_of(dev, memory + 64, sizes[i]) ?: polls_of(dev, memory + 61, sizes[i]);
	return error;
}

/* drm_gem_map_dma_buf() for an importer that writes: a list of a page, without any sync. */
static int prime(struct device *dev, u32 unused)
{
	struct scatterlist list;
	int count, error = 0;

	sg_init_one(&list, memory, PAGE_SIZE);
	count = map_list_soon(dev, &list, 1, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC, 10);
	if (count < 0)
		return count;
	writes(dev, sg_dma_address(&list), PAGE_SIZE, 0x22);
	if (!is_filled(memory, PAGE_SIZE, 0x22))
		error = wrong(dev, "prime: the device's bytes are not visible while mapped");
	dma_unmap_sg_attrs(dev, &list, 1, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
	if (!is_filled(memory, PAGE_SIZE, 0x22))
		error = wrong(dev, "prime: the device's bytes are lost");
	return error;
}

/* drm_gpusvm_get_pages() for a GPU that only reads: the CPU continues to write. */
static int svm(struct device *dev, u32 unused)
{
	struct buffer page = { .memory = memory, .bytes = PAGE_SIZE, .dir = DMA_TO_DEVICE };
	int error = map_soon(dev, &page, 0, 10);

	if (error)
		return error;
	memset(memory, 0x33, PAGE_SIZE);
	if (!is_like(dev, page.iova, memory, PAGE_SIZE))
		error = wrong(dev, "svm: the device reads old bytes");
	unmap(dev, &page, 0);
	return error;
}

static const struct test_mode modes[] = {
	{ "checks", "all kinds of buffers and lists, for several DMA masks", checks },
	{ "plain", "the same buffers from a driver that sets no DMA mask", plain },
	{ "fill", "more buffers than a chunk of 2 MiB holds, for a pool of a single chunk: the module maps the rest without a copy",
	  fill_pool, false },
	{ "many", "as fill, for a pool that may grow", fill_pool, true },
	{ "size", "a sync that is longer than any copy", sync_too_much },
	{ "stale", "a device write to a copy after the pool has freed the copy's memory", stale },
	{ "fresh", "the content of a new chunk beside the buffer", fresh },
	{ "flip", "a receive page that is used in halves, with syncs", flip, true },
	{ "unsynced", "the same without syncs", flip, false },
	{ "prime", "a page that the driver shares with the device for writing", prime },
	{ "svm", "a page that the driver shares with the device for reading", svm },
	{ "align1", "a driver that writes between its sync and its unmap", align, ALIGN_1 },
	{ "align2", "the same with two segments", align, ALIGN_2 },
	{ "align_begin", "the second segment begins with a page", align, ALIGN_BEGIN },
	{ "align_end", "the first segment ends with a page", align, ALIGN_END },
	{ "align_row", "both", align, ALIGN_ROW },
	{ "align_page", "in a bounce buffer of a page", align, ALIGN_PAGE },
	{ "align_few", "no aligned byte", align, ALIGN_FEW },
	{ "align_large", "too large to copy", align, ALIGN_LARGE },
	{ "polls", "syncs of device writes to a bidirectional buffer", polls },
	{ "keep", "buffers that outlive the driver until a write to the parameter release", keep },
};
TEST_MODES(modes);

static int copied_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int error = pcim_enable_device(pdev);

	if (!error && test_modes.chosen->probe != plain)
		error = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (error)
		return error;
	memory = alloc_pages_exact(MEMORY_BYTES, GFP_KERNEL | __GFP_ZERO);
	if (!memory)
		return -ENOMEM;
	error = test_run_mode(pdev);
	free_pages_exact(memory, MEMORY_BYTES);
	return error;
}

TEST_DRIVER(copied_probe);
module_pci_driver(test_driver);

MODULE_DESCRIPTION("A driver whose small buffers are copied");
MODULE_LICENSE("GPL");
