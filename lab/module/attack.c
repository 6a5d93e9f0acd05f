// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `attack`: what can a device still write to after the driver has unmapped it, for how
 * long, and whose memory is it by then?
 *
 * A round maps `pages` pages, lets the device write to each once (so that the translation is
 * cached), unmaps them, gives each away at once as a driver does, and has the device write to the
 * stale IOVAs in volleys, one write to each, until `window_us` is over. A batch-aware driver
 * unmaps all, is attacked, flushes once, and only then gives the pages away. Time counts from the
 * return of dma_unmap_page(), or of the batch-aware driver's flush; a write that landed is dated by
 * when it was fired, so "stale until at least then" is literally true.
 *
 * Each write that lands is counted by the state that its page was in just before:
 *
 *	held	somebody has a reference: the driver still, or whoever holds the page
 *	freed	nobody has one
 *	reused	someone else has got it; the canary that they wrote is gone
 *
 * The pages and their reference counts are real: what a policy holds, it holds here. The allocator
 * is a model, for a write into memory that is not ours would crash the guest: the workload keeps
 * one reference of each page of its pool, so a page whose count falls to that one is free and goes
 * nowhere. Someone else gets it as soon as it was attacked once while free.
 *
 * napi=0 unmaps in process context. napi=1 unmaps inside a NAPI poll and fires the first volleys
 * there; the others follow after the poll's end, when a policy that flushes at that point must have
 * flushed: landed_after_poll is 0 then. far=1 unmaps on another CPU, and this one attacks
 * meanwhile.
 *
 * flushes=1 maps as the driver of a receive ring does that flushes what it reads; flushes=0 as any
 * other one. Where pages are copied, only the former's are.
 *
 * list=1 maps the pages of a round as one scatter list: each is the first of a segment, and the
 * device's segment boundary leaves padding between segments, which nobody has given it. That is
 * attacked, too: while the list is mapped (landed_padding_mapped: the kernel's own path maps what
 * comes behind a segment there), and in each volley after the unmap (landed_padding). What comes
 * behind is our own memory.
 *
 * attempts=N ends the run with the round in which so many were made; that rounds were too few for
 * them is an error.
 *
 * A volley has interrupts off: the faults of all its writes are one interrupt. Between volleys the
 * attack reschedules, so a policy's timers and workers get the CPU when they are due. The gaps
 * between volleys grow with time, one part in `gaps`: the last landed write is that close to the
 * end of the exposure (or as close as two volleys can be).
 *
 * Timers of a policy run on the scheduler tick, so what is found depends on where in a tick the
 * unmap falls. Each round begins a golden section of a tick later than the one before (a window is
 * often a whole number of ticks), which spreads the rounds evenly over the tick.
 *
 * A policy may copy what is mapped: then the device writes to the copy, which is the driver's by
 * a flush only. Such writes are counted as `in_copy`; what lands in the page itself counts as ever.
 *
 * Three controls guard against an attack that could not have worked. Before each unmap a write must
 * land, or be there after a flush. A write to the physical address of a page that was never mapped
 * must be refused, and one to what is mapped for reading, too; in passthrough they must land (it is
 * our own page, so that is harmless). If a control fails the run fails with -EIO.
 */
#include <linux/cpumask.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>

#include <xsmmu/dma.h>

#include "params.h"
#include "testdev.h"

#define PAGES_MAX 64
#define VICTIM_BYTES SZ_4K	/* of a page, of any size: as much as copy copies */
#define POOL_FACTOR 3	/* pages of the pool for each of a round: some may be held beyond it */
#define IN_POLL_ATTACKS 16
#define SEGMENT_PAGES 9		/* of list=1 */
#define SEGMENT_ORDER 4		/* of the memory that each begins, and of the boundary */
#define SPREAD_NS (NSEC_PER_SEC / HZ * 618 / 1000)
#define CANARY 0x0ddba115

enum state { STATE_HELD, STATE_FREED, STATE_REUSED, STATE_COUNT };

/* A page that is mapped in each round. */
struct victim {
	struct page *page;
	dma_addr_t iova;
	bool reused;		/* someone else has a reference, and their canary is in it */
	u64 unmapped_ns;	/* when the unmap or the driver's flush had returned; 0: not yet */
	u64 last_landed_ns;	/* since then; 0: none has landed */
	u64 previous_ns;	/* since then: the shot before */
	bool attacked;
	bool copied;		/* what is mapped is a copy of the page */
};

