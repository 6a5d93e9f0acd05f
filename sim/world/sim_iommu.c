// SPDX-License-Identifier: GPL-2.0-only
/*
 * The backend of the engine: models kmod/domain and the IOMMU driver, with the page table
 * and the queue of this world.
 */
#include <string.h>

#include "sim.h"

/* Extents of a gather, indexed by first page; each entry names the next extent. */
static struct {
	u32 next;
	u32 pages;
} runs[SIM_PAGES];

/* The last invalidation of each CPU, in the task and in interrupts. */
static struct sim_flush asked[SIM_CPUS][2];

/* An invalidation of an earlier run has a later number than the events of this one. */
void sim_iommu_begin(void)
{
	memset(asked, 0, sizeof(asked));
}

static struct sim_flush *asked_now(void)
{
	return &asked[sim_cpu_now()][sim_me->interrupted];
}

static void gather_init(xs_gather_t *gather)
{
	gather->first_page = 0;
	gather->first_table = 0;
	gather->refused = false;
	gather->ready = true;
}

/* ---- entries that are written in place ---- */

/*
 * The pointer that the engine stores for the backend: the last-level table of the block's
 * pages.
 */
static u32 known_table(void *const *entries)
{
	return entries ? (u32)(size_t)xs_load(entries) : 0;
}

static void learn_table(void **entries, u32 page)
{
	if (entries && sim.direct)
		xs_store(entries, (void *)(size_t)table_last(table_directory(page), page));
}

static void tell_entries(u32 page, u32 pages, u64 entry)
{
	sim_event(EV_ENTRY, sim_cpu_now(), page, pages, entry_memory(entry), entry);
	sim_point();
}

static void write_entries(u32 table, u32 page, u32 pages, u64 entry)
{
	for (u32 i = 0; i < pages; i++) {
		table_write(table, page + i, entry);
		tell_entries(page + i, 1, entry);
		entry += 1ULL << ENTRY_MEMORY_SHIFT;
	}
}

/* The word of the block that has the page, for the backend. */
static void *const *entries_of(u32 page)
{
	u64 at = sim_first_page() + page;
	struct xs_block *block;

	if (sim_is_window(page))
		return xs_identity_entries(&sim.engine.identity, at);
	block = xs_space_block(&sim.engine.space, at);
	return block ? &block->entries : NULL;
}

/*
 * Clear entries in place, block by block, from the first on. Returns the number of cleared
 * entries.
 */
static u32 clear_entries(u32 page, u32 pages)
{
	u32 done = 0;

	/* A range that covers a whole table goes to the driver, which frees the table. */
	while (sim.direct && done < pages && pages < 1u << sim.config.table_lg2) {
		u32 at = page + done, room = XS_BLOCK_PAGES - at % XS_BLOCK_PAGES;
		u32 table = known_table(entries_of(at));

		if (!table)
			break;
		for (u32 end = room < pages - done ? at + room : page + pages; at < end; at++)
			table_write(table, at, 0);
		done = at - page;
	}
	return done;
}

/* Returns the entry to write for the first page of a map. */
static u64 new_entry(u64 iova, u64 phys, u32 pages, u32 prot)
{
	if (phys & (XS_PAGE_BYTES - 1) || !sim_is_inside(iova, pages))
		sim_fail("exact", "%u pages are mapped at %llx", pages, (unsigned long long)iova);
	return prot | phys >> XS_PAGE_LG2 << ENTRY_MEMORY_SHIFT |
	       (u64)++sim.map_serial << ENTRY_SERIAL_SHIFT;
}

/*
 * As in kmod/domain: no driver call may cover a whole table, because the driver would
 * replace the table by one large entry. Removes entries left by an error; devices may have used
 * them.
 */
static int map_in_steps(u32 page, u32 pages, u64 entry)
{
	u32 half = 1u << sim.config.table_lg2 >> 1, done = 0, step;
	xs_gather_t gather;

	for (; done < pages; done += step) {
		step = half - (page + done) % half;
		if (step > pages - done)
			step = pages - done;
		if (table_map(page + done, step, entry))
			break;
		tell_entries(page + done, step, entry);
		entry += (u64)step << ENTRY_MEMORY_SHIFT;
	}
	if (done == pages)
		return 0;
	gather_init(&gather);
	if (done)
		table_remove(&gather, page, done);
	queue_flush(NULL, false);
	if (done)
		sim_event(EV_UNDONE, sim_cpu_now(), page, done, 0, 0);
	table_free(&gather);
	return -XS_ENOMEM;
}

