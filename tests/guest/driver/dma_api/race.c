// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that map while their driver goes: the parameters slow and tardy stop a thread inside a
 * map, overtaken before a map, and outrun after a map's first step.
 */
#include <linux/delay.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/nmi.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "dma_api.h"

/* ---- a map that comes behind the end of its driver ---- */

/* The operations that a thread had read from its device before it was preempted. */
static struct {
	struct device *dev;
	const struct dma_map_ops *ops;
} overtaken;

static dma_addr_t map_overtaken(struct page *page, size_t size)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	return overtaken.ops->map_phys(overtaken.dev, page_to_phys(page), size, DMA_TO_DEVICE, 0);
#else
	return overtaken.ops->map_page(overtaken.dev, page, 0, size, DMA_TO_DEVICE, 0);
#endif
}

static bool list_is_mapped(struct page *page)
{
	struct scatterlist list[2];

	sg_init_table(list, 2);
	sg_set_page(&list[0], page + 2, PAGE_SIZE, 0);
	sg_set_page(&list[1], page, PAGE_SIZE, 0);
	return overtaken.ops->map_sg(overtaken.dev, list, 2, DMA_TO_DEVICE, 0) > 0;
}

static bool is_allocated(size_t size)
{
	dma_addr_t iova;

	return overtaken.ops->alloc(overtaken.dev, size, &iova, GFP_KERNEL, 0);
}

/* Tries each kind of map with operations that the device no longer has. */
static int map_all_overtaken(struct page *page)
{
	static const u32 pages[] = { 1, 3, 128 };
	struct device *dev = overtaken.dev;

	for (u32 i = 0; i < ARRAY_SIZE(pages); i++)
		if (map_overtaken(page, pages[i] * PAGE_SIZE) != DMA_MAPPING_ERROR)
			return wrong(dev, "pages were mapped");
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
		if (!kept_device())
			return -ENODEV;
		overtaken.dev = get_device(kept_device());
		overtaken.ops = overtaken.dev->dma_ops;
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
TEST_PARAM(overtaken, 0200,
	   "write: with mode=keep, remember the device's operations; then map by them",
	   .set = set_overtaken);

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
static void map_list_outrun(struct page *page, size_t size)
{
	struct scatterlist list[2];
	int mapped;

	sg_init_table(list, 2);
	sg_set_page(&list[0], page + (size / 2 >> PAGE_SHIFT), size / 2, 0);
	sg_set_page(&list[1], page, size / 2, 0);
	mapped = dma_map_sg(outrun.dev, list, 2, DMA_TO_DEVICE);
	set_dma_ops(outrun.dev, outrun.ops);
	if (mapped)
		dma_unmap_sg(outrun.dev, list, 2, DMA_TO_DEVICE);
}

/* Takes the device's operations away at the entry of a function, during each kind of map. */
static int set_outrun(const char *text, const struct kernel_param *param)
{
	static const struct {
		void (*map)(struct page *page, size_t size);
		size_t size;
	} maps[] = {
		{ map_outrun, PAGE_SIZE + 100 },
		{ map_outrun, PAGE_SIZE },
		{ map_outrun, 128 * PAGE_SIZE },
		{ map_list_outrun, 4 * PAGE_SIZE },
		{ map_list_outrun, 128 * PAGE_SIZE },
	};
	struct kprobe probe = { .pre_handler = detach };
	char name[32];
	struct page *page;
	int error;

	if (!kept_device())
		return -ENODEV;
	strscpy(name, text, sizeof(name));
	probe.symbol_name = strim(name);
	page = alloc_pages(GFP_KERNEL, 7);
	if (!page)
		return -ENOMEM;
	outrun.thread = current;
	outrun.dev = kept_device();
	outrun.ops = outrun.dev->dma_ops;
	outrun.count = 0;
	error = register_kprobe(&probe);
	if (!error) {
		for (u32 i = 0; i < ARRAY_SIZE(maps); i++)
			maps[i].map(page, maps[i].size);
		unregister_kprobe(&probe);
		error = outrun.count ? 0 : wrong(outrun.dev, "no map calls the function");
	}
	outrun.thread = NULL;
	__free_pages(page, 7);
	return error;
}
TEST_PARAM(outrun, 0200,
	   "write: <function>: with mode=keep, map; the function's entry removes the device's operations",
	   .set = set_outrun);

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
TEST_PARAM(stall, 0200,
	   "write: <function>=<ms>: delay the function's entry; empty: no delay",
	   .set = set_stall);

/* Holds a device's lock, as probe, reset and unbind do. */
static int hold_lock(const char *text, const struct kernel_param *param)
{
	u32 ms;
	struct pci_dev *pdev = device_at(text, &ms);

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
TEST_PARAM(lock, 0200, "write: <address>=<ms>: hold the lock of a device", .set = hold_lock);

/* ---- a map that is under way when its driver goes ---- */

enum { TARDY_SINGLE, TARDY_LIST, TARDY_CONTIGUOUS, TARDY_SCATTERED, TARDY_REGISTERS };

static const char * const tardy_kinds[] = {
	[TARDY_SINGLE] = "single",
	[TARDY_LIST] = "list",
	[TARDY_CONTIGUOUS] = "contiguous",
	[TARDY_SCATTERED] = "scattered",
	[TARDY_REGISTERS] = "registers",
};

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
	error = tardy.ops->map_pages(domain, iova, phys, page_bytes, pages, prot, gfp, mapped);
	note_mapped(iova, *mapped);
	return error;
}

static size_t unmap_watched(struct iommu_domain *domain, unsigned long iova,
			    size_t page_bytes, size_t pages, struct iommu_iotlb_gather *gather)
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

static unsigned long tardy_attrs(void)
{
	return tardy.kind == TARDY_CONTIGUOUS ? DMA_ATTR_FORCE_CONTIGUOUS : 0;
}

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
	case TARDY_SCATTERED:
		tardy.memory = dma_alloc_attrs(dev, TARDY_BYTES, &tardy.addr, GFP_KERNEL,
					       tardy_attrs());
		return tardy.memory ? 0 : -ENOMEM;
	case TARDY_REGISTERS:
		tardy.addr = dma_map_resource(dev, pci_resource_start(to_pci_dev(dev), 0),
					      PAGE_SIZE, DMA_BIDIRECTIONAL, 0);
		break;
	default:
		tardy.addr = dma_map_page(dev, tardy.pages[0], 0, TARDY_BYTES, DMA_TO_DEVICE);
	}
	return dma_mapping_error(dev, tardy.addr);
}

