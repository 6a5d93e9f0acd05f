// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What becomes of a block that no CPU has open; see block.h. */
#include <xsmmu/block.h>

/*
 * What is withheld is constant until the block is claimed, for a block with
 * such pages is never opened: nobody but who frees its last page claims it.
 */
bool xs_block_settle(struct xs_block *block, u64 free)
{
	u64 withheld = xs_load(&block->withheld);

	while ((free | withheld) == XS_BLOCK_ALL) {
		if (!xs_a64_try(&block->free, &free, 0))
			continue;
		xs_store(&block->withheld, 0ULL);
		return true;
	}
	if (!withheld &&
	    xs_shelf_usable(free, xs_load(&block->lg2)) >= XS_BLOCK_MUCH)
		xs_shelf_list(block);
	return false;
}
