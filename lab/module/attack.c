// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `attack`: measures which unmapped pages a device can still write, for how long, and
 * the state of the pages at the time of the write.
 *
 * A round maps `pages` pages, lets the device write to each once (so that the translation is
 * cached), unmaps the pages, releases each page at once as a driver does, and has the device write
 * to the stale IOVAs in volleys, a write to each, until `window_us` is over. A batch-aware driver
 * unmaps all pages, is attacked, flushes once, and only then releases the pages. Time counts from
 * the return of dma_unmap_page(), or of the batch-aware driver's flush. A write that landed is
 * dated by the time of its shot, so the translation was stale until at least that time.
 *
 * Each write that lands is counted by the state of its page just before the write:
 *
 *	held	the page has a reference, of the driver or of a policy that holds the page
 *	freed	the page has no reference
 *	reused	the page has a new owner; the write has overwritten the owner's canary
 *
 * The pages and their reference counts are real, so a page that a policy holds is held. The
 * allocator is a model, because a write into other memory would crash the guest: the workload keeps
 * a reference to each page of its pool. A page with only this reference left counts as free. A free
 * page gets a new owner as soon as the device has attacked the page once while free.
 *
 * napi=0 unmaps in process context. napi=1 unmaps inside a NAPI poll and fires the first volleys
 * inside the poll; the other volleys follow after the end of the poll. A policy that flushes at the
 * end of a poll must have landed_after_poll 0. far=1 unmaps on another CPU, while this CPU attacks.
 *
 * syncs=1 maps as a receive ring's driver that makes a dma_sync call for each part that the
 * driver reads (DMA_ATTR_SKIP_CPU_SYNC); syncs=0 as any other driver. A policy that copies pages
 * copies pages of syncs=1 only.
 *
 * list=1 maps the pages of a round as a single scatter list. Each page is the first page of a
 * segment, and the device's segment boundary leaves padding between segments, which the driver has
 * not given to the device. The padding is attacked, too: while the list is mapped
 * (landed_padding_mapped: the kernel's own path maps the memory behind a segment as padding), and
 * in each volley after the unmap (landed_padding). The memory behind a segment belongs to the
 * workload.
 *
 * attempts=N ends the run with the round that reaches N attempts. A run that ends with fewer
 * attempts fails.
 *
 * A volley has interrupts off, so the faults of all its writes are a single interrupt. Between
 * volleys the attack reschedules, so a policy's timers and workers get the CPU when due. The gaps
 * between volleys grow with time: a gap is the time since the unmap divided by `gaps`. So the end
 * of the exposure is known to the same fraction (or to the shortest time between two volleys).
 *
 * Timers of a policy run on the scheduler tick, so the result depends on the position of the unmap
 * in a tick. Each round begins a golden section of a tick later than the previous round (a window
 * is often a whole number of ticks), which spreads the rounds evenly over the tick.
 *
 * A policy may copy mapped pages. The device then writes to the bounce buffer, and the driver sees
 * the data only after a dma_sync. Such writes count as `in_copy`; writes that land in the page
 * itself count as always.
 *
 * Three controls guard against an attack that could not have worked. Before each unmap a write must
 * land, or must arrive by a dma_sync. A write to the physical address of a page that was never
 * mapped must be refused, and so must a write to a page that is mapped for reading. In passthrough
 * and with a static 1:1 table (identity.h) nothing confines the device, and both must land (in the
 * workload's own pages, so without harm); then pages all over the memory are tried, in blocks of
 * 2 MiB (`reached`). If a control fails the run fails with -EIO.
 */
#include <linux/cpumask.h>
#include <linux/dma-mapping.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>

#include <xsmmu/dma.h>

#include "identity.h"
#include "params.h"
#include "testdev.h"

#define PAGES_MAX 64
#define VICTIM_BYTES SZ_4K	/* mapped bytes per page, of any size: the most that is copied */
#define POOL_FACTOR 3	/* pages of the pool per page of a round: some stay held after the round */
#define IN_POLL_ATTACKS 16
#define SEGMENT_PAGES 9		/* with list=1 */
#define SEGMENT_ORDER 4		/* of a segment's allocation, and of the segment boundary */
#define SPREAD_NS (NSEC_PER_SEC / HZ * 618 / 1000)
#define CANARY 0x0ddba115
#define REACH_BLOCKS 64
#define REACH_ORDER get_order(SZ_2M)

enum state { STATE_HELD, STATE_FREED, STATE_REUSED, STATE_COUNT };

/* A page that is mapped in each round. */
struct victim {
	struct page *page;
	dma_addr_t iova;
	bool reused;		/* a new owner has a reference, and has written a canary */
	u64 unmapped_ns;	/* time when the unmap or the driver's flush returned; 0: not yet */
	u64 last_landed_ns;	/* of the last hit, since unmapped_ns; 0: no hit */
	u64 previous_ns;	/* of the previous shot, since unmapped_ns */
	bool attacked;
	bool copied;		/* the device writes to a bounce buffer */
};

struct attack {
	struct lab_device *dev;
	u32 rounds, pages, window_us, gaps, napi, far, syncs;	/* the parameters */
	u32 list, wanted;
	bool confined;		/* the device reaches only what is mapped */
	bool never_mapped_refused;
	u64 reached;		/* pages never mapped that the device has written */
	struct page **pool;	/* [pages * POOL_FACTOR], with a reference to each */
	u32 next;		/* index in the pool at which the search for a free page starts */

	/* The current round. */
	struct victim victims[PAGES_MAX];
	struct work_struct unmap_work;
	u64 start_ns;
	bool after_poll;	/* the poll that unmapped has ended, or there was no poll */
	struct sg_table table;	/* with list=1 */
	u32 hole;		/* number of the padding page that is attacked next */

	/* All rounds. */
	u64 *last_landed;	/* [rounds * pages] */
	u64 attempts, attempts_before_flush, landed_before_flush;
	u64 landed[STATE_COUNT], landed_after_poll, astray;
	u64 attempts_padding, landed_padding_mapped, landed_padding;
	u64 copied, in_copy;	/* copied pages, and stale writes to bounce buffers */
	u32 landed_rounds;
	u64 first_attack_max_ns;	/* longest time from an unmap to the first shot */
	u64 gap_max_ns;			/* longest time between two shots, or to the window's end */
};

/* ---- the pool: real pages, a model of their allocator ---- */

/* State of the page before a write. A page that is released during the write counts as held. */
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
 * A gap longer than planned means that other work had the CPU. The exposure may have ended anywhere
 * in the gap.
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
		/* At least 1, because 0 means that no shot has landed. */
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

/* Fire a shot at each padding of a list, and add the hits to @landed. */
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
	return attack->list && attack->confined;
}

/* Fire a shot at each page that is unmapped by now. */
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

/* Spins and reschedules, because an idle CPU would change the expiry of timers. */
static void wait_until(u64 time_ns)
{
	do
		cond_resched();
	while (ktime_get_mono_fast_ns() < time_ns);
}

/* Attack until the window closes or the run must end. */
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

/* Lets all CPUs attack the page from now on. */
static void stamp(struct victim *victim)
{
	smp_store_release(&victim->unmapped_ns, ktime_get_mono_fast_ns());
}

static unsigned long attrs_of(const struct attack *attack)
{
	return attack->syncs ? DMA_ATTR_SKIP_CPU_SYNC : 0;
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

/* Writes before the flush may land, and thereby show that the attack works. */
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

/* Whether the device's write to another address than the page arrives in the page by a dma_sync. */
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

/* Control: a write of the device through the translation must arrive. */
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

/* Map a page; a batch-aware driver maps without a flush. */
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

/* Sets the victims' IOVAs from a mapped list, and checks for padding between segments. */
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
		if (i && attack->confined &&
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

/* Map all pages, then flush once; only then may the device use the pages. */
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

static enum lab_attack fire_at_unmapped(struct attack *attack, struct page *page)
{
	lab_attacker_aim(lab_attacker_of(attack->dev), page_to_phys(page), page_to_phys(page));
	return lab_attacker_fire(lab_attacker_of(attack->dev), 0);
}

/*
 * Control: without confinement a write to any page must land. The last page of each of many blocks
 * stands for all.
 */
static int control_reach(struct attack *attack)
{
	struct page *block, *next;
	LIST_HEAD(blocks);
	u64 tried;

	for (tried = 0; tried < REACH_BLOCKS; tried++) {
		block = alloc_pages(GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN, REACH_ORDER);
		if (!block)
			break;
		list_add(&block->lru, &blocks);
		attack->reached += fire_at_unmapped(attack, block + BIT(REACH_ORDER) - 1) ==
				   LAB_ATTACK_LANDED;
	}
	list_for_each_entry_safe(block, next, &blocks, lru)
		__free_pages(block, REACH_ORDER);
	if (tried && attack->reached == tried)
		return 0;
	dev_err(&attack->dev->pdev->dev,
		"attack: control failed: of %llu writes to pages never mapped %llu landed\n", tried,
		attack->reached);
	return -EIO;
}

/*
 * Control: a write to an IOVA that was never mapped must be refused. The physical address of a page
 * is such an IOVA, because allocators of IOVAs begin at the top of their space.
 */
static int control_never_mapped(struct attack *attack)
{
	struct page *page = alloc_page(GFP_KERNEL);
	enum lab_attack control;

	if (!page)
		return -ENOMEM;
	control = fire_at_unmapped(attack, page);
	__free_page(page);

	attack->never_mapped_refused = control == LAB_ATTACK_REFUSED;
	if (attack->never_mapped_refused == attack->confined)
		return attack->confined ? 0 : control_reach(attack);
	dev_err(&attack->dev->pdev->dev, "attack: control failed: a write to a page never mapped %s\n",
		attack->confined ? "was not refused" : "did not land");
	return -EIO;
}

/* Control: a write to a page or bounce buffer that is mapped for reading must be refused. */
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
	if (passes != attack->confined)
		return 0;
	dev_err(dev, "attack: control failed: a write to a page mapped for reading %s\n",
		passes ? "was not refused" : "did not land");
	return -EIO;
}

/* Whether the run has made the wanted number of attempts. */
static bool is_enough(const struct attack *attack)
{
	return attack->wanted && attack->attempts >= attack->wanted;
}

/* Runs the rounds, with controls before and after, because copying may begin during the rounds. */
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

/* Print a count, or null (never 0) if the count does not apply. */
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
	seq_buf_printf(result, ",\"gaps\":%u,\"napi\":%u,\"far\":%u,\"syncs\":%u", attack->gaps,
		       attack->napi, attack->far, attack->syncs);
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
	seq_buf_printf(result, ",\"translated\":%s",
		       lab_device_translated(attack->dev) ? "true" : "false");
	print_count(result, "reached", !attack->confined, attack->reached);
	/* A run with a failed control does not get here. */
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
		{ "syncs", &attack->syncs, 0, 1 },
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

/* A page that a policy still holds goes to the allocator when the policy releases the page. */
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
	attack->confined = lab_device_translated(dev) && !lab_identity_has(&dev->pdev->dev);
	ret = attack_parse(attack, text);
	if (!ret)
		ret = attack_prepared(attack, result);
	kfree(attack);
	return ret;
}

const struct lab_workload lab_attack = { .name = "attack", .run = attack_run };
