// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `neighbour`: a device of the same IOMMU group attacks memory that a real driver unmaps.
 *
 * Devices of a group share a domain, so an IOVA of a device is valid for all devices of the group.
 * The driver is unmodified: probes on the functions that the driver calls (dma_unmap_page_attrs(),
 * dma_unmap_sg_attrs(), and the functions of include/xsmmu/dma.h) report its unmaps and the returns
 * of its flushes. At most TARGETS words of each unmap are attacked, in its first and its last page:
 *
 *	before the unmap	a control: the write must land. The write also makes the IOMMU cache
 *				the translation for this device
 *	before the flush	only of a batch-aware driver: the write may land, and shows that the
 *				attack works
 *	after			at the return of the unmap, or of the batch-aware driver's flush
 *	later			with later=1: at each later shot, one of the last OLD words, unless
 *				the page table maps the word's IOVA again
 *
 * The data belongs to the driver, so a shot saves the word before and restores the word after the
 * write, with interrupts off. No other code can read the word in between: a shot is complete when
 * the MMIO read that fires the shot returns, the guest has a single CPU (or the run is refused),
 * and no device uses memory that its driver is about to unmap, or has just unmapped. For later
 * shots the last condition does not hold. So later=1 is only for levels under which no write lands;
 * a write that lands corrupts data. iommu-testdev cannot read by DMA, so memory that the device may
 * only read (sent packets, disk writes) is not attacked.
 *
 * on=1 starts the attack and returns, on=0 stops the attack and gives the result. A probe that hits
 * while its CPU is in another probe is missed and counted, and its unmap is not attacked.
 */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "neighbour.h"
#include "params.h"
#include "probe.h"
#include "testdev.h"

#define TARGETS 2
#define PENDING_MAX 512	/* most words that wait for the driver's flush; others are not attacked */
#define OLD 64

/* A word that the driver has mapped. */
struct target {
	struct device *owner;
	dma_addr_t iova;
	phys_addr_t physical;
	bool is_gone;	/* from the page table, before the driver called its flush */
};

/* The words of an unmap, from its entry to its return. */
struct unmap {
	u32 count;
	struct target targets[TARGETS];
};

struct lab_neighbour {
	struct lab_device *dev;
	struct iommu_domain *domain;	/* of the whole group */
	bool is_later;			/* the parameter */
	struct lab_tally control, before_flush, after, later;
	u64 unmaps;
	u32 pending_count;
	struct target pending[PENDING_MAX];
	struct target old[OLD];		/* a ring; owner NULL: empty */
	u32 old_next, old_shot;
};

/* A single attack at a time, because probes have no context of their own. */
static struct lab_neighbour *armed;

/* Must be called with interrupts off. */
static void shoot(struct lab_tally *tally, const struct target *target)
{
	lab_attacker_shoot(lab_attacker_of(armed->dev), target->iova, target->physical, tally);
}

/* Physical address that the page table has for the word's IOVA; 0 if the IOVA is not mapped. */
static phys_addr_t mapped_to(const struct target *target)
{
	return iommu_iova_to_phys(armed->domain, target->iova);
}

static void remember(const struct target *target)
{
	armed->old[armed->old_next++ % OLD] = *target;
}

static void shoot_old(void)
{
	const struct target *target = &armed->old[armed->old_shot++ % OLD];
	struct lab_attacker *attacker = lab_attacker_of(armed->dev);

	if (!armed->is_later || !target->owner || mapped_to(target))
		return;
	lab_attacker_aim(attacker, target->iova, target->physical);
	armed->later.attempts++;
	armed->later.landed += lab_attacker_passes(attacker);
}

static bool is_neighbour(const struct device *owner)
{
	return lab_probe_is_neighbour(&armed->dev->pdev->dev, owner);
}

static void unmap_add(struct unmap *unmap, struct device *owner, dma_addr_t iova)
{
	struct target *target = &unmap->targets[unmap->count];

	*target = (struct target) { .owner = owner, .iova = ALIGN_DOWN(iova, sizeof(u32)) };
	target->physical = mapped_to(target);
	if (!target->physical || !pfn_valid(PHYS_PFN(target->physical)))
		return;
	unmap->count++;
	shoot(&armed->control, target);
}

/* The driver is about to unmap [iova, iova + bytes). */
static void unmap_begins(struct unmap *unmap, struct device *owner, dma_addr_t iova, size_t bytes,
			 enum dma_data_direction dir)
{
	dma_addr_t last = iova + bytes - 1;
	unsigned long flags;

	unmap->count = 0;
	if (!bytes || !is_neighbour(owner) || dir == DMA_TO_DEVICE)
		return;
	local_irq_save(flags);
	armed->unmaps++;
	unmap_add(unmap, owner, iova);
	if (last >> PAGE_SHIFT != iova >> PAGE_SHIFT)
		unmap_add(unmap, owner, last & PAGE_MASK);
	local_irq_restore(flags);
}

/* Probed arguments: (dev, addr, size, dir, ...). Return: 1 to skip the probe at the return. */
static int page_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct unmap *unmap = (struct unmap *)instance->data;

	unmap_begins(unmap, lab_probe_owner(regs), regs_get_kernel_argument(regs, 1),
		     regs_get_kernel_argument(regs, 2), regs_get_kernel_argument(regs, 3));
	return !unmap->count;
}

/* Probed arguments: (dev, sg, nents, dir, ...). Attacks the first segment. */
static int sg_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct scatterlist *sg = (struct scatterlist *)regs_get_kernel_argument(regs, 1);
	struct unmap *unmap = (struct unmap *)instance->data;

	unmap_begins(unmap, lab_probe_owner(regs), sg_dma_address(sg), sg_dma_len(sg),
		     regs_get_kernel_argument(regs, 3));
	return !unmap->count;
}

