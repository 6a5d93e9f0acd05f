/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What drivers have mapped at present, by device and recorded address. Without an IOMMU a recorded
 * address is the physical one, so several mappings may have the same address; the mapping of the
 * named size is found first, and of these the last made.
 */
#ifndef REPLAY_MAPPINGS_H
#define REPLAY_MAPPINGS_H

#include <xsmmu/needs.h>

/*
 * enum mapping_kind - what the driver has called, the same under all policies
 * @MAPPED_ONE:	a buffer
 * @MAPPED_LIST: a scatter list
 * @MAPPED_COHERENT: coherent memory
 * @MAPPED_LINK: memory in a range
 * @MAPPED_RANGE: a range of IOVAs, in which links are mapped
 */
enum mapping_kind {
	MAPPED_ONE,
	MAPPED_LIST,
	MAPPED_COHERENT,
	MAPPED_LINK,
	MAPPED_RANGE,
};

/*
 * enum mapping_way - how the call was carried out
 * @WAY_MAPPED:	mapped at IOVAs of its own
 * @WAY_COPIED:	copied; also an entry of a copied list
 * @WAY_IN_RANGE: a link, mapped in the IOVAs of its range
 */
enum mapping_way {
	WAY_MAPPED,
	WAY_COPIED,
	WAY_IN_RANGE,
};

/*
 * struct mapping - a mapping
 * @key:	device and recorded address
 * @address:	recorded address
 * @bytes:	recorded size
 * @iova:	address in the world, in bytes; 0 for a range under a policy
 * @pages:	pages in the world
 * @folio:	of a copy, which the shadow does not have
 * @next:	another mapping with the same key; 0: none
 * @rest:	next entry of a copied list; 0: none
 * @range:	of a link in a range
 * @links:	of a range: links in its IOVAs
 * @ns:		time of the map
 * @gaps:	number of gaps in the recording before the map
 * @cpu:	CPU that has made the mapping
 * @found:	mapping_find() finds the mapping
 */
struct mapping {
	u64 key;
	u64 address;
	u64 bytes;
	u64 iova;
	u64 ns;
	u32 pages;
	u32 folio;
	u32 next;
	u32 rest;
	u32 range;
	u32 links;
	u32 gaps;
	u16 device;
	u16 cpu;
	u8 kind;
	u8 way;
	bool found;
};

/* Pages of the largest mapping: 16 GiB. */
#define MAPPING_PAGES_MAX	(1u << 22)

void mappings_init(void);

/* Returns the number of a new mapping, which has no address yet. */
u32 mapping_new(u32 device, u64 address, u64 bytes, enum mapping_kind kind);

/* Have mapping_find() find a mapping. */
void mapping_add(u32 number);

/* Returns a mapping by its number, until the next call of mapping_new(). */
struct mapping *mapping_at(u32 number);

/*
 * Returns the mapping at a recorded address, of a kind in @kinds, a mask of 1 << kind; preferably
 * one of @bytes; 0 if there is none.
 */
u32 mapping_find(u32 device, u64 address, u64 bytes, u32 kinds);

/* Forget a mapping, and its entries of a copied list. */
void mapping_drop(u32 number);
void mapping_drop_rest(u32 number);

/* Returns the first mapping behind @number that mapping_find() finds; 0 if there is none. */
u32 mapping_after(u32 number);

#endif
