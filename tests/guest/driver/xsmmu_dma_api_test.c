// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver for QEMU's iommu-testdev that uses the DMA API correctly in every way, and
 * incorrectly in some. Most modes do not start the device: the driver checks the page table and
 * the results of its calls.
 *
 *   mode=api       every kind of mapping and its unmap; a failed probe logs the wrong result
 *   mode=kernel    the same, as far as the kernel's own path supports the calls
 *   mode=fail      managed DMA memory, then a probe that fails: the memory is freed after
 *                  the driver is gone
 *   mode=late      mappings and coherent memory that outlive the driver until a write to
 *                  the parameter release
 *   mode=crowd     the same with 700 pages; mode=one: with a page of 4 KiB
 *   mode=keep      a page that is mapped as long as the driver is bound
 *   mode=slow      managed DMA memory that is freed two seconds after the driver's removal
 *   mode=free      memory that is freed with a wrong handle
 *   mode=bad_unmap unmaps that match no mapping; the named pages become unreachable
 *   mode=tear      each kind of unmap that does not match a mapping: logs the pages that the
 *                  device still reaches, then unmaps correctly; mode=tear_left: does not
 *   mode=many      so many mappings that their page tables are worth freeing, then unmaps
 *   mode=some      the same with fewer mappings, mode=most with more: the empty page tables
 *                  stay
 *   mode=ranges    on a write to the parameter ranges: a list of 1 GiB and some pages that
 *                  maps the same memory repeatedly; to the parameter large: maps that an
 *                  IOMMU could map with large entries; to the parameter chunk: a copy
 *   mode=unrecorded, mode=unrecorded_chunk: the virtio-iommu driver loses its records of a
 *                  mapping, or of a pool's chunk
 *   mode=row       the pages of two blocks and the first page of a third: their flush removes
 *                  all of them
 *   mode=whole     maps of 2 MiB and then of a page until nothing below 4 GiB is free: no map
 *                  covers the device's MSI page
 *   mode=ahead     maps more than the module keeps free for MSI pages, then allocates
 *                  interrupts
 *
 * Parameters test threads that map while their driver goes: slow and tardy stop a thread inside
 *   a map, overtaken before a map, and outrun after a map's first step.
 */
#include <linux/anon_inodes.h>
#include <linux/delay.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/msi.h>
#include <linux/nmi.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

static char *mode = "api";
module_param(mode, charp, 0644);
MODULE_PARM_DESC(mode, "fail, late, crowd, one, keep, slow, free, bad_unmap, tear, tear_left, many, some, most, ranges, row, whole, ahead, api or kernel");

static bool is_ours(void)
{
	return !sysfs_streq(mode, "kernel");
}

#define LATE_PAGES	12
#define MANY_PAGES	49152
#define SOME_PAGES	8192	/* few enough that the module keeps their page tables */
#define MOST_PAGES	69632	/* reaches the IOVAs of the copies' memory, and beyond */

/* Firmware marks devices below an external port as untrusted. */
static int set_untrusted(const char *text, const struct kernel_param *param)
{
	unsigned int domain, bus, device, function, untrusted;
	struct pci_dev *pdev;

	if (sscanf(text, "%x:%x:%x.%u=%u", &domain, &bus, &device, &function,
		   &untrusted) != 5)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(domain, bus,
					   PCI_DEVFN(device, function));
	if (!pdev)
		return -ENODEV;
	pdev->untrusted = untrusted;
	pci_dev_put(pdev);
	return 0;
}

static const struct kernel_param_ops untrusted_ops = { .set = set_untrusted };
module_param_cb(untrusted, &untrusted_ops, NULL, 0200);
MODULE_PARM_DESC(untrusted, "write: <address>=1 or 0: mark the device as untrusted, or as trusted");

/* Adds a platform device to the IOMMU group of a PCI device; 0 removes the platform device. */
static int set_stranger(const char *text, const struct kernel_param *param)
{
	static struct platform_device *stranger;
	unsigned int domain, bus, device, function;
	struct iommu_group *group;
	struct pci_dev *pdev;
	int error = 0;

	if (stranger) {
		iommu_group_remove_device(&stranger->dev);
		platform_device_unregister(stranger);
		stranger = NULL;
		return 0;
	}
	if (sscanf(text, "%x:%x:%x.%u", &domain, &bus, &device, &function) != 4)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(domain, bus,
					   PCI_DEVFN(device, function));
	group = pdev ? iommu_group_get(&pdev->dev) : NULL;
	if (!group)
		return -ENODEV;
	stranger = platform_device_register_simple("stranger", -1, NULL, 0);
	error = PTR_ERR_OR_ZERO(stranger);
	if (error)
		stranger = NULL;
	else
		error = iommu_group_add_device(group, &stranger->dev);
	iommu_group_put(group);
	pci_dev_put(pdev);
	return error;
}

static const struct kernel_param_ops stranger_ops = { .set = set_stranger };
module_param_cb(stranger, &stranger_ops, NULL, 0200);
MODULE_PARM_DESC(stranger, "write: <address>: add a platform device to the device's group; 0: remove the platform device");

/* Returns the physical address behind an IOVA of @dev; 0 if nothing is mapped. */
static phys_addr_t translated(struct device *dev, dma_addr_t iova)
{
	return iommu_iova_to_phys(iommu_get_domain_for_dev(dev), iova);
}

static int wrong(struct device *dev, const char *what)
{
	dev_err(dev, "rude: wrong: %s\n", what);
	return -EIO;
}

/* ---- single mappings ---- */

/* Maps @size bytes at @offset of a buffer of 256 KiB and checks the translation of each page. */
static int check_single(struct device *dev, void *buffer, size_t offset,
			size_t size, u64 mask)
{
	dma_addr_t iova = dma_map_single(dev, buffer + offset, size,
					 DMA_BIDIRECTIONAL);
	size_t at;

	if (dma_mapping_error(dev, iova))
		return wrong(dev, "dma_map_single() failed");
	if (iova + size - 1 > mask)
		return wrong(dev, "an IOVA above the device's mask");
	if (offset_in_page(iova) != offset_in_page(buffer + offset))
		return wrong(dev, "the offset in the page is lost");
	for (at = 0; at < size; at += min_t(size_t, PAGE_SIZE, size - at))
		if (translated(dev, iova + at) !=
		    virt_to_phys(buffer + offset) + at)
			return wrong(dev, "a page of a mapping is not translated");
	dma_sync_single_for_cpu(dev, iova, size, DMA_BIDIRECTIONAL);
	dma_sync_single_for_device(dev, iova, size, DMA_BIDIRECTIONAL);
	dma_unmap_single(dev, iova, size, DMA_BIDIRECTIONAL);
	return 0;
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
		error = check_single(dev, buffer, parts[i].offset,
				     parts[i].size, mask);
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
		struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP,
						SG_ORDER);

		if (!page)
			return -ENOMEM;
		sg_set_page(sg, page, i * 700 + 1,
			    i * 100 % 4096 + i % 3 * 4096);
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

	return is_ours() && next && sg_dma_len(next) &&
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
			size_t left = min(sg_dma_len(out) - used,
					  sg->length - at);
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
		if (!error && !is_clear_behind(table.sgl, table.orig_nents,
					       table.nents))
			error = wrong(dev, "entries behind the last segment have lengths");
		if (!error && pages && is_ours() && !is_joined(dev, &table))
			error = wrong(dev, "pages of a list are not joined");
		dma_unmap_sgtable(dev, &table, DMA_TO_DEVICE, 0);
	}
	free_sg(&table);
	return error;
}

/*
 * Lists with more pages than a block, lists with gaps (of 20, a single gap of a page with a
 * boundary of 64 KiB), and short lists.
 */
static int check_sg(struct device *dev, u64 boundary, unsigned int longest)
{
	static const u32 segments[] = { 40, 20, 16, 6, 3, 2 };
	int error = 0;

	dma_set_seg_boundary(dev, boundary);
	dma_set_max_seg_size(dev, longest);
	for (int i = 0; i < ARRAY_SIZE(segments) && !error; i++)
		error = check_list(dev, segments[i], false);
	/* A whole block of pages, a page less and a page more. */
	for (u32 count = 63; count <= 65 && !error; count++)
		error = check_list(dev, count, true);
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

	return dma_mmap_coherent(shared->dev, vma, shared->memory, shared->iova,
				 shared->size);
}

static const struct file_operations shared_ops = { .mmap = shared_mmap };

/*
 * Maps all pages except the first @skipped bytes into the process that binds the driver, and
 * compares.
 */
