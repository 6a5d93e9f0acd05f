// SPDX-License-Identifier: GPL-2.0-only
/* See kernel.h. */
#include <stdlib.h>

#include "kernel.h"
#include "replay.h"
#include "tally.h"
#include "world.h"

#define QUEUE_ENTRIES	256u
#define TIMEOUT_MS	10u
#define MAGAZINE	127u
#define CACHED_SIZES	6u	/* up to 32 pages */
#define SIZES		40u
#define LARGE_PAGES	512u

#define LOW_END		(1ULL << 20)	/* 4 GiB */
#define HIGH_END	(1ULL << 35)
#define MSI_FIRST	0xfee00ULL
#define MSI_END		0xfef00ULL

struct queued {
	u64 page;
	u64 pages;
	u64 counter;
};

/* A ring; full with an entry less than it has. */
struct queue {
	u32 head, tail;
	struct queued entries[QUEUE_ENTRIES];
};

/* A stack of ranges of a size. */
struct ranges {
	u64 *pages;
	u32 count;
	u32 room;
};

struct magazines {
	struct ranges loaded;
	struct ranges former;
};

/*
 * struct kernel - the kernel's path of a device
 * @flushes:	flushes of the domain so far
 * @queues:	flush queue of each CPU
 * @magazines:	of each CPU and size
 * @depot:	ranges that no CPU has, by size
 * @low:	IOVA pages from here to 4 GiB were handed out before
 * @high:	the same above 4 GiB; used when @low has reached the end
 * @taken:	IOVA pages handed out so far
 * @timer_cpu:	CPU that has started the timer
 */
struct kernel {
	u64 flushes;
	struct queue *queues;
	struct magazines (*magazines)[CACHED_SIZES];
	struct ranges depot[SIZES];
	u64 low;
	u64 high;
	u64 taken;
	u32 timer_cpu;
};

struct kernel *kernel_new(struct world *world)
{
	struct kernel *kernel = calloc(1, sizeof(*kernel));
	u32 cpus = replay.options.cpus;

	(void)world;
	if (!kernel)
		replay_stop("no memory for a device");
	kernel->queues = calloc(cpus, sizeof(*kernel->queues));
	kernel->magazines = calloc(cpus, sizeof(*kernel->magazines));
	if (!kernel->queues || !kernel->magazines)
		replay_stop("no memory for %u CPUs", cpus);
	kernel->low = LOW_END;
	kernel->high = HIGH_END;
	return kernel;
}

/* ---- IOVAs ---- */

static void push(struct ranges *ranges, u64 page)
{
	if (ranges->count == ranges->room) {
		ranges->room = ranges->room ? 2 * ranges->room : MAGAZINE;
		ranges->pages = realloc(ranges->pages, ranges->room * sizeof(*ranges->pages));
		if (!ranges->pages)
			replay_stop("no memory for free IOVAs");
	}
	ranges->pages[ranges->count++] = page;
}

static void swap(struct magazines *at)
{
	struct ranges former = at->former;

	at->former = at->loaded;
	at->loaded = former;
}

static u32 lg2_up(u64 pages)
{
	return pages > 1 ? xs_log2(pages - 1) + 1 : 0;
}

/* Returns 0 if neither the CPU nor the depot has a range. */
static u64 cache_get(struct kernel *kernel, u32 lg2)
{
	struct ranges *depot = &kernel->depot[lg2];
	struct magazines *at;

	if (lg2 >= CACHED_SIZES)
		return depot->count ? depot->pages[--depot->count] : 0;
	at = &kernel->magazines[replay_cpu][lg2];
	if (!at->loaded.count)
		swap(at);
	if (!at->loaded.count)
		while (depot->count && at->loaded.count < MAGAZINE)
			push(&at->loaded, depot->pages[--depot->count]);
	return at->loaded.count ? at->loaded.pages[--at->loaded.count] : 0;
}

static void cache_put(struct kernel *kernel, u32 lg2, u64 page)
{
	struct magazines *at;

	if (lg2 >= CACHED_SIZES) {
		push(&kernel->depot[lg2], page);
		return;
	}
	at = &kernel->magazines[replay_cpu][lg2];
	if (at->loaded.count == MAGAZINE)
		swap(at);
	if (at->loaded.count == MAGAZINE)
		while (at->loaded.count)
			push(&kernel->depot[lg2], at->loaded.pages[--at->loaded.count]);
	push(&at->loaded, page);
}

/* Returns the aligned range below @end; 0 if none is above @first. */
static u64 below(u64 end, u64 first, u64 size)
{
	u64 page = end > size ? (end - size) & ~(size - 1) : 0;

	if (page < MSI_END && page + size > MSI_FIRST)
		page = (MSI_FIRST - size) & ~(size - 1);
	return page >= first ? page : 0;
}

