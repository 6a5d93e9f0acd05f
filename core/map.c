// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Mapping: place the pages, write down how to hold them, call the backend's map; and the flush
 * that some backends need after a map.
 */
#include <xsmmu/claim.h>
#include <xsmmu/place.h>
#include <xsmmu/flush.h>

/* True if the slots of a map that begins here must say how its pages can be held. */
static xs_inline bool xs_holds_pages(const struct xs_engine *engine)
{
	return xs_load(&engine->mode) & XS_MODE_HOLDS;
}

static xs_inline void xs_count_map(struct xs_engine *engine, u32 pages)
{
	xs_count(engine->counts, maps, 1);
	if (xs_unlikely(pages > 1))
		xs_count(engine->counts, map_extra_pages, pages - 1);
}

/* Block of a small mapping that was placed. */
static xs_inline struct xs_block *xs_block_of(struct xs_engine *engine,
					      u64 iova)
{
	return xs_space_block(&engine->space, iova >> XS_PAGE_LG2);
}

void xs_engine_map_failed(struct xs_engine *engine)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = xs_cpu_lock(engine, &flags);

	cpu->stats.map_failures++;
	xs_cpu_unlock(cpu, flags);
}

/*
 * Lets unmaps find a mapping of several pages. The caller has written the slots and mapped the
 * pages. So a repeated unmap of an earlier mapping of the same size finds no mapping, or
 * removes all pages of the new mapping. Entered.
 */
static void xs_publish(struct xs_engine *engine, u64 page, u32 pages)
{
	if (pages > XS_BLOCK_PAGES)
		xs_space_publish_extent(&engine->space, page, pages);
	else
		xs_a64_or(&xs_space_block(&engine->space, page)->joined,
			  xs_block_mask(page + 1, pages - 1));
}

/*
 * Frees the IOVAs of a mapping that was placed and not published; no translation exists. Unmaps
 * find a single page before it is published: if a bad unmap has claimed the page, the page
 * counts as mapped.
 */
static xs_noinline void xs_unplace(struct xs_engine *engine,
				   const struct xs_policy *policy, u64 iova,
				   u32 pages)
{
	struct xs_claim claim = { .page = iova >> XS_PAGE_LG2, .pages = 1 };
	u64 page = iova >> XS_PAGE_LG2;

	if (pages > XS_BLOCK_PAGES) {
		xs_flags_t flags = xs_local_save();

		xs_space_free_extent(&engine->space, iova, pages);
		xs_local_restore(flags);
		return;
	}
	if (pages == 1 && xs_unlikely(!xs_claim_mapping(engine, &claim))) {
		xs_count_map(engine, 1);
		return;
	}
	for (u32 i = 0; i < pages; i++)
		xs_a64_set(xs_space_slot(&engine->space, page + i),
			   XS_SLOT_VACANT);
	xs_place_back(engine, policy, page, pages);
}

/*
 * Handles a map that the backend refused with @error. Pages that the backend has mapped and
 * could not undo become a mapping, which is unmapped at once.
 */
static xs_noinline void xs_map_refused(struct xs_engine *engine, u64 iova,
				       u32 pages, int error)
{
	bool large = pages > XS_BLOCK_PAGES;

	if (large)
		xs_enter();
	xs_engine_map_failed(engine);
	if (error != XS_MAP_NOT_UNDONE) {
		xs_unplace(engine, xs_policy_of(engine), iova, pages);
	} else {
		if (pages > 1)
			xs_publish(engine, iova >> XS_PAGE_LG2, pages);
		xs_count_map(engine, pages);
	}
	if (large)
		xs_exit();
	if (error == XS_MAP_NOT_UNDONE)
		xs_engine_unmap_failed_map(engine, iova, pages);
}

/* Ends a refused map of a single page. Returns 0. Exits. */
static xs_noinline u64 xs_map_one_refused(struct xs_engine *engine, u64 iova,
					  int error)
{
	xs_map_refused(engine, iova, 1, error);
	xs_exit();
	return 0;
}

/* Page of this CPU's magazine; 0 if the magazine has no page up to @last. */
static xs_inline u64 xs_map_one_range(struct xs_engine *engine,
				      const struct xs_policy *policy, u64 last)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = xs_cpu_lock(engine, &flags);
	u64 page = 0;

	xs_cache_get_fast(&cpu->magazines[0], &page);
	xs_cpu_unlock(cpu, flags);
	if (xs_unlikely(page << XS_PAGE_LG2 > last)) {
		xs_place_back(engine, policy, page, 1);
		page = 0;
	}
	return page << XS_PAGE_LG2;
}

