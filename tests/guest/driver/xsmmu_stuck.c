// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver for tests of pages that the IOMMU driver fails to remove. With virtio-iommu a kprobe
 * makes the function that adds a request to the queue fail, as without memory. Other IOMMU
 * drivers never fail: for them, a test build of the module refuses removals.
 */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sizes.h>
#include <linux/virtio.h>
#include <linux/virtio_iommu.h>

#include "test_driver.h"

static struct device *the_device;
static struct page *the_page;
static dma_addr_t the_iova;
static unsigned int the_bytes;

static int wrong(const char *what)
{
	pr_err("stuck: wrong: %s\n", what);
	return -EIO;
}

/* ---- requests that fail ---- */

enum refusal { REFUSES_NONE, REFUSES_ONCE, REFUSES_LATER, REFUSES_ALL };

static enum refusal refusal;
static unsigned int refused, flushed, succeed;
static u64 mapped_phys;
module_param(refused, uint, 0444);
MODULE_PARM_DESC(refused, "requests that failed since the last write to requests");
module_param(flushed, uint, 0444);
MODULE_PARM_DESC(flushed, "flushes of the queue since then");

static noinline notrace void just_return(void)
{
	barrier();
}

/* The function returns -ENOMEM instead of being executed. */
static int add_request(struct kprobe *probe, struct pt_regs *regs)
{
	/* The probed function is viommu_add_req(viommu, buf, len). */
	const struct virtio_iommu_req_map *map =
		(void *)regs_get_kernel_argument(regs, 1);

	if (READ_ONCE(refusal) != REFUSES_ALL &&
	    (READ_ONCE(refusal) != REFUSES_ONCE ||
	     map->head.type != VIRTIO_IOMMU_T_UNMAP)) {
		if (map->head.type == VIRTIO_IOMMU_T_MAP)
			mapped_phys = le64_to_cpu(map->phys_start);
		if (READ_ONCE(refusal) == REFUSES_LATER && !--succeed)
			WRITE_ONCE(refusal, REFUSES_ALL);
		return 0;
	}
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
		pr_err("stuck: wrong: no probe of %s: %d\n", probes[i].symbol_name, error);
		while (i)
			unregister_kprobe(&probes[--i]);
		return error;
	}
	probed = true;
	return 0;
}

static const struct {
	const char *word;
	enum refusal refusal;
	unsigned int succeed;	/* requests, before all others fail */
} requests[] = {
	{ "off", REFUSES_NONE },
	{ "once", REFUSES_ONCE },
	{ "later", REFUSES_LATER, 1 },
	{ "later2", REFUSES_LATER, 2 },
	{ "on", REFUSES_ALL },
};

static int set_requests(const char *text, const struct kernel_param *param)
{
	int error = probe_requests();

	if (error)
		return error;
	for (u32 i = 0; i < ARRAY_SIZE(requests); i++) {
		if (!sysfs_streq(text, requests[i].word))
			continue;
		refused = flushed = 0;
		succeed = requests[i].succeed;
		WRITE_ONCE(refusal, requests[i].refusal);
		return 0;
	}
	return -EINVAL;
}
TEST_PARAM(requests, 0200,
	   "off; once: requests to unmap fail until the queue is flushed; later, later2: the next request or two succeed, and later requests fail; on",
	   .set = set_requests);

/* ---- the page ---- */

static int set_map(const char *text, const struct kernel_param *param)
{
	struct page *page;
	dma_addr_t iova;

	if (!the_device || kstrtouint(text, 0, &the_bytes))
		return -ENODEV;
	page = alloc_pages(GFP_KERNEL | __GFP_COMP, get_order(the_bytes));
	if (!page)
		return -ENOMEM;
	iova = dma_map_page(the_device, page, 0, the_bytes, DMA_FROM_DEVICE);
	if (dma_mapping_error(the_device, iova)) {
		put_page(page);
		return -ENOMEM;
	}
	the_page = page;
	the_iova = iova;
	return 0;
}
TEST_PARAM(map, 0200, "map the given number of bytes", .set = set_map);

