// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine's backend in Linux: page tables and invalidations of the group's default domain,
 * the clock, and the two flush points that come from outside the engine: the end of a NAPI
 * poll and a timer.
 *
 * Invalidations go through the IOMMU driver's own iotlb_sync() and flush_iotlb_all(), so they
 * are right on every IOMMU that Linux drives. The backend counts the commands by kind, from
 * the driver's documented choices; the lab compares the counts with those of the hardware
 * model.
 */
#include <linux/cpu.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>
#include <trace/events/napi.h>

#include "compat/compat.h"
#include "xsmmu.h"
#include "trace.h"

/* Groups with deferred unmaps that the end of this CPU's next NAPI poll flushes. */
static DEFINE_PER_CPU(struct list_head, xs_dirty);

/* The log names at most this many mappings of an orphaned group. */
#define NAMED_MAX	8

/* ---- blocking domain ---- */

/*
 * The domain of an orphaned group. The group's own domain may change or go. The mappings were
 * removed from the own domain: in the blocking domain maps fail, unmaps find nothing, and
 * nothing is sent.
 */
static int blocked_map(struct iommu_domain *domain, unsigned long iova,
		       phys_addr_t phys, size_t page_bytes, size_t pages,
		       int prot, gfp_t gfp, size_t *mapped)
{
	return -ENODEV;
}

static size_t blocked_unmap(struct iommu_domain *domain, unsigned long iova,
			    size_t page_bytes, size_t pages,
			    struct iommu_iotlb_gather *gather)
{
	return 0;
}

static phys_addr_t blocked_phys(struct iommu_domain *domain, dma_addr_t iova)
{
	return 0;
}

static const struct iommu_domain_ops blocked_ops = {
	.map_pages = blocked_map,
	.unmap_pages = blocked_unmap,
	.iova_to_phys = blocked_phys,
};

static struct iommu_domain blocked = {
	.type = __IOMMU_DOMAIN_PAGING,
	.ops = &blocked_ops,
	.pgsize_bitmap = PAGE_SIZE,
};

bool xs_backend_is_blocked(const struct xs_group *group)
{
	return group->domain == &blocked;
}

/* ---- page table ---- */

/*
 * Drivers write one large entry where a call covers a whole page-table page and the memory is
 * aligned as the IOVAs are. An empty page-table page may be in the way of the large entry:
 * VT-d's driver up to 6.12 frees the page before the invalidation, and VT-d's driver of 7.x
 * sends a command that the module cannot count. So a call covers at most half of a page-table
 * page. On VT-d up to 6.12 a call covers more where no page-table page is in the way, but
 * never all that a page-table page of the next level covers.
 */
#define TABLE_PAGES		((u32)(PAGE_SIZE / sizeof(u64)))
#define MAP_PAGES_MAX		(TABLE_PAGES / 2)
#define MAP_LARGE_MAX		(TABLE_PAGES * MAP_PAGES_MAX)

/* Maps the first part of a range in one call of the driver. */
static __always_inline int map_some(struct xs_group *group, bool generic,
				    xs_map_pages_t map_pages, u64 iova,
				    u64 phys, u64 pages, u32 prot,
				    size_t *mapped)
{
	struct iommu_domain *domain = group->domain;

	if (xs_have_generic_pt() && generic)
		return xs_domain_map_generic(domain, iova, phys,
					     pages << PAGE_SHIFT, prot, mapped);
	return map_pages(domain, iova, phys, PAGE_SIZE, pages, prot, GFP_ATOMIC,
			 mapped);
}

/*
 * Number of pages, at most @pages, that the driver may map in one call; memory is aligned as
 * the IOVAs are. No last-level table comes or goes here meanwhile: nobody else has these
 * IOVAs.
 */
static u64 pages_at_once(struct xs_group *group, u64 iova, u64 pages)
{
	u64 page = iova >> PAGE_SHIFT;
	u64 large = min_t(u64, pages, MAP_LARGE_MAX - page % MAP_LARGE_MAX);
	u64 bytes = round_down(large, TABLE_PAGES) << PAGE_SHIFT;

	pages = min_t(u64, pages, MAP_PAGES_MAX - page % MAP_PAGES_MAX);
	if (!group->root.format || page % TABLE_PAGES || !bytes)
		return pages;
	for (u64 at = iova; at < iova + bytes; at += TABLE_PAGES << PAGE_SHIFT)
		if (xs_root_entry(&group->root, at) &&
		    xs_backend_prune(group, at, TABLE_PAGES))
			return pages;
	return bytes >> PAGE_SHIFT;
}

/*
 * Maps the rest of a range, of which @mapped bytes are mapped. A driver may map less than
 * requested: SMMUv3's driver stops at the end of a table. After an error a driver may have
 * mapped more than it reports: VT-d's driver, if a further table could not be allocated. Does
 * not call iommu_map(), whose large entries cannot be removed as single pages.
 */
static noinline int map_rest(struct xs_group *group, bool generic,
			     xs_map_pages_t map_pages, u64 iova, u64 phys,
			     size_t bytes, u32 prot, size_t mapped, int error)
{
	bool is_aligned_alike = ((iova ^ phys) >> PAGE_SHIFT) % TABLE_PAGES == 0;

	while (!error && mapped < bytes) {
		u64 pages = (bytes - mapped) >> PAGE_SHIFT;
		u64 at = iova + mapped;
		size_t more = 0;

		if (is_aligned_alike)
			pages = pages_at_once(group, at, pages);
		error = map_some(group, generic, map_pages, at, phys + mapped,
				 pages, prot, &more);
		if (!error && !more)
			error = -ENOMEM;
		mapped += more;
	}
	if (error && xs_backend_sweep(group, iova, bytes >> PAGE_SHIFT))
		error = XS_MAP_LEFT;
	return error;
}

static __always_inline int map_table(struct xs_group *group, bool generic,
				     xs_map_pages_t map_pages, u64 iova,
				     u64 phys, u32 pages, u32 prot)
{
	size_t bytes = (size_t)pages << PAGE_SHIFT;
	size_t mapped = 0;
	int error = 0;

	BUILD_BUG_ON(XS_BLOCK_PAGES > MAP_PAGES_MAX);
	if (xs_fails())
		return -ENOMEM;
	/* A block never covers a whole page-table page. */
	if (pages <= XS_BLOCK_PAGES)
		error = map_some(group, generic, map_pages, iova, phys, pages,
				 prot, &mapped);
	if (likely(mapped == bytes))
		return 0;
	/* A single page cannot be mapped in part. */
	if (__builtin_constant_p(pages) && pages == 1)
		return error ? error : -ENOMEM;
	return map_rest(group, generic, map_pages, iova, phys, bytes, prot,
			mapped, error);
}

void xs_backend_count_map_flush(struct xs_group *group,
				const struct xs_range *range)
{
	struct xs_commands sent = { };

	xs_iommu_count(&group->iommu, range, &sent);
	atomic64_inc(&group->map_flushes);
	atomic64_add(sent.page, &group->other_commands.page);
	atomic64_add(sent.domain, &group->other_commands.domain);
}

