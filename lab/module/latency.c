// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workloads `latency` and `watch`: measure the longest time with interrupts off, and the duration,
 * of maps and unmaps of this device's memory (`latency`) or of any other work (`watch`).
 *
 * `latency` maps a registration like RDMA's, or many small mappings that live at the same time:
 *
 *	segment_kib, segments	size and number of the segments of a list, which is mapped and
 *				unmapped as a whole. All segments are the same memory, so the list
 *				can be larger than the guest's memory. A list of one segment is a
 *				single mapping
 *	live			instead of a list, the number of mappings of a page: all maps, then
 *				all unmaps
 *
 * `watch` observes work from outside: on=1 starts the watch and returns, on=0 stops the watch and
 * gives the result. on=1 off_us=N first disables interrupts for N us, as a check of the watch.
 *
 * A timer fires in hard interrupt context every PERIOD_NS and measures its own delay. Interrupts
 * were off for at least the delay, and for up to PERIOD_NS more. Under -icount a nanosecond is an
 * instruction. The times include the cost of the timer; `floor_ns` is the delay without work. The
 * watch continues for AFTER_MS after the unmap, to include the work that a policy has deferred.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/hrtimer.h>
#include <linux/limits.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>

#include "../../kmod/compat/compat.h"
#include "latency.h"
#include "params.h"
#include "testdev.h"

#define PERIOD_NS 10000
#define AFTER_MS 15
#define SEGMENT_KIB_MAX 2048
#define LIVE_MAX 1000000
#define SEGMENTS_MAX 262144

struct watch {
	struct hrtimer timer;
	u64 late_ns;
};

/* Longest delay and duration of a phase over all rounds. */
struct phase {
	u64 late_ns, took_ns;
};

enum { PHASE_MAP, PHASE_UNMAP, PHASE_AFTER, PHASES };

static const char *const phase_names[PHASES] = { "map", "unmap", "after" };

struct latency {
	struct lab_device *dev;
	u32 segment_kib, segments, live, rounds;	/* the parameters */
	struct page *memory;
	struct sg_table table;
	dma_addr_t *addrs;	/* [live] */
	struct watch watch;
	u64 floor_ns;
	struct phase phases[PHASES];
};

static enum hrtimer_restart look(struct hrtimer *timer)
{
	struct watch *watch = container_of(timer, struct watch, timer);
	u64 now = ktime_get_ns();
	u64 due = ktime_to_ns(hrtimer_get_expires(timer));

	if (now > due)
		watch->late_ns = max(watch->late_ns, now - due);
	hrtimer_forward(timer, ns_to_ktime(now), ns_to_ktime(PERIOD_NS));
	return HRTIMER_RESTART;
}

