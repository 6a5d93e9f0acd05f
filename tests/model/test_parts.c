// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parts of the machine model, each by a case that is computed by hand. Prints a line for each case;
 * ends with status 1 at the first wrong number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "count.h"
#include "dma.h"
#include "heap.h"
#include "link.h"
#include "model.h"
#include "queue.h"
#include "walk.h"

#define IS(what, expected) is(#what, (u64)(what), (u64)(expected), __LINE__)

static void is(const char *what, u64 found, u64 expected, int line)
{
	if (found == expected)
		return;
	printf("line %d: %s is %llu, not %llu\n", line, what, (unsigned long long)found,
	       (unsigned long long)expected);
	exit(1);
}

static void set_up(void)
{
	model.params = (struct model_params) {
		.cores = 2, .table_read_ns = 100, .walkers = 1, .iotlb_entries = 16,
		.iotlb_ways = 8, .l1_entries = 4, .l2_entries = 4, .l3_entries = 2,
		.pcie_mbps = 8000, .pcie_latency_ns = 50, .pcie_credit_bytes = 512,
		.command_wait_ns = 1000, .command_busy_ns = 200, .command_stall_ns = 300,
		.lock_hold_ns = 10, .hz = 250, .side = SIDE_KERNEL_STRICT, .hint = HINT_DROPPED,
	};
	model.now_ns = 0;
	running_cpu = 0;
	counts_reset();
	walk_init();
	queue_init();
	link_init();
}

static void heap_keeps_the_order_of_equal_times(void)
{
	static const u64 times[] = { 5, 3, 5, 1, 3 };
	static const u32 order[] = { 3, 1, 4, 0, 2 };
	struct heap heap = { 0 };
	struct event event;

	for (u32 i = 0; i < 5; i++)
		heap_add(&heap, times[i], 0, i);
	for (u32 i = 0; i < 5; i++) {
		IS(heap_take(&heap, &event), true);
		IS(event.at, order[i]);
	}
	IS(heap_take(&heap, &event), false);
}

static bool has(const struct cache_entry *entry)
{
	return entry;
}

/* 2 sets of 8 ways: even numbers share a set. */
static void cache_evicts_the_entry_used_least_recently(void)
{
	struct cache cache;

	cache_init(&cache, 16, 8);
	for (u64 i = 0; i < 8; i++)
		cache_add(&cache, 2 * i, 0);
	IS(has(cache_find(&cache, 0)), true);
	cache_add(&cache, 16, 0);
	IS(has(cache_find(&cache, 0)), true);
	IS(has(cache_find(&cache, 2)), false);
	cache_add(&cache, 1, 0);
	IS(has(cache_find(&cache, 4)), true);
	cache_drop(&cache, 4, 6);
	IS(has(cache_find(&cache, 4)), false);
	IS(has(cache_find(&cache, 6)), false);
	IS(has(cache_find(&cache, 8)), true);
	cache_add(&cache, 18, 0);
	cache_add(&cache, 20, 0);
	IS(has(cache_find(&cache, 8)), true);
	cache_drop(&cache, 0, ~0ULL - 1);
	IS(has(cache_find(&cache, 8)), false);
	IS(has(cache_find(&cache, 1)), false);
}

/* The first walk reads all four levels; the walk cache for leaf tables has two entries. */
static void walks_read_what_the_walk_caches_lack(void)
{
	set_up();
	IS(walk_at(0, 0).ready_ns, 400);
	IS(walk_at(0, 1).ready_ns, 500);
	IS(walk_at(0, 0).ready_ns, 400);
	IS(walk_at(1000, 0).ready_ns, 1000);
	IS(walk_at(1000, 512).ready_ns, 1200);
	IS(walk_at(1200, 1024).ready_ns, 1400);
	IS(walk_at(1400, 2).ready_ns, 1600);
	IS(walk_at(1600, 1ULL << 18).ready_ns, 1900);
	IS(counts.visits, 8);
	IS(counts.misses, 6);
	IS(counts.l3_misses, 5);
	IS(counts.l2_misses, 2);
	IS(counts.l1_misses, 1);
	IS(counts.reads, 14);
}

