// SPDX-License-Identifier: GPL-2.0-only
/*
 * Maps and removals by direct tables (iommu/table.h): the module writes the page-table entries in
 * place. Part of path.c.
 */
#include "../compat/compat.h"
#include "../debug.h"
#include "../log.h"
#include "domain.h"

/*
 * Selects the domain operation for the map fast path; NULL if a map needs more than that
 * operation.
 */
static void choose_maps(struct xs_backend *backend)
{
	bool plain = backend->domain.is_known && !backend->domain.iommu.flushes_maps &&
		     !READ_ONCE(backend->domain.tables.on);
	bool generic = plain && xs_domain_is_generic(backend->domain.now);

	WRITE_ONCE(backend->domain.map_pages,
		   plain && !generic ? backend->domain.now->ops->map_pages : NULL);
	WRITE_ONCE(backend->domain.maps_generic, generic);
}

/* ---- use ---- */

/* Pages that the engine has mapped. Context: any. */
static u64 mapped_pages(const struct xs_backend *backend)
{
	const struct xs_engine *engine = &backend->engine;
	u64 pages = 0;

	for (u32 i = 0; i < engine->cpu_count; i++) {
		const struct xs_counts *counts = xs_counts_of(engine->counts, i);

		pages += xs_load(&counts->maps) + xs_load(&counts->map_extra_pages);
	}
	return pages;
}

/* Pages mapped while direct tables were on. */
static u64 pages_while_on(const struct xs_backend *backend)
{
	const struct xs_direct_use *use = &backend->direct_use;

	return use->before + min(READ_ONCE(use->last), mapped_pages(backend)) - use->first;
}

u64 xs_backend_direct_pages(const struct xs_backend *backend)
{
	u64 pages = pages_while_on(backend);
	u64 by_driver = atomic64_read(&backend->direct_use.misses) +
			atomic64_read(&backend->direct_use.large);

	/* A map by the driver that is under way may be counted there, and not yet by the engine. */
	return pages > by_driver ? pages - by_driver : 0;
}

/* Begins a period of direct tables. */
static void use_begin(struct xs_backend *backend)
{
	backend->direct_use.before = pages_while_on(backend);
	backend->direct_use.first = mapped_pages(backend);
	WRITE_ONCE(backend->direct_use.last, U64_MAX);
}

/* Turns direct tables off, which ends their period. False: they were off. Context: any. */
static bool turn_off(struct xs_backend *backend)
{
	if (!xchg(&backend->domain.tables.on, false))
		return false;
	WRITE_ONCE(backend->direct_use.last, mapped_pages(backend));
	return true;
}

/*
 * Counts a map by the driver while direct tables are on. The map that has ended direct tables is
 * not counted here: the engine counts it after the end of the period.
 */
static void count_by_driver(struct xs_backend *backend, bool is_large, u32 pages)
{
	if (READ_ONCE(backend->domain.tables.on))
		atomic64_add(pages, is_large ? &backend->direct_use.large :
					       &backend->direct_use.misses);
}

/* ---- maps ---- */

/*
 * Ends direct tables after an unexpected finding; the driver's operations take over. Context:
 * any.
 */
static noinline void end_direct(struct xs_backend *backend, const char *why)
{
	if (!turn_off(backend))
		return;
	WRITE_ONCE(backend->domain.tables.off_why, why);
	xs_tables_forget(&backend->domain.tables);
	choose_maps(backend);
	pr_warn("%s: direct tables are off: %s\n",
		backend->name, why);
}

/* Entry of an IOVA in the block with the first entry @first. */
static __always_inline u64 *entry_of(u64 *first, u64 iova)
{
	return first + (iova >> PAGE_SHIFT) % XS_BLOCK_PAGES;
}

/*
 * Learns from the entry of the first page, which the driver has mapped, where the entries of
 * the block are and which bits they have.
 */
static void learn_entries(struct xs_backend *backend, void **entries, u64 iova,
			  u64 phys, u32 prot)
{
	u64 *entry = xs_root_entry(&backend->domain.tables.root, iova);
	u64 found = entry ? READ_ONCE(*entry) : 0;
	const char *why = "an entry is not where it should be";

	if (entry)
		why = xs_tables_learn(&backend->domain.tables, found, phys, prot);
	if (why) {
		end_direct(backend, why);
		return;
	}
	if (!backend->domain.iommu.flushes_maps)
		WRITE_ONCE(backend->domain.tables.only[xs_tables_kind(prot)],
			   backend->domain.tables.bits[xs_tables_kind(prot)]);
	/*
	 * Pairs with xchg() in end_direct(): either end_direct() forgets the bits written above, or
	 * this CPU reads @on as false and forgets them.
	 */
	smp_mb();
	if (!READ_ONCE(backend->domain.tables.on)) {
		xs_tables_forget(&backend->domain.tables);
		return;
	}
	WRITE_ONCE(*entries, entry - (iova >> PAGE_SHIFT) % XS_BLOCK_PAGES);
}

