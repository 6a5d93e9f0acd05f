/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A slot: what the engine knows of the mapping that begins, or has a reference,
 * at one IOVA page. There is one for each page of a leaf (space.h).
 *
 * A map writes the slots of its pages, the unmap takes what it finds there and
 * leaves them vacant. An unmap of one page takes its slot by one compare and swap,
 * so of two unmaps of the same page one gets it and the other finds it vacant; and
 * what was never mapped is vacant, too. An unmap of many takes their joined pages in
 * the block's word by one compare and swap, and then has their slots.
 *
 *   VACANT      nothing is mapped here, or a page of the mapping that began
 *               before has nothing of its own to say. Bits above the three lowest
 *               may be the reference of the page that was mapped here last
 *               (xs_slot_left())
 *   reference   how the page is held from its unmap to the flush: a reference
 *               that xs_ref_hold() takes, unless the page is free already
 *   NONE        nothing to hold: it can never go back to an allocator, or what
 *               is held before keeps it
 *   UNHELD      cannot be held (slab), or was mapped while the policy held
 *               nothing: a policy that holds flushes its unmap at once
 *
 * A mapping of one page has one of the last three. A mapping of many has the
 * bit XS_SLOT_MANY in all its slots, so that no unmap of one page takes it for
 * its own, and NONE and UNHELD say for how many pages, from theirs on: the slots
 * after them are vacant. A reference speaks for its own page; if it keeps more,
 * a NONE follows. Where a mapping of many ends is in its block's joined pages.
 */
#ifndef XSMMU_SLOT_H
#define XSMMU_SLOT_H

#include <xsmmu/backend.h>

typedef xs_atomic64_t xs_slot_t;

/* What xs_ref_of() gives for a page that has no reference to take. */
#define XS_REF_UNHELD	((xs_ref_t)2)
#define XS_REF_NONE	((xs_ref_t)1)

#define XS_SLOT_MANY	4ULL
#define XS_SLOT_VACANT	(XS_SLOT_MANY | 3)	/* so that one bit tells what is one */
#define XS_SLOT_KIND	3ULL	/* 0: a reference */
#define XS_SLOT_COUNT_SHIFT	3

/*
 * A mapping is held by so many references at most. One that needs more is flushed in
 * its unmap. That is cheaper from 8 on (make lab EXPERIMENT=granule); 5 to 7 were
 * not measured.
 */
#define XS_HOLDS_MAX	4u

/* The slot of a mapping of one page. */
static xs_inline u64 xs_slot_one(xs_ref_t ref)
{
	return (u64)(size_t)ref;
}

/* A slot of a mapping of many; @pages: that NONE or UNHELD speak for. */
static xs_inline u64 xs_slot_many(xs_ref_t ref, u32 pages)
{
	u64 slot = (u64)(size_t)ref | XS_SLOT_MANY;

	return slot & XS_SLOT_KIND ? slot | (u64)pages << XS_SLOT_COUNT_SHIFT :
				     slot;
}

/* Does a mapping of one page begin here? */
static xs_inline bool xs_slot_is_one(u64 slot)
{
	return !(slot & XS_SLOT_MANY);
}

static xs_inline bool xs_slot_is_vacant(u64 slot)
{
	return (slot & XS_SLOT_VACANT) == XS_SLOT_VACANT;
}

static xs_inline bool xs_slot_is_many(u64 slot)
{
	return slot & XS_SLOT_MANY && !xs_slot_is_vacant(slot);
}

static xs_inline bool xs_ref_can_be_held(xs_ref_t ref)
{
	return !((u64)(size_t)ref & XS_SLOT_KIND);
}

/* The reference, XS_REF_NONE or XS_REF_UNHELD in a slot that is not vacant. */
static xs_inline xs_ref_t xs_slot_ref(u64 slot)
{
	u64 kind = slot & XS_SLOT_KIND;

	return (xs_ref_t)(size_t)(kind ? kind : slot & ~XS_SLOT_MANY);
}

/* The pages that a slot of a mapping of many speaks for, from its own on. */
static xs_inline u32 xs_slot_span(u64 slot)
{
	return slot & XS_SLOT_KIND ? (u32)(slot >> XS_SLOT_COUNT_SHIFT) : 1;
}

/*
 * Take what is mapped at *@slot. False: somebody else did, and *@found is what
 * is there now.
 */
static xs_inline bool xs_slot_claim(xs_slot_t *slot, u64 *found)
{
	return xs_a64_try_acquire(slot, found, XS_SLOT_VACANT);
}

/*
 * A vacant slot that still knows how the page of @slot can be held. @slot is that of a
 * mapping of one page.
 */
static xs_inline u64 xs_slot_left(u64 slot)
{
	return slot | XS_SLOT_VACANT;
}

/* What such a slot knows: a reference that is not held, or XS_REF_NONE. */
static xs_inline xs_ref_t xs_slot_left_ref(u64 slot)
{
	u64 ref = slot & ~XS_SLOT_VACANT;

	return ref ? (xs_ref_t)(size_t)ref : XS_REF_NONE;
}

/* The same claim, of a mapping of one page; the slot becomes xs_slot_left(). */
static xs_inline bool xs_slot_claim_left(xs_slot_t *slot, u64 *found)
{
	return xs_a64_try_acquire(slot, found, xs_slot_left(*found));
}

/*
 * Write the slots of @pages pages of a mapping of many, from @slot on, that
 * are at @phys and next to each other. One page that cannot be held decides for
 * all after it, more than XS_HOLDS_MAX references for all. @holds: does the policy
 * hold pages?
 */
void xs_slots_fill(xs_slot_t *slot, u64 phys, u32 pages, bool holds);

/* The same of pages that have nothing to hold. */
void xs_slots_fill_none(xs_slot_t *slot, u32 pages);

#endif