static int check_mmap(struct shared *shared, unsigned long flags, size_t skipped)
{
	struct file *file = anon_inode_getfile("rude", &shared_ops, shared,
					       O_RDWR);
	size_t bytes = shared->size - skipped, at;
	unsigned long user;
	int error = 0;
	u32 found;

	if (IS_ERR(file))
		return PTR_ERR(file);
	user = vm_mmap(file, 0, bytes, PROT_READ | PROT_WRITE, flags, skipped);
	fput(file);
	if (IS_ERR_VALUE(user))
		return wrong(shared->dev, "dma_mmap_coherent()");
	for (at = 0; at < bytes && !error; at += PAGE_SIZE)
		if (get_user(found, (u32 __user *)(user + at)) ||
		    found != (skipped + at) >> PAGE_SHIFT)
			error = wrong(shared->dev, "another page was mapped");
	vm_munmap(user, bytes);
	return error;
}

/* No mapping may reach beyond the memory, wherever the mapping begins. */
static int check_mmap_beyond(struct shared *shared, size_t bytes, size_t skipped)
{
	struct file *file = anon_inode_getfile("rude", &shared_ops, shared,
					       O_RDWR);
	unsigned long user;

	if (IS_ERR(file))
		return PTR_ERR(file);
	user = vm_mmap(file, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		       skipped);
	fput(file);
	if (IS_ERR_VALUE(user))
		return 0;
	vm_munmap(user, bytes);
	return wrong(shared->dev, "more was mapped than there is");
}

static int check_mmaps(struct device *dev, size_t size)
{
	struct shared shared = { .dev = dev, .size = size };
	int error;
	size_t at;

	shared.memory = dma_alloc_coherent(dev, size, &shared.iova, GFP_KERNEL);
	if (!shared.memory)
		return wrong(dev, "dma_alloc_coherent() failed");
	for (at = 0; at < size; at += PAGE_SIZE)
		*(u32 *)(shared.memory + at) = at >> PAGE_SHIFT;
	error = check_mmap(&shared, MAP_SHARED, 0);
	if (!error)
		error = check_mmap(&shared, MAP_SHARED, 2 * PAGE_SIZE);
	if (!error)
		error = check_mmap(&shared, MAP_PRIVATE, 0);
	if (!error)
		error = check_mmap_beyond(&shared, size + PAGE_SIZE, 0);
	if (!error)
		error = check_mmap_beyond(&shared, size, 2 * PAGE_SIZE);
	if (!error)
		error = check_mmap_beyond(&shared, PAGE_SIZE, size);
	if (!error)
		error = check_mmap_beyond(&shared, PAGE_SIZE, size + PAGE_SIZE);
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
	return dma_alloc_noncontiguous(dev, size, DMA_BIDIRECTIONAL, GFP_KERNEL,
				       0);
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
	if (!address)
		return wrong(dev, "dma_vmap_noncontiguous()");
	memset(address, 1, size);
	dma_vunmap_noncontiguous(dev, address);
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
	int error;

	page = dma_alloc_pages(dev, 3 * PAGE_SIZE, &iova, DMA_BIDIRECTIONAL,
			       GFP_KERNEL);
	if (!page || translated(dev, iova) != page_to_phys(page))
		return wrong(dev, "dma_alloc_pages()");
	dma_free_pages(dev, 3 * PAGE_SIZE, page, iova, DMA_BIDIRECTIONAL);

	error = check_noncontiguous(dev, 9 * PAGE_SIZE);
	return error ? error : check_noncontiguous(dev, NONCONTIGUOUS_MAX);
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
	if (!error)
		error = check_mmaps(dev, 4 * PAGE_SIZE);
	if (!error)
		error = check_mmaps(dev, 300 * PAGE_SIZE);
	return error ? error : check_pages(dev);
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

static int check_resource(struct pci_dev *pdev)
{
	struct device *dev = &pdev->dev;
	phys_addr_t registers = pci_resource_start(pdev, 0);
	dma_addr_t iova = dma_map_resource(dev, registers, 4096,
					   DMA_BIDIRECTIONAL, 0);

	if (dma_mapping_error(dev, iova))
		return wrong(dev, "dma_map_resource() failed");
	if (translated(dev, iova) != registers)
		return wrong(dev, "device registers are not translated");
	dma_unmap_resource(dev, iova, 4096, DMA_BIDIRECTIONAL, 0);
	return 0;
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
		if (dma_mapping_error(dev, iovas[i]))
			return wrong(dev, "a page was not mapped");
	}
	if (!are_there(dev, page, iovas, false))
		error = wrong(dev, "a page is not translated");
	for (i = 1; i < NEIGHBOURS; i += 2)
		dma_unmap_page(dev, iovas[i], PAGE_SIZE,
			       i & 4 ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
	msleep(30);
	if (!error && !are_there(dev, page, iovas, true))
		error = wrong(dev, "an unmap has removed another page");
	for (i = 0; i < NEIGHBOURS; i += 2)
		dma_unmap_page(dev, iovas[i], PAGE_SIZE,
			       i & 4 ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
	__free_pages(page, 3);
	return error;
}

static int check_api(struct pci_dev *pdev)
{
	u32 masks = is_ours() ? 3 : 2;
	static const u32 bits[] = { 64, 32, 24 };
	struct device *dev = &pdev->dev;
	int error = 0;
	size_t i;

	for (i = 0; i < masks && !error; i++) {
		u64 mask = DMA_BIT_MASK(bits[i]);

		error = dma_set_mask_and_coherent(dev, mask);
		if (error)
			return wrong(dev, "a DMA mask was refused");
		error = check_singles(dev, mask);
		if (!error)
			error = check_coherents(dev, mask);
		if (!error)
			error = check_sg(dev, DMA_BIT_MASK(32), 65536);
		if (!error)
			error = check_sg(dev, 0xffff, 65536);
		if (!error)
			error = check_sg(dev, 0x7fff, 32768);
		if (!error)
			error = check_resource(pdev);
	}
	if (!error && is_ours())
		error = check_empty_sg(dev);
	if (!error && is_ours())
		error = check_refused_segment(dev);
	if (!error)
		error = check_neighbours(dev);
	if (!error)
		error = check_freed(dev, PAGE_SIZE);
	if (!error)
		error = check_freed(dev, 20 * PAGE_SIZE);
	if (!error && dma_get_required_mask(dev) == 0)
		error = wrong(dev, "no required mask");
	if (!error && dma_max_mapping_size(dev) < 262144)
		error = wrong(dev, "a small dma_max_mapping_size()");
	return error;
}

/* ---- bad manners ---- */

/*
 * Mappings that outlive the driver: 12 pages, a list of 4 of them, and coherent memory of 1 and
 * 20 pages. Each is released on the path that mapped it.
 */
static struct {
	struct device *dev;
	bool freed;
	struct page *pages[LATE_PAGES];
	dma_addr_t addrs[LATE_PAGES];
	struct sg_table table;
	void *memory[2];
	dma_addr_t handles[2];
} late;

static const size_t late_bytes[2] = { PAGE_SIZE, 20 * PAGE_SIZE };

static int map_after_detach(struct device *dev)
{
	struct scatterlist *sg;
	int i;

	if (late.dev && !late.freed)
		return wrong(dev, "something is late already");
	if (late.dev)
		put_device(late.dev);
	late.freed = false;
	late.dev = get_device(dev);
	for (i = 0; i < LATE_PAGES; i++) {
		late.pages[i] = alloc_page(GFP_KERNEL);
		late.addrs[i] = dma_map_page(dev, late.pages[i], 0, PAGE_SIZE,
					     DMA_TO_DEVICE);
		if (dma_mapping_error(dev, late.addrs[i]))
			return wrong(dev, "dma_map_page() failed");
	}
	if (sg_alloc_table(&late.table, 4, GFP_KERNEL))
		return -ENOMEM;
	for_each_sgtable_sg(&late.table, sg, i)
		sg_set_page(sg, late.pages[i], PAGE_SIZE, 0);
	if (dma_map_sgtable(dev, &late.table, DMA_TO_DEVICE, 0))
		return wrong(dev, "dma_map_sgtable() failed");
	for (i = 0; i < 2; i++) {
		late.memory[i] = dma_alloc_coherent(dev, late_bytes[i],
						    &late.handles[i],
						    GFP_KERNEL);
		if (!late.memory[i])
			return wrong(dev, "dma_alloc_coherent() failed");
		memset(late.memory[i], 0x5a, late_bytes[i]);
	}
	return 0;
}

/* Late pages that fill more than a page table of the IOMMU. */
#define CROWD	700
static struct {
	struct device *dev;
	struct page *page;
	dma_addr_t addrs[CROWD];
	u32 count;
} crowd;

/* A single mapping is of 4 KiB: the smallest page of an IOMMU, also if CPU pages are larger. */
static size_t crowd_bytes(void)
{
	return crowd.count == 1 ? SZ_4K : PAGE_SIZE;
}

static int map_crowd(struct device *dev, u32 count)
{
	u32 i;

	crowd.page = alloc_page(GFP_KERNEL);
	if (crowd.dev || !crowd.page)
		return -ENOMEM;
	crowd.count = count;
	for (i = 0; i < count; i++) {
		crowd.addrs[i] = dma_map_page(dev, crowd.page, 0, crowd_bytes(),
					      DMA_TO_DEVICE);
		if (dma_mapping_error(dev, crowd.addrs[i]))
			return wrong(dev, "dma_map_page() failed");
	}
	crowd.dev = get_device(dev);
	return 0;
}

static int release_crowd(void)
{
	u32 i;

	for (i = 0; i < crowd.count; i++)
		dma_unmap_page(crowd.dev, crowd.addrs[i], crowd_bytes(),
			       DMA_TO_DEVICE);
	__free_page(crowd.page);
	put_device(crowd.dev);
	crowd.dev = NULL;
	return 0;
}

/* A page that is mapped while the driver is bound. */
static struct {
	struct device *dev;
	struct page *page;
	dma_addr_t addr;
} kept;

static void drop_kept(void *unused)
{
	dma_unmap_page(kept.dev, kept.addr, PAGE_SIZE, DMA_TO_DEVICE);
	__free_page(kept.page);
	kept.dev = NULL;
}

static int map_kept(struct device *dev)
{
	kept.page = alloc_page(GFP_KERNEL);
	kept.addr = dma_map_page(dev, kept.page, 0, PAGE_SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, kept.addr))
		return wrong(dev, "dma_map_page() failed");
	kept.dev = dev;
	return devm_add_action(dev, drop_kept, NULL);
}

static int kept_is_mapped(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%u\n", kept.dev &&
			  translated(kept.dev, kept.addr) ==
				  page_to_phys(kept.page));
}