struct attack {
	struct lab_device *dev;
	u32 rounds, pages, window_us, gaps, napi, far, flushes;	/* the parameters */
	u32 list, wanted;
	bool translated;
	bool never_mapped_refused;
	struct page **pool;	/* [pages * POOL_FACTOR], one reference of each */
	u32 next;		/* where in the pool to look for a free page */

	/* The current round. */
	struct victim victims[PAGES_MAX];
	struct work_struct unmap_work;
	u64 start_ns;
	bool after_poll;	/* the poll that unmapped has ended, or there was none */
	struct sg_table table;	/* of list=1 */
	u32 hole;		/* which page of the padding is next */

	/* All rounds. */
	u64 *last_landed;	/* [rounds * pages] */
	u64 attempts, attempts_before_flush, landed_before_flush;
	u64 landed[STATE_COUNT], landed_after_poll, astray;
	u64 attempts_padding, landed_padding_mapped, landed_padding;
	u64 copied, in_copy;	/* pages that were, and stale writes that went there */
	u32 landed_rounds;
	u64 first_attack_max_ns;	/* from the unmap to the first shot */
	u64 gap_max_ns;			/* between two shots, or to the window's end */
};

/* ---- the pool: real pages, a model of their allocator ---- */

/* Asked before a write: a page that is let go of meanwhile counts as held. */
static enum state state_of(const struct victim *victim)
{
	if (victim->reused)
		return STATE_REUSED;
	return page_ref_count(victim->page) > 1 ? STATE_HELD : STATE_FREED;
}

static struct page *pool_take(struct attack *attack)
{
	u32 i, count = attack->pages * POOL_FACTOR;
	struct page *page;

	for (i = 0; i < count; i++) {
		page = attack->pool[attack->next];
		attack->next = (attack->next + 1) % count;
		if (page_ref_count(page) == 1) {
			get_page(page);
			return page;
		}
	}
	return NULL;
}

static void someone_takes(struct victim *victim)
{
	get_page(victim->page);
	victim->reused = true;
}

static void someone_frees(struct victim *victim)
{
	if (victim->reused)
		put_page(victim->page);
	victim->reused = false;
}

/* ---- shots ---- */

static enum lab_attack fire(struct attack *attack, const struct victim *victim, u32 content)
{
	lab_attacker_aim(lab_attacker_of(attack->dev), victim->iova, page_to_phys(victim->page));
	return lab_attacker_fire(lab_attacker_of(attack->dev), content);
}

/*
 * A gap longer than planned says that something else had the CPU: the exposure may have ended
 * anywhere in it.
 */
static void gap_note(struct attack *attack, struct victim *victim, u64 since_unmap_ns)
{
	u64 *most = victim->attacked ? &attack->gap_max_ns : &attack->first_attack_max_ns;

	*most = max(*most, since_unmap_ns - victim->previous_ns);
	victim->previous_ns = since_unmap_ns;
	victim->attacked = true;
}

static void attack_once(struct attack *attack, struct victim *victim)
{
	u64 since_unmap_ns = ktime_get_mono_fast_ns() - victim->unmapped_ns;
	enum state state = state_of(victim);

	gap_note(attack, victim, since_unmap_ns);
	attack->attempts++;
	switch (fire(attack, victim, victim->reused ? CANARY : 0)) {
	case LAB_ATTACK_LANDED:
		attack->landed[state]++;
		attack->landed_after_poll += attack->after_poll;
		/* At least 1, since 0 says that nothing landed. */
		victim->last_landed_ns = max(since_unmap_ns, 1ULL);
		break;
	case LAB_ATTACK_ASTRAY:
		if (victim->copied)
			attack->in_copy++;
		else
			attack->astray++;
		break;
	case LAB_ATTACK_REFUSED:
		break;
	}
	if (state == STATE_FREED)
		someone_takes(victim);
}