static void watch_start(struct watch *watch)
{
	watch->late_ns = 0;
	hrtimer_setup(&watch->timer, look, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	hrtimer_start(&watch->timer, ns_to_ktime(PERIOD_NS), HRTIMER_MODE_REL_PINNED_HARD);
}

static u64 watch_stop(struct watch *watch)
{
	hrtimer_cancel(&watch->timer);
	return watch->late_ns;
}

static void phase_add(struct phase *phase, u64 late_ns, u64 took_ns)
{
	phase->late_ns = max(phase->late_ns, late_ns);
	phase->took_ns = max(phase->took_ns, took_ns);
}

static int look_on(struct latency *run)
{
	u64 end_ns = ktime_get_ns() + AFTER_MS * NSEC_PER_MSEC;

	while (ktime_get_ns() < end_ns)
		cpu_relax();
	return 0;
}

static int map_list(struct latency *run)
{
	struct device *self = &run->dev->pdev->dev;

	if (run->segments == 1) {
		run->addrs[0] = dma_map_page(self, run->memory, 0, run->segment_kib * SZ_1K,
					     DMA_BIDIRECTIONAL);
		return dma_mapping_error(self, run->addrs[0]);
	}
	return dma_map_sgtable(self, &run->table, DMA_BIDIRECTIONAL, 0);
}

static int unmap_list(struct latency *run)
{
	struct device *self = &run->dev->pdev->dev;

	if (run->segments == 1)
		dma_unmap_page(self, run->addrs[0], run->segment_kib * SZ_1K, DMA_BIDIRECTIONAL);
	else
		dma_unmap_sgtable(self, &run->table, DMA_BIDIRECTIONAL, 0);
	return 0;
}

static int unmap_live(struct latency *run)
{
	u32 i;

	for (i = 0; i < run->live && run->addrs[i]; i++) {
		dma_unmap_page(&run->dev->pdev->dev, run->addrs[i], PAGE_SIZE, DMA_TO_DEVICE);
		run->addrs[i] = 0;
		cond_resched();
	}
	return 0;
}

static int map_live(struct latency *run)
{
	struct device *self = &run->dev->pdev->dev;
	u32 i;

	for (i = 0; i < run->live; i++) {
		run->addrs[i] = dma_map_page(self, run->memory, 0, PAGE_SIZE, DMA_TO_DEVICE);
		if (dma_mapping_error(self, run->addrs[i])) {
			run->addrs[i] = 0;
			unmap_live(run);
			return -ENOMEM;
		}
		cond_resched();
	}
	return 0;
}

static int watched(struct latency *run, struct phase *phase, int (*call)(struct latency *run))
{
	u64 began_ns = ktime_get_ns();
	int ret;

	watch_start(&run->watch);
	ret = call(run);
	phase_add(phase, watch_stop(&run->watch), ktime_get_ns() - began_ns);
	return ret;
}

static int round_of(struct latency *run)
{
	int ret = watched(run, &run->phases[PHASE_MAP], run->live ? map_live : map_list);

	if (ret)
		return ret;
	watched(run, &run->phases[PHASE_UNMAP], run->live ? unmap_live : unmap_list);
	return watched(run, &run->phases[PHASE_AFTER], look_on);
}

static int run_all(struct latency *run)
{
	struct phase idle = { };
	u32 i;
	int ret = watched(run, &idle, look_on);

	run->floor_ns = idle.late_ns;
	for (i = 0; i < run->rounds && !ret; i++) {
		ret = lab_device_interrupted(run->dev, "latency");
		if (!ret)
			ret = round_of(run);
	}
	return ret;
}

static int set_up(struct latency *run)
{
	struct scatterlist *sg;
	int i, ret;

	run->memory = alloc_pages(GFP_KERNEL | __GFP_COMP | __GFP_ZERO,
				  get_order(run->segment_kib * SZ_1K));
	run->addrs = vcalloc(max(run->live, 1u), sizeof(*run->addrs));
	if (!run->memory || !run->addrs)
		return -ENOMEM;
	if (run->live || run->segments == 1)
		return 0;
	ret = sg_alloc_table(&run->table, run->segments, GFP_KERNEL);
	if (ret)
		return ret;
	for_each_sgtable_sg(&run->table, sg, i)
		sg_set_page(sg, run->memory, run->segment_kib * SZ_1K, 0);
	dma_set_max_seg_size(&run->dev->pdev->dev, UINT_MAX);
	return 0;
}

static void tear_down(struct latency *run)
{
	sg_free_table(&run->table);
	vfree(run->addrs);
	if (run->memory)
		__free_pages(run->memory, get_order(run->segment_kib * SZ_1K));
}

static void print(const struct latency *run, struct seq_buf *result)
{
	u32 i;

	seq_buf_printf(result, "{\"floor_ns\":%llu", run->floor_ns);
	for (i = 0; i < PHASES; i++)
		seq_buf_printf(result, ",\"%s\":{\"irqs_off_ns\":%llu,\"ns\":%llu}", phase_names[i],
			       run->phases[i].late_ns, run->phases[i].took_ns);
	seq_buf_printf(result, "}");
}

static int latency_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	struct latency *run = kzalloc(sizeof(*run), GFP_KERNEL);
	const struct lab_param params[] = {
		{ "segment_kib", &run->segment_kib, 4, SEGMENT_KIB_MAX },
		{ "segments", &run->segments, 1, SEGMENTS_MAX },
		{ "live", &run->live, 0, LIVE_MAX },
		{ "rounds", &run->rounds, 1, 10000 },
	};
	int ret;

	if (!run)
		return -ENOMEM;
	*run = (struct latency) { .dev = dev, .segment_kib = 4, .segments = 1, .rounds = 10 };
	ret = lab_params_parse(&dev->pdev->dev, "latency", text, params, ARRAY_SIZE(params));
	if (!ret) {
		ret = set_up(run);
		if (!ret)
			ret = run_all(run);
		if (!ret)
			print(run, result);
		else if (ret != -EINTR && ret != -ENODEV)
			dev_err(&dev->pdev->dev, "latency: cannot map: %d\n", ret);
		tear_down(run);
	}
	kfree(run);
	return ret;
}

/* Owner of the watch that `watch` has started, or NULL. */
static struct lab_device *watcher;
static struct watch standing;
static u64 standing_since_ns;

static int watch_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	struct device *self = &dev->pdev->dev;
	u32 on = 0, off_us = 0;
	const struct lab_param params[] = {
		{ "on", &on, 0, 1 },
		{ "off_us", &off_us, 0, 1000 },
	};
	unsigned long flags;
	int ret = lab_params_parse(self, "watch", text, params, ARRAY_SIZE(params));

	if (ret)
		return ret;
	if (on ? !!watcher : watcher != dev) {
		dev_err(self, "watch: is %s\n", on ? "on already" : "not on");
		return on ? -EBUSY : -EINVAL;
	}
	if (on) {
		watcher = dev;
		standing_since_ns = ktime_get_ns();
		watch_start(&standing);
		local_irq_save(flags);
		udelay(off_us);
		local_irq_restore(flags);
		seq_buf_printf(result, "{}");
		return 0;
	}
	watcher = NULL;
	seq_buf_printf(result, "{\"irqs_off_ns\":%llu", watch_stop(&standing));
	seq_buf_printf(result, ",\"ns\":%llu}", ktime_get_ns() - standing_since_ns);
	return 0;
}

void lab_watch_end(struct lab_device *dev)
{
	if (watcher != dev)
		return;
	watch_stop(&standing);
	watcher = NULL;
}

const struct lab_workload lab_watch = { .name = "watch", .run = watch_run };
const struct lab_workload lab_latency = { .name = "latency", .run = latency_run };