static const struct kernel_param_ops kept_ops = { .get = kept_is_mapped };
module_param_cb(kept, &kept_ops, NULL, 0400);
MODULE_PARM_DESC(kept, "is the page of mode=keep mapped?");

/* ---- a map that comes behind the end of its driver ---- */

/* The operations that a thread had read from its device before it was preempted. */
static struct {
	struct device *dev;
	const struct dma_map_ops *ops;
} overtaken;

static dma_addr_t map_overtaken(struct page *page, size_t size)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	return overtaken.ops->map_phys(overtaken.dev, page_to_phys(page), size,
				       DMA_TO_DEVICE, 0);
#else
	return overtaken.ops->map_page(overtaken.dev, page, 0, size,
				       DMA_TO_DEVICE, 0);
#endif
}

static bool list_is_mapped(struct page *page)
{
	struct scatterlist list[2];

	sg_init_table(list, 2);
	sg_set_page(&list[0], page + 2, PAGE_SIZE, 0);
	sg_set_page(&list[1], page, PAGE_SIZE, 0);
	return overtaken.ops->map_sg(overtaken.dev, list, 2, DMA_TO_DEVICE,
				     0) > 0;
}

static bool is_allocated(size_t size)
{
	dma_addr_t iova;

	return overtaken.ops->alloc(overtaken.dev, size, &iova, GFP_KERNEL, 0);
}

/* Tries each kind of map with operations that the device no longer has. */
static int map_all_overtaken(struct page *page)
{
	struct device *dev = overtaken.dev;

	if (map_overtaken(page, PAGE_SIZE) != DMA_MAPPING_ERROR)
		return wrong(dev, "a page was mapped");
	if (map_overtaken(page, 3 * PAGE_SIZE) != DMA_MAPPING_ERROR)
		return wrong(dev, "some pages were mapped");
	if (map_overtaken(page, 128 * PAGE_SIZE) != DMA_MAPPING_ERROR)
		return wrong(dev, "many pages were mapped");
	if (list_is_mapped(page))
		return wrong(dev, "a list was mapped");
	if (is_allocated(PAGE_SIZE) || is_allocated(128 * PAGE_SIZE))
		return wrong(dev, "memory was allocated");
	return 0;
}

/* The first write, with a driver, saves the operations; the second, without, maps by them. */
static int set_overtaken(const char *text, const struct kernel_param *param)
{
	struct page *page;
	int error = -ENOMEM;

	if (!overtaken.dev) {
		if (!kept.dev)
			return -ENODEV;
		overtaken.dev = get_device(kept.dev);
		overtaken.ops = kept.dev->dma_ops;
		return 0;
	}
	page = alloc_pages(GFP_KERNEL, 7);
	if (page)
		error = map_all_overtaken(page);
	if (page)
		__free_pages(page, 7);
	put_device(overtaken.dev);
	overtaken.dev = NULL;
	return error;
}

static const struct kernel_param_ops overtaken_ops = { .set = set_overtaken };
module_param_cb(overtaken, &overtaken_ops, NULL, 0200);
MODULE_PARM_DESC(overtaken, "write: with mode=keep, remember the device's operations; then map by them");

/* ---- a map that has begun when its group is detached ---- */

static struct {
	struct task_struct *thread;
	struct device *dev;
	const struct dma_map_ops *ops;
	u32 count;
} outrun;

/* As in a detach, the device loses the module's operations. */
static int detach(struct kprobe *probe, struct pt_regs *regs)
{
	if (current == outrun.thread && outrun.dev->dma_ops == outrun.ops) {
		set_dma_ops(outrun.dev, NULL);
		outrun.count++;
	}
	return 0;
}

static void map_outrun(struct page *page, size_t size)
{
	dma_addr_t addr = dma_map_page(outrun.dev, page, 0, size, DMA_TO_DEVICE);

	set_dma_ops(outrun.dev, outrun.ops);
	if (!dma_mapping_error(outrun.dev, addr))
		dma_unmap_page(outrun.dev, addr, size, DMA_TO_DEVICE);
}

/* Maps two halves of @page in reverse order. */
static void map_list_outrun(struct page *page, u32 pages)
{
	struct scatterlist list[2];
	int mapped;

	sg_init_table(list, 2);
	sg_set_page(&list[0], page + pages / 2, pages / 2 * PAGE_SIZE, 0);
	sg_set_page(&list[1], page, pages / 2 * PAGE_SIZE, 0);
	mapped = dma_map_sg(outrun.dev, list, 2, DMA_TO_DEVICE);
	set_dma_ops(outrun.dev, outrun.ops);
	if (mapped)
		dma_unmap_sg(outrun.dev, list, 2, DMA_TO_DEVICE);
}

/* Takes the device's operations away at the entry of a function, during each kind of map. */
static int set_outrun(const char *text, const struct kernel_param *param)
{
	struct kprobe probe = { .pre_handler = detach };
	char name[32];
	struct page *page;
	int error;

	if (!kept.dev)
		return -ENODEV;
	strscpy(name, text, sizeof(name));
	probe.symbol_name = strim(name);
	page = alloc_pages(GFP_KERNEL, 7);
	if (!page)
		return -ENOMEM;
	outrun.thread = current;
	outrun.dev = kept.dev;
	outrun.ops = kept.dev->dma_ops;
	outrun.count = 0;
	error = register_kprobe(&probe);
	if (!error) {
		map_outrun(page, PAGE_SIZE + 100);
		map_outrun(page, PAGE_SIZE);
		map_outrun(page, 128 * PAGE_SIZE);
		map_list_outrun(page, 4);
		map_list_outrun(page, 128);
		unregister_kprobe(&probe);
		error = outrun.count ? 0 : wrong(outrun.dev, "no map calls the function");
	}
	outrun.thread = NULL;
	__free_pages(page, 7);
	return error;
}

static const struct kernel_param_ops outrun_ops = { .set = set_outrun };
module_param_cb(outrun, &outrun_ops, NULL, 0200);
MODULE_PARM_DESC(outrun, "write: <function>: with mode=keep, map; the function's entry removes the device's operations");

/* ---- locks that are held for long ---- */

static struct {
	struct kprobe probe;
	char name[40];
	unsigned int ms;
} stall;

static int spend(struct kprobe *probe, struct pt_regs *regs)
{
	u64 end_ns = ktime_get_mono_fast_ns() + (u64)stall.ms * NSEC_PER_MSEC;

	/* mdelay() takes many times longer in an emulator. */
	while (ktime_get_mono_fast_ns() < end_ns)
		cpu_relax();
	touch_softlockup_watchdog();
	return 0;
}

/* Delays a function of the kernel or a module at its entry, with the caller's locks held. */
static int set_stall(const char *text, const struct kernel_param *param)
{
	if (stall.ms)
		unregister_kprobe(&stall.probe);
	memset(&stall, 0, sizeof(stall));
	if (sscanf(text, "%39[^=]=%u", stall.name, &stall.ms) != 2)
		return 0;
	stall.probe.pre_handler = spend;
	stall.probe.symbol_name = stall.name;
	if (!register_kprobe(&stall.probe))
		return 0;
	stall.ms = 0;
	return -ENOENT;
}

static const struct kernel_param_ops stall_ops = { .set = set_stall };
module_param_cb(stall, &stall_ops, NULL, 0200);
MODULE_PARM_DESC(stall, "write: <function>=<ms>: delay the function's entry; empty: no delay");

