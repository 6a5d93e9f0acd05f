// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Mapping, unmapping and the sync; see engine.h.
 *
 * The order inside a sync is the product: take the dead pages, remove them,
 * invalidate and wait, and only then release what was held and let the IOVAs
 * go. Every IOVA goes back through block_back() or piece_put(), at the end of
 * sync_entries() or unmap_now(), or because it was never handed out or mapped.
 */
#include <xsmmu/engine.h>

static xs_inline struct xs_cpu *this_cpu_lock(struct xs_engine *engine,
					      xs_flags_t *flags)
{
	struct xs_cpu *cpu;

	*flags = xs_local_save();
	cpu = engine->cpus[xs_cpu_id()];
	xs_lock_nested(&cpu->lock);
	return cpu;
}

static xs_inline void this_cpu_unlock(struct xs_cpu *cpu, xs_flags_t flags)
{
	xs_unlock_nested(&cpu->lock);
	xs_local_restore(flags);
}

/* The set of @pages pages, 1 .. XS_BLOCK_PAGES, from page @first of a block. */
static xs_inline u64 mask_of(u32 first, u32 pages)
{
	return (XS_BLOCK_ALL >> (XS_BLOCK_PAGES - pages)) << first;
}

/* The length of the first run of pages in @mask, which has one. */
static xs_inline u32 run_of(u64 mask)
{
	u64 rest = ~(mask >> xs_ctz(mask));

	return rest ? xs_ctz(rest) : XS_BLOCK_PAGES;
}

/* The pages of one mapping inside its block. */
static xs_inline u64 mask_at(u64 page, u32 pages)
{
	return mask_of(page & (XS_BLOCK_PAGES - 1), pages);
}

static xs_inline struct xs_block *block_at(struct xs_engine *engine, u64 page)
{
	return &engine->space.blocks[page >> XS_BLOCK_LG2];
}

static u32 min_of(u32 a, u32 b)
{
	return a < b ? a : b;
}

static xs_inline u32 lg2_ceil(u32 pages)
{
	return pages > 1 ? xs_log2(pages - 1) + 1 : 0;
}

static xs_inline bool syncs_on(const struct xs_policy *policy,
			       enum xs_sync point)
{
	return policy->syncs & XS_SYNC_BIT(point);
}

/* ---- placement: where IOVAs come from and go back to ---- */

/* The pages of @mask in @block are back; the last ones free the block. */
static xs_inline void block_back(struct xs_engine *engine, u32 block, u64 mask)
{
	u64 old = xs_a64_or(&engine->space.blocks[block].back, mask);

	if (xs_warn_once(old & mask, "pages came back twice"))
		return;
	if ((old | mask) == XS_BLOCK_ALL)
		xs_space_give(&engine->space, block);
}

/* A magazine gives up a piece: it goes back to its block. */
struct piece_context {
	struct xs_engine *engine;
	u32 lg2;
};

static xs_noinline void piece_back(void *context, u32 page)
{
	const struct piece_context *piece = context;

	block_back(piece->engine, page >> XS_BLOCK_LG2,
		   mask_at(page, 1u << piece->lg2));
}

static xs_inline void piece_put(struct xs_engine *engine, struct xs_cpu *cpu, u32 lg2,
		      u32 page)
{
	struct piece_context context = { engine, lg2 };

	if (!xs_cache_put(&cpu->pieces[lg2], &engine->depots[lg2], page))
		piece_back(&context, page);
}

static xs_noinline void pieces_back(struct xs_engine *engine,
				    struct xs_cpu *cpu, u32 lg2, u32 block,
				    u64 mask)
{
	while (mask) {
		u32 at = xs_ctz(mask) >> lg2 << lg2;

		piece_put(engine, cpu, lg2, (block << XS_BLOCK_LG2) + at);
		mask &= ~mask_of(at, 1u << lg2);
	}
}

/* The pages of @mask in @block have no stale translation: let them go. */
static xs_inline void pages_back(struct xs_engine *engine, struct xs_cpu *cpu,
				 u32 block, u64 mask)
{
	u32 lg2 = engine->space.blocks[block].piece_lg2;

	if (lg2 == XS_NOT_CARVED)
		block_back(engine, block, mask);
	else
		pieces_back(engine, cpu, lg2, block, mask);
}

/* Take one block; the pages of @back are not handed out. */
static u32 block_take(struct xs_engine *engine, u32 limit_block, u64 back,
		      u8 piece_lg2)
{
	u32 at = xs_space_take(&engine->space, 1, limit_block);
	struct xs_block *block = &engine->space.blocks[at];

	if (at == XS_NO_BLOCK)
		return at;
	xs_a64_set(&block->dead, 0);
	xs_a64_set(&block->back, back);
	block->piece_lg2 = piece_lg2;
	return at;
}

/* A piece of a fresh block; the others go to this CPU's magazines. */
static u64 piece_carve(struct xs_engine *engine, struct xs_cpu *cpu, u32 lg2,
		       u32 limit_block)
{
	u32 block = block_take(engine, limit_block, 0, (u8)lg2);
	u32 first = block << XS_BLOCK_LG2;

	if (block == XS_NO_BLOCK)
		return 0;
	/* Last first: a magazine is a stack, so they come out in order. */
	for (u32 at = XS_BLOCK_PAGES - (1u << lg2); at; at -= 1u << lg2)
		piece_put(engine, cpu, lg2, first + at);
	return (u64)first << XS_PAGE_LG2;
}

static u64 place_piece(struct xs_engine *engine, struct xs_cpu *cpu, u32 pages,
		       u32 limit_block)
{
	u32 lg2 = lg2_ceil(pages);
	u32 page;

	if (!xs_cache_get(&cpu->pieces[lg2], &engine->depots[lg2], &page))
		return piece_carve(engine, cpu, lg2, limit_block);
	if (xs_likely((page >> XS_BLOCK_LG2) < limit_block))
		return (u64)page << XS_PAGE_LG2;

	/* The device cannot address what is cached. */
	piece_put(engine, cpu, lg2, page);
	return piece_carve(engine, cpu, lg2, limit_block);
}

/* Stop filling this CPU's open block. */
static void close_block(struct xs_engine *engine, struct xs_cpu *cpu)
{
	u64 open = xs_a64_swap(&cpu->open, XS_OPEN_NONE);
	u32 gone = open & XS_OPEN_GONE;

	if (gone < XS_BLOCK_PAGES)
		block_back(engine, (u32)(open / XS_BLOCK_BYTES),
			   mask_of(gone, XS_BLOCK_PAGES - gone));
}

