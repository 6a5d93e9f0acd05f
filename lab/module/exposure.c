// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `exposure`: for how long can a device still write to a page after the driver has
 * unmapped it?
 *
 * A round maps a page, lets the device write to it once (so that the translation is cached),
 * unmaps it, and then lets the device write at the stale IOVA again and again for window_us. Time
 * counts from the return of dma_unmap_page(), or of a batch-aware driver's sync; a write that
 * landed is dated by when it was fired, so "stale until at least then" is literally true. The page
 * stays ours for the whole run: what lands does no harm.
 *
 * napi=0 unmaps in process context. napi=1 unmaps inside a NAPI poll and fires the first
 * IN_POLL_ATTACKS there; the others follow after the poll's end, when a policy that syncs at that
 * point must have synced: landed_after_poll is 0 then. Attacks reschedule between shots, so a
 * policy's timers and workers get the CPU when they are due. The gaps grow with time, one part in
 * 1,024: the last landed write is that close to the end of the exposure (or as close as two shots
 * can be).
 *
 * Timers of a policy run on the scheduler tick, so what is found depends on where in a tick the
 * unmap falls. Each round begins a golden section of a tick later than the one before (a window is
 * often a whole number of ticks), which spreads the rounds evenly over the tick.
 *
 * Two controls guard against an attack that could not have worked. Before each unmap a write must
 * land. And a write to the physical address of a page that was never mapped must be refused; in
 * passthrough it must land (it is our own page, so that is harmless). If a control fails the run
 * fails with -EIO.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/timekeeping.h>

#include <xsmmu/dma.h>

#include "device.h"
#include "params.h"

#define IN_POLL_ATTACKS 16
#define GAP_LG2 10	/* the gap to the next shot, as a part of the time since the unmap */
#define SPREAD_NS (NSEC_PER_SEC / HZ * 618 / 1000)

struct exposure {
	struct lab_device *dev;
	u32 rounds, window_us, napi;	/* the parameters */
	struct page *page;		/* the victim */
	bool translated;
	bool never_mapped_refused;

	/* The current round. */
	dma_addr_t iova;
	u64 unmapped_ns;	/* when dma_unmap_page() had returned */
	u64 last_landed_ns;	/* since then; 0: none has landed */
	u64 previous_attack_ns;	/* since then */
	bool after_poll;	/* the poll that unmapped has ended, or there was none */
	u32 round_attempts, round_landed;

	/* All rounds. */
	u64 *last_landed;	/* [rounds] */
	u64 attempts, landed, landed_after_poll, astray;
	u32 landed_rounds;
	u64 first_attack_max_ns;	/* from the unmap to the first shot */
	u64 gap_max_ns;			/* between two shots, or to the window's end */
};

/*
 * A gap longer than planned says that something else had the CPU: the exposure may have ended
 * anywhere in it.
 */
static void gap_note(struct exposure *exposure, u64 since_unmap_ns)
{
	u64 gap_ns = since_unmap_ns - exposure->previous_attack_ns;

	exposure->gap_max_ns = max(exposure->gap_max_ns, gap_ns);
	exposure->previous_attack_ns = since_unmap_ns;
}

static void attack_once(struct exposure *exposure, u64 since_unmap_ns)
{
	if (!exposure->round_attempts++)
		exposure->first_attack_max_ns = max(exposure->first_attack_max_ns,
						    since_unmap_ns);
	gap_note(exposure, since_unmap_ns);
	switch (lab_attacker_fire(&exposure->dev->attacker)) {
	case LAB_ATTACK_LANDED:
		exposure->round_landed++;
		exposure->landed_after_poll += exposure->after_poll;
		/* At least 1, since 0 says that nothing landed. */
		exposure->last_landed_ns = max(since_unmap_ns, 1ULL);
		break;
	case LAB_ATTACK_ASTRAY:
		exposure->astray++;
		break;
	case LAB_ATTACK_REFUSED:
		break;
	}
}

static u64 since_unmap(const struct exposure *exposure)
{
	return ktime_get_mono_fast_ns() - exposure->unmapped_ns;
}

