// SPDX-License-Identifier: GPL-2.0-only
/* See page.h. */
#include "model.h"
#include "page.h"

static struct page *pages;
static u32 *free_pages;
static u32 count, room, free_count;

static void grow(void)
{
	room = room ? 2 * room : 4096;
	pages = model_again(pages, room * sizeof(*pages));
	free_pages = model_again(free_pages, room * sizeof(*free_pages));
	if (!count)
		count = 1;	/* PAGE_NONE */
}

u32 page_take(u32 queue)
{
	u32 number;

	if (free_count) {
		number = free_pages[--free_count];
	} else {
		if (count == room)
			grow();
		number = count++;
	}
	pages[number] = (struct page) { .queue = (u16)queue, .owned = true };
	return number;
}

struct page *page_at(u32 number)
{
	return &pages[number];
}

u64 page_phys(u32 number)
{
	return (u64)number << XS_PAGE_LG2;
}

void page_give(u32 number)
{
	if (pages[number].owned || pages[number].refs)
		model_broken("page %u is freed while in use", number);
	free_pages[free_count++] = number;
}