/* The next @pages pages of @cpu's open block, naturally aligned; 0: no room. */
static u64 open_next(struct xs_engine *engine, struct xs_cpu *cpu, u32 pages,
		     u64 last)
{
	u32 align = 1u << lg2_ceil(pages);
	u64 open = xs_a64_read(&cpu->open);
	u32 gone, skip;
	u64 iova;

	do {
		gone = open & XS_OPEN_GONE;
		skip = -gone & (align - 1);
		iova = (open & ~XS_OPEN_GONE) + skip * XS_PAGE_BYTES;
		if (gone + skip + pages > XS_BLOCK_PAGES ||
		    iova + pages * XS_PAGE_BYTES - 1 > last)
			return 0;
	} while (!xs_a64_try(&cpu->open, &open,
			     open + (skip + pages) * XS_OPEN_STEP));
	if (skip)
		block_back(engine, (u32)(iova / XS_BLOCK_BYTES),
			   mask_of(gone, skip));
	return iova;
}

static u64 place_in_block(struct xs_engine *engine, struct xs_cpu *cpu,
			  u32 pages, u64 last, u32 limit_block)
{
	u64 iova = open_next(engine, cpu, pages, last);
	u32 block;

	if (iova)
		return iova;
	close_block(engine, cpu);
	block = block_take(engine, limit_block, 0, XS_NOT_CARVED);
	if (block == XS_NO_BLOCK)
		return 0;
	iova = (u64)block * XS_BLOCK_BYTES;
	xs_a64_swap(&cpu->open, iova + pages * XS_OPEN_STEP);
	return iova;
}

/* Whole neighbouring blocks, for a mapping larger than one. */
static u64 place_blocks(struct xs_engine *engine, u32 pages, u32 limit_block)
{
	u32 count = (pages + XS_BLOCK_PAGES - 1) >> XS_BLOCK_LG2;
	u32 first = xs_space_take(&engine->space, count, limit_block);

	if (first == XS_NO_BLOCK)
		return 0;
	for (u32 i = 0; i < count; i++) {
		struct xs_block *block = &engine->space.blocks[first + i];

		xs_a64_set(&block->dead, 0);
		xs_a64_set(&block->back, 0);
		block->piece_lg2 = XS_NOT_CARVED;
	}
	return (u64)first * XS_BLOCK_BYTES;
}

/* The number of whole blocks up to @last. */
static u32 limit_of(u64 last)
{
	u64 blocks = (last + 1) / XS_BLOCK_BYTES;

	if (last == ~0ULL || blocks >= XS_NO_BLOCK)
		return XS_NO_BLOCK - 1;
	return (u32)blocks;
}

static u64 place(struct xs_engine *engine, struct xs_cpu *cpu, u32 pages,
		 u64 last)
{
	u32 limit_block = limit_of(last);

	if (pages > XS_BLOCK_PAGES)
		return place_blocks(engine, pages, limit_block);
	if (xs_load(&engine->policy)->placement == XS_PLACE_BLOCK)
		return place_in_block(engine, cpu, pages, last, limit_block);
	return place_piece(engine, cpu, pages, limit_block);
}

/* Let go of a whole range that was placed; nothing of it is mapped. */
static void range_back(struct xs_engine *engine, struct xs_cpu *cpu, u64 page,
		       u32 pages)
{
	u32 block = (u32)(page >> XS_BLOCK_LG2);
	u32 lg2 = engine->space.blocks[block].piece_lg2;

	if (lg2 != XS_NOT_CARVED) {
		piece_put(engine, cpu, lg2, (u32)page);
		return;
	}
	if (pages <= XS_BLOCK_PAGES) {
		block_back(engine, block, mask_at(page, pages));
		return;
	}
	for (u32 at = 0; at < pages; at += XS_BLOCK_PAGES)
		block_back(engine, block++, XS_BLOCK_ALL);
}

/* ---- sync ---- */

static void count_sync(struct xs_engine *engine, struct xs_cpu *cpu,
		       enum xs_sync cause, u32 pages, u32 ranges,
		       const struct xs_commands *sent, u64 oldest_ns)
{
	cpu->ledger.syncs[cause]++;
	cpu->ledger.commands_page += sent->page;
	cpu->ledger.commands_domain += sent->domain;
	cpu->ledger.commands_global += sent->global;
	if (xs_ops(engine)->synced)
		xs_ops(engine)->synced(xs_world(engine), cpu->id, cause, pages,
				       ranges, sent, oldest_ns);
}

/*
 * Pages of one page-table page. A removal that covers all of them frees it, and
 * costs the invalidation its hint and the next map a new one: not worth it, so
 * runs are joined only inside.
 */
#define TABLE_PAGES	512

/* Remove each run of the entries' pages in one call; they are in order. */
static void remove_runs(struct xs_engine *engine,
			const struct xs_entry *entries, u32 count,
			xs_gather_t *gather)
{
	u64 start = 0, end = 0;

	for (u32 i = 0; i < count; i++) {
		u64 first = (u64)entries[i].block << XS_BLOCK_LG2;
		u64 mask = entries[i].mask;

		while (mask) {
			u32 at = xs_ctz(mask);
			u32 run = run_of(mask);

			mask &= ~mask_of(at, run);
			if (first + at == end && end % TABLE_PAGES &&
			    end + run - start < TABLE_PAGES) {
				end += run;
				continue;
			}
			if (end != start)
				xs_ops(engine)->remove(xs_world(engine), gather,
						       start << XS_PAGE_LG2,
						       end - start);
			start = first + at;
			end = start + run;
		}
	}
	if (end != start)
		xs_ops(engine)->remove(xs_world(engine), gather,
				       start << XS_PAGE_LG2, end - start);
}

/* Take the entries' dead pages; returns their number. */
static u32 take_dead(struct xs_engine *engine, struct xs_entry *entries,
		     u32 count)
{
	u32 pages = 0;

	for (u32 i = 0; i < count; i++) {
		struct xs_block *block =
			&engine->space.blocks[entries[i].block];

		xs_a64_set(&block->listing, XS_LISTING_NONE);
		entries[i].mask = xs_a64_swap(&block->dead, 0);
		pages += xs_popcount(entries[i].mask);
	}
	return pages;
}

/* Invalidate what @count entries removed. Returns the ranges used, 0: domain. */
static u32 invalidate_entries(struct xs_engine *engine,
			      const struct xs_entry *entries, u32 count,
			      xs_gather_t *gather, struct xs_commands *sent)
{
	enum xs_scope scope = xs_load(&engine->policy)->scope;
	u32 max = xs_load(&engine->tuning.range_commands_max);
	struct xs_range ranges[XS_RANGES_MAX];
	u32 found = 0;

	if (scope == XS_SCOPE_RANGE)
		max = XS_RANGES_MAX;
	if (scope != XS_SCOPE_DOMAIN)
		found = xs_batch_ranges(entries, count, ranges, max);
	if (found > max)
		found = 0;
	xs_ops(engine)->invalidate(xs_world(engine), gather, ranges, found, sent);
	return found;
}