/* One shot at each padding of a list: those that landed count as @landed. */
static void attack_padding(struct attack *attack, u64 *landed)
{
	u64 behind = SEGMENT_PAGES + attack->hole++ % (BIT(SEGMENT_ORDER) - SEGMENT_PAGES);
	enum lab_attack came_of_it;
	u32 i;

	for (i = 0; i + 1 < attack->pages; i++) {
		const struct victim *victim = &attack->victims[i];

		lab_attacker_aim(lab_attacker_of(attack->dev), victim->iova + behind * PAGE_SIZE,
				 page_to_phys(victim->page) + behind * PAGE_SIZE);
		came_of_it = lab_attacker_fire(lab_attacker_of(attack->dev), 0);
		attack->attempts_padding++;
		*landed += came_of_it == LAB_ATTACK_LANDED;
		attack->astray += came_of_it == LAB_ATTACK_ASTRAY;
	}
}

static bool has_padding(const struct attack *attack)
{
	return attack->list && attack->translated;
}

/* One shot at each page that is unmapped by now. */
static void volley(struct attack *attack)
{
	unsigned long flags;
	u32 i;

	local_irq_save(flags);
	for (i = 0; i < attack->pages; i++)
		if (smp_load_acquire(&attack->victims[i].unmapped_ns))	/* pairs with stamp() */
			attack_once(attack, &attack->victims[i]);
	if (has_padding(attack) && smp_load_acquire(&attack->victims[0].unmapped_ns))
		attack_padding(attack, &attack->landed_padding);
	local_irq_restore(flags);
}

/* Busy, but gives way: going idle would change when timers expire. */
static void wait_until(u64 time_ns)
{
	do
		cond_resched();
	while (ktime_get_mono_fast_ns() < time_ns);
}

/* Until the window closes, or the run has to end. */
static int attack_on(struct attack *attack)
{
	u64 now_ns;
	int ret;

	for (;;) {
		now_ns = ktime_get_mono_fast_ns() - attack->start_ns;
		if (now_ns >= attack->window_us * 1000ULL)
			return 0;
		ret = lab_device_interrupted(attack->dev, "attack");
		if (ret)
			return ret;
		volley(attack);
		wait_until(attack->start_ns + now_ns + div_u64(now_ns, attack->gaps));
	}
}

/* ---- the driver ---- */

/* From now on the page can be attacked, on other CPUs too. */
static void stamp(struct victim *victim)
{
	smp_store_release(&victim->unmapped_ns, ktime_get_mono_fast_ns());
}

static unsigned long attrs_of(const struct attack *attack)
{
	return attack->flushes ? DMA_ATTR_SKIP_CPU_SYNC : 0;
}

static void unmap_victim(struct attack *attack, const struct victim *victim)
{
	dma_unmap_page_attrs(&attack->dev->pdev->dev, victim->iova, VICTIM_BYTES, DMA_FROM_DEVICE,
			     attrs_of(attack));
}

static void unmap_list(struct attack *attack)
{
	dma_unmap_sgtable(&attack->dev->pdev->dev, &attack->table, DMA_FROM_DEVICE,
			  attrs_of(attack));
}

static void unmap_each(struct attack *attack)
{
	u32 i;

	if (attack->list)
		unmap_list(attack);
	for (i = 0; i < attack->pages; i++) {
		if (!attack->list)
			unmap_victim(attack, &attack->victims[i]);
		stamp(&attack->victims[i]);
		put_page(attack->victims[i].page);
		if (!attack->far)
			attack_once(attack, &attack->victims[i]);
	}
}

/* What lands before the flush shows that the attack works: it may. */
static void attack_before_flush(struct attack *attack)
{
	u32 i;

	for (i = 0; i < attack->pages; i++) {
		attack->attempts_before_flush++;
		attack->landed_before_flush +=
			fire(attack, &attack->victims[i], 0) == LAB_ATTACK_LANDED;
	}
}

static void unmap_aware(struct attack *attack)
{
	struct device *dev = &attack->dev->pdev->dev;
	u32 i;

	if (attack->list)
		xsmmu_unmap_sgtable_deferred(dev, &attack->table, DMA_FROM_DEVICE,
					     attrs_of(attack));
	for (i = 0; !attack->list && i < attack->pages; i++)
		xsmmu_unmap_page_attrs_deferred(dev, attack->victims[i].iova, VICTIM_BYTES,
						DMA_FROM_DEVICE, attrs_of(attack));
	if (!attack->far)
		attack_before_flush(attack);
	xsmmu_flush(dev);
	for (i = 0; i < attack->pages; i++) {
		stamp(&attack->victims[i]);
		put_page(attack->victims[i].page);
	}
}

