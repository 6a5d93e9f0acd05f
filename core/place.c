// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Placement; see place.h. */
#include <xsmmu/place.h>
#include <xsmmu/flush.h>

/* Partial blocks to open for a mapping before a fresh block, and again after. */
#define XS_PLACE_OPENS	4u

/*
 * Limit of partial blocks and other CPUs' lists to look at for a mapping: the work under the CPU's
 * lock does not grow with the number of CPUs.
 */
#define XS_PLACE_LOOKS	256u

/*
 * Shortest time between two reclaim rounds; CPUs that a mapping reclaims from, and magazines that
 * it takes out of depots. A test may have fewer CPUs.
 */
#define XS_RECLAIM_NS		10000000ULL
#define XS_RECLAIM_MAGAZINES	64u
#ifndef XS_RECLAIM_CPUS
#define XS_RECLAIM_CPUS		8u
#endif

/* ---- blocks that a CPU keeps ---- */

/* Gives all blocks of the free-block cache except @left back to the space. */
static void xs_empty_cache_give(struct xs_engine *engine, struct xs_cpu *cpu,
				u32 left)
{
	for (u32 i = left; i < cpu->empty_count; i++)
		xs_partial_leave(cpu->empty[i]);
	xs_space_free_blocks(&engine->space, cpu->empty + left, cpu->empty_count - left);
	cpu->empty_count = left;
}

static void xs_empty_cache_put(struct xs_engine *engine, struct xs_cpu *cpu,
			       struct xs_block *block)
{
	/* Any mapping may use a block of the free-block cache. */
	if (xs_unlikely(block->reserved_low)) {
		xs_partial_leave(block);
		xs_space_free_blocks(&engine->space, &block, 1);
		return;
	}
	if (cpu->empty_count == XS_EMPTY_BLOCKS)
		xs_empty_cache_give(engine, cpu, XS_EMPTY_BLOCKS / 2);
	cpu->empty[cpu->empty_count++] = block;
}

/* The lowest block, so that neighbours are opened one after the other. */
static struct xs_block *xs_empty_cache_get(struct xs_cpu *cpu, u64 last)
{
	struct xs_block *block;
	u32 lowest = 0;

	for (u32 i = 1; i < cpu->empty_count; i++)
		if (cpu->empty[i]->iova < cpu->empty[lowest]->iova)
			lowest = i;
	if (!cpu->empty_count ||
	    cpu->empty[lowest]->iova + XS_BLOCK_BYTES - 1 > last)
		return 0;
	block = cpu->empty[lowest];
	cpu->empty[lowest] = cpu->empty[--cpu->empty_count];
	return block;
}

void xs_place_back_block(struct xs_engine *engine, struct xs_cpu *cpu,
			 struct xs_block *block, u64 mask)
{
	if (xs_block_free(block, mask))
		xs_empty_cache_put(engine, cpu, block);
}

static void xs_place_shut(struct xs_engine *engine, struct xs_cpu *cpu,
			  struct xs_block *block)
{
	if (block != &engine->none && xs_block_close(block))
		xs_empty_cache_put(engine, cpu, block);
}

void xs_place_back_local(struct xs_engine *engine, struct xs_cpu *cpu)
{
	u64 local = cpu->local;

	xs_assert_locked(&cpu->lock);
	if (!local || cpu->local_busy)
		return;
	xs_store(&cpu->local, 0);
	xs_place_back_block(engine, cpu, cpu->open[0], local);
}

void xs_place_close(struct xs_engine *engine, struct xs_cpu *cpu)
{
	xs_assert_locked(&cpu->lock);
	if (cpu->id == xs_cpu_id())
		xs_place_back_local(engine, cpu);
	/* @cpu may take its last local page meanwhile, but needs the lock for new ones. */
	for (u32 lg2 = xs_load_acquire(&cpu->local) != 0; lg2 < XS_SIZES; lg2++) {
		struct xs_block *block = cpu->open[lg2];

		xs_store(&cpu->open[lg2], &engine->none);
		xs_place_shut(engine, cpu, block);
	}
}

