// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workload `micro`: the cost of a map and an unmap for an unmodified driver, or for a
 * batch-aware driver, which flushes once at the end of each of the two loops.
 *
 * A round is one NAPI poll: map `ring` pages with dma_map_page(), then unmap them all. Each of
 * the two loops is timed as a whole. Work of other modules at the end of the poll (a deferred
 * flush) is part of the cost of unmapping: the time from the return of the poll function until
 * the last of the others' probes on napi_poll has returned. This time contains the kernel's
 * own few instructions for the tracepoint, which are reported as empty_poll_* and are not
 * subtracted.
 *
 * Interrupts stay on, because a policy's timers belong to its cost. The scheduler tick does
 * not, so a round begins only if the time until the next tick suffices. Rounds that are longer
 * than a tick cannot avoid the tick; disturbed_rounds counts them. Policies spread work over
 * several rounds (a flush per 256 pages, IOVA magazines), so a single short round means
 * little: consecutive rounds are added up to samples of 1,024 pages, and the headline figure
 * is the median sample. Means over all measured rounds are reported, too, and contain every
 * rare event.
 *
 * Parameters:
 *
 *   ring=64|256|1024  pages of a round
 *   rounds=N          measured rounds, after the warm-up
 *   pages=1|2|4...64  pages of a mapping, contiguous as page pools and huge pages give them;
 *                     figures are per page in any case
 *   list=N            map the pages by scatter lists of N entries, one page each
 *   walk=N            walk N MiB of memory before each round, so that the round begins with cold
 *                     caches
 *   split=1           pages of a mapping are split, as alloc_pages_exact() splits them
 *   bytes=N           map only N bytes of each page, which is a mapping by itself
 *   sends=1           the device reads
 *   shuffle=1         unmap in a fixed pseudo-random order
 *   fresh=1           allocate new pages for each round, and free them inside the poll, before the
 *                     flush at its end, as a driver does that gives its buffers away. Neither is in
 *                     the timed sections, but the consequences at the end of the poll are
 *   recycle=N         keep the ring mapped: unmap N mappings and map their pages again, until all
 *                     mappings are new, as a driver does that gets its buffers back before the
 *                     end of the poll
 *   ns=1              report nanoseconds, whatever a tick is
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/sort.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>

#include <xsmmu/dma.h>

#include "clock.h"
#include "device.h"
#include "params.h"

#define SAMPLE_PAGES 1024
#define WARMUP_PAGES 8192
#define EMPTY_POLLS 32
#ifndef SETTLE_MS
#define SETTLE_MS 50	/* for timers of an earlier run, such as a flush queue's 10 ms */
#endif

enum section { SECTION_MAP, SECTION_UNMAP, SECTION_FLUSH, SECTION_COUNT };

struct micro {
	struct lab_device *dev;
	struct lab_clock clock;
	/* The parameters. */
	u32 ring_pages, rounds, each_pages, split, shuffle, fresh, bytes, sends, ns;
	u32 list_entries, walk_mib, recycle;

	u32 count;		/* number of mappings: ring_pages / each_pages */
	size_t each_bytes;
	enum dma_data_direction dir;
	struct page **pages;	/* [count]; owned by the run, or by one round if fresh */
	struct scatterlist *lists;	/* [count], list_entries of them per list; or NULL */
	u8 *walked;		/* [walk_mib] MiB, or NULL */
	dma_addr_t *iovas;	/* [count] */
	u32 *order;		/* the i-th unmap takes mapping order[i] */
	u32 *samples;		/* room for sorting, one per sample */

	/* Results of one poll, written by micro_work(). */
	u32 mapped;		/* fewer than count: a map failed */
	u32 section_ticks[SECTION_COUNT];

	u32 *history[SECTION_COUNT];	/* [rounds] ticks of each measured round */
	u64 longest_ticks;	/* of any round, its scheduling included */
	u32 disturbed_rounds;	/* measured rounds with a scheduler tick inside */
	u64 total_pages;	/* mapped and unmapped, warm-up included */
	u32 empty_poll_ticks;

	/* Over the measured rounds, to scale ticks to nanoseconds. */
	u64 run_ticks, run_ns;
};

