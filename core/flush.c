// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The order inside a flush, and its parts; see flush.h. */
#include <xsmmu/place.h>
#include <xsmmu/stuck.h>
#include <xsmmu/flush.h>

/*
 * struct xs_taken - records that a flush takes from a batch
 * @policy: policy of the flush
 * @block: take only the records of this block; NULL for all records
 * @end: end of the records to look at
 * @first_left: first record that is left; @end if no record is left
 * @pages: pages of the taken records
 * @records: number of taken records
 * @extents: number of extents of the taken records
 * @stuck: pages that the backend could not remove
 * @sent: commands sent
 */
struct xs_taken {
	const struct xs_policy *policy;
	const struct xs_block *block;
	u64 end;
	u64 first_left;
	u32 pages;
	u32 records;
	u32 extents;
	u32 stuck;
	struct xs_commands sent;
};

/* Set in the key of a record that is taken after a record that is left. */
#define XS_KEY_TAKING	(1ULL << 63)

/* Key of a taken record that has nothing but a reference to release: no IOVA goes back. */
#define XS_KEY_BARE	xs_key_of(0, 0, 1)

static void xs_flush_count(struct xs_engine *engine, struct xs_cpu *cpu,
			   enum xs_flush_point cause, const struct xs_taken *taken,
			   u32 ranges, u64 oldest_ns)
{
	cpu->stats.flushes[cause]++;
	cpu->stats.flushed_pages += taken->pages - taken->stuck;
	cpu->stats.commands_page += taken->sent.page;
	cpu->stats.commands_domain += taken->sent.domain;
	cpu->stats.commands_global += taken->sent.global;
	if (xs_ops(engine)->flushed)
		xs_ops(engine)->flushed(xs_backend(engine), cpu->id, cause,
					taken->pages, ranges, &taken->sent,
					oldest_ns);
}

/*
 * The timer fires an eighth of the window before the bound, so that a slightly late timer still
 * keeps the bound.
 */
static u64 xs_flush_wait_ns(const struct xs_engine *engine)
{
	u64 window_ns = xs_load(&engine->tuning.window_us) * 1000ULL;

	return window_ns - window_ns / 8;
}

u64 xs_flush_next_deadline(const struct xs_engine *engine)
{
	return xs_ops(engine)->clock(xs_backend(engine)) + xs_flush_wait_ns(engine);
}

/* Elapsed time; a corrected clock may go back a little. */
static u64 xs_since(u64 now_ns, u64 began_ns)
{
	return now_ns > began_ns ? now_ns - began_ns : 0;
}

/* ---- take ---- */

/* Adds pages to the last extent if they are its neighbours, or begins another extent. */
static xs_inline void xs_flush_add(u64 *extents, struct xs_taken *taken, u64 page, u32 pages)
{
	u64 *last = &extents[taken->extents - 1];

	if (taken->extents && xs_extent_page(*last) + xs_extent_pages(*last) == page) {
		*last += pages;
	} else if (taken->extents && page + pages == xs_extent_page(*last)) {
		*last += pages - ((u64)pages << 16);
	} else {
		extents[taken->extents++] = page << 16 | pages;
	}
}

/*
 * Takes a record. The word of a page of the identity window says whether this flush removes the
 * page's entry (identity.h); otherwise the record has only its reference to release. Returns the
 * key.
 */
static u64 xs_flush_take_record(struct xs_engine *engine, struct xs_cpu *cpu,
				struct xs_taken *taken, struct xs_record *record, u64 key)
{
	u64 page = xs_key_page(key);
	u32 pages = xs_key_pages(key);

	taken->pages += pages;
	taken->records++;
	if (xs_likely(!xs_identity_has(&engine->identity, page)) ||
	    xs_identity_take(engine, page, cpu->id)) {
		xs_flush_add(cpu->batch.extents, taken, page, pages);
		return key;
	}
	xs_store(&record->key, XS_KEY_BARE);
	return XS_KEY_BARE;
}

/* True if the record is valid and part of the flush. */
static bool xs_flush_wants(const struct xs_taken *taken, u64 key)
{
	return xs_key_is_valid(key) &&
	       (!taken->block || xs_key_page(key) / XS_BLOCK_PAGES ==
					 taken->block->iova / XS_BLOCK_BYTES);
}