static int iommu_map(void *world, void **entries, u64 iova, u64 phys, u32 pages, u32 prot)
{
	u32 page = sim_page_of(iova);
	struct xs_range range = { page, pages };
	u32 table = known_table(entries);
	bool flushed = !(prot & XS_MAP_UNFLUSHED);
	u64 entry;

	(void)world;
	sim_point();
	/* A device may have accessed the page a moment ago. */
	if (sim.config.caching && !flushed)
		cache_absence(page, pages);
	if (!flushed) {
		sim_me->unflushed.maps++;
		sim_me->unflushed.pages += pages;
	}
	entry = new_entry(iova, phys, pages, prot & ~XS_MAP_UNFLUSHED);
	if (table) {
		write_entries(table, page, pages, entry);
	} else {
		if (map_in_steps(page, pages, entry))
			return -XS_ENOMEM;
		learn_table(entries, page);
	}
	if (sim.config.caching && flushed)
		queue_flush(&range, true);
	return 0;
}

/* As in kmod/domain: one command for each range. */
static void iommu_sync_maps(void *world, const struct xs_range *ranges, u32 count)
{
	(void)world;
	sim_point();
	if (!count || !sim.config.caching)
		sim_fail("sent", "maps are flushed in %u ranges", count);
	for (u32 i = 0; i < count; i++) {
		struct xs_range range = ranges[i];

		range.page -= sim_first_page();
		if (!range.pages || range.page + range.pages > sim.config.blocks * XS_BLOCK_PAGES)
			sim_fail("sent", "maps are flushed where none can be");
		queue_flush(&range, true);
	}
	sim_event(EV_MAP_FLUSH, sim_cpu_now(), 0, count, sim_me->map != 0,
		  (u64)(size_t)&sim_me->unflushed);
	if (sim_me->map)
		sim_me->unflushed = (struct sim_unflushed) { 0 };
}

static bool iommu_map_each(void *world, void **entries, u64 iova, const u64 *phys, u32 pages,
			   u32 prot)
{
	u32 table = known_table(entries);

	(void)world;
	sim_point();
	if (!table || sim.config.caching)
		return false;
	for (u32 i = 0; i < pages; i++, iova += XS_PAGE_BYTES)
		if (phys[i] != XS_PHYS_NONE)
			write_entries(table, sim_page_of(iova), 1,
				      new_entry(iova, phys[i], 1, prot));
	return true;
}

/* Does this removal fail? Later removals may fail too. */
static bool refuses(void)
{
	if (sim.calm)
		return false;
	if (!sim.refusals && sim_fault(FAULT_REMOVE)) {
		sim.refusals = 1;
		if (!sim_draw(3))
			sim.refusals += sim_draw(8);
		else if (!sim_draw(4))
			sim.refusals = ~0u;
	}
	if (!sim.refusals)
		return false;
	sim.refusals -= sim.refusals != ~0u;
	return true;
}

static void stuck(void *world, u64 iova, u64 pages)
{
	u32 page = sim_page_of(iova);

	(void)world;
	if (!sim_is_inside(iova, pages))
		sim_fail("exact", "%u pages are stuck at %llx", (u32)pages,
			 (unsigned long long)iova);
	memset(sim.stuck + page, true, pages);
	sim.retry_due = true;
	sim_event(EV_STUCK, sim_cpu_now(), page, (u32)pages, 0, 0);
}

/* The extent is removed; the invalidation of @gather flushes the extent. */
static void gather_run(xs_gather_t *gather, u32 page, u32 pages)
{
	runs[page].next = gather->first_page;
	runs[page].pages = pages;
	gather->first_page = page;
}

static int iommu_remove(void *world, xs_gather_t *gather, u64 iova, u64 pages)
{
	u32 page = sim_page_of(iova), cleared;

	(void)world;
	sim_point();
	if (!gather->ready || !sim_is_inside(iova, pages))
		sim_fail("exact", "%u pages are removed at %llx", (u32)pages,
			 (unsigned long long)iova);
	if (refuses()) {
		gather->refused = true;
		return -XS_ENOMEM;
	}
	sim_event(EV_REMOVED, sim_cpu_now(), page, (u32)pages, 0, 0);
	cleared = clear_entries(page, (u32)pages);
	sim_worked((u32)pages);
	table_remove(gather, page + cleared, (u32)pages - cleared);
	gather_run(gather, page, (u32)pages);
	sim_point();
	return 0;
}