/* Holds a device's lock, as probe, reset and unbind do. */
static int hold_lock(const char *text, const struct kernel_param *param)
{
	unsigned int domain, bus, device, function, ms;
	struct pci_dev *pdev;

	if (sscanf(text, "%x:%x:%x.%u=%u", &domain, &bus, &device, &function,
		   &ms) != 5)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(device, function));
	if (!pdev)
		return -ENODEV;
	device_lock(&pdev->dev);
	/* Other writers of parameters may continue meanwhile. */
	kernel_param_unlock(THIS_MODULE);
	msleep(ms);
	kernel_param_lock(THIS_MODULE);
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
	return 0;
}

static const struct kernel_param_ops lock_ops = { .set = hold_lock };
module_param_cb(lock, &lock_ops, NULL, 0200);
MODULE_PARM_DESC(lock, "write: <address>=<ms>: hold the lock of a device");

/* ---- a map that is under way when its driver goes ---- */

static const char * const tardy_kinds[] = {
	"single", "list", "contiguous", "scattered", "registers"
};

enum { TARDY_SINGLE, TARDY_LIST, TARDY_CONTIGUOUS, TARDY_SCATTERED,
       TARDY_REGISTERS };

/* Larger than a block, so no map runs in an engine section. */
#define TARDY_BYTES	(128 * PAGE_SIZE)

static struct {
	struct device *dev;
	struct iommu_domain *domain;
	const struct iommu_domain_ops *ops;
	struct iommu_domain_ops slow;
	struct task_struct *thread;
	int kind;
	const char *state;
	bool slept;
	int blind;
	u64 asked;	/* IOVA of the last query from an engine section */
	bool owed;	/* a flush is due: an entry was hidden that the device may use */
	bool late;	/* the IOMMU's driver was asked to map before the due flush */
	bool lied;
	u64 mapped;	/* last page mapped after see_nothing() hid an entry; 0 if unmapped */
	bool bypassed;	/* that page was mapped again without an unmap */
	int strange;
	uint unflushed;	/* unmapped pages whose map was never followed by a map-side flush */
	void *memory;
	struct page *pages[2];
	struct sg_table table;
	dma_addr_t addr;
} tardy = { .state = "none" };

/* Mapped pages without a map-side flush, indexed by page number modulo UNTOLD_PAGES. */
#define UNTOLD_PAGES	(1u << 20)
static DECLARE_BITMAP(untold, UNTOLD_PAGES);

static void note_mapped(u64 iova, size_t bytes)
{
	u64 page = iova >> PAGE_SHIFT, end = page + (bytes >> PAGE_SHIFT);

	for (; tardy.slow.iotlb_sync_map && page < end; page++)
		set_bit(page % UNTOLD_PAGES, untold);
}