/* Drops the driver's reference; a second reference stays, for reading the count. */
static int set_unmap(const char *text, const struct kernel_param *param)
{
	if (!the_device || !the_page)
		return -ENODEV;
	get_page(the_page);
	dma_unmap_page(the_device, the_iova, the_bytes, DMA_FROM_DEVICE);
	put_page(the_page);
	return 0;
}
TEST_PARAM(unmap, 0200,
	   "unmap the bytes and free the page, at once as a driver does, or later",
	   .set = set_unmap);

static int get_held(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%d\n", the_page ? page_count(the_page) - 1 : 0);
}
TEST_PARAM(held, 0444,
	   "references to the page of map besides the driver's own, 0 or 1",
	   .get = get_held);

static int get_mapped(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%d\n",
			  mapped_phys ? page_count(pfn_to_page(PHYS_PFN(mapped_phys))) :
					0);
}
TEST_PARAM(mapped, 0444,
	   "references to the page that the device was last told to map",
	   .get = get_mapped);

/* ---- memory that the module frees ---- */

static void *memory;
static dma_addr_t memory_iova;
static int memory_left;

static int set_memory(const char *text, const struct kernel_param *param)
{
	if (!the_device)
		return -ENODEV;
	if (*text == '0') {
		dma_free_attrs(the_device, SZ_2M, memory, memory_iova, DMA_ATTR_FORCE_CONTIGUOUS);
		memory_left = page_count(virt_to_page(memory));
		return 0;
	}
	memory = dma_alloc_attrs(the_device, SZ_2M, &memory_iova, GFP_KERNEL,
				 DMA_ATTR_FORCE_CONTIGUOUS);
	return memory ? 0 : -ENOMEM;
}

static int get_memory(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%d\n", memory_left);
}
TEST_PARAM(memory, 0644,
	   "1: allocate 2 MiB of contiguous memory; 0: free the memory; read: the references to the memory after the free",
	   .set = set_memory, .get = get_memory);

/* ---- others ---- */

static int set_own(const char *text, const struct kernel_param *param)
{
	struct iommu_group *group;
	int error = 0;

	if (!the_device)
		return -ENODEV;
	group = iommu_group_get(the_device);
	if (*text == '1')
		error = iommu_group_claim_dma_owner(group, &the_device);
	else
		iommu_group_release_dma_owner(group);
	iommu_group_put(group);
	return error;
}
TEST_PARAM(own, 0200,
	   "1: own the IOMMU group, as VFIO does; 0: release the group",
	   .set = set_own);

static int set_alloc(const char *text, const struct kernel_param *param)
{
	dma_addr_t iova;
	void *memory;

	if (!the_device)
		return -ENODEV;
	memory = dma_alloc_attrs(the_device, SZ_2M, &iova, GFP_KERNEL, DMA_ATTR_FORCE_CONTIGUOUS);
	if (!memory)
		return 0;
	dma_free_attrs(the_device, SZ_2M, memory, iova, DMA_ATTR_FORCE_CONTIGUOUS);
	return wrong("an allocation has not failed");
}
TEST_PARAM(alloc, 0200, "allocate 2 MiB of contiguous memory, which must fail", .set = set_alloc);

#define OTHERS	256

static dma_addr_t others[OTHERS];

static int set_others(const char *text, const struct kernel_param *param)
{
	struct page *page;
	int error = 0;
	u32 i;

	if (!the_device)
		return -ENODEV;
	page = alloc_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	for (i = 0; i < OTHERS && !error; i++) {
		others[i] = dma_map_page(the_device, page, 0, PAGE_SIZE, DMA_FROM_DEVICE);
		if (dma_mapping_error(the_device, others[i])) {
			error = wrong("a map has failed");
			break;
		}
		if (others[i] == the_iova)
			error = wrong("the IOVA was handed out again");
	}
	while (i)
		dma_unmap_page(the_device, others[--i], PAGE_SIZE, DMA_FROM_DEVICE);
	__free_page(page);
	return error;
}
TEST_PARAM(others, 0200,
	   "map 256 pages, then unmap all; fails if a page gets the IOVA of map",
	   .set = set_others);

