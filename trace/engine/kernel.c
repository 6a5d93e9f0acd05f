// SPDX-License-Identifier: GPL-2.0-only
/* See kernel.h. */
#include <stdlib.h>

#include "kernel.h"

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
 * @config:	as given
 * @flushes:	flushes of the domain so far
 * @queues:	flush queue of each CPU
 * @magazines:	of each CPU and size
 * @depot:	ranges that no CPU has, by size
 * @low:	IOVA pages from here to 4 GiB were handed out before
 * @high:	the same above 4 GiB; used when @low has reached the end
 * @taken:	IOVA pages handed out so far
 * @timer_runs:	the timer was started and has not fired
 * @timer_cpu:	CPU that has started the timer
 */
struct kernel {
	struct kernel_config config;
	u64 flushes;
	struct queue *queues;
	struct magazines (*magazines)[CACHED_SIZES];
	struct ranges depot[SIZES];
	u64 low;
	u64 high;
	u64 taken;
	bool timer_runs;
	u32 timer_cpu;
};

struct kernel *kernel_new(const struct kernel_config *config)
{
	struct kernel *kernel = calloc(1, sizeof(*kernel));

	if (!kernel)
		config->ops->stop("no memory for a device");
	kernel->config = *config;
	kernel->queues = calloc(config->cpus, sizeof(*kernel->queues));
	kernel->magazines = calloc(config->cpus, sizeof(*kernel->magazines));
	if (!kernel->queues || !kernel->magazines)
		config->ops->stop("no memory for the CPUs of a device");
	kernel->low = LOW_END;
	kernel->high = HIGH_END;
	return kernel;
}

/* ---- IOVAs ---- */

static void push(struct kernel *kernel, struct ranges *ranges, u64 page)
{
	if (ranges->count == ranges->room) {
		ranges->room = ranges->room ? 2 * ranges->room : MAGAZINE;
		ranges->pages = realloc(ranges->pages, ranges->room * sizeof(*ranges->pages));
		if (!ranges->pages)
			kernel->config.ops->stop("no memory for free IOVAs");
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
	at = &kernel->magazines[running_cpu][lg2];
	if (!at->loaded.count)
		swap(at);
	if (!at->loaded.count)
		while (depot->count && at->loaded.count < MAGAZINE)
			push(kernel, &at->loaded, depot->pages[--depot->count]);
	return at->loaded.count ? at->loaded.pages[--at->loaded.count] : 0;
}

static void cache_put(struct kernel *kernel, u32 lg2, u64 page)
{
	struct magazines *at;

	if (lg2 >= CACHED_SIZES) {
		push(kernel, &kernel->depot[lg2], page);
		return;
	}
	at = &kernel->magazines[running_cpu][lg2];
	if (at->loaded.count == MAGAZINE)
		swap(at);
	if (at->loaded.count == MAGAZINE)
		while (at->loaded.count)
			push(kernel, &kernel->depot[lg2], at->loaded.pages[--at->loaded.count]);
	push(kernel, &at->loaded, page);
}

/* Returns the aligned range below @end; 0 if none is above @first. */
static u64 below(u64 end, u64 first, u64 size)
{
	u64 page = end > size ? (end - size) & ~(size - 1) : 0;

	if (page < MSI_END && page + size > MSI_FIRST)
		page = size < MSI_FIRST ? (MSI_FIRST - size) & ~(size - 1) : 0;
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
		kernel->config.ops->stop("the kernel's model has no IOVA left");
	kernel->high = page;
	return page;
}

u64 kernel_alloc(struct kernel *kernel, u64 pages)
{
	u32 lg2 = lg2_up(pages);
	u64 page = cache_get(kernel, lg2);

	if (page)
		return page;
	kernel->taken += 1ULL << lg2;
	return fresh(kernel, 1ULL << lg2);
}

void kernel_free(struct kernel *kernel, u64 page, u64 pages)
{
	cache_put(kernel, lg2_up(pages), page);
}

u64 kernel_taken(const struct kernel *kernel)
{
	return kernel->taken;
}

/* ---- strict ---- */

static void unmap_part(struct kernel *kernel, u64 page, u64 pages)
{
	kernel->config.ops->remove(kernel->config.data, page, pages);
	kernel->config.ops->invalidate(kernel->config.data, page, pages);
}

/* The parts of iommu_pgsize(), each of which the gather cannot join with the part before. */
static void unmap_now(struct kernel *kernel, u64 page, u64 pages)
{
	u64 first = (page + LARGE_PAGES - 1) & ~(u64)(LARGE_PAGES - 1);
	u64 end = (page + pages) & ~(u64)(LARGE_PAGES - 1);

	kernel->config.ops->flushed(kernel->config.data, XS_FLUSH_UNMAP);
	if (first >= end) {
		unmap_part(kernel, page, pages);
		return;
	}
	if (first > page)
		unmap_part(kernel, page, first - page);
	unmap_part(kernel, first, end - first);
	if (page + pages > end)
		unmap_part(kernel, end, page + pages - end);
}

/* ---- lazy ---- */

static void flush(struct kernel *kernel, enum xs_flush_point cause)
{
	kernel->config.ops->invalidate(kernel->config.data, 0, 0);
	kernel->flushes++;
	kernel->config.ops->flushed(kernel->config.data, cause);
}

/* Frees what was queued before the last flush. The CPU that frees gets the IOVAs. */
static void ring_free(struct kernel *kernel, struct queue *queue)
{
	while (queue->head != queue->tail) {
		const struct queued *entry = &queue->entries[queue->head];

		if (entry->counter >= kernel->flushes)
			return;
		kernel_free(kernel, entry->page, entry->pages);
		queue->head = (queue->head + 1) % QUEUE_ENTRIES;
	}
}

/* As mod_timer() with msecs_to_jiffies(): rounded up twice. */
static u64 timeout_at(const struct kernel *kernel)
{
	u64 now_ns = kernel->config.ops->clock(kernel->config.data);
	u64 tick_ns = 1000000000ULL / kernel->config.hz;
	u64 ticks = (TIMEOUT_MS * (u64)kernel->config.hz + 999) / 1000;

	return (now_ns / tick_ns + ticks + 1) * tick_ns;
}

static void queue_iova(struct kernel *kernel, u64 page, u64 pages)
{
	struct queue *queue = &kernel->queues[running_cpu];

	ring_free(kernel, queue);
	if ((queue->tail + 1) % QUEUE_ENTRIES == queue->head) {
		flush(kernel, XS_FLUSH_FULL);
		ring_free(kernel, queue);
	}
	queue->entries[queue->tail] = (struct queued) { page, pages, kernel->flushes };
	queue->tail = (queue->tail + 1) % QUEUE_ENTRIES;
	if (!kernel->timer_runs) {
		kernel->timer_runs = true;
		kernel->timer_cpu = running_cpu;
		kernel->config.ops->wake(kernel->config.data, timeout_at(kernel));
	}
}

void kernel_unmap(struct kernel *kernel, u64 page, u64 pages, bool frees)
{
	if (!frees || !kernel->config.lazy) {
		unmap_now(kernel, page, pages);
		if (frees)
			kernel_free(kernel, page, pages);
		return;
	}
	kernel->config.ops->remove(kernel->config.data, page, pages);
	queue_iova(kernel, page, pages);
}

void kernel_expire(struct kernel *kernel)
{
	kernel->timer_runs = false;
	running_cpu = kernel->timer_cpu;
	flush(kernel, XS_FLUSH_TIME);
	for (u32 i = 0; i < kernel->config.cpus; i++)
		ring_free(kernel, &kernel->queues[i]);
}
