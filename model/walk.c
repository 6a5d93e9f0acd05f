// SPDX-License-Identifier: GPL-2.0-only
/* See walk.h. */
#include <string.h>

#include "cache.h"
#include "count.h"
#include "model.h"
#include "walk.h"

#define LEVEL_LG2	9	/* entries of a page-table page */
#define TABLES		256u	/* leaf tables in use by walks; collisions are rare, and harmless */

/*
 * struct table - a leaf table that a walk has read
 * @number:	of the table, table_of()
 * @free_ns:	end of the last walk
 */
struct table {
	u64 number;
	u64 free_ns;
};

static struct cache iotlb, upper[3];
/*
 * struct walker - a walker
 * @free_ns:	end of the last walk
 * @page:	IOVA page of the last walk
 */
struct walker {
	u64 free_ns;
	u64 page;
};

static struct walker *walkers;
static u64 stalled_until_ns;
static struct table tables[TABLES];

void walk_init(void)
{
	const struct model_params *params = &model.params;

	cache_init(&iotlb, params->iotlb_entries, params->iotlb_ways);
	cache_init(&upper[0], params->l1_entries, params->l1_entries);
	cache_init(&upper[1], params->l2_entries, params->l2_entries);
	cache_init(&upper[2], params->l3_entries, params->l3_entries);
	walkers = model_new(params->walkers, sizeof(*walkers));
	stalled_until_ns = 0;
	memset(tables, 0, sizeof(tables));
}

static bool is_large(u64 page)
{
	return page >= WALK_LARGE;
}

/* Returns the number of a translation in the IOTLB: neighbours, of any size, are in other sets. */
static u64 leaf_of(u64 page)
{
	return is_large(page) ? WALK_LARGE + ((page - WALK_LARGE) >> LEVEL_LG2) : page;
}

/* Returns the number of the table that has this entry. */
static u64 table_of(u64 page)
{
	return page >> (is_large(page) ? 2 * LEVEL_LG2 : LEVEL_LG2);
}

/* Returns the reads of a walk, and fills the walk caches. */
static u64 reads_of(u64 page)
{
	u64 *const misses[] = { &counts.l1_misses, &counts.l2_misses, &counts.l3_misses };
	u64 reads = 1;

	for (u32 level = is_large(page) ? 2 : 3; level; level--) {
		u64 number = page >> LEVEL_LG2 * (4 - level);

		if (cache_find(&upper[level - 1], number))
			break;
		cache_add(&upper[level - 1], number, 0);
		++*misses[level - 1];
		reads++;
	}
	return reads;
}

static struct walker *free_walker(void)
{
	struct walker *first = &walkers[0];

	for (u64 i = 1; i < model.params.walkers; i++)
		if (walkers[i].free_ns < first->free_ns)
			first = &walkers[i];
	return first;
}

static u64 later(u64 a, u64 b)
{
	return a > b ? a : b;
}

static struct translation walk(u64 ns, u64 page)
{
	struct table *table = &tables[table_of(page) % TABLES];
	struct walker *walker = free_walker();
	u64 start = later(ns, walker->free_ns), stalled = 0;
	u64 reads = reads_of(page);

	if (model.params.serial_table && table->number == table_of(page))
		start = later(start, table->free_ns);
	if (stalled_until_ns > start) {
		stalled = stalled_until_ns - start;
		start = stalled_until_ns;
	}
	*walker = (struct walker) { start + reads * model.params.table_read_ns, page };
	*table = (struct table) { table_of(page), walker->free_ns };
	counts.reads += reads;
	return (struct translation) { walker->free_ns, stalled };
}

struct translation walk_at(u64 ns, u64 page)
{
	struct cache_entry *entry = cache_find(&iotlb, leaf_of(page));
	struct translation found;

	counts.visits++;
	if (entry)
		return (struct translation) { later(ns, entry->ready_ns), 0 };
	counts.misses++;
	found = walk(ns, page);
	cache_add(&iotlb, leaf_of(page), found.ready_ns);
	return found;
}

void walk_drop(u64 first, u64 last)
{
	cache_drop(&iotlb, first, last);
}

void walk_drop_all(void)
{
	cache_drop_all(&iotlb);
}

void walk_drop_tables(void)
{
	for (u32 i = 0; i < 3; i++)
		cache_drop_all(&upper[i]);
}

/*
 * The walk itself keeps its end, which was told; the walker, and so all later walks, lose the time
 * of one more.
 */
void walk_restart(u64 ns)
{
	for (u64 i = 0; i < model.params.walkers; i++) {
		struct walker *walker = &walkers[i];
		u64 reads;

		if (walker->free_ns <= ns)
			continue;
		reads = reads_of(walker->page);
		walker->free_ns += reads * model.params.table_read_ns;
		counts.misses++;
		counts.reads += reads;
	}
}

void walk_stall(u64 until_ns)
{
	stalled_until_ns = later(stalled_until_ns, until_ns);
}