static xs_inline bool is_held(xs_ref_t ref)
{
	return ((size_t)ref & XS_REF_TAGS) == XS_REF_HELD;
}

/* The pages that @ref speaks for, from its own on. */
static xs_inline u32 span_of(xs_ref_t ref)
{
	return xs_ref_is_none(ref) ? xs_ref_none_pages(ref) : 1;
}

/* Release what was held of an entry's pages, and let their IOVAs go. */
static void release_entry(struct xs_engine *engine, struct xs_cpu *cpu,
			  const struct xs_entry *entry)
{
	xs_ref_t *refs = xs_space_ref(&engine->space,
				      (u64)entry->block << XS_BLOCK_LG2);

	for (u64 mask = entry->mask; mask;) {
		xs_ref_t *slot = refs + xs_ctz(mask);
		xs_ref_t *end = run_of(mask) + slot;

		mask &= ~mask_of(slot - refs, end - slot);
		while (slot < end) {
			xs_ref_t ref = *slot;

			*slot = XS_REF_RELEASED;
			if (xs_unlikely(!is_held(ref))) {
				slot += span_of(ref);
				continue;
			}
			slot++;
			xs_ref_release((xs_ref_t)((size_t)ref - XS_REF_HELD));
		}
	}
	pages_back(engine, cpu, entry->block, entry->mask);
}

/* Sync @count entries of this CPU's batch. */
static void sync_entries(struct xs_engine *engine, struct xs_cpu *cpu,
			 struct xs_entry *entries, u32 count,
			 enum xs_sync cause)
{
	struct xs_commands sent = { 0, 0, 0 };
	xs_gather_t gather;
	u64 oldest = ~0ULL;
	u32 pages, ranges;
	u64 now;

	xs_ops(engine)->gather_init(&gather);
	pages = take_dead(engine, entries, count);
	if (!pages)
		return;
	xs_batch_sort(entries, count);
	remove_runs(engine, entries, count, &gather);
	ranges = invalidate_entries(engine, entries, count, &gather, &sent);
	now = xs_ops(engine)->clock(xs_world(engine));
	for (u32 i = 0; i < count; i++) {
		if (!entries[i].mask)
			continue;
		xs_ledger_expose(&cpu->ledger, now - entries[i].oldest_ns,
				 xs_popcount(entries[i].mask));
		if (entries[i].oldest_ns < oldest)
			oldest = entries[i].oldest_ns;
		release_entry(engine, cpu, &entries[i]);
	}
	cpu->ledger.synced_pages += pages;
	count_sync(engine, cpu, cause, pages, ranges, &sent, now - oldest);
}

static xs_noinline void sync_batch(struct xs_engine *engine,
				   struct xs_cpu *cpu, enum xs_sync cause)
{
	if (!cpu->batch.count)
		return;
	sync_entries(engine, cpu, cpu->batch.entries, cpu->batch.count, cause);
	cpu->batch.count = 0;
	xs_store(&cpu->promised, false);
}

/* Is @block in this CPU's batch? Its lock is held. */
static xs_inline bool is_batched_here(const struct xs_engine *engine,
				      const struct xs_cpu *cpu, u32 block)
{
	u64 listing = xs_a64_read(&engine->space.blocks[block].listing);

	return xs_listing_cpu(listing) == cpu->id + 1;
}

/* Sync @block alone, if it is in the batch of @cpu. */
static xs_noinline void sync_block(struct xs_engine *engine,
				   struct xs_cpu *cpu, u32 block)
{
	struct xs_batch *batch = &cpu->batch;
	struct xs_entry entry;
	u32 at = 0;

	if (!is_batched_here(engine, cpu, block))
		return;
	while (batch->entries[at].block != block)
		at++;
	entry = batch->entries[at];
	batch->entries[at] = batch->entries[--batch->count];
	sync_entries(engine, cpu, &entry, 1, XS_SYNC_BLOCK);
}

/* ---- map ---- */

static xs_inline bool holds_pages(const struct xs_policy *policy)
{
	return policy->hold == XS_HOLD_PAGES;
}

/*
 * Write down how to hold the pages of a mapping inside a block. One reference
 * keeps all that it covers, and one page that cannot be held decides for all:
 * the first page of these has it, the second one says how many have none.
 */
static void set_refs(struct xs_engine *engine, u64 page, u64 phys, u32 pages)
{
	xs_ref_t *slot = xs_space_ref(&engine->space, page);
	bool holds = holds_pages(xs_load(&engine->policy));

	while (pages) {
		u32 span = pages;

		*slot = holds ? xs_ref_of(phys) : XS_REF_UNHELD;
		if (*slot != XS_REF_UNHELD && span > 1)
			span = min_of(span, xs_ref_span(*slot, phys));
		if (span > 1)
			slot[1] = XS_REF_NONE(span - 1);
		slot += span;
		phys += span * XS_PAGE_BYTES;
		pages -= span;
	}
}

/* There is nothing to hold in these pages. */
static void set_none(struct xs_engine *engine, u64 page, u32 pages)
{
	*xs_space_ref(&engine->space, page) = XS_REF_NONE(pages);
}

/* Give back the pieces that @cpu caches; its lock is held. */
static void flush_pieces(struct xs_engine *engine, struct xs_cpu *cpu)
{
	for (u32 lg2 = 0; lg2 < XS_PIECE_LG2S; lg2++) {
		struct piece_context context = { engine, lg2 };

		xs_cache_flush(&cpu->pieces[lg2], &engine->depots[lg2],
			       piece_back, &context);
	}
}

/* Free all IOVAs that CPUs and depots only keep. */
static void reclaim(struct xs_engine *engine)
{
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];
		xs_flags_t flags = xs_lock(&cpu->lock);

		sync_batch(engine, cpu, XS_SYNC_FULL);
		close_block(engine, cpu);
		flush_pieces(engine, cpu);
		xs_unlock(&cpu->lock, flags);
	}
	for (u32 lg2 = 0; lg2 < XS_PIECE_LG2S; lg2++) {
		struct piece_context context = { engine, lg2 };

		xs_depot_flush(&engine->depots[lg2], piece_back, &context);
	}
}

/* Place after all else failed. */
static xs_noinline u64 place_starved(struct xs_engine *engine, u32 pages,
				     u64 last)
{
	xs_flags_t flags;
	struct xs_cpu *cpu;
	u64 iova;

	reclaim(engine);
	cpu = this_cpu_lock(engine, &flags);
	iova = place(engine, cpu, pages, last);
	if (!iova)
		cpu->ledger.map_failures++;
	this_cpu_unlock(cpu, flags);
	return iova;
}