static __always_inline int flush_maps(struct xs_group *group, u64 iova,
				      u64 pages)
{
	struct xs_range range = { iova >> PAGE_SHIFT, pages };
	struct iommu_domain *domain = READ_ONCE(group->domain);
	int error;

	if (unlikely(domain == &blocked))
		return -ENODEV;
	error = xs_domain_sync_map(domain, iova, pages << PAGE_SHIFT);
	if (!error)
		xs_backend_count_map_flush(group, &range);
	return error;
}

u32 xs_backend_map_unflushed(const struct xs_group *group)
{
	return group->iommu.flushes_maps ? XS_MAP_UNFLUSHED : 0;
}

int xs_backend_flush_maps(struct xs_group *group, u64 iova, u32 pages)
{
	return group->iommu.flushes_maps ? flush_maps(group, iova, pages) : 0;
}

/*
 * Where maps are requests that wait in a queue, one flush sends all requests. No supported
 * IOMMU driver fails here; if a driver failed, devices would fault.
 */
static void world_flush_maps(void *backend, const struct xs_range *ranges,
			     u32 count)
{
	struct xs_group *group = backend;
	int error = 0;

	if (!group->iommu.flushes_maps)
		return;
	if (group->iommu.kicks)
		count = 1;
	for (u32 i = 0; i < count && !error; i++)
		error = flush_maps(group, ranges[i].page << PAGE_SHIFT,
				   ranges[i].pages);
	WARN_ONCE(error, "xsmmu: %s: maps are not flushed: %d\n", group->name,
		  error);
}

/* ---- direct tables ---- */

/*
 * Selects the domain operation for the map fast path; NULL if a map needs more than that
 * operation.
 */
static void choose_maps(struct xs_group *group)
{
	bool plain = group->is_known && !group->iommu.flushes_maps &&
		     !READ_ONCE(group->tables.on);
	bool generic = plain && xs_domain_is_generic(group->domain);

	WRITE_ONCE(group->map_pages,
		   plain && !generic ? group->domain->ops->map_pages : NULL);
	WRITE_ONCE(group->maps_generic, generic);
}

/*
 * Ends direct tables after an unexpected finding; the driver's operations take over. Context:
 * any.
 */
static noinline void end_direct(struct xs_group *group, const char *why)
{
	if (!xchg(&group->tables.on, false))
		return;
	xs_tables_forget(&group->tables);
	choose_maps(group);
	pr_warn("%s: page tables are not written in place any more: %s\n",
		group->name, why);
}

static u64 *entry_of(void *entries, u64 iova)
{
	u64 *first = (u64 *)((unsigned long)entries | XS_ENTRIES_TRIED);

	return first + (iova >> PAGE_SHIFT) % XS_BLOCK_PAGES;
}

/*
 * Learns from the entry of the first page, which the driver has mapped, where the entries of
 * the block are and which bits they have.
 */
static void learn_entries(struct xs_group *group, void **entries, u64 iova,
			  u64 phys, u32 prot)
{
	u64 *entry = xs_root_entry(&group->tables.root, iova);
	u64 found = entry ? READ_ONCE(*entry) : 0;
	const char *why = "an entry is not where it should be";
	unsigned long first;

	if (entry)
		why = xs_tables_learn(&group->tables, found, phys, prot);
	if (why) {
		end_direct(group, why);
		return;
	}
	if (!group->iommu.flushes_maps)
		WRITE_ONCE(group->tables.only[xs_tables_kind(prot)],
			   group->tables.bits[xs_tables_kind(prot)]);
	/*
	 * Pairs with xchg() in end_direct(): either end_direct() forgets the bits written above, or
	 * this CPU reads @on as false and forgets them.
	 */
	smp_mb();
	if (!READ_ONCE(group->tables.on)) {
		xs_tables_forget(&group->tables);
		return;
	}
	first = (unsigned long)(entry - (iova >> PAGE_SHIFT) % XS_BLOCK_PAGES);
	WRITE_ONCE(*entries, (void *)(first & ~XS_ENTRIES_TRIED));
}

/* Checks that the driver finds the first and the last page where they were written. */
static bool is_seen(struct xs_group *group, u64 iova, u64 phys, u32 pages)
{
	u64 rest = (u64)(pages - 1) << PAGE_SHIFT;

	return iommu_iova_to_phys(group->domain, iova) == phys &&
	       iommu_iova_to_phys(group->domain, iova + rest) == phys + rest;
}

/*
 * Writes entries of a block, the first write of the block or a later one. False: nothing was
 * written.
 */
static bool try_entries(struct xs_group *group, void **entries, u64 iova,
			u64 phys, u32 pages, u32 prot)
{
	u64 bits = READ_ONCE(group->tables.bits[xs_tables_kind(prot)]);
	void *known = READ_ONCE(*entries);
	bool tried = xs_entries_are_tried(known);

	if (!known || !bits)
		return false;
	/* If the driver unmaps the page at once, the entries may have been learned too late. */
	if (!tried && xs_root_entry(&group->tables.root, iova) !=
			      entry_of(known, iova))
		return false;
	xs_entries_write(&group->tables, entry_of(known, iova), phys | bits,
			 pages);
	if (tried && !xs_debug_on())
		return true;
	if (!is_seen(group, iova, phys, pages)) {
		xs_entries_write(&group->tables, entry_of(known, iova), 0,
				 pages);
		/* The device may have used the entries speculatively. */
		xs_backend_flush(group);
		atomic64_inc(&group->other_commands.domain);
		end_direct(group, "its driver does not see what was written");
		return false;
	}
	cmpxchg(entries, known,
		(void *)((unsigned long)known | XS_ENTRIES_TRIED));
	return true;
}

/* With debug=1: checks that each entry is right, and where the hardware looks for it. */
static noinline void check_written(struct xs_group *group, u64 iova, u64 phys,
				   u32 pages, u32 prot)
{
	for (u32 i = 0; i < pages; i++, iova += PAGE_SIZE, phys += PAGE_SIZE) {
		u64 *entry = xs_root_entry(&group->tables.root, iova);

		if (!WARN_ONCE(!entry || !is_seen(group, iova, phys, 1) ||
			       xs_tables_learn(&group->tables,
					       READ_ONCE(*entry), phys, prot),
			       "xsmmu: an entry is not what was written\n"))
			continue;
		end_direct(group, "an entry is not what was written");
		return;
	}
}

/* With debug=1: checks that the entries are cleared. Nobody has these IOVAs yet. */
static noinline void check_cleared(struct xs_group *group, u64 iova, u64 end)
{
	for (; iova < end; iova += PAGE_SIZE)
		if (WARN_ONCE(iommu_iova_to_phys(group->domain, iova),
			      "xsmmu: an entry was not cleared\n"))
			end_direct(group, "an entry was not cleared");
}

/* Maps by writing entries in place. False: the entries are not known, or the map needs more. */
static __always_inline bool map_direct(struct xs_group *group, void **entries,
				       u64 iova, u64 phys, u32 pages, u32 prot)
{
	void *known = entries ? READ_ONCE(*entries) : NULL;
	u64 bits;

	if (!xs_entries_are_tried(known))
		return false;
	bits = READ_ONCE(group->tables.only[xs_tables_kind(prot)]);
	if (unlikely(!bits))
		return false;
	xs_entries_write(&group->tables, entry_of(known, iova), phys | bits,
			 pages);
	if (xs_debug_on())
		check_written(group, iova, phys, pages, prot);
	return true;
}