/* ---- opening ---- */

/*
 * struct xs_search - search for the block of a mapping
 * @lg2: log2 of the size of the mapping
 * @last: highest IOVA in bytes, inclusive
 * @low: the CPU's open block is above @last, so listed blocks come first
 * @opens: partial blocks to open before a fresh block and, without a fresh block, after
 * @looks: partial blocks and other CPUs' lists to look at
 */
struct xs_search {
	u32 lg2;
	u64 last;
	bool low;
	s64 opens;
	u32 looks;
};

static struct xs_search xs_search_of(u32 lg2, u64 last, bool low)
{
	struct xs_search search = { lg2, last, low, XS_PLACE_OPENS,
				    XS_PLACE_LOOKS };

	return search;
}

static struct xs_block *xs_search_list(struct xs_search *search,
				       struct xs_cpu *cpu, bool reserved_low,
				       enum xs_partial_when when)
{
	return xs_partial_search(&cpu->partial, xs_partial_index(search->lg2, reserved_low),
				 search->last, when, &search->looks);
}

static void xs_search_next_cpu(struct xs_engine *engine, struct xs_cpu *cpu)
{
	cpu->search_cpu = cpu->search_cpu + 1 < engine->cpu_count ? cpu->search_cpu + 1 : 0;
}

/*
 * Finds a block of any CPU when there is no other block; blocks reserved low come last. If the
 * search ends early, the next search continues from there.
 */
static struct xs_block *xs_place_steal(struct xs_engine *engine,
				       struct xs_cpu *cpu,
				       struct xs_search *search)
{
	for (u32 reserved_low = 0; reserved_low < 2; reserved_low++)
		for (u32 i = 0; i < engine->cpu_count && search->looks; i++) {
			struct xs_block *block;

			search->looks--;
			block = xs_search_list(search, engine->cpus[cpu->search_cpu],
					       reserved_low, XS_PARTIAL_ANY);
			if (block)
				return block;
			xs_search_next_cpu(engine, cpu);
		}
	return 0;
}

/*
 * Finds a block of another CPU if more than half of that CPU's blocks are listed: mappings
 * there may be long-lived, while new mappings are made here. Looks at a single CPU, the same as
 * long as the CPU has such blocks.
 */
static struct xs_block *xs_place_other(struct xs_engine *engine,
				       struct xs_cpu *cpu,
				       struct xs_search *search)
{
	struct xs_cpu *other = engine->cpus[cpu->search_cpu];
	struct xs_block *block = 0;

	if (other != cpu)
		block = xs_search_list(search, other, false, XS_PARTIAL_HALF);
	if (!block)
		xs_search_next_cpu(engine, cpu);
	return block;
}

/* Finds a listed block of this CPU. */
static struct xs_block *xs_place_listed(struct xs_cpu *cpu,
					struct xs_search *search)
{
	struct xs_block *block =
		xs_search_list(search, cpu, false,
			       search->low ? XS_PARTIAL_ANY : XS_PARTIAL_THIRD);

	if (!block && xs_space_is_low(search->last))
		block = xs_search_list(search, cpu, true, XS_PARTIAL_ANY);
	return block;
}

/* Takes a block from the space. */
static struct xs_block *xs_place_fresh(struct xs_engine *engine, u64 last)
{
	struct xs_block *block = xs_space_alloc_block(&engine->space, last);

	if (block && block->reserved_low)
		xs_store(&engine->reserves, true);
	return block;
}

/* Opens a block for a search; NULL if there is none. */
static struct xs_block *xs_place_open(struct xs_engine *engine,
				      struct xs_cpu *cpu,
				      struct xs_search *search)
{
	bool look = search->opens-- > 0;
	struct xs_block *block = 0;

	if (look)
		block = xs_place_listed(cpu, search);
	if (block)
		return block;
	block = xs_empty_cache_get(cpu, search->last);
	if (!block && look) {
		block = xs_place_other(engine, cpu, search);
		if (block)
			return block;
	}
	if (!block)
		block = xs_place_fresh(engine, search->last);
	if (block) {
		xs_partial_join(&cpu->partial, block, search->lg2);
		xs_block_open(block);
		return block;
	}
	return search->opens > -(s64)XS_PLACE_OPENS ?
		xs_place_steal(engine, cpu, search) : 0;
}

