// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Blocks that no CPU has open; see block.h. */
#include <xsmmu/block.h>

/*
 * When all other pages are free, a call that sees the state also frees the reserved pages. A
 * call that sees the state too late, when the block is already taken anew, frees pages of the
 * new use; no CPU owns those pages, and only a full word makes a claim.
 */
bool xs_block_claim_or_list(struct xs_block *block, u64 free)
{
	u64 reserved = xs_a64_read(&block->reserved);

	if (xs_unlikely(reserved) && (free | reserved) == XS_BLOCK_ALL) {
		reserved = xs_a64_swap_relaxed(&block->reserved, 0);
		free = xs_a64_or_relaxed(&block->free, reserved) | reserved;
		reserved = 0;
	}
	while (free == XS_BLOCK_ALL)
		if (xs_a64_try(&block->free, &free, 0))
			return true;
	if (!reserved &&
	    xs_partial_usable(free, xs_load(&block->lg2)) >= XS_LIST_MIN_FREE)
		xs_partial_add(block);
	return false;
}