/* Checks that the driver finds the first and the last page where they were written. */
static bool is_seen(struct xs_backend *backend, u64 iova, u64 phys, u32 pages)
{
	u64 rest = (u64)(pages - 1) << PAGE_SHIFT;

	return iommu_iova_to_phys(backend->domain.now, iova) == phys &&
	       iommu_iova_to_phys(backend->domain.now, iova + rest) == phys + rest;
}

/*
 * Writes entries of a block, the first write of the block or a later one. False: nothing was
 * written.
 */
static bool try_entries(struct xs_backend *backend, void **entries, u64 iova,
			u64 phys, u32 pages, u32 prot)
{
	u64 bits = READ_ONCE(backend->domain.tables.bits[xs_tables_kind(prot)]);
	void *known = READ_ONCE(*entries);
	bool tried = xs_entries_are_tried(known);
	u64 *entry;

	if (!known || !bits)
		return false;
	entry = entry_of(tried ? xs_entries_tried(known) : known, iova);
	/* If the driver unmaps the page at once, the entries may have been learned too late. */
	if (!tried && xs_root_entry(&backend->domain.tables.root, iova) != entry)
		return false;
	xs_entries_write(&backend->domain.tables, entry, phys | bits, pages);
	if (tried && !xs_debug_on())
		return true;
	if (!is_seen(backend, iova, phys, pages)) {
		xs_entries_write(&backend->domain.tables, entry, 0, pages);
		/* The device may have used the entries speculatively. */
		flush_domain(backend);
		atomic64_inc(&backend->counts.domain);
		end_direct(backend, "its driver does not see what was written");
		return false;
	}
	cmpxchg(entries, known,
		(void *)((unsigned long)known | XS_ENTRIES_TRIED));
	return true;
}

/* With debug=1: checks that each entry is right, and where the hardware looks for it. */
static noinline void check_written(struct xs_backend *backend, u64 iova, u64 phys,
				   u32 pages, u32 prot)
{
	for (u32 i = 0; i < pages; i++, iova += PAGE_SIZE, phys += PAGE_SIZE) {
		u64 *entry = xs_root_entry(&backend->domain.tables.root, iova);

		if (!WARN_ONCE(!entry || !is_seen(backend, iova, phys, 1) ||
			       xs_tables_learn(&backend->domain.tables,
					       READ_ONCE(*entry), phys, prot),
			       "xsmmu: an entry is not what was written\n"))
			continue;
		end_direct(backend, "an entry is not what was written");
		return;
	}
}

/* With debug=1: checks that the entries are cleared. Nobody has these IOVAs yet. */
static noinline void check_cleared(struct xs_backend *backend, u64 iova, u64 end)
{
	for (; iova < end; iova += PAGE_SIZE)
		if (WARN_ONCE(iommu_iova_to_phys(backend->domain.now, iova),
			      "xsmmu: an entry was not cleared\n"))
			end_direct(backend, "an entry was not cleared");
}

/* Maps by writing entries in place. False: the entries are not known, or the map needs more. */
static __always_inline bool map_direct(struct xs_backend *backend, void **entries,
				       u64 iova, u64 phys, u32 pages, u32 prot)
{
	void *known = entries ? READ_ONCE(*entries) : NULL;
	u64 bits;

	if (!xs_entries_are_tried(known))
		return false;
	bits = READ_ONCE(backend->domain.tables.only[xs_tables_kind(prot)]);
	if (unlikely(!bits))
		return false;
	xs_entries_write(&backend->domain.tables, entry_of(xs_entries_tried(known), iova),
			 phys | bits, pages);
	if (xs_debug_on())
		check_written(backend, iova, phys, pages, prot);
	return true;
}

/* With debug=1: check_written() for pages that are not contiguous. */
static noinline void check_each(struct xs_backend *backend, u64 iova,
				const u64 *phys, u32 pages, u32 prot)
{
	for (u32 i = 0; i < pages; i++, iova += PAGE_SIZE)
		if (phys[i] != XS_PHYS_NONE)
			check_written(backend, iova, phys[i], 1, prot);
}

