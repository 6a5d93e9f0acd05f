// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory: pages with references, and the engine's own allocations. The allocator hands out the
 * most recently freed page first.
 */
#include <stdlib.h>
#include <string.h>

#include "coroutine.h"
#include "sim.h"

/* One page. A free page has no references; the tail pages of a folio never have references. */
struct page {
	u64 refs;
	u32 pages;		/* that go back with the last reference */
	u32 head;
	u32 kind;
};

static struct page memory[SIM_MEMORY] __attribute__((aligned(64)));
static u64 used[SIM_MEMORY / 64];
static u32 freed_last;

/* ---- references ---- */

xs_ref_t xs_ref_of(u64 phys)
{
	u64 page = phys >> XS_PAGE_LG2;

	sim_point();
	if (page >= SIM_MEMORY)
		return XS_REF_NONE;
	return memory[page].kind == MEMORY_SLAB ? XS_REF_UNHELD : &memory[memory[page].head];
}

u32 xs_ref_span(xs_ref_t ref, u64 phys)
{
	u64 first = phys >> XS_PAGE_LG2;
	u64 page = first;

	do
		page++;
	while (page < SIM_MEMORY && memory[page].kind == MEMORY_FOLIO &&
	       &memory[memory[page].head] == ref);
	return (u32)(page - first);
}

static struct page *page_of(xs_ref_t ref)
{
	struct page *page = ref;
	size_t offset = (size_t)ref - (size_t)memory;

	if (page < memory || page >= memory + SIM_MEMORY || offset % sizeof(*page))
		sim_fail("pages", "a reference is used that xs_ref_of() never gave");
	return page;
}

bool xs_ref_hold(xs_ref_t ref)
{
	struct page *page = page_of(ref);

	sim_point();
	if (!page->refs)
		return false;
	page->refs++;
	return true;
}

/* Fails at random, because the real function may be unsure. */
bool xs_ref_hold_fast(xs_ref_t ref)
{
	return !sim_fault(FAULT_UNSURE) && xs_ref_hold(ref);
}

/* As in the kernel, a free page is no part of a folio. */
static void detach(u32 first, u32 pages)
{
	for (u32 i = first; i < first + pages; i++) {
		used[i / 64] &= ~(1ULL << i % 64);
		memory[i].head = i;
	}
	sim.memory_out -= pages;
	freed_last = first;
	sim_event(EV_FREED, 0, 0, pages, first, 0);
}

static void put(struct page *page)
{
	if (!page->refs)
		sim_fail("pages", "memory page %u is released twice", (u32)(page - memory));
	if (!--page->refs)
		detach((u32)(page - memory), page->pages);
}

void xs_ref_release(xs_ref_t ref)
{
	put(page_of(ref));
	sim_worked(1);
	sim_point();
}

/* ---- allocator ---- */

static bool is_free(u32 page, u32 pages)
{
	for (u32 i = page; i < page + pages; i++)
		if (used[i / 64] >> (i % 64) & 1)
			return false;
	return true;
}

/* Returns the first free page from a drawn place on. */
static u32 find_one(void)
{
	u32 words = (sim.config.memory_pages + 63) / 64;
	u32 word = sim_draw(words);

	for (u32 i = 0; i < words; i++) {
		u64 free = ~used[word];
		u32 page;

		if (free) {
			page = word * 64 + (u32)__builtin_ctzll(free);
			if (page < sim.config.memory_pages)
				return page;
		}
		if (++word == words)
			word = 0;
	}
	return SIM_MEMORY;
}

static u32 find_free(u32 pages)
{
	u32 room = sim.config.memory_pages - pages + 1;
	u32 at;

	if (freed_last < room && is_free(freed_last, pages))
		return freed_last;
	if (pages == 1)
		return find_one();
	at = sim_draw(room);
	for (u32 i = 0; i < room; i++) {
		if (is_free(at, pages))
			return at;
		if (used[at / 64] == ~0ULL) {
			i += 63 - at % 64;
			at |= 63;
		}
		if (++at >= room)
			at = 0;
	}
	return SIM_MEMORY;
}

bool memory_take(u32 pages, enum sim_memory_kind kind, u32 *first)
{
	u32 at;

	if (kind == MEMORY_PERMANENT) {
		if (pages == 1 && sim.window && !sim.calm && sim_draw(2))
			*first = SIM_MEMORY + sim_draw(SIM_REGISTERS);
		else
			*first = SIM_PERMANENT + sim_draw(SIM_PERMANENT);
		return true;
	}
	if (pages > sim.config.memory_pages)
		return false;
	at = find_free(pages);
	if (at == SIM_MEMORY)
		return false;
	for (u32 i = at; i < at + pages; i++) {
		bool folio = kind == MEMORY_FOLIO;

		used[i / 64] |= 1ULL << i % 64;
		memory[i].refs = !folio || i == at;
		memory[i].pages = folio ? pages : 1;
		memory[i].head = folio ? at : i;
		memory[i].kind = kind;
	}
	sim.memory_out += pages;
	*first = at;
	sim_event(EV_ALLOCATED, 0, 0, pages, at, 0);
	return true;
}