static void walkers_work_beside_each_other_but_in_one_table(void)
{
	set_up();
	model.params.walkers = 2;
	model.params.serial_table = 1;
	walk_init();
	IS(walk_at(0, 0).ready_ns, 400);
	IS(walk_at(0, 512).ready_ns, 200);
	IS(walk_at(200, 1).ready_ns, 500);
	model.params.serial_table = 0;
	IS(walk_at(200, 513).ready_ns, 500);
	IS(walk_at(600, 514).ready_ns, 700);
	IS(walk_at(600, 515).ready_ns, 700);
}

/* 16 large pages fill an IOTLB of 2 sets of 8 ways; a walk ends a level earlier. */
static void a_large_page_has_a_translation(void)
{
	set_up();
	IS(walk_at(0, WALK_LARGE).ready_ns, 300);
	IS(walk_at(300, WALK_LARGE + 511).ready_ns, 300);
	IS(walk_at(300, WALK_LARGE + 512).ready_ns, 400);
	for (u64 i = 2; i < 16; i++)
		walk_at(1000, WALK_LARGE + i * 512);
	IS(counts.misses, 16);
	for (u64 i = 0; i < 16; i++)
		walk_at(10000, WALK_LARGE + i * 512 + i);
	IS(counts.misses, 16);
	IS(counts.l3_misses, 0);
	IS(counts.reads, 3 + 15);
}

/* The first walk begins again at 100, with one read; the second walker was idle. */
static void a_restart_takes_the_walkers_time(void)
{
	set_up();
	model.params.walkers = 2;
	walk_init();
	IS(walk_at(0, 0).ready_ns, 400);
	walk_restart(100);
	IS(counts.misses, 2);
	IS(counts.reads, 5);
	IS(walk_at(100, 512).ready_ns, 300);
	IS(walk_at(100, 1024).ready_ns, 500);
	IS(walk_at(100, 1536).ready_ns, 700);
	walk_restart(700);
	IS(counts.misses, 5);
}

/* A page-selective command evicts its aligned range, drops walk caches, and stalls walks. */
static void a_command_evicts_when_the_hardware_comes_to_it(void)
{
	set_up();
	for (u64 i = 0; i < 4; i++)
		walk_at(0, i);
	IS(queue_send_pages(10000, 1, 2), 11000);
	IS(counts.misses, 4);
	walk_at(10000, 1);
	IS(counts.misses, 4);
	model.now_ns = 10000;
	queue_run();
	IS(walk_at(10000, 4).stalled_ns, 300);
	IS(walk_at(10000, 4).ready_ns, 10000 + 300 + 400);
	IS(counts.reads, 7 + 4);
	walk_at(11000, 0);
	walk_at(11000, 3);
	IS(counts.misses, 7);
	IS(counts.commands_page, 1);
}

static void a_hint_keeps_walk_caches(void)
{
	set_up();
	model.params.hint = HINT_KEPT;
	walk_at(0, 0);
	queue_send_domain(1000);
	model.now_ns = 1000;
	queue_run();
	walk_at(2000, 0);
	IS(counts.misses, 2);
	IS(counts.reads, 5);
	IS(counts.commands_domain, 1);
}

/* CPU 1 waits for the lock of CPU 0, and for the command before in the queue. */
static void commands_wait_for_each_other(void)
{
	set_up();
	IS(queue_send_pages(0, 0, 1), 1000);
	running_cpu = 1;
	IS(queue_send_pages(0, 0, 1), 1200);
	model.params.lock_waiter_ns = 5000;
	IS(queue_send_pages(100000, 0, 1), 101000);
	running_cpu = 0;
	IS(queue_send_pages(100000, 0, 1), 101200);
	running_cpu = 1;
	IS(queue_send_pages(100005, 0, 1), 105030);
	IS(counts.locked_ns, 1000 + 1200 + 1000 + 1200 + 5025);
}