/*
 * Place @pages pages; on no IOVA sync what this CPU holds and try again, then
 * what all CPUs hold or cache.
 */
static xs_noinline u64 place_locked(struct xs_engine *engine, u32 pages,
				    u64 last)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = this_cpu_lock(engine, &flags);
	u64 iova = place(engine, cpu, pages, last);

	if (xs_unlikely(!iova)) {
		sync_batch(engine, cpu, XS_SYNC_FULL);
		iova = place(engine, cpu, pages, last);
	}
	this_cpu_unlock(cpu, flags);
	return xs_likely(iova) ? iova : place_starved(engine, pages, last);
}

/* Place @pages pages, in this CPU's open block if they fit, without its lock. */
static u64 place_any(struct xs_engine *engine, u32 pages, u64 last)
{
	struct xs_cpu *cpu = engine->cpus[xs_cpu_hint()];
	u64 iova = 0;

	if (pages <= XS_BLOCK_PAGES)
		iova = open_next(engine, cpu, pages, last);
	return xs_likely(iova) ? iova : place_locked(engine, pages, last);
}

/* The world refused to map, in a range that the caller undoes. */
static xs_noinline void count_refused(struct xs_engine *engine)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = this_cpu_lock(engine, &flags);

	cpu->ledger.map_failures++;
	this_cpu_unlock(cpu, flags);
}

/* The world refused to map what was placed: it was never visible. */
static xs_noinline void unplace(struct xs_engine *engine, u64 iova, u32 pages)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = this_cpu_lock(engine, &flags);

	cpu->ledger.map_failures++;
	range_back(engine, cpu, iova >> XS_PAGE_LG2, pages);
	this_cpu_unlock(cpu, flags);
}

static xs_inline void count_map(struct xs_engine *engine, u32 pages)
{
	xs_count(engine->counts, maps, 1);
	if (xs_unlikely(pages > 1))
		xs_count(engine->counts, map_extra_pages, pages - 1);
}

/*
 * xs_engine_map() of one page, which is the next of this CPU's open block,
 * taken without its lock, or else any.
 */
static xs_inline u64 engine_map_one(struct xs_engine *engine, u64 phys,
				    u32 prot, u64 last)
{
	struct xs_cpu *cpu = engine->cpus[xs_cpu_hint()];
	u64 open = xs_a64_read(&cpu->open);
	u64 iova;

	do {
		iova = open & ~XS_OPEN_GONE;
		if (xs_unlikely((open & XS_OPEN_GONE) >= XS_BLOCK_PAGES ||
				iova > last)) {
			iova = place_locked(engine, 1, last);
			if (xs_likely(iova))
				break;
			return 0;
		}
	} while (xs_unlikely(!xs_a64_try(&cpu->open, &open,
					 open + XS_OPEN_STEP)));

	*xs_space_ref(&engine->space, iova >> XS_PAGE_LG2) =
		xs_likely(holds_pages(xs_load(&engine->policy))) ?
		xs_ref_of(phys) : XS_REF_UNHELD;
	if (xs_unlikely(xs_ops(engine)->map(xs_world(engine), iova, phys, 1,
					    prot))) {
		unplace(engine, iova, 1);
		return 0;
	}
	count_map(engine, 1);
	xs_assume(iova);
	return iova;
}

u64 xs_engine_map(struct xs_engine *engine, u64 phys, u32 pages, u32 prot,
		  u64 last)
{
	u64 iova;

	if (pages == 1)
		return engine_map_one(engine, phys, prot, last);
	iova = place_any(engine, pages, last);
	if (!iova)
		return 0;
	if (pages <= XS_BLOCK_PAGES)
		set_refs(engine, iova >> XS_PAGE_LG2, phys, pages);
	if (xs_ops(engine)->map(xs_world(engine), iova, phys, pages, prot)) {
		unplace(engine, iova, pages);
		return 0;
	}
	count_map(engine, pages);
	return iova;
}

u64 xs_engine_reserve(struct xs_engine *engine, u32 pages, u64 last)
{
	u64 iova = place_any(engine, pages, last);

	if (!iova)
		return 0;
	if (pages <= XS_BLOCK_PAGES)
		set_none(engine, iova >> XS_PAGE_LG2, pages);
	count_map(engine, pages);
	return iova;
}

void xs_engine_skip(struct xs_engine *engine, u64 iova, u32 pages)
{
	set_none(engine, iova >> XS_PAGE_LG2, pages);
}

int xs_engine_fill(struct xs_engine *engine, u64 iova, u64 phys, u32 pages,
		   u32 prot, bool small)
{
	int error;

	if (small)
		set_refs(engine, iova >> XS_PAGE_LG2, phys, pages);
	error = xs_ops(engine)->map(xs_world(engine), iova, phys, pages, prot);
	if (xs_unlikely(error))
		count_refused(engine);
	return error;
}

/* A block of which all but the first @pages pages are never handed out. */
static u64 place_own_block(struct xs_engine *engine, u32 pages, u64 last)
{
	xs_flags_t flags = xs_local_save();
	u32 block = block_take(engine, limit_of(last),
			       ~mask_of(0, pages), XS_NOT_CARVED);

	xs_local_restore(flags);
	return block == XS_NO_BLOCK ? 0 : (u64)block * XS_BLOCK_BYTES;
}

u64 xs_engine_take_block(struct xs_engine *engine, u32 pages, u64 last)
{
	u64 iova = place_own_block(engine, pages, last);
	xs_ref_t *refs;

	if (!iova) {
		reclaim(engine);
		iova = place_own_block(engine, pages, last);
	}
	if (!iova)
		return 0;
	refs = xs_space_ref(&engine->space, iova >> XS_PAGE_LG2);
	for (u32 i = 0; i < pages; i++)
		refs[i] = XS_REF_NONE(1);
	return iova;
}

/* How many of @pages pages are neighbours in memory, from the first on. */
static xs_inline u32 neighbours(const u64 *phys, u32 pages)
{
	u32 run = 1;

	while (run < pages && phys[run] == phys[0] + run * XS_PAGE_BYTES)
		run++;
	return run;
}