/* May take long: must not run inside a call that others wait for, nor without interrupts. */
static int iommu_remove_again(void *world, xs_gather_t *gather, u64 iova, u64 pages)
{
	u32 page = sim_page_of(iova), cleared;

	(void)world;
	if (sim_me->entered || sim_me->off)
		sim_fail("bound", "what is stuck is removed inside a call of the engine");
	sim_point();
	for (u32 i = page; i < page + pages; i++)
		if (!sim.stuck[i])
			sim_fail("exact", "IOVA page %u is removed again, and was not stuck", i);
	if (sim.refusals == ~0u && !sim_draw(4))
		sim.refusals = 0;
	if (refuses())
		return -XS_ENOMEM;
	sim_event(EV_REMOVED, sim_cpu_now(), page, (u32)pages, 0, 0);
	cleared = clear_entries(page, (u32)pages);
	table_remove(gather, page + cleared, (u32)pages - cleared);
	gather_run(gather, page, (u32)pages);
	memset(sim.stuck + page, false, pages);
	sim.unstuck += pages;
	sim_point();
	return 0;
}

/* Remove a part of a mapping, in place where the table is known, else by the driver. */
static int iommu_remove_part(void *world, xs_gather_t *gather, const struct xs_range *part,
			     const struct xs_range *whole)
{
	u32 page = (u32)(part->page - sim_first_page()), pages = (u32)part->pages;
	u32 cleared = 0;

	(void)world;
	sim_point();
	if (!gather->ready || !sim_is_inside(part->page << XS_PAGE_LG2, pages) ||
	    part->page < whole->page || part->page + pages > whole->page + whole->pages)
		sim_fail("exact", "%u pages of a mapping are removed at page %u", pages, page);
	if (refuses())
		return -XS_ENOMEM;
	sim_event(EV_PART_REMOVED, sim_cpu_now(), page, pages, 0, 0);
	if (sim_draw(2))
		cleared = clear_entries(page, pages);
	sim_worked(pages);
	table_remove(gather, page + cleared, pages - cleared);
	sim_point();
	return 0;
}

/* Can one command cover exactly this range? */
static bool exact_unmap(const struct xs_range *range)
{
	return !(range->pages & (range->pages - 1)) && !(range->page & (range->pages - 1));
}