/* xs_engine_map_one() if this CPU has no local page up to @last. Exits. */
static xs_noinline xs_no_canary u64 xs_map_one_any(struct xs_engine *engine, u64 phys,
				      u32 prot, u64 last)
{
	const struct xs_policy *policy = xs_policy_of(engine);
	struct xs_block *block;
	u64 iova = 0;
	int error;

	if (policy->placement == XS_PLACE_IDENTITY) {
		iova = xs_identity_map(engine, phys, prot, last);
		if (xs_likely(iova != XS_IDENTITY_NOT)) {
			if (xs_unlikely(iova == XS_IDENTITY_REFUSED))
				iova = 0;
			else
				xs_count_map(engine, 1);
			xs_exit();
			return iova;
		}
	} else if (policy->placement == XS_PLACE_PAGE) {
		iova = xs_map_one_range(engine, policy, last);
	}
	if (!iova)
		iova = xs_place(engine, policy, 1, last);
	if (xs_likely(iova)) {
		block = xs_block_of(engine, iova);
		xs_a64_set(xs_block_slot(block, iova >> XS_PAGE_LG2),
			   xs_slot_one(xs_holds_pages(engine) ?
				       xs_ref_of(phys) : XS_REF_UNHELD));
		error = xs_ops(engine)->map(xs_backend(engine), &block->entries,
					    iova, phys, 1, prot);
		if (xs_unlikely(error))
			return xs_map_one_refused(engine, iova, error);
		xs_count_map(engine, 1);
	}
	xs_exit();
	return iova;
}

/*
 * xs_engine_map_one() under identity placement, a function without calls for a page that is
 * present. Exits.
 */
static xs_noinline xs_no_canary u64 xs_map_one_identity(struct xs_engine *engine, u64 phys,
							u32 prot, u64 last)
{
	u64 page = (phys >> XS_PAGE_LG2) + engine->identity.first;
	xs_atomic64_t *word = xs_identity_word(&engine->identity, page);

	if (xs_unlikely(!word || prot > XS_IDENTITY_PROT_MAX || page << XS_PAGE_LG2 > last) ||
	    xs_unlikely(!xs_identity_share(word, prot)))
		return xs_map_one_any(engine, phys, prot, last);
	xs_count_map(engine, 1);
	xs_exit();
	return page << XS_PAGE_LG2;
}

/*
 * Takes one of this CPU's local pages, up to @last, without the CPU's lock. Returns the IOVA and
 * the page's @block, or 0. Only maps in interrupts of this CPU can come between: one before the
 * store to @local_busy has returned by the time of the loads, and one after it leaves @local and
 * the first of @open as they are. Another CPU changes the first of @open only if it reads @local
 * as 0, by an acquire; so the loads of the last local page stay before that change.
 */
static xs_inline u64 xs_take_local(struct xs_cpu *cpu, u64 last, struct xs_block **block)
{
	u64 local, iova = 0;

	if (xs_unlikely(xs_load(&cpu->local_busy)))
		return 0;
	xs_store(&cpu->local_busy, true);
	local = xs_load(&cpu->local);
	*block = xs_load(&cpu->open[0]);
	if (xs_likely(local)) {
		iova = (*block)->iova + xs_ctz(local) * XS_PAGE_BYTES;
		if (xs_likely(iova <= last))
			xs_store_release(&cpu->local, local & (local - 1));
		else
			iova = 0;
	}
	xs_store(&cpu->local_busy, false);
	return iova;
}

/*
 * xs_engine_map() of one of this CPU's local pages, without the CPU's lock.
 * @memory: the caller's knowledge of the memory, for xs_memory_ref(). Rare cases are tail
 * calls. The caller has entered, because its pointer to the engine may be valid only while
 * entered; this function exits.
 */
