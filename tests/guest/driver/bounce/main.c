// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver for QEMU's iommu-testdev that maps small buffers, which the module copies. The probe
 * reads each buffer as the device would, writes to the buffer's IOVA as the device would, and
 * fails if a result differs from the promises of the DMA API or if a write lands outside the
 * buffer. The device itself writes only to kept buffers, on request of the parameter fire.
 *
 * The parameter limit is the size in bytes of the largest buffer that the module copies.
 */
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "bounce.h"

unsigned int limit = 4096;
module_param(limit, uint, 0644);
MODULE_PARM_DESC(limit, "largest size in bytes of a copied buffer");

u8 *memory;

int wrong(struct device *dev, const char *what)
{
	dev_err(dev, "copied: wrong: %s\n", what);
	return -EIO;
}

static const struct test_mode modes[] = {
	{ "checks", "all kinds of buffers and lists, for several DMA masks", probe_checks },
	{ "plain", "the same buffers from a driver that sets no DMA mask", probe_plain },
	{ "fill", "more buffers than a chunk of 2 MiB holds, for a pool of a single chunk: the module maps the rest without a copy",
	  probe_fill, false },
	{ "many", "as fill, for a pool that may grow", probe_fill, true },
	{ "size", "a sync that is longer than any copy", probe_size },
	{ "stale", "a device write to a copy after the pool has freed the copy's memory", probe_stale },
	{ "fresh", "the content of a new chunk beside the buffer", probe_fresh },
	{ "flip", "a receive page that is used in halves, with syncs", probe_flip, true },
	{ "unsynced", "the same without syncs", probe_flip, false },
	{ "prime", "a page that the driver shares with the device for writing", probe_prime },
	{ "svm", "a page that the driver shares with the device for reading", probe_svm },
	{ "align1", "a driver that writes between its sync and its unmap", probe_align, ALIGN_1 },
	{ "align2", "the same with two segments", probe_align, ALIGN_2 },
	{ "align_begin", "the second segment begins with a page", probe_align, ALIGN_BEGIN },
	{ "align_end", "the first segment ends with a page", probe_align, ALIGN_END },
	{ "align_row", "both", probe_align, ALIGN_ROW },
	{ "align_page", "in a bounce buffer of a page", probe_align, ALIGN_PAGE },
	{ "align_few", "no aligned byte", probe_align, ALIGN_FEW },
	{ "align_large", "too large to copy", probe_align, ALIGN_LARGE },
	{ "polls", "syncs of device writes to a bidirectional buffer", probe_polls },
	{ "keep", "buffers that outlive the driver until a write to the parameter release", probe_keep },
};
TEST_MODES(modes);

static int copied_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int error = pcim_enable_device(pdev);

	if (!error && test_modes.chosen->probe != probe_plain)
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