static noinline void map_all(struct micro *micro)
{
	struct device *dev = &micro->dev->pdev->dev;
	u32 i;

	for (i = 0; i < micro->count; i++) {
		micro->iovas[i] = dma_map_page(dev, micro->pages[i], 0, micro->each_bytes,
					       micro->dir);
		if (dma_mapping_error(dev, micro->iovas[i]))
			break;
	}
	micro->mapped = i;
}

static noinline void map_all_aware(struct micro *micro)
{
	struct device *dev = &micro->dev->pdev->dev;
	u32 i;

	for (i = 0; i < micro->count; i++) {
		micro->iovas[i] = xsmmu_map_page_unflushed(dev, micro->pages[i], 0,
							   micro->each_bytes, micro->dir);
		if (dma_mapping_error(dev, micro->iovas[i]))
			break;
	}
	xsmmu_flush_maps(dev);
	micro->mapped = i;
}

static noinline void unmap_all(struct micro *micro)
{
	struct device *dev = &micro->dev->pdev->dev;
	u32 i;

	for (i = 0; i < micro->count; i++)
		dma_unmap_page(dev, micro->iovas[micro->order[i]], micro->each_bytes,
			       micro->dir);
}

static noinline void unmap_all_aware(struct micro *micro)
{
	struct device *dev = &micro->dev->pdev->dev;
	u32 i;

	for (i = 0; i < micro->count; i++)
		xsmmu_unmap_page_deferred(dev, micro->iovas[micro->order[i]], micro->each_bytes,
					  micro->dir);
	xsmmu_flush(dev);
}

static noinline void map_lists(struct micro *micro)
{
	struct device *dev = &micro->dev->pdev->dev;
	u32 i;

	for (i = 0; i < micro->count; i += micro->list_entries)
		if (!dma_map_sg(dev, micro->lists + i, micro->list_entries, micro->dir))
			break;
	micro->mapped = i;
}

static noinline void unmap_lists(struct micro *micro)
{
	struct device *dev = &micro->dev->pdev->dev;
	u32 i;

	for (i = 0; i < micro->mapped; i += micro->list_entries)
		if (micro->dev->batch_aware)
			xsmmu_unmap_sg_deferred(dev, micro->lists + i, micro->list_entries,
						micro->dir);
		else
			dma_unmap_sg(dev, micro->lists + i, micro->list_entries, micro->dir);
	if (micro->dev->batch_aware)
		xsmmu_flush(dev);
}

/* After a failed map. */
static void unmap_some(struct micro *micro)
{
	struct device *dev = &micro->dev->pdev->dev;

	if (micro->lists) {
		unmap_lists(micro);
		micro->mapped = 0;
		return;
	}
	while (micro->mapped)
		if (!dma_mapping_error(dev, micro->iovas[--micro->mapped]))
			dma_unmap_page(dev, micro->iovas[micro->mapped], micro->each_bytes,
				       micro->dir);
}

static void pages_free(struct micro *micro)
{
	u32 i, at;

	for (i = 0; i < micro->count; i++) {
		if (!micro->pages[i])
			continue;
		if (micro->split)
			for (at = 0; at < micro->each_pages; at++)
				__free_page(micro->pages[i] + at);
		else
			__free_pages(micro->pages[i], ilog2(micro->each_pages));
		micro->pages[i] = NULL;
	}
}

static int pages_allocate(struct micro *micro)
{
	u32 i, order = ilog2(micro->each_pages);
	gfp_t gfp = GFP_KERNEL | (order && !micro->split ? __GFP_COMP : 0);

	for (i = 0; i < micro->count; i++) {
		micro->pages[i] = alloc_pages(gfp, order);
		if (!micro->pages[i])
			return -ENOMEM;	/* the caller ends the run and frees the others */
		if (micro->split)
			split_page(micro->pages[i], order);
	}
	return 0;
}

static u32 section_length(const struct micro *micro, u64 start, u64 end)
{
	return end - start - micro->clock.read_ticks;
}