static xs_inline u64 xs_engine_map_one(struct xs_engine *engine,
				       xs_memory_t memory, u64 phys, u32 prot,
				       u64 last)
{
	u32 mode = xs_load(&engine->mode);
	struct xs_block *block = 0;
	void **entries;
	u64 iova = 0;
	int error;

	if (xs_likely(mode & XS_MODE_LOCAL))
		iova = xs_take_local(xs_count_cpu(engine->counts), last, &block);
	if (xs_unlikely(!iova))
		return mode & XS_MODE_IDENTITY ? xs_map_one_identity(engine, phys, prot, last) :
						 xs_map_one_any(engine, phys, prot, last);
	/*
	 * Before the map: after it, the compiler would save three more registers for each page.
	 * No right unmap names the page before the map has returned the IOVA, so none sees the
	 * slot too early. A bad unmap of exactly this page claims the mapping; then the entry
	 * may be written after its removal, and stays until the IOVA is mapped or removed
	 * again. Bad unmaps of other sizes find a torn mapping (tear.h), and wait for the map
	 * before the IOVA is free.
	 */
	xs_a64_set(xs_block_slot(block, iova >> XS_PAGE_LG2),
		   xs_slot_one(xs_likely(mode & XS_MODE_HOLDS) ?
			       xs_memory_ref(memory) : XS_REF_UNHELD));
	/* Drops the inlined map()'s test for NULL, which only larger mappings need. */
	entries = &block->entries;
	xs_assume(entries);
	error = xs_ops(engine)->map(xs_backend(engine), entries, iova, phys, 1,
				    prot);
	if (xs_unlikely(error))
		return xs_map_one_refused(engine, iova, error);
	xs_count_map(engine, 1);
	xs_exit();
	return iova;
}

static xs_noinline void xs_map_nothing(struct xs_engine *engine)
{
	xs_engine_report_ignored(engine, 0, "a map of no pages, or of too many");
}

static u64 xs_place_many(struct xs_engine *engine,
			 const struct xs_policy *policy, u32 pages, u64 last)
{
	if (xs_likely(pages))
		return xs_place(engine, policy, pages, last);
	xs_map_nothing(engine);
	return 0;
}

u64 xs_engine_map(struct xs_engine *engine, u64 phys, u32 pages, u32 prot,
		  u64 last)
{
	bool large = pages > XS_BLOCK_PAGES;
	const struct xs_policy *policy;
	struct xs_block *block = 0;
	int error = 0;
	u64 iova;

	xs_enter();
	if (pages == 1)
		return xs_engine_map_one(engine, xs_memory_at(phys), phys,
					 prot, last);
	policy = xs_policy_of(engine);
	iova = xs_place_many(engine, policy, pages, last);
	if (iova && !large) {
		block = xs_block_of(engine, iova);
		xs_slots_fill(xs_block_slot(block, iova >> XS_PAGE_LG2), phys,
			      pages, xs_holds_pages(engine));
	}
	/* A large mapping depends on no policy, and the map may take long. */
	if (large)
		xs_exit();
	if (iova)
		error = xs_ops(engine)->map(xs_backend(engine),
					    block ? &block->entries : 0, iova,
					    phys, pages, prot);
	if (xs_unlikely(error)) {
		xs_map_refused(engine, iova, pages, error);
		iova = 0;
	}
	if (large)
		xs_enter();
	if (iova) {
		xs_publish(engine, iova >> XS_PAGE_LG2, pages);
		xs_count_map(engine, pages);
	}
	xs_exit();
	return iova;
}

/* ---- in parts ---- */

u64 xs_engine_alloc_iova(struct xs_engine *engine, u32 pages, u64 last)
{
	u64 iova;

	xs_enter();
	iova = xs_place_many(engine, xs_policy_of(engine), pages, last);
	if (iova)
		xs_count_map(engine, pages);
	xs_exit();
	return iova;
}

/* Number of pages, from the first on, that are neighbours in memory, or are all blocked. */
static xs_inline u32 xs_neighbours(const u64 *phys, u32 pages)
{
	u64 step = phys[0] == XS_PHYS_NONE ? 0 : XS_PAGE_BYTES;
	u64 next = phys[0] + step;
	u32 extent = 1;

	for (; extent < pages && phys[extent] == next; extent++)
		next += step;
	return extent;
}

/*
 * Maps pages of a block. Returns the number of mapped pages, from the first on. *@not_undone
 * pages after those are mapped in part, and the backend could not undo the map.
 */