static int unmapped(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const struct unmap *unmap = (struct unmap *)instance->data;
	unsigned long flags;
	u32 i;

	local_irq_save(flags);
	for (i = 0; i < unmap->count; i++) {
		shoot(&armed->after, &unmap->targets[i]);
		remember(&unmap->targets[i]);
	}
	shoot_old();
	local_irq_restore(flags);
	return 0;
}

static int unmapped_deferred(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const struct unmap *unmap = (struct unmap *)instance->data;
	unsigned long flags;
	u32 i;

	local_irq_save(flags);
	for (i = 0; i < unmap->count && armed->pending_count < PENDING_MAX; i++)
		armed->pending[armed->pending_count++] = unmap->targets[i];
	local_irq_restore(flags);
	return 0;
}

static void pending_drop(u32 at)
{
	armed->pending[at] = armed->pending[--armed->pending_count];
}

/*
 * Some words may have been flushed before the driver's flush, by a full batch or an empty block.
 * Their IOVAs can be in use again, for other memory; such words are no longer attacked.
 */
static int flush_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct device **owner = (struct device **)instance->data;
	struct target *target;
	unsigned long flags;
	phys_addr_t to;
	u32 i = 0;

	*owner = lab_probe_owner(regs);
	if (!is_neighbour(*owner))
		return 1;
	local_irq_save(flags);
	while (i < armed->pending_count) {
		target = &armed->pending[i];
		to = target->owner == *owner ? mapped_to(target) : 0;
		if (to && to != target->physical) {
			pending_drop(i);
			continue;
		}
		if (target->owner == *owner) {
			target->is_gone = !to;
			shoot(&armed->before_flush, target);
		}
		i++;
	}
	local_irq_restore(flags);
	return 0;
}

static int flushed(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct device *owner = *(struct device **)instance->data;
	struct target *target;
	unsigned long flags;
	u32 i = 0;

	local_irq_save(flags);
	while (i < armed->pending_count) {
		target = &armed->pending[i];
		if (target->owner != owner) {
			i++;
			continue;
		}
		if (!target->is_gone || !mapped_to(target)) {
			shoot(&armed->after, target);
			remember(target);
		}
		pending_drop(i);
	}
	shoot_old();
	local_irq_restore(flags);
	return 0;
}

static struct kretprobe probes[] = {
	LAB_PROBE("dma_unmap_page_attrs", page_entry, unmapped, struct unmap),
	LAB_PROBE("dma_unmap_sg_attrs", sg_entry, unmapped, struct unmap),
	/* The following functions are of xsmmu.ko, which need not be loaded. */
	LAB_PROBE("__xsmmu_unmap_deferred", page_entry, unmapped_deferred, struct unmap),
	LAB_PROBE("__xsmmu_unmap_sg_deferred", sg_entry, unmapped_deferred, struct unmap),
	LAB_PROBE("__xsmmu_flush", flush_entry, flushed, struct device *),
};

#define PROBES_OF_KERNEL 2

static int arm(struct lab_device *dev, bool is_later)
{
	struct device *self = &dev->pdev->dev;
	int ret;

	if (armed) {
		dev_err(self, "neighbour: is on already\n");
		return -EBUSY;
	}
	if (num_online_cpus() > 1) {
		dev_err(self, "neighbour: needs one CPU, or it could overwrite what another one reads\n");
		return -EOPNOTSUPP;
	}
	armed = kzalloc(sizeof(*armed), GFP_KERNEL);
	if (!armed)
		return -ENOMEM;
	armed->dev = dev;
	armed->is_later = is_later;
	armed->domain = iommu_get_domain_for_dev(self);
	ret = -ENODEV;
	if (armed->domain)
		ret = lab_probes_set(self, probes, ARRAY_SIZE(probes), PROBES_OF_KERNEL);
	if (ret) {
		kfree(armed);
		armed = NULL;
	}
	return ret;
}

static void disarm(void)
{
	lab_probes_unset(probes, ARRAY_SIZE(probes));
	kfree(armed);
	armed = NULL;
}

void lab_neighbour_disarm(struct lab_device *dev)
{
	if (armed && armed->dev == dev)
		disarm();
}

static void neighbour_print(struct seq_buf *result)
{
	seq_buf_printf(result, "{\"unmaps\":%llu,\"probes_missed\":%llu", armed->unmaps,
		       lab_probes_missed(probes, ARRAY_SIZE(probes)));
	lab_tally_print(result, "_control", &armed->control);
	lab_tally_print(result, "_before_flush",
			armed->dev->batch_aware ? &armed->before_flush : NULL);
	lab_tally_print(result, "", &armed->after);
	lab_tally_print(result, "_later", armed->is_later ? &armed->later : NULL);
	seq_buf_printf(result, ",\"astray\":%llu}", armed->control.astray +
		       armed->before_flush.astray + armed->after.astray);
}

static int neighbour_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	u32 on = 0, later = 0;
	const struct lab_param params[] = {
		{ "on", &on, 0, 1 },
		{ "later", &later, 0, 1 },
	};
	int ret = lab_params_parse(&dev->pdev->dev, "neighbour", text, params, ARRAY_SIZE(params));

	if (ret)
		return ret;
	if (on) {
		seq_buf_printf(result, "{}");
		return arm(dev, later);
	}
	if (!armed || armed->dev != dev) {
		dev_err(&dev->pdev->dev, "neighbour: is not on\n");
		return -EINVAL;
	}
	neighbour_print(result);
	disarm();
	return 0;
}

const struct lab_workload lab_neighbour = { .name = "neighbour", .run = neighbour_run };