/*
 * Takes the records from @at on that continue the extent ending with @key, each a mapping of a
 * single page, as most records are. Stops at the end of the block if only a block is flushed.
 * Returns the first record that does not continue the extent.
 */
static xs_inline u64 xs_flush_take_contiguous(struct xs_batch *batch,
					      struct xs_taken *taken, u64 at, u64 key)
{
	u64 first = at, stop = taken->end;

	if (xs_unlikely(taken->block)) {
		u64 rest = -(xs_key_page(key) + 1) & (XS_BLOCK_PAGES - 1);

		stop = stop - at > rest ? at + rest : stop;
	}
	while (at < stop) {
		const struct xs_record *record = xs_batch_record(batch, at);
		const struct xs_record *end =
			record + xs_batch_contiguous(at, stop);
		const struct xs_record *begin = record;

#pragma GCC unroll 4
		do {
			key += XS_KEY_NEXT;
			if (xs_load_acquire(&record->key) != key)
				break;
		} while (++record < end);
		at += (u64)(record - begin);
		if (record < end)
			break;
	}
	batch->extents[taken->extents - 1] += at - first;
	taken->pages += (u32)(at - first);
	taken->records += (u32)(at - first);
	return at;
}

/*
 * Collects the pages of the valid records as extents. Up to the first record that is left, a
 * record's position says that it was taken; after it, a mark in the key does.
 */
static void xs_flush_take(struct xs_engine *engine, struct xs_cpu *cpu, struct xs_taken *taken)
{
	struct xs_batch *batch = &cpu->batch;
	u64 at = batch->tail;

	taken->first_left = taken->end;
	while (at < taken->end) {
		struct xs_record *record = xs_batch_record(batch, at);
		u64 key = xs_load_acquire(&record->key);

		if (xs_unlikely(!xs_flush_wants(taken, key))) {
			if (key != XS_KEY_TAKEN && at < taken->first_left)
				taken->first_left = at;
			at++;
			continue;
		}
		at++;
		key = xs_flush_take_record(engine, cpu, taken, record, key);
		if (xs_unlikely(at > taken->first_left))
			xs_store(&record->key, key | XS_KEY_TAKING);
		else if (xs_likely(!(key & 0xffff)) && taken->extents &&
			 xs_likely(!xs_identity_has(&engine->identity, xs_key_page(key))) &&
			 xs_key_page(key) + 1 ==
				 xs_extent_page(batch->extents[taken->extents - 1]) +
				 xs_extent_pages(batch->extents[taken->extents - 1]))
			at = xs_flush_take_contiguous(batch, taken, at, key);
	}
}

/* ---- remove and invalidate ---- */

/* Handles pages that the backend could not remove. */
static xs_noinline void xs_flush_stick(struct xs_engine *engine,
				       struct xs_taken *taken, u64 page,
				       u32 pages)
{
	taken->stuck += pages;
	if (xs_identity_has(&engine->identity, page))
		xs_identity_stick(engine, page, pages);
	else
		xs_stuck_mark(engine, page, pages);
}

/*
 * A removal that covers all pages of a page-table page frees the page-table page: the invalidation
 * then loses its hint, and the next map needs a new page-table page. So no removal covers all.
 */
static void xs_flush_remove(struct xs_engine *engine, const u64 *extents,
			    struct xs_taken *taken, xs_gather_t *gather)
{
	for (u32 i = 0; i < taken->extents; i++) {
		u64 page = xs_extent_page(extents[i]);
		u64 end = page + xs_extent_pages(extents[i]);

		while (page < end) {
			u64 stop = (page | (XS_TABLE_PAGES - 1)) + 1;

			if (stop > end)
				stop = end;
			if (stop - page == XS_TABLE_PAGES)
				stop -= XS_TABLE_PAGES / 2;
			if (xs_unlikely(xs_ops(engine)->remove(
				    xs_backend(engine), gather,
				    page << XS_PAGE_LG2, stop - page)))
				xs_flush_stick(engine, taken, page,
					       (u32)(stop - page));
			page = stop;
		}
	}
}