static xs_inline u32 xs_map_each(struct xs_engine *engine,
				 struct xs_block *block, u64 iova,
				 const u64 *phys, u32 pages, u32 prot,
				 u32 *not_undone)
{
	u32 done = 0, extent;
	int error = 0;

	*not_undone = 0;
	if (xs_ops(engine)->map_each &&
	    xs_ops(engine)->map_each(xs_backend(engine), &block->entries, iova,
				     phys, pages, prot))
		return pages;
	for (; done < pages; done += extent) {
		extent = xs_neighbours(phys + done, pages - done);
		if (phys[done] != XS_PHYS_NONE)
			error = xs_ops(engine)->map(xs_backend(engine),
						    &block->entries,
						    iova + done * XS_PAGE_BYTES,
						    phys[done], extent, prot);
		if (xs_unlikely(error))
			break;
	}
	if (xs_unlikely(error == XS_MAP_NOT_UNDONE))
		*not_undone = extent;
	return done;
}

/* True if the pages have more extents that can be held than a mapping can have references. */
static bool xs_holds_too_many(const u64 *phys, u32 pages)
{
	u32 extents = 0;

	for (u32 at = 0; at < pages && extents <= XS_HOLDS_MAX;) {
		if (phys[at] != XS_PHYS_NONE)
			extents += xs_ref_can_be_held(xs_ref_of(phys[at]));
		at += xs_neighbours(phys + at, pages - at);
	}
	return extents > XS_HOLDS_MAX;
}

/* Writes the slots of a small mapping of several scattered pages. */
static void xs_fill_slots_each(const struct xs_engine *engine,
			       xs_slot_t *slots, const u64 *phys, u32 pages)
{
	u32 extent;

	/* The unmap of a mapping with too many references flushes, and needs no reference. */
	if (!xs_holds_pages(engine) || xs_holds_too_many(phys, pages)) {
		xs_a64_set(slots, xs_slot_many(XS_REF_UNHELD, pages));
		return;
	}
	for (u32 at = 0; at < pages; at += extent) {
		extent = xs_neighbours(phys + at, pages - at);
		if (phys[at] == XS_PHYS_NONE)
			xs_slots_fill_none(slots + at, extent);
		else
			xs_slots_fill(slots + at, phys[at], extent, true);
	}
}

/*
 * Lets unmaps find a small range that is filled, or could not be filled. The slots of several
 * pages are written; @first is the slot of a single page.
 */
static void xs_publish_filled(struct xs_engine *engine, u64 page, u32 pages, u64 first)
{
	if (pages > 1)
		xs_publish(engine, page, pages);
	else
		xs_a64_set_release(xs_space_slot(&engine->space, page), first);
}

int xs_engine_fill_each(struct xs_engine *engine, u64 iova, const u64 *phys,
			u32 pages, u32 prot)
{
	u64 page = iova >> XS_PAGE_LG2, first = XS_SLOT_VACANT;
	struct xs_block *block;
	bool done;
	u32 not_undone;

	xs_enter();
	block = xs_block_of(engine, iova);
	if (pages > 1)
		xs_fill_slots_each(engine, xs_block_slot(block, page), phys, pages);
	else
		first = xs_slot_one(xs_holds_pages(engine) ? xs_ref_of(phys[0]) :
							    XS_REF_UNHELD);
	done = xs_map_each(engine, block, iova, phys, pages, prot, &not_undone) ==
	       pages;
	xs_publish_filled(engine, page, pages, first);
	if (xs_unlikely(!done))
		xs_engine_map_failed(engine);
	xs_exit();
	if (xs_likely(done))
		return 0;
	return not_undone ? XS_MAP_NOT_UNDONE : -XS_ENOMEM;
}

int xs_engine_fill(struct xs_engine *engine, u64 iova, u64 phys, u32 pages,
		   u32 prot)
{
	int error = xs_ops(engine)->map(xs_backend(engine), 0, iova, phys, pages,
					prot);

	if (xs_unlikely(error)) {
		xs_enter();
		xs_engine_map_failed(engine);
		xs_exit();
	}
	return error;
}

void xs_engine_publish(struct xs_engine *engine, u64 iova, u32 pages)
{
	u64 page = iova >> XS_PAGE_LG2;

	xs_enter();
	if (pages > XS_BLOCK_PAGES) {
		xs_publish(engine, page, pages);
	} else {
		if (pages > 1)
			xs_slots_fill_none(xs_space_slot(&engine->space, page), pages);
		xs_publish_filled(engine, page, pages, xs_slot_one(XS_REF_NONE));
	}
	xs_exit();
}

/* ---- blocks of a driver's own ---- */

