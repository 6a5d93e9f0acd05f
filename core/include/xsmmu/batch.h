/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The batch of one CPU: the unmaps that it has deferred, whose ever the pages
 * were. So the flush of what a CPU has unmapped is the flush of its own batch, and
 * needs no other CPU's.
 *
 * It is a log. An unmap reserves a record by one compare and swap on @head, and
 * writes it; its key last, which makes it valid. A flush, under the CPU's lock,
 * takes the valid records from @tail to @head. Only its CPU appends, so a record
 * that is reserved and not valid is one of an unmap that the reader has
 * interrupted, or that runs while another CPU flushes this batch: the flush leaves
 * it, and all records after it stay where they are until it has been written.
 *
 * The fast way, for one page and without the lock, ends at @limit; there the lock
 * is taken, to look whether the batch is full, to read the clock, and to have the
 * backend call back if the batch was empty. All of a group of XS_BATCH_GROUP
 * records count as old as its first one, so that exposure is never reported
 * shorter than it was. A flush that leaves nothing ends the group.
 */
#ifndef XSMMU_BATCH_H
#define XSMMU_BATCH_H

#include <xsmmu/bits.h>
#include <xsmmu/slot.h>
#include <xsmmu/space.h>

/* Powers of two; a test may have smaller ones. */
#ifndef XS_BATCH_RECORDS
#define XS_BATCH_RECORDS	1024u
#define XS_BATCH_GROUP		128u
#endif
#define XS_BATCH_GROUPS		(XS_BATCH_RECORDS / XS_BATCH_GROUP)

/*
 * struct xs_record - pages that one reference keeps, or none
 * @key:	page, pages of its mapping if it is the first record of that, else
 *		0, and pages; both so that a mapping of one page has zeros there. Or
 *		one of the values below
 * @ref:	held; or XS_REF_NONE; or XS_REF_UNHELD: a batch-aware driver keeps the memory until
 *		its flush has returned, and each page's slot knows how it can be held
 */
struct xs_record {
	u64 key;
	xs_ref_t ref;
};

#define XS_KEY_NEXT	(1ULL << 16)	/* from one page's to the next one's */
#define XS_KEY_FREE	0ULL	/* not valid (yet) */
#define XS_KEY_TAKEN	1ULL	/* flushed, behind one that was not valid */

static xs_inline u64 xs_key_of(u64 page, u32 mapping_pages, u32 pages)
{
	return page << 16 | (mapping_pages ^ 1) << 8 | (pages - 1);
}

static xs_inline bool xs_key_is_valid(u64 key)
{
	return key > XS_KEY_TAKEN;
}

static xs_inline u64 xs_key_page(u64 key)
{
	return key >> 16;
}

static xs_inline u32 xs_key_mapping_pages(u64 key)
{
	return (key >> 8 & 0xff) ^ 1;
}

static xs_inline u32 xs_key_pages(u64 key)
{
	return (key & 0xff) + 1;
}

/*
 * struct xs_batch - guarded by the CPU's lock, but for the first line
 * @head:	number of the next record; only grows
 * @limit:	@head below it: append without the lock
 * @records:	a ring; NULL until the first unmap is deferred
 * @promised:	a batch-aware driver's unmap is in the batch
 * @tail:	number of the first record that is not flushed
 * @more_pages:	that the records from @tail on have, beside one each
 * @armed:	the backend has been asked to call xs_engine_expire()
 * @began_ns:	clock when a group began
 * @extents:	of the running flush: page << 16 | pages
 */
struct xs_batch {
	xs_atomic64_t head;
	u64 limit;
	struct xs_record *records;
	xs_atomic64_t promised;

	u64 tail XS_CACHE_LINE;
	u64 more_pages;
	bool armed;
	u64 began_ns[XS_BATCH_GROUPS];
	u64 extents[XS_BATCH_RECORDS];
};

static xs_inline struct xs_record *xs_batch_record(const struct xs_batch *batch,
						   u64 at)
{
	return &batch->records[at & (XS_BATCH_RECORDS - 1)];
}

/* Records from @at on that are next to each other in the ring, up to @end. */
static xs_inline u64 xs_batch_contiguous(u64 at, u64 end)
{
	u64 rest = XS_BATCH_RECORDS - (at & (XS_BATCH_RECORDS - 1));

	return rest < end - at ? rest : end - at;
}

static xs_inline u64 *xs_batch_began_ns(struct xs_batch *batch, u64 at)
{
	return &batch->began_ns[at / XS_BATCH_GROUP % XS_BATCH_GROUPS];
}

/* Write a record that was reserved. */
static xs_inline void xs_record_write(struct xs_record *record, u64 key,
				      xs_ref_t ref)
{
	xs_store(&record->ref, ref);
	xs_store_release(&record->key, key);
}

/* Append a mapping of one page. False: the lock is needed. Entered. */
static xs_inline bool xs_batch_append_fast(struct xs_batch *batch, u64 page,
					   xs_ref_t ref)
{
	u64 head = xs_a64_read(&batch->head);

	do {
		if (xs_unlikely(head >= xs_load(&batch->limit)))
			return false;
	} while (xs_unlikely(!xs_a64_try_relaxed(&batch->head, &head, head + 1)));
	xs_record_write(xs_batch_record(batch, head), xs_key_of(page, 1, 1),
			ref);
	return true;
}

/*
 * Has the batch nothing to flush? Also without the lock, for unmaps that were
 * before: a flush moves the tail when it is done.
 */
static xs_inline bool xs_batch_is_empty(struct xs_batch *batch)
{
	return xs_load_acquire(&batch->tail) == xs_a64_read(&batch->head);
}

/* Pages that were appended and not flushed, or more. */
static xs_inline u64 xs_batch_pages(struct xs_batch *batch)
{
	return xs_a64_read(&batch->head) - batch->tail + batch->more_pages;
}

/* Is there room for @count more records? The CPU is this one, here and below. */
static xs_inline bool xs_batch_has_room(struct xs_batch *batch, u32 count)
{
	/* The group of the tail may be flushed in part, and keeps its age. */
	u64 first = batch->tail & ~(u64)(XS_BATCH_GROUP - 1);

	return xs_a64_read(&batch->head) + count - first <= XS_BATCH_RECORDS;
}

/*
 * Reserve @count records, for which there is room, of a mapping of @pages pages.
 * Returns the number of the first.
 */
u64 xs_batch_reserve(struct xs_batch *batch, u32 count, u32 pages, u64 now_ns);

/*
 * Allow the fast way to the end of the group, or to one before the batch is full,
 * which it is at @limit_pages, so that the unmap that fills it sees that it does.
 */
void xs_batch_set_limit(struct xs_batch *batch, u32 limit_pages);

/*
 * Sort @count runs and join those that touch or overlap, so that what is left is in
 * order and apart. The extents have 65,535 pages together at most, which is what the
 * count of pages of one run can say. Returns how many are left.
 */
u32 xs_extents_join(u64 *extents, u32 count);

static xs_inline u64 xs_extent_page(u64 extent)
{
	return extent >> 16;
}

static xs_inline u32 xs_extent_pages(u64 extent)
{
	return extent & 0xffff;
}

/*
 * The invalidation ranges that cover @count runs, sorted and joined: aligned
 * blocks, aligned neighbours joined. Writes at most @max ranges; returns their number,
 * or @max + 1 when they would be more, in the end or on the way there.
 */
u32 xs_extents_ranges(const u64 *extents, u32 count, struct xs_range *ranges,
		      u32 max);

#endif