/* ---- the IOMMU's answers ---- */

/* Layout in the virtio-iommu driver. The device writes the status behind the request. */
struct viommu_request {
	struct list_head list;
	void *writeback;
	unsigned int write_offset;
	unsigned int len;
	char buf[];
};

static struct task_struct *asker;
static unsigned int answers, refusals;

static bool is_asked(const struct virtqueue *vq)
{
	return current == READ_ONCE(asker) && !strcmp(vq->name, "request");
}

/* The virtio-iommu driver does not read the answers to maps and unmaps. */
static int get_answer(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const struct viommu_request *request =
		(void *)regs_return_value(regs);
	const struct virtio_iommu_req_head *head;
	const struct virtio_iommu_req_tail *tail;

	if (!request)
		return 0;
	head = (void *)request->buf;
	tail = (void *)request->buf + request->len - sizeof(*tail);
	if (head->type != VIRTIO_IOMMU_T_MAP)
		return 0;
	answers++;
	refusals += tail->status != VIRTIO_IOMMU_S_OK;
	return 0;
}

static int is_an_answer(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return is_asked((void *)regs_get_kernel_argument(regs, 0)) ? 0 : 1;
}

static struct kretprobe answer = {
	.kp.symbol_name = "virtqueue_get_buf",
	.entry_handler = is_an_answer,
	.handler = get_answer,
	.maxactive = 16,
};

static bool answered;

static int probe_answers(void)
{
	int error = answered ? 0 : register_kretprobe(&answer);

	answered |= !error;
	return error;
}

/* The device refuses to map a page twice; an entry without read and write maps nothing. */
static void ask(struct iommu_domain *domain, dma_addr_t iova)
{
	size_t mapped = 0;

	/* iommu_map() takes other arguments on 6.1. */
	if (domain->ops->map_pages(domain, iova, PFN_PHYS(1), PAGE_SIZE, 1, 0,
				   GFP_KERNEL, &mapped) || !mapped)
		wrong("a page cannot be asked for");
	iommu_flush_iotlb_all(domain);
	if (iommu_unmap(domain, iova, PAGE_SIZE) != PAGE_SIZE)
		wrong("a question cannot be taken back");
}

static int get_reached(char *text, const struct kernel_param *param)
{
	u32 pages = DIV_ROUND_UP(the_bytes, PAGE_SIZE), asked = 0;
	struct iommu_domain *domain;
	int error;

	if (!the_device)
		return -ENODEV;
	error = probe_answers();
	if (error)
		return error;
	domain = iommu_get_domain_for_dev(the_device);
	answers = refusals = 0;
	WRITE_ONCE(asker, current);
	for (u32 i = 0; the_page && i < pages; i++, asked++)
		ask(domain, the_iova + i * PAGE_SIZE);
	for (u32 i = 0; i < OTHERS && others[i]; i++, asked++)
		ask(domain, others[i]);
	WRITE_ONCE(asker, NULL);
	if (answers != asked || answer.nmissed)
		return wrong("not all answers were seen");
	return sysfs_emit(text, "%u\n", refusals);
}
TEST_PARAM(reached, 0400,
	   "the number of pages of the last map and of the last others that the virtio-iommu device still has mapped, by the answers to new map requests; valid only after the unmap",
	   .get = get_reached);

/* ---- the device ---- */

static int stuck_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	the_device = &pdev->dev;
	return dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
}

TEST_DRIVER(stuck_probe);

static int __init stuck_init(void)
{
	return pci_register_driver(&test_driver);
}

static void __exit stuck_exit(void)
{
	pci_unregister_driver(&test_driver);
	unprobe();
	if (answered)
		unregister_kretprobe(&answer);
}

module_init(stuck_init);
module_exit(stuck_exit);

MODULE_DESCRIPTION("A driver for tests of removals that fail");
MODULE_LICENSE("GPL");
