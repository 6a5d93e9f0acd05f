/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Sets of pages of a block, and small sums. */
#ifndef XSMMU_BITS_H
#define XSMMU_BITS_H

#include <xsmmu/needs.h>

/* The set of @count members, 1 .. 64, from @first on. */
static xs_inline u64 xs_mask_of(u32 first, u32 count)
{
	return (~0ULL >> (64 - count)) << first;
}

/* The length of the first extent of members of @mask, which has one. */
static xs_inline u32 xs_mask_extent(u64 mask)
{
	u64 rest = ~(mask >> xs_ctz(mask));

	return rest ? xs_ctz(rest) : 64;
}

/* log2 of @count, at least 1, rounded up. */
static xs_inline u32 xs_lg2_ceil(u64 count)
{
	return count > 1 ? xs_log2(count - 1) + 1 : 0;
}

/* Members that are the first of an aligned 2^@lg2, of 64. */
static xs_inline u64 xs_mask_aligned(u32 lg2)
{
	static const u64 aligned[] = {
		0xffffffffffffffffULL, 0x5555555555555555ULL,
		0x1111111111111111ULL, 0x0101010101010101ULL,
		0x0001000100010001ULL, 0x0000000100000001ULL, 1,
	};

	return aligned[lg2];
}

/* The first members of all aligned 2^@lg2 that are in @mask as a whole. */
static xs_inline u64 xs_mask_orders(u64 mask, u32 lg2)
{
	for (u32 i = 0; i < lg2; i++)
		mask &= mask >> (1u << i);
	return mask & xs_mask_aligned(lg2);
}

/*
 * The first @count members of @mask contiguous, naturally aligned to the next power of
 * two, as a set; 0 if there are none.
 */
static xs_inline u64 xs_mask_find(u64 mask, u32 count)
{
	u64 starts = mask;

	/* Starts of extents of 2, 4, ... members, up to @count. */
	for (u32 have = 1; have < count;) {
		u32 more = count - have < have ? count - have : have;

		starts &= starts >> more;
		have += more;
	}
	starts &= xs_mask_aligned(xs_lg2_ceil(count));
	return starts ? xs_mask_of(xs_ctz(starts), count) : 0;
}

#endif