/* Invalidates the extents. Returns the number of ranges used; 0 for the domain. */
static u32 xs_flush_invalidate(struct xs_engine *engine, const u64 *extents,
			       struct xs_taken *taken, xs_gather_t *gather)
{
	enum xs_scope scope = taken->policy->scope;
	u32 max = taken->policy->ranges_max;
	struct xs_range ranges[XS_RANGES_MAX];
	u32 found = 0;

	if (scope == XS_SCOPE_RANGE)
		max = XS_RANGES_MAX;
	if (scope != XS_SCOPE_DOMAIN)
		found = xs_extents_ranges(extents, taken->extents, ranges, max);
	if (found > max)
		found = 0;
	xs_ops(engine)->invalidate(xs_backend(engine), gather, ranges, found,
				   &taken->sent);
	return found;
}

/* ---- release ---- */

/*
 * Destination of IOVAs: their blocks, later and as extents; magazines; or magazines after a
 * check whether the block's pages must come back to the block.
 */
enum xs_back { XS_BACK_BLOCKS, XS_BACK_RANGES, XS_BACK_LOOKED };

/* Releases a record: the reference, and the IOVAs to magazines or their block. */
static xs_inline void xs_record_release(struct xs_engine *engine,
					struct xs_cpu *cpu,
					enum xs_back back,
					const struct xs_record *record, u64 key)
{
	u32 pages = xs_key_mapping_pages(key);
	u64 page = xs_key_page(key);

	if (xs_likely(xs_ref_can_be_held(record->ref)))
		xs_ref_release(record->ref);
	if (back == XS_BACK_BLOCKS || !pages)
		return;
	if (back == XS_BACK_LOOKED && xs_identity_has(&engine->identity, page))
		return;
	if (xs_likely(pages == 1) && back == XS_BACK_RANGES &&
	    xs_likely(xs_place_back_fast(engine, cpu, page)))
		return;
	if (!xs_place_back_range(engine, cpu, page, pages))
		xs_place_back_block(engine, cpu,
				    xs_space_block(&engine->space, page),
				    xs_block_mask(page, pages));
}

/* Releases the records [@at, @end), all taken. Returns the number of pages. */
static xs_inline u32 xs_flush_release_all(struct xs_engine *engine,
					  struct xs_cpu *cpu, enum xs_back back,
					  u64 at, u64 end)
{
	/* A group does not wrap around. */
	struct xs_record *record = xs_batch_record(&cpu->batch, at);
	struct xs_record *last = record + (end - at);
	u32 pages = 0;

	for (; record < last; record++) {
		u64 key = record->key;

		record->key = XS_KEY_FREE;
		if (xs_unlikely(key == XS_KEY_TAKEN))
			continue;
		pages += xs_key_pages(key);
		xs_record_release(engine, cpu, back, record, key);
	}
	return pages;
}

/* The same for mappings of a single page that do not go to magazines. */
static u32 xs_flush_release_ones(struct xs_cpu *cpu, u64 at, u64 end)
{
	struct xs_record *record = xs_batch_record(&cpu->batch, at);
	struct xs_record *last = record + (end - at);

#pragma GCC unroll 4
	for (; record < last; record++) {
		xs_ref_t ref = record->ref;

		record->key = XS_KEY_FREE;
		if (xs_likely(xs_ref_can_be_held(ref)))
			xs_ref_release(ref);
	}
	return (u32)(end - at);
}

/* The same after the first record that is left: only marked records were taken. */
static u32 xs_flush_release_marked(struct xs_engine *engine, struct xs_cpu *cpu,
				   enum xs_back back, u64 at, u64 end)
{
	u32 pages = 0;

	for (; at < end; at++) {
		struct xs_record *record = xs_batch_record(&cpu->batch, at);
		u64 key = xs_load(&record->key);

		if (!(key & XS_KEY_TAKING))
			continue;
		key &= ~XS_KEY_TAKING;
		record->key = XS_KEY_TAKEN;
		pages += xs_key_pages(key);
		xs_record_release(engine, cpu, back, record, key);
	}
	return pages;
}

/*
 * Releases a record of a flush that could not remove all pages. A stuck page keeps its IOVA and
 * its reference; without a reference the page is held now, since the driver keeps the memory
 * until this flush returns. Returns the number of released pages.
 */
