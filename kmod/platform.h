/* SPDX-License-Identifier: GPL-2.0-only */
/* The platform of <xsmmu/needs.h> in Linux. */
#ifndef XSMMU_PLATFORM_H
#define XSMMU_PLATFORM_H

#include <linux/bug.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/prefetch.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "compat/folio.h"
#include "primitives.h"

typedef struct iommu_iotlb_gather xs_gather_t;
typedef void *xs_ref_t;

/* There is only one backend: calls are direct, and the hot calls inlined. */
struct xs_backend_ops;
extern const struct xs_backend_ops xs_linux_backend;
#define xs_ops(engine)		(&xs_linux_backend)
#define xs_backend(engine)	((void *)(engine))	/* see struct xs_group */

/* Sections of the engine. quiesce() of the backend waits for them, by synchronize_rcu(). */
#define xs_enter()		preempt_disable()
#define xs_exit()		preempt_enable()
#define xs_cpu_id()		((u32)smp_processor_id())

struct xs_counts;
typedef struct xs_counts __percpu xs_counts_t;
#define xs_counts_new()		alloc_percpu(struct xs_counts)
#define xs_counts_free(c)	free_percpu(c)
#define xs_counts_of(c, cpu)	per_cpu_ptr(c, cpu)
#define xs_count_cpu(c)	this_cpu_read((c)->cpu)
#define xs_count(c, field, n)	this_cpu_add((c)->field, n)

#define xs_warn_once(c, text)	WARN_ONCE(c, "xsmmu: %s\n", text)

/* The value of XS_REF_UNHELD, which is declared later; backend.c checks that both are equal. */
#define XS_PLATFORM_UNHELD	((xs_ref_t)2)

/* Checks for device memory with struct pages. If ZONE_DEVICE is the last zone, one bit tells. */
static __always_inline bool xs_is_device(const struct folio *folio)
{
#ifdef CONFIG_ZONE_DEVICE
	if (is_power_of_2(ZONE_DEVICE) && ZONE_DEVICE + 1 == __MAX_NR_ZONES)
		return test_bit(ZONES_PGSHIFT + ilog2(ZONE_DEVICE),
				(const unsigned long *)&folio->flags);
#endif
	return folio_is_zone_device(folio);
}

/*
 * A page is held by a reference of its folio. A reference of a slab folio does not keep the
 * slab's objects, and a device folio may be taken away: these cannot be held. For a page
 * without a reference (frozen, or a tail page of memory that is not a folio), xs_ref_hold()
 * fails.
 */
static __always_inline xs_ref_t xs_memory_ref(struct page *page)
{
	struct folio *folio = page_folio(page);

	if (unlikely(folio_test_slab(folio)) || unlikely(xs_is_device(folio)))
		return XS_PLATFORM_UNHELD;
	return folio;
}

/* Names the memory in a map of one page. */
typedef struct page *xs_memory_t;

#define xs_memory_at(phys)	pfn_to_page((phys) >> PAGE_SHIFT)
#define xs_ref_of(phys)		xs_memory_ref(xs_memory_at(phys))
#define xs_prefetchw(p)		prefetchw(p)

/* Number of pages from @phys to the end of the folio, which is freed as a whole. */
static __always_inline u32 xs_ref_span(xs_ref_t ref, u64 phys)
{
	struct folio *folio = ref;

	return folio_pfn(folio) + folio_nr_pages(folio) - (phys >> PAGE_SHIFT);
}

/*
 * A driver may have freed the page before the unmap, and the page may have another owner. So
 * the reference is taken as a speculative reference.
 */
#define xs_ref_hold(ref)	folio_try_get(ref)

/*
 * folio_try_get() without its guard against page structs that huge pages have given back,
 * where there are none.
 */
static __always_inline bool xs_ref_hold_fast(xs_ref_t ref)
{
	struct folio *folio = ref;

	return !xs_fake_heads() && atomic_inc_not_zero(&folio->_refcount);
}

#define xs_ref_release(ref)	folio_put(ref)

#define xs_copy_in(bounce, phys, bytes)	memcpy(bounce, phys_to_virt(phys), bytes)
#define xs_copy_out(phys, bounce, bytes)	memcpy(phys_to_virt(phys), bounce, bytes)

#endif