/* With debug=1: check_written() for pages that are not contiguous. */
static noinline void check_each(struct xs_group *group, u64 iova,
				const u64 *phys, u32 pages, u32 prot)
{
	for (u32 i = 0; i < pages; i++, iova += PAGE_SIZE)
		if (phys[i] != XS_PHYS_NONE)
			check_written(group, iova, phys[i], 1, prot);
}

static __always_inline bool world_map_each(void *backend, void **entries,
					   u64 iova, const u64 *phys,
					   u32 pages, u32 prot)
{
	struct xs_group *group = backend;
	void *known = READ_ONCE(*entries);
	u64 bits;

	if (!xs_entries_are_tried(known))
		return false;
	bits = READ_ONCE(group->tables.only[xs_tables_kind(prot)]);
	if (unlikely(!bits))
		return false;
	xs_entries_write_each(&group->tables, entry_of(known, iova), phys, bits,
			      pages);
	if (xs_debug_on())
		check_each(group, iova, phys, pages, prot);
	return true;
}

/*
 * Maps by writing entries of a known block, else by the driver's operation, from which the
 * block's entries are learned.
 */
static int map_and_learn(struct xs_group *group, void **entries, u64 iova,
			 u64 phys, u32 pages, u32 prot)
{
	struct iommu_domain *domain = group->domain;
	bool learns = entries && READ_ONCE(group->tables.on);
	int error;

	if (learns && try_entries(group, entries, iova, phys, pages, prot))
		return 0;
	error = map_table(group, xs_domain_is_generic(domain),
			  domain->ops->map_pages, iova, phys, pages, prot);
	if (!error && learns)
		learn_entries(group, entries, iova, phys, prot);
	return error;
}

/* Flushes a map; if the flush fails, the map is undone. */
static noinline int sync_mapped(struct xs_group *group, u64 iova, u32 pages,
				u32 prot)
{
	int error = 0;

	if (!(prot & XS_MAP_UNFLUSHED))
		error = flush_maps(group, iova, pages);
	if (error && xs_backend_sweep(group, iova, pages))
		error = XS_MAP_LEFT;
	return error;
}

int xs_backend_map_singly(struct xs_group *group, u64 iova, u64 phys, u32 pages,
			  u32 prot)
{
	struct iommu_domain *domain = group->domain;
	int error = map_table(group, xs_domain_is_generic(domain),
			      domain->ops->map_pages, iova, phys, pages, prot);

	if (error || !group->iommu.flushes_maps)
		return error;
	return sync_mapped(group, iova, pages, prot);
}

/* Maps, with all further steps that a map may need. */
static noinline int map_any(struct xs_group *group, void **entries, u64 iova,
			    u64 phys, u32 pages, u32 prot)
{
	int error;

	if (unlikely(READ_ONCE(group->leaves) || !group->is_known))
		return -ENODEV;
	error = map_and_learn(group, entries, iova, phys, pages,
			      prot & ~XS_MAP_UNFLUSHED);
	if (error || !group->iommu.flushes_maps)
		return error;
	return sync_mapped(group, iova, pages, prot);
}

static __always_inline int world_map(void *backend, void **entries, u64 iova,
				     u64 phys, u32 pages, u32 prot)
{
	struct xs_group *group = backend;
	bool generic = xs_have_generic_pt() && READ_ONCE(group->maps_generic);
	xs_map_pages_t map_pages = READ_ONCE(group->map_pages);

	if (generic || map_pages)
		return map_table(group, generic, map_pages, iova, phys, pages,
				 prot);
	if (map_direct(group, entries, iova, phys, pages, prot))
		return 0;
	return map_any(group, entries, iova, phys, pages, prot);
}

/* Clears entries of a block. False: the entries of the block are not known. */
static __always_inline bool clear_entries(struct xs_group *group, u64 iova,
					  u32 pages)
{
	struct xs_block *block = xs_space_block(&group->engine.space,
						iova >> PAGE_SHIFT);
	void *known = block ? READ_ONCE(block->entries) : NULL;

	if (!xs_entries_are_tried(known))
		return false;
	xs_entries_write(&group->tables, entry_of(known, iova), 0, pages);
	if (xs_debug_on())
		check_cleared(group, iova, iova + ((u64)pages << PAGE_SHIFT));
	return true;
}

/*
 * Clears the entries of whole mappings of at most one block each, from the first page up to
 * the first block whose entries are not known. Never clears a whole table, which the driver
 * frees. Returns pages.
 */
static noinline u64 remove_direct(struct xs_group *group, u64 iova, u64 pages)
{
	u64 at = iova, end = iova + (pages << PAGE_SHIFT);

	if (pages >= XS_TABLE_ENTRIES)
		return 0;
	while (at < end) {
		u64 stop = min(end, (at | (XS_BLOCK_BYTES - 1)) + 1);

		if (!clear_entries(group, at, (stop - at) >> PAGE_SHIFT))
			break;
		at = stop;
	}
	return (at - iova) >> PAGE_SHIFT;
}

/*
 * Pages are mapped as single pages and removed as single pages, without regard to the domain's
 * larger page sizes, as long as they cannot fill a page-table page: a driver may join the
 * entries of a full one. VT-d's driver accepts any length.
 */
#define SINGLE_PAGES_MAX	(TABLE_PAGES - 1)

/* Removes the first part of a range. Returns bytes; 0 for a hole. */
static __always_inline size_t remove_some(struct xs_group *group,
					  xs_gather_t *gather, u64 iova,
					  u64 pages)
{
	typeof(group->unmap_pages) unmap_pages = READ_ONCE(group->unmap_pages);
	struct iommu_domain *domain = group->domain;
	size_t bytes;

	/* Keeps a driver from flushing early if the pages are apart from the gathered range. */
	gather->end = 0;
	/* As single pages, also after forget_iommu(). */
	if (unlikely(group->iommu.exact_unmap)) {
		bytes = domain->ops->unmap_pages(domain, iova, PAGE_SIZE, pages,
						 gather);
		if (bytes && group->iommu.kicks)
			atomic64_inc(&group->other_commands.page);
		return bytes;
	}
	if (xs_have_generic_pt() && group->generic)
		return xs_domain_unmap_generic(domain, iova,
					       pages << PAGE_SHIFT, gather);
	/*
	 * With iommu.debug_pagealloc=1, iommu_unmap_fast() counts the pages that iommu_map() has
	 * mapped.
	 */
	if (xs_have_generic_pt() && unlikely(!unmap_pages) &&
	    xs_domain_is_generic(domain))
		return xs_domain_unmap_generic(domain, iova,
					       pages << PAGE_SHIFT, gather);
	if (unlikely(!unmap_pages || (pages > SINGLE_PAGES_MAX &&
				      !group->iommu.unmap_covers_holes)))
		return iommu_unmap_fast(domain, iova, pages << PAGE_SHIFT,
					gather);
	return unmap_pages(domain, iova, PAGE_SIZE, pages, gather);
}

#define REMOVALS_MAX	8
#define STARVED_TICKS	(HZ / 10)
#define RETRY_TICKS	HZ