u32 xs_engine_map_in_block(struct xs_engine *engine, u64 iova, const u64 *phys,
			   u32 pages, u32 prot)
{
	xs_ref_t *refs = xs_space_ref(&engine->space, iova >> XS_PAGE_LG2);
	bool holds = holds_pages(xs_load(&engine->policy));
	u32 done = 0, run;

	/* Each on its own, for each is unmapped on its own. */
	for (u32 i = 0; i < pages; i++)
		refs[i] = holds ? xs_ref_of(phys[i]) : XS_REF_UNHELD;
	for (; done < pages; done += run) {
		run = neighbours(phys + done, pages - done);
		if (xs_ops(engine)->map(xs_world(engine),
					iova + done * XS_PAGE_BYTES,
					phys[done], run, prot))
			break;
	}
	if (xs_unlikely(done < pages))
		count_refused(engine);
	if (done)
		count_map(engine, done);
	return done;
}

void xs_engine_drop_in_block(struct xs_engine *engine, u64 iova, u32 pages)
{
	u64 page = iova >> XS_PAGE_LG2;
	xs_flags_t flags = xs_local_save();

	block_back(engine, (u32)(page >> XS_BLOCK_LG2), mask_at(page, pages));
	xs_local_restore(flags);
}

/* ---- unmap ---- */

/* Can what @slot refers to be held, and is it not already? */
static xs_inline bool can_hold(const xs_ref_t *slot)
{
	return xs_likely(!((size_t)*slot & XS_REF_TAGS));
}

static xs_inline void mark_held(xs_ref_t *slot)
{
	*slot = (xs_ref_t)((size_t)*slot | XS_REF_HELD);
}

/*
 * Hold what @slot refers to until its sync. False if it is free by now: some
 * drivers free a buffer before they unmap it (igb does when it has sent it).
 */
static bool hold(xs_ref_t *slot)
{
	if (!xs_ref_hold_fast(*slot) && !xs_ref_hold(*slot))
		return false;
	mark_held(slot);
	return true;
}

/*
 * Hold @pages pages from page @page until their sync, in order up to the first
 * that cannot be. Returns how many were, those with nothing to hold included.
 */
static u32 hold_pages(struct xs_engine *engine, u64 page, u32 pages)
{
	xs_ref_t *refs = xs_space_ref(&engine->space, page);

	for (u32 i = 0; i < pages; i += span_of(refs[i]))
		if (!xs_ref_is_none(refs[i]) &&
		    (!can_hold(&refs[i]) || !hold(&refs[i])))
			return i;
	return pages;
}

static void unhold_pages(struct xs_engine *engine, u64 page, u32 pages)
{
	xs_ref_t *refs = xs_space_ref(&engine->space, page);

	for (u32 i = 0; i < pages; i += span_of(refs[i])) {
		if (!is_held(refs[i]))
			continue;
		refs[i] = (xs_ref_t)((size_t)refs[i] - XS_REF_HELD);
		xs_ref_release(refs[i]);
	}
}

/* Remove and invalidate before the return, whatever the policy. */
static xs_noinline void unmap_now(struct xs_engine *engine, u64 iova, u32 pages)
{
	struct xs_range range = { iova >> XS_PAGE_LG2, pages };
	struct xs_commands sent = { 0, 0, 0 };
	xs_gather_t gather;
	xs_flags_t flags;
	struct xs_cpu *cpu = this_cpu_lock(engine, &flags);

	/* All of them, for each may be a mapping of its own in a driver's block. */
	for (u32 i = 0; pages <= XS_BLOCK_PAGES && i < pages; i++)
		*xs_space_ref(&engine->space, range.page + i) = XS_REF_RELEASED;
	xs_ops(engine)->gather_init(&gather);
	xs_ops(engine)->remove(xs_world(engine), &gather, iova, pages);
	xs_ops(engine)->invalidate(xs_world(engine), &gather, &range, 1, &sent);
	xs_ledger_expose(&cpu->ledger, 0, pages);
	range_back(engine, cpu, range.page, pages);
	count_sync(engine, cpu, XS_SYNC_UNMAP, pages, 1, &sent, 0);
	this_cpu_unlock(cpu, flags);
	xs_count(engine->counts, direct_pages, pages);
}

/*
 * When the timer of a batch is to fire that is as old as @oldest_ns: an eighth
 * before the bound, which is then kept also by a timer that comes a bit late.
 */
static u64 deadline_of(struct xs_engine *engine, u64 oldest_ns)
{
	u64 window_ns = xs_load(&engine->tuning.window_us) * 1000ULL;

	return oldest_ns + window_ns - window_ns / 8;
}

/* Put @block into this CPU's batch. */
static void batch_block(struct xs_engine *engine, struct xs_cpu *cpu, u32 block)
{
	u64 now = xs_ops(engine)->clock(xs_world(engine));

	if (cpu->batch.count == XS_BATCH_ENTRIES)
		sync_batch(engine, cpu, XS_SYNC_FULL);
	if (!cpu->batch.count) {
		xs_ops(engine)->deferred(xs_world(engine), cpu->id, !cpu->armed,
					 deadline_of(engine, now));
		cpu->armed = true;
	}
	xs_batch_add(&cpu->batch, block, now);
	xs_a64_set(&engine->space.blocks[block].listing,
		   ++cpu->listings * XS_LISTING_STEP + cpu->id + 1);
}

/* Are all pages of a block dead or back, seen after @dead was set? */
static bool block_empty(const struct xs_block *block, u64 dead)
{
	return (dead | xs_a64_read(&block->back)) == XS_BLOCK_ALL;
}

/*
 * All pages of a block are dead or back: sync it where it is batched, so that
 * dead pages are only ever taken under the lock of the CPU that batched them.
 * If it is not there any more, it is synced already; if not there yet, its CPU
 * looks again when it has listed it. A block of which a part is being synced may
 * be left to its time.
 */
static xs_noinline void sync_empty(struct xs_engine *engine, u64 page)
{
	u32 where = xs_listing_cpu(xs_a64_read(&block_at(engine, page)->listing));
	struct xs_cpu *cpu;
	xs_flags_t flags;

	if (!where)
		return;
	cpu = engine->cpus[where - 1];
	flags = xs_lock(&cpu->lock);
	sync_block(engine, cpu, (u32)(page >> XS_BLOCK_LG2));
	xs_unlock(&cpu->lock, flags);
}

/*
 * Set dead pages under this CPU's lock. If the block has none yet, or none any
 * more, it goes into this CPU's batch. @promised: a batch-aware driver's.
 */