/* Returns the number of pages that had no map-side flush. */
static u32 note_told(u64 iova, size_t bytes)
{
	u64 page = iova >> PAGE_SHIFT;
	u64 end = page + min_t(u64, PFN_UP(bytes), UNTOLD_PAGES);
	u32 count = 0;

	for (; page < end; page++)
		count += test_and_clear_bit(page % UNTOLD_PAGES, untold);
	return count;
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
static void sync_map_watched(struct iommu_domain *domain, unsigned long iova, size_t bytes)
{
	note_told(iova, bytes);
	tardy.ops->iotlb_sync_map(domain, iova, bytes);
}
#else
static int sync_map_watched(struct iommu_domain *domain, unsigned long iova, size_t bytes)
{
	note_told(iova, bytes);
	return tardy.ops->iotlb_sync_map(domain, iova, bytes);
}
#endif

/* The first call from the tardy thread sleeps. */
static int map_slowly(struct iommu_domain *domain, unsigned long iova,
		      phys_addr_t phys, size_t page_bytes, size_t pages,
		      int prot, gfp_t gfp, size_t *mapped)
{
	int error;

	if (current == tardy.thread && !tardy.slept) {
		tardy.slept = true;
		WRITE_ONCE(tardy.state, "inside");
		msleep(1000);
	}
	tardy.late |= tardy.owed;
	if (tardy.lied && !tardy.blind && pages == 1) {
		tardy.bypassed |= tardy.mapped == iova;
		tardy.mapped = iova;
	}
	/* Applies to the next map of a single page. */
	if (tardy.strange && pages == 1) {
		if (tardy.strange == 1)
			prot ^= IOMMU_WRITE;
		else
			phys ^= PAGE_SIZE;
		tardy.strange = 0;
	}
	error = tardy.ops->map_pages(domain, iova, phys, page_bytes, pages,
				     prot, gfp, mapped);
	note_mapped(iova, *mapped);
	return error;
}

static size_t unmap_watched(struct iommu_domain *domain, unsigned long iova,
			    size_t page_bytes, size_t pages,
			    struct iommu_iotlb_gather *gather)
{
	if (tardy.mapped - iova < page_bytes * pages)
		tardy.mapped = 0;
	tardy.unflushed += note_told(iova, page_bytes * pages);
	return tardy.ops->unmap_pages(domain, iova, page_bytes, pages, gather);
}

/* Returns whether @iova is the last page of a range that began at @before. */
static bool is_last(u64 before, u64 iova)
{
	return iova > before && (before ^ iova) < 64 * PAGE_SIZE;
}

/* Hides an entry once, from a query in an engine section. */
static phys_addr_t see_nothing(struct iommu_domain *domain, dma_addr_t iova)
{
	u64 before = tardy.asked;

	if (in_atomic()) {
		tardy.asked = iova;
		if (tardy.blind == 1 || (tardy.blind == 2 && is_last(before, iova))) {
			tardy.blind = 0;
			tardy.owed = true;
			tardy.lied = true;
			tardy.mapped = 0;
			return 0;
		}
	}
	return tardy.ops->iova_to_phys(domain, iova);
}

static void flush_all(struct iommu_domain *domain)
{
	tardy.owed = false;
	tardy.ops->flush_iotlb_all(domain);
}

module_param_named(blind, tardy.blind, int, 0600);
MODULE_PARM_DESC(blind, "write: the slow domain hides an entry, once; 2: the last entry of a range");
module_param_named(bypassed, tardy.bypassed, bool, 0400);
MODULE_PARM_DESC(bypassed, "was a page that was mapped after a hidden entry mapped again without an unmap?");
module_param_named(late_map, tardy.late, bool, 0600);
MODULE_PARM_DESC(late_map, "was a page mapped between a hidden entry and the next flush?");

module_param_named(unflushed, tardy.unflushed, uint, 0600);
MODULE_PARM_DESC(unflushed, "unmapped pages of the slow domain whose map had no map-side flush");

static int set_strange(const char *text, const struct kernel_param *param)
{
	return tardy.dev && tardy.ops->map_pages ? param_set_int(text, param) : -EOPNOTSUPP;
}

static const struct kernel_param_ops strange_ops = {
	.set = set_strange, .get = param_get_int
};
module_param_cb(strange, &strange_ops, &tardy.strange, 0600);
MODULE_PARM_DESC(strange, "write: the slow domain maps the next page wrongly: 1: other direction, 2: other page");

static int map_tardy(struct device *dev)
{
	struct scatterlist *sg;
	int error = 0, i;

	switch (tardy.kind) {
	case TARDY_LIST:
		error = sg_alloc_table(&tardy.table, 2, GFP_KERNEL);
		if (error)
			return error;
		for_each_sgtable_sg(&tardy.table, sg, i)
			sg_set_page(sg, tardy.pages[i], TARDY_BYTES, 0);
		error = dma_map_sgtable(dev, &tardy.table, DMA_TO_DEVICE, 0);
		if (error)
			sg_free_table(&tardy.table);
		else
			tardy.addr = sg_dma_address(tardy.table.sgl);
		return error;
	case TARDY_CONTIGUOUS:
		tardy.memory = dma_alloc_attrs(dev, TARDY_BYTES, &tardy.addr,
					       GFP_KERNEL,
					       DMA_ATTR_FORCE_CONTIGUOUS);
		return tardy.memory ? 0 : -ENOMEM;
	case TARDY_SCATTERED:
		tardy.memory = dma_alloc_coherent(dev, TARDY_BYTES, &tardy.addr,
						  GFP_KERNEL);
		return tardy.memory ? 0 : -ENOMEM;
	case TARDY_REGISTERS:
		tardy.addr = dma_map_resource(dev,
					      pci_resource_start(to_pci_dev(dev), 0),
					      PAGE_SIZE, DMA_BIDIRECTIONAL, 0);
		break;
	default:
		tardy.addr = dma_map_page(dev, tardy.pages[0], 0, TARDY_BYTES,
					  DMA_TO_DEVICE);
	}
	return dma_mapping_error(dev, tardy.addr);
}

static int release_tardy(void)
{
	struct device *dev = tardy.dev;

	switch (tardy.kind) {
	case TARDY_LIST:
		dma_unmap_sgtable(dev, &tardy.table, DMA_TO_DEVICE, 0);
		sg_free_table(&tardy.table);
		break;
	case TARDY_CONTIGUOUS:
		dma_free_attrs(dev, TARDY_BYTES, tardy.memory, tardy.addr,
			       DMA_ATTR_FORCE_CONTIGUOUS);
		break;
	case TARDY_SCATTERED:
		dma_free_coherent(dev, TARDY_BYTES, tardy.memory, tardy.addr);
		break;
	case TARDY_REGISTERS:
		dma_unmap_resource(dev, tardy.addr, PAGE_SIZE,
				   DMA_BIDIRECTIONAL, 0);
		break;
	default:
		dma_unmap_page(dev, tardy.addr, TARDY_BYTES, DMA_TO_DEVICE);
	}
	tardy.state = "none";
	return 0;
}

static int be_tardy(void *unused)
{
	int error;

	tardy.thread = current;
	error = map_tardy(tardy.dev);
	WRITE_ONCE(tardy.state, error ? "refused" : "mapped");
	return 0;
}

static int set_tardy(const char *text, const struct kernel_param *param)
{
	int kind = __sysfs_match_string(tardy_kinds, ARRAY_SIZE(tardy_kinds),
					text);

	if (kind < 0 || !tardy.dev)
		return -EINVAL;
	tardy.kind = kind;
	tardy.slept = false;
	return PTR_ERR_OR_ZERO(kthread_run(be_tardy, NULL, "tardy"));
}

static int get_tardy(char *text, const struct kernel_param *param)
{
	const char *state = READ_ONCE(tardy.state);

	if (!strcmp(state, "mapped") && translated(tardy.dev, tardy.addr))
		state = "reached";
	return sysfs_emit(text, "%s\n", state);
}

static const struct kernel_param_ops tardy_ops = {
	.set = set_tardy, .get = get_tardy
};
module_param_cb(tardy, &tardy_ops, NULL, 0600);
MODULE_PARM_DESC(tardy, "write: a thread maps; read: none, inside, refused, mapped, or reached (translated)");

static void be_quick(void)
{
	tardy.domain->ops = tardy.ops;
	__free_pages(tardy.pages[0], get_order(TARDY_BYTES));
	__free_pages(tardy.pages[1], get_order(TARDY_BYTES));
	put_device(tardy.dev);
	tardy.dev = NULL;
}

/* Called while no driver is bound. */
static int set_slow(const char *text, const struct kernel_param *param)
{
	unsigned int domain, bus, device, function;
	struct pci_dev *pdev;
	int i;

	if (tardy.dev) {
		be_quick();
		return 0;
	}
	if (sscanf(text, "%x:%x:%x.%u", &domain, &bus, &device, &function) != 4)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(domain, bus,
					   PCI_DEVFN(device, function));
	if (!pdev)
		return -ENODEV;
	tardy.domain = iommu_get_domain_for_dev(&pdev->dev);
	tardy.ops = tardy.domain->ops;
	for (i = 0; i < 2; i++) {
		tardy.pages[i] = alloc_pages(GFP_KERNEL, get_order(TARDY_BYTES));
		if (!tardy.pages[i])
			goto no_memory;
	}
	/* Physically contiguous pages would be mapped in a single step. */
	if (page_to_pfn(tardy.pages[0]) < page_to_pfn(tardy.pages[1]))
		swap(tardy.pages[0], tardy.pages[1]);
	tardy.slow = *tardy.ops;
	tardy.slow.iova_to_phys = see_nothing;
	tardy.slow.flush_iotlb_all = flush_all;
	if (tardy.ops->map_pages) {
		tardy.slow.map_pages = map_slowly;
		tardy.slow.unmap_pages = unmap_watched;
		if (tardy.ops->iotlb_sync_map)
			tardy.slow.iotlb_sync_map = sync_map_watched;
	}
	tardy.dev = &pdev->dev;
	tardy.domain->ops = &tardy.slow;
	return 0;

no_memory:
	if (tardy.pages[0])
		__free_pages(tardy.pages[0], get_order(TARDY_BYTES));
	pci_dev_put(pdev);
	return -ENOMEM;
}

static const struct kernel_param_ops slow_ops = { .set = set_slow };
module_param_cb(slow, &slow_ops, NULL, 0200);
MODULE_PARM_DESC(slow, "write: <address>: slow down the thread's maps in the device's domain; 0: stop");

/* The driver may be unbound, and another driver bound. */
static int release_late(const char *text, const struct kernel_param *param)
{
	int i;

	if (crowd.dev)
		return release_crowd();
	if (!strcmp(tardy.state, "mapped"))
		return release_tardy();
	if (!late.dev || late.freed)
		return -ENODEV;
	for (i = 0; i < 2; i++) {
		if (memchr_inv(late.memory[i], 0x5a, late_bytes[i]))
			return wrong(late.dev, "late memory has changed");
		dma_free_coherent(late.dev, late_bytes[i], late.memory[i],
				  late.handles[i]);
	}
	dma_unmap_sgtable(late.dev, &late.table, DMA_TO_DEVICE, 0);
	sg_free_table(&late.table);
	for (i = 0; i < LATE_PAGES; i++) {
		dma_unmap_page(late.dev, late.addrs[i], PAGE_SIZE,
			       DMA_TO_DEVICE);
		__free_page(late.pages[i]);
	}
	/* late.dev stays for own= until the next mode=late. */
	late.freed = true;
	return 0;
}

#define UNTOUCHED	0x5a5a5a5a

/* Returns whether a device write to @iova changes @word, the memory behind @iova. */
static bool lands(void __iomem *registers, dma_addr_t iova, u32 *word)
{
	phys_addr_t phys = virt_to_phys(word);
	bool landed;

	WRITE_ONCE(*word, UNTOUCHED);
	writel(4, registers + 0x0c);
	writel(0xa, registers + 0x18);
	writel(lower_32_bits(iova), registers + 0x04);
	writel(upper_32_bits(iova), registers + 0x08);
	writel(lower_32_bits(phys), registers + 0x1c);
	writel(upper_32_bits(phys), registers + 0x20);
	writel(1, registers + 0x14);
	readl(registers + 0x00);
	landed = READ_ONCE(*word) != UNTOUCHED;
	WRITE_ONCE(*word, UNTOUCHED);
	return landed;
}

/* Makes the device write to the first late coherent memory, with or without a driver. */
static int fire(const char *text, const struct kernel_param *param)
{
	struct pci_dev *pdev;
	void __iomem *registers;
	bool landed;

	if (!late.dev)
		return -ENODEV;
	pdev = to_pci_dev(late.dev);
	registers = ioremap(pci_resource_start(pdev, 0), PAGE_SIZE);
	if (!registers)
		return -ENOMEM;
	pci_set_master(pdev);
	landed = lands(registers, late.handles[0], late.memory[0]);
	iounmap(registers);
	return landed ? 0 : -EFAULT;
}

static const struct kernel_param_ops fire_ops = { .set = fire };
module_param_cb(fire, &fire_ops, NULL, 0200);
MODULE_PARM_DESC(fire, "write: the device writes to late memory; EFAULT if the write does not land");

/* As VFIO does, claims the group of the late device, which leaves the default domain. */
static int own(const char *text, const struct kernel_param *param)
{
	struct iommu_group *group;
	int error = 0;

	if (!late.dev)
		return -ENODEV;
	group = iommu_group_get(late.dev);
	if (*text == '1')
		error = iommu_group_claim_dma_owner(group, &late);
	else
		iommu_group_release_dma_owner(group);
	iommu_group_put(group);
	return error;
}

static const struct kernel_param_ops own_ops = { .set = own };
module_param_cb(own, &own_ops, NULL, 0200);
MODULE_PARM_DESC(own, "write 1 or 0: claim or release the late device's group as VFIO does");

/* Returns the reference count of the late device. */
static int holders(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%u\n", late.dev ?
			  kref_read(&late.dev->kobj.kref) : 0);
}

static const struct kernel_param_ops holders_ops = { .get = holders };
module_param_cb(holders, &holders_ops, NULL, 0400);
MODULE_PARM_DESC(holders, "reference count of the late device");

static const struct kernel_param_ops release_ops = { .set = release_late };
module_param_cb(release, &release_ops, NULL, 0200);
MODULE_PARM_DESC(release, "write: free the late mappings");

