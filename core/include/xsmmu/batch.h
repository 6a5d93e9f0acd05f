/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The batch of a CPU: the unmaps that the CPU has deferred, whichever CPU mapped the pages. So
 * a flush of a CPU's unmaps is a flush of the CPU's own batch, and needs no other CPU's batch.
 *
 * The batch is a log. An unmap allocates a record by a compare and swap on @head and writes the
 * record; the key is written last and makes the record valid. A flush, under the CPU's lock,
 * takes the valid records from @tail to @head. Only the batch's CPU appends, so an allocated
 * record that is not valid belongs to an unmap that the reader has interrupted, or that runs
 * while another CPU flushes the batch. The flush leaves such a record, and all later records
 * stay in place until the record has been written.
 *
 * Only the batch's CPU writes @head. So the compare and swap of an append must be atomic against
 * interrupts of this CPU only, and is not locked.
 *
 * The fast path, for a single page and without the lock, ends at @limit. There the lock is
 * taken: to check for a full batch, to read the clock, and to request a callback from the
 * backend if the batch was empty. All records of a group of XS_BATCH_GROUP have the age of the
 * first record, so that exposure is never reported shorter than it was. A flush that leaves no
 * record ends the group, if the flush runs on the batch's CPU: an interrupted append then fails
 * its compare and swap, and reads the limit again. Another CPU cannot stop an append that has
 * read the limit, and sets @unended: a timer runs until the batch's CPU has ended the group.
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

/**
 * struct xs_record - pages that share a reference, or have none
 * @key: page; size of the mapping in its first record, else 0; pages of the record. The sizes
 *   are encoded such that a mapping of a single page has zeros. Or a special value below.
 * @ref: held reference; XS_REF_NONE; or XS_REF_UNHELD if a batch-aware driver keeps the memory
 *   until its flush has returned, and each page's slot remembers how the page can be held
 */
struct xs_record {
	u64 key;
	xs_ref_t ref;
};

#define XS_KEY_NEXT	(1ULL << 16)	/* from a page to the next page */
#define XS_KEY_FREE	0ULL	/* not valid (yet) */
#define XS_KEY_TAKEN	1ULL	/* flushed, after a record that was not valid */

/**
 * xs_key_of - key of a record
 * @page: first page of the record
 * @mapping_pages: size of the mapping in its first record, else 0
 * @pages: pages of the record
 *
 * Context: any.
 * Return: the key.
 */
static xs_inline u64 xs_key_of(u64 page, u32 mapping_pages, u32 pages)
{
	return page << 16 | (mapping_pages ^ 1) << 8 | (pages - 1);
}

/**
 * xs_key_is_valid - test for the key of a written record that is not flushed
 * @key: key
 *
 * Context: any.
 * Return: true for such a key.
 */
static xs_inline bool xs_key_is_valid(u64 key)
{
	return key > XS_KEY_TAKEN;
}

/**
 * xs_key_page - first page of a record
 * @key: key
 *
 * Context: any.
 * Return: page number.
 */
static xs_inline u64 xs_key_page(u64 key)
{
	return key >> 16;
}

/**
 * xs_key_mapping_pages - size of the mapping in its first record, else 0
 * @key: key
 *
 * Context: any.
 * Return: number of pages.
 */
static xs_inline u32 xs_key_mapping_pages(u64 key)
{
	return (key >> 8 & 0xff) ^ 1;
}

/**
 * xs_key_pages - pages of a record
 * @key: key
 *
 * Context: any.
 * Return: number of pages.
 */
static xs_inline u32 xs_key_pages(u64 key)
{
	return (key & 0xff) + 1;
}

/**
 * struct xs_batch - batch of a CPU
 * @head: number of the next record; only grows
 * @limit: while @head is below, records are appended without the lock
 * @records: a ring; NULL until the first unmap is deferred
 * @promised: the batch has an unmap of a batch-aware driver
 * @tail: number of the first record that is not flushed
 * @more_pages: pages of the records from @tail on, not counting the first page of each
 * @armed: the backend has been asked, on the batch's CPU, to call xs_engine_expire()
 * @unended: another CPU has flushed all records, and an append may still be in progress
 * @began_ns: start time of each group
 * @extents: of the running flush: page << 16 | pages
 *
 * The CPU's lock guards all members except the first cache line.
 */
struct xs_batch {
	xs_atomic64_t head;
	u64 limit;
	struct xs_record *records;
	xs_atomic64_t promised;

	u64 tail XS_CACHE_LINE;
	u64 more_pages;
	bool armed;
	bool unended;
	u64 began_ns[XS_BATCH_GROUPS];
	u64 extents[XS_BATCH_RECORDS];
};

/**
 * xs_batch_record - record of a number
 * @batch: batch with records
 * @at: number of the record
 *
 * Context: any.
 * Return: the record.
 */
static xs_inline struct xs_record *xs_batch_record(const struct xs_batch *batch,
						   u64 at)
{
	return &batch->records[at & (XS_BATCH_RECORDS - 1)];
}

/**
 * xs_batch_contiguous - number of records that are neighbours in the ring
 * @at: number of the first record
 * @end: end of the records
 *
 * Context: any.
 * Return: number of records, at least 1.
 */
static xs_inline u64 xs_batch_contiguous(u64 at, u64 end)
{
	u64 rest = XS_BATCH_RECORDS - (at & (XS_BATCH_RECORDS - 1));

	return rest < end - at ? rest : end - at;
}

