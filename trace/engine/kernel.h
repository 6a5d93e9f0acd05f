/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of the kernel's own two modes, after Linux 6.12.118 (Debian): drivers/iommu/dma-iommu.c,
 * iova.c, iommu.c (iommu_pgsize()) and intel/cache.c.
 *
 * Strict: an unmap is one gather. The range is unmapped in up to three parts, around the aligned
 * 2 MiB in it, and each part is one page-selective command, widened to an aligned power of two.
 *
 * Lazy: a flush queue of 256 entries for each CPU, which is full with 255. An unmap that finds its
 * queue full invalidates the domain first, which covers the queues of all CPUs; so does the timer,
 * which starts with the first unmap after it fired. The timer's 10 ms are counted in ticks and
 * rounded up to the tick after; ticks are at multiples of 1/HZ s of the world's time.
 *
 * IOVAs come from magazines of 127 for each CPU and size (a power of two up to 32 pages; two
 * magazines each, and a depot without a limit), like iova.c's. The tree of free ranges is not
 * modelled: a fresh range is the aligned range below all others, from 4 GiB down and then from
 * 2^47 down; a range of more than 32 pages is kept by its rounded size and used again, last freed
 * first.
 */
#ifndef ENGINE_KERNEL_H
#define ENGINE_KERNEL_H

#include <xsmmu/policy.h>

struct kernel;

/*
 * struct kernel_ops - the world of the kernel's path; @data is the configuration's
 * @clock:	the time, in ns
 * @remove:	remove pages from the page table; translations may stay cached
 * @invalidate:	send a command for an aligned range that has the pages, or with @pages 0 for the
 *   domain, and wait
 * @flushed:	a flush has ended, for counts
 * @wake:	call kernel_expire() at @ns
 * @stop:	end the program: there is no memory, or no IOVA
 */
struct kernel_ops {
	u64 (*clock)(void *data);
	void (*remove)(void *data, u64 page, u64 pages);
	void (*invalidate)(void *data, u64 page, u64 pages);
	void (*flushed)(void *data, enum xs_flush_point cause);
	void (*wake)(void *data, u64 ns);
	void (*stop)(const char *why) __attribute__((noreturn));
};

/*
 * struct kernel_config - configuration
 * @cpus:	CPUs of the machine
 * @hz:		ticks a second, for the timer
 * @lazy:	lazy mode; else strict
 */
struct kernel_config {
	const struct kernel_ops *ops;
	void *data;
	u32 cpus;
	u32 hz;
	bool lazy;
};

struct kernel *kernel_new(const struct kernel_config *config);

/* Returns the first IOVA page of a range. */
u64 kernel_alloc(struct kernel *kernel, u64 pages);

/* Frees a range in which nothing is mapped. */
void kernel_free(struct kernel *kernel, u64 page, u64 pages);

/* Returns the IOVA pages handed out so far, each counted once. */
u64 kernel_taken(const struct kernel *kernel);

/* Unmaps a range. With @frees the range is freed, and its flush deferred in lazy mode. */
void kernel_unmap(struct kernel *kernel, u64 page, u64 pages, bool frees);

/* The timer is due. */
void kernel_expire(struct kernel *kernel);

#endif