/* Record the requested invalidation. */
static void note(const xs_gather_t *gather, const struct xs_range *ranges, u32 count)
{
	u64 blocks[(SIM_PAGES / XS_BLOCK_PAGES + 64) / 64] = { 0 };
	struct sim_flush *flush = asked_now();

	memset(flush, 0, sizeof(*flush));
	flush->ranges = count;
	flush->since = sim.events;
	flush->exact = true;
	for (u32 i = 0; i < count; i++)
		flush->exact &= exact_unmap(&ranges[i]);
	for (u32 page = gather->first_page; page; page = runs[page].next) {
		u32 last = (page + runs[page].pages - 1) / XS_BLOCK_PAGES;

		flush->page = page;
		for (u32 at = page / XS_BLOCK_PAGES; at <= last; at++)
			blocks[at / 64] |= 1ULL << at % 64;
	}
	for (u32 i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
		flush->blocks += xs_popcount(blocks[i]);
	flush->tables = gather->first_table != 0;
	flush->refused = gather->refused;
}

/*
 * As in kmod/domain: a range keeps the page-walk caches (the hint) unless the gather frees
 * tables. With several ranges, only a domain command drops cached references to the freed
 * tables.
 */
static void flush(xs_gather_t *gather, const struct xs_range *ranges, u32 count,
		  struct xs_commands *sent)
{
	bool frees = gather->first_table;

	if (count == 0 || (count > 1 && frees)) {
		queue_flush(NULL, false);
		sent->domain++;
		sim.commands_domain++;
		if (!frees)
			return;
		count = 1;
	}
	for (u32 i = 0; i < count; i++) {
		struct xs_range range = { 0, 1 };

		if (!sent->domain) {
			range = ranges[i];
			range.page -= sim_first_page();
		}
		queue_flush(&range, !frees);
		sent->page++;
		sim.commands_page++;
	}
}

static void iommu_invalidate(void *world, xs_gather_t *gather, const struct xs_range *ranges,
			     u32 count, struct xs_commands *sent)
{
	(void)world;
	sim_point();
	note(gather, ranges, count);
	flush(gather, ranges, count, sent);
	while (gather->first_page) {
		u32 page = gather->first_page;

		gather->first_page = runs[page].next;
		sim_event(EV_FLUSHED, sim_cpu_now(), page, runs[page].pages, 0, 0);
	}
	table_free(gather);
	gather->ready = false;
	sim_point();
}

/*
 * Free the tables of empty IOVAs: unlink the tables and invalidate cached references. A
 * concurrent map there would be lost, which check/exact.c would detect.
 */
static void prune(void *world, u64 iova, u64 pages)
{
	struct xs_range range = { sim_page_of(iova), pages };
	u64 end = sim_is_window(range.page) ? sim_end_page() :
					      sim.config.blocks * XS_BLOCK_PAGES;
	xs_gather_t gather;

	(void)world;
	sim_point();
	if (range.page + range.pages > end)
		range.pages = end - range.page;
	gather_init(&gather);
	table_remove(&gather, (u32)range.page, (u32)range.pages);
	queue_flush(&range, false);
	table_free(&gather);
	sim_point();
}

/*
 * Take the invalidation of the flush that is reported. A flush of a batch runs without interrupts:
 * an earlier invalidation is not the flush's, and the flush has removed nothing.
 */
static struct sim_flush take_asked(u32 cause)
{
	static const struct sim_flush nothing = { .nothing = true, .exact = true };
	struct sim_flush flush = *asked_now();

	*asked_now() = nothing;
	if (cause != XS_FLUSH_UNMAP && flush.since < sim_me->off_since_events)
		flush = nothing;
	return flush;
}

static void flushed(void *world, u32 cpu, u32 cause, u32 pages, u32 ranges,
		    const struct xs_commands *sent, u64 oldest_ns)
{
	struct sim_flush flush = take_asked(cause);

	(void)world;
	if (cpu >= sim.config.cpus || cause >= XS_FLUSH_COUNT || !pages ||
	    ranges != flush.ranges ||
	    flush.nothing == (sent->page + sent->domain + sent->global > 0))
		sim_fail("accounts", "a flush of CPU %u, cause %u, flushed %u pages", cpu, cause, pages);
	sim.flushes[cause]++;
	flush.cause = cause;
	flush.causes = sim_me->causes;
	flush.cpu = cpu;
	flush.pages = pages;
	flush.sent = *sent;
	flush.age_ns = oldest_ns;
	flush.map = sim_me->map;
	flush.map_began_ns = sim_me->map_began_ns;
	flush.since = sim_me->off_since_events;
	sim_event(EV_FLUSH, sim_cpu_now(), 0, 0, 0, (u64)(size_t)&flush);
}

static void misuse(void *world, const struct xs_misuse *call)
{
	(void)world;
	if (!sim_me->straying)
		sim_fail("accounts", "the engine says that no driver can mean %s, at 0x%llx",
			 call->what, (unsigned long long)call->iova);
	sim_me->warnings++;
}

static void surplus(void *world)
{
	(void)world;
	sim.trim_due = true;
}

const struct xs_backend_ops sim_ops = {
	.map = iommu_map,
	.map_each = iommu_map_each,
	.flush_maps = iommu_sync_maps,
	.remove = iommu_remove,
	.remove_again = iommu_remove_again,
	.stuck = stuck,
	.remove_part = iommu_remove_part,
	.invalidate = iommu_invalidate,
	.gather_init = gather_init,
	.clock = time_clock,
	.deferred = time_deferred,
	.alloc = memory_alloc,
	.free = memory_free,
	.quiesce = cpus_quiesce,
	.surplus = surplus,
	.prune = prune,
	.add_chunk = copy_add_chunk,
	.drop_chunk = copy_drop_chunk,
	.short_of = copy_short_of,
	.misuse = misuse,
	.flushed = flushed,
};
