// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds misuse of the functions for batch-aware drivers, with the parameter debug=1.
 *
 * Memory that is unmapped without a flush is held by a reference until the flush of the
 * device. A driver that frees the memory too early does no harm then, and is found because
 * nobody else has a reference. If memory waits long, the driver has forgotten the flush or has
 * flushed another device. Memory of kmalloc() has no references and is not watched.
 *
 * A mapping without a map-side flush is recorded until the flush, on all IOMMUs, also where no
 * flush is needed. An error path may unmap the mapping before the flush. But an unmap without
 * a flush is only for mappings that the device has finished with, so before the map-side flush
 * it shows a forgotten flush.
 *
 * At most WATCHED_MAX pages and WATCHED_MAX mappings are recorded at a time; others go
 * unchecked.
 */
#include <linux/mm.h>
#include <linux/timekeeping.h>

#include "instance.h"
#include "misuse.h"

#define WATCHED_MAX	1024
#define LATE_NS		NSEC_PER_SEC

/* A page that waits for the flush of @dev. */
struct watched {
	struct device *dev;
	struct folio *folio;
	u64 since_ns;
};

static DEFINE_SPINLOCK(watched_lock);
static struct watched watched[WATCHED_MAX];
static u32 watched_count;

static u32 own_references(const struct folio *folio)
{
	u32 found = 0;
	u32 i;

	for (i = 0; i < watched_count; i++)
		found += watched[i].folio == folio;
	return found;
}

static void forget(u32 at)
{
	folio_put(watched[at].folio);
	watched[at] = watched[--watched_count];
}

static void warn_late(struct device *dev)
{
	dev_err_ratelimited(dev, "xsmmu: misuse: a deferred unmap was not flushed within a second: did the driver flush another device?\n");
}

/* Signed, because another CPU may have read the clock later and come first. */
static bool is_late(const struct watched *at, u64 now_ns)
{
	return (s64)(now_ns - at->since_ns) >= LATE_NS;
}

/* Forgets pages that have waited too long, and all pages that wait for @flushed. */
static void forget_due(struct device *flushed, u64 now_ns)
{
	u32 i = 0;

	while (i < watched_count) {
		struct watched *at = &watched[i];

		if (is_late(at, now_ns)) {
			warn_late(at->dev);
		} else if (at->dev != flushed) {
			i++;
			continue;
		} else if (folio_ref_count(at->folio) <=
			   own_references(at->folio)) {
			dev_err_ratelimited(at->dev, "xsmmu: misuse: memory was freed before its flush\n");
		}
		forget(i);
	}
}

static void watch(struct device *dev, phys_addr_t phys, u64 now_ns)
{
	struct folio *folio;

	if (!phys || !pfn_valid(PHYS_PFN(phys)) ||
	    watched_count == WATCHED_MAX)
		return;
	folio = page_folio(pfn_to_page(PHYS_PFN(phys)));
	if (folio_test_slab(folio) || xs_is_large_kmalloc(folio))
		return;
	if (!folio_try_get(folio)) {
		dev_err_ratelimited(dev, "xsmmu: misuse: memory was freed before its unmap\n");
		return;
	}
	watched[watched_count].dev = dev;
	watched[watched_count].folio = folio;
	watched[watched_count++].since_ns = now_ns;
}

/* ---- maps ---- */

/*
 * A mapping of @dev that waits for its flush. @cpu: CPU of the map. @phys: tells whether the
 * mapping still exists, because ordinary unmaps are not recorded.
 */
struct fresh {
	struct device *dev;
	u64 iova;
	phys_addr_t phys;
	u64 since_ns;
	u32 cpu;
};

static struct fresh fresh[WATCHED_MAX];
static u32 fresh_count;

static void forget_fresh(u32 at)
{
	fresh[at] = fresh[--fresh_count];
}

/* Also 0 if the device was detached. */
static phys_addr_t phys_at(struct device *dev, u64 iova)
{
	struct xs_backend *backend = xs_backend_now(dev);

	return backend ? iommu_iova_to_phys(backend->domain.now, iova) : 0;
}

