/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A slot describes the mapping that begins at an IOVA page, or a reference for that page. There
 * is a slot for each page of a leaf (space.h).
 *
 * A map writes the slots of the mapping's pages; the unmap reads the slots and leaves them
 * vacant. An unmap of a single page claims the slot by a compare and swap, so of two unmaps of
 * the same page only the first succeeds; the other finds a vacant slot. The slot of a page that
 * was never mapped is vacant too. An unmap of several pages claims the joined pages in the
 * block's word by a compare and swap, and then owns the slots.
 *
 *   VACANT      no mapping begins here, or the page belongs to the mapping that
 *               began at an earlier page and has no reference of its own. Bits
 *               above the three lowest may be the reference of the page that was
 *               mapped here last (xs_slot_vacant_with_ref()).
 *   reference   how the page is held from the unmap to the flush: xs_ref_hold()
 *               takes the reference, unless the page is free already
 *   NONE        no reference to take: the page can never go back to an
 *               allocator, or the reference of an earlier page keeps the page
 *   UNHELD      the page cannot be held (slab), or was mapped under a policy that
 *               holds no pages: a policy that holds pages flushes the unmap at
 *               once
 *
 * A mapping of a single page has a slot of the last three kinds. All slots of a larger mapping
 * have the bit XS_SLOT_MANY, so that an unmap of a single page does not claim the mapping. NONE
 * and UNHELD then have a count of pages, which starts at the slot's own page; the slots of the
 * other pages are vacant. A reference stands for the slot's own page; if the reference keeps
 * more pages, a NONE follows. The joined pages of the block say where a larger mapping ends.
 */
#ifndef XSMMU_SLOT_H
#define XSMMU_SLOT_H

#include <xsmmu/backend.h>

typedef xs_atomic64_t xs_slot_t;

/* Results of xs_ref_of() for a page without a reference to take. */
#define XS_REF_UNHELD	((xs_ref_t)2)
#define XS_REF_NONE	((xs_ref_t)1)

#define XS_SLOT_MANY	4ULL	/* clear: a mapping of a single page */
#define XS_SLOT_VACANT	(XS_SLOT_MANY | 3)
#define XS_SLOT_KIND	3ULL	/* 0: a reference */
#define XS_SLOT_COUNT_SHIFT	3

/*
 * Limit of the references that hold a mapping. A mapping that needs more is flushed in its unmap,
 * which is cheaper from 8 references on (make lab EXPERIMENT=granule); 5 to 7 were not
 * measured.
 */
#define XS_HOLDS_MAX	4u

/**
 * xs_slot_one - slot of a mapping of a single page
 * @ref: reference, XS_REF_NONE or XS_REF_UNHELD
 *
 * Context: any.
 * Return: value of the slot.
 */
static xs_inline u64 xs_slot_one(xs_ref_t ref)
{
	return (u64)(size_t)ref;
}

/**
 * xs_slot_many - slot of a larger mapping
 * @ref: reference, XS_REF_NONE or XS_REF_UNHELD
 * @pages: number of pages that NONE or UNHELD stands for
 *
 * Context: any.
 * Return: value of the slot.
 */
static xs_inline u64 xs_slot_many(xs_ref_t ref, u32 pages)
{
	u64 slot = (u64)(size_t)ref | XS_SLOT_MANY;

	return slot & XS_SLOT_KIND ? slot | (u64)pages << XS_SLOT_COUNT_SHIFT :
				     slot;
}

/**
 * xs_slot_is_one - test for the slot of a mapping of a single page
 * @slot: value of a slot
 *
 * Context: any.
 * Return: true for such a slot.
 */
static xs_inline bool xs_slot_is_one(u64 slot)
{
	return !(slot & XS_SLOT_MANY);
}

/**
 * xs_slot_is_vacant - test for a vacant slot
 * @slot: value of a slot
 *
 * Context: any.
 * Return: true for a vacant slot.
 */
static xs_inline bool xs_slot_is_vacant(u64 slot)
{
	return (slot & XS_SLOT_VACANT) == XS_SLOT_VACANT;
}