/* 8 Gb/s is a byte a ns; 50 ns after a write is visible its credits, of 512 bytes, are free. */
static void writes_wait_for_credits_and_for_their_turn(void)
{
	enum limit limit;

	set_up();
	model.params.walkers = 2;
	walk_init();
	IS(link_ready_at(0, 256, &limit), 0);
	IS(link_write(0, 0, 256), 256 + 400 + 50);
	IS(link_ready_at(0, 256, &limit), 256);
	IS(limit, LIMIT_PCIE);
	IS(link_write(256, 0, 256), 706);
	IS(link_ready_at(512, 64, &limit), 706);
	IS(limit, LIMIT_WALKS);
	IS(link_write(706, 512, 512), 706 + 512 + 50);
	IS(link_ready_at(706, 64, &limit), 1268);
	IS(limit, LIMIT_PCIE);
	IS(link_read(1300, 0), 1350);
	IS(link_read(1300, 1024), 1300 + 200 + 50);
}

/* The page of the second write is in the IOTLB; the first write waits for a walk of two reads. */
static void writes_do_not_overtake(void)
{
	set_up();
	walk_at(0, 0);
	IS(link_write(1000, 512, 64), 1000 + 64 + 200 + 50);
	IS(link_write(1064, 0, 64), 1000 + 64 + 200 + 50);
}

/* A write larger than the free credits begins with a PCIe packet. */
static void a_large_write_begins_early(void)
{
	enum limit limit;

	set_up();
	model.params.side = SIDE_OFF;
	IS(link_write(0, 0, 256), 306);
	IS(link_write(256, 0, 512), 256 + 512 + 50);
	IS(link_ready_at(256, 256, &limit), 818);
}

static void exposures_have_quantiles(void)
{
	set_up();
	exposure_add(10, 98);
	exposure_add(1000, 1);
	exposure_add(5000000, 1);
	IS(exposure_quantile(500), 10);
	IS(exposure_quantile(980), 10);
	IS(exposure_quantile(990) >= 1000 && exposure_quantile(990) < 1032, true);
	IS(exposure_quantile(1000) >= 5000000 && exposure_quantile(1000) < 5160000, true);
}

/* Of two pages that are flushed together, one is gone before. The flush takes 1,000 ns. */
static void what_is_gone_before_the_flush_is_exposed(void)
{
	u64 iova[2];

	set_up();
	dma_init();
	for (u32 i = 0; i < 2; i++) {
		dma_map(0, (i + 1) << XS_PAGE_LG2, 1, DMA_WHOLE, &iova[i]);
		dma_unmap_later(500 * i, iova[i], 1, DMA_WHOLE);
	}
	IS(dma_flush(2000), 3000);
	dma_let_go(iova[0]);
	IS(exposure_quantile(1000), 0);
	for (u32 i = 0; i < 2; i++) {
		dma_map(3000, (i + 1) << XS_PAGE_LG2, 1, DMA_WHOLE, &iova[i]);
		dma_unmap_later(4000 + 500 * i, iova[i], 1, DMA_WHOLE);
	}
	dma_let_go(iova[1]);
	IS(dma_flush(6000), 7000);
	dma_let_go(iova[0]);
	IS(exposure_quantile(1) >= 2500 && exposure_quantile(1000) < 2580, true);
}

#define RUN(name) do { name(); printf("ok %s\n", #name); } while (0)

int main(void)
{
	RUN(heap_keeps_the_order_of_equal_times);
	RUN(cache_evicts_the_entry_used_least_recently);
	RUN(walks_read_what_the_walk_caches_lack);
	RUN(walkers_work_beside_each_other_but_in_one_table);
	RUN(a_large_page_has_a_translation);
	RUN(a_restart_takes_the_walkers_time);
	RUN(a_command_evicts_when_the_hardware_comes_to_it);
	RUN(a_hint_keeps_walk_caches);
	RUN(commands_wait_for_each_other);
	RUN(writes_wait_for_credits_and_for_their_turn);
	RUN(writes_do_not_overtake);
	RUN(a_large_write_begins_early);
	RUN(exposures_have_quantiles);
	RUN(what_is_gone_before_the_flush_is_exposed);
	return 0;
}