u64 xs_engine_alloc_block(struct xs_engine *engine, u32 pages, u64 last)
{
	struct xs_block *block;

	u64 iova = 0;

	xs_enter();
	if (!pages || pages > XS_BLOCK_PAGES) {
		xs_engine_report_ignored(engine, 0, "a block of no pages, or of too many");
	} else {
		block = xs_place_own(engine, xs_policy_of(engine), pages, last);
		iova = block ? block->iova : 0;
	}
	xs_exit();
	return iova;
}

/*
 * Takes pages of a driver's block that the driver has not mapped. Returns NULL, and reports a
 * misuse, if the driver does not own all of them.
 */
static struct xs_block *xs_own_claim(struct xs_engine *engine, u64 iova,
				     u32 pages)
{
	u64 page = iova >> XS_PAGE_LG2;
	struct xs_block *block = xs_space_block(&engine->space, page);
	bool inside = pages && (page & (XS_BLOCK_PAGES - 1)) + pages <=
				       XS_BLOCK_PAGES;

	if (block && inside) {
		u64 mask = xs_block_mask(page, pages);
		u64 own = xs_a64_read(&block->own);

		while ((own & mask) == mask)
			if (xs_a64_try_acquire(&block->own, &own,
					       own & ~mask))
				return block;
	}
	xs_engine_report_ignored(engine, iova, "a use of a block that is not the driver's own");
	return 0;
}

/*
 * Handles pages of a driver's block, @pages from @iova on, that the backend refused to map. The
 * first @not_undone pages are mapped in part: each becomes a mapping, which is unmapped at once.
 * The driver owns the other pages again.
 */
static xs_noinline void xs_block_refused(struct xs_engine *engine,
					 struct xs_block *block, u64 iova,
					 u32 pages, u32 not_undone)
{
	u64 page = iova >> XS_PAGE_LG2;

	if (not_undone < pages)
		xs_a64_or(&block->own, xs_block_mask(page + not_undone, pages - not_undone));
	xs_engine_map_failed(engine);
	for (u32 i = 0; i < not_undone; i++) {
		xs_count_map(engine, 1);
		xs_engine_unmap_failed_map(engine, iova + i * XS_PAGE_BYTES, 1);
	}
}

u32 xs_engine_map_in_block(struct xs_engine *engine, u64 iova, const u64 *phys,
			   u32 pages, u32 prot)
{
	struct xs_block *block;
	xs_slot_t *slots;
	u32 done = 0, not_undone;
	bool holds;

	xs_enter();
	holds = xs_holds_pages(engine);
	block = xs_own_claim(engine, iova, pages);
	if (!block)
		goto out;
	slots = xs_block_slot(block, iova >> XS_PAGE_LG2);
	done = xs_map_each(engine, block, iova, phys, pages, prot, &not_undone);
	/* A slot for each page, because each page is unmapped on its own. */
	for (u32 i = 0; i < done + not_undone; i++)
		xs_a64_set_release(&slots[i],
				   xs_slot_one(holds ? xs_ref_of(phys[i]) :
						       XS_REF_UNHELD));
	if (xs_unlikely(done < pages))
		xs_block_refused(engine, block, iova + done * XS_PAGE_BYTES,
				 pages - done, not_undone);
	if (done)
		xs_count_map(engine, done);
out:
	xs_exit();
	return done;
}

void xs_engine_drop_in_block(struct xs_engine *engine, u64 iova, u32 pages)
{
	struct xs_block *block;

	xs_enter();
	block = xs_own_claim(engine, iova, pages);
	if (block) {
		xs_flags_t flags;
		struct xs_cpu *cpu = xs_cpu_lock(engine, &flags);

		xs_place_back_block(engine, cpu, block,
				    xs_block_mask(iova >> XS_PAGE_LG2, pages));
		xs_cpu_unlock(cpu, flags);
	}
	xs_exit();
}

/* ---- maps without their flush ---- */

/* Up to this many ranges have a command each; more are joined from the first to the last. */
static u32 xs_unflushed_ranges_max(const struct xs_policy *policy)
{
	return policy->scope == XS_SCOPE_DOMAIN ? 1 : policy->ranges_max;
}

