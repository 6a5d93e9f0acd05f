/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Identity placement: the IOVA of a page of memory is its physical address, behind an offset. So
 * a page needs no IOVA allocator and no slot, and all mappings of a page share one entry.
 *
 * The window of these IOVAs is above the space (space.h). Each page of the window has a word:
 *
 *   ABSENT    0; the page table has no entry
 *   BUSY      one call writes or removes the entry
 *   PRESENT   the page table has the entry; the word has the entry's permission and the number of
 *             mappings. Number 0: unmapped and not flushed; translations may be cached
 *   STUCK     the backend could not remove the entry (stuck.h)
 *
 *          map                     unmap of the last mapping               flush
 *   ABSENT ---> BUSY ---> PRESENT n ------------------------> PRESENT 0 -------> BUSY ---> ABSENT
 *                       ^  map: n + 1, unmap: n - 1            |
 *                       +------------- map: revived -----------+
 *
 * Each change is one compare and swap, except those of the call that has made the word BUSY. An
 * entry is written while the page is absent, and removed by the flush, or by the unmap, that has
 * made the word BUSY; the word becomes ABSENT after the invalidation. So an entry is never
 * changed: a page that is present has the permission of its entry until a flush. A map that needs
 * another permission, a BUSY or STUCK page, more mappings than a word counts, or memory outside the
 * window, is placed in a block instead, and no call ever waits for a word.
 *
 * A page that is mapped again before its flush is revived: nothing is written and no command is
 * sent. The flush finds the mapping in the word and leaves the entry.
 *
 * A deferred unmap has a record in the CPU's batch, as under any policy, and the word names that
 * CPU. If the page is revived and unmapped by the same CPU once more, the record stands for this
 * unmap, too: it holds the page, and is older, so the page is flushed in time. Only a flush of the
 * CPU that the word names removes the entry: the flush of another CPU would not be done when this
 * CPU's flush, which a driver may wait for, finds the page taken. Other records, and records of a
 * page that is mapped, drop their reference and nothing else.
 *
 * The permission 0, which no map has, keeps other maps from an entry (xs_identity_seal()).
 *
 * Only single pages that the caller maps by xs_engine_map() are placed so, because a larger mapping
 * would need an operation for each page, where a block needs one for all.
 */
#ifndef XSMMU_IDENTITY_H
#define XSMMU_IDENTITY_H

#include <xsmmu/tree.h>

/* Pages that a last-level page-table page maps, with 8 bytes each. */
#define XS_TABLE_PAGES_LG2	(XS_PAGE_LG2 - 3)
#define XS_TABLE_PAGES	(1u << XS_TABLE_PAGES_LG2)

#define XS_WORD_COUNT	((1ULL << 32) - 1)	/* mappings */
#define XS_WORD_CPU_SHIFT	32	/* CPU + 1 whose batch has the record of the page; else 0 */
#define XS_WORD_PROMISE	(1ULL << 56)	/* the record stands for no other unmap */
#define XS_WORD_CPU	(0xffffULL << XS_WORD_CPU_SHIFT | XS_WORD_PROMISE)
#define XS_WORD_PROT_SHIFT	48	/* permission of the entry */
#define XS_WORD_PROT	(0xffULL << XS_WORD_PROT_SHIFT)
#define XS_WORD_STATE	(3ULL << 62)
#define XS_WORD_BUSY	(1ULL << 62)
#define XS_WORD_PRESENT	(2ULL << 62)
#define XS_WORD_STUCK	(3ULL << 62)
#define XS_WORD_HELD	1ULL	/* of a stuck page, which has no mappings: a reference is held */

/* Permissions that fit a word. */
#define XS_IDENTITY_PROT_MAX	0xffu

/* First page of no window: no page is above. */
#define XS_NO_IDENTITY	(~0ULL)

/**
 * struct xs_identity_table - words of the pages that a page-table page maps
 * @words: words; NULL until a page is mapped, and again after a trim
 * @entries: words of the backend, for each block of pages (backend.h)
 */
struct xs_identity_table {
	xs_atomic64_t *words;
	void **entries;
};

/**
 * struct xs_identity - window of an engine
 * @first: IOVA page of the page of memory 0; XS_NO_IDENTITY without a window; constant
 * @pages: pages of memory that the window has; 0 until @tables is allocated
 * @tables: a table for each XS_TABLE_PAGES pages
 * @size: number of @tables, from the configuration; constant
 * @lock: guards changes of @tables and the members below
 * @used: number of tables with words
 * @kept: @used after the last trim
 */
struct xs_identity {
	u64 first;
	u64 pages;
	struct xs_identity_table *tables;
	u64 size;
	xs_lock_t lock;
	u64 used;
	u64 kept;
};

struct xs_engine;
struct xs_policy;

/**
 * xs_identity_has - test for an IOVA of the window
 * @identity: window
 * @page: IOVA page
 *
 * Context: any.
 * Return: true for such an IOVA, mapped or not.
 */
