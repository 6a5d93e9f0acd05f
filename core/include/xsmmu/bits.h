/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Sets of pages of a block, and small arithmetic. */
#ifndef XSMMU_BITS_H
#define XSMMU_BITS_H

#include <xsmmu/needs.h>

/**
 * xs_mask_of - set of consecutive members
 * @first: first member
 * @count: number of members, 1 .. 64
 *
 * Context: any.
 * Return: the set.
 */
static xs_inline u64 xs_mask_of(u32 first, u32 count)
{
	return (~0ULL >> (64 - count)) << first;
}

/**
 * xs_mask_extent - length of the first extent of members
 * @mask: set with a member
 *
 * Context: any.
 * Return: number of members, 1 .. 64.
 */
static xs_inline u32 xs_mask_extent(u64 mask)
{
	u64 rest = ~(mask >> xs_ctz(mask));

	return rest ? xs_ctz(rest) : 64;
}

/**
 * xs_lg2_ceil - log2, rounded up
 * @count: 1 or more
 *
 * Context: any.
 * Return: log2 of @count, rounded up.
 */
static xs_inline u32 xs_lg2_ceil(u64 count)
{
	return count > 1 ? xs_log2(count - 1) + 1 : 0;
}

/**
 * xs_mask_aligned - members 0, 2^lg2, 2 * 2^lg2, ... of a set of 64
 * @lg2: log2 of the distance, 0 .. 6
 *
 * Context: any.
 * Return: the set.
 */
static xs_inline u64 xs_mask_aligned(u32 lg2)
{
	static const u64 aligned[] = {
		0xffffffffffffffffULL, 0x5555555555555555ULL,
		0x1111111111111111ULL, 0x0101010101010101ULL,
		0x0001000100010001ULL, 0x0000000100000001ULL, 1,
	};

	return aligned[lg2];
}

/**
 * xs_mask_orders - first members of all aligned groups that are members as a whole
 * @mask: set
 * @lg2: log2 of the size of a group
 *
 * Context: any.
 * Return: the set.
 */
static xs_inline u64 xs_mask_orders(u64 mask, u32 lg2)
{
	for (u32 i = 0; i < lg2; i++)
		mask &= mask >> (1u << i);
	return mask & xs_mask_aligned(lg2);
}

/**
 * xs_mask_find - first consecutive members, aligned to @count rounded up to a power of two
 * @mask: set
 * @count: number of members
 *
 * Context: any.
 * Return: the members as a set; 0 if there is no such extent.
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