static xs_noinline void unmap_locked(struct xs_engine *engine, u64 page,
				     u64 mask, bool promised)
{
	struct xs_block *block = block_at(engine, page);
	u32 at = (u32)(page >> XS_BLOCK_LG2);
	xs_flags_t flags;
	struct xs_cpu *cpu = this_cpu_lock(engine, &flags);
	/* Under the lock: a new policy drains after this, or is seen here. */
	const struct xs_policy *policy = xs_load(&engine->policy);
	u32 limit = xs_load(&engine->tuning.batch_pages);
	u64 old = xs_a64_or(&block->dead, mask);

	xs_warn_once(old & mask, "a page was unmapped twice");
	if (!old)
		batch_block(engine, cpu, at);
	if (promised && is_batched_here(engine, cpu, at))
		xs_store(&cpu->promised, true);
	else if (promised)
		cpu->elsewhere++;
	if (syncs_on(policy, XS_SYNC_UNMAP))
		sync_batch(engine, cpu, XS_SYNC_DRAIN);
	else if (xs_batch_full(&cpu->batch, &engine->space, limit))
		sync_batch(engine, cpu, XS_SYNC_FULL);
	this_cpu_unlock(cpu, flags);
	/* Read again: who emptied the block before it was listed here synced nothing. */
	if (syncs_on(policy, XS_SYNC_BLOCK) &&
	    block_empty(block, xs_a64_read(&block->dead)))
		sync_empty(engine, page);
}

/* Mark the pages dead; the first ones of their block go the long way. */
static xs_inline void unmap_later(struct xs_engine *engine,
				  const struct xs_policy *policy, u64 page,
				  u64 mask)
{
	struct xs_block *block = block_at(engine, page);
	u64 old = xs_a64_read(&block->dead);

	do {
		if (xs_unlikely(!old)) {
			unmap_locked(engine, page, mask, false);
			return;
		}
	} while (xs_unlikely(!xs_a64_try(&block->dead, &old, old | mask)));
	if (xs_unlikely(syncs_on(policy, XS_SYNC_BLOCK)) &&
	    block_empty(block, old | mask))
		sync_empty(engine, page);
}

/* Hold all pages or none. */
static bool hold_all(struct xs_engine *engine, u64 page, u32 pages)
{
	u32 held = hold_pages(engine, page, pages);

	if (held == pages)
		return true;
	unhold_pages(engine, page, held);
	return false;
}

/* Held now, or let go by a sync, since it was mapped. */
static xs_inline bool was_released(xs_ref_t ref)
{
	return (size_t)ref & XS_REF_HELD;
}

/*
 * Is this mapping unmapped already? The dead bits of its block say so until it
 * is synced, and its first page until it is mapped again.
 */
static xs_inline bool is_unmapped(struct xs_engine *engine, u64 page, u32 pages)
{
	return xs_warn_once(was_released(*xs_space_ref(&engine->space, page)) ||
			    xs_a64_read(&block_at(engine, page)->dead) &
			    mask_at(page, pages),
			    "a page was unmapped twice: ignored");
}

static void count_unmap(struct xs_engine *engine, u32 pages)
{
	xs_count(engine->counts, unmaps, 1);
	if (pages > 1)
		xs_count(engine->counts, unmap_extra_pages, pages - 1);
}

void xs_engine_unmap(struct xs_engine *engine, u64 iova, u32 pages, bool now)
{
	const struct xs_policy *policy = xs_load(&engine->policy);
	u64 page = iova >> XS_PAGE_LG2;

	if (pages <= XS_BLOCK_PAGES && is_unmapped(engine, page, pages))
		return;
	count_unmap(engine, pages);
	if (now || syncs_on(policy, XS_SYNC_UNMAP) || pages > XS_BLOCK_PAGES ||
	    (holds_pages(policy) && !hold_all(engine, page, pages)))
		unmap_now(engine, iova, pages);
	else
		unmap_later(engine, policy, page, mask_at(page, pages));
}

/*
 * Pages of a batch-aware driver are dead, and which batch has them is not
 * known: its sync has to look on all CPUs.
 */
static xs_noinline void promise_elsewhere(struct xs_engine *engine)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = this_cpu_lock(engine, &flags);

	cpu->elsewhere++;
	this_cpu_unlock(cpu, flags);
}

/*
 * unmap_later() for a batch-aware driver, for whom nothing is held; without the
 * lock if the block is in this CPU's batch.
 *
 * What must be true is that the sync of this CPU's batch takes these pages. To
 * see before that the block is listed here is not enough: another CPU may sync
 * our batch, and a third one list the block anew, just before the pages are set.
 * Nor is it to see so after: that third one may be in the middle of its sync,
 * and an interrupt have listed the block here again. But the same listing at
 * both times is (batch.h): it was there when the pages were set, so the word
 * had not been taken from this batch yet, and whoever takes it does so under
 * this CPU's lock, which the driver's sync waits for.
 *
 * The mark is the last step. Who clears it has just synced the batch under the
 * lock; if that was after we set it or saw it set, our pages were in it, for
 * the listing was still the same before.
 */
static xs_inline void unmap_promised(struct xs_engine *engine,
				     const struct xs_policy *policy, u64 page,
				     u64 mask)
{
	struct xs_block *block = block_at(engine, page);
	struct xs_cpu *cpu = engine->cpus[xs_cpu_hint()];
	u64 listing = xs_a64_read(&block->listing);
	u64 old = xs_a64_read(&block->dead);

	do {
		if (xs_unlikely(xs_listing_cpu(listing) != cpu->id + 1 ||
				!old)) {
			unmap_locked(engine, page, mask, true);
			return;
		}
	} while (xs_unlikely(!xs_a64_try(&block->dead, &old, old | mask)));

	if (xs_unlikely(xs_a64_read(&block->listing) != listing))
		promise_elsewhere(engine);
	else if (xs_unlikely(!xs_load(&cpu->promised)))
		xs_store(&cpu->promised, true);
	if (xs_unlikely(syncs_on(policy, XS_SYNC_BLOCK)) &&
	    block_empty(block, old | mask))
		sync_empty(engine, page);
}

void xs_engine_unmap_no_sync(struct xs_engine *engine, u64 iova, u32 pages)
{
	const struct xs_policy *policy = xs_load(&engine->policy);
	u64 page = iova >> XS_PAGE_LG2;

	if (!xs_policy_waits(policy) || pages > XS_BLOCK_PAGES) {
		xs_engine_unmap(engine, iova, pages, false);
		return;
	}
	if (is_unmapped(engine, page, pages))
		return;
	count_unmap(engine, pages);
	unmap_promised(engine, policy, page, mask_at(page, pages));
}

/* Of @mask, the pages of the block at @page that are not unmapped already. */
static u64 still_mapped(struct xs_engine *engine, u64 page, u64 mask)
{
	u64 mapped = mask & ~xs_a64_read(&block_at(engine, page)->dead);
	const xs_ref_t *refs = xs_space_ref(&engine->space, page);

	for (u64 rest = mapped; rest; rest &= rest - 1)
		if (xs_unlikely(was_released(refs[xs_ctz(rest)])))
			mapped &= ~(rest & -rest);
	xs_warn_once(mapped != mask, "a page was unmapped twice: ignored");
	return mapped;
}