static xs_inline bool xs_identity_has(const struct xs_identity *identity, u64 page)
{
	return page >= identity->first;
}

/**
 * xs_identity_init - initialise a window
 * @identity: window
 * @start: start in bytes; 0 without a window
 * @memory_pages: end of the memory, in pages
 *
 * Context: may sleep.
 */
void xs_identity_init(struct xs_identity *identity, u64 start, u64 memory_pages);

/**
 * xs_identity_exclude - give up the window if it has a reserved range
 * @engine: engine without mappings
 * @start: start of the range in bytes
 * @last: end of the range in bytes, inclusive
 *
 * Context: may sleep; before the first map.
 */
void xs_identity_exclude(struct xs_engine *engine, u64 start, u64 last);

/**
 * xs_identity_prepare - allocate the tables of the window, for the first policy that needs them
 * @engine: engine
 *
 * Without memory all mappings are placed in blocks.
 *
 * Context: may sleep; one caller at a time.
 */
void xs_identity_prepare(struct xs_engine *engine);

/**
 * xs_identity_destroy - free the words of the window
 * @engine: engine that no caller uses any more
 *
 * Context: may sleep.
 */
void xs_identity_destroy(struct xs_engine *engine);

/**
 * xs_identity_take - let a flush have the entry of a deferred page
 * @engine: engine
 * @page: IOVA page of a record
 * @cpu: CPU of the record's batch
 *
 * Context: entered.
 * Return: true if the caller must remove the entry: the page is BUSY. False if the page is mapped,
 *   another CPU's record stands for it, or another call has removed its entry.
 */
bool xs_identity_take(struct xs_engine *engine, u64 page, u32 cpu);

/**
 * xs_identity_done - make removed pages absent
 * @engine: engine
 * @page: first IOVA page
 * @pages: number of pages, each BUSY by this caller, or STUCK, which stay so; no translation
 *   of the others exists
 *
 * Context: entered.
 */
void xs_identity_done(struct xs_engine *engine, u64 page, u64 pages);

/**
 * xs_identity_stick - mark pages that the backend could not remove
 * @engine: engine
 * @page: first IOVA page
 * @pages: number of pages, each BUSY by this caller
 *
 * Context: entered.
 */
void xs_identity_stick(struct xs_engine *engine, u64 page, u64 pages);

/**
 * xs_identity_is_stuck - test for a stuck page
 * @engine: engine
 * @page: IOVA page
 *
 * Context: entered.
 * Return: true for a stuck page.
 */
bool xs_identity_is_stuck(const struct xs_engine *engine, u64 page);

/**
 * xs_identity_keep - let a stuck page have a reference
 * @engine: engine
 * @page: IOVA page of a stuck page
 * @ref: reference that the caller hands over; XS_REF_UNHELD: the page is held now, if possible, as
 *   the driver has not freed the memory yet
 *
 * Context: entered.
 */
void xs_identity_keep(struct xs_engine *engine, u64 page, xs_ref_t ref);

/**
 * xs_identity_unmap_at_once - unmap a page of the window, and flush before the return
 * @engine: engine
 * @page: IOVA page
 *
 * Context: entered.
 * Return: as xs_engine_unmap().
 */
bool xs_identity_unmap_at_once(struct xs_engine *engine, u64 page);

/**
 * xs_identity_unmap_all - unmap all pages of a bad unmap that are mapped, at once
 * @engine: engine
 * @page: first IOVA page, of the window
 * @pages: number of pages; they end in the table of words where they begin
 * @misuse: the bad unmap; what has been found is noted
 *
 * Takes one mapping of each page.
 *
 * Context: entered.
 */
void xs_identity_unmap_all(struct xs_engine *engine, u64 page, u64 pages,
			   struct xs_misuse *misuse);

/**
 * xs_identity_retry - ask the backend again to remove stuck pages of the window
 * @engine: engine
 *
 * Context: as xs_engine_retry().
 */
void xs_identity_retry(struct xs_engine *engine);

/**
 * xs_identity_trim - free the words and page-table pages that no page uses
 * @engine: engine
 *
 * Context: as xs_engine_trim().
 */
void xs_identity_trim(struct xs_engine *engine);

/**
 * xs_identity_seal - let no further map share an entry
 * @engine: engine whose backend refuses all maps that have begun since the last quiesce()
 *
 * From the return on each map fails: a map that finds an entry is placed in a block, and calls the
 * backend. Unmaps work as before. For a backend that removes the entries of live mappings, or whose
 * page table is about to change.
 *
 * Context: may sleep.
 */
void xs_identity_seal(struct xs_engine *engine);

/**
 * xs_identity_next - next page of the window that is mapped
 * @engine: engine
 * @page: IOVA page at which the search starts; on success the page
 *
 * Context: any.
 * Return: number of mappings; 0 if no page is mapped.
 */
u64 xs_identity_next(const struct xs_engine *engine, u64 *page);

