// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reproductions of the reports in this folder, on QEMU's iommu-testdev.
 *
 * The device gets a sysfs file `upstream`. Writing the name of a step runs the step. The kernel's
 * log has the outcome: 1 for a write of the device that landed, 0 for a write that was refused.
 * All steps but `padding` use the IOMMU API on the device's own domain, as VFIO does on its domains,
 * at IOVAs that the DMA API does not hand out in this guest.
 *
 *   small	map, use and unmap a page: an empty page table stays at IOVA_BASE
 *   large	map 2 MiB over the empty page table
 *   range	map 4 pages, write to each, unmap pages 1 and 2 in a single call, write again
 *   middle	map 2 MiB, unmap a page in the middle, write to the page and to others
 *   padding	map a list with padding, write to the list and to the padding, unmap, write again
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "attacker.h"

#define IOVA_BASE	SZ_256M
#define RANGE_PAGES	4
/* The list has a segment of one page, and a segment of all pages that the boundary allows. */
#define BOUNDARY_PAGES	16
#define SECOND_PAGE	32
#define LARGE_ORDER	get_order(SZ_2M)
#define PROT		(IOMMU_READ | IOMMU_WRITE)

struct upstream {
	struct pci_dev *pdev;
	struct lab_attacker attacker;
	struct page *memory;	/* 2 MiB */
};

static int map(struct iommu_domain *domain, unsigned long iova, phys_addr_t phys, size_t bytes)
{
#ifdef UPSTREAM_MAP_WITHOUT_GFP
	return iommu_map(domain, iova, phys, bytes, PROT);
#else
	return iommu_map(domain, iova, phys, bytes, PROT, GFP_KERNEL);
#endif
}

/* Write to a page of the memory through an IOVA. Return: whether the write landed. */
static bool lands_at(struct upstream *upstream, dma_addr_t iova, unsigned int page)
{
	phys_addr_t phys = page_to_phys(upstream->memory) + page * PAGE_SIZE;

	lab_attacker_aim(&upstream->attacker, iova, phys);
	return lab_attacker_fire(&upstream->attacker, 0) == LAB_ATTACK_LANDED;
}

static bool lands(struct upstream *upstream, unsigned int page)
{
	return lands_at(upstream, IOVA_BASE + page * PAGE_SIZE, page);
}

static int run_small(struct upstream *upstream, struct iommu_domain *domain)
{
	int ret = map(domain, IOVA_BASE, page_to_phys(upstream->memory), PAGE_SIZE);

	if (ret)
		return ret;
	pci_info(upstream->pdev, "small: mapped: %d\n", lands(upstream, 0));
	iommu_unmap(domain, IOVA_BASE, PAGE_SIZE);
	pci_info(upstream->pdev, "small: unmapped: %d\n", lands(upstream, 0));
	return 0;
}

static int run_large(struct upstream *upstream, struct iommu_domain *domain)
{
	int ret = map(domain, IOVA_BASE, page_to_phys(upstream->memory), SZ_2M);

	if (ret)
		return ret;
	pci_info(upstream->pdev, "large: mapped: %d\n",
		 lands(upstream, 0) && lands(upstream, SZ_2M / PAGE_SIZE - 1));
	iommu_unmap(domain, IOVA_BASE, SZ_2M);
	pci_info(upstream->pdev, "large: unmapped: %d\n", lands(upstream, 0));
	return 0;
}

static int run_range(struct upstream *upstream, struct iommu_domain *domain)
{
	phys_addr_t phys = page_to_phys(upstream->memory);
	bool landed[RANGE_PAGES];
	unsigned int i;
	int ret = 0;

	for (i = 0; i < RANGE_PAGES && !ret; i++)
		ret = map(domain, IOVA_BASE + i * PAGE_SIZE, phys + i * PAGE_SIZE, PAGE_SIZE);
	if (ret)
		return ret;
	for (i = 0; i < RANGE_PAGES; i++)
		landed[i] = lands(upstream, i);
	pci_info(upstream->pdev, "range: mapped: %d %d %d %d\n", landed[0], landed[1], landed[2],
		 landed[3]);
	iommu_unmap(domain, IOVA_BASE + PAGE_SIZE, 2 * PAGE_SIZE);
	for (i = 0; i < RANGE_PAGES; i++)
		landed[i] = lands(upstream, i);
	pci_info(upstream->pdev, "range: pages 1 and 2 unmapped: %d %d %d %d\n", landed[0],
		 landed[1], landed[2], landed[3]);
	iommu_unmap(domain, IOVA_BASE, PAGE_SIZE);
	iommu_unmap(domain, IOVA_BASE + 3 * PAGE_SIZE, PAGE_SIZE);
	return 0;
}