/* Busy, but gives way: going idle would change when timers expire. */
static void wait_until(u64 time_ns)
{
	do
		cond_resched();
	while (ktime_get_mono_fast_ns() < time_ns);
}

static void victim_unmap(struct exposure *exposure)
{
	struct device *dev = &exposure->dev->pdev->dev;

	if (exposure->dev->batch_aware) {
		dma_unmap_page_no_sync(dev, exposure->iova, PAGE_SIZE, DMA_FROM_DEVICE);
		dma_sync_device_iotlb(dev);
	} else {
		dma_unmap_page(dev, exposure->iova, PAGE_SIZE, DMA_FROM_DEVICE);
	}
	exposure->unmapped_ns = ktime_get_mono_fast_ns();
}

/* The poll of napi=1. */
static void exposure_work(void *context)
{
	struct exposure *exposure = context;
	u32 i;

	victim_unmap(exposure);
	for (i = 0; i < IN_POLL_ATTACKS; i++)
		attack_once(exposure, since_unmap(exposure));
}

/* Until the window closes, or the run has to end. */
static int attack_on(struct exposure *exposure)
{
	u64 now_ns;
	int ret;

	for (;;) {
		now_ns = since_unmap(exposure);
		if (now_ns >= exposure->window_us * 1000ULL) {
			gap_note(exposure, now_ns);
			return 0;
		}
		ret = lab_device_interrupted(exposure->dev, "exposure");
		if (ret)
			return ret;
		attack_once(exposure, now_ns);
		wait_until(exposure->unmapped_ns + now_ns + (now_ns >> GAP_LG2));
	}
}

/* Map the victim and have the device use the translation. */
static int victim_map(struct exposure *exposure)
{
	struct device *dev = &exposure->dev->pdev->dev;
	enum lab_attack control;

	exposure->iova = dma_map_page(dev, exposure->page, 0, PAGE_SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, exposure->iova)) {
		dev_err(dev, "exposure: dma_map_page() failed\n");
		return -EIO;
	}
	lab_attacker_aim(&exposure->dev->attacker, exposure->iova, exposure->page);
	control = lab_attacker_fire(&exposure->dev->attacker);
	if (control != LAB_ATTACK_LANDED) {
		dev_err(dev, "exposure: control failed: a write to a mapped page %s\n",
			control == LAB_ATTACK_ASTRAY ? "went astray" : "was refused");
		dma_unmap_page(dev, exposure->iova, PAGE_SIZE, DMA_FROM_DEVICE);
		return -EIO;
	}
	return 0;
}

static int round_run(struct exposure *exposure, u32 round)
{
	int ret;

	wait_until(ktime_get_mono_fast_ns() + SPREAD_NS);
	ret = victim_map(exposure);
	if (ret)
		return ret;
	exposure->round_attempts = 0;
	exposure->round_landed = 0;
	exposure->previous_attack_ns = 0;
	exposure->last_landed_ns = 0;
	exposure->after_poll = false;
	if (exposure->napi) {
		lab_poll_start(&exposure->dev->poll, exposure_work, exposure);
		lab_poll_wait(&exposure->dev->poll);
	} else {
		victim_unmap(exposure);
	}
	exposure->after_poll = true;
	ret = attack_on(exposure);

	exposure->last_landed[round] = exposure->last_landed_ns;
	exposure->attempts += exposure->round_attempts;
	exposure->landed += exposure->round_landed;
	exposure->landed_rounds += !!exposure->round_landed;
	return ret;
}

/* As an IOVA, a physical address is free: allocators begin at the top of their space. */
static int control_never_mapped(struct exposure *exposure)
{
	struct page *page = alloc_page(GFP_KERNEL);
	enum lab_attack control;

	if (!page)
		return -ENOMEM;
	lab_attacker_aim(&exposure->dev->attacker, page_to_phys(page), page);
	control = lab_attacker_fire(&exposure->dev->attacker);
	__free_page(page);

	exposure->never_mapped_refused = control == LAB_ATTACK_REFUSED;
	if (exposure->never_mapped_refused == exposure->translated)
		return 0;
	dev_err(&exposure->dev->pdev->dev, "exposure: control failed: a write to a page never mapped %s\n",
		exposure->translated ? "was not refused" : "did not land in passthrough");
	return -EIO;
}

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