/*
 * The driver of virtio-iommu had no memory for the request to remove these pages, and has
 * dropped its records of them: the device would keep the pages for ever, and refuse other maps
 * at these IOVAs. A flush waits for all requests in the queue and the driver then frees their
 * memory. Not iommu_iotlb_sync(): since 7.2 iommu_iotlb_sync() does not call the driver for a
 * gather without a range.
 *
 * A removal of pages without records sends nothing, and drops the records of the other pages.
 * So one map, which allows neither reads nor writes, makes one record for all pages; the
 * device refuses the map where a page is mapped. If there is no memory for the map, the driver
 * drops the record. @pages pages are whole mappings of the device, because the device refuses
 * to remove a part of a mapping. Records of some of the pages may be left: then the request
 * covered fewer pages, and the next round makes the right record. A call makes at most
 * REMOVALS_MAX records, whatever the number of pages; only one, if another call has failed in
 * the last STARVED_TICKS.
 *
 * Returns 0, or -ENOMEM: devices still reach these pages, and the driver has no record of
 * them.
 */
static noinline int request_again(struct xs_group *group, xs_gather_t *gather,
				  u64 iova, u64 pages)
{
	struct iommu_domain *domain = group->domain;
	bool starves = time_is_after_jiffies(READ_ONCE(group->starved) +
					     STARVED_TICKS);
	u32 most = starves ? 1 : REMOVALS_MAX;

	for (u32 i = 0; i <= most; i++) {
		size_t mapped = 0, removed;

		iommu_flush_iotlb_all(domain);
		removed = domain->ops->unmap_pages(domain, iova, PAGE_SIZE,
						   pages, gather);
		if (removed)
			atomic64_inc(&group->other_commands.page);
		if (removed == pages << PAGE_SHIFT)
			return 0;
		/* The last removal must not leave a record, which would look like a mapping. */
		if (i < most)
			domain->ops->map_pages(domain, iova,
					       page_to_phys(ZERO_PAGE(0)),
					       PAGE_SIZE, pages, 0, GFP_ATOMIC,
					       &mapped);
	}
	WRITE_ONCE(group->starved, jiffies);
	return -ENOMEM;
}

/*
 * Handles a removal of @pages pages at @iova in which the driver removed nothing. @pages is
 * all that the caller is to remove. Either the first page is not mapped, or the driver has
 * failed, and *@error is set. virtio-iommu's driver has dropped its records of all pages.
 * Returns the number of pages that are dealt with.
 */
static noinline u64 removed_none(struct xs_group *group, xs_gather_t *gather,
				 u64 iova, u64 pages, int *error)
{
	if (group->iommu.kicks) {
		if (request_again(group, gather, iova, pages))
			*error = -ENOMEM;
		return pages;
	}
	if (iommu_iova_to_phys(group->domain, iova))
		*error = -EIO;
	return 1;
}

/*
 * Number of pages, from the first, that one call removes from a range of @pages pages which
 * may be mapped only in part. 0: the first page is not mapped. VT-d's driver treats an unmap
 * whose first page has no page table as an unmap of all that such a table covers, and removes
 * pages behind the range. So each step begins at a mapped page, and ends with its page-table
 * page.
 */
static u64 partial_step(const struct xs_group *group, u64 iova, u64 pages)
{
	u64 most = min(TABLE_PAGES - (iova >> PAGE_SHIFT) % TABLE_PAGES, pages);
	u64 step = 0;

	while (step < most && iommu_iova_to_phys(group->domain,
						 iova + (step << PAGE_SHIFT))) {
		if (!group->iommu.exact_unmap)
			return most;
		step++;
	}
	return step;
}

/* The caller of a removal. */
enum removal {
	REMOVE_UNMAPPED,	/* an unmap */
	REMOVE_LIVE,		/* no driver has unmapped the pages, and the group is leaving */
	REMOVE_AGAIN,		/* a later try */
};

/*
 * True if a live mapping could not be removed when the group left its domain: the driver's
 * records do not say which pages devices reach. Set for a mapping with @leaving held. While it
 * is set, unmapped pages become stuck, and only world_remove_again() removes them.
 */
static bool is_in_doubt(const struct xs_group *group)
{
	return READ_ONCE(group->stuck_live);
}

/*
 * Removes a range that may be mapped only in part: a range with padding, the rest of a failed
 * map, or a range of which another call has removed pages. Two calls may work on the same range at
 * the same time. Returns 0, or a negative errno if the driver has not removed a mapped page. In the
 * blocking domain all pages are removed, unless pages could not be removed when the group left its
 * own domain. @stuck_live is set before the domain changes, and before a call that waits
 * for @leaving looks for records that the failed removal has dropped.
 */
static noinline int remove_partial(struct xs_group *group, xs_gather_t *gather,
				   u64 iova, u64 pages, enum removal by)
{
	int error = 0;

	while (pages) {
		unsigned long flags;
		u64 gone = 0;
		u64 step;

		if (xs_backend_is_blocked(group))
			return is_in_doubt(group) ? -EBUSY : error;
		spin_lock_irqsave(&group->leaving, flags);
		if (by == REMOVE_UNMAPPED && is_in_doubt(group)) {
			spin_unlock_irqrestore(&group->leaving, flags);
			return -EBUSY;
		}
		step = partial_step(group, iova, pages);
		if (step)
			gone = remove_some(group, gather, iova, step) >>
			       PAGE_SHIFT;
		if (unlikely(step && !gone))
			gone = removed_none(group, gather, iova,
					    group->iommu.kicks ? pages : step,
					    &error);
		if (by == REMOVE_LIVE && error)
			WRITE_ONCE(group->stuck_live, true);
		spin_unlock_irqrestore(&group->leaving, flags);
		gone = clamp(gone, 1, pages);
		iova += gone << PAGE_SHIFT;
		pages -= gone;
	}
	return error;
}

/*
 * True if each page of a block must be mapped and unmapped by a call of its own: where a
 * removal must match the map, and where the driver joins neighbours in memory into one larger
 * entry (AMD-Vi's driver of 7.x, any power of two of pages), a part of which cannot be
 * removed.
 */
static bool is_mapped_singly(const struct xs_group *group)
{
	return group->iommu.exact_unmap ||
	       (group->generic && group->domain->pgsize_bitmap &
				  GENMASK_ULL(PAGE_SHIFT + XS_BLOCK_LG2,
					      PAGE_SHIFT + 1));
}

/*
 * Removes a part of a mapping that a driver has unmapped in part. Removes the whole mapping
 * where the IOMMU driver cannot remove a part of a map, and where entries may be larger than a
 * page: VT-d's driver takes a part of such an entry's memory for a page table (6.1, 6.12).
 */
static int world_remove_part(void *backend, xs_gather_t *gather,
			     const struct xs_range *part,
			     const struct xs_range *whole)
{
	struct xs_group *group = backend;
	int error;

	if (is_mapped_singly(group) || whole->pages > SINGLE_PAGES_MAX)
		part = whole;
	error = remove_partial(group, gather, part->page << PAGE_SHIFT,
			       part->pages, REMOVE_UNMAPPED);
	if (error)
		return error;
	return part == whole ? XS_REMOVED_ALL : 0;
}