static void unmap_all(struct attack *attack)
{
	if (attack->dev->batch_aware)
		unmap_aware(attack);
	else
		unmap_each(attack);
}

/* The poll of napi=1. */
static void unmap_in_poll(void *context)
{
	struct attack *attack = context;
	u32 i;

	unmap_all(attack);
	for (i = 0; i < IN_POLL_ATTACKS; i += attack->pages)
		volley(attack);
}

static void unmap_far(struct work_struct *work)
{
	unmap_all(container_of(work, struct attack, unmap_work));
}

/* The device has written to what is mapped, which is not the page: is it a copy? */
static bool is_copied(struct attack *attack, const struct victim *victim)
{
	dma_sync_single_for_cpu(&attack->dev->pdev->dev, victim->iova, VICTIM_BYTES,
				DMA_FROM_DEVICE);
	return *(u32 *)page_address(victim->page) == LAB_ATTACK_WORD;
}

static int victim_take(struct attack *attack, struct victim *victim)
{
	*victim = (struct victim) { .page = pool_take(attack) };
	if (victim->page)
		return 0;
	dev_err(&attack->dev->pdev->dev, "attack: pages of earlier rounds are still held\n");
	return -EBUSY;
}

/* Have the device use the translation: that must work. */
static int control_mapped(struct attack *attack, struct victim *victim)
{
	enum lab_attack control = fire(attack, victim, 0);

	victim->copied = control == LAB_ATTACK_ASTRAY && is_copied(attack, victim);
	attack->copied += victim->copied;
	if (control == LAB_ATTACK_LANDED || victim->copied)
		return 0;
	dev_err(&attack->dev->pdev->dev, "attack: control failed: a write to a mapped page %s\n",
		control == LAB_ATTACK_ASTRAY ? "went astray" : "was refused");
	return -EIO;
}

/* Map a page; a batch-aware driver does so without a flush. */
static int victim_map(struct attack *attack, struct victim *victim)
{
	struct device *dev = &attack->dev->pdev->dev;
	int ret = victim_take(attack, victim);

	if (ret)
		return ret;
	victim->iova = (attack->dev->batch_aware ? xsmmu_map_page_attrs_unflushed :
						   dma_map_page_attrs)(
		dev, victim->page, 0, VICTIM_BYTES, DMA_FROM_DEVICE, attrs_of(attack));
	if (!dma_mapping_error(dev, victim->iova))
		return 0;
	dev_err(dev, "attack: dma_map_page() failed\n");
	put_page(victim->page);
	return -EIO;
}

/* Where the pages of a mapped list are, with padding between them. */
static int list_find(struct attack *attack)
{
	struct device *dev = &attack->dev->pdev->dev;
	struct scatterlist *sg;
	u32 i;

	if (attack->table.nents != attack->pages) {
		dev_err(dev, "attack: %u segments of a list are mapped as %u\n", attack->pages,
			attack->table.nents);
		return -EIO;
	}
	for_each_sgtable_dma_sg(&attack->table, sg, i) {
		attack->victims[i].iova = sg_dma_address(sg);
		if (i && attack->translated &&
		    attack->victims[i].iova !=
		    attack->victims[i - 1].iova + (PAGE_SIZE << SEGMENT_ORDER)) {
			dev_err(dev, "attack: the segments of a list are not padded\n");
			return -EIO;
		}
	}
	return 0;
}

static int list_map(struct attack *attack)
{
	struct device *dev = &attack->dev->pdev->dev;
	struct scatterlist *sg;
	u32 i, taken;
	int ret;

	for (taken = 0; taken < attack->pages; taken++) {
		ret = victim_take(attack, &attack->victims[taken]);
		if (ret)
			goto out_put;
	}
	for_each_sgtable_sg(&attack->table, sg, i)
		sg_set_page(sg, attack->victims[i].page, SEGMENT_PAGES * PAGE_SIZE, 0);
	ret = dma_map_sgtable(dev, &attack->table, DMA_FROM_DEVICE, attrs_of(attack));
	if (ret) {
		dev_err(dev, "attack: dma_map_sgtable() failed: %d\n", ret);
		goto out_put;
	}
	ret = list_find(attack);
	for (i = 0; !ret && i < attack->pages; i++)
		ret = control_mapped(attack, &attack->victims[i]);
	if (ret) {
		unmap_list(attack);
		goto out_put;
	}
	if (has_padding(attack))
		attack_padding(attack, &attack->landed_padding_mapped);
	return 0;
out_put:
	while (taken--)
		put_page(attack->victims[taken].page);
	return ret;
}