static u64 fresh(struct kernel *kernel, u64 size)
{
	u64 page = below(kernel->low, 1, size);

	if (page) {
		kernel->low = page;
		return page;
	}
	page = below(kernel->high, LOW_END, size);
	if (!page)
		replay_stop("the kernel's model has no IOVA left");
	kernel->high = page;
	return page;
}

u64 kernel_alloc(struct world *world, u64 pages)
{
	struct kernel *kernel = world->kernel;
	u32 lg2 = lg2_up(pages);
	u64 page = cache_get(kernel, lg2);

	if (page)
		return page;
	kernel->taken += 1ULL << lg2;
	if (kernel->taken > tally.taken)
		tally.taken = kernel->taken;
	return fresh(kernel, 1ULL << lg2);
}

void kernel_free(struct world *world, u64 page, u64 pages)
{
	cache_put(world->kernel, lg2_up(pages), page);
}

/* ---- strict ---- */

static void unmap_part(struct world *world, u64 page, u64 pages)
{
	struct xs_range range = { page, pages };
	struct xs_commands sent = { 0 };

	shadow_remove(&world->shadow, page, pages);
	shadow_invalidate(&world->shadow, &range, 1);
	world_count_range(page, pages, &sent);
	tally.commands_page += sent.page;
	tally.commands_domain += sent.domain;
}

/* The parts of iommu_pgsize(), each of which the gather cannot join with the part before. */
static void unmap_now(struct world *world, u64 page, u64 pages)
{
	u64 first = (page + LARGE_PAGES - 1) & ~(u64)(LARGE_PAGES - 1);
	u64 end = (page + pages) & ~(u64)(LARGE_PAGES - 1);

	tally.flushes[XS_FLUSH_UNMAP]++;
	if (first >= end) {
		unmap_part(world, page, pages);
		return;
	}
	if (first > page)
		unmap_part(world, page, first - page);
	unmap_part(world, first, end - first);
	if (page + pages > end)
		unmap_part(world, end, page + pages - end);
}

/* ---- lazy ---- */

static void flush(struct world *world, enum xs_flush_point cause)
{
	shadow_invalidate(&world->shadow, NULL, 0);
	world->kernel->flushes++;
	tally.commands_domain++;
	tally.flushes[cause]++;
}

/* Frees what was queued before the last flush. The CPU that frees gets the IOVAs. */
static void ring_free(struct world *world, struct queue *queue)
{
	while (queue->head != queue->tail) {
		const struct queued *entry = &queue->entries[queue->head];

		if (entry->counter >= world->kernel->flushes)
			return;
		kernel_free(world, entry->page, entry->pages);
		queue->head = (queue->head + 1) % QUEUE_ENTRIES;
	}
}

/* As mod_timer() with msecs_to_jiffies(): rounded up twice. */
static u64 timeout_at(void)
{
	u64 tick_ns = 1000000000ULL / replay.options.hz;
	u64 ticks = (TIMEOUT_MS * (u64)replay.options.hz + 999) / 1000;

	return (replay.now_ns / tick_ns + ticks + 1) * tick_ns;
}

static void queue_iova(struct world *world, u64 page, u64 pages)
{
	struct queue *queue = &world->kernel->queues[replay_cpu];

	ring_free(world, queue);
	if ((queue->tail + 1) % QUEUE_ENTRIES == queue->head) {
		flush(world, XS_FLUSH_FULL);
		ring_free(world, queue);
	}
	queue->entries[queue->tail] = (struct queued) { page, pages, world->kernel->flushes };
	queue->tail = (queue->tail + 1) % QUEUE_ENTRIES;
	if (world->next_ns == ~0ULL) {
		world->kernel->timer_cpu = replay_cpu;
		world_wake(world, timeout_at());
	}
}

void kernel_unmap(struct world *world, u64 page, u64 pages, bool frees)
{
	if (!frees || replay.options.side == SIDE_KERNEL_STRICT) {
		unmap_now(world, page, pages);
		if (frees)
			kernel_free(world, page, pages);
		return;
	}
	shadow_remove(&world->shadow, page, pages);
	queue_iova(world, page, pages);
}

void kernel_expire(struct world *world)
{
	world->next_ns = ~0ULL;
	replay_cpu = world->kernel->timer_cpu;
	flush(world, XS_FLUSH_TIME);
	for (u32 i = 0; i < replay.options.cpus; i++)
		ring_free(world, &world->kernel->queues[i]);
}