static void exposure_print(struct exposure *exposure, struct seq_buf *result)
{
	u64 *last = exposure->last_landed;
	u32 rounds = exposure->rounds;

	sort(last, rounds, sizeof(*last), u64_compare, NULL);
	seq_buf_printf(result, "{\"rounds\":%u,\"window_us\":%u,\"napi\":%u", rounds,
		       exposure->window_us, exposure->napi);
	seq_buf_printf(result, ",\"attempts\":%llu,\"landed\":%llu,\"landed_rounds\":%u",
		       exposure->attempts, exposure->landed, exposure->landed_rounds);
	if (exposure->napi)
		seq_buf_printf(result, ",\"landed_after_poll\":%llu", exposure->landed_after_poll);
	else
		seq_buf_printf(result, ",\"landed_after_poll\":null");
	seq_buf_printf(result, ",\"astray\":%llu", exposure->astray);
	seq_buf_printf(result, ",\"last_landed_ns\":{\"p50\":%llu,\"p99\":%llu,\"max\":%llu}",
		       percentile(last, rounds, 50), percentile(last, rounds, 99),
		       last[rounds - 1]);
	seq_buf_printf(result, ",\"first_attack_max_ns\":%llu,\"gap_max_ns\":%llu",
		       exposure->first_attack_max_ns, exposure->gap_max_ns);
	seq_buf_printf(result, ",\"pages_mapped\":%u,\"pages_unmapped\":%u", rounds, rounds);
	seq_buf_printf(result, ",\"translated\":%s", exposure->translated ? "true" : "false");
	/* Only runs whose controls held get here. */
	seq_buf_printf(result, ",\"control_mapped_landed\":true");
	seq_buf_printf(result, ",\"control_never_mapped_refused\":%s}",
		       exposure->never_mapped_refused ? "true" : "false");
}

static int rounds_run(struct exposure *exposure)
{
	u32 i;
	int ret = control_never_mapped(exposure);

	for (i = 0; !ret && i < exposure->rounds; i++)
		ret = round_run(exposure, i);
	return ret;
}

static int exposure_parse(struct exposure *exposure, char *text)
{
	const struct lab_param params[] = {
		{ "rounds", &exposure->rounds, 1, 10000 },
		{ "window_us", &exposure->window_us, 1, 1000000 },
		{ "napi", &exposure->napi, 0, 1 },
	};

	return lab_params_parse(&exposure->dev->pdev->dev, "exposure", text, params,
				ARRAY_SIZE(params));
}

static int exposure_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	struct exposure exposure = { .dev = dev, .rounds = 20, .window_us = 20000 };
	int ret = exposure_parse(&exposure, text);

	if (ret)
		return ret;
	exposure.translated = lab_device_translated(dev);
	exposure.page = alloc_page(GFP_KERNEL);
	exposure.last_landed = kvcalloc(exposure.rounds, sizeof(*exposure.last_landed), GFP_KERNEL);
	if (!exposure.page || !exposure.last_landed) {
		dev_err(&dev->pdev->dev, "exposure: no memory for rounds=%u\n", exposure.rounds);
		ret = -ENOMEM;
		goto out_free;
	}
	ret = lab_poll_enter(&dev->poll);
	if (ret) {
		dev_err(&dev->pdev->dev, "exposure: cannot probe the tracepoint napi_poll: %d\n", ret);
		goto out_free;
	}
	ret = rounds_run(&exposure);
	lab_poll_leave(&dev->poll);
	if (!ret)
		exposure_print(&exposure, result);
out_free:
	kvfree(exposure.last_landed);
	if (exposure.page)
		__free_page(exposure.page);
	return ret;
}

const struct lab_workload lab_exposure = { .name = "exposure", .run = exposure_run };
