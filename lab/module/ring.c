// SPDX-License-Identifier: GPL-2.0-only
/* Common parts of the ring workloads; see ring.h. */
#include <linux/delay.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/vmstat.h>

#include "ring.h"

#define SETTLE_MS 50	/* lets timers of an earlier run expire, such as a flush queue's 10 ms */

static const char *const count_names[RING_COUNTS] = {
	[RING_PACKETS] = "packets",
	[RING_BYTES] = "bytes",
	[RING_PAGES_MAPPED] = "pages_mapped",
	[RING_PAGES_UNMAPPED] = "pages_unmapped",
	[RING_FLUSHES] = "flushes",
	[RING_CACHE_REUSED] = "cache_reused",
	[RING_CACHE_BUSY] = "cache_busy",
	[RING_CACHE_FULL] = "cache_full",
	[RING_POOL_RECYCLED] = "pool_recycled",
};

int ring_needs_batch_aware(const struct lab_device *dev, const char *name, const char *release)
{
	if (dev->batch_aware)
		return 0;
	dev_err(&dev->pdev->dev, "%s: release=%s is for a batch-aware driver: bind with batch_aware=Y\n",
		name, release);
	return -EINVAL;
}

int ring_meter_open(struct ring_meter *meter, struct lab_device *dev, const char *name)
{
	int ret;

	meter->dev = dev;
	meter->name = name;
	ret = lab_poll_enter(&dev->poll);
	if (ret) {
		dev_err(&dev->pdev->dev, "%s: cannot probe the tracepoint napi_poll: %d\n", name,
			ret);
		return ret;
	}
	msleep(SETTLE_MS);
	lab_clock_identify(&meter->clock);
	return 0;
}

void ring_meter_close(struct ring_meter *meter)
{
	lab_poll_leave(&meter->dev->poll);
}

void ring_meter_poll(struct ring_meter *meter, void (*work)(void *context), void *context)
{
	struct lab_poll *poll = &meter->dev->poll;
	u64 start = lab_clock();

	lab_poll_start(poll, work, context);
	lab_poll_wait(poll);
	meter->poll_ticks += poll->probed - start;
}

/* A single buffer, because runs are serialised; too large for the stack. */
static unsigned long vm_events[NR_VM_EVENT_ITEMS];

static void meter_read(struct ring_meter *meter, struct ring_reading *reading)
{
	u32 zone;

	all_vm_events(vm_events);
	reading->freed_pages = vm_events[PGFREE];
	reading->allocated_pages = 0;
	for (zone = 0; zone < MAX_NR_ZONES; zone++)
		reading->allocated_pages += vm_events[PGALLOC_NORMAL - ZONE_NORMAL + zone];
	memcpy(reading->counts, meter->counts, sizeof(reading->counts));
	reading->poll_ticks = meter->poll_ticks;
	reading->ns = ktime_get_mono_fast_ns();
	reading->ticks = lab_clock();
}

void ring_meter_start(struct ring_meter *meter)
{
	meter_read(meter, &meter->start);
}

void ring_meter_stop(struct ring_meter *meter)
{
	struct ring_reading *spent = &meter->spent;
	u64 ticks = lab_clock(), ns = ktime_get_mono_fast_ns();
	u32 i;

	meter_read(meter, spent);
	spent->ticks = ticks - meter->start.ticks;
	spent->ns = ns - meter->start.ns;
	spent->poll_ticks -= meter->start.poll_ticks;
	spent->allocated_pages -= meter->start.allocated_pages;
	spent->freed_pages -= meter->start.freed_pages;
	for (i = 0; i < RING_COUNTS; i++)
		spent->counts[i] -= meter->start.counts[i];
}

/* Print both units. The unit that the clock does not count is null. */
static void print_ticks(const struct ring_meter *meter, const char *prefix, u64 ticks,
			struct seq_buf *result)
{
	const struct ring_reading *spent = &meter->spent;

	if (meter->clock.instructions)
		seq_buf_printf(result, ",\"%sinstructions\":%llu,\"%sns\":null", prefix, ticks,
			       prefix);
	else
		seq_buf_printf(result, ",\"%sinstructions\":null,\"%sns\":%llu", prefix, prefix,
			       mul_u64_u64_div_u64(ticks, spent->ns, spent->ticks ?: 1));
}

void ring_meter_print(const struct ring_meter *meter, const char *release, u32 count,
		      struct seq_buf *result)
{
	const struct ring_reading *spent = &meter->spent;
	u32 i;

	seq_buf_printf(result, "{\"release\":\"%s\",", release);
	/* Of the whole run, including set-up and tear-down, as the IOMMU's counts are. */
	seq_buf_printf(result, "\"pages_mapped\":%llu,\"pages_unmapped\":%llu",
		       meter->counts[RING_PAGES_MAPPED], meter->counts[RING_PAGES_UNMAPPED]);
	seq_buf_printf(result, ",\"translated\":%s,\"measured\":{",
		       lab_device_translated(meter->dev) ? "true" : "false");
	for (i = 0; i < count; i++)
		seq_buf_printf(result, "%s\"%s\":%llu", i ? "," : "", count_names[i],
			       spent->counts[i]);
	seq_buf_printf(result, ",\"allocated_pages\":%llu,\"freed_pages\":%llu",
		       spent->allocated_pages, spent->freed_pages);
	print_ticks(meter, "", spent->ticks, result);
	print_ticks(meter, "poll_", spent->poll_ticks, result);
	seq_buf_printf(result, "}}");
}
