/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages of memory that a NIC receives into. A page has a reference for each packet part that the
 * network stack holds, and one of the driver while the driver has the page. A page without any
 * goes back to the page allocator, which hands out the page that came back last.
 */
#ifndef MODEL_PAGE_H
#define MODEL_PAGE_H

#include <xsmmu/needs.h>

#include "records.h"

#define PAGE_NONE	RECORD_NONE

/*
 * struct page - a page
 * @iova:	IOVA page, while mapped
 * @refs:	references of the stack
 * @owned:	the driver has the page: in a descriptor, a cache, or a list
 * @queue:	whose driver has allocated the page
 */
struct page {
	u64 iova;
	u32 refs;
	u16 queue;
	bool owned;
};

/* Returns a free page, by its number. The caller becomes its owner. */
u32 page_take(u32 queue);

/* Returns the page of a number, until the next page_take(). */
struct page *page_at(u32 number);

/* Returns the physical address. */
u64 page_phys(u32 number);

/* The page has neither owner nor references any more. */
void page_give(u32 number);

#endif
