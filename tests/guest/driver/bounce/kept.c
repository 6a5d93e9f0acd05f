// SPDX-License-Identifier: GPL-2.0-only
/* mode=keep: buffers that outlive the driver until a write to the parameter release. */
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "bounce.h"

static unsigned long registers;
module_param(registers, ulong, 0644);
MODULE_PARM_DESC(registers, "address of the registers of the device's IOMMU, a VT-d in legacy mode; 0: do not check the page table");

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

#define KEPT	12

static struct {
	struct device *dev;
	struct buffer buffers[KEPT];
	u32 *bounces[KEPT];	/* the copy that the device reaches */
} kept;

static int release_kept(const char *text, const struct kernel_param *param);

int probe_keep(struct device *dev, u32 unused)
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
	if (error)
		release_kept(NULL, NULL);
	return error;
}

/* The driver may be unbound, and another driver bound. */
static int release_kept(const char *text, const struct kernel_param *param)
{
	int error = 0;
	u32 i;

	if (!kept.dev)
		return -ENODEV;
	for (i = 0; i < KEPT && kept.buffers[i].memory; i++) {
		struct buffer *buffer = &kept.buffers[i];
		bool comes_back = buffer->dir != DMA_TO_DEVICE;

		unmap(kept.dev, buffer, 0);
		if (!is_filled(buffer->memory, buffer->bytes, comes_back ? 0x22 : 0x11))
			error = wrong(kept.dev, "a late unmap copies back wrongly");
		free_page((unsigned long)buffer->memory);
		buffer->memory = NULL;
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
		bool did = test_write_lands(registers, kept.buffers[i].iova, kept.bounces[i]);

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