void xs_engine_unmap_in_block_no_sync(struct xs_engine *engine, u64 iova,
				      u64 mask)
{
	const struct xs_policy *policy = xs_load(&engine->policy);
	u64 page = iova >> XS_PAGE_LG2;

	mask = still_mapped(engine, page, mask);
	if (!mask)
		return;
	if (xs_policy_waits(policy)) {
		count_unmap(engine, xs_popcount(mask));
		unmap_promised(engine, policy, page, mask);
		return;
	}
	while (mask) {
		u32 at = xs_ctz(mask);
		u32 run = run_of(mask);

		mask &= ~mask_of(at, run);
		xs_engine_unmap(engine, iova + at * XS_PAGE_BYTES, run, false);
	}
}

/* xs_engine_unmap() of one page that is synced at once. */
static xs_noinline void unmap_one_now(struct xs_engine *engine, u64 iova)
{
	if (is_unmapped(engine, iova >> XS_PAGE_LG2, 1))
		return;
	xs_count(engine->counts, unmaps, 1);
	unmap_now(engine, iova, 1);
}

/* The same of one that cannot be held just so. */
static xs_noinline void unmap_one_unheld(struct xs_engine *engine, u64 iova)
{
	if (*xs_space_ref(&engine->space, iova >> XS_PAGE_LG2) ==
	    XS_REF_UNHELD)
		unmap_one_now(engine, iova);
	else
		xs_engine_unmap(engine, iova, 1, false);
}

/*
 * xs_engine_unmap() of one page, at any address in it. All calls are tail
 * calls, so that the common way saves no register.
 */
static xs_inline void engine_unmap_one(struct xs_engine *engine, u64 iova)
{
	const struct xs_policy *policy = xs_load(&engine->policy);
	u64 page = iova >> XS_PAGE_LG2;

	if (xs_unlikely(syncs_on(policy, XS_SYNC_UNMAP))) {
		unmap_one_now(engine, page << XS_PAGE_LG2);
		return;
	}
	if (xs_likely(holds_pages(policy))) {
		xs_ref_t *slot = xs_space_ref(&engine->space, page);

		if (!can_hold(slot) || !xs_ref_hold_fast(*slot)) {
			unmap_one_unheld(engine, page << XS_PAGE_LG2);
			return;
		}
		mark_held(slot);
	} else if (xs_unlikely(is_unmapped(engine, page, 1))) {
		return;
	}
	xs_count(engine->counts, unmaps, 1);
	unmap_later(engine, policy, page,
		    1ULL << (page & (XS_BLOCK_PAGES - 1)));
}

/* xs_engine_unmap_no_sync() of one page, at any address in it. */
static xs_inline void engine_unmap_one_no_sync(struct xs_engine *engine,
					       u64 iova)
{
	const struct xs_policy *policy = xs_load(&engine->policy);
	u64 page = iova >> XS_PAGE_LG2;

	if (xs_unlikely(!xs_policy_waits(policy))) {
		engine_unmap_one(engine, iova);
		return;
	}
	if (xs_unlikely(is_unmapped(engine, page, 1)))
		return;
	xs_count(engine->counts, unmaps, 1);
	unmap_promised(engine, policy, page,
		       1ULL << (page & (XS_BLOCK_PAGES - 1)));
}

/* ---- sync points ---- */

void xs_engine_poll(struct xs_engine *engine)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = this_cpu_lock(engine, &flags);

	if (syncs_on(xs_load(&engine->policy), XS_SYNC_POLL))
		sync_batch(engine, cpu, XS_SYNC_POLL);
	this_cpu_unlock(cpu, flags);
}

/*
 * The driver's sync of what it has unmapped on @cpu, whose lock this drops. A
 * promise is forgotten after its sync only, as another context of the CPU may
 * wait for the same one.
 */
static void keep_promises(struct xs_engine *engine, struct xs_cpu *cpu,
			  xs_flags_t flags)
{
	u64 elsewhere = cpu->elsewhere;
	bool settled = cpu->settled == elsewhere;

	if (xs_load(&cpu->promised))
		sync_batch(engine, cpu, XS_SYNC_EXPLICIT);
	xs_unlock(&cpu->lock, flags);
	if (settled)
		return;
	xs_engine_sync(engine, XS_SYNC_EXPLICIT);
	flags = xs_lock(&cpu->lock);
	if (cpu->settled < elsewhere)
		cpu->settled = elsewhere;
	xs_unlock(&cpu->lock, flags);
}

/* Asks the promises and not the policy, which may be another one by now. */
void xs_engine_sync_explicit(struct xs_engine *engine, bool everywhere)
{
	xs_flags_t flags;

	if (!everywhere) {
		struct xs_cpu *cpu = this_cpu_lock(engine, &flags);

		keep_promises(engine, cpu, flags);
		return;
	}
	for (u32 i = 0; i < engine->cpu_count; i++) {
		flags = xs_lock(&engine->cpus[i]->lock);
		keep_promises(engine, engine->cpus[i], flags);
	}
}

u64 xs_engine_expire(struct xs_engine *engine, u32 cpu_id)
{
	struct xs_cpu *cpu = engine->cpus[cpu_id];
	xs_flags_t flags = xs_lock(&cpu->lock);
	u64 deadline = 0;

	if (cpu->batch.count) {
		deadline = deadline_of(engine, cpu->batch.oldest_ns);
		if (deadline <= xs_ops(engine)->clock(xs_world(engine))) {
			sync_batch(engine, cpu, XS_SYNC_TIME);
			deadline = 0;
		}
	}
	cpu->armed = deadline;
	xs_unlock(&cpu->lock, flags);
	return deadline;
}

static void drain(struct xs_engine *engine, struct xs_cpu *cpu,
		  enum xs_sync cause)
{
	sync_batch(engine, cpu, cause);
	if (cause == XS_SYNC_DRAIN) {
		close_block(engine, cpu);
		/* A running timer may be too late for a new window. */
		cpu->armed = false;
	}
}

void xs_engine_sync(struct xs_engine *engine, enum xs_sync cause)
{
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];
		xs_flags_t flags = xs_lock(&cpu->lock);

		drain(engine, cpu, cause);
		xs_unlock(&cpu->lock, flags);
	}
}

void xs_engine_set(struct xs_engine *engine, const struct xs_policy *policy,
		   const struct xs_tuning *tuning)
{
	xs_store(&engine->tuning.window_us, tuning->window_us);
	xs_store(&engine->tuning.batch_pages, tuning->batch_pages);
	xs_store(&engine->tuning.range_commands_max,
		 tuning->range_commands_max);
	xs_store_release(&engine->policy, policy);
	xs_engine_sync(engine, XS_SYNC_DRAIN);
}

