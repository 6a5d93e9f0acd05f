// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver for tests of pages that the IOMMU driver fails to remove. With virtio-iommu a kprobe
 * makes the function fail that adds a request to its queue, as it does without memory. Other
 * IOMMU drivers never fail: there the module is a build for tests that refuses removals itself.
 *
 *   requests  off; once: requests fail until the queue is flushed; on
 *   map       map a page
 *   unmap     unmap it and give it back, as a driver does
 *   others    map and unmap pages one after the other; fails if one has the IOVA of that page
 *   held      who else than this driver has a reference of that page, 0 or 1
 */
#include <linux/dma-mapping.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/pci.h>

static struct device *the_device;
static struct page *the_page;
static dma_addr_t the_iova;

static int wrong(const char *what)
{
	pr_err("stuck: wrong: %s\n", what);
	return -EIO;
}

/* ---- requests that fail ---- */

enum refusal { REFUSES_NONE, REFUSES_ONCE, REFUSES_ALL };

static enum refusal refusal;
static unsigned int refused, flushed;
module_param(refused, uint, 0444);
module_param(flushed, uint, 0444);

static noinline notrace void just_return(void)
{
	barrier();
}

/* The function returns -ENOMEM instead of being executed. */
static int add_request(struct kprobe *probe, struct pt_regs *regs)
{
	if (READ_ONCE(refusal) == REFUSES_NONE)
		return 0;
	refused++;
	regs_set_return_value(regs, -ENOMEM);
	instruction_pointer_set(regs, (unsigned long)just_return);
	return 1;
}

static int flush_queue(struct kprobe *probe, struct pt_regs *regs)
{
	flushed++;
	if (READ_ONCE(refusal) == REFUSES_ONCE)
		WRITE_ONCE(refusal, REFUSES_NONE);
	return 0;
}

static struct kprobe probes[] = {
	{ .symbol_name = "viommu_add_req", .pre_handler = add_request },
	{ .symbol_name = "viommu_iotlb_sync", .pre_handler = flush_queue },
	{ .symbol_name = "viommu_flush_iotlb_all", .pre_handler = flush_queue },
};
static bool probed;

static void unprobe(void)
{
	for (u32 i = 0; probed && i < ARRAY_SIZE(probes); i++)
		unregister_kprobe(&probes[i]);
	probed = false;
}

static int probe_requests(void)
{
	for (u32 i = 0; !probed && i < ARRAY_SIZE(probes); i++) {
		int error = register_kprobe(&probes[i]);

		if (!error)
			continue;
		pr_err("stuck: wrong: no probe of %s: %d\n",
		       probes[i].symbol_name, error);
		while (i)
			unregister_kprobe(&probes[--i]);
		return error;
	}
	probed = true;
	return 0;
}

static int set_requests(const char *text, const struct kernel_param *param)
{
	int error = probe_requests();

	if (error)
		return error;
	refused = flushed = 0;
	WRITE_ONCE(refusal, sysfs_streq(text, "on") ? REFUSES_ALL :
			    sysfs_streq(text, "once") ? REFUSES_ONCE :
			    REFUSES_NONE);
	return 0;
}
static const struct kernel_param_ops requests_ops = { .set = set_requests };
module_param_cb(requests, &requests_ops, NULL, 0200);

/* ---- the page ---- */

static int set_map(const char *text, const struct kernel_param *param)
{
	struct page *page = alloc_page(GFP_KERNEL);
	dma_addr_t iova;

	if (!the_device || !page)
		return -ENODEV;
	iova = dma_map_page(the_device, page, 0, PAGE_SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(the_device, iova)) {
		__free_page(page);
		return -ENOMEM;
	}
	the_page = page;
	the_iova = iova;
	return 0;
}
static const struct kernel_param_ops map_ops = { .set = set_map };
module_param_cb(map, &map_ops, NULL, 0200);

/* One reference is kept, to look at the others; the driver's own is given back. */
static int set_unmap(const char *text, const struct kernel_param *param)
{
	if (!the_device || !the_page)
		return -ENODEV;
	get_page(the_page);
	dma_unmap_page(the_device, the_iova, PAGE_SIZE, DMA_FROM_DEVICE);
	put_page(the_page);
	return 0;
}
static const struct kernel_param_ops unmap_ops = { .set = set_unmap };
module_param_cb(unmap, &unmap_ops, NULL, 0200);

static int get_held(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%d\n",
			  the_page ? page_count(the_page) - 1 : 0);
}
static const struct kernel_param_ops held_ops = { .get = get_held };
module_param_cb(held, &held_ops, NULL, 0444);

#define OTHERS	256

static int set_others(const char *text, const struct kernel_param *param)
{
	static dma_addr_t iovas[OTHERS];
	struct page *page = alloc_page(GFP_KERNEL);
	int error = 0;
	u32 i;

	if (!the_device || !page)
		return -ENODEV;
	for (i = 0; i < OTHERS && !error; i++) {
		iovas[i] = dma_map_page(the_device, page, 0, PAGE_SIZE,
					DMA_FROM_DEVICE);
		if (dma_mapping_error(the_device, iovas[i])) {
			error = wrong("a map has failed");
			break;
		}
		if (iovas[i] == the_iova)
			error = wrong("the IOVA was handed out again");
	}
	while (i)
		dma_unmap_page(the_device, iovas[--i], PAGE_SIZE,
			       DMA_FROM_DEVICE);
	__free_page(page);
	return error;
}
static const struct kernel_param_ops others_ops = { .set = set_others };
module_param_cb(others, &others_ops, NULL, 0200);

/* ---- the device ---- */

static int stuck_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	the_device = &pdev->dev;
	return dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
}

static void stuck_remove(struct pci_dev *pdev)
{
	the_device = NULL;
}

static const struct pci_device_id stuck_ids[] = {
	{ PCI_DEVICE(0x1b36, 0x0005) },
	{ }
};
MODULE_DEVICE_TABLE(pci, stuck_ids);

static struct pci_driver stuck_driver = {
	.name = KBUILD_MODNAME,
	.id_table = stuck_ids,
	.probe = stuck_probe,
	.remove = stuck_remove,
};

static int __init stuck_init(void)
{
	return pci_register_driver(&stuck_driver);
}

static void __exit stuck_exit(void)
{
	pci_unregister_driver(&stuck_driver);
	unprobe();
}

module_init(stuck_init);
module_exit(stuck_exit);

MODULE_DESCRIPTION("A driver for tests of removals that fail");
MODULE_LICENSE("GPL");
