// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver for QEMU's iommu-testdev that uses the DMA API correctly in every way, and
 * incorrectly in some. Most modes do not start the device: the driver checks the page table and
 * the results of its calls.
 */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/platform_device.h>

#include "dma_api.h"

/* Returns the physical address behind an IOVA of @dev; 0 if nothing is mapped. */
phys_addr_t translated(struct device *dev, dma_addr_t iova)
{
	return iommu_iova_to_phys(iommu_get_domain_for_dev(dev), iova);
}

int wrong(struct device *dev, const char *what)
{
	dev_err(dev, "rude: wrong: %s\n", what);
	return -EIO;
}

/*
 * Returns the PCI device whose address @text begins with, referenced, or NULL. @value: set to the
 * number behind "=", unless NULL
 */
struct pci_dev *device_at(const char *text, u32 *value)
{
	unsigned int domain, bus, device, function, number;

	if (sscanf(text, "%x:%x:%x.%u=%u", &domain, &bus, &device, &function, &number) <
	    (value ? 5 : 4))
		return NULL;
	if (value)
		*value = number;
	return pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(device, function));
}

/* Firmware marks devices below an external port as untrusted. */
static int set_untrusted(const char *text, const struct kernel_param *param)
{
	u32 untrusted;
	struct pci_dev *pdev = device_at(text, &untrusted);

	if (!pdev)
		return -ENODEV;
	pdev->untrusted = untrusted;
	pci_dev_put(pdev);
	return 0;
}
TEST_PARAM(untrusted, 0200,
	   "write: <address>=1 or 0: mark the device as untrusted, or as trusted",
	   .set = set_untrusted);

/* Adds a platform device to the IOMMU group of a PCI device; 0 removes the platform device. */
static int set_stranger(const char *text, const struct kernel_param *param)
{
	static struct platform_device *stranger;
	struct iommu_group *group;
	struct pci_dev *pdev;
	int error = 0;

	if (stranger) {
		iommu_group_remove_device(&stranger->dev);
		platform_device_unregister(stranger);
		stranger = NULL;
		return 0;
	}
	pdev = device_at(text, NULL);
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
TEST_PARAM(stranger, 0200,
	   "write: <address>: add a platform device to the device's group; 0: remove the platform device",
	   .set = set_stranger);

static const struct test_mode modes[] = {
	{ "api", "every kind of mapping and its unmap; a failed probe logs the wrong result",
	  probe_api, false },
	{ "kernel", "the same, as far as the kernel's own path supports the calls", probe_api, true },
	{ "fail", "managed DMA memory, then a probe that fails: the memory is freed after the driver is gone",
	  probe_fail },
	{ "late", "mappings and coherent memory that outlive the driver until a write to the parameter release",
	  probe_late },
	{ "crowd", "the same with 700 pages", probe_crowd, CROWD },
	{ "one", "the same with a page of 4 KiB", probe_crowd, 1 },
	{ "keep", "a page that is mapped as long as the driver is bound", probe_keep },
	{ "slow", "managed DMA memory that is freed two seconds after the driver's removal",
	  probe_slow },
	{ "free", "memory that is freed with a wrong handle", probe_free },
	{ "bad_unmap", "unmaps that match no mapping; the named pages become unreachable",
	  probe_bad_unmap },
	{ "tear", "each kind of unmap that does not match a mapping: logs the pages that the device still reaches, then unmaps correctly",
	  probe_tear, false },
	{ "tear_left", "the same, and does not unmap correctly", probe_tear, true },
	{ "many", "so many mappings that their page tables are worth freeing, then unmaps",
	  probe_many, 49152 },
	{ "some", "the same with so few mappings that the module keeps their page tables",
	  probe_many, 8192 },
	{ "most", "the same up to the IOVAs of the copies' memory, and beyond: the empty page tables stay",
	  probe_many, 69632 },
	{ "ranges", "maps and unmaps on writes to the parameters ranges, large and chunk",
	  probe_ranges },
	{ "unrecorded", "the virtio-iommu driver loses its records of a mapping", probe_unrecorded },
	{ "unrecorded_chunk", "the virtio-iommu driver loses its records of a pool's chunk",
	  probe_unrecorded_chunk },
	{ "row", "the pages of two blocks and the first page of a third: their flush removes all of them",
	  probe_row },
	{ "whole", "maps of 2 MiB and then of a page until nothing below 4 GiB is free: no map covers the device's MSI page",
	  probe_whole, false },
	{ "ahead", "maps more than the module keeps free for MSI pages, then allocates interrupts",
	  probe_whole, true },
};
TEST_MODES(modes);

static int rude_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int error = pcim_enable_device(pdev);

	if (!error)
		error = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	return error ?: test_run_mode(pdev);
}

TEST_DRIVER(rude_probe);
module_pci_driver(test_driver);

MODULE_DESCRIPTION("A driver for tests of the DMA API");
MODULE_LICENSE("GPL");
