// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What becomes of a block that no CPU has open; see block.h. */
#include <xsmmu/block.h>

/*
 * When all other pages are free, what is withheld becomes free like them, by one of
 * those who see it. Who sees too late what has been a block of before sets pages
 * free that nobody has: only all of them make a claim.
 */
bool xs_block_settle(struct xs_block *block, u64 free)
{
	u64 withheld = xs_a64_read(&block->withheld);

	if (xs_unlikely(withheld) && (free | withheld) == XS_BLOCK_ALL) {
		withheld = xs_a64_swap_relaxed(&block->withheld, 0);
		free = xs_a64_or_relaxed(&block->free, withheld) | withheld;
		withheld = 0;
	}
	while (free == XS_BLOCK_ALL)
		if (xs_a64_try(&block->free, &free, 0))
			return true;
	if (!withheld &&
	    xs_shelf_usable(free, xs_load(&block->lg2)) >= XS_BLOCK_MUCH)
		xs_shelf_list(block);
	return false;
}
