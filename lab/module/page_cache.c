// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `page-cache`: tests whether a disk can change data that was read from the disk and
 * verified.
 *
 * A page of the page cache becomes readable for all processes when its read completes, microseconds
 * after the driver has unmapped the page. The page has a reference all the time and does not pass
 * through the allocator, so a policy that holds pages back from the allocator does not protect the
 * page. A read reads a page through the page cache of a block device, by its real driver. The
 * workload verifies the page: compares the page with an earlier read. `delay_us` later a device of
 * the same IOMMU group, which shares the domain, writes to the IOVA at which the disk's driver had
 * mapped the page. Then the page is compared again.
 *
 *	before the unmap	a control: the write must land
 *	at the driver's flush	only of a batch-aware driver: the write may land, and shows that the
 *				attack works
 *	after verification	the result: whether the page cache has changed
 *
 * Probes on the functions that the driver calls to unmap give the IOVA. The workload restores
 * changed words. All writes go to the first word of a page of the workload's own read.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/slab.h>

#include "params.h"
#include "probe.h"
#include "testdev.h"

static char *disk = "";
module_param(disk, charp, 0644);
MODULE_PARM_DESC(disk, "page-cache: the block device to read from, of the device's IOMMU group");

struct page_cache {
	struct lab_device *dev;
	u32 rounds, pages, delay_us;	/* the parameters */
	struct iommu_domain *domain;
	struct file *file;
	u8 *good;			/* [pages * PAGE_SIZE] */

	/* The driver's last unmap. */
	struct device *owner;
	dma_addr_t iova;
	phys_addr_t physical;		/* 0: nothing yet */
	bool flushed;

	struct lab_tally control, before_flush, changed;
	u64 verified;
};

/* A single run at a time, because probes have no context of their own. */
static struct page_cache *watching;

/* Must be called with interrupts off. */
static void shoot(struct lab_tally *tally)
{
	lab_attacker_shoot(lab_attacker_of(watching->dev), watching->iova, watching->physical,
			   tally);
}

/* Probed arguments: (dev, addr, size, dir, ...). Return: 1 to skip the probe at the return. */
static int unmap_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	dma_addr_t iova = ALIGN_DOWN(regs_get_kernel_argument(regs, 1), PAGE_SIZE);
	struct device *owner = lab_probe_owner(regs);
	unsigned long flags;
	phys_addr_t physical;

	if (!lab_probe_is_neighbour(&watching->dev->pdev->dev, owner) ||
	    regs_get_kernel_argument(regs, 3) == DMA_TO_DEVICE)
		return 1;
	physical = iommu_iova_to_phys(watching->domain, iova);
	if (!physical || !pfn_valid(PHYS_PFN(physical)))
		return 1;
	local_irq_save(flags);
	watching->owner = owner;
	watching->iova = iova;
	watching->physical = physical;
	watching->flushed = false;
	shoot(&watching->control);
	local_irq_restore(flags);
	return 1;
}

static int flush_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	unsigned long flags;

	if (lab_probe_owner(regs) != watching->owner || !watching->physical || watching->flushed)
		return 1;
	local_irq_save(flags);
	watching->flushed = true;
	shoot(&watching->before_flush);
	local_irq_restore(flags);
	return 1;
}

static struct kretprobe probes[] = {
	LAB_PROBE("dma_unmap_page_attrs", unmap_entry, NULL, char),
	/* The following functions are of xsmmu.ko, which need not be loaded. */
	LAB_PROBE("__xsmmu_unmap_deferred", unmap_entry, NULL, char),
	LAB_PROBE("__xsmmu_flush", flush_entry, NULL, char),
};

#define PROBES_OF_KERNEL 1

/* Read a page from the disk, even if the page is cached. The caller must put the page. */
static struct page *read_page(struct page_cache *run, u32 index)
{
	struct address_space *mapping = run->file->f_mapping;

	invalidate_mapping_pages(mapping, index, index);
	return read_mapping_page(mapping, index, run->file);
}

/* Keep the disk's content, read without an attack. */
static int learn(struct page_cache *run)
{
	struct page *page;
	u32 i;

	for (i = 0; i < run->pages; i++) {
		page = read_page(run, i);
		if (IS_ERR(page))
			return PTR_ERR(page);
		memcpy(run->good + i * PAGE_SIZE, page_address(page), PAGE_SIZE);
		put_page(page);
	}
	return 0;
}