/* A free with a wrong handle frees nothing. */
static int bad_unmap_free(struct device *dev)
{
	dma_addr_t iova, iova_of_pages;
	void *memory = dma_alloc_coherent(dev, PAGE_SIZE, &iova, GFP_KERNEL);
	struct page *pages = dma_alloc_pages(dev, PAGE_SIZE, &iova_of_pages,
					     DMA_BIDIRECTIONAL, GFP_KERNEL);
	int error = 0;

	if (!memory || !pages)
		return -ENOMEM;
	get_page(virt_to_page(memory));
	get_page(pages);
	dma_free_coherent(dev, PAGE_SIZE, memory, iova + (1ULL << 40));
	dma_free_pages(dev, PAGE_SIZE, pages, iova_of_pages + (1ULL << 40),
		       DMA_BIDIRECTIONAL);
	if (page_count(virt_to_page(memory)) != 2 || page_count(pages) != 2)
		error = wrong(dev, "a bad free has freed memory");
	put_page(virt_to_page(memory));
	put_page(pages);
	if (error)
		return error;
	dma_free_coherent(dev, PAGE_SIZE, memory, iova);
	dma_free_pages(dev, PAGE_SIZE, pages, iova_of_pages, DMA_BIDIRECTIONAL);
	return 0;
}

/* Three bad unmaps, two of which remove a mapping in parts; then the right unmap. */
static int bad_unmap(struct device *dev)
{
	struct page *page = alloc_pages(GFP_KERNEL, 2);
	dma_addr_t iova;

	if (!page)
		return -ENOMEM;
	iova = dma_map_page(dev, page, 0, 4 * PAGE_SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, iova))
		return wrong(dev, "dma_map_page() failed");
	dma_unmap_page(dev, iova, PAGE_SIZE, DMA_TO_DEVICE);
	dma_unmap_page(dev, iova + PAGE_SIZE, 3 * PAGE_SIZE, DMA_TO_DEVICE);
	dma_unmap_page(dev, iova + (1ULL << 40), PAGE_SIZE, DMA_TO_DEVICE);
	for (u32 i = 0; i < 4; i++)
		if (translated(dev, iova + i * PAGE_SIZE))
			return wrong(dev, "a bad unmap has left a page");
	dma_unmap_page(dev, iova, 4 * PAGE_SIZE, DMA_TO_DEVICE);
	__free_pages(page, 2);
	return 0;
}

/*
 * A mapping and an unmap that does not match.
 * @bytes, @offset: size, and offset in the first page, of a single buffer
 * @from: first page of the unmap; with @list, first segment
 * @named: bytes of the unmap
 * @list: map a list of pages instead of a single buffer
 * @twice: unmap correctly first
 */
struct tear {
	const char *name;
	u32 bytes;
	u32 offset;
	u32 from;
	u32 named;
	bool list;
	bool twice;
};

#define TEAR_PAGES	256

static const struct tear tears[] = {
	/* ftgmac100 maps a fragment and unmaps another length. */
	{ "short", 1536, 3072, 0, 42 },
	{ "first", 4 * PAGE_SIZE, 0, 0, PAGE_SIZE },
	{ "middle", 4 * PAGE_SIZE, 0, 1, 2 * PAGE_SIZE },
	{ "rest", 4 * PAGE_SIZE, 0, 1, 3 * PAGE_SIZE },
	{ "longer", 4 * PAGE_SIZE, 0, 0, 7 * PAGE_SIZE },
	{ "beyond", 4 * PAGE_SIZE, 0, 2, 4 * PAGE_SIZE },
	{ "list_rest", 4 * PAGE_SIZE, 0, 1, 3 * PAGE_SIZE, .list = true },
	{ "large_first", 200 * PAGE_SIZE, 0, 0, PAGE_SIZE },
	{ "large_middle", 200 * PAGE_SIZE, 0, 70, 66 * PAGE_SIZE },
	{ "large_longer", 200 * PAGE_SIZE, 0, 0, 240 * PAGE_SIZE },
	{ "twice", PAGE_SIZE, 0, 0, PAGE_SIZE, .twice = true },
};

static u32 pages_from(u32 offset, u32 bytes)
{
	return (offset % PAGE_SIZE + bytes + PAGE_SIZE - 1) / PAGE_SIZE;
}

/* Segments are at most a page, so no segments are merged. */
static int tear_list(struct sg_table *table, struct page *memory, u32 pages)
{
	struct scatterlist *sg;
	u32 i;

	if (sg_alloc_table(table, pages, GFP_KERNEL))
		return -ENOMEM;
	for_each_sgtable_sg(table, sg, i)
		sg_set_page(sg, memory + i, PAGE_SIZE, 0);
	return 0;
}

static void tear_unmap(struct device *dev, const struct tear *tear,
		       struct sg_table *table, dma_addr_t iova)
{
	if (tear->list)
		dma_unmap_sg(dev, sg_next(table->sgl), table->orig_nents - 1,
			     DMA_BIDIRECTIONAL);
	else
		dma_unmap_page(dev, iova + tear->from * PAGE_SIZE, tear->named,
			       DMA_BIDIRECTIONAL);
}

/*
 * Counts the pages that the device reaches before and after the unmap. The device caches all
 * translations before.
 */
static int tear_one(struct device *dev, void __iomem *registers,
		    struct page *memory, const struct tear *tear, bool left)
{
	u32 pages = pages_from(tear->offset, tear->bytes);
	u32 end = tear->from + pages_from(tear->offset, tear->named);
	u32 reached = 0, others = 0, more = 0;
	struct sg_table table = { };
	dma_addr_t iova;
	int error = 0;

	if (tear->list)
		error = tear_list(&table, memory, pages) ?:
			dma_map_sgtable(dev, &table, DMA_BIDIRECTIONAL, 0);
	if (error)
		return error;
	/* Each page has a segment of its own. */
	iova = tear->list ? sg_dma_address(table.sgl) :
			    dma_map_page(dev, memory, tear->offset, tear->bytes,
					 DMA_BIDIRECTIONAL);
	if (dma_mapping_error(dev, iova))
		return wrong(dev, "a map failed");
	for (u32 i = 0; i < pages; i++)
		if (!lands(registers, (iova & PAGE_MASK) + i * PAGE_SIZE,
			   page_address(memory + i)))
			error = wrong(dev, "the device does not reach a mapped page");
	if (tear->twice)
		dma_unmap_page(dev, iova, tear->bytes, DMA_BIDIRECTIONAL);
	tear_unmap(dev, tear, &table, iova);
	for (u32 i = 0; i < pages; i++) {
		bool reach = lands(registers, (iova & PAGE_MASK) + i * PAGE_SIZE,
				   page_address(memory + i));
		bool named = i >= tear->from && i < end;

		reached += named && reach;
		others += !named && reach;
		more += !named;
	}
	dev_info(dev, "rude: tear %s %u %u %u\n", tear->name, reached, others,
		 more);
	if (!left && !tear->twice && tear->list)
		dma_unmap_sgtable(dev, &table, DMA_BIDIRECTIONAL, 0);
	else if (!left && !tear->twice)
		dma_unmap_page(dev, iova, tear->bytes, DMA_BIDIRECTIONAL);
	sg_free_table(&table);
	return error;
}

/*
 * Maps two buffers and unmaps from the second page of the first to the first page of the
 * second.
 */
static int tear_two(struct device *dev, void __iomem *registers,
		    struct page *memory, bool left)
{
	struct page *pages[2] = { memory, memory + 2 };
	u32 reached = 0, others = 0;
	dma_addr_t iovas[2];

	for (u32 i = 0; i < 2; i++) {
		iovas[i] = dma_map_page(dev, pages[i], 0, 2 * PAGE_SIZE,
					DMA_BIDIRECTIONAL);
		if (dma_mapping_error(dev, iovas[i]))
			return wrong(dev, "a map failed");
	}
	if (iovas[0] > iovas[1]) {
		swap(iovas[0], iovas[1]);
		swap(pages[0], pages[1]);
	}
	dma_unmap_page(dev, iovas[0] + PAGE_SIZE, iovas[1] - iovas[0],
		       DMA_BIDIRECTIONAL);
	for (u32 i = 0; i < 2; i++) {
		others += lands(registers, iovas[i] + i * PAGE_SIZE,
				page_address(pages[i] + i));
		reached += lands(registers, iovas[i] + !i * PAGE_SIZE,
				 page_address(pages[i] + !i));
	}
	dev_info(dev, "rude: tear two %u %u 2\n", reached, others);
	for (u32 i = 0; i < 2 && !left; i++)
		dma_unmap_page(dev, iovas[i], 2 * PAGE_SIZE, DMA_BIDIRECTIONAL);
	return 0;
}