static u32 xs_record_release_unless_stuck(struct xs_engine *engine, struct xs_cpu *cpu,
					  enum xs_back back, const struct xs_record *record,
					  u64 key)
{
	u64 page = xs_key_page(key);

	if (xs_identity_has(&engine->identity, page)) {
		if (xs_identity_is_stuck(engine, page)) {
			if (record->ref != XS_REF_NONE)
				xs_identity_keep(engine, page, record->ref);
			return 0;
		}
	} else if (key != XS_KEY_BARE && xs_stuck_has(engine, page)) {
		/* A removal covers whole mappings. */
		if (record->ref == XS_REF_UNHELD)
			xs_stuck_hold(engine, page, xs_key_pages(key));
		else
			xs_stuck_set_ref(engine, page, xs_key_pages(key),
					 record->ref);
		return 0;
	}
	xs_record_release(engine, cpu, back, record, key);
	return xs_key_pages(key);
}

/* The same for the records [@at, @end). @marked: only for marked records. */
static u32 xs_flush_release_stuck(struct xs_engine *engine, struct xs_cpu *cpu,
				  enum xs_back back, u64 at, u64 end,
				  bool marked)
{
	u32 pages = 0;

	for (; at < end; at++) {
		struct xs_record *record = xs_batch_record(&cpu->batch, at);
		u64 key = xs_load(&record->key);

		if (marked && !(key & XS_KEY_TAKING))
			continue;
		record->key = marked ? XS_KEY_TAKEN : XS_KEY_FREE;
		if (key != XS_KEY_TAKEN)
			pages += xs_record_release_unless_stuck(engine, cpu, back, record,
								key & ~XS_KEY_TAKING);
	}
	return pages;
}

/* Releases group by group, because each group has an age of its own. */
static void xs_flush_release(struct xs_engine *engine, struct xs_cpu *cpu,
			     const struct xs_taken *taken, u64 now)
{
	enum xs_back back = taken->policy->placement != XS_PLACE_PAGE ?
		XS_BACK_BLOCKS : xs_load(&engine->reserves) ?
		XS_BACK_LOOKED : XS_BACK_RANGES;
	/* All records were taken, now and not earlier. */
	bool ones = back == XS_BACK_BLOCKS &&
		    taken->pages == taken->end - cpu->batch.tail &&
		    taken->pages == taken->records && !taken->stuck;
	u64 at = cpu->batch.tail;

	while (at < taken->end) {
		u64 end = (at | (XS_BATCH_GROUP - 1)) + 1;
		u64 began_ns = *xs_batch_began_ns(&cpu->batch, at);
		u32 pages;

		if (end > taken->end)
			end = taken->end;
		if (xs_unlikely(at < taken->first_left && taken->first_left < end))
			end = taken->first_left;
		if (xs_likely(ones))
			pages = xs_flush_release_ones(cpu, at, end);
		else if (xs_unlikely(taken->stuck))
			pages = xs_flush_release_stuck(engine, cpu, back, at,
						       end, at >= taken->first_left);
		else if (xs_unlikely(at >= taken->first_left))
			pages = xs_flush_release_marked(engine, cpu, back, at,
							end);
		else if (back == XS_BACK_RANGES)
			pages = xs_flush_release_all(engine, cpu, XS_BACK_RANGES,
						     at, end);
		else if (back == XS_BACK_BLOCKS)
			pages = xs_flush_release_all(engine, cpu, XS_BACK_BLOCKS,
						     at, end);
		else
			pages = xs_flush_release_all(engine, cpu, XS_BACK_LOOKED,
						     at, end);
		if (pages)
			xs_stats_expose(&cpu->stats,
					xs_since(now, began_ns), pages);
		at = end;
	}
}

/* Clears the dead marks, whatever policy set them. */
static void xs_flush_bury(struct xs_engine *engine, const u64 *extents, u32 count)
{
	for (u32 i = 0; i < count; i++) {
		u64 page = xs_extent_page(extents[i]);
		u64 end = page + xs_extent_pages(extents[i]);

		while (page < end) {
			u64 stop = (page | (XS_BLOCK_PAGES - 1)) + 1;

			if (xs_identity_has(&engine->identity, page))
				return;
			if (stop > end)
				stop = end;
			xs_a64_andnot_relaxed(&xs_space_block(&engine->space, page)->dead,
				      xs_block_mask(page, (u32)(stop - page)));
			page = stop;
		}
	}
}

