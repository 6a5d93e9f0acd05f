// SPDX-License-Identifier: GPL-2.0-only
/*
 * Caches of the IOMMU and of devices: the IOTLB (last-level entries), page-walk caches (the
 * table that serves a range of IOVAs, one cache per level), and a TLB in devices with ATS.
 * Device accesses fill the caches. An entry leaves when another entry needs the place, by
 * eviction, or by invalidation. In caching mode the IOTLB also caches the absence of a
 * translation.
 */
#include <string.h>

#include "sim.h"

#define CACHE_MAX	256u

struct cached {
	u32 key;	/* 1 + page, or 1 + pages shifted; 0: empty */
	u32 table;
	u32 generation;
	u64 entry;
};

static struct cached iotlb[CACHE_MAX];
static struct cached walk[2][CACHE_MAX];	/* by level */
static struct cached device_tlb[SIM_DEVICES][CACHE_MAX];

void cache_begin(void)
{
	memset(iotlb, 0, sizeof(iotlb));
	memset(walk, 0, sizeof(walk));
	memset(device_tlb, 0, sizeof(device_tlb));
}

static u32 shift_of(u32 level)
{
	return sim.config.table_lg2 + (level ? sim.config.directory_lg2 : 0);
}

static struct cached *look_up(struct cached *cache, u32 size, u32 key)
{
	return &cache[key & (size - 1)];
}

/* ---- translation ---- */

/* Returns the table of @level that a walk uses for @page; 0: none. *@dead: the table is freed. */
static u32 walk_to(u32 level, u32 page, bool *dead)
{
	u32 key = (page >> shift_of(level)) + 1;
	struct cached *cached = look_up(walk[level], sim.config.walk, key);
	u32 above, table;

	if (cached->key == key) {
		*dead |= table_generation(cached->table) != cached->generation;
		return cached->table;
	}
	if (level) {
		table = table_directory(page);
	} else {
		above = walk_to(1, page, dead);
		table = above && !*dead ? table_last(above, page) : 0;
	}
	if (table) {
		cached->key = key;
		cached->table = table;
		cached->generation = table_generation(table);
	}
	return table;
}

static bool may(u64 entry, bool write)
{
	if (!write && sim.config.first_stage)
		return entry & ENTRY_PROT;
	return entry & (write ? ENTRY_WRITE : ENTRY_READ);
}

static void tell(u32 device, u32 page, bool write, u64 entry, bool dead)
{
	if (dead || may(entry, write))
		sim_event(EV_ACCESS, device, page, 1, entry_memory(entry),
			  entry_serial(entry) | (write ? ACCESS_WRITE : 0) |
			  (dead ? ACCESS_DEAD : 0));
	else
		sim_event(EV_REFUSED, device, page, 1, write ? ENTRY_WRITE : ENTRY_READ, 0);
}

void cache_access(u32 device, u32 page, bool write)
{
	bool has_tlb = device < sim.config.ats;
	struct cached *own = look_up(device_tlb[device], sim.config.device_tlb, page + 1);
	struct cached *shared = look_up(iotlb, sim.config.iotlb, page + 1);
	bool dead = false;
	u64 entry = 0;
	u32 last;

	sim.accesses++;
	if (has_tlb && own->key == page + 1) {
		tell(device, page, write, own->entry, false);
		return;
	}
	if (shared->key == page + 1) {
		entry = shared->entry;
	} else {
		last = walk_to(0, page, &dead);
		if (last && !dead)
			entry = table_entry(last, page);
	}
	if (entry || (sim.config.caching && !dead)) {
		shared->key = page + 1;
		shared->entry = entry;
	}
	if (entry && has_tlb)
		*own = *shared;
	tell(device, page, write, entry, dead);
}

/* Cache the absence of a translation for some of the unmapped pages. */
void cache_absence(u32 page, u32 pages)
{
	for (u32 end = page + pages; page < end; page++) {
		struct cached *shared = look_up(iotlb, sim.config.iotlb, page + 1);

		if (!sim_draw(2)) {
			shared->key = page + 1;
			shared->entry = 0;
		}
	}
}

/* ---- eviction and invalidation ---- */

void cache_evict(void)
{
	u32 device = sim_draw(SIM_DEVICES);

	iotlb[sim_draw(CACHE_MAX)].key = 0;
	walk[0][sim_draw(CACHE_MAX)].key = 0;
	walk[1][sim_draw(CACHE_MAX)].key = 0;
	device_tlb[device][sim_draw(CACHE_MAX)].key = 0;
}

/* Drop entries of [@page, @page + @pages), in units of 1 << @shift; 0 pages: all entries. */
static void drop(struct cached *cache, u32 size, u32 page, u32 pages, u32 shift)
{
	u32 first = page >> shift;
	u32 last = (page + pages - 1) >> shift;

	if (!pages) {
		memset(cache, 0, size * sizeof(*cache));
		return;
	}
	if (last - first < size) {
		for (u32 key = first + 1; key <= last + 1; key++) {
			struct cached *cached = look_up(cache, size, key);

			if (cached->key == key)
				cached->key = 0;
		}
		return;
	}
	for (u32 i = 0; i < size; i++)
		if (cache[i].key > first && cache[i].key <= last + 1)
			cache[i].key = 0;
}

void cache_invalidate_iommu(u32 page, u32 pages, bool hint)
{
	drop(iotlb, sim.config.iotlb, page, pages, 0);
	if (hint)
		return;
	drop(walk[0], sim.config.walk, page, pages, shift_of(0));
	drop(walk[1], sim.config.walk, page, pages, shift_of(1));
}

void cache_invalidate_device(u32 device, u32 page, u32 pages)
{
	drop(device_tlb[device], sim.config.device_tlb, page, pages, 0);
}
