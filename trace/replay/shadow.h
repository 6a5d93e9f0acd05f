/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The page table and the IOMMU's caches of one device, independent of the engine: for each IOVA
 * page whether the page table has an entry, whether a translation may be cached, and whether a
 * driver has the page mapped. Each change checks the invariants of DESIGN.md, section 3, and a
 * broken invariant ends the run.
 *
 *   PRESENT   the page table has an entry
 *   STALE     the entry is removed; a translation may be cached until an invalidation
 *   PENDING   unmapped by the driver, and PRESENT or STALE: the device may reach the page
 *
 * The worst case is assumed of the hardware: each entry is cached, and stays until an invalidation
 * that covers it. Memory is proportional to the pages that are not clean: a record for each 64
 * neighbours with such a page, and one for each 2 MiB with a page-table page.
 */
#ifndef REPLAY_SHADOW_H
#define REPLAY_SHADOW_H

#include <xsmmu/backend.h>

#include "table.h"

#define SHADOW_PRESENT	1u
#define SHADOW_STALE	2u
#define SHADOW_PENDING	4u

/*
 * struct shadow_page - an IOVA page; zeroed: clean
 * @unmapped_ns: time of the unmap, of a PENDING page
 * @folio:	memory that the entry points to
 * @live:	mappings of drivers; more than one only in the identity window
 * @cpu:	CPU of the unmap, of a PENDING page
 * @state:	SHADOW_*
 */
struct shadow_page {
	u64 unmapped_ns;
	u32 folio;
	u32 live;
	u16 cpu;
	u8 state;
};

struct shadow_chunk;

/*
 * struct shadow - page table and caches of a device
 * @identity:	first IOVA page of the identity window
 * @bound_ns:	a page must not stay PENDING for longer; 0: no bound
 * @chunks:	chunks by page number / 64
 * @last:	chunk of the last look-up
 * @tables:	page-table pages of the last level, by page number / 512: the stretch of maps, see
 *		tally.h, that has touched the region last
 * @uppers:	page-table pages of the two levels above, by level and page number: tables below
 * @stale:	extents of STALE pages
 * @pending:	PENDING pages of each CPU
 * @all_pending: of all CPUs
 * @live:	pages that drivers have mapped
 */
struct shadow {
	u64 identity;
	u64 bound_ns;
	struct table chunks;
	struct shadow_chunk *last;
	struct shadow_chunk *spare;
	struct table tables;
	struct table uppers;
	struct xs_range *stale;
	u32 stale_count, stale_room;
	u64 *pending;
	u64 all_pending;
	u64 live;
};

void shadow_init(struct shadow *shadow, u32 cpus, u64 identity, u64 bound_ns);

/* ---- the backend's view ---- */

/* Entries are written for contiguous memory. */
void shadow_write(struct shadow *shadow, u64 page, u64 phys, u64 pages);

/* Entries are removed. Returns true if a page-table page was freed, as VT-d's driver does. */
bool shadow_remove(struct shadow *shadow, u64 page, u64 pages);

/* Translations of the ranges are invalidated; with @count 0, all. */
void shadow_invalidate(struct shadow *shadow, const struct xs_range *ranges, u32 count);

/* A flush has ended that removes and invalidates; an engine leaves nothing in between. */
void shadow_check_flushed(const struct shadow *shadow);

/* Frees the page-table pages that cover only the range. */
void shadow_prune(struct shadow *shadow, u64 page, u64 pages);

/* ---- the driver's view ---- */

/* A map has returned @page to the driver for @pages pages of the folio. */
void shadow_map(struct shadow *shadow, u64 page, u32 folio, u32 pages);

/*
 * The driver is about to unmap. Returns the number of folios that become PENDING, and the first
 * @room of them in @folios.
 */
u32 shadow_unmap(struct shadow *shadow, u64 page, u32 pages, u32 *folios, u32 room);

/* Returns the present entries of a range. */
u64 shadow_present(struct shadow *shadow, u64 page, u64 pages);

/* Returns the folio that the device can reach at a page; 0 if there is no translation. */
u32 shadow_folio(struct shadow *shadow, u64 page);

/* Returns the pages of a range that the device can reach after their unmap. */
u64 shadow_pending(struct shadow *shadow, u64 page, u64 pages);

/* Returns whether a range has no entry and no translation. */
bool shadow_is_clean(struct shadow *shadow, u64 page, u64 pages);

#endif