/* Converts the extents of @unflushed, which is not empty, to ranges. Returns the number. */
static u32 xs_unflushed_ranges(struct xs_unflushed *unflushed,
			       struct xs_range *ranges, u32 max)
{
	const u64 *extents = unflushed->extents;
	u32 count = xs_extents_join(unflushed->extents, unflushed->count);
	/* The extents are disjoint and sorted now. */
	u64 end = xs_extent_page(extents[count - 1]) + xs_extent_pages(extents[count - 1]);

	if (count > max) {
		ranges[0].page = xs_extent_page(extents[0]);
		ranges[0].pages = end - ranges[0].page;
		return 1;
	}
	for (u32 i = 0; i < count; i++) {
		ranges[i].page = xs_extent_page(extents[i]);
		ranges[i].pages = xs_extent_pages(extents[i]);
	}
	return count;
}

/* Flushes the unflushed maps of a CPU, with the CPU's lock held. Entered. */
static void xs_unflushed_flush(struct xs_engine *engine, struct xs_cpu *cpu)
{
	struct xs_unflushed *unflushed = &cpu->unflushed;
	struct xs_range ranges[XS_RANGES_MAX];
	u32 count;

	xs_assert_locked(&cpu->lock);
	if (!unflushed->count)
		return;
	count = xs_unflushed_ranges(unflushed, ranges,
				    xs_unflushed_ranges_max(xs_policy_of(engine)));
	xs_ops(engine)->flush_maps(xs_backend(engine), ranges, count);
	unflushed->pages = 0;
	xs_store_release(&unflushed->count, 0);
}

/* True if the joined extents can have @pages more pages. */
static bool xs_unflushed_has_room(struct xs_unflushed *unflushed, u32 pages)
{
	u32 count = unflushed->count;

	if (unflushed->pages + pages > 0xffff)
		return false;
	if (count == XS_UNFLUSHED_EXTENTS) {
		count = xs_extents_join(unflushed->extents, count);
		xs_store(&unflushed->count, count);
	}
	return count < XS_UNFLUSHED_EXTENTS;
}

/* Adds an unflushed map of this CPU. Entered. */
static void xs_unflushed_add(struct xs_engine *engine, u64 page, u32 pages)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = xs_cpu_lock(engine, &flags);
	struct xs_unflushed *unflushed = &cpu->unflushed;
	u64 *next;

	if (xs_unlikely(!xs_unflushed_has_room(unflushed, pages)))
		xs_unflushed_flush(engine, cpu);
	next = &unflushed->extents[unflushed->count];
	unflushed->pages += pages;
	if (xs_likely(unflushed->count) &&
	    xs_extent_page(next[-1]) + xs_extent_pages(next[-1]) == page) {
		next[-1] += pages;
	} else {
		*next = page << 16 | pages;
		xs_store(&unflushed->count, unflushed->count + 1);
	}
	xs_cpu_unlock(cpu, flags);
}

u64 xs_engine_map_unflushed(struct xs_engine *engine, u64 phys, u32 pages,
			    u32 prot, u64 last)
{
	u64 iova;

	if (pages > XS_BLOCK_PAGES)
		return xs_engine_map(engine, phys, pages,
				     prot & ~XS_MAP_UNFLUSHED, last);
	xs_enter();
	iova = xs_engine_map(engine, phys, pages, prot, last);
	if (iova)
		xs_unflushed_add(engine, iova >> XS_PAGE_LG2, pages);
	xs_exit();
	return iova;
}

u32 xs_engine_map_in_block_unflushed(struct xs_engine *engine, u64 iova,
				     const u64 *phys, u32 pages, u32 prot)
{
	u32 done;

	xs_enter();
	done = xs_engine_map_in_block(engine, iova, phys, pages, prot);
	if (done)
		xs_unflushed_add(engine, iova >> XS_PAGE_LG2, done);
	xs_exit();
	return done;
}

void xs_engine_flush_maps(struct xs_engine *engine, bool everywhere)
{
	xs_flags_t flags;

	for (u32 i = 0; everywhere && i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];

		if (!xs_load_acquire(&cpu->unflushed.count))
			continue;
		flags = xs_cpu_lock_any(cpu);
		xs_unflushed_flush(engine, cpu);
		xs_cpu_unlock_any(cpu, flags);
	}
	if (!everywhere) {
		struct xs_cpu *cpu;

		xs_enter();
		cpu = xs_cpu_lock(engine, &flags);
		xs_unflushed_flush(engine, cpu);
		xs_cpu_unlock(cpu, flags);
		xs_exit();
	}
}