/* Maps and unmaps of a ring that stays mapped, from one poll to the next. */
static void recycle_work(struct micro *micro)
{
	struct device *dev = &micro->dev->pdev->dev;
	u64 start, unmapped, mapped;
	bool failed = false;
	u32 from, i;

	if (!micro->mapped)
		map_all(micro);
	if (micro->mapped != micro->count) {
		unmap_some(micro);
		return;
	}
	micro->section_ticks[SECTION_MAP] = 0;
	micro->section_ticks[SECTION_UNMAP] = 0;
	for (from = 0; from < micro->count; from += micro->recycle) {
		start = lab_clock();
		for (i = from; i < from + micro->recycle; i++)
			dma_unmap_page(dev, micro->iovas[micro->order[i]], micro->each_bytes,
				       micro->dir);
		unmapped = lab_clock();
		for (i = from; i < from + micro->recycle; i++)
			micro->iovas[micro->order[i]] =
				dma_map_page(dev, micro->pages[micro->order[i]], 0,
					     micro->each_bytes, micro->dir);
		mapped = lab_clock();
		micro->section_ticks[SECTION_UNMAP] += section_length(micro, start, unmapped);
		micro->section_ticks[SECTION_MAP] += section_length(micro, unmapped, mapped);
		for (i = from; i < from + micro->recycle; i++)
			failed |= dma_mapping_error(dev, micro->iovas[micro->order[i]]);
	}
	if (failed)
		unmap_some(micro);
}

/* The poll. */
static void micro_work(void *context)
{
	struct micro *micro = context;
	u64 start, mapped, unmap_start, unmapped;

	if (micro->recycle) {
		recycle_work(micro);
		return;
	}

	start = lab_clock();
	if (micro->lists)
		map_lists(micro);
	else if (micro->dev->batch_aware)
		map_all_aware(micro);
	else
		map_all(micro);
	mapped = lab_clock();
	if (micro->mapped != micro->count) {
		unmap_some(micro);
		return;
	}
	unmap_start = lab_clock();
	if (micro->lists)
		unmap_lists(micro);
	else if (micro->dev->batch_aware)
		unmap_all_aware(micro);
	else
		unmap_all(micro);
	unmapped = lab_clock();

	micro->section_ticks[SECTION_MAP] = section_length(micro, start, mapped);
	micro->section_ticks[SECTION_UNMAP] = section_length(micro, unmap_start, unmapped);
	if (micro->fresh)
		pages_free(micro);
}

static void fill_lists(struct micro *micro)
{
	u32 i, at;

	for (i = 0; i < micro->count; i += micro->list_entries) {
		sg_init_table(micro->lists + i, micro->list_entries);
		for (at = i; at < i + micro->list_entries; at++)
			sg_set_page(micro->lists + at, micro->pages[at], PAGE_SIZE, 0);
	}
}

/* Evicts the lines of the last round from the CPU's caches. */
static void walk(struct micro *micro)
{
	size_t at, bytes = (size_t)micro->walk_mib << 20;

	for (at = 0; at < bytes; at += SMP_CACHE_BYTES)
		WRITE_ONCE(micro->walked[at], micro->walked[at] + 1);
}

static void empty_work(void *context)
{
}

/* Runs one poll in a quiet stretch. Returns whether a scheduler tick fell into the poll. */
static bool poll_quietly(struct micro *micro, void (*work)(void *context))
{
	struct lab_poll *poll = &micro->dev->poll;
	unsigned long tick;
	bool disturbed;
	u64 start;

	preempt_disable();
	/* A quarter more, because a policy's deferred work makes rounds differ. */
	lab_clock_await_quiet(&micro->clock, micro->longest_ticks + micro->longest_ticks / 4);
	tick = jiffies;
	start = lab_clock();
	lab_poll_start(poll, work, micro);
	micro->longest_ticks = max(micro->longest_ticks, lab_clock() - start);
	disturbed = tick != jiffies;
	preempt_enable();
	lab_poll_wait(poll);
	micro->section_ticks[SECTION_FLUSH] = section_length(micro, poll->returned, poll->probed);
	return disturbed;
}

