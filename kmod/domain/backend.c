// SPDX-License-Identifier: GPL-2.0-only
/*
 * The operations that the engine needs of Linux (<xsmmu/backend.h>), and the set-up of a
 * backend. Part of path.c.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>

#include "../compat/compat.h"
#include "../debug.h"
#include "../log.h"
#include "../trace.h"
#include "domain.h"

static u64 backend_clock(void *data)
{
	return ktime_get_mono_fast_ns();
}

/* Below 256 bytes, some slab sizes are not multiples of a cache line. */
static void *backend_alloc(void *data, size_t bytes, u32 cpu, bool atomic)
{
	int node = cpu == XS_ANY_CPU ? NUMA_NO_NODE : cpu_to_node(cpu);

	if (xs_fails())
		return NULL;
	if (bytes < 256)
		bytes = roundup_pow_of_two(max_t(size_t, bytes, 64));
	if (atomic)
		return kzalloc_node(bytes, GFP_ATOMIC | __GFP_NOWARN, node);
	return kvzalloc_node(bytes, GFP_KERNEL, node);
}

static void backend_free(void *data, void *memory, size_t bytes)
{
	kvfree(memory);
}

static void backend_flushed(void *data, u32 cpu, u32 cause, u32 pages, u32 ranges,
			    const struct xs_commands *sent, u64 oldest_ns)
{
	struct xs_backend *backend = data;

	if (trace_flush_enabled())
		trace_flush(backend->group_id, cause,
			    pages, ranges, sent->page, sent->domain, oldest_ns);
}

/* Rest of the log line about an unmap that does not match its mapping. */
static const char *said_of_removal(const struct xs_misuse *misuse)
{
	if (misuse->removed < 0)
		return "The IOMMU driver could not remove all of the named pages: see the error about pages that could not be removed.";
	if (misuse->shared)
		return "Some of the named pages have other mappings at the same IOVA, and stay until those are unmapped; devices cannot reach the other named pages.";
	if (misuse->removed == XS_REMOVED_ALL)
		return "The IOMMU driver cannot remove a part of this mapping: the whole mapping is removed and devices cannot reach any of its pages.";
	return "The named pages are removed and devices cannot reach them; the rest stays mapped until the driver unmaps it or is unbound.";
}

/*
 * Warns once for each group, engine and kind of call, because a faulty driver repeats its
 * call. The stack trace names the driver.
 */
static void backend_misuse(void *data, const struct xs_misuse *misuse)
{
	struct xs_backend *backend = data;
	bool *told = misuse->mapped_pages ? &backend->said_torn : &backend->said_ignored;

	if (READ_ONCE(*told))
		return;
	WRITE_ONCE(*told, true);
	if (misuse->mapped_pages)
		WARN(1, "xsmmu: %s: its driver unmaps %u pages at IOVA 0x%llx, but the mapping there is %u pages at IOVA 0x%llx. %s An unmap must have the address and the size of its map: report this trace to the driver's authors\n",
		     backend->name, misuse->pages, misuse->iova,
		     misuse->mapped_pages, misuse->mapped_iova,
		     said_of_removal(misuse));
	else if (misuse->pages)
		WARN(1, "xsmmu: %s: ignored: %s, IOVA 0x%llx, %u pages: nothing is mapped there. Report this trace to the driver's authors\n",
		     backend->name, misuse->what, misuse->iova, misuse->pages);
	else
		WARN(1, "xsmmu: %s: ignored: %s, IOVA 0x%llx. Report this trace to the driver's authors\n",
		     backend->name, misuse->what, misuse->iova);
}

const struct xs_backend_ops xs_linux_backend = {
	.map = backend_map,
	.map_each = backend_map_each,
	.flush_maps = backend_flush_maps,
	.remove = backend_remove,
	.remove_again = backend_remove_again,
	.stuck = backend_stuck,
	.remove_part = backend_remove_part,
	.invalidate = backend_invalidate,
	.gather_init = backend_gather_init,
	.clock = backend_clock,
	.deferred = backend_deferred,
	.alloc = backend_alloc,
	.free = backend_free,
	.quiesce = backend_quiesce,
	.surplus = backend_surplus,
	.prune = backend_prune,
	.add_chunk = chunk_add,
	.drop_chunk = chunk_drop,
	.short_of = chunks_short,
	.misuse = backend_misuse,
	.flushed = backend_flushed,
};

void xs_backend_create(struct xs_backend *backend, int group_id)
{
	backend->group_id = group_id;
	INIT_WORK(&backend->trim, trim_work);
	INIT_DELAYED_WORK(&backend->retry, retry_work);
	INIT_WORK(&backend->grow, grow_work);
	INIT_DELAYED_WORK(&backend->shrink, shrink_work);
	mutex_init(&backend->work_lock);
}

static int cpus_init(struct xs_backend *backend)
{
	u32 cpu;

	backend->cpus = kvcalloc(nr_cpu_ids, sizeof(*backend->cpus), GFP_KERNEL);
	if (!backend->cpus || xs_fails()) {
		kvfree(backend->cpus);
		backend->cpus = NULL;
		return -ENOMEM;
	}
	for (cpu = 0; cpu < nr_cpu_ids; cpu++) {
		struct xs_backend_cpu *at = &backend->cpus[cpu];

		hrtimer_setup(&at->timer, expire, CLOCK_MONOTONIC,
			      HRTIMER_MODE_ABS_PINNED);
		INIT_WORK(&at->home, expire_home);
		spin_lock_init(&at->lock);
		INIT_LIST_HEAD(&at->dirty);
		at->backend = backend;
		at->cpu = cpu;
	}
	return 0;
}