/* ---- block placement ---- */

static bool xs_block_is_below(const struct xs_block *block, u64 last)
{
	return block->iova + XS_BLOCK_BYTES - 1 <= last;
}

/*
 * Takes one of the CPU's local pages. The CPU's local pages are pages of @block, or there are none:
 * then all free pages of @block become local. Returns the IOVA, or 0.
 */
static u64 xs_place_local(struct xs_cpu *cpu, struct xs_block *block)
{
	u64 local = cpu->local;

	/* The read first: all CPUs share the block that never has a free page. */
	if (!local && xs_a64_read(&block->free))
		local = xs_block_take_all(block);
	if (!local)
		return 0;
	xs_store(&cpu->local, local & (local - 1));
	return block->iova + xs_ctz(local) * XS_PAGE_BYTES;
}

/*
 * True if a map of a single page takes a local page, and makes free pages of a block local. A map
 * that has interrupted xs_take_local() takes its page from a block. So does a map for a mask of
 * less than 32 bits, because idle CPUs would keep blocks of a small space; and each map without
 * XS_MODE_LOCAL, while or after another CPU gives the local pages back.
 */
static bool xs_uses_local(const struct xs_engine *engine, const struct xs_cpu *cpu, u64 last)
{
	return !cpu->local_busy && last >= XS_LOW_LAST && (xs_load(&engine->mode) & XS_MODE_LOCAL);
}

static u64 xs_place_in_block(struct xs_engine *engine, struct xs_cpu *cpu,
			     u32 pages, u64 last)
{
	u32 lg2 = xs_lg2_ceil(pages);
	struct xs_block *open = cpu->open[lg2], *block;
	bool low = !xs_block_is_below(open, last);
	bool is_local = pages == 1 && xs_uses_local(engine, cpu, last);
	bool stays_open = !low && (pages > 1 || !(cpu->local_busy || cpu->local));
	struct xs_search search = xs_search_of(lg2, last, low);
	u64 iova = 0;

	if (!low)
		iova = is_local ? xs_place_local(cpu, open) : xs_block_take(open, pages);
	while (!iova && (block = xs_place_open(engine, cpu, &search))) {
		bool opens = stays_open && !block->reserved_low;

		iova = opens && is_local ? xs_place_local(cpu, block) :
					   xs_block_take(block, pages);
		if (iova && opens) {
			xs_store(&cpu->open[lg2], block);
			block = open;
		}
		xs_place_shut(engine, cpu, block);
	}
	return iova;
}

/* ---- page placement ---- */

/* Context for a range that a magazine gives back to its block. */
struct xs_range_context {
	struct xs_engine *engine;
	struct xs_cpu *cpu;	/* NULL: a free block goes to the space */
	u32 pages;
};

static xs_noinline void xs_range_back(void *context, u64 page)
{
	const struct xs_range_context *piece = context;
	struct xs_space *space = &piece->engine->space;
	struct xs_block *block = xs_space_block(space, page);
	u64 mask = xs_block_mask(page, piece->pages);

	if (piece->cpu) {
		xs_place_back_block(piece->engine, piece->cpu, block, mask);
	} else if (xs_block_free(block, mask)) {
		xs_partial_leave(block);
		xs_space_free_blocks(space, &block, 1);
	}
}

static void xs_range_put(struct xs_engine *engine, struct xs_cpu *cpu, u32 lg2,
			 u64 page)
{
	struct xs_range_context context = { engine, cpu, 1u << lg2 };

	if (!xs_cache_put(&cpu->magazines[lg2], &engine->depots[lg2], page))
		xs_range_back(&context, page);
}

/* True if the pages of a block must come back to the block. */
static bool xs_is_reserved(const struct xs_block *block)
{
	return block->reserved_low || xs_a64_read(&block->reserved);
}