static bool is_there(const struct fresh *at)
{
	return at->phys && phys_at(at->dev, at->iova) == at->phys;
}

static void warn_unflushed(const struct fresh *at)
{
	if (is_there(at))
		dev_err_ratelimited(at->dev, "xsmmu: misuse: an unflushed map was not flushed within a second: did the driver flush another device, or on another CPU?\n");
}

static void forget_late_fresh(u64 now_ns)
{
	u32 i = 0;

	while (i < fresh_count) {
		if ((s64)(now_ns - fresh[i].since_ns) < LATE_NS) {
			i++;
			continue;
		}
		warn_unflushed(&fresh[i]);
		forget_fresh(i);
	}
}

void xs_debug_map(struct device *dev, u64 iova)
{
	u64 now_ns = ktime_get_mono_fast_ns();
	unsigned long flags;

	spin_lock_irqsave(&watched_lock, flags);
	forget_late_fresh(now_ns);
	if (fresh_count < WATCHED_MAX) {
		struct fresh *at = &fresh[fresh_count++];

		at->dev = dev;
		at->iova = iova;
		at->phys = phys_at(dev, iova);
		at->since_ns = now_ns;
		at->cpu = smp_processor_id();
	}
	spin_unlock_irqrestore(&watched_lock, flags);
}

void xs_debug_flush_maps(struct device *dev, bool all_cpus)
{
	unsigned long flags;
	u32 i = 0;

	spin_lock_irqsave(&watched_lock, flags);
	while (i < fresh_count) {
		if (fresh[i].dev == dev &&
		    (all_cpus || fresh[i].cpu == smp_processor_id()))
			forget_fresh(i);
		else
			i++;
	}
	spin_unlock_irqrestore(&watched_lock, flags);
}

/*
 * Forgets mappings that begin in [@iova, @end), which are about to be unmapped without a
 * flush.
 */
static void forget_unmapped(struct device *dev, u64 iova, u64 end)
{
	u32 i = 0;

	while (i < fresh_count) {
		if (fresh[i].dev != dev || fresh[i].iova < iova ||
		    fresh[i].iova >= end) {
			i++;
			continue;
		}
		if (is_there(&fresh[i]))
			dev_err_ratelimited(dev, "xsmmu: misuse: a deferred unmap of an unflushed map: the driver never flushed the map\n");
		forget_fresh(i);
	}
}

/* ---- unmaps ---- */

void xs_debug_unmap(struct device *dev, u64 iova, u64 bytes)
{
	u64 end = iova + min_t(u64, bytes, WATCHED_MAX * PAGE_SIZE);
	u64 now_ns = ktime_get_mono_fast_ns();
	unsigned long flags;

	spin_lock_irqsave(&watched_lock, flags);
	forget_due(NULL, now_ns);
	forget_late_fresh(now_ns);
	forget_unmapped(dev, iova & PAGE_MASK, end);
	for (iova &= PAGE_MASK; iova < end; iova += PAGE_SIZE)
		watch(dev, iommu_iova_to_phys(xs_backend_of(dev)->domain.now, iova),
		      now_ns);
	spin_unlock_irqrestore(&watched_lock, flags);
}

void xs_debug_flush(struct device *dev)
{
	unsigned long flags;

	if (likely(!READ_ONCE(watched_count)))
		return;
	spin_lock_irqsave(&watched_lock, flags);
	forget_due(dev, ktime_get_mono_fast_ns());
	spin_unlock_irqrestore(&watched_lock, flags);
}

void xs_debug_forget(struct device *dev)
{
	unsigned long flags;
	u32 i = 0;

	spin_lock_irqsave(&watched_lock, flags);
	while (i < watched_count) {
		if (watched[i].dev != dev) {
			i++;
			continue;
		}
		warn_late(dev);
		forget(i);
	}
	for (i = 0; i < fresh_count;) {
		if (fresh[i].dev == dev)
			forget_fresh(i);
		else
			i++;
	}
	spin_unlock_irqrestore(&watched_lock, flags);
}