void xs_engine_retire_cpu(struct xs_engine *engine, u32 cpu_id)
{
	struct xs_cpu *cpu = engine->cpus[cpu_id];
	xs_flags_t flags = xs_lock(&cpu->lock);

	drain(engine, cpu, XS_SYNC_DRAIN);
	flush_pieces(engine, cpu);
	xs_unlock(&cpu->lock, flags);
}

/* ---- set-up and accounts ---- */

struct xs_tuning xs_tuning_default(const struct xs_policy *policy)
{
	struct xs_tuning tuning = {
		.window_us = policy->window_us,
		.batch_pages = policy->batch_pages,
		.range_commands_max = 4,
	};

	return tuning;
}

static bool cpus_init(struct xs_engine *engine)
{
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = xs_ops(engine)->alloc(xs_world(engine),
							   sizeof(*cpu), false);

		if (!cpu)
			return false;
		xs_lock_init(&cpu->lock);
		xs_a64_set(&cpu->open, XS_OPEN_NONE);
		cpu->id = i;
		engine->cpus[i] = cpu;
	}
	return true;
}

int xs_engine_init(struct xs_engine *engine,
		   const struct xs_engine_config *config)
{
	int error;

	if (config->cpu_count > XS_CPUS_MAX)
		return -XS_EINVAL;
	engine->ops = config->ops;
	engine->world = config->world;
	engine->policy = config->policy;
	engine->tuning = xs_tuning_default(config->policy);
	engine->cpu_count = config->cpu_count;
	for (u32 lg2 = 0; lg2 < XS_PIECE_LG2S; lg2++)
		xs_depot_init(&engine->depots[lg2], config->ops,
			      config->world);
	error = xs_space_init(&engine->space, config->ops, config->world,
			      config->start, config->end);
	if (error)
		return error;
	engine->counts = xs_counts_new();
	engine->cpus = xs_ops(engine)->alloc(xs_world(engine),
					     engine->cpu_count *
					     sizeof(*engine->cpus), false);
	if (engine->counts && engine->cpus && cpus_init(engine))
		return 0;
	xs_engine_destroy(engine);
	return -XS_ENOMEM;
}

void xs_engine_destroy(struct xs_engine *engine)
{
	for (u32 i = 0; engine->cpus && i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];

		if (cpu) {
			xs_flags_t flags = xs_lock(&cpu->lock);

			flush_pieces(engine, cpu);
			xs_unlock(&cpu->lock, flags);
		}
		xs_ops(engine)->free(xs_world(engine), cpu, sizeof(*cpu));
	}
	for (u32 lg2 = 0; lg2 < XS_PIECE_LG2S; lg2++)
		xs_depot_destroy(&engine->depots[lg2]);
	xs_space_destroy(&engine->space);
	xs_counts_free(engine->counts);
	xs_ops(engine)->free(xs_world(engine), engine->cpus,
			     engine->cpu_count * sizeof(*engine->cpus));
	engine->cpus = 0;
}

void xs_engine_ledger(struct xs_engine *engine, struct xs_ledger *sum)
{
	static const struct xs_ledger zero;

	*sum = zero;
	/* In this order: what is synced was deferred before. */
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];
		xs_flags_t flags = xs_lock(&cpu->lock);

		xs_ledger_add(sum, &cpu->ledger);
		xs_unlock(&cpu->lock, flags);
	}
	for (u32 i = 0; i < engine->cpu_count; i++)
		xs_counts_add(&sum->counts, xs_counts_of(engine->counts, i));
}

/*
 * A page is counted as mapped before its map returns, so before it can be
 * unmapped: reading in the opposite order, no unmap is seen without its map.
 */
s64 xs_engine_live(const struct xs_engine *engine)
{
	u64 live = 0;

	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_counts *counts = xs_counts_of(engine->counts, i);

		live -= xs_load_acquire(&counts->unmaps);
		live -= xs_load_acquire(&counts->unmap_extra_pages);
	}
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_counts *counts = xs_counts_of(engine->counts, i);

		live += xs_load_acquire(&counts->maps);
		live += xs_load_acquire(&counts->map_extra_pages);
	}
	return (s64)live;
}

static bool block_used(const struct xs_engine *engine, u32 block)
{
	return engine->space.used[block >> 6] >> (block & 63) & 1;
}

u32 xs_engine_next_used(const struct xs_engine *engine, u32 block)
{
	for (; block < engine->space.end_block; block++)
		if (block_used(engine, block) &&
		    xs_a64_read(&engine->space.blocks[block].back) !=
		    XS_BLOCK_ALL)
			return block;
	return XS_NO_BLOCK;
}

/* Pages that blocks have given out and that no magazine caches. */
static u64 count_given(struct xs_engine *engine)
{
	u64 given = 0;

	for (u32 i = 0; (i = xs_engine_next_used(engine, i)) != XS_NO_BLOCK;
	     i++)
		given += xs_popcount(
			~xs_a64_read(&engine->space.blocks[i].back));
	for (u32 i = 0; i < engine->cpu_count; i++) {
		const struct xs_cpu *cpu = engine->cpus[i];
		u32 gone = xs_a64_read(&cpu->open) & XS_OPEN_GONE;

		for (u32 lg2 = 0; lg2 < XS_PIECE_LG2S; lg2++)
			given -= (u64)xs_cache_count(&cpu->pieces[lg2]) << lg2;
		given -= XS_BLOCK_PAGES - gone;
	}
	for (u32 lg2 = 0; lg2 < XS_PIECE_LG2S; lg2++)
		given -= (u64)xs_depot_count(&engine->depots[lg2]) << lg2;
	return given;
}

s64 xs_engine_audit(struct xs_engine *engine, struct xs_ledger *sum)
{
	s64 live = xs_engine_live(engine);
	s64 deferred;
	u64 given;
	bool broken;

	xs_engine_ledger(engine, sum);
	deferred = (s64)(xs_counts_unmapped(&sum->counts) -
			 sum->counts.direct_pages - sum->synced_pages);
	given = count_given(engine);

	broken = xs_warn_once(live < 0, "more unmapped than mapped");
	broken |= xs_warn_once(deferred < 0, "more synced than deferred");
	/* Sizes are rounded up to powers of two, and large ones to blocks. */
	broken |= xs_warn_once(given < (u64)(live + deferred) ||
			       given > 2 * (u64)(live + deferred),
			       "blocks and ledger disagree");
	return broken ? -XS_EILSEQ : live;
}