/*
 * Removes a range that begins at a mapped page. The range may have holes (padding), except
 * with @exact_unmap, where such a range goes through xs_backend_unmap_partial(). Returns 0, or
 * a negative errno if a mapped page was not removed.
 */
static __always_inline int world_remove(void *backend, xs_gather_t *gather,
					u64 iova, u64 pages)
{
	struct xs_group *group = backend;
	int error = 0;

	if (xs_refuses())
		return -ENOMEM;
	if (unlikely((pages > SINGLE_PAGES_MAX && !group->iommu.unmap_covers_holes) ||
		     atomic_read(&group->partial)))
		return remove_partial(group, gather, iova, pages,
				      REMOVE_UNMAPPED);
	if (READ_ONCE(group->tables.on)) {
		u64 gone = pages == 1 ? clear_entries(group, iova, 1) :
					remove_direct(group, iova, pages);

		iova += gone << PAGE_SHIFT;
		pages -= gone;
	}
	while (pages) {
		u64 gone = remove_some(group, gather, iova, pages) >>
			   PAGE_SHIFT;

		if (unlikely(!gone))
			gone = removed_none(group, gather, iova, pages, &error);
		if (gone >= pages)
			break;
		iova += gone << PAGE_SHIFT;
		pages -= gone;
	}
	return error;
}

/* Except for virtio-iommu, the driver's records of pages that it failed to remove are right. */
static int world_remove_again(void *backend, xs_gather_t *gather, u64 iova,
			      u64 pages)
{
	struct xs_group *group = backend;

	/* If the group has another domain by now, devices do not reach the pages. */
	if (xs_backend_is_blocked(group))
		return group->stuck_in ? -EBUSY : 0;
	if (xs_refuses())
		return -ENOMEM;
	return group->iommu.kicks ?
		request_again(group, gather, iova, pages) :
		remove_partial(group, gather, iova, pages, REMOVE_AGAIN);
}

/*
 * Logs each failed removal, ratelimited. The engine keeps the IOVAs and the memory out of use,
 * and @retry tries again.
 */
static void world_stuck(void *backend, u64 iova, u64 pages)
{
	struct xs_group *group = backend;

	pr_err_ratelimited("%s: the IOMMU driver could not remove %llu pages at IOVA 0x%llx, and devices of the group may still access them. The group has level none until a later try succeeds\n",
			   group->name, pages, iova);
	if (group->cpus)
		schedule_delayed_work(&group->retry, RETRY_TICKS);
}

void xs_backend_retry(struct work_struct *work)
{
	struct xs_group *group = container_of(to_delayed_work(work),
					      struct xs_group, retry);
	bool leaves;
	u64 left;

	/* An orphaned group is retried in xs_backend_retry_in(). */
	mutex_lock(&group->trimming);
	leaves = xs_backend_is_blocked(group);
	left = leaves ? 0 : xs_engine_retry(&group->engine);
	mutex_unlock(&group->trimming);
	if (left)
		schedule_delayed_work(&group->retry, RETRY_TICKS);
	else if (!leaves)
		pr_info("%s: all pages that could not be removed are removed now\n",
			group->name);
}

/* ---- invalidation ---- */

/*
 * Gathers as for a flush queue: the driver adds no range and flushes nothing early.
 * world_invalidate() decides which ranges are invalidated.
 */
static void world_gather_init(xs_gather_t *gather)
{
	iommu_iotlb_gather_init(gather);
	gather->queued = true;
}

/*
 * Widens the range to the range of its command. VT-d's driver of 6.1 widens only for
 * second-stage tables. For first-stage tables it aligns only the start, and pages at the end
 * stay cached.
 */
static __always_inline void invalidate_range(struct xs_group *group,
					     struct iommu_domain *domain,
					     xs_gather_t *gather,
					     const struct xs_range *range,
					     struct xs_commands *sent)
{
	u64 rest = xs_iommu_widening(&group->iommu, range->page, range->pages);
	u64 last = range->page + range->pages - 1;

	gather->queued = false;
	gather->start = (range->page & ~rest) << PAGE_SHIFT;
	gather->end = (last | rest) << PAGE_SHIFT | ~PAGE_MASK;
	/*
	 * SMMUv3 uses @pgsize. In a gather of generic tables the word means levels and must stay.
	 */
	if (!xs_domain_is_generic(domain))
		gather->pgsize = PAGE_SIZE;
	iommu_iotlb_sync(domain, gather);
	xs_iommu_count(&group->iommu, range, sent);
}

/*
 * True if the ranges need more commands than invalidating the domain is worth, where a range
 * may need several commands. Invalidating the domain is one command.
 */
static bool are_too_many(const struct xs_iommu *iommu,
			 const struct xs_range *ranges, u32 count)
{
	u64 commands = 0;

	for (u32 i = 0; i < count; i++)
		commands += iommu->commands(iommu, ranges[i].page,
					    ranges[i].pages);
	return commands > XS_RANGES_MAX;
}

/*
 * Invalidates the whole domain by one range: the aligned power of two around the two pages in
 * the middle covers the domain. A range of all pages could overflow a driver that counts pages
 * in 32 bits.
 */
static noinline void invalidate_all(struct xs_group *group,
				    struct iommu_domain *domain,
				    xs_gather_t *gather,
				    struct xs_commands *sent)
{
	u64 last = domain->geometry.aperture_end >> PAGE_SHIFT;
	struct xs_range all = { last / 2, 2 };

	invalidate_range(group, domain, gather, &all, sent);
}

/* The domain that the group is leaving, from which the caller may have removed pages; or NULL. */
static noinline struct iommu_domain *domain_left(struct xs_group *group)
{
	struct iommu_domain *domain;

	/* Pairs with smp_store_release() in move(). */
	smp_rmb();
	domain = READ_ONCE(group->left);
	return domain == &blocked ? NULL : domain;
}

/*
 * A flush of the gather frees its page-table pages, so all removed pages must be invalidated
 * by then. With several ranges, only an invalidation of the whole domain does so.
 */
static __always_inline void world_invalidate(void *backend, xs_gather_t *gather,
					     const struct xs_range *ranges,
					     u32 count,
					     struct xs_commands *sent)
{
	static const struct xs_range any = { 0, 1 };
	struct xs_group *group = backend;
	struct iommu_domain *domain = READ_ONCE(group->domain);
	bool frees = xs_gather_frees_tables(gather);

	if (unlikely(domain == &blocked)) {
		domain = domain_left(group);
		if (!domain)
			return;
		count = 0;
	}
	/*
	 * Where an invalidation waits for removals (@kicks), one invalidation waits for all of
	 * them.
	 */
	if (count == 0 || (count > 1 && (frees || group->iommu.kicks)) ||
	    (unlikely(group->iommu.commands) &&
	     are_too_many(&group->iommu, ranges, count))) {
		if (unlikely(group->iommu.flush_all_via_range)) {
			invalidate_all(group, domain, gather, sent);
			return;
		}
		iommu_flush_iotlb_all(domain);
		sent->domain += !group->iommu.kicks;
		if (frees)
			invalidate_range(group, domain, gather, &any, sent);
		return;
	}
	for (u32 i = 0; i < count; i++)
		invalidate_range(group, domain, gather, &ranges[i], sent);
}

