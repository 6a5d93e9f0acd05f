/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Claims of mappings, for those who unmap (unmap.c, tear.c). A claim makes the
 * mapping its caller's: no other unmap finds it in the slots.
 */
#ifndef XSMMU_CLAIM_H
#define XSMMU_CLAIM_H

#include <xsmmu/engine.h>

/*
 * A mapping that was claimed: its first slot, as it was, and where its slots are.
 * @pages: at most a block's
 */
struct xs_claim {
	xs_slot_t *slots;
	u64 first;
	u64 page;
	u32 pages;
};

/*
 * Claim the mapping of @claim->pages pages at @claim->page, at most a block's. False:
 * there is none. Entered.
 */
bool xs_claim_mapping(struct xs_engine *engine, struct xs_claim *claim);

/*
 * The slots of the claim are vacant, and each still knows how its page can be held
 * (xs_slot_left()). Entered.
 */
void xs_claim_leave(const struct xs_claim *claim);

/*
 * Remove and invalidate what was claimed, a mapping of more than a block too, before the
 * return. It is stuck then, whether the backend could remove it or not: who may still be mapping
 * it has to be waited for. Returns XS_REMOVED_ALL, or -ENOMEM: the backend could not remove it.
 * Entered.
 */
int xs_claim_remove_now(struct xs_engine *engine, const struct xs_claim *claim);

/* Count an unmap of @pages pages. Entered. */
void xs_claim_count(struct xs_engine *engine, u32 pages);

#endif
