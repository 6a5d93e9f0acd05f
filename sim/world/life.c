// SPDX-License-Identifier: GPL-2.0-only
/*
 * Begin and end of the engine: reports under traffic, and the checks that nothing is left at
 * the end.
 */
#include <string.h>

#include "sim.h"

void life_window(void)
{
	u64 first = sim_first_page();
	u64 end = first + (sim.config.blocks + 1) * XS_BLOCK_PAGES;
	u32 tables = (sim.config.window + XS_TABLE_PAGES - 1) / XS_TABLE_PAGES;

	if (!sim.config.window)
		return;
	sim.window = (u32)(((end + XS_TABLE_PAGES - 1) & ~(u64)(XS_TABLE_PAGES - 1)) - first);
	sim.window_pages = tables * XS_TABLE_PAGES;
	if (sim.window_pages > SIM_WINDOW)
		sim.window_pages = SIM_WINDOW;
}

void life_begin(void)
{
	const struct xs_engine_config config = {
		.ops = &sim_ops,
		.start = sim.config.low_blocks ? sim_iova_of(XS_BLOCK_PAGES) : 0,
		.end = sim_iova_of(sim.config.blocks * XS_BLOCK_PAGES),
		.cpu_count = sim.config.cpus,
		.policy = sim.config.policy,
		.remembers = sim.config.remembers,
		.identity = sim.window ? sim_iova_of(sim.window) : 0,
		.memory_pages = sim.config.window,
	};

	driver_start();
	if (xs_engine_init(&sim.engine, &config))
		sim_fail("world", "the engine cannot be made");
	sim.engine.space.empty_min = 0;
	xs_engine_set(&sim.engine, sim.config.policy, &sim.config.tuning);
	operator_tell(sim.config.policy, &sim.config.tuning, false);
	block_begin();
	copy_begin();
}

void life_trim(bool all)
{
	u32 mending = sim.mending;

	/* The engine allows one caller at a time, and no trim during a change of the policy. */
	if (sim.trimming || (all && sim.setting))
		return;
	sim.trimming = true;
	sim_call_begin(XS_FLUSH_BIT(XS_FLUSH_UNMAP));
	if (all) {
		sim.trim_due = false;
		xs_engine_trim(&sim.engine);
	} else {
		xs_engine_mend(&sim.engine, false);
	}
	sim_call_end();
	sim.mending -= mending;
	sim.trimming = false;
}

void life_retry(void)
{
	if (sim.trimming)
		return;
	sim.trimming = true;
	sim_call_begin(XS_FLUSH_BIT(XS_FLUSH_UNMAP));
	sim.retry_due = xs_engine_retry(&sim.engine);
	sim_call_end();
	sim.trimming = false;
}

static void tell_accounts(bool end)
{
	static struct xs_stats stats;
	struct sim_accounts accounts = {
		.maps = sim.maps,
		.mapped_pages = sim.mapped_pages,
		.map_failures = sim.map_failures,
		.unmaps = sim.unmaps,
		.unmapped_pages = sim.unmapped_pages,
		.live_pages = sim.mapped_pages - sim.unmapped_pages + sim.copied - sim.uncopied,
		.copied_maps = sim.copied,
		.copied_unmaps = sim.uncopied,
		.commands_page = sim.commands_page,
		.commands_domain = sim.commands_domain,
		.flushes = sim.flushes,
		.unstuck = sim.unstuck,
		.stuck = xs_engine_stuck_pages(&sim.engine),
		.bad_unmaps = sim.bad_unmaps,
		.memory_out = sim.memory_out,
		.end = end,
		.stats = &stats,
	};

	accounts.leak_check = xs_engine_leak_check(&sim.engine, &stats);
	sim_event(EV_ACCOUNTS, 0, 0, 0, 0, (u64)(size_t)&accounts);
}

/* The engine's list of mappings equals the driver's. A page of the window is named once. */
static void check_named(void)
{
	static u32 mapped[SIM_PAGES];
	u64 iova = 0, left = 0;
	u32 pages, count = 0, shared = 0;

	memset(mapped, 0, sizeof(mapped));
	for (u32 i = 0; i < sim.live_count; i++) {
		const struct sim_mapping *at = &sim.live[(sim.live_first + i) % SIM_MAPPINGS];

		shared += mapped[sim_page_of(at->iova)] != 0;
		mapped[sim_page_of(at->iova)] = at->pages;
		left += at->named ? at->pages - at->named : 0;
	}
	if (xs_engine_torn_pages(&sim.engine) != left)
		sim_fail("accounts", "the engine says that %llu pages of torn mappings are left, it is %llu",
			 (unsigned long long)xs_engine_torn_pages(&sim.engine),
			 (unsigned long long)left);
	for (; xs_engine_next_mapping(&sim.engine, &iova, &pages); iova += pages * XS_PAGE_BYTES) {
		if (!sim_is_inside(iova, pages) || mapped[sim_page_of(iova)] != pages)
			sim_fail("accounts", "the engine names %u pages at %llx, where no such mapping is",
				 pages, (unsigned long long)iova);
		count++;
	}
	if (count != sim.live_count - shared)
		sim_fail("accounts", "the engine names %u mappings of %u", count,
			 sim.live_count - shared);
}

