// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `page-cache`: can a disk change data that was read from it and verified?
 *
 * A page of the page cache becomes everybody's when its read completes, microseconds after the
 * driver has unmapped it, and keeps its reference all the time: no allocator is between. So what a
 * policy holds back from the allocator says nothing about it. A read here is one of a page through
 * the page cache of a block device, by its real driver. It is verified: compared with what the disk
 * gave before. `delay_us` later a device of the same IOMMU group, which shares the domain, writes
 * to where the disk's driver had the page. Then the page cache is compared again.
 *
 *	before the unmap	a control: the write must land
 *	at the driver's sync	only of a batch-aware driver: may land, and shows that it could
 *	after it was verified	what counts: the page cache has changed, or it has not
 *
 * Where the driver has a page is seen by probes on the functions that it calls to unmap. What was
 * changed is put back. All are writes to the first word of a page of our own read.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/iommu.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/slab.h>

#include "device.h"
#include "params.h"

static char *disk = "";
module_param(disk, charp, 0644);
MODULE_PARM_DESC(disk, "page-cache: the block device to read from, of the device's IOMMU group");

struct tally {
	u64 attempts, landed;
};

struct page_cache {
	struct lab_device *dev;
	u32 rounds, pages, delay_us;	/* the parameters */
	struct iommu_domain *domain;
	struct file *file;
	u8 *good;			/* [pages * PAGE_SIZE] */

	/* What the driver has unmapped last. */
	struct device *owner;
	dma_addr_t iova;
	phys_addr_t physical;		/* 0: nothing yet */
	bool synced;

	struct tally control, before_sync, changed;
	u64 verified, astray;
};

/* One at a time: probes have no context of their own. */
static struct page_cache *watching;

/* Interrupts are off. The word is as it was, afterwards. */
static void shoot(struct tally *tally)
{
	struct lab_attacker *attacker = &watching->dev->attacker;
	u32 *word = phys_to_virt(watching->physical);
	u32 content = READ_ONCE(*word);
	enum lab_attack came_of_it;

	lab_attacker_aim(attacker, watching->iova, watching->physical);
	came_of_it = lab_attacker_fire(attacker, content);
	WRITE_ONCE(*word, content);
	tally->attempts++;
	tally->landed += came_of_it == LAB_ATTACK_LANDED;
	watching->astray += came_of_it == LAB_ATTACK_ASTRAY;
}

static bool is_of_group(const struct device *owner)
{
	const struct device *self = &watching->dev->pdev->dev;

	return owner != self && owner->iommu_group == self->iommu_group;
}

/* (dev, addr, size, dir, ...) */
static int unmap_begins(struct kprobe *probe, struct pt_regs *regs)
{
	struct device *owner = (struct device *)regs_get_kernel_argument(regs, 0);
	dma_addr_t iova = ALIGN_DOWN(regs_get_kernel_argument(regs, 1), PAGE_SIZE);
	unsigned long flags;
	phys_addr_t physical;

	if (!is_of_group(owner) || regs_get_kernel_argument(regs, 3) == DMA_TO_DEVICE)
		return 0;
	physical = iommu_iova_to_phys(watching->domain, iova);
	if (!physical || !pfn_valid(PHYS_PFN(physical)))
		return 0;
	local_irq_save(flags);
	watching->owner = owner;
	watching->iova = iova;
	watching->physical = physical;
	watching->synced = false;
	shoot(&watching->control);
	local_irq_restore(flags);
	return 0;
}

static int sync_begins(struct kprobe *probe, struct pt_regs *regs)
{
	struct device *owner = (struct device *)regs_get_kernel_argument(regs, 0);
	unsigned long flags;

	if (owner != watching->owner || !watching->physical || watching->synced)
		return 0;
	local_irq_save(flags);
	watching->synced = true;
	shoot(&watching->before_sync);
	local_irq_restore(flags);
	return 0;
}

static struct kprobe probes[] = {
	{ .symbol_name = "dma_unmap_page_attrs", .pre_handler = unmap_begins },
	/* From here on they are of xsmmu.ko, which need not be loaded. */
	{ .symbol_name = "xsmmu_unmap_no_sync", .pre_handler = unmap_begins },
	{ .symbol_name = "xsmmu_sync", .pre_handler = sync_begins },
};

#define PROBES_OF_KERNEL 1

static bool is_set[ARRAY_SIZE(probes)];

static void probes_unset(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (!is_set[i])
			continue;
		unregister_kprobe(&probes[i]);
		/* What registering had filled in would be refused the next time. */
		probes[i].addr = NULL;
		probes[i].flags = 0;
		is_set[i] = false;
	}
}

static int probes_set(struct device *self)
{
	u32 i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		ret = register_kprobe(&probes[i]);
		is_set[i] = !ret;
		if (ret && (i < PROBES_OF_KERNEL || ret != -ENOENT)) {
			dev_err(self, "page-cache: cannot probe %s(): %d\n",
				probes[i].symbol_name, ret);
			probes_unset();
			return ret;
		}
	}
	return 0;
}

/* Read from the disk, whatever is cached. The caller puts the page. */
static struct page *read_page(struct page_cache *run, u32 index)
{
	struct address_space *mapping = run->file->f_mapping;

	invalidate_mapping_pages(mapping, index, index);
	return read_mapping_page(mapping, index, run->file);
}

/* What the disk gives while nobody attacks. */
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

/* After the read and its check. */
static void attack(struct page_cache *run, u32 index, struct page *page)
{
	struct lab_attacker *attacker = &run->dev->attacker;
	u32 *word = page_address(page);
	u32 content = READ_ONCE(*word);

	if (run->delay_us)
		udelay(run->delay_us);
	lab_attacker_aim(attacker, run->iova, run->physical);
	run->astray += lab_attacker_fire(attacker, content) == LAB_ATTACK_ASTRAY;
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
	ret = probes_set(&run->dev->pdev->dev);
	for (i = 0; i < run->rounds * run->pages && !ret; i++) {
		ret = lab_device_interrupted(run->dev, "page-cache");
		if (!ret)
			ret = read_verify_attack(run, i % run->pages);
	}
	probes_unset();
	watching = NULL;
	return ret;
}

static void print(const struct page_cache *run, struct seq_buf *result)
{
	seq_buf_printf(result, "{\"verified\":%llu,\"attempts\":%llu,\"landed\":%llu",
		       run->verified, run->changed.attempts, run->changed.landed);
	seq_buf_printf(result, ",\"attempts_control\":%llu,\"landed_control\":%llu",
		       run->control.attempts, run->control.landed);
	/* What does not apply is null, never 0. */
	if (run->dev->batch_aware)
		seq_buf_printf(result, ",\"attempts_before_sync\":%llu,\"landed_before_sync\":%llu",
			       run->before_sync.attempts, run->before_sync.landed);
	else
		seq_buf_printf(result,
			       ",\"attempts_before_sync\":null,\"landed_before_sync\":null");
	seq_buf_printf(result, ",\"attempts_later\":null,\"landed_later\":null,\"astray\":%llu}",
		       run->astray);
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