/* All of them, then one flush, then the device may use them. */
static int victims_map(struct attack *attack)
{
	u32 i, mapped = 0;
	int ret = 0;

	while (mapped < attack->pages && !ret) {
		ret = victim_map(attack, &attack->victims[mapped]);
		mapped += !ret;
	}
	if (attack->dev->batch_aware)
		xsmmu_flush_maps(&attack->dev->pdev->dev);
	for (i = 0; i < mapped && !ret; i++)
		ret = control_mapped(attack, &attack->victims[i]);
	while (ret && mapped--) {
		unmap_victim(attack, &attack->victims[mapped]);
		put_page(attack->victims[mapped].page);
	}
	return ret;
}

/* ---- rounds ---- */

static void round_count(struct attack *attack, u32 round)
{
	struct victim *victim;
	bool landed = false;
	u32 i;

	for (i = 0; i < attack->pages; i++) {
		victim = &attack->victims[i];
		gap_note(attack, victim, ktime_get_mono_fast_ns() - victim->unmapped_ns);
		attack->last_landed[round * attack->pages + i] = victim->last_landed_ns;
		landed |= victim->last_landed_ns;
		someone_frees(victim);
	}
	attack->landed_rounds += landed;
}

static int round_run(struct attack *attack, u32 round)
{
	struct lab_poll *poll = &attack->dev->poll;
	int ret;

	wait_until(ktime_get_mono_fast_ns() + SPREAD_NS);
	ret = attack->list ? list_map(attack) : victims_map(attack);
	if (ret)
		return ret;
	attack->after_poll = false;
	attack->start_ns = ktime_get_mono_fast_ns();
	if (attack->far) {
		schedule_work_on(cpumask_any_but(cpu_online_mask, raw_smp_processor_id()),
				 &attack->unmap_work);
	} else if (attack->napi) {
		lab_poll_start(poll, unmap_in_poll, attack);
		lab_poll_wait(poll);
		attack->after_poll = true;
	} else {
		unmap_all(attack);
	}
	ret = attack_on(attack);
	flush_work(&attack->unmap_work);
	round_count(attack, round);
	return ret;
}

/* As an IOVA, a physical address is free: allocators begin at the top of their space. */
static int control_never_mapped(struct attack *attack)
{
	struct page *page = alloc_page(GFP_KERNEL);
	enum lab_attack control;

	if (!page)
		return -ENOMEM;
	lab_attacker_aim(lab_attacker_of(attack->dev), page_to_phys(page), page_to_phys(page));
	control = lab_attacker_fire(lab_attacker_of(attack->dev), 0);
	__free_page(page);

	attack->never_mapped_refused = control == LAB_ATTACK_REFUSED;
	if (attack->never_mapped_refused == attack->translated)
		return 0;
	dev_err(&attack->dev->pdev->dev, "attack: control failed: a write to a page never mapped %s\n",
		attack->translated ? "was not refused" : "did not land in passthrough");
	return -EIO;
}

/* Of a page, or a copy of it, that the device may only read. */
static int control_read_only(struct attack *attack)
{
	struct device *dev = &attack->dev->pdev->dev;
	struct page *page = alloc_page(GFP_KERNEL);
	bool passes = true;
	dma_addr_t iova;

	if (!page)
		return -ENOMEM;
	iova = dma_map_page(dev, page, 0, PAGE_SIZE, DMA_TO_DEVICE);
	if (!dma_mapping_error(dev, iova)) {
		lab_attacker_aim(lab_attacker_of(attack->dev), iova, page_to_phys(page));
		passes = lab_attacker_passes(lab_attacker_of(attack->dev));
		dma_unmap_page(dev, iova, PAGE_SIZE, DMA_TO_DEVICE);
	}
	__free_page(page);
	if (passes != attack->translated)
		return 0;
	dev_err(dev, "attack: control failed: a write to a page mapped for reading %s\n",
		passes ? "was not refused" : "did not land in passthrough");
	return -EIO;
}