/* The engine asks CPUs and depots for cached IOVAs only once in a while: try again later. */
static bool map_late(u32 pages, u64 last)
{
	sim.now_ns += 1000000000;
	return sim.live_count < SIM_MAPPINGS && driver_map(pages, last);
}

static void map_all(void)
{
	for (u32 pages = XS_BLOCK_PAGES; pages; pages /= 2)
		while (map_late(pages, ~0ULL))
			;
}

/*
 * Unmap most mappings, at random, and all mappings larger than a block. Then map pages until
 * the engine hands out no more, at any place. The engine needs a trim for the pages that other
 * CPUs have taken for their own maps.
 */
static void check_full(void)
{
	u32 kept = sim.live_count / 8;

	if (sim.config.blocks * XS_BLOCK_PAGES + kept > SIM_MAPPINGS)
		return;
	for (u32 i = sim.live_count; i; i--)
		if (sim.live[(sim.live_first + i - 1) % SIM_MAPPINGS].pages > XS_BLOCK_PAGES)
			driver_unmap_index(i - 1, true);
	while (sim.live_count > kept)
		driver_unmap_index(sim_draw(sim.live_count), true);
	life_trim(false);
	map_all();
	if (sim.trim_due) {
		life_trim(true);
		map_all();
	}
	sim_event(EV_FULL, 0, 0, 0, 0, 0);
}

/*
 * All IOVAs can be handed out again, so none was lost. The upper half of the space below 4 GiB
 * is reserved for devices that can use no other addresses.
 */
static void check_space(void)
{
	u32 low = sim.config.low_blocks ? (sim.config.low_blocks - 1) / 2 : 0;
	u32 all = sim.config.blocks - 1;

	/* No page is that low, so the failed map makes all caches give up their IOVAs. */
	map_late(1, XS_PAGE_BYTES - 1);
	while (sim.live_count < all - low && map_late(XS_BLOCK_PAGES, ~0ULL))
		;
	while (map_late(XS_BLOCK_PAGES, low ? SIM_LOW_PAGES * XS_PAGE_BYTES - 1 : ~0ULL))
		;
	if (sim.live_count != all)
		sim_fail("accounts", "%u of %u blocks can be handed out at the end",
			 sim.live_count, all);
	while (sim.live_count)
		driver_unmap_index(0, true);
}

/* Nothing is mapped, so each slot is vacant. */
static void check_slots(void)
{
	struct xs_leaf *leaf;
	u64 page = 0;

	for (; (leaf = xs_tree_next_leaf(&sim.engine.space.tree, &page)); page += XS_LEAF_PAGES)
		for (u32 i = 0; leaf->slots && i < XS_LEAF_PAGES; i++)
			if (!xs_slot_is_vacant(xs_a64_read(&leaf->slots[i])))
				sim_fail("accounts", "the slot of IOVA page %llu is not vacant, and nothing is mapped",
					 (unsigned long long)(page + i - sim_first_page()));
}

/* Nothing is mapped, so each page of the window is absent. */
static void check_words(void)
{
	const struct xs_identity *identity = &sim.engine.identity;

	for (u64 page = 0; page < identity->pages; page++) {
		xs_atomic64_t *words = identity->tables[page / XS_TABLE_PAGES].words;

		if (words && xs_a64_read(&words[page % XS_TABLE_PAGES]))
			sim_fail("accounts", "page %llu of the window is not absent, and nothing is mapped",
				 (unsigned long long)page);
	}
}

static void end_space(void)
{
	for (u32 i = 0; i < sim.config.cpus; i++)
		operator_retire(i);
	check_space();
	tell_accounts(true);
}

void life_end(void)
{
	/* As long as a step maps, no mapping is unmapped twice. */
	if (sim.map_steps)
		sim_fail("world", "%u steps map, and all steps have ended", sim.map_steps);
	sim.calm = true;
	sim.refusals = 0;
	block_end();
	life_trim(false);
	life_retry();
	tell_accounts(false);
	check_named();
	copy_end();
	for (u32 i = 0; i < MEMORY_KINDS; i++)
		sim.config.kinds[i] = i == MEMORY_PERMANENT;
	sim.config.multi = 0;
	sim.config.large = 0;
	sim.config.again = 0;
	check_full();
	while (sim.live_count)
		driver_unmap_index(0, false);
	operator_flush(XS_FLUSH_DRAIN);
	life_trim(false);
	tell_accounts(true);
	check_slots();
	check_words();
	/* Or skip the check: an engine may end while CPUs still cache IOVAs. */
	if (sim_draw(2))
		end_space();
	xs_engine_destroy(&sim.engine);
	if (sim.allocations)
		sim_fail("accounts", "%llu allocations of the engine are left",
			 (unsigned long long)sim.allocations);
}