/* Ends timers and works, and frees the per-CPU state. */
static void cpus_exit(struct xs_backend *backend)
{
	u32 cpu;

	forget_all(backend);
	/* The timer may queue the work, which starts no timer without deferred unmaps. */
	for (cpu = 0; cpu < nr_cpu_ids; cpu++) {
		hrtimer_cancel(&backend->cpus[cpu].timer);
		cancel_work_sync(&backend->cpus[cpu].home);
	}
	kvfree(backend->cpus);
	backend->cpus = NULL;
	cancel_work_sync(&backend->trim);
	cancel_work_sync(&backend->grow);
	cancel_delayed_work_sync(&backend->shrink);
	/* Last, because the other works may queue it. */
	cancel_delayed_work_sync(&backend->retry);
}

/*
 * Chooses the window of identity placement (identity.h): it ends at half of the domain, or at 128
 * TiB, which most devices reach. Above are windows of PCI buses (from 256 GiB on in domains of 39
 * bits), and IOVAs that the kernel's own path takes from the top if it finds none below 4 GiB.
 * There is no window if it would leave less than half below. Memory that is added later is outside.
 */
static void choose_window(struct xs_engine_config *engine)
{
	u64 memory = round_up(__pa(high_memory - 1) + 1, SZ_1G);
	u64 end = min(rounddown_pow_of_two(engine->end) / 2, BIT_ULL(47));

	if (end / 2 <= max_t(u64, memory, XS_LOW_LAST) || engine->start > XS_LOW_LAST)
		return;
	engine->identity = end - memory;
	engine->memory_pages = PFN_UP(memory);
	engine->end = engine->identity - XS_BLOCK_BYTES;
}

/*
 * Lets the driver add the levels that the window needs, by a map of an empty page that is removed
 * at once, at an IOVA that the engine does not have. A policy that is chosen later adds them at its
 * first map.
 */
static void grow_table(struct xs_backend *backend)
{
	u64 iova = (backend->engine.identity.first - 1) << PAGE_SHIFT;
	struct iommu_domain *domain = backend->domain.now;
	struct iommu_iotlb_gather gather;
	size_t removed = PAGE_SIZE;
	void *page;

	if (!backend->domain.iommu.grows || !backend->engine.identity.tables)
		return;
	page = (void *)get_zeroed_page(GFP_KERNEL);
	if (!page)
		return;
	if (!iommu_map(domain, iova, virt_to_phys(page), PAGE_SIZE, IOMMU_READ, GFP_KERNEL)) {
		iommu_iotlb_gather_init(&gather);
		removed = iommu_unmap_fast(domain, iova, PAGE_SIZE, &gather);
		iommu_iotlb_sync(domain, &gather);
	}
	if (removed == PAGE_SIZE)
		free_page((unsigned long)page);
}

static const char *engine_init(struct xs_backend *backend,
			       const struct xs_backend_config *config)
{
	const struct iommu_domain_geometry *geometry = &config->domain->geometry;
	struct xs_engine_config engine = {
		.ops = &xs_linux_backend,
		.backend = backend,
		.cpu_count = nr_cpu_ids,
		.policy = config->policy,
		.tuning = config->tuning,
		.start = geometry->aperture_start,
		.end = min(geometry->aperture_end, XS_SPACE_END - 1) + 1,
		.remembers = backend->domain.iommu.kicks || XS_REFUSES,
	};

	choose_window(&engine);
	return xs_engine_init(&backend->engine, &engine) ?
		"no IOVA space or out of memory" : NULL;
}

const char *xs_backend_init(struct xs_backend *backend,
			    const struct xs_backend_config *config)
{
	const char *failure;

	BUILD_BUG_ON(XS_PLATFORM_UNHELD != XS_REF_UNHELD);
	/* Per-CPU memory exists only for possible CPUs. */
	if (num_possible_cpus() != nr_cpu_ids)
		return "the CPU numbers are not contiguous";
	if (cpus_init(backend))
		return "out of memory";
	atomic_set(&backend->sparse, 0);
	backend->was_orphaned = false;
	backend->maps_fail = false;
	backend->said_ignored = false;
	backend->stuck_in = NULL;
	backend->stuck_live = false;
	backend->domain.former = NULL;
	backend->starved = jiffies - STARVED_TICKS;
	backend->said_torn = false;
	backend->node = dev_to_node(config->dev);
	strscpy(backend->name, dev_name(config->dev), sizeof(backend->name));
	spin_lock_init(&backend->sparse_lock);
	backend->domain.now = config->domain;
	backend->domain.tables.on = false;
	backend->domain.tables.off_why = NULL;
	memset(&backend->direct_use, 0, sizeof(backend->direct_use));
	probe_iommu(backend, config);
	failure = engine_init(backend, config);
	if (failure) {
		cpus_exit(backend);
		return failure;
	}
	grow_table(backend);
	begin_direct(backend, config);
	flush_domain(backend);
	return NULL;
}

void xs_backend_exit(struct xs_backend *backend, struct xs_stats *sum)
{
	xs_engine_settle(&backend->engine);
	cpus_exit(backend);
	if (sum)
		xs_engine_leak_check(&backend->engine, sum);
	flush_domain(backend);
	xs_engine_destroy(&backend->engine);
	backend->domain.now = NULL;
}