void memory_share(u32 page, enum sim_memory_kind kind)
{
	if (kind == MEMORY_PERMANENT)
		return;
	if (!memory[memory[page].head].refs)
		sim_fail("world", "memory page %u is shared, and is free", page);
	memory[memory[page].head].refs++;
}

void memory_drop(u32 first, u32 pages, enum sim_memory_kind kind)
{
	if (kind == MEMORY_PERMANENT)
		return;
	if (kind == MEMORY_FOLIO) {
		first = memory[first].head;
		pages = 1;
	}
	for (u32 i = 0; i < pages; i++)
		put(&memory[first + i]);
}

/* ---- the engine's own allocations ---- */

struct allocation {
	struct allocation *next;
	struct allocation **link;
	size_t bytes;
} XS_CACHE_LINE;

static struct allocation *allocations;

/*
 * Freed allocations are kept for a while, filled with a poison: a stale read goes astray, and a
 * stale write is found when the allocation goes. Every second one is filled with zeros, as if it
 * were in use again. AddressSanitizer detects both better.
 */
#define POISON		0x6b
#define FREED_KEPT	32u

static struct allocation *freed[FREED_KEPT];
static u32 freed_at;

static u8 poison_at(u32 at)
{
	return at % 2 ? 0 : POISON;
}

static void check_freed(const struct allocation *allocation, u8 poison)
{
	const u8 *byte = (const u8 *)(allocation + 1);

	for (size_t i = 0; i < allocation->bytes; i++)
		if (byte[i] != poison)
			sim_fail("accounts", "%zu bytes are written to after they were freed",
				 allocation->bytes);
}

static void keep_freed(struct allocation *allocation)
{
	struct allocation *oldest = freed[freed_at];

#ifdef SANITIZED
	free(allocation);
	return;
#endif
	memset(allocation + 1, poison_at(freed_at), allocation->bytes);
	freed[freed_at] = allocation;
	if (oldest) {
		check_freed(oldest, poison_at(freed_at));
		free(oldest);
	}
	freed_at = (freed_at + 1) % FREED_KEPT;
}

void *memory_alloc(void *world, size_t size, u32 cpu, bool atomic)
{
	size_t lines = (size + 2 * sizeof(*allocations) - 1) / sizeof(*allocations);
	struct allocation *got;

	(void)world;
	if (cpu != XS_ANY_CPU && cpu >= sim.config.cpus)
		sim_fail("world", "memory is asked for near CPU %u", cpu);
	sim_point();
	/*
	 * A bad unmap without memory would take all of the mapping, unseen by the driver: do
	 * not fail there.
	 */
	if (atomic && !sim_me->straying && sim_fault(FAULT_ALLOC))
		return NULL;
	got = aligned_alloc(sizeof(*got), lines * sizeof(*got));
	if (!got)
		abort();
	memset(got, 0, lines * sizeof(*got));
	got->bytes = size;
	got->link = &allocations;
	got->next = allocations;
	if (got->next)
		got->next->link = &got->next;
	allocations = got;
	sim.allocations++;
	if (atomic && cpu != XS_ANY_CPU)
		sim.cpus[cpu].has_batch = true;
	return got + 1;
}

void memory_free(void *world, void *given, size_t size)
{
	struct allocation *allocation = given;

	(void)world;
	if (!given)
		return;
	allocation--;
	if (allocation->bytes != size)
		sim_fail("accounts", "%zu bytes are freed as %zu", allocation->bytes, size);
	*allocation->link = allocation->next;
	if (allocation->next)
		allocation->next->link = allocation->link;
	keep_freed(allocation);
	sim.allocations--;
}

xs_counts_t *xs_counts_new(void)
{
	return memory_alloc(NULL, SIM_CPUS * sizeof(struct xs_counts), XS_ANY_CPU, false);
}

void xs_counts_free(xs_counts_t *counts)
{
	memory_free(NULL, counts, SIM_CPUS * sizeof(struct xs_counts));
}

struct xs_counts *xs_counts_of(xs_counts_t *counts, u32 cpu)
{
	return &counts[cpu];
}

void memory_begin(void)
{
	memset(used, 0, sizeof(used));
	memset(memory, 0, sizeof(memory));
	freed_last = 0;
}

void memory_end(void)
{
	while (allocations) {
		struct allocation *next = allocations->next;

		free(allocations);
		allocations = next;
	}
	for (u32 i = 0; i < FREED_KEPT; i++) {
		free(freed[i]);
		freed[i] = NULL;
	}
	freed_at = 0;
}
