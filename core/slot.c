// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Slots of mappings of many pages; see slot.h. */
#include <xsmmu/slot.h>

void xs_slots_fill_none(xs_slot_t *slot, u32 pages)
{
	xs_a64_set(slot, xs_slot_many(XS_REF_NONE, pages));
}

void xs_slots_fill(xs_slot_t *slot, u64 phys, u32 pages, bool holds)
{
	xs_slot_t *first = slot;
	u32 whole = pages, refs = 0;

	while (pages) {
		xs_ref_t ref = holds ? xs_ref_of(phys) : XS_REF_UNHELD;
		u32 span = 1;

		if (xs_ref_can_be_held(ref) && ++refs > XS_HOLDS_MAX) {
			while (--slot > first)
				xs_a64_set(slot, XS_SLOT_VACANT);
			xs_a64_set(slot, xs_slot_many(XS_REF_UNHELD, whole));
			return;
		}
		if (ref == XS_REF_UNHELD)
			span = pages;
		else if (ref != XS_REF_NONE && pages > 1)
			span = xs_ref_span(ref, phys);
		if (span > pages)
			span = pages;
		if (((u64)(size_t)ref & XS_SLOT_KIND)) {
			xs_a64_set(slot, xs_slot_many(ref, span));
		} else {
			xs_a64_set(slot, xs_slot_many(ref, 1));
			if (span > 1)
				xs_slots_fill_none(slot + 1, span - 1);
		}
		slot += span;
		phys += span * XS_PAGE_BYTES;
		pages -= span;
	}
}