/**
 * xs_identity_given - mappings, unflushed records and stuck pages of the window
 * @engine: engine at rest
 *
 * Context: no other call runs.
 * Return: number of pages.
 */
u64 xs_identity_given(const struct xs_engine *engine);

/**
 * xs_identity_word - word of a page of the window
 * @identity: window
 * @page: IOVA page, of the window or below
 *
 * Context: entered.
 * Return: the word; NULL outside the window, and if no page of the table was ever mapped.
 */
static xs_inline xs_atomic64_t *xs_identity_word(const struct xs_identity *identity, u64 page)
{
	u64 at = page - identity->first;
	xs_atomic64_t *words;

	if (xs_unlikely(at >= xs_load_acquire(&identity->pages)))
		return 0;
	words = xs_load_acquire(&identity->tables[at >> XS_TABLE_PAGES_LG2].words);
	return words ? words + (at & (XS_TABLE_PAGES - 1)) : 0;
}

/**
 * xs_identity_phys - physical address of a page of the window
 * @identity: window
 * @page: IOVA page of the window
 *
 * Context: any.
 * Return: the address in bytes.
 */
static xs_inline u64 xs_identity_phys(const struct xs_identity *identity, u64 page)
{
	return (page - identity->first) << XS_PAGE_LG2;
}

/**
 * xs_word_cpu - CPU in a word
 * @cpu: CPU whose batch has the record of the page
 * @promise: the record stands for no other unmap
 *
 * Context: any.
 * Return: the bits of XS_WORD_CPU.
 */
static xs_inline u64 xs_word_cpu(u32 cpu, bool promise)
{
	return (u64)(cpu + 1) << XS_WORD_CPU_SHIFT | (promise ? XS_WORD_PROMISE : 0);
}

/**
 * xs_identity_share - map a page with the mappings that the page has, or revive the page
 * @word: word of the page
 * @prot: permission
 *
 * Context: entered.
 * Return: false if the page is not present, or has another permission.
 */
static xs_inline bool xs_identity_share(xs_atomic64_t *word, u32 prot)
{
	u64 present = XS_WORD_PRESENT | (u64)prot << XS_WORD_PROT_SHIFT;
	u64 found = xs_a64_read(word);

	do {
		if (xs_unlikely((found & (XS_WORD_STATE | XS_WORD_PROT)) != present ||
				(found & XS_WORD_COUNT) == XS_WORD_COUNT))
			return false;
	} while (xs_unlikely(!xs_a64_try_acquire(word, &found, found + 1)));
	return true;
}

/* Results of xs_identity_map() beside an IOVA; no page has these. */
#define XS_IDENTITY_NOT	0ULL	/* place the page in a block */
#define XS_IDENTITY_REFUSED	1ULL	/* the backend has refused the map */

/**
 * xs_identity_map - map a page of memory in the window
 * @engine: engine
 * @phys: physical address in bytes
 * @prot: permission, for the backend
 * @last: highest IOVA in bytes, inclusive
 *
 * Context: entered.
 * Return: the IOVA in bytes; XS_IDENTITY_NOT or XS_IDENTITY_REFUSED.
 */
u64 xs_identity_map(struct xs_engine *engine, u64 phys, u32 prot, u64 last);

/**
 * xs_identity_unmap_one - unmap a page of the window as the policy says
 * @engine: engine
 * @page: IOVA page
 * @promise: by a batch-aware driver, which keeps the page
 *
 * Context: entered.
 * Return: as xs_engine_unmap().
 */
bool xs_identity_unmap_one(struct xs_engine *engine, u64 page, bool promise);

/**
 * xs_identity_defer - append the record of a page under the CPU's lock
 * @engine: engine
 * @page: IOVA page, whose word names this CPU
 * @ref: held reference, XS_REF_NONE or XS_REF_UNHELD
 * @promise: by a batch-aware driver, which keeps the page
 *
 * Without room the page is flushed now.
 *
 * Context: entered.
 */
void xs_identity_defer(struct xs_engine *engine, u64 page, xs_ref_t ref, bool promise);

/**
 * xs_identity_entries - word of the backend for the block of an IOVA page
 * @identity: window
 * @page: IOVA page of the window
 *
 * Context: entered.
 * Return: the word; NULL if no page there was ever mapped.
 */
static xs_inline void **xs_identity_entries(const struct xs_identity *identity, u64 page)
{
	u64 at = page - identity->first;
	struct xs_identity_table *table;

	if (xs_unlikely(at >= xs_load_acquire(&identity->pages)))
		return 0;
	table = &identity->tables[at >> XS_TABLE_PAGES_LG2];
	if (!xs_load_acquire(&table->words))
		return 0;
	return &table->entries[(at & (XS_TABLE_PAGES - 1)) / XS_BLOCK_PAGES];
}

/**
 * xs_identity_forget_entries - forget where the backend's entries are, as the backend asks
 * @engine: engine; no call uses the entries
 *
 * Context: may sleep.
 */
void xs_identity_forget_entries(struct xs_engine *engine);

#endif