/* Goes on until there are so many attempts as are wanted. */
static bool is_enough(const struct attack *attack)
{
	return attack->wanted && attack->attempts >= attack->wanted;
}

/* The rounds, with the controls at both ends: a policy that copies may have begun to meanwhile. */
static int rounds_run(struct attack *attack)
{
	u32 i;
	int ret = control_never_mapped(attack);

	if (!ret)
		ret = control_read_only(attack);
	for (i = 0; !ret && i < attack->rounds && !is_enough(attack); i++)
		ret = round_run(attack, i);
	if (!ret && attack->wanted && !is_enough(attack)) {
		dev_err(&attack->dev->pdev->dev, "attack: rounds=%u are %llu attempts, not %u\n",
			attack->rounds, attack->attempts, attack->wanted);
		return -EIO;
	}
	attack->rounds = i;
	return ret ? ret : control_read_only(attack);
}

/* ---- the result ---- */

static int u64_compare(const void *a, const void *b)
{
	u64 left = *(const u64 *)a, right = *(const u64 *)b;

	return left < right ? -1 : left > right;
}

/* The nearest-rank percentile of a sorted list. */
static u64 percentile(const u64 *sorted, u32 count, u32 percent)
{
	return sorted[DIV_ROUND_UP(count * percent, 100) - 1];
}

/* A count that does not apply is null, never 0. */
static void print_count(struct seq_buf *result, const char *name, bool applies, u64 count)
{
	if (applies)
		seq_buf_printf(result, ",\"%s\":%llu", name, count);
	else
		seq_buf_printf(result, ",\"%s\":null", name);
}

static void attack_print(struct attack *attack, struct seq_buf *result)
{
	u32 count = attack->rounds * attack->pages;
	u64 *last = attack->last_landed, *landed = attack->landed;
	bool aware = attack->dev->batch_aware && !attack->far;

	sort(last, count, sizeof(*last), u64_compare, NULL);
	seq_buf_printf(result, "{\"rounds\":%u,\"pages\":%u,\"window_us\":%u", attack->rounds,
		       attack->pages, attack->window_us);
	seq_buf_printf(result, ",\"gaps\":%u,\"napi\":%u,\"far\":%u,\"flushes\":%u", attack->gaps,
		       attack->napi, attack->far, attack->flushes);
	seq_buf_printf(result, ",\"list\":%u,\"cpus\":%u", attack->list, num_online_cpus());
	seq_buf_printf(result, ",\"attempts\":%llu,\"landed\":%llu,\"landed_rounds\":%u",
		       attack->attempts,
		       landed[STATE_HELD] + landed[STATE_FREED] + landed[STATE_REUSED],
		       attack->landed_rounds);
	print_count(result, "landed_held", true, landed[STATE_HELD]);
	print_count(result, "landed_freed", true, landed[STATE_FREED]);
	print_count(result, "landed_reused", true, landed[STATE_REUSED]);
	print_count(result, "landed_after_poll", attack->napi, attack->landed_after_poll);
	print_count(result, "attempts_before_flush", aware, attack->attempts_before_flush);
	print_count(result, "landed_before_flush", aware, attack->landed_before_flush);
	print_count(result, "attempts_padding", has_padding(attack), attack->attempts_padding);
	print_count(result, "landed_padding_mapped", has_padding(attack),
		    attack->landed_padding_mapped);
	print_count(result, "landed_padding", has_padding(attack), attack->landed_padding);
	print_count(result, "astray", true, attack->astray);
	print_count(result, "copied", true, attack->copied);
	print_count(result, "in_copy", true, attack->in_copy);
	seq_buf_printf(result, ",\"last_landed_ns\":{\"p50\":%llu,\"p99\":%llu,\"max\":%llu}",
		       percentile(last, count, 50), percentile(last, count, 99), last[count - 1]);
	seq_buf_printf(result, ",\"first_attack_max_ns\":%llu,\"gap_max_ns\":%llu",
		       attack->first_attack_max_ns, attack->gap_max_ns);
	seq_buf_printf(result, ",\"pages_mapped\":%u,\"pages_unmapped\":%u", count, count);
	seq_buf_printf(result, ",\"translated\":%s", attack->translated ? "true" : "false");
	/* Only runs whose controls held get here. */
	seq_buf_printf(result, ",\"control_mapped_landed\":true");
	seq_buf_printf(result, ",\"control_never_mapped_refused\":%s}",
		       attack->never_mapped_refused ? "true" : "false");
}