static int tear(struct pci_dev *pdev, bool left)
{
	void __iomem *registers = ioremap(pci_resource_start(pdev, 0), PAGE_SIZE);
	struct page *memory = alloc_pages(GFP_KERNEL, get_order(TEAR_PAGES * PAGE_SIZE));
	int error = 0;

	if (!registers || !memory)
		return -ENOMEM;
	pci_set_master(pdev);
	dma_set_max_seg_size(&pdev->dev, PAGE_SIZE);
	for (u32 i = 0; i < ARRAY_SIZE(tears) && !error; i++)
		error = tear_one(&pdev->dev, registers, memory, &tears[i], left);
	if (!error)
		error = tear_two(&pdev->dev, registers, memory, left);
	dma_set_max_seg_size(&pdev->dev, SZ_64K);
	pci_clear_master(pdev);
	iounmap(registers);
	/* Pages that are still mapped may be written to, so they are not freed. */
	if (!left && !error)
		__free_pages(memory, get_order(TEAR_PAGES * PAGE_SIZE));
	return error;
}

static int many(struct device *dev, u32 count)
{
	dma_addr_t *iovas = kvmalloc_array(count, sizeof(*iovas), GFP_KERNEL);
	struct page *page = alloc_page(GFP_KERNEL);
	u32 done = 0;

	while (iovas && page && done < count) {
		iovas[done] = dma_map_page(dev, page, 0, PAGE_SIZE,
					   DMA_TO_DEVICE);
		if (dma_mapping_error(dev, iovas[done]))
			break;
		done++;
	}
	for (u32 i = 0; i < done; i++)
		dma_unmap_page(dev, iovas[i], PAGE_SIZE, DMA_TO_DEVICE);
	if (page)
		__free_page(page);
	kvfree(iovas);
	return done == count ? 0 : wrong(dev, "not all were mapped");
}

#define HUGE_ORDER	10	/* more pages than a last-level page table maps */
#define HUGE_PARTS	((1u << 30 >> PAGE_SHIFT) >> HUGE_ORDER)
#define HUGE_REST	23	/* neither a power of two nor a sum of few powers */

/* More than the largest VT-d second-stage command covers, with an odd number of pages. */
static int huge(struct device *dev)
{
	struct page *memory = alloc_pages(GFP_KERNEL, HUGE_ORDER);
	struct scatterlist *sg;
	struct sg_table table;
	bool mapped;
	int error, i;

	if (!memory)
		return -ENOMEM;
	error = sg_alloc_table(&table, HUGE_PARTS + 1, GFP_KERNEL);
	if (error)
		goto out;
	for_each_sgtable_sg(&table, sg, i)
		sg_set_page(sg, memory, i < HUGE_PARTS ? PAGE_SIZE << HUGE_ORDER :
							 HUGE_REST * PAGE_SIZE, 0);
	error = dma_map_sgtable(dev, &table, DMA_TO_DEVICE, 0);
	if (error)
		wrong(dev, "a list of 1 GiB does not map");
	mapped = !error;
	for (i = 0; !error && i < HUGE_PARTS; i++) {
		u64 last = (u64)(i + 1) * (PAGE_SIZE << HUGE_ORDER) - PAGE_SIZE;

		if (iommu_iova_to_phys(iommu_get_domain_for_dev(dev),
				       sg_dma_address(table.sgl) + last) !=
		    page_to_phys(memory) + (PAGE_SIZE << HUGE_ORDER) - PAGE_SIZE)
			error = wrong(dev, "the last page of a part is elsewhere");
	}
	if (mapped)
		dma_unmap_sgtable(dev, &table, DMA_TO_DEVICE, 0);
	sg_free_table(&table);
out:
	__free_pages(memory, HUGE_ORDER);
	return error;
}

static struct device *of_ranges;

static int set_ranges(const char *text, const struct kernel_param *param)
{
	return of_ranges ? huge(of_ranges) : -ENODEV;
}

static const struct kernel_param_ops ranges_ops = { .set = set_ranges };
module_param_cb(ranges, &ranges_ops, NULL, 0200);
MODULE_PARM_DESC(ranges, "write: mode=ranges maps and unmaps");

/* Bytes of IOVA that a last-level page table covers. */
#define TABLE_BYTES	(PAGE_SIZE * PAGE_SIZE / sizeof(u64))
#define LARGE_STEP	(64 * PAGE_SIZE)

/*
 * Maps more than a last-level page table covers, from successive offsets at the same IOVA: for
 * some offset, memory and IOVA are aligned alike and a large entry is possible.
 */
static int large(struct device *dev)
{
	struct page *memory = alloc_pages(GFP_KERNEL, HUGE_ORDER);
	size_t size = PAGE_SIZE << HUGE_ORDER;
	bool could = false;
	size_t offset = 0;
	int error = 0;

	if (!memory)
		return -ENOMEM;
	for (; offset < TABLE_BYTES && !error; offset += LARGE_STEP) {
		dma_addr_t iova = dma_map_page(dev, memory, offset,
					       size - offset, DMA_TO_DEVICE);
		u64 phys = page_to_phys(memory) + offset;

		if (dma_mapping_error(dev, iova)) {
			error = wrong(dev, "a large map failed");
			break;
		}
		could |= !((iova ^ phys) & (TABLE_BYTES - 1));
		for (size_t at = 0; at < size - offset; at += PAGE_SIZE)
			if (translated(dev, iova + at) != phys + at)
				error = wrong(dev, "a page of a large map is elsewhere");
		dma_unmap_page(dev, iova, size - offset, DMA_TO_DEVICE);
		if (translated(dev, iova + size - offset - PAGE_SIZE))
			error = wrong(dev, "a large map is still there");
	}
	if (!error && !could)
		error = wrong(dev, "no map was where a large entry can be");
	__free_pages(memory, HUGE_ORDER);
	return error;
}

static int set_large(const char *text, const struct kernel_param *param)
{
	return of_ranges ? large(of_ranges) : -ENODEV;
}

static const struct kernel_param_ops large_ops = { .set = set_large };
module_param_cb(large, &large_ops, NULL, 0200);
MODULE_PARM_DESC(large, "write: mode=ranges maps and unmaps where large entries can be");

static void range_no_more(void *unused)
{
	of_ranges = NULL;
}

/* The test counts later commands; the commands of the attach are done by then. */
static int ranges(struct device *dev)
{
	of_ranges = dev;
	return devm_add_action(dev, range_no_more, NULL);
}

/*
 * The virtio-iommu driver drops its records of a mapping when asked to unmap more than the
 * mapping, or when the driver has no memory for the request. In both cases the driver sends no
 * request.
 */
static void drop_records(struct device *dev, dma_addr_t iova, u32 pages)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	struct iommu_iotlb_gather gather;

	iommu_iotlb_gather_init(&gather);
	domain->ops->unmap_pages(domain, iova, PAGE_SIZE, pages + 1, &gather);
}

static int unrecorded(struct device *dev)
{
	struct page *page = alloc_pages(GFP_KERNEL, 2);
	int error = 0;
	dma_addr_t iova;

	if (!page)
		return -ENOMEM;
	for (u32 pages = 1; pages <= 4 && !error; pages++) {
		iova = dma_map_page(dev, page, 0, pages * PAGE_SIZE,
				    DMA_FROM_DEVICE);
		if (dma_mapping_error(dev, iova))
			return wrong(dev, "dma_map_page() failed");
		if (translated(dev, iova + pages * PAGE_SIZE))
			error = wrong(dev, "the page after the mapping is mapped");
		else
			drop_records(dev, iova, pages);
		if (translated(dev, iova))
			error = wrong(dev, "the driver keeps its records");
		dma_unmap_page(dev, iova, pages * PAGE_SIZE, DMA_FROM_DEVICE);
	}
	__free_pages(page, 2);
	return error;
}

#define CHUNK_BYTES	(2u << 20)

/*
 * Maps a small buffer until the module copies the buffer; returns 0 if the module never does.
 * The first map of a direction is not copied but starts the allocation of a chunk.
 */
static dma_addr_t map_copied(struct device *dev, void *memory,
			     enum dma_data_direction direction)
{
	for (u32 i = 0; i < 500; i++) {
		dma_addr_t iova = dma_map_single(dev, memory, 64, direction);

		if (dma_mapping_error(dev, iova))
			return 0;
		if (translated(dev, iova) != virt_to_phys(memory))
			return iova;
		dma_unmap_single(dev, iova, 64, direction);
		msleep(10);
	}
	return 0;
}

static int set_chunk(const char *text, const struct kernel_param *param)
{
	struct device *dev = of_ranges;
	void *memory = dev ? kmalloc(64, GFP_KERNEL) : NULL;
	dma_addr_t iova;

	if (!memory)
		return -ENODEV;
	iova = map_copied(dev, memory, DMA_TO_DEVICE);
	if (iova) {
		dev_info(dev, "rude: a copy at IOVA 0x%llx\n", (u64)iova);
		dma_unmap_single(dev, iova, 64, DMA_TO_DEVICE);
	}
	kfree(memory);
	return iova ? 0 : wrong(dev, "a small buffer is never copied");
}

static const struct kernel_param_ops chunk_ops = { .set = set_chunk };
module_param_cb(chunk, &chunk_ops, NULL, 0200);
MODULE_PARM_DESC(chunk, "write: mode=ranges has a small buffer copied");