static int run_middle(struct upstream *upstream, struct iommu_domain *domain)
{
	u64 *words = page_address(upstream->memory);
	unsigned int zeros = 0, i;
	size_t unmapped;
	int ret;

	ret = map(domain, IOVA_BASE, page_to_phys(upstream->memory), SZ_2M);
	if (ret)
		return ret;
	memset(words, 0xff, PAGE_SIZE);
	unmapped = iommu_unmap(domain, IOVA_BASE + SZ_1M, PAGE_SIZE);
	for (i = 0; i < PAGE_SIZE / sizeof(*words); i++)
		zeros += !READ_ONCE(words[i]);
	pci_info(upstream->pdev, "middle: %zu bytes unmapped, %u words of the memory cleared\n",
		 unmapped, zeros);
	pci_info(upstream->pdev, "middle: the page: %d, others: %d\n",
		 lands(upstream, SZ_1M / PAGE_SIZE), lands(upstream, 1));
	iommu_unmap(domain, IOVA_BASE, SZ_2M);
	return 0;
}

/* Number of writes to the pages behind the first segment that landed. */
static unsigned int count_padding(struct upstream *upstream, dma_addr_t first)
{
	unsigned int landed = 0, page;

	for (page = 1; page < BOUNDARY_PAGES; page++)
		landed += lands_at(upstream, first + page * PAGE_SIZE, page);
	return landed;
}

static int run_padding(struct upstream *upstream)
{
	struct device *dev = &upstream->pdev->dev;
	struct scatterlist sgl[2];
	dma_addr_t first, second;
	int count;

	dma_set_seg_boundary(dev, BOUNDARY_PAGES * PAGE_SIZE - 1);
	sg_init_table(sgl, ARRAY_SIZE(sgl));
	sg_set_page(&sgl[0], upstream->memory, PAGE_SIZE, 0);
	sg_set_page(&sgl[1], upstream->memory + SECOND_PAGE, BOUNDARY_PAGES * PAGE_SIZE, 0);
	count = dma_map_sg(dev, sgl, ARRAY_SIZE(sgl), DMA_FROM_DEVICE);
	if (count != ARRAY_SIZE(sgl))
		return -EIO;
	first = sg_dma_address(&sgl[0]);
	second = sg_dma_address(&sgl[1]);
	pci_info(upstream->pdev, "padding: mapped, segments: %d %d, padding: %u of %llu pages\n",
		 lands_at(upstream, first, 0), lands_at(upstream, second, SECOND_PAGE),
		 count_padding(upstream, first), (u64)(second - first) / PAGE_SIZE - 1);
	dma_unmap_sg(dev, sgl, ARRAY_SIZE(sgl), DMA_FROM_DEVICE);
	pci_info(upstream->pdev, "padding: unmapped, segments: %d %d, padding: %u\n",
		 lands_at(upstream, first, 0), lands_at(upstream, second, SECOND_PAGE),
		 count_padding(upstream, first));
	return 0;
}

static ssize_t upstream_store(struct device *dev, struct device_attribute *attribute,
			      const char *text, size_t count)
{
	struct upstream *upstream = dev_get_drvdata(dev);
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	int ret = -EINVAL;

	if (!domain)
		return -ENODEV;
	if (sysfs_streq(text, "small"))
		ret = run_small(upstream, domain);
	else if (sysfs_streq(text, "large"))
		ret = run_large(upstream, domain);
	else if (sysfs_streq(text, "range"))
		ret = run_range(upstream, domain);
	else if (sysfs_streq(text, "middle"))
		ret = run_middle(upstream, domain);
	else if (sysfs_streq(text, "padding"))
		ret = run_padding(upstream);
	return ret ? ret : count;
}
static DEVICE_ATTR_WO(upstream);

static struct attribute *upstream_attrs[] = {
	&dev_attr_upstream.attr,
	NULL
};
ATTRIBUTE_GROUPS(upstream);

static int upstream_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct upstream *upstream = devm_kzalloc(&pdev->dev, sizeof(*upstream), GFP_KERNEL);
	int ret;

	if (!upstream)
		return -ENOMEM;
	upstream->pdev = pdev;
	ret = pcim_enable_device(pdev);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "cannot enable the device\n");
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "no 64-bit DMA\n");
	ret = lab_attacker_create(&upstream->attacker, pdev);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "cannot map BAR 0\n");
	upstream->memory = alloc_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, LARGE_ORDER);
	if (!upstream->memory)
		return -ENOMEM;
	pci_set_master(pdev);
	pci_set_drvdata(pdev, upstream);
	return 0;
}

static void upstream_remove(struct pci_dev *pdev)
{
	struct upstream *upstream = pci_get_drvdata(pdev);

	pci_clear_master(pdev);
	__free_pages(upstream->memory, LARGE_ORDER);
}

static const struct pci_device_id upstream_ids[] = {
	{ PCI_DEVICE(LAB_ATTACKER_VENDOR, LAB_ATTACKER_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, upstream_ids);

static struct pci_driver upstream_driver = {
	.name = KBUILD_MODNAME,
	.id_table = upstream_ids,
	.probe = upstream_probe,
	.remove = upstream_remove,
	.dev_groups = upstream_groups,
};
module_pci_driver(upstream_driver);

MODULE_DESCRIPTION("Reproductions of the reports in docs/upstream, on QEMU's iommu-testdev");
MODULE_LICENSE("GPL");