void xs_backend_flush(struct xs_group *group)
{
	struct xs_commands not_counted = { };
	xs_gather_t none;

	iommu_iotlb_gather_init(&none);
	world_invalidate(group, &none, NULL, 0, &not_counted);
}

bool xs_backend_unmap_partial(struct xs_group *group, u64 iova, u32 pages)
{
	bool unmapped;

	atomic_inc(&group->partial);
	unmapped = xs_engine_unmap(&group->engine, iova, pages, true);
	atomic_dec(&group->partial);
	return unmapped;
}

bool xs_backend_undo(struct xs_group *group, u64 iova, u32 pages, int error)
{
	return error == XS_MAP_LEFT ?
		xs_engine_unmap_left(&group->engine, iova, pages) :
		xs_backend_unmap_partial(group, iova, pages);
}

void xs_backend_invalidate(struct xs_group *group, xs_gather_t *gather,
			   const struct xs_range *ranges, u32 count)
{
	struct xs_commands sent = { };

	world_invalidate(group, gather, ranges, count, &sent);
	atomic64_add(sent.page, &group->other_commands.page);
	atomic64_add(sent.domain, &group->other_commands.domain);
}

int xs_backend_sweep(struct xs_group *group, u64 iova, u32 pages)
{
	xs_gather_t gather;
	int error;

	world_gather_init(&gather);
	error = remove_partial(group, &gather, iova, pages, REMOVE_UNMAPPED);
	xs_backend_invalidate(group, &gather, NULL, 0);
	return error;
}

/* ---- empty page tables ---- */

/*
 * Frees empty page-table pages and invalidates the IOMMU's cached copies. VT-d's driver frees
 * a page-table page for an unmap that covers all of its range, also if nothing is mapped. The
 * first page of such an unmap must have a page table (see partial_step()), so a read-only page
 * of zeros is mapped first.
 *
 * Generic page tables refuse an unmap of nothing, and other drivers warn: with them, empty
 * page-table pages stay until the group's domain goes.
 */
int xs_backend_prune(struct xs_group *group, u64 iova, u64 pages)
{
	struct xs_range range = { iova >> PAGE_SHIFT, pages };
	struct iommu_domain *domain = group->domain;
	xs_gather_t gather;
	size_t mapped = 0;

	if (!group->iommu.prunes || (range.page | pages) % TABLE_PAGES)
		return 0;
	if (xs_fails() ||
	    domain->ops->map_pages(domain, iova, page_to_phys(ZERO_PAGE(0)),
				   PAGE_SIZE, 1, IOMMU_READ,
				   GFP_ATOMIC | __GFP_NOWARN, &mapped))
		return -ENOMEM;
	world_gather_init(&gather);
	domain->ops->unmap_pages(domain, iova, PAGE_SIZE, pages, &gather);
	xs_backend_invalidate(group, &gather, &range, 1);
	return 0;
}

/* A page-table page that cannot be freed stays, and does no harm. */
static void world_prune(void *backend, u64 iova, u64 pages)
{
	xs_backend_prune(backend, iova, pages);
}

void xs_backend_trim(struct work_struct *work)
{
	struct xs_group *group = container_of(work, struct xs_group, trim);

	mutex_lock(&group->trimming);
	xs_engine_trim(&group->engine);
	mutex_unlock(&group->trimming);
}

/*
 * Queues the work only while the backend is set up; an engine that is being destroyed needs
 * none.
 */
static void world_surplus(void *backend)
{
	struct xs_group *group = backend;

	if (group->cpus)
		schedule_work(&group->trim);
}

DEFINE_SRCU(xs_backend_srcu);

static void world_quiesce(void *backend)
{
	synchronize_rcu();
	synchronize_srcu(&xs_backend_srcu);
}

/* ---- clock, memory, tracing ---- */

static u64 world_clock(void *backend)
{
	return ktime_get_mono_fast_ns();
}

/* Below 256 bytes, some slab sizes are not multiples of a cache line. */
static void *world_alloc(void *backend, size_t bytes, u32 cpu, bool atomic)
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

static void world_free(void *backend, void *memory, size_t bytes)
{
	kvfree(memory);
}

static void world_flushed(void *backend, u32 cpu, u32 cause, u32 pages, u32 ranges,
			  const struct xs_commands *sent, u64 oldest_ns)
{
	struct xs_group *group = backend;

	if (trace_flush_enabled())
		trace_flush(iommu_group_id(group->iommu_group), cause,
			    pages, ranges, sent->page, sent->domain, oldest_ns);
}

/* Rest of the log line about an unmap that does not match its mapping. */
static const char *said_of_removal(int removed)
{
	if (removed < 0)
		return "The IOMMU driver could not remove all of the named pages: see the error about pages that could not be removed.";
	if (removed == XS_REMOVED_ALL)
		return "The IOMMU driver cannot remove a part of this mapping: the whole mapping is removed and devices cannot reach any of its pages.";
	return "The named pages are removed and devices cannot reach them; the rest stays mapped until the driver unmaps it or is unbound.";
}

/*
 * Warns once for each group, engine and kind of call, because a faulty driver repeats its
 * call. The stack trace names the driver.
 */
static void world_bad_unmap(void *backend, const struct xs_bad_unmap *bad_unmap)
{
	struct xs_group *group = backend;
	bool *told = bad_unmap->mapped_pages ? &group->torn : &group->strayed;

	if (READ_ONCE(*told))
		return;
	WRITE_ONCE(*told, true);
	if (bad_unmap->mapped_pages)
		WARN(1, "xsmmu: %s: its driver unmaps %u pages at IOVA 0x%llx, but the mapping there is %u pages at IOVA 0x%llx. %s An unmap must have the address and the size of its map: report this trace to the driver's authors\n",
		     group->name, bad_unmap->pages, bad_unmap->iova,
		     bad_unmap->mapped_pages, bad_unmap->mapped_iova,
		     said_of_removal(bad_unmap->removed));
	else
		WARN(1, "xsmmu: %s: ignored: %s, IOVA 0x%llx, %u pages: nothing is mapped there. Report this trace to the driver's authors\n",
		     group->name, bad_unmap->what, bad_unmap->iova, bad_unmap->pages);
}

/* ---- flush points ---- */

/*
 * Called with interrupts off. For another CPU only the timer is started, which may then fire
 * on this CPU. @at is on the other CPU's list as long as that CPU's batch is not empty, or its
 * poll is under way.
 */
static void world_deferred(void *backend, u32 cpu, bool arm, u64 deadline_ns)
{
	struct xs_group *group = backend;
	struct xs_group_cpu *at = &group->cpus[cpu];

	if (likely(cpu == smp_processor_id()) && list_empty(&at->dirty))
		list_add(&at->dirty, this_cpu_ptr(&xs_dirty));
	if (!arm)
		return;
	spin_lock(&at->lock);
	hrtimer_start(&at->timer, ns_to_ktime(deadline_ns),
		      HRTIMER_MODE_ABS_PINNED);
	spin_unlock(&at->lock);
}

static enum hrtimer_restart expire(struct hrtimer *timer)
{
	struct xs_group_cpu *at = container_of(timer, struct xs_group_cpu,
					       timer);
	u64 next = xs_engine_expire(&at->group->engine, at->cpu);