/* Gives pages that no magazine has taken back to their blocks, as extents. */
static void xs_flush_back(struct xs_engine *engine, struct xs_cpu *cpu,
			  const struct xs_taken *taken)
{
	const u64 *extents = cpu->batch.extents;
	bool counts_dead = xs_flushes_on(taken->policy, XS_FLUSH_BLOCK);

	for (u32 i = 0; i < taken->extents; i++) {
		u64 page = xs_extent_page(extents[i]);
		u64 end = page + xs_extent_pages(extents[i]);

		if (xs_identity_has(&engine->identity, page))
			return;
		while (page < end) {
			u64 stop = (page | (XS_BLOCK_PAGES - 1)) + 1;
			struct xs_block *block =
				xs_space_block(&engine->space, page);
			u64 mask;

			if (stop > end)
				stop = end;
			mask = xs_block_mask(page, (u32)(stop - page));
			if (counts_dead)
				xs_a64_andnot_relaxed(&block->dead, mask);
			if (xs_unlikely(taken->stuck))
				mask &= ~xs_a64_read(&block->stuck);
			if (xs_likely(mask))
				xs_place_back_block(engine, cpu, block, mask);
			page = stop;
		}
	}
}

/* Makes the removed pages of the identity window absent. The extents are sorted. */
static void xs_flush_identity_back(struct xs_engine *engine, const u64 *extents, u32 count)
{
	while (count && xs_identity_has(&engine->identity, xs_extent_page(extents[count - 1]))) {
		count--;
		xs_identity_done(engine, xs_extent_page(extents[count]),
				 xs_extent_pages(extents[count]));
	}
}

/*
 * Has the backend call as soon as for a batch that begins now. A timer that another CPU has
 * started fires there: the batch's CPU starts the timer again for the next batch.
 */
static void xs_flush_arm(struct xs_engine *engine, struct xs_cpu *cpu)
{
	xs_ops(engine)->deferred(xs_backend(engine), cpu->id, true,
				 xs_flush_next_deadline(engine));
	cpu->batch.armed = cpu->id == xs_cpu_id();
}

/*
 * Ends the flush of a batch. Without records that are left, the batch's CPU ends the group.
 * Otherwise a record may be left or may still come, and the backend must call again.
 */
static void xs_flush_end(struct xs_engine *engine, struct xs_cpu *cpu,
			 const struct xs_taken *taken)
{
	struct xs_batch *batch = &cpu->batch;
	bool is_all = taken->first_left == taken->end;

	batch->more_pages -= taken->pages - taken->records;
	if (xs_likely(is_all && cpu->id == xs_cpu_id())) {
		xs_batch_end_group(batch);
		return;
	}
	xs_store_release(&batch->tail, taken->first_left);
	if (taken->block)
		return;
	/* The writer of such a record has set @promised before, or will do so. */
	xs_a64_set(&batch->promised, 1);
	batch->unended |= is_all;
	if (is_all && batch->armed)
		return;
	xs_flush_arm(engine, cpu);
}

/* The same for a batch without records whose group another CPU has left open. */
static xs_noinline void xs_flush_end_unended(struct xs_engine *engine, struct xs_cpu *cpu)
{
	if (cpu->id == xs_cpu_id())
		xs_batch_end_group(&cpu->batch);
	else if (!cpu->batch.armed)
		xs_flush_arm(engine, cpu);
}

/* ---- the flush ---- */

/* Removes and invalidates the taken extents. Returns as xs_flush_invalidate(). */
static xs_inline u32 xs_flush_extents(struct xs_engine *engine, struct xs_cpu *cpu,
				      enum xs_flush_point cause, struct xs_taken *taken)
{
	struct xs_batch *batch = &cpu->batch;
	xs_gather_t gather;

	taken->extents = xs_extents_join(batch->extents, taken->extents);
	/* The policy may have changed since the unmaps. */
	if (cause == XS_FLUSH_DRAIN)
		xs_flush_bury(engine, batch->extents, taken->extents);
	xs_ops(engine)->gather_init(&gather);
	xs_flush_remove(engine, batch->extents, taken, &gather);
	return xs_flush_invalidate(engine, batch->extents, taken, &gather);
}