static __always_inline bool backend_map_each(void *data, void **entries,
					     u64 iova, const u64 *phys,
					     u32 pages, u32 prot)
{
	struct xs_backend *backend = data;
	void *known = READ_ONCE(*entries);
	u64 bits;

	if (!xs_entries_are_tried(known))
		return false;
	bits = READ_ONCE(backend->domain.tables.only[xs_tables_kind(prot)]);
	if (unlikely(!bits))
		return false;
	xs_entries_write_each(&backend->domain.tables, entry_of(xs_entries_tried(known), iova),
			      phys, bits, pages);
	if (xs_debug_on())
		check_each(backend, iova, phys, pages, prot);
	return true;
}

/* ---- removals ---- */

/* The word of the block of an IOVA where the location of its entries is cached; or NULL. */
static __always_inline void **entries_at(struct xs_backend *backend, u64 iova)
{
	struct xs_engine *engine = &backend->engine;
	struct xs_block *block;

	if (xs_identity_has(&engine->identity, iova >> PAGE_SHIFT))
		return xs_identity_entries(&engine->identity, iova >> PAGE_SHIFT);
	block = xs_space_block(&engine->space, iova >> PAGE_SHIFT);
	return block ? &block->entries : NULL;
}

/* Clears entries of a block. False: the entries of the block are not known. */
static __always_inline bool clear_entries(struct xs_backend *backend, u64 iova,
					  u32 pages)
{
	void **entries = entries_at(backend, iova);
	void *known = entries ? READ_ONCE(*entries) : NULL;

	if (!xs_entries_are_tried(known))
		return false;
	xs_entries_write(&backend->domain.tables, entry_of(xs_entries_tried(known), iova), 0,
			 pages);
	if (xs_debug_on())
		check_cleared(backend, iova, iova + ((u64)pages << PAGE_SHIFT));
	return true;
}

/*
 * Clears the entries of whole mappings of at most one block each, from the first page up to
 * the first block whose entries are not known. Never clears a whole table, which the driver
 * frees. Returns pages.
 */
static noinline u64 remove_direct(struct xs_backend *backend, u64 iova, u64 pages)
{
	u64 at = iova, end = iova + (pages << PAGE_SHIFT);

	if (pages >= XS_TABLE_ENTRIES)
		return 0;
	while (at < end) {
		u64 stop = min(end, (at | (XS_BLOCK_BYTES - 1)) + 1);

		if (!clear_entries(backend, at, (stop - at) >> PAGE_SHIFT))
			break;
		at = stop;
	}
	return (at - iova) >> PAGE_SHIFT;
}

/* ---- begin and end ---- */

/*
 * Starts direct tables; no block's entries are known yet. The domain and the table stay,
 * because the device of @config has a driver.
 */
static void begin_direct(struct xs_backend *backend,
			 const struct xs_backend_config *config)
{
	const char *why = config->no_direct;

	if (!config->direct)
		return;
	if (!why && !backend->domain.is_known)
		why = "the operations of its domain are not known";
	if (!why)
		why = xs_root_find(&backend->domain.tables.root, config->dev);
	if (why)
		pr_warn("%s: direct tables cannot be used: %s\n",
			backend->name, why);
	else
		use_begin(backend);
	WRITE_ONCE(backend->domain.tables.off_why, why);
	smp_store_release(&backend->domain.tables.on, !why);
	choose_maps(backend);
}

/*
 * Ends direct tables and forgets the entries of all blocks. Waits first for calls that learn
 * entries or end direct tables, then for calls that write entries.
 */
static void stop_direct(struct xs_backend *backend)
{
	turn_off(backend);
	choose_maps(backend);
	backend_quiesce(backend);
	WRITE_ONCE(backend->domain.tables.off_why, NULL);
	/* Direct tables never began. */
	if (!backend->domain.tables.root.format)
		return;
	xs_tables_forget(&backend->domain.tables);
	choose_maps(backend);
	xs_space_clear_entries(&backend->engine.space);
	xs_identity_forget_entries(&backend->engine);
	backend_quiesce(backend);
}

void xs_backend_set_tables(struct xs_backend *backend,
			   const struct xs_backend_config *config)
{
	stop_direct(backend);
	if (config && !READ_ONCE(backend->maps_fail))
		begin_direct(backend, config);
}