static bool is_good(const struct page_cache *run, u32 index, struct page *page)
{
	return !memcmp(run->good + index * PAGE_SIZE, page_address(page), PAGE_SIZE);
}

/* Attack a page after its read and its verification. */
static void attack(struct page_cache *run, u32 index, struct page *page)
{
	struct lab_attacker *attacker = lab_attacker_of(run->dev);
	u32 *word = page_address(page);
	u32 content = READ_ONCE(*word);

	if (run->delay_us)
		udelay(run->delay_us);
	lab_attacker_aim(attacker, run->iova, run->physical);
	run->changed.astray += lab_attacker_fire(attacker, content) == LAB_ATTACK_ASTRAY;
	run->changed.attempts++;
	run->changed.landed += !is_good(run, index, page);
	WRITE_ONCE(*word, content);
}

static int read_verify_attack(struct page_cache *run, u32 index)
{
	struct device *self = &run->dev->pdev->dev;
	struct page *page;
	int ret = -EIO;

	run->physical = 0;
	page = read_page(run, index);
	if (IS_ERR(page))
		return PTR_ERR(page);
	if (run->physical != page_to_phys(page)) {
		dev_err(self, "page-cache: a read was not seen to be unmapped\n");
	} else if (!is_good(run, index, page)) {
		dev_err(self, "page-cache: a read gave other data than before\n");
	} else {
		run->verified++;
		attack(run, index, page);
		ret = 0;
	}
	put_page(page);
	return ret;
}

static int run_all(struct page_cache *run)
{
	u32 i;
	int ret = learn(run);

	if (ret)
		return ret;
	watching = run;
	ret = lab_probes_set(&run->dev->pdev->dev, probes, ARRAY_SIZE(probes), PROBES_OF_KERNEL);
	for (i = 0; i < run->rounds * run->pages && !ret; i++) {
		ret = lab_device_interrupted(run->dev, "page-cache");
		if (!ret)
			ret = read_verify_attack(run, i % run->pages);
	}
	lab_probes_unset(probes, ARRAY_SIZE(probes));
	watching = NULL;
	return ret;
}

static void print(const struct page_cache *run, struct seq_buf *result)
{
	seq_buf_printf(result, "{\"verified\":%llu", run->verified);
	lab_tally_print(result, "", &run->changed);
	lab_tally_print(result, "_control", &run->control);
	lab_tally_print(result, "_before_flush", run->dev->batch_aware ? &run->before_flush : NULL);
	lab_tally_print(result, "_later", NULL);
	seq_buf_printf(result, ",\"astray\":%llu}", run->control.astray +
		       run->before_flush.astray + run->changed.astray);
}

static int page_cache_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	struct device *self = &dev->pdev->dev;
	struct page_cache run = { .dev = dev, .rounds = 16, .pages = 64, .delay_us = 0 };
	const struct lab_param params[] = {
		{ "rounds", &run.rounds, 1, 100000 },
		{ "pages", &run.pages, 1, 1024 },
		{ "delay_us", &run.delay_us, 0, 1000 },
	};
	int ret = lab_params_parse(self, "page-cache", text, params, ARRAY_SIZE(params));

	if (ret)
		return ret;
	if (num_online_cpus() > 1) {
		dev_err(self, "page-cache: needs one CPU, or it overwrites what another reads\n");
		return -EOPNOTSUPP;
	}
	run.domain = iommu_get_domain_for_dev(self);
	if (!run.domain) {
		dev_err(self, "page-cache: there is no IOMMU\n");
		return -ENODEV;
	}
	run.file = filp_open(disk, O_RDONLY, 0);
	if (IS_ERR(run.file)) {
		dev_err(self, "page-cache: cannot open \"%s\" (module parameter disk)\n", disk);
		return PTR_ERR(run.file);
	}
	run.good = kvmalloc(run.pages * PAGE_SIZE, GFP_KERNEL);
	ret = run.good ? run_all(&run) : -ENOMEM;
	if (!ret)
		print(&run, result);
	kvfree(run.good);
	filp_close(run.file, NULL);
	return ret;
}

const struct lab_workload lab_page_cache = { .name = "page-cache", .run = page_cache_run };