static void xs_flush_some(struct xs_engine *engine, struct xs_cpu *cpu,
			  enum xs_flush_point cause, const struct xs_block *block)
{
	struct xs_batch *batch = &cpu->batch;
	struct xs_taken taken = {
		.policy = xs_policy_of(engine),
		.block = block,
	};
	u64 oldest_ns, now;
	u32 ranges = 0;

	/* From now on appends wait for the lock, except appends in progress. */
	xs_store(&batch->limit, 0);
	/* Fully ordered: an unmap that has set @promised before has written its record before. */
	if (!block)
		xs_a64_swap(&batch->promised, 0);
	taken.end = xs_a64_read(&batch->head);
	xs_flush_take(engine, cpu, &taken);
	if (taken.records) {
		oldest_ns = *xs_batch_began_ns(batch, batch->tail);
		/* Without an extent all pages are mapped again (identity.h). */
		if (xs_likely(taken.extents))
			ranges = xs_flush_extents(engine, cpu, cause, &taken);
		now = xs_ops(engine)->clock(xs_backend(engine));
		xs_flush_release(engine, cpu, &taken, now);
		if (taken.policy->placement != XS_PLACE_PAGE)
			xs_flush_back(engine, cpu, &taken);
		xs_flush_identity_back(engine, batch->extents, taken.extents);
		xs_flush_count(engine, cpu, cause, &taken, ranges,
			       xs_since(now, oldest_ns));
	}
	xs_flush_end(engine, cpu, &taken);
}

void xs_flush_batch(struct xs_engine *engine, struct xs_cpu *cpu,
		    enum xs_flush_point cause)
{
	xs_assert_locked(&cpu->lock);
	if (!xs_batch_is_empty(&cpu->batch))
		xs_flush_some(engine, cpu, cause, 0);
	else if (xs_unlikely(cpu->batch.unended))
		xs_flush_end_unended(engine, cpu);
}

void xs_flush_block(struct xs_engine *engine, struct xs_block *block)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = xs_cpu_lock(engine, &flags);

	if (!xs_batch_is_empty(&cpu->batch))
		xs_flush_some(engine, cpu, XS_FLUSH_BLOCK, block);
	xs_cpu_unlock(cpu, flags);
}

/* Kinds of removal by the backend. */
enum xs_removal { XS_REMOVE, XS_REMOVE_AGAIN, XS_REMOVE_PART };

/*
 * Removes and invalidates pages that are not deferred: all of @whole, or @part of it. Returns
 * the backend's result of the removal.
 */
static xs_inline int xs_flush_one(struct xs_engine *engine, enum xs_removal how,
				  const struct xs_range *part,
				  const struct xs_range *whole,
				  struct xs_commands *sent)
{
	u64 iova = whole->page << XS_PAGE_LG2;
	void *backend = xs_backend(engine);
	xs_gather_t gather;
	int result;

	xs_ops(engine)->gather_init(&gather);
	if (how == XS_REMOVE_PART)
		result = xs_ops(engine)->remove_part(backend, &gather, part,
						     whole);
	else if (xs_unlikely(how == XS_REMOVE_AGAIN))
		result = xs_ops(engine)->remove_again(backend, &gather, iova,
						      whole->pages);
	else
		result = xs_ops(engine)->remove(backend, &gather, iova,
						whole->pages);
	xs_ops(engine)->invalidate(backend, &gather, whole, 1, sent);
	return result;
}

/* The same for a range. Returns false if the backend could not remove all of it. */
static xs_inline bool xs_flush_range(struct xs_engine *engine, u64 page,
				     u32 pages, bool again,
				     struct xs_commands *sent)
{
	struct xs_range range = { page, pages };

	return !xs_flush_one(engine, again ? XS_REMOVE_AGAIN : XS_REMOVE, &range,
			     &range, sent);
}

/* Counts an immediate flush; the unmap counts the pages. */
static xs_inline void xs_flush_immediate_count(struct xs_engine *engine, u32 pages,
					       const struct xs_commands *sent)
{
	xs_count(engine->counts, immediate, 1);
	if (sent->page)
		xs_count(engine->counts, immediate_page, sent->page);
	if (sent->domain)
		xs_count(engine->counts, immediate_domain, sent->domain);
	if (sent->global)
		xs_count(engine->counts, immediate_global, sent->global);
	if (xs_ops(engine)->flushed)
		xs_ops(engine)->flushed(xs_backend(engine), xs_cpu_id(),
					XS_FLUSH_UNMAP, pages, 1, sent, 0);
}

