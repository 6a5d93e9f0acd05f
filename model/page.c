// SPDX-License-Identifier: GPL-2.0-only
/* See page.h. */
#include "model.h"
#include "page.h"

static struct records pages;

u32 page_take(u32 queue)
{
	u32 number = records_take(&pages, sizeof(struct page));

	*page_at(number) = (struct page) { .queue = (u16)queue, .owned = true };
	return number;
}

struct page *page_at(u32 number)
{
	return (struct page *)pages.memory + number;
}

u64 page_phys(u32 number)
{
	return (u64)number << XS_PAGE_LG2;
}

void page_give(u32 number)
{
	if (page_at(number)->owned || page_at(number)->refs)
		model_broken("page %u is freed while in use", number);
	records_give(&pages, number);
}