static int round_run(struct micro *micro, bool *disturbed)
{
	struct device *dev = &micro->dev->pdev->dev;
	int ret = lab_device_interrupted(micro->dev, "micro");

	if (ret)
		return ret;
	if (micro->fresh) {
		ret = pages_allocate(micro);
		if (ret) {
			dev_err(dev, "micro: no memory for %u pages\n", micro->ring_pages);
			return ret;
		}
	}
	if (micro->lists)
		fill_lists(micro);
	walk(micro);
	*disturbed = poll_quietly(micro, micro_work);
	if (!micro->mapped) {
		dev_err(dev, "micro: dma_map_page() failed\n");
		return -EIO;
	}
	micro->total_pages += micro->ring_pages;
	cond_resched();
	return 0;
}

static int rounds_run(struct micro *micro)
{
	u32 i, section, warmup = WARMUP_PAGES / micro->ring_pages;
	u64 start_ticks, start_ns;
	bool disturbed;
	int ret;

	for (i = 0; i < warmup; i++) {
		ret = round_run(micro, &disturbed);
		if (ret)
			return ret;
	}
	start_ticks = lab_clock();
	start_ns = ktime_get_mono_fast_ns();
	for (i = 0; i < micro->rounds; i++) {
		ret = round_run(micro, &disturbed);
		if (ret)
			return ret;
		for (section = 0; section < SECTION_COUNT; section++)
			micro->history[section][i] = micro->section_ticks[section];
		micro->disturbed_rounds += disturbed;
	}
	micro->run_ticks = lab_clock() - start_ticks;
	micro->run_ns = ktime_get_mono_fast_ns() - start_ns;
	return 0;
}

/* Minimum of several polls without work: the fixed cost of the end of a poll. */
static void empty_polls_run(struct micro *micro)
{
	u32 i, least = U32_MAX;

	for (i = 0; i < EMPTY_POLLS; i++) {
		poll_quietly(micro, empty_work);
		least = min(least, micro->section_ticks[SECTION_FLUSH]);
	}
	micro->empty_poll_ticks = least;
}

static int u32_compare(const void *a, const void *b)
{
	u32 left = *(const u32 *)a, right = *(const u32 *)b;

	return left < right ? -1 : left > right;
}

/* Sets of sections as masks; the ticks of a set are added up. */
#define SECTIONS_MAP BIT(SECTION_MAP)
#define SECTIONS_UNMAP (BIT(SECTION_UNMAP) | BIT(SECTION_FLUSH))
#define SECTIONS_FLUSH BIT(SECTION_FLUSH)

static u64 rounds_sum(const struct micro *micro, unsigned long sections, u32 first, u32 count)
{
	u64 sum = 0;
	u32 i, section;

	for (section = 0; section < SECTION_COUNT; section++)
		for (i = 0; sections & BIT(section) && i < count; i++)
			sum += micro->history[section][first + i];
	return sum;
}

/*
 * The median over the samples, in tenths of a tick per page. Finer digits would differ between
 * runs, because they depend on how rounds coincide with timers such as the IOVA cache's. An
 * incomplete last sample is left out.
 */
static u64 rounds_median(const struct micro *micro, unsigned long sections)
{
	u32 per_sample = min(SAMPLE_PAGES / micro->ring_pages, micro->rounds);
	u32 i, count = micro->rounds / per_sample;

	for (i = 0; i < count; i++)
		micro->samples[i] = rounds_sum(micro, sections, i * per_sample, per_sample);
	sort(micro->samples, count, sizeof(*micro->samples), u32_compare, NULL);
	return DIV_ROUND_CLOSEST_ULL(micro->samples[count / 2] * 10ULL,
				     per_sample * micro->ring_pages);
}

/* As rounds_median(), over all rounds. */
static u64 rounds_mean(const struct micro *micro, unsigned long sections)
{
	u32 pages = micro->rounds * micro->ring_pages;

	return DIV_ROUND_CLOSEST_ULL(rounds_sum(micro, sections, 0, micro->rounds) * 10, pages);
}

static void print_figure(struct seq_buf *result, const char *name, const char *unit, bool applies,
			 u64 tenths)
{
	u32 fraction;
	u64 whole = div_u64_rem(tenths, 10, &fraction);

	if (applies)
		seq_buf_printf(result, ",\"%s_%s_per_page\":%llu.%u", name, unit, whole,
			       fraction);
	else
		seq_buf_printf(result, ",\"%s_%s_per_page\":null", name, unit);
}