/**
 * xs_batch_began_ns - start time of a record's group
 * @batch: batch
 * @at: number of the record
 *
 * Context: CPU's lock.
 * Return: address of the start time, in ns.
 */
static xs_inline u64 *xs_batch_began_ns(struct xs_batch *batch, u64 at)
{
	return &batch->began_ns[at / XS_BATCH_GROUP % XS_BATCH_GROUPS];
}

/**
 * xs_record_write - write an allocated record; the record becomes valid
 * @record: record
 * @key: key
 * @ref: reference
 *
 * Context: entered, on the batch's CPU.
 */
static xs_inline void xs_record_write(struct xs_record *record, u64 key,
				      xs_ref_t ref)
{
	xs_store(&record->ref, ref);
	xs_store_release(&record->key, key);
}

/**
 * xs_batch_append_fast - append a mapping of a single page without the lock
 * @batch: batch of the running CPU
 * @page: page
 * @ref: held reference, XS_REF_NONE or XS_REF_UNHELD
 *
 * Context: entered.
 * Return: false if the lock is needed.
 */
static xs_inline bool xs_batch_append_fast(struct xs_batch *batch, u64 page,
					   xs_ref_t ref)
{
	u64 head = xs_a64_read(&batch->head);

	do {
		if (xs_unlikely(head >= xs_load(&batch->limit)))
			return false;
	} while (xs_unlikely(!xs_a64_try_local(&batch->head, &head, head + 1)));
	xs_record_write(xs_batch_record(batch, head), xs_key_of(page, 1, 1),
			ref);
	return true;
}

/**
 * xs_batch_is_empty - test for a batch without records to flush
 * @batch: batch
 *
 * A flush moves the tail when the flush is done. So without the lock the result is reliable for
 * unmaps that came before the call.
 *
 * Context: any.
 * Return: true if there is no such record.
 */
static xs_inline bool xs_batch_is_empty(struct xs_batch *batch)
{
	return xs_load_acquire(&batch->tail) == xs_a64_read(&batch->head);
}

/**
 * xs_batch_pages - upper bound on the pages that are appended and not flushed
 * @batch: batch
 *
 * Context: CPU's lock.
 * Return: number of pages.
 */
static xs_inline u64 xs_batch_pages(struct xs_batch *batch)
{
	return xs_a64_read(&batch->head) - batch->tail + batch->more_pages;
}

/**
 * xs_batch_has_room - test for room for more records
 * @batch: batch of the running CPU
 * @count: number of records
 *
 * Context: CPU's lock.
 * Return: true if there is room.
 */
static xs_inline bool xs_batch_has_room(struct xs_batch *batch, u32 count)
{
	/* The group of the tail may be flushed in part; the rest keeps its age. */
	u64 first = batch->tail & ~(u64)(XS_BATCH_GROUP - 1);

	return xs_a64_read(&batch->head) + count - first <= XS_BATCH_RECORDS;
}

/**
 * xs_batch_alloc_records - allocate records for a mapping
 * @batch: batch of the running CPU, with room
 * @count: number of records
 * @pages: size of the mapping
 * @now_ns: present time
 *
 * Context: CPU's lock.
 * Return: number of the first record.
 */
u64 xs_batch_alloc_records(struct xs_batch *batch, u32 count, u32 pages, u64 now_ns);

/**
 * xs_batch_end_group - let the next record begin a group
 * @batch: batch of the running CPU, without records to flush
 *
 * An append that this call has interrupted fails its compare and swap.
 *
 * Context: CPU's lock.
 */
void xs_batch_end_group(struct xs_batch *batch);

/**
 * xs_batch_set_limit - set the limit of the fast path
 * @batch: batch of the running CPU
 * @limit_pages: pages at which the batch is full
 *
 * The limit is the end of the group, or the record before the batch is full, so that the unmap
 * that fills the batch takes the slow path.
 *
 * Context: CPU's lock.
 */
void xs_batch_set_limit(struct xs_batch *batch, u32 limit_pages);

/**
 * xs_extents_join - sort extents, and join extents that touch or overlap
 * @extents: extents of 65,535 pages in all at most, the range of an extent's count
 * @count: number of extents
 *
 * Context: any.
 * Return: number of extents that are left, sorted and disjoint.
 */
u32 xs_extents_join(u64 *extents, u32 count);

/**
 * xs_extent_page - first page of an extent
 * @extent: page << 16 | pages
 *
 * Context: any.
 * Return: page number.
 */
static xs_inline u64 xs_extent_page(u64 extent)
{
	return extent >> 16;
}

/**
 * xs_extent_pages - number of pages of an extent
 * @extent: page << 16 | pages
 *
 * Context: any.
 * Return: number of pages.
 */
static xs_inline u32 xs_extent_pages(u64 extent)
{
	return extent & 0xffff;
}

/**
 * xs_extents_ranges - invalidation ranges that cover extents
 * @extents: extents, sorted and joined
 * @count: number of extents
 * @ranges: result: aligned blocks, with aligned neighbours joined
 * @max: room in @ranges
 *
 * Context: any.
 * Return: number of ranges; @max + 1 if the result, or an intermediate result, has more than
 *   @max ranges.
 */
u32 xs_extents_ranges(const u64 *extents, u32 count, struct xs_range *ranges,
		      u32 max);

#endif