/* Unmaps the mapping of the tardy thread; returns false if there is none. */
bool release_tardy(void)
{
	struct device *dev = tardy.dev;

	if (strcmp(tardy.state, "mapped"))
		return false;
	switch (tardy.kind) {
	case TARDY_LIST:
		dma_unmap_sgtable(dev, &tardy.table, DMA_TO_DEVICE, 0);
		sg_free_table(&tardy.table);
		break;
	case TARDY_CONTIGUOUS:
	case TARDY_SCATTERED:
		dma_free_attrs(dev, TARDY_BYTES, tardy.memory, tardy.addr, tardy_attrs());
		break;
	case TARDY_REGISTERS:
		dma_unmap_resource(dev, tardy.addr, PAGE_SIZE, DMA_BIDIRECTIONAL, 0);
		break;
	default:
		dma_unmap_page(dev, tardy.addr, TARDY_BYTES, DMA_TO_DEVICE);
	}
	tardy.state = "none";
	return true;
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
	int kind = __sysfs_match_string(tardy_kinds, ARRAY_SIZE(tardy_kinds), text);

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
TEST_PARAM(tardy, 0600,
	   "write: a thread maps; read: none, inside, refused, mapped, or reached (translated)",
	   .set = set_tardy, .get = get_tardy);

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
	struct pci_dev *pdev;
	int i;

	if (tardy.dev) {
		be_quick();
		return 0;
	}
	pdev = device_at(text, NULL);
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
TEST_PARAM(slow, 0200,
	   "write: <address>: slow down the thread's maps in the device's domain; 0: stop",
	   .set = set_slow);
