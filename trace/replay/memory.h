/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory that drivers map. A recording names the first page of each buffer only, by an identity
 * that may be permuted. So the unit here is a folio: the pages of a buffer, known by the identity
 * of the first page and their number. Buffers of one page with the same identity are the same
 * folio, so recycling shows; of larger buffers each number of pages is a folio of its own.
 *
 * A folio exists while a mapping or the engine needs it. The engine gets a physical address that
 * encodes the folio's number; of single pages in a raw recording, the recorded address.
 */
#ifndef REPLAY_MEMORY_H
#define REPLAY_MEMORY_H

#include <xsmmu/needs.h>

/* Pages of the largest buffer: 256 MiB. */
#define MEMORY_SPAN_LG2		16
#define MEMORY_SPAN_MAX		(1u << MEMORY_SPAN_LG2)

/*
 * struct folio - a folio
 * @key:	of the folio in the table of folios; 0 if the identity is not known
 * @page:	number of the first page of the physical address
 * @pages:	number of pages
 * @live:	IOVA pages, and copies, through which drivers have mapped the folio
 * @pending:	IOVA pages that are unmapped, and whose translation the IOMMU may still use
 * @holds:	references that the engine has
 * @unmap:	number of the last unmap
 * @registers:	of a device: there is no page that could go back to the allocator
 * @users:	IOVA pages whose unmap has not ended; only with checks (checks.h)
 * @out:	the allocator has given out the folio; only with checks
 * @unheld:	by its first map since no driver had it mapped: the module cannot hold the memory,
 *		such as slab pages
 */
struct folio {
	u64 key;
	u64 page;
	u32 pages;
	u32 live;
	u32 pending;
	u32 holds;
	u64 unmap;
	bool registers;
	u32 users;
	bool out;
	bool unheld;
};

/* Number of the unmap that runs, whose driver has its references until the return; 0: none runs. */
extern u64 memory_unmap;

void memory_init(void);

/* Returns the number of the folio of a buffer of @pages pages that begins in page @identity. */
u32 memory_folio(u64 identity, u32 pages);

/* Returns a folio by its number, until the next call of memory_folio(). */
struct folio *memory_at(u32 folio);

/* Returns the folio's physical address, in bytes. */
u64 memory_phys(u32 folio);

/* Returns the folio that has a physical address. */
u32 memory_of(u64 phys);

/* The folio has an owner less: frees it if nothing needs it any more. */
void memory_put(u32 folio);

#endif
