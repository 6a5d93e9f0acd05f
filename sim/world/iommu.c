// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine's world: what kmod/world.c and the IOMMU driver below it do,
 * with the page table and the queue of this world.
 */
#include "world.h"

/* Runs that a gather has, by their first page: each names the next one. */
static struct {
	u32 next;
	u32 pages;
} runs[SIM_PAGES];

static int iommu_map(void *world, u64 iova, u64 phys, u32 pages, u32 prot)
{
	u32 page = (u32)(iova >> XS_PAGE_LG2);
	struct xs_range range = { page, pages };
	u64 entry;

	(void)world;
	sim_point();
	if ((iova | phys) & (XS_PAGE_BYTES - 1) || !pages ||
	    page + pages > sim.config.blocks * XS_BLOCK_PAGES)
		sim_fail("exact", "%u pages are mapped at %llx", pages, (unsigned long long)iova);
	entry = prot | phys >> XS_PAGE_LG2 << ENTRY_MEMORY_SHIFT |
		(u64)++sim.map_serial << ENTRY_SERIAL_SHIFT;
	if (table_map(page, pages, entry))
		return -XS_ENOMEM;
	sim_event(EV_ENTRY, sim_cpu_now(), page, pages, (u32)(phys >> XS_PAGE_LG2), entry);
	sim_point();
	if (sim.config.caching)
		queue_flush(&range, true);
	return 0;
}

static void iommu_remove(void *world, xs_gather_t *gather, u64 iova, u64 pages)
{
	u32 page = (u32)(iova >> XS_PAGE_LG2);

	(void)world;
	sim_point();
	if (!gather->ready || iova & (XS_PAGE_BYTES - 1) || !pages ||
	    page + pages > sim.config.blocks * XS_BLOCK_PAGES)
		sim_fail("exact", "%u pages are removed at %llx", (u32)pages,
			 (unsigned long long)iova);
	sim_event(EV_REMOVED, sim_cpu_now(), page, (u32)pages, 0, 0);
	table_remove(gather, page, (u32)pages);
	runs[page].next = gather->first_page;
	runs[page].pages = (u32)pages;
	gather->first_page = page;
	sim_point();
}

/*
 * As in kmod/world.c: a range keeps the page-walk caches (the hint) unless the
 * gather frees tables; of several ranges only the whole domain drops what the
 * freed tables may be cached by.
 */
static void flush(xs_gather_t *gather, const struct xs_range *ranges, u32 count,
		  struct xs_commands *sent)
{
	static const struct xs_range any = { 0, 1 };
	bool frees = gather->first_table;

	if (count == 0 || (count > 1 && frees)) {
		queue_flush(NULL, false);
		sent->domain++;
		sim.commands_domain++;
		if (!frees)
			return;
		ranges = &any;
		count = 1;
	}
	for (u32 i = 0; i < count; i++) {
		queue_flush(&ranges[i], !frees);
		sent->page++;
		sim.commands_page++;
	}
}

static void iommu_invalidate(void *world, xs_gather_t *gather, const struct xs_range *ranges,
			     u32 count, struct xs_commands *sent)
{
	(void)world;
	sim_point();
	flush(gather, ranges, count, sent);
	while (gather->first_page) {
		u32 page = gather->first_page;

		gather->first_page = runs[page].next;
		sim_event(EV_SYNCED, sim_cpu_now(), page, runs[page].pages, 0, 0);
	}
	table_free(gather);
	gather->ready = false;
	sim_point();
}

static void gather_init(xs_gather_t *gather)
{
	gather->first_page = 0;
	gather->first_table = 0;
	gather->ready = true;
}

static void synced(void *world, u32 cpu, u32 cause, u32 pages, u32 ranges,
		   const struct xs_commands *sent, u64 oldest_ns)
{
	(void)world;
	(void)ranges;
	(void)oldest_ns;
	if (cpu >= sim.config.cpus || cause >= XS_SYNC_COUNT || !pages ||
	    !(sent->page + sent->domain + sent->global))
		sim_fail("accounts", "a sync of CPU %u, cause %u, synced %u pages", cpu, cause, pages);
	sim.syncs++;
}

const struct xs_world_ops sim_ops = {
	.map = iommu_map,
	.remove = iommu_remove,
	.invalidate = iommu_invalidate,
	.gather_init = gather_init,
	.clock = time_clock,
	.deferred = time_deferred,
	.alloc = memory_alloc,
	.free = memory_free,
	.synced = synced,
};