bool xs_place_back_range(struct xs_engine *engine, struct xs_cpu *cpu, u64 page,
			 u32 pages)
{
	u32 lg2 = xs_lg2_ceil(pages);

	xs_assert_locked(&cpu->lock);
	if (xs_unlikely(xs_load(&engine->reserves)) &&
	    xs_is_reserved(xs_space_block(&engine->space, page)))
		return false;
	return !((pages | page) & (pages - 1)) &&
	       xs_cache_put(&cpu->magazines[lg2], &engine->depots[lg2], page);
}

/*
 * Takes the free order-n ranges of a block: returns the first and puts the others into the
 * magazine.
 */
static u64 xs_place_carve(struct xs_engine *engine, struct xs_cpu *cpu, u32 lg2,
			  u64 last)
{
	struct xs_search search = xs_search_of(lg2, last, false);
	struct xs_block *block;
	u64 iova = 0;

	while (!iova && (block = xs_place_open(engine, cpu, &search))) {
		u64 free, mask;

		/* No range of a block reserved low may be cached. */
		if (xs_unlikely(block->reserved_low)) {
			iova = xs_block_take(block, 1u << lg2);
			xs_place_shut(engine, cpu, block);
			continue;
		}
		free = xs_block_take_all(block);

		/* Last range first: a magazine is a stack, so ranges come out in order. */
		for (u32 at = XS_BLOCK_PAGES; at; at -= 1u << lg2) {
			mask = xs_mask_of(at - (1u << lg2), 1u << lg2);
			if ((free & mask) != mask)
				continue;
			free &= ~mask;
			if (iova)
				xs_range_put(engine, cpu, lg2,
					     iova >> XS_PAGE_LG2);
			iova = block->iova + (at - (1u << lg2)) * XS_PAGE_BYTES;
		}
		if (free)
			xs_place_back_block(engine, cpu, block, free);
		xs_place_shut(engine, cpu, block);
	}
	return iova;
}

static u64 xs_place_range(struct xs_engine *engine, struct xs_cpu *cpu,
			  u32 pages, u64 last)
{
	u32 lg2 = xs_lg2_ceil(pages);
	u64 iova, page;

	if (!xs_cache_get(&cpu->magazines[lg2], &engine->depots[lg2], &page)) {
		iova = xs_place_carve(engine, cpu, lg2, last);
	} else {
		iova = page << XS_PAGE_LG2;
		/* The device cannot address the cached range. */
		if (xs_unlikely(iova + (XS_PAGE_BYTES << lg2) - 1 > last)) {
			xs_range_put(engine, cpu, lg2, page);
			iova = xs_place_carve(engine, cpu, lg2, last);
		}
	}
	if (iova && xs_unlikely(pages < 1u << lg2))
		xs_place_back_block(engine, cpu,
				    xs_space_block(&engine->space,
						   iova >> XS_PAGE_LG2),
				    xs_block_mask((iova >> XS_PAGE_LG2) + pages,
						  (1u << lg2) - pages));
	return iova;
}

/* ---- any placement ---- */

static u64 xs_place_locked(struct xs_engine *engine, struct xs_cpu *cpu,
			   const struct xs_policy *policy, u32 pages, u64 last)
{
	if (pages > XS_BLOCK_PAGES)
		return xs_space_alloc_extent(&engine->space, pages, last);
	if (policy->placement == XS_PLACE_PAGE)
		return xs_place_range(engine, cpu, pages, last);
	return xs_place_in_block(engine, cpu, pages, last);
}

void xs_place_drain(struct xs_engine *engine, struct xs_cpu *cpu)
{
	xs_place_close(engine, cpu);
	for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++)
		xs_cache_drain(&cpu->magazines[lg2], &engine->depots[lg2]);
	xs_empty_cache_give(engine, cpu, 0);
}

bool xs_place_drain_depots(struct xs_engine *engine, u32 most)
{
	u32 lg2 = xs_load(&engine->drained);

	/* From the next depot on, so that no size's traffic uses up each map's work. */
	for (u32 i = 0; i < XS_SIZES && most; i++) {
		struct xs_range_context context = { engine, 0, 0 };

		lg2 = lg2 + 1 < XS_SIZES ? lg2 + 1 : 0;
		context.pages = 1u << lg2;
		most -= xs_depot_drain(&engine->depots[lg2], most, xs_range_back, &context);
	}
	xs_store(&engine->drained, lg2);
	return most;
}

