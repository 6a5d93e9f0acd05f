/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The batch of one CPU: the blocks that have dead pages, so that a sync finds
 * them. A block is put here by the unmap that makes its dead word nonzero;
 * later unmaps in it only set bits there, on any CPU, and so neighbours are
 * joined as they are recorded.
 *
 * Dead pages are taken out only under the lock of the CPU that has their block
 * here, and synced before it is dropped: who has had all CPUs' locks knows that
 * what was dead before is synced. Until then another CPU may batch the block
 * for pages that died since.
 *
 * All of it is guarded by its CPU's lock.
 *
 * A block's listing says in which batch it is: the CPU, and above it a number
 * that no other listing ever has. It is written under that CPU's lock after
 * the dead word became nonzero, and cleared under it before the word is
 * swapped with 0. So who reads the same listing before and after it has set
 * dead bits knows, without a lock, that the sync of this very batch takes them.
 */
#ifndef XSMMU_BATCH_H
#define XSMMU_BATCH_H

#include <xsmmu/space.h>

#define XS_BATCH_ENTRIES	256

#define XS_LISTING_NONE		0ULL
#define XS_LISTING_STEP		0x10000ULL
#define XS_CPUS_MAX		0xffffu

/* The CPU that a listing names, its number plus one; 0: none. */
static xs_inline u32 xs_listing_cpu(u64 listing)
{
	return listing & (XS_LISTING_STEP - 1);
}

/*
 * struct xs_entry - one block of a batch
 * @mask:	the pages that the running sync took from it
 * @oldest_ns:	clock when the block was put here; all its pages count as old
 *		as this, so that exposure is never reported shorter than it was
 */
struct xs_entry {
	u64 mask;
	u64 oldest_ns;
	u32 block;
};

/*
 * @recount_at:	number of entries at which their pages are counted next, to see
 *		if the batch is full
 * @oldest_ns:	of the first entry; stale when @count is 0
 */
struct xs_batch {
	u32 count;
	u32 recount_at;
	u64 oldest_ns;
	struct xs_entry entries[XS_BATCH_ENTRIES];
};

/* Put @block into the batch, which has room. */
void xs_batch_add(struct xs_batch *batch, u32 block, u64 now_ns);

/*
 * Have the entries' blocks @limit_pages dead pages or more? Counts only when
 * that has become possible; pages that join a block in between may pass the
 * limit unseen until the next block does.
 */
bool xs_batch_full(struct xs_batch *batch, const struct xs_space *space,
		   u32 limit_pages);

/* Sort @count entries by block. */
void xs_batch_sort(struct xs_entry *entries, u32 count);

/*
 * The invalidation ranges that cover @count sorted entries, those with an
 * empty mask left out: one aligned block each, aligned neighbours joined.
 * Writes at most @max ranges; returns their number, or @max + 1 when they
 * would be more, in the end or on the way there.
 */
u32 xs_batch_ranges(const struct xs_entry *entries, u32 count,
		    struct xs_range *ranges, u32 max);

#endif