/* Both units are always printed; the unit that the clock does not give is null. */
static void print_section(const struct micro *micro, struct seq_buf *result, const char *name,
			  u64 tenths)
{
	bool instructions = micro->clock.instructions;

	print_figure(result, name, "instructions", instructions, tenths);
	if (!instructions)
		tenths = div64_u64(tenths * div_u64(micro->run_ns, 1000),
				   max(div_u64(micro->run_ticks, 1000), 1ULL));
	print_figure(result, name, "ns", !instructions, tenths);
}

static void micro_print(const struct micro *micro, struct seq_buf *result)
{
	seq_buf_printf(result, "{\"ring\":%u,\"rounds\":%u,\"pages\":%u,\"split\":%u",
		       micro->ring_pages, micro->rounds, micro->each_pages, micro->split);
	seq_buf_printf(result, ",\"shuffle\":%u,\"fresh\":%u", micro->shuffle, micro->fresh);
	seq_buf_printf(result, ",\"bytes\":%zu,\"sends\":%u", micro->each_bytes, micro->sends);
	seq_buf_printf(result, ",\"list\":%u,\"walk\":%u,\"recycle\":%u", micro->list_entries,
		       micro->walk_mib, micro->recycle);
	print_section(micro, result, "map", rounds_median(micro, SECTIONS_MAP));
	print_section(micro, result, "unmap", rounds_median(micro, SECTIONS_UNMAP));
	print_section(micro, result, "flush", rounds_median(micro, SECTIONS_FLUSH));
	print_section(micro, result, "map_mean", rounds_mean(micro, SECTIONS_MAP));
	print_section(micro, result, "unmap_mean", rounds_mean(micro, SECTIONS_UNMAP));
	seq_buf_printf(result, ",\"pages_mapped\":%llu,\"pages_unmapped\":%llu", micro->total_pages,
		       micro->total_pages);
	seq_buf_printf(result, ",\"disturbed_rounds\":%u,\"translated\":%s",
		       micro->disturbed_rounds,
		       lab_device_translated(micro->dev) ? "true" : "false");
	seq_buf_printf(result, ",\"clock\":\"%s\"",
		       micro->clock.instructions ? "instructions" : "ns");
	seq_buf_printf(result, ",\"clock_read_ticks\":%u,\"empty_poll_ticks\":%u}",
		       micro->clock.read_ticks, micro->empty_poll_ticks);
}

/* Identity, or a fixed permutation (Fisher-Yates over a 32-bit xorshift; the same in every run). */
static void order_fill(struct micro *micro)
{
	u32 i, state = 0x9e3779b9;

	for (i = 0; i < micro->count; i++)
		micro->order[i] = i;
	for (i = micro->count - 1; micro->shuffle && i; i--) {
		state ^= state << 13;
		state ^= state >> 17;
		state ^= state << 5;
		swap(micro->order[i], micro->order[state % (i + 1)]);
	}
}

static void micro_free(struct micro *micro)
{
	u32 section;

	if (micro->pages)
		pages_free(micro);
	for (section = 0; section < SECTION_COUNT; section++)
		kvfree(micro->history[section]);
	kvfree(micro->samples);
	kvfree(micro->order);
	kvfree(micro->iovas);
	kvfree(micro->lists);
	vfree(micro->walked);
	kvfree(micro->pages);
}

static int micro_allocate(struct micro *micro)
{
	u32 section;

	micro->pages = kvcalloc(micro->count, sizeof(*micro->pages), GFP_KERNEL);
	micro->iovas = kvcalloc(micro->count, sizeof(*micro->iovas), GFP_KERNEL);
	micro->order = kvcalloc(micro->count, sizeof(*micro->order), GFP_KERNEL);
	micro->samples = kvcalloc(micro->rounds, sizeof(*micro->samples), GFP_KERNEL);
	if (!micro->pages || !micro->iovas || !micro->order || !micro->samples)
		return -ENOMEM;
	if (micro->list_entries) {
		micro->lists = kvcalloc(micro->count, sizeof(*micro->lists), GFP_KERNEL);
		if (!micro->lists)
			return -ENOMEM;
	}
	if (micro->walk_mib) {
		micro->walked = vzalloc((size_t)micro->walk_mib << 20);
		if (!micro->walked)
			return -ENOMEM;
	}
	for (section = 0; section < SECTION_COUNT; section++) {
		micro->history[section] = kvcalloc(micro->rounds, sizeof(u32), GFP_KERNEL);
		if (!micro->history[section])
			return -ENOMEM;
	}
	return micro->fresh ? 0 : pages_allocate(micro);
}