/* True if a depot has more magazines than it takes from CPUs that are not drained. */
static bool xs_depots_are_over(struct xs_engine *engine)
{
	bool over = false;

	for (u32 lg2 = 0; lg2 < XS_SIZES && !over; lg2++)
		over = xs_depot_is_over(&engine->depots[lg2]);
	return over;
}

/* True if a reclaim round may begin: none began a moment ago. */
static bool xs_reclaim_begin(struct xs_engine *engine)
{
	/* In this order: a time that another CPU stores later may be after @now. */
	u64 last = xs_a64_read(&engine->reclaimed_ns);
	u64 now = xs_ops(engine)->clock(xs_backend(engine));

	return (!last || now - last >= XS_RECLAIM_NS) &&
	       xs_a64_try(&engine->reclaimed_ns, &last, now);
}

/*
 * CPU at which a round at @at continues, or begins anew; the number of CPUs: at no CPU. A round
 * that has visited all CPUs goes on until the depots are empty. Then, or after XS_RECLAIM_NS if the
 * depots have no more than their own magazines, which traffic may keep there for ever, the next
 * round may begin. So what CPUs keep goes to the depots once, and not again before it has gone
 * to the blocks. Returns false if no round is in progress and none may begin.
 */
static bool xs_reclaim_next(struct xs_engine *engine, u64 *at)
{
	bool all = *at == engine->cpu_count;

	if ((*at && !all) || (all && xs_depots_are_over(engine)))
		return true;
	if (!xs_reclaim_begin(engine))
		return all;
	*at = 0;
	return true;
}

/* Ends a round that has visited all CPUs and emptied the depots. */
static void xs_reclaim_end(struct xs_engine *engine)
{
	u64 all = engine->cpu_count;

	xs_a64_try(&engine->reclaim_at, &all, 0);
}

/*
 * Frees the IOVAs that CPUs cache: those of the next XS_RECLAIM_CPUS CPUs of the round go to the
 * depots, and XS_RECLAIM_MAGAZINES magazines go from the depots to the blocks, because the
 * caller may have entered for long. Returns false if a round began a moment ago, or another
 * caller does the work.
 */
static bool xs_reclaim(struct xs_engine *engine)
{
	u64 was = xs_a64_read(&engine->reclaim_at);
	u64 at = was, end;

	if (!xs_reclaim_next(engine, &at))
		return false;
	end = at + XS_RECLAIM_CPUS;
	if (end > engine->cpu_count)
		end = engine->cpu_count;
	/* The call that begins a round begins it also if another call has just ended the last. */
	while (!xs_a64_try(&engine->reclaim_at, &was, end))
		if (at || (was && was != engine->cpu_count))
			return false;
	for (; at < end; at++) {
		struct xs_cpu *cpu = engine->cpus[at];
		xs_flags_t flags = xs_lock_irqsave(&cpu->lock);

		xs_flush_batch(engine, cpu, XS_FLUSH_FULL);
		xs_place_drain(engine, cpu);
		xs_unlock_irqrestore(&cpu->lock, flags);
	}
	if (xs_place_drain_depots(engine, XS_RECLAIM_MAGAZINES) && end == engine->cpu_count)
		xs_reclaim_end(engine);
	return true;
}

/*
 * Has xs_engine_trim() take back all local pages if no IOVA is free for a mapping. If there is a
 * block, and no memory for its slots, local pages do not help.
 */
static void xs_place_recall(struct xs_engine *engine, u32 pages, u64 last)
{
	if (!(xs_load(&engine->mode) & XS_MODE_LOCAL) || !xs_ops(engine)->surplus ||
	    !xs_space_could_fit(&engine->space, pages, last) ||
	    xs_space_has_room(&engine->space, pages, last))
		return;
	xs_store(&engine->recall_due, true);
	xs_ops(engine)->surplus(xs_backend(engine));
}

