// SPDX-License-Identifier: GPL-2.0-only
/* Memory and mappings that live as long as the driver, or longer. */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "dma_api.h"

#define LATE_PAGES	12

/* Managed DMA memory, then a probe that fails: the memory is freed after the driver is gone. */
int probe_fail(struct device *dev, u32 unused)
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

/* Managed DMA memory that is freed two seconds after the driver's removal. */
int probe_slow(struct device *dev, u32 unused)
{
	dma_addr_t iova;

	if (!dmam_alloc_coherent(dev, 20 * PAGE_SIZE, &iova, GFP_KERNEL))
		return -ENOMEM;
	return devm_add_action(dev, be_slow, NULL);
}

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

int probe_late(struct device *dev, u32 unused)
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
		late.addrs[i] = dma_map_page(dev, late.pages[i], 0, PAGE_SIZE, DMA_TO_DEVICE);
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
		late.memory[i] = dma_alloc_coherent(dev, late_bytes[i], &late.handles[i],
						    GFP_KERNEL);
		if (!late.memory[i])
			return wrong(dev, "dma_alloc_coherent() failed");
		memset(late.memory[i], 0x5a, late_bytes[i]);
	}
	return 0;
}

/* Late pages that fill more than a page table of the IOMMU. */
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

int probe_crowd(struct device *dev, u32 count)
{
	u32 done;

	if (crowd.dev)
		return -EBUSY;
	crowd.page = alloc_page(GFP_KERNEL);
	if (!crowd.page)
		return -ENOMEM;
	crowd.count = count;
	done = map_often(dev, crowd.page, crowd_bytes(), crowd.addrs, count);
	if (done != count) {
		unmap_often(dev, crowd_bytes(), crowd.addrs, done);
		__free_page(crowd.page);
		return wrong(dev, "dma_map_page() failed");
	}
	crowd.dev = get_device(dev);
	return 0;
}

static int release_crowd(void)
{
	unmap_often(crowd.dev, crowd_bytes(), crowd.addrs, crowd.count);
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

/* Returns the device of mode=keep, while the driver is bound; else NULL. */
struct device *kept_device(void)
{
	return kept.dev;
}

static void drop_kept(void *unused)
{
	dma_unmap_page(kept.dev, kept.addr, PAGE_SIZE, DMA_TO_DEVICE);
	__free_page(kept.page);
	kept.dev = NULL;
}

int probe_keep(struct device *dev, u32 unused)
{
	kept.page = alloc_page(GFP_KERNEL);
	kept.addr = dma_map_page(dev, kept.page, 0, PAGE_SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, kept.addr)) {
		__free_page(kept.page);
		return wrong(dev, "dma_map_page() failed");
	}
	kept.dev = dev;
	return devm_add_action_or_reset(dev, drop_kept, NULL);
}

static int kept_is_mapped(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%u\n", kept.dev &&
			  translated(kept.dev, kept.addr) ==
				  page_to_phys(kept.page));
}
TEST_PARAM(kept, 0400, "is the page of mode=keep mapped?", .get = kept_is_mapped);

/* The driver may be unbound, and another driver bound. */
static int release_late(const char *text, const struct kernel_param *param)
{
	int i;

	if (crowd.dev)
		return release_crowd();
	if (release_tardy())
		return 0;
	if (!late.dev || late.freed)
		return -ENODEV;
	for (i = 0; i < 2; i++) {
		if (memchr_inv(late.memory[i], 0x5a, late_bytes[i]))
			return wrong(late.dev, "late memory has changed");
		dma_free_coherent(late.dev, late_bytes[i], late.memory[i], late.handles[i]);
	}
	dma_unmap_sgtable(late.dev, &late.table, DMA_TO_DEVICE, 0);
	sg_free_table(&late.table);
	for (i = 0; i < LATE_PAGES; i++) {
		dma_unmap_page(late.dev, late.addrs[i], PAGE_SIZE, DMA_TO_DEVICE);
		__free_page(late.pages[i]);
	}
	/* late.dev stays for own= until the next mode=late. */
	late.freed = true;
	return 0;
}
TEST_PARAM(release, 0200, "write: free the late mappings", .set = release_late);

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
	landed = test_write_lands(registers, late.handles[0], late.memory[0]);
	iounmap(registers);
	return landed ? 0 : -EFAULT;
}
TEST_PARAM(fire, 0200,
	   "write: the device writes to late memory; EFAULT if the write does not land",
	   .set = fire);

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
TEST_PARAM(own, 0200,
	   "write 1 or 0: claim or release the late device's group as VFIO does",
	   .set = own);

/* Returns the reference count of the late device. */
static int holders(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%u\n", late.dev ?
			  kref_read(&late.dev->kobj.kref) : 0);
}
TEST_PARAM(holders, 0400, "reference count of the late device", .get = holders);
