// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Sum of an engine's statistics, and the leak check. */
#include <xsmmu/place.h>
#include <xsmmu/tear.h>

void xs_engine_stats(struct xs_engine *engine, struct xs_stats *sum)
{
	static const struct xs_stats zero;

	*sum = zero;
	/* In this order: a page is deferred before it is flushed. */
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];
		xs_flags_t flags = xs_lock_irqsave(&cpu->lock);

		xs_stats_add(sum, &cpu->stats);
		xs_unlock_irqrestore(&cpu->lock, flags);
	}
	for (u32 i = 0; i < engine->cpu_count; i++)
		xs_counts_add(&sum->counts, xs_counts_of(engine->counts, i));
	xs_stats_add_immediate(sum, &sum->counts);
}

static u64 xs_mapped_pages(const struct xs_engine *engine)
{
	u64 pages = 0;

	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_counts *counts = xs_counts_of(engine->counts, i);

		pages += xs_load(&counts->maps) + xs_load(&counts->map_extra_pages) +
			 xs_load(&counts->copied_maps);
	}
	return pages;
}

static u64 xs_unmapped_pages(const struct xs_engine *engine)
{
	u64 pages = 0;

	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_counts *counts = xs_counts_of(engine->counts, i);

		pages += xs_load(&counts->unmaps) + xs_load(&counts->unmap_extra_pages) +
			 xs_load(&counts->copied_unmaps);
	}
	return pages;
}

s64 xs_engine_live_pages(const struct xs_engine *engine)
{
	u64 unmapped = xs_unmapped_pages(engine);

	return (s64)(xs_mapped_pages(engine) - unmapped);
}

/*
 * A page is counted as mapped between xs_enter() and xs_exit() of its map, hence before its unmap.
 * The counts have no order, but the wait is for all calls that had entered before, so after it the
 * map of each page that was seen as unmapped is counted.
 */
bool xs_engine_is_balanced(struct xs_engine *engine)
{
	u64 unmapped = xs_unmapped_pages(engine);

	xs_ops(engine)->quiesce(xs_backend(engine));
	return (s64)(xs_mapped_pages(engine) - unmapped) >= 0;
}

/* ---- mappings ---- */

bool xs_engine_next_mapping(struct xs_engine *engine, u64 *iova, u32 *pages)
{
	u64 from = *iova >> XS_PAGE_LG2;
	struct xs_found found;
	struct xs_leaf *leaf;
	u64 first = from;

	while ((leaf = xs_tree_next_leaf(&engine->space.tree, &first))) {
		xs_flags_t flags = xs_lock_irqsave(&engine->tears.lock);
		bool any = xs_leaf_mapping(leaf, from, ~0ULL, &found);

		xs_unlock_irqrestore(&engine->tears.lock, flags);
		if (any) {
			*iova = found.page << XS_PAGE_LG2;
			*pages = found.pages;
			return true;
		}
		first += XS_LEAF_PAGES;
	}
	first = from;
	if (!xs_identity_next(engine, &first))
		return false;
	*iova = first << XS_PAGE_LG2;
	*pages = 1;
	return true;
}

/* ---- the leak check ---- */

/* Pages of @leaf that a mapping has, or that a CPU caches. */
static u64 xs_leaf_given(const struct xs_leaf *leaf)
{
	u64 given = 0;

	/* The blocks of a torn extent do not record its size. */
	for (const struct xs_torn *torn = leaf->torn; torn; torn = torn->next)
		if (torn->pages > XS_BLOCK_PAGES)
			given += torn->pages;
	for (u32 i = 0; i < XS_LEAF_BLOCKS; i++) {
		const struct xs_block *block = &leaf->blocks[i];

		given += (u32)xs_a64_read(&block->extent_pages);
		if (block->small)
			given += xs_popcount(~xs_a64_read(&block->free) &
					     ~xs_a64_read(&block->own) &
					     ~xs_a64_read(&block->reserved));
	}
	return given;
}

/* Pages of mappings, and pages that are unmapped and not flushed. */
static u64 xs_count_given(struct xs_engine *engine)
{
	u64 given = xs_identity_given(engine), page = 0;
	struct xs_leaf *leaf;

	while ((leaf = xs_tree_next_leaf(&engine->space.tree, &page))) {
		given += xs_leaf_given(leaf);
		page += XS_LEAF_PAGES;
	}
	for (u32 i = 0; i < engine->cpu_count; i++) {
		const struct xs_cpu *cpu = engine->cpus[i];

		given -= (u64)cpu->empty_count * XS_BLOCK_PAGES + xs_popcount(cpu->local);
		for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++)
			given -= xs_cache_count(&cpu->magazines[lg2]) << lg2;
	}
	for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++)
		given -= xs_depot_count(&engine->depots[lg2]) << lg2;
	return given;
}

/* Number of buffers in the pool. */
static u64 xs_count_copied(const struct xs_engine *engine)
{
	u64 count = 0, iova = 0;
	u32 bytes;

	while (xs_pool_next(&engine->pool, &iova, &bytes)) {
		iova += bytes;
		count++;
	}
	return count;
}

s64 xs_engine_leak_check(struct xs_engine *engine, struct xs_stats *sum)
{
	s64 live = xs_engine_live_pages(engine);
	s64 deferred, copied;
	bool broken;

	xs_engine_stats(engine, sum);
	deferred = (s64)(xs_counts_unmapped(&sum->counts) -
			 sum->counts.immediate_pages - sum->counts.kept_unmaps -
			 sum->flushed_pages);
	broken = xs_warn_once(live < 0, "more unmapped than mapped");
	broken |= xs_warn_once(deferred < 0, "more flushed than deferred");
	copied = (s64)(sum->counts.copied_maps - sum->counts.copied_unmaps);
	broken |= xs_warn_once(xs_count_copied(engine) != (u64)copied,
			       "bounce buffers and statistics disagree");
	broken |= xs_warn_once(xs_count_given(engine) !=
				       (u64)(live + deferred - copied),
			       "blocks and statistics disagree");
	return broken ? -XS_EILSEQ : live;
}