	if (!next)
		return HRTIMER_NORESTART;
	/* A concurrent start has set a newer deadline. */
	spin_lock(&at->lock);
	if (!hrtimer_is_queued(timer))
		hrtimer_start(timer, ns_to_ktime(next),
			      HRTIMER_MODE_ABS_PINNED);
	spin_unlock(&at->lock);
	return HRTIMER_NORESTART;
}

/*
 * Flushes the first group of a list of this CPU. The group stays listed if deferred unmaps are
 * left.
 */
static void flush_dirty(struct list_head *due)
{
	struct xs_group_cpu *at = list_first_entry(due, struct xs_group_cpu,
						   dirty);

	list_del_init(&at->dirty);
	if (!xs_engine_poll(&at->group->engine) && list_empty(&at->dirty))
		list_add(&at->dirty, this_cpu_ptr(&xs_dirty));
}

/*
 * Probe of the kernel's tracepoint napi_poll, which fires after each poll, on the CPU of the
 * poll. Interrupts are off for one group at a time.
 */
static void poll_ended(void *unused, struct napi_struct *napi, int work,
		       int budget)
{
	unsigned long flags;
	LIST_HEAD(due);

	local_irq_save(flags);
	list_splice_init(this_cpu_ptr(&xs_dirty), &due);
	while (!list_empty(&due)) {
		flush_dirty(&due);
		local_irq_restore(flags);
		local_irq_save(flags);
	}
	local_irq_restore(flags);
}

int xs_backend_start(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		INIT_LIST_HEAD(per_cpu_ptr(&xs_dirty, cpu));
	return register_trace_napi_poll(poll_ended, NULL);
}

void xs_backend_stop(void)
{
	unregister_trace_napi_poll(poll_ended, NULL);
	tracepoint_synchronize_unregister();
}

/* ---- set-up ---- */

/* Determines once the properties that maps and invalidations have in this domain. */
static void probe_iommu(struct xs_group *group, struct iommu_domain *domain,
			const struct xs_device *xdev)
{
	const struct iommu_domain_ops *ops = domain->ops;

	group->iommu = xdev->seen.like;
	group->generic = xs_domain_is_generic(domain);
	group->is_known = group->generic || ops->map_pages;
	group->unmap_pages = ops->map_pages ? ops->unmap_pages : NULL;
	/* Else the IOMMU core flushes maps. */
	group->iommu.flushes_maps &= group->is_known;
	group->root.format = NULL;
	if (group->iommu.prunes)
		xs_root_find(&group->root, xdev->dev);
	choose_maps(group);
}

/* True if all devices have one IOMMU, and so one page table. */
static bool is_of_one_iommu(const struct xs_group *group,
			    const struct xs_device *xdev)
{
	struct xs_device *other;

	list_for_each_entry(other, &group->devices, list)
		if (!other->gone && other->seen.iommu != xdev->seen.iommu)
			return false;
	return true;
}

/*
 * Starts direct tables; no block's entries are known yet. The domain and the table stay,
 * because @xdev has a driver.
 */
static void begin_direct(struct xs_group *group, const struct xs_device *xdev)
{
	const char *why = "its domain is of another kind";

	if (!group->direct)
		return;
	if (!is_of_one_iommu(group, xdev))
		why = "its IOMMU group has more than one IOMMU";
	else if (group->is_known)
		why = xs_root_find(&group->tables.root, xdev->dev);
	if (why)
		pr_warn("%s: page tables are not written in place: %s\n",
			group->name, why);
	smp_store_release(&group->tables.on, !why);
	choose_maps(group);
}

/*
 * Ends direct tables and forgets the entries of all blocks. Waits first for calls that learn
 * entries or end direct tables, then for calls that write entries.
 */
static void stop_direct(struct xs_group *group)
{
	WRITE_ONCE(group->tables.on, false);
	choose_maps(group);
	world_quiesce(group);
	/* Direct tables never began. */
	if (!group->tables.root.format)
		return;
	xs_tables_forget(&group->tables);
	choose_maps(group);
	xs_space_forget(&group->engine.space);
	world_quiesce(group);
}

void xs_backend_set_tables(struct xs_group *group, struct xs_device *xdev)
{
	stop_direct(group);
	if (xdev && !READ_ONCE(group->leaves))
		begin_direct(group, xdev);
}

/* Lets all further calls use the IOMMU core, which works with any domain. */
static void forget_iommu(struct xs_group *group)
{
	group->is_known = false;
	group->generic = false;
	group->unmap_pages = NULL;
	group->iommu.flushes_maps = false;
	group->iommu.unmap_covers_holes = false;
	group->iommu.prunes = false;
	group->root.format = NULL;
	stop_direct(group);
}

/*
 * Moves the engine's calls to @domain, by the return. A call that is under way may have
 * removed pages from the previous domain, which the call invalidates in that domain.
 */
static void move(struct xs_group *group, struct iommu_domain *domain)
{
	forget_iommu(group);
	WRITE_ONCE(group->left, group->domain);
	/*
	 * Pairs with smp_rmb() in domain_left(): a call that sees the new domain also sees @left.
	 */
	smp_store_release(&group->domain, domain);
	world_quiesce(group);
	WRITE_ONCE(group->left, NULL);
}

const struct xs_backend_ops xs_linux_backend = {
	.map = world_map,
	.map_each = world_map_each,
	.flush_maps = world_flush_maps,
	.remove = world_remove,
	.remove_again = world_remove_again,
	.stuck = world_stuck,
	.remove_part = world_remove_part,
	.invalidate = world_invalidate,
	.gather_init = world_gather_init,
	.clock = world_clock,
	.deferred = world_deferred,
	.alloc = world_alloc,
	.free = world_free,
	.quiesce = world_quiesce,
	.surplus = world_surplus,
	.prune = world_prune,
	.add_chunk = xs_chunk_add,
	.drop_chunk = xs_chunk_drop,
	.short_of = xs_chunks_short,
	.bad_unmap = world_bad_unmap,
	.flushed = world_flushed,
};

void xs_backend_shut(struct xs_group *group)
{
	if (xs_backend_is_blocked(group))
		return;
	WRITE_ONCE(group->leaves, true);
	forget_iommu(group);
}

/*
 * Names mapped copies in the log; @named lines are logged already. Returns the number of
 * copies.
 */
static u64 name_copies(struct xs_group *group, u64 named)
{
	u64 iova = 0, count = 0;
	u32 bytes;

	for (; xs_pool_next(&group->engine.pool, &iova, &bytes); iova++) {
		count++;
		if (named++ < NAMED_MAX)
			pr_warn("group %d: at IOVA 0x%llx a copy of %u bytes is still mapped: a driver did not unmap it\n",
				iommu_group_id(group->iommu_group), iova,
				bytes);
	}
	return count;
}

/*
 * After the return the group has the blocking domain. Only xs_backend_retry_in() goes back to
 * the group's own domain for a while, to remove pages that the IOMMU driver could not remove
 * here. An unmap that comes meanwhile or later finds its pages removed, or the pages become
 * stuck.
 */