/**
 * xs_slot_is_many - test for a slot of a larger mapping
 * @slot: value of a slot
 *
 * Context: any.
 * Return: true for such a slot, but not for a vacant slot.
 */
static xs_inline bool xs_slot_is_many(u64 slot)
{
	return slot & XS_SLOT_MANY && !xs_slot_is_vacant(slot);
}

/**
 * xs_ref_can_be_held - test for a reference, as opposed to NONE or UNHELD
 * @ref: result of xs_ref_of()
 *
 * Context: any.
 * Return: true for a reference.
 */
static xs_inline bool xs_ref_can_be_held(xs_ref_t ref)
{
	return !((u64)(size_t)ref & XS_SLOT_KIND);
}

/**
 * xs_slot_ref - reference, XS_REF_NONE or XS_REF_UNHELD of a slot
 * @slot: value of a slot that is not vacant
 *
 * Context: any.
 * Return: the reference, XS_REF_NONE or XS_REF_UNHELD.
 */
static xs_inline xs_ref_t xs_slot_ref(u64 slot)
{
	u64 kind = slot & XS_SLOT_KIND;

	return (xs_ref_t)(size_t)(kind ? kind : slot & ~XS_SLOT_MANY);
}

/**
 * xs_slot_span - number of pages that a slot of a larger mapping stands for
 * @slot: value of the slot; the count starts at the slot's own page
 *
 * Context: any.
 * Return: number of pages, at least 1.
 */
static xs_inline u32 xs_slot_span(u64 slot)
{
	return slot & XS_SLOT_KIND ? (u32)(slot >> XS_SLOT_COUNT_SHIFT) : 1;
}

/**
 * xs_slot_claim - claim the mapping of a slot; the slot becomes vacant
 * @slot: slot
 * @found: expected value; on failure the present value
 *
 * Context: entered.
 * Return: false if another call has changed the slot.
 */
static xs_inline bool xs_slot_claim(xs_slot_t *slot, u64 *found)
{
	return xs_a64_try_acquire(slot, found, XS_SLOT_VACANT);
}

/**
 * xs_slot_vacant_with_ref - vacant slot that remembers how the page can be held
 * @slot: value of the slot of a mapping of a single page
 *
 * Context: any.
 * Return: value of the slot.
 */
static xs_inline u64 xs_slot_vacant_with_ref(u64 slot)
{
	return slot | XS_SLOT_VACANT;
}

/**
 * xs_slot_vacant_ref - reference, not held, that a vacant slot remembers
 * @slot: value made by xs_slot_vacant_with_ref()
 *
 * Context: any.
 * Return: the reference, or XS_REF_NONE.
 */
static xs_inline xs_ref_t xs_slot_vacant_ref(u64 slot)
{
	u64 ref = slot & ~XS_SLOT_VACANT;

	return ref ? (xs_ref_t)(size_t)ref : XS_REF_NONE;
}

/**
 * xs_slot_claim_with_ref - xs_slot_claim() that leaves xs_slot_vacant_with_ref() in place
 * @slot: slot of a mapping of a single page
 * @found: expected value; on failure the present value
 *
 * Context: entered.
 * Return: false if another call has changed the slot.
 */
static xs_inline bool xs_slot_claim_with_ref(xs_slot_t *slot, u64 *found)
{
	return xs_a64_try_acquire(slot, found, xs_slot_vacant_with_ref(*found));
}

/**
 * xs_slots_fill - write the slots of a mapping of several contiguous pages
 * @slot: slot of the first page
 * @phys: physical address of the first page, in bytes
 * @pages: number of pages
 * @holds: the policy holds pages
 *
 * From the first page that cannot be held, all following pages count as unheld. More than
 * XS_HOLDS_MAX references make all pages unheld.
 *
 * Context: entered; the caller owns the slots.
 */
void xs_slots_fill(xs_slot_t *slot, u64 phys, u32 pages, bool holds);

/**
 * xs_slots_fill_none - write the slots of pages without a reference
 * @slot: slot of the first page
 * @pages: number of pages
 *
 * Context: entered; the caller owns the slots.
 */
void xs_slots_fill_none(xs_slot_t *slot, u32 pages);

#endif
