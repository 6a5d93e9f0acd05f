// SPDX-License-Identifier: GPL-2.0-only
/* Pages of memory; see allocator.h. */
#include <stdlib.h>
#include <sys/mman.h>

#include <xsmmu/backend.h>

#include "allocator.h"
#include "tally.h"

/*
 * Pages that a CPU caches, and pages that move at once: to or from the shared list, and, one after
 * another, from memory that was never taken.
 */
#define KEEP		1024
#define TRADE		64

struct page {
	u64 refs;
	u32 next;		/* free: the next lower page in the list */
	struct line line;
};

struct list {
	u32 first;		/* 0: empty, so page 0 is never used */
	u32 count;
};

static struct page *pages;
static struct list lists[SCALE_CPUS], others;
static u32 fresh = 1;
static u64 out;

void memory_init(void)
{
	pages = mmap(NULL, MEMORY_PAGES * sizeof(*pages), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pages == MAP_FAILED)
		scale_fail("no address space for pages of memory");
}

static void push(struct list *list, u32 page)
{
	pages[page].next = list->first;
	list->first = page;
	list->count++;
}

static u32 pop(struct list *list)
{
	u32 page = list->first;

	list->first = pages[page].next;
	list->count--;
	return page;
}

static void touch(struct page *page, enum line_class class)
{
	if (tally_on)
		tally_write(&page->line, class, 0);
}

u64 memory_take(void)
{
	struct list *mine = &lists[scale_cpu];
	bool empty = !mine->count;
	u32 page;

	for (u32 i = 0; empty && others.count && i < TRADE; i++)
		push(mine, pop(&others));
	if (!mine->count && fresh + TRADE > MEMORY_PAGES)
		scale_fail("no memory: pages are not given back");
	if (!mine->count) {
		for (u32 i = TRADE; i; i--)
			push(mine, fresh + i - 1);
		fresh += TRADE;
	}
	page = pop(mine);
	pages[page].refs = 1;
	touch(&pages[page], LINE_DRIVER);
	out++;
	return (u64)page << XS_PAGE_LG2;
}

static void drop(struct page *page)
{
	struct list *mine = &lists[scale_cpu];

	if (!page->refs)
		scale_fail("a page of memory is released twice");
	if (--page->refs)
		return;
	out--;
	push(mine, (u32)(page - pages));
	for (u32 i = 0; mine->count > KEEP && i < TRADE; i++)
		push(&others, pop(mine));
}

void memory_put(u64 phys)
{
	struct page *page = &pages[phys >> XS_PAGE_LG2];

	touch(page, LINE_DRIVER);
	drop(page);
}

u64 memory_out(void)
{
	return out;
}

/* ---- references for the engine; a mapping of several pages is of one folio ---- */

xs_ref_t xs_ref_of(u64 phys)
{
	struct page *page = &pages[phys >> XS_PAGE_LG2];

	if (tally_on)
		tally_read(&page->line, LINE_PAGE, 0);
	return page;
}

u32 xs_ref_span(xs_ref_t ref, u64 phys)
{
	(void)ref;
	(void)phys;
	return ~0u;
}

bool xs_ref_hold(xs_ref_t ref)
{
	struct page *page = ref;

	if (!page->refs)
		return false;
	touch(page, LINE_PAGE);
	page->refs++;
	return true;
}

void xs_ref_release(xs_ref_t ref)
{
	touch(ref, LINE_PAGE);
	drop(ref);
}