void xs_backend_leave(struct xs_group *group)
{
	int id = iommu_group_id(group->iommu_group);
	u64 iova = 0, pages_left = 0, mappings = 0, copies;
	struct iommu_domain *domain = group->domain;
	xs_gather_t gather;
	bool stuck;
	u32 pages;

	if (xs_backend_is_blocked(group))
		return;
	if (!group->was_orphaned)
		atomic_inc(&group->partial);
	group->was_orphaned = true;
	xs_backend_shut(group);
	mutex_lock(&group->trimming);
	xs_engine_retry(&group->engine);
	world_gather_init(&gather);
	while (xs_engine_next_mapping(&group->engine, &iova, &pages)) {
		if (mappings++ < NAMED_MAX)
			pr_warn("group %d: IOVA 0x%llx is still mapped, %u pages: a driver did not unmap it\n",
				id, iova, pages);
		if (xs_refuses())
			WRITE_ONCE(group->stuck_live, true);
		else
			remove_partial(group, &gather, iova, pages,
				       REMOVE_LIVE);
		pages_left += pages;
		iova += (u64)pages << PAGE_SHIFT;
		cond_resched();
	}
	xs_backend_invalidate(group, &gather, NULL, 0);
	copies = name_copies(group, mappings);
	if (!xs_chunks_unmap(group))
		WRITE_ONCE(group->stuck_live, true);
	/* Unmaps that began before the walk over live mappings have ended after this. */
	xs_engine_settle(&group->engine);
	stuck = group->stuck_live || xs_engine_stuck(&group->engine);
	if (stuck)
		group->stuck_in = domain;
	move(group, &blocked);
	mutex_unlock(&group->trimming);
	if (mappings)
		pr_warn("group %d: orphaned: %llu pages in %llu mappings are still in use after their driver has gone.%s Close what uses them, and the group is detached\n",
			id, pages_left, mappings, stuck ?
			"" : " Devices cannot reach them any more.");
	if (stuck)
		pr_err("group %d: the IOMMU driver could not remove all pages, and devices may still access some. xsmmu tries again. If the state stays stuck, for a new domain " XS_NEW_DOMAIN("%d") "\n",
		       id, id, id);
	if (copies)
		pr_warn("group %d: orphaned: so are %llu copied buffers\n", id,
			copies);
}

/*
 * Removes all mappings that the engine knows, after a first removal has failed. False: it
 * failed again.
 */
static bool remove_live_again(struct xs_group *group)
{
	bool removed = true;
	xs_gather_t gather;
	u64 iova = 0;
	u32 pages;

	world_gather_init(&gather);
	while (xs_engine_next_mapping(&group->engine, &iova, &pages)) {
		if (world_remove_again(group, &gather, iova, pages))
			removed = false;
		iova += (u64)pages << PAGE_SHIFT;
		cond_resched();
	}
	xs_backend_invalidate(group, &gather, NULL, 0);
	return xs_chunks_unmap(group) && removed;
}

void xs_backend_retry_in(struct xs_group *group, struct iommu_domain *domain)
{
	mutex_lock(&group->trimming);
	if (domain && domain == group->stuck_in) {
		bool removed = true;

		smp_store_release(&group->domain, domain);
		xs_engine_retry(&group->engine);
		if (group->stuck_live)
			removed = remove_live_again(group);
		move(group, &blocked);
		/* An unmap that began meanwhile is neither live nor stuck until it ends. */
		xs_engine_settle(&group->engine);
		if (removed && !xs_engine_stuck(&group->engine))
			group->stuck_in = NULL;
	} else {
		group->stuck_in = NULL;
	}
	if (!group->stuck_in)
		WRITE_ONCE(group->stuck_live, false);
	mutex_unlock(&group->trimming);
}

bool xs_backend_is_stuck(struct xs_group *group)
{
	u64 left;

	if (group->stuck_in)
		return true;
	mutex_lock(&group->trimming);
	left = xs_engine_retry(&group->engine);
	mutex_unlock(&group->trimming);
	return left;
}

int xs_backend_enter(struct xs_group *group, struct iommu_domain *domain,
		     struct xs_device *xdev)
{
	int error;

	mutex_lock(&group->trimming);
	move(group, domain);
	probe_iommu(group, domain, xdev);
	error = xs_chunks_map(group);
	if (error == XS_MAP_LEFT) {
		group->stuck_in = domain;
		WRITE_ONCE(group->stuck_live, true);
	}
	if (error)
		move(group, &blocked);
	else
		WRITE_ONCE(group->leaves, false);
	mutex_unlock(&group->trimming);
	if (!error)
		begin_direct(group, xdev);
	return error;
}

int xs_backend_init(struct xs_group *group, struct iommu_domain *domain,
		    struct xs_device *xdev)
{
	struct device *dev = xdev->dev;
	u32 cpu;

	BUILD_BUG_ON(XS_PLATFORM_UNHELD != XS_REF_UNHELD);
	group->cpus = kvcalloc(nr_cpu_ids, sizeof(*group->cpus), GFP_KERNEL);
	if (!group->cpus || xs_fails()) {
		kvfree(group->cpus);
		return -ENOMEM;
	}
	for (cpu = 0; cpu < nr_cpu_ids; cpu++) {
		struct xs_group_cpu *at = &group->cpus[cpu];

		hrtimer_setup(&at->timer, expire, CLOCK_MONOTONIC,
			      HRTIMER_MODE_ABS_PINNED);
		spin_lock_init(&at->lock);
		INIT_LIST_HEAD(&at->dirty);
		at->group = group;
		at->cpu = cpu;
	}
	atomic_set(&group->partial, 0);
	group->was_orphaned = false;
	group->leaves = false;
	group->active = false;
	group->strayed = false;
	group->stuck_in = NULL;
	group->stuck_live = false;
	group->left = NULL;
	group->starved = jiffies - STARVED_TICKS;
	group->torn = false;
	group->node = dev_to_node(dev);
	strscpy(group->name, dev_name(dev), sizeof(group->name));
	spin_lock_init(&group->leaving);
	group->domain = domain;
	group->tables.on = false;
	probe_iommu(group, domain, xdev);
	begin_direct(group, xdev);
	return 0;
}

void xs_backend_forget_cpu(struct xs_group *group, u32 cpu)
{
	list_del_init(&group->cpus[cpu].dirty);
}

static void forget_this_cpu(void *group)
{
	xs_backend_forget_cpu(group, smp_processor_id());
}

/*
 * Takes @group off the lists of all CPUs. No CPU comes or goes meanwhile, so nobody else
 * changes the list of an off-line CPU.
 */
static void forget_all(struct xs_group *group)
{
	u32 cpu;

	cpus_read_lock();
	on_each_cpu(forget_this_cpu, group, 1);
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		if (!cpu_online(cpu))
			xs_backend_forget_cpu(group, cpu);
	cpus_read_unlock();
}

void xs_backend_exit(struct xs_group *group)
{
	u32 cpu;

	forget_all(group);
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		hrtimer_cancel(&group->cpus[cpu].timer);
	kvfree(group->cpus);
	group->cpus = NULL;
	cancel_work_sync(&group->trim);
	cancel_work_sync(&group->grow);
	cancel_delayed_work_sync(&group->shrink);
	/* Last, because the other works may queue it. */
	cancel_delayed_work_sync(&group->retry);
}