/* ---- a run ---- */

static int attack_parse(struct attack *attack, char *text)
{
	struct device *dev = &attack->dev->pdev->dev;
	const struct lab_param params[] = {
		{ "rounds", &attack->rounds, 1, 100000 },
		{ "pages", &attack->pages, 1, PAGES_MAX },
		{ "window_us", &attack->window_us, 1, 1000000 },
		{ "gaps", &attack->gaps, 1, 10000 },
		{ "napi", &attack->napi, 0, 1 },
		{ "far", &attack->far, 0, 1 },
		{ "flushes", &attack->flushes, 0, 1 },
		{ "list", &attack->list, 0, 1 },
		{ "attempts", &attack->wanted, 0, 100000000 },
	};
	int ret = lab_params_parse(dev, "attack", text, params, ARRAY_SIZE(params));

	if (ret)
		return ret;
	if (attack->far && (attack->napi || num_online_cpus() < 2)) {
		dev_err(dev, "attack: far=1 needs a second CPU and napi=0\n");
		return -EINVAL;
	}
	if (attack->list && attack->pages < 2) {
		dev_err(dev, "attack: list=1 needs two pages and more\n");
		return -EINVAL;
	}
	return 0;
}

static int pool_create(struct attack *attack)
{
	u32 i;

	attack->pool = kcalloc(attack->pages * POOL_FACTOR, sizeof(*attack->pool), GFP_KERNEL);
	if (!attack->pool)
		return -ENOMEM;
	for (i = 0; i < attack->pages * POOL_FACTOR; i++) {
		attack->pool[i] = alloc_pages(GFP_KERNEL | __GFP_COMP,
					      attack->list ? SEGMENT_ORDER : 0);
		if (!attack->pool[i])
			return -ENOMEM;
	}
	return 0;
}

/* What is still held goes to the allocator when it is let go of. */
static void pool_destroy(struct attack *attack)
{
	u32 i;

	for (i = 0; attack->pool && i < attack->pages * POOL_FACTOR; i++)
		if (attack->pool[i])
			put_page(attack->pool[i]);
	kfree(attack->pool);
}

static int attack_prepared(struct attack *attack, struct seq_buf *result)
{
	struct lab_device *dev = attack->dev;
	u64 boundary = dma_get_seg_boundary(&dev->pdev->dev);
	int ret = pool_create(attack);

	if (!ret && attack->list)
		ret = sg_alloc_table(&attack->table, attack->pages, GFP_KERNEL);
	attack->last_landed = kvcalloc(attack->rounds * attack->pages, sizeof(u64), GFP_KERNEL);
	if (ret || !attack->last_landed) {
		dev_err(&dev->pdev->dev, "attack: no memory for rounds=%u pages=%u\n",
			attack->rounds, attack->pages);
		ret = -ENOMEM;
		goto out_free;
	}
	ret = lab_poll_enter(&dev->poll);
	if (ret) {
		dev_err(&dev->pdev->dev, "attack: cannot probe the tracepoint napi_poll: %d\n", ret);
		goto out_free;
	}
	if (attack->list)
		dma_set_seg_boundary(&dev->pdev->dev, (PAGE_SIZE << SEGMENT_ORDER) - 1);
	ret = rounds_run(attack);
	dma_set_seg_boundary(&dev->pdev->dev, boundary);
	lab_poll_leave(&dev->poll);
	if (!ret)
		attack_print(attack, result);
out_free:
	sg_free_table(&attack->table);
	kvfree(attack->last_landed);
	pool_destroy(attack);
	return ret;
}

static int attack_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	struct attack *attack = kzalloc(sizeof(*attack), GFP_KERNEL);
	int ret;

	if (!attack)
		return -ENOMEM;
	attack->dev = dev;
	attack->rounds = 20;
	attack->pages = 1;
	attack->window_us = 20000;
	attack->gaps = 1024;
	INIT_WORK(&attack->unmap_work, unmap_far);
	attack->translated = lab_device_translated(dev);
	ret = attack_parse(attack, text);
	if (!ret)
		ret = attack_prepared(attack, result);
	kfree(attack);
	return ret;
}

const struct lab_workload lab_attack = { .name = "attack", .run = attack_run };