/* Places after all other ways have failed. */
static xs_noinline u64 xs_place_starved(struct xs_engine *engine,
					const struct xs_policy *policy,
					u32 pages, u64 last)
{
	bool again = xs_reclaim(engine);
	xs_flags_t flags;
	struct xs_cpu *cpu = xs_cpu_lock(engine, &flags);
	u64 iova = 0;

	if (again)
		iova = xs_place_locked(engine, cpu, policy, pages, last);
	if (!iova)
		cpu->stats.map_failures++;
	xs_cpu_unlock(cpu, flags);
	if (!iova)
		xs_place_recall(engine, pages, last);
	return iova;
}

u64 xs_place(struct xs_engine *engine, const struct xs_policy *policy,
	     u32 pages, u64 last)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = xs_cpu_lock(engine, &flags);
	u64 iova = xs_place_locked(engine, cpu, policy, pages, last);

	if (xs_unlikely(!iova) && !xs_batch_is_empty(&cpu->batch)) {
		xs_flush_batch(engine, cpu, XS_FLUSH_FULL);
		iova = xs_place_locked(engine, cpu, policy, pages, last);
	}
	xs_cpu_unlock(cpu, flags);
	return xs_likely(iova) ? iova :
				 xs_place_starved(engine, policy, pages, last);
}

/*
 * Pages that the driver does not use are reserved and come back with the block. With page
 * placement, where pages do not return to the block together, any mapping may use them.
 */
static void xs_place_rest(struct xs_engine *engine, struct xs_cpu *cpu,
			  const struct xs_policy *policy,
			  struct xs_block *block, u32 pages)
{
	u64 rest = pages < XS_BLOCK_PAGES ? ~xs_mask_of(0, pages) : 0;

	if (!rest)
		return;
	if (policy->placement == XS_PLACE_PAGE) {
		xs_place_back_block(engine, cpu, block, rest);
	} else {
		xs_a64_set(&block->reserved, rest);
		xs_store(&engine->reserves, true);
	}
}

struct xs_block *xs_place_own(struct xs_engine *engine,
			      const struct xs_policy *policy, u32 pages,
			      u64 last)
{
	struct xs_block *block = 0;

	for (u32 i = 0; i < 2 && !block; i++) {
		xs_flags_t flags;
		struct xs_cpu *cpu;
		bool again = i && xs_reclaim(engine);

		cpu = xs_cpu_lock(engine, &flags);
		if (!i || again)
			block = xs_empty_cache_get(cpu, last);
		if (!block && (!i || again))
			block = xs_place_fresh(engine, last);
		if (block) {
			xs_partial_join(&cpu->partial, block, 0);
			xs_a64_swap_release(&block->own,
					    xs_mask_of(0, pages));
			xs_place_rest(engine, cpu, policy, block, pages);
		}
		xs_cpu_unlock(cpu, flags);
	}
	if (!block)
		xs_place_recall(engine, XS_BLOCK_PAGES, last);
	return block;
}

void xs_place_back(struct xs_engine *engine, const struct xs_policy *policy,
		   u64 page, u32 pages)
{
	u64 mask = xs_block_mask(page, pages);
	struct xs_block *block;
	xs_flags_t flags;
	struct xs_cpu *cpu;

	if (policy->placement == XS_PLACE_PAGE) {
		cpu = xs_cpu_lock(engine, &flags);
		if (!(xs_likely(pages == 1 && !xs_load(&engine->reserves)) &&
		      xs_place_back_fast(engine, cpu, page)) &&
		    !xs_place_back_range(engine, cpu, page, pages))
			xs_place_back_block(engine, cpu,
					    xs_space_block(&engine->space, page),
					    mask);
		xs_cpu_unlock(cpu, flags);
		return;
	}
	block = xs_space_block(&engine->space, page);
	if (!xs_block_free(block, mask))
		return;
	cpu = xs_cpu_lock(engine, &flags);
	xs_empty_cache_put(engine, cpu, block);
	xs_cpu_unlock(cpu, flags);
}
