// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What becomes of a block that no CPU has open; see block.h. */
#include <xsmmu/block.h>

/*
 * When all other pages are free, what is reserved becomes free like them, by one of
 * those who see it. Who sees too late what has been a block of before sets pages
 * free that nobody has: only all of them make a claim.
 */
bool xs_block_settle(struct xs_block *block, u64 free)
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
	    xs_partial_usable(free, xs_load(&block->lg2)) >= XS_BLOCK_MUCH)
		xs_partial_list(block);
	return false;
}
