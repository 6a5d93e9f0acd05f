/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a platform of the tests has beside locks and atomics, in userspace and
 * in the kernel alike: pages, gathers and counts of the tests' own world.
 */
#ifndef XSMMU_PLATFORM_TEST_H
#define XSMMU_PLATFORM_TEST_H

/* The CPU's pages; `-D` makes it a world of larger ones. */
#ifndef XS_PAGE_LG2
#define XS_PAGE_LG2	12
#endif

#define TEST_CPUS	8

/* Half of them. */
#define XS_RECLAIM_CPUS	4u

#define xs_ops(engine)		((engine)->ops)
#define xs_world(engine)	((engine)->world)

/* Counted for each CPU, so that a world can wait for an exit; see test_quiesce(). */
void xs_enter(void);
void xs_exit(void);

/* Counts what the engine warns of; see world.h. */
bool xs_warn_once(bool broken, const char *text);

/* @removed pages of the world's table carry the tag @id until they are covered. */
typedef struct {
	u32 id;
	u32 removed;
} xs_gather_t;

typedef void *xs_ref_t;

typedef u64 xs_memory_t;

#define xs_memory_at(phys)	(phys)
#define xs_memory_ref(memory)	xs_ref_of(memory)
#define xs_prefetchw(p)		((void)(p))

xs_ref_t xs_ref_of(u64 phys);
u32 xs_ref_span(xs_ref_t ref, u64 phys);

bool xs_ref_hold(xs_ref_t ref);
bool xs_ref_hold_fast(xs_ref_t ref);
void xs_ref_release(xs_ref_t ref);

/* Of a test of pools, which has the memory; see test_pool.c. */
void xs_copy_in(void *cell, u64 phys, u32 bytes);
void xs_copy_out(u64 phys, const void *cell, u32 bytes);

/* An array of struct xs_counts, one per CPU. */
struct xs_counts;
typedef struct xs_counts xs_counts_t;

xs_counts_t *xs_counts_new(void);
void xs_counts_free(xs_counts_t *counts);
struct xs_counts *xs_counts_of(xs_counts_t *counts, u32 cpu);
#define xs_count_cpu(c)	(xs_counts_of(c, xs_cpu_id())->cpu)
#define xs_count(c, field, n) \
	((void)__atomic_fetch_add(&xs_counts_of(c, test_cpu())->field, n, __ATOMIC_RELAXED))

/* The CPU that the caller is, whether it is bound to it or not. */
u32 test_cpu(void);

#endif