/*
 * As unrecorded(), for the pool's memory, which stays mapped. Another direction uses another
 * chunk, and the records of that chunk stay.
 */
static int unrecorded_chunk(struct device *dev)
{
	void *memory = kmalloc(64, GFP_KERNEL);
	dma_addr_t to, from, chunk;
	int error = 0;

	if (!memory)
		return -ENOMEM;
	to = map_copied(dev, memory, DMA_TO_DEVICE);
	from = map_copied(dev, memory, DMA_FROM_DEVICE);
	chunk = round_down(from, CHUNK_BYTES);
	if (!to || !from)
		error = wrong(dev, "a buffer is not copied");
	else if (!translated(dev, chunk) ||
		 !translated(dev, chunk + CHUNK_BYTES - PAGE_SIZE) ||
		 translated(dev, chunk + CHUNK_BYTES))
		error = wrong(dev, "a chunk is not mapped as expected");
	else
		drop_records(dev, chunk, CHUNK_BYTES / PAGE_SIZE);
	if (!error && translated(dev, from))
		error = wrong(dev, "the driver keeps its records");
	if (to)
		dma_unmap_single(dev, to, 64, DMA_TO_DEVICE);
	if (from)
		dma_unmap_single(dev, from, 64, DMA_FROM_DEVICE);
	kfree(memory);
	return error;
}

#define ROW	(2 * 64 + 1)

static int row(struct device *dev)
{
	static dma_addr_t iovas[ROW];
	struct page *page = alloc_page(GFP_KERNEL);
	int error = 0;
	u32 i;

	if (!page)
		return -ENOMEM;
	for (i = 0; i < ROW; i++) {
		iovas[i] = dma_map_page(dev, page, 0, PAGE_SIZE, DMA_TO_DEVICE);
		if (dma_mapping_error(dev, iovas[i]))
			return wrong(dev, "dma_map_page() failed");
	}
	for (i = 0; i < ROW; i++)
		dma_unmap_page(dev, iovas[i], PAGE_SIZE, DMA_TO_DEVICE);
	msleep(50);
	for (i = 0; i < ROW && !error; i++)
		if (translated(dev, iovas[i]))
			error = wrong(dev, "a page of a row is left after its flush");
	__free_page(page);
	return error;
}

#define WHOLE_MAPS	65536
#define WHOLE_ORDER	get_order(SZ_2M)

/* Maps @page until no IOVA is left. Returns the number of maps, at most @most. */
static u32 map_all(struct device *dev, struct page *page, size_t size,
		   dma_addr_t *iovas, u32 most)
{
	u32 count = 0;

	while (count < most) {
		iovas[count] = dma_map_page(dev, page, 0, size, DMA_TO_DEVICE);
		if (dma_mapping_error(dev, iovas[count]))
			break;
		count++;
		cond_resched();
	}
	return count;
}

/*
 * Returns the address of the device's MSI page, an IOVA if interrupts are translated; 0 if
 * none.
 */
static u64 interrupts_of(struct pci_dev *pdev)
{
	struct msi_msg message;

	if (pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI | PCI_IRQ_MSIX) < 0)
		return 0;
	get_cached_msi_msg(pci_irq_vector(pdev, 0), &message);
	return (u64)message.address_hi << 32 | message.address_lo;
}

static int check_whole(struct pci_dev *pdev, struct page *page,
		       dma_addr_t *iovas)
{
	struct device *dev = &pdev->dev;
	u64 doorbell = interrupts_of(pdev);
	phys_addr_t behind = translated(dev, doorbell);
	u32 large, all;
	int error = 0;

	large = map_all(dev, page, SZ_2M, iovas, WHOLE_MAPS);
	all = large + map_all(dev, page, PAGE_SIZE, iovas + large,
			      WHOLE_MAPS - large);
	dev_info(dev, "rude: %u maps of 2 MiB, %u of a page; interrupts: %llx\n",
		 large, all - large, doorbell);
	if (!doorbell || (u64)large * SZ_2M < SZ_1G || all == WHOLE_MAPS)
		error = wrong(dev, "the maps do not fill the space below 4 GiB");
	if (translated(dev, doorbell) != behind)
		error = wrong(dev, "interrupts go elsewhere");
	for (u32 i = 0; i < all; i++) {
		size_t size = i < large ? SZ_2M : PAGE_SIZE;

		if (doorbell - iovas[i] < size)
			error = wrong(dev, "a map is where interrupts go");
		dma_unmap_page(dev, iovas[i], size, DMA_TO_DEVICE);
		cond_resched();
	}
	return error;
}

#define AHEAD	40	/* maps of 2 MiB: more than MSI_PAGE_BYTES of kmod/attach/regions.c */

static int check_ahead(struct pci_dev *pdev, struct page *page,
		       dma_addr_t *iovas)
{
	u32 count = map_all(&pdev->dev, page, SZ_2M, iovas, AHEAD);
	bool found = count == AHEAD && interrupts_of(pdev);

	while (count--)
		dma_unmap_page(&pdev->dev, iovas[count], SZ_2M, DMA_TO_DEVICE);
	return found ? 0 : wrong(&pdev->dev, "there is no room, or no interrupt");
}

static int whole(struct pci_dev *pdev,
		 int (*check)(struct pci_dev *, struct page *, dma_addr_t *))
{
	dma_addr_t *iovas = kvmalloc_array(WHOLE_MAPS, sizeof(*iovas),
					   GFP_KERNEL);
	struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP, WHOLE_ORDER);
	int error = -ENOMEM;

	if (iovas && page)
		error = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(32));
	if (!error)
		error = check(pdev, page, iovas);
	pci_free_irq_vectors(pdev);
	if (page)
		__free_pages(page, WHOLE_ORDER);
	kvfree(iovas);
	return error;
}

static int fail(struct device *dev)
{
	dma_addr_t iova;
	u32 i;

	for (i = 0; i < 4; i++)
		if (!dmam_alloc_coherent(dev, 4096 << i, &iova, GFP_KERNEL))
			return -ENOMEM;
	return -ENODEV;
}

static void be_slow(void *unused)
{
	msleep(2000);
}

static int slow(struct device *dev)
{
	dma_addr_t iova;

	if (!dmam_alloc_coherent(dev, 20 * PAGE_SIZE, &iova, GFP_KERNEL))
		return -ENOMEM;
	return devm_add_action(dev, be_slow, NULL);
}

static int rude_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int error = pcim_enable_device(pdev);

	if (error)
		return error;
	error = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (error)
		return error;
	if (sysfs_streq(mode, "fail"))
		return fail(&pdev->dev);
	if (sysfs_streq(mode, "late"))
		return map_after_detach(&pdev->dev);
	if (sysfs_streq(mode, "slow"))
		return slow(&pdev->dev);
	if (sysfs_streq(mode, "bad_unmap"))
		return bad_unmap(&pdev->dev);
	if (sysfs_streq(mode, "tear") || sysfs_streq(mode, "tear_left"))
		return tear(pdev, sysfs_streq(mode, "tear_left"));
	if (sysfs_streq(mode, "crowd"))
		return map_crowd(&pdev->dev, CROWD);
	if (sysfs_streq(mode, "one"))
		return map_crowd(&pdev->dev, 1);
	if (sysfs_streq(mode, "keep"))
		return map_kept(&pdev->dev);
	if (sysfs_streq(mode, "free"))
		return bad_unmap_free(&pdev->dev);
	if (sysfs_streq(mode, "many"))
		return many(&pdev->dev, MANY_PAGES);
	if (sysfs_streq(mode, "some"))
		return many(&pdev->dev, SOME_PAGES);
	if (sysfs_streq(mode, "most"))
		return many(&pdev->dev, MOST_PAGES);
	if (sysfs_streq(mode, "ranges"))
		return ranges(&pdev->dev);
	if (sysfs_streq(mode, "unrecorded"))
		return unrecorded(&pdev->dev);
	if (sysfs_streq(mode, "unrecorded_chunk"))
		return unrecorded_chunk(&pdev->dev);
	if (sysfs_streq(mode, "row"))
		return row(&pdev->dev);
	if (sysfs_streq(mode, "whole"))
		return whole(pdev, check_whole);
	if (sysfs_streq(mode, "ahead"))
		return whole(pdev, check_ahead);
	/* A 24-bit mask: the kernel's own path soon has no long range left below 16 MiB. */
	return check_api(pdev);
}

static const struct pci_device_id rude_ids[] = {
	{ PCI_DEVICE(0x1b36, 0x0005) },
	{ }
};
MODULE_DEVICE_TABLE(pci, rude_ids);

static struct pci_driver rude_driver = {
	.name = KBUILD_MODNAME,
	.id_table = rude_ids,
	.probe = rude_probe,
};
module_pci_driver(rude_driver);

MODULE_DESCRIPTION("A driver for tests of the DMA API");
MODULE_LICENSE("GPL");