static int micro_parse(struct micro *micro, char *text)
{
	struct device *dev = &micro->dev->pdev->dev;
	const struct lab_param params[] = {
		{ "ring", &micro->ring_pages, 64, 1024 },
		{ "rounds", &micro->rounds, 1, 100000 },
		{ "pages", &micro->each_pages, 1, 64 },
		{ "list", &micro->list_entries, 0, 64 },
		{ "walk", &micro->walk_mib, 0, 256 },
		{ "split", &micro->split, 0, 1 },
		{ "shuffle", &micro->shuffle, 0, 1 },
		{ "fresh", &micro->fresh, 0, 1 },
		{ "bytes", &micro->bytes, 1, PAGE_SIZE },
		{ "sends", &micro->sends, 0, 1 },
		{ "recycle", &micro->recycle, 0, 1024 },
		{ "ns", &micro->ns, 0, 1 },
	};
	int ret = lab_params_parse(dev, "micro", text, params, ARRAY_SIZE(params));

	if (ret)
		return ret;
	if (micro->ring_pages != 64 && micro->ring_pages != 256 && micro->ring_pages != 1024) {
		dev_err(dev, "micro: ring=%u is out of range, expected 64, 256 or 1024\n", micro->ring_pages);
		return -ERANGE;
	}
	if (!is_power_of_2(micro->each_pages)) {
		dev_err(dev, "micro: pages=%u is no power of two\n", micro->each_pages);
		return -ERANGE;
	}
	if (micro->bytes && micro->each_pages > 1) {
		dev_err(dev, "micro: bytes=%u is of a mapping of one page, not of %u\n",
			micro->bytes, micro->each_pages);
		return -EINVAL;
	}
	if (micro->list_entries &&
	    (!is_power_of_2(micro->list_entries) || micro->each_pages > 1 || micro->bytes ||
	     micro->shuffle)) {
		dev_err(dev, "micro: list=%u: lists have a power of two of entries, and exclude pages=, bytes= and shuffle=\n",
			micro->list_entries);
		return -EINVAL;
	}
	micro->count = micro->ring_pages / micro->each_pages;
	if (micro->recycle && (micro->count % micro->recycle || micro->list_entries ||
			       micro->fresh || micro->dev->batch_aware)) {
		dev_err(dev, "micro: recycle=%u: divides the ring, is for unmodified drivers, and excludes list= and fresh=\n",
			micro->recycle);
		return -EINVAL;
	}
	micro->each_bytes = (size_t)micro->each_pages << PAGE_SHIFT;
	if (micro->bytes)
		micro->each_bytes = micro->bytes;
	micro->dir = micro->sends ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
	return 0;
}

static int micro_run(struct lab_device *dev, char *text, struct seq_buf *result)
{
	struct micro micro = { .dev = dev, .ring_pages = 1024, .rounds = 64, .each_pages = 1 };
	int ret = micro_parse(&micro, text);

	if (ret)
		return ret;
	ret = micro_allocate(&micro);
	if (ret) {
		dev_err(&dev->pdev->dev, "micro: no memory for ring=%u rounds=%u\n", micro.ring_pages, micro.rounds);
		goto out_free;
	}
	order_fill(&micro);
	ret = lab_poll_enter(&dev->poll);
	if (ret) {
		dev_err(&dev->pdev->dev, "micro: cannot probe the tracepoint napi_poll: %d\n", ret);
		goto out_free;
	}
	msleep(SETTLE_MS);
	lab_clock_calibrate(&micro.clock);
	if (micro.ns)
		micro.clock.instructions = false;
	empty_polls_run(&micro);
	ret = rounds_run(&micro);
	if (micro.recycle)
		unmap_some(&micro);
	lab_poll_leave(&dev->poll);
	if (!ret)
		micro_print(&micro, result);
out_free:
	micro_free(&micro);
	return ret;
}

const struct lab_workload lab_micro = { .name = "micro", .run = micro_run };
