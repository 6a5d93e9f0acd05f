// SPDX-License-Identifier: GPL-2.0-only
/*
 * The IOMMU's page table: a root, directories, and last-level tables with entries.
 *
 * As in VT-d's driver, a removal that covers a whole table unlinks the table with all entries.
 * A page-walk cache that knows the table can go on using the table. The gather frees the table,
 * and the next allocation reuses the table. Other drivers unlink empty tables; both ways are
 * simulated.
 */
#include <string.h>

#include "sim.h"

#define TABLES		2400u
#define SLOTS		(128u << SIM_TABLE_LG2)
#define ROOT		2048u

/* One page-table page; @next links tables in a gather or on the free list. */
struct table {
	u32 generation;
	u32 next;
	u32 page;	/* first IOVA page of the table */
	u32 level;	/* 0: last level */
};

static struct table tables[TABLES];
static u64 slots[SLOTS];
static u32 root[ROOT];
static u32 free_table;

static u32 stride_lg2(void)
{
	u32 last = sim.config.table_lg2, directory = sim.config.directory_lg2;

	return last > directory ? last : directory;
}

/* log2 of the IOVA pages of a table. */
static u32 span_lg2(u32 level)
{
	return sim.config.table_lg2 + (level ? sim.config.directory_lg2 : 0);
}

static u64 *slot(u32 table, u32 page)
{
	u32 lg2 = tables[table].level ? sim.config.directory_lg2 : sim.config.table_lg2;
	u32 shift = tables[table].level ? sim.config.table_lg2 : 0;

	return &slots[((size_t)table << stride_lg2()) + (page >> shift & ((1u << lg2) - 1))];
}

static u32 root_index(u32 page)
{
	return page >> span_lg2(1);
}

u32 table_directory(u32 page)
{
	return root[root_index(page)];
}

u32 table_last(u32 directory, u32 page)
{
	return (u32)*slot(directory, page);
}

u64 table_entry(u32 last, u32 page)
{
	return *slot(last, page);
}

u32 table_generation(u32 table)
{
	return tables[table].generation;
}

static u32 last_of(u32 page)
{
	u32 directory = table_directory(page);

	return directory ? table_last(directory, page) : 0;
}

void table_begin(void)
{
	u32 count = SLOTS >> stride_lg2();

	if (count > TABLES)
		count = TABLES;
	memset(root, 0, sizeof(root));
	free_table = 0;
	for (u32 i = count - 1; i; i--) {
		tables[i].generation = 0;
		tables[i].next = free_table;
		free_table = i;
	}
}

/* ---- map ---- */

static u32 new_table(u32 page, u32 level)
{
	u32 at = free_table;

	if (!at || sim_fault(FAULT_TABLE))
		return 0;
	free_table = tables[at].next;
	tables[at].page = page >> span_lg2(level) << span_lg2(level);
	tables[at].level = level;
	memset(&slots[(size_t)at << stride_lg2()], 0, sizeof(*slots) << stride_lg2());
	return at;
}

/* Returns the last-level table of @page, made if missing; 0: no memory. */
static u32 need_last(u32 page)
{
	u32 *directory = &root[root_index(page)];
	u64 *last;

	if (!*directory)
		*directory = new_table(page, 1);
	if (!*directory)
		return 0;
	last = slot(*directory, page);
	if (!*last)
		*last = new_table(page, 0);
	return (u32)*last;
}

/* The table is unlinked: an entry written there is lost. */
static bool is_gone(u32 last, u32 page)
{
	return last_of(page) != last;
}

void table_write(u32 last, u32 page, u64 entry)
{
	if (is_gone(last, page))
		sim_fail("tables", "IOVA page %u is written to a page-table page that has gone", page);
	*slot(last, page) = entry;
}

/* Number of pages from @page on within the last-level table, at most @pages. */
static u32 pages_here(u32 page, u32 pages)
{
	u32 room = (1u << sim.config.table_lg2) - (page & ((1u << sim.config.table_lg2) - 1));

	return pages < room ? pages : room;
}

/*
 * A driver's map of a whole table writes one large entry over the table, which may be cached.
 * VT-d's driver up to 6.12 frees the table before the invalidation.
 */
static void check_replaced(u32 page, u32 pages)
{
	u32 span = 1u << sim.config.table_lg2;
	u32 first = (page + span - 1) & ~(span - 1);

	for (; first + span <= page + pages; first += span)
		if (last_of(first))
			sim_fail("tables", "a map replaces the page-table page of IOVA pages %u to %u",
				 first, first + span - 1);
}

int table_map(u32 page, u32 pages, u64 entry)
{
	check_replaced(page, pages);
	for (u32 at = 0; at < pages; at += pages_here(page + at, pages - at))
		if (!need_last(page + at))
			return -XS_ENOMEM;
	for (u32 at = 0; at < pages; at++) {
		*slot(last_of(page + at), page + at) = entry;
		entry += 1ULL << ENTRY_MEMORY_SHIFT;
	}
	return 0;
}

/* ---- remove ---- */

static void unlink_table(xs_gather_t *gather, u32 table)
{
	tables[table].next = gather->first_table;
	gather->first_table = table;
	sim_event(EV_TABLE_UNLINKED, 0, tables[table].page, 1u << span_lg2(tables[table].level),
		  table, 0);
}

/* Unlink a directory and all last-level tables below. */
static void unlink_directory(xs_gather_t *gather, u32 page)
{
	u32 directory = root[root_index(page)];

	root[root_index(page)] = 0;
	unlink_table(gather, directory);
	for (u32 i = 0; i < 1u << sim.config.directory_lg2; i++) {
		u32 last = (u32)*slot(directory, i << sim.config.table_lg2);

		if (last)
			unlink_table(gather, last);
	}
}

static void unlink_last(xs_gather_t *gather, u32 page)
{
	u32 directory = table_directory(page);
	u64 *last = slot(directory, page);

	unlink_table(gather, (u32)*last);
	*last = 0;
}

static void remove_here(xs_gather_t *gather, u32 page, u32 pages)
{
	u32 last = last_of(page);

	if (!last)
		return;
	if (pages == 1u << sim.config.table_lg2) {
		unlink_last(gather, page);
		return;
	}
	for (u32 i = page; i < page + pages; i++)
		*slot(last, i) = 0;
}

void table_remove(xs_gather_t *gather, u32 page, u32 pages)
{
	u32 span = 1u << span_lg2(1);

	while (pages) {
		u32 here = pages_here(page, pages);

		if (!(page & (span - 1)) && pages >= span) {
			here = span;
			if (table_directory(page))
				unlink_directory(gather, page);
		} else {
			remove_here(gather, page, here);
		}
		page += here;
		pages -= here;
	}
}

void table_free(xs_gather_t *gather)
{
	while (gather->first_table) {
		u32 table = gather->first_table;

		gather->first_table = tables[table].next;
		sim_event(EV_TABLE_FREED, 0, tables[table].page,
			  1u << span_lg2(tables[table].level), table, 0);
		tables[table].generation++;
		tables[table].next = free_table;
		free_table = table;
	}
}
