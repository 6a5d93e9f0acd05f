/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Claims of mappings, for unmap.c and tear.c. A claim transfers the mapping to the caller: no
 * other unmap finds the mapping in the slots.
 */
#ifndef XSMMU_CLAIM_H
#define XSMMU_CLAIM_H

#include <xsmmu/engine.h>

/**
 * struct xs_claim - a claimed mapping
 * @slots: slot of the first page
 * @first: value of the first slot before the claim
 * @page: first page
 * @pages: size of the mapping, at most a block
 */
struct xs_claim {
	xs_slot_t *slots;
	u64 first;
	u64 page;
	u32 pages;
};

/**
 * xs_claim_mapping - claim a mapping of at most a block
 * @engine: engine
 * @claim: @page and @pages name the mapping; the other members are results
 *
 * Context: entered.
 * Return: false if there is no such mapping.
 */
bool xs_claim_mapping(struct xs_engine *engine, struct xs_claim *claim);

/**
 * xs_claim_vacate - make the slots of a claim vacant
 * @claim: claim
 *
 * Each slot remembers how its page can be held (xs_slot_vacant_with_ref()).
 *
 * Context: entered.
 */
void xs_claim_vacate(const struct xs_claim *claim);

/**
 * xs_claim_remove_now - remove and invalidate a claimed mapping before the return
 * @engine: engine
 * @claim: claim; the mapping may be larger than a block
 *
 * The mapping is stuck afterwards, removed or not, because a call that may still map the pages
 * must be waited for.
 *
 * Context: entered.
 * Return: XS_REMOVED_ALL, or -ENOMEM if the backend could not remove the mapping.
 */
int xs_claim_remove_now(struct xs_engine *engine, const struct xs_claim *claim);

/**
 * xs_claim_count - count an unmap
 * @engine: engine
 * @pages: size of the mapping
 *
 * Context: entered.
 */
void xs_claim_count(struct xs_engine *engine, u32 pages);

#endif