static xs_inline void xs_flush_range_count(struct xs_engine *engine, u32 pages,
					   const struct xs_commands *sent)
{
	xs_count(engine->counts, immediate_pages, pages);
	xs_flush_immediate_count(engine, pages, sent);
}

bool xs_flush_now(struct xs_engine *engine, u64 page, u32 pages)
{
	struct xs_commands sent = { 0, 0, 0 };
	bool removed = xs_flush_range(engine, page, pages, false, &sent);

	xs_flush_range_count(engine, pages, &sent);
	return removed;
}

int xs_flush_part(struct xs_engine *engine, const struct xs_range *part,
		  const struct xs_range *whole)
{
	struct xs_commands sent = { 0, 0, 0 };
	int result = xs_flush_one(engine, XS_REMOVE_PART, part, whole, &sent);

	xs_flush_immediate_count(engine, (u32)part->pages, &sent);
	return result;
}

bool xs_flush_again(struct xs_engine *engine, u64 page, u32 pages,
		    struct xs_commands *sent)
{
	return xs_flush_range(engine, page, pages, true, sent);
}

bool xs_flush_failed_map(struct xs_engine *engine, u64 page, u32 pages)
{
	struct xs_commands sent = { 0, 0, 0 };
	bool removed = xs_flush_again(engine, page, pages, &sent);

	xs_flush_range_count(engine, pages, &sent);
	return removed;
}

bool xs_flush_extent(struct xs_engine *engine, u64 iova, u32 pages, bool again)
{
	struct xs_commands sent = { 0, 0, 0 };
	bool removed = xs_flush_range(engine, iova >> XS_PAGE_LG2, pages, again,
				      &sent);
	xs_flags_t flags;

	xs_enter();
	xs_flush_range_count(engine, pages, &sent);
	flags = xs_local_save();
	if (xs_likely(removed)) {
		xs_space_free_extent(&engine->space, iova, pages);
	} else {
		xs_count(engine->counts, immediate_pages, -(u64)pages);
		xs_stuck_mark_extent(engine, iova, pages);
	}
	xs_local_restore(flags);
	xs_exit();
	return removed;
}

/* ---- deferring ---- */

u64 xs_flush_deadline(const struct xs_engine *engine, struct xs_cpu *cpu)
{
	return *xs_batch_began_ns(&cpu->batch, cpu->batch.tail) +
	       xs_flush_wait_ns(engine);
}

bool xs_flush_alloc_records(struct xs_engine *engine, struct xs_cpu *cpu, u32 count,
			    u32 pages, u64 *at)
{
	struct xs_batch *batch = &cpu->batch;
	bool first;

	xs_assert_locked(&cpu->lock);
	if (xs_unlikely(!batch->records))
		batch->records = xs_ops(engine)->alloc(
			xs_backend(engine),
			XS_BATCH_RECORDS * sizeof(*batch->records), cpu->id,
			true);
	if (!batch->records)
		return false;
	if (!xs_batch_has_room(batch, count))
		xs_flush_some(engine, cpu, XS_FLUSH_FULL, 0);
	if (!xs_batch_has_room(batch, count))
		return false;
	first = xs_batch_is_empty(batch);
	if (first)
		xs_batch_end_group(batch);
	*at = xs_batch_alloc_records(batch, count, pages,
				     xs_ops(engine)->clock(xs_backend(engine)));
	if (first) {
		xs_ops(engine)->deferred(xs_backend(engine), cpu->id,
					 !batch->armed,
					 xs_flush_deadline(engine, cpu));
		batch->armed = true;
	}
	return true;
}

void xs_flush_if_full(struct xs_engine *engine, struct xs_cpu *cpu)
{
	u32 limit_pages = xs_load(&engine->tuning.batch_pages);

	xs_assert_locked(&cpu->lock);
	if (xs_batch_pages(&cpu->batch) >= limit_pages)
		xs_flush_some(engine, cpu, XS_FLUSH_FULL, 0);
	else
		xs_batch_set_limit(&cpu->batch, limit_pages);
}
