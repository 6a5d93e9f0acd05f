// SPDX-License-Identifier: GPL-2.0-only
/* Invariant 6: the statistics balance, and agree with the world's counts. */
#include "check.h"

static void same(const char *what, u64 engine, u64 world)
{
	if (engine != world)
		sim_fail("accounts", "%s: the engine says %llu, the world %llu", what,
			 (unsigned long long)engine, (unsigned long long)world);
}

/*
 * No page counts as exposed for less than the real time: for each power of two of ns, at least
 * as many pages count as older as really were.
 */
static void check_exposure(const struct xs_stats *stats)
{
	u64 engine = 0, seen = 0;
	u32 bucket = XS_EXPOSURE_BUCKETS;

	for (u32 lg2 = XS_EXPOSURE_MAX_LG2 - 1; lg2 > XS_EXPOSURE_SUB_LG2; lg2--) {
		while (bucket && xs_stats_bucket_last_ns(bucket - 1) >= 1ULL << lg2)
			engine += stats->exposure[--bucket];
		seen += shadow.exposed[lg2];
		if (engine < seen)
			sim_fail("accounts", "%llu pages were exposed for %llu ns or more, the engine says %llu",
				 (unsigned long long)seen, 1ULL << lg2, (unsigned long long)engine);
	}
	if (stats->exposure_max_ns < shadow.exposed_max_ns)
		sim_fail("accounts", "exposure: the engine says %llu ns at most, the world saw %llu",
			 (unsigned long long)stats->exposure_max_ns,
			 (unsigned long long)shadow.exposed_max_ns);
}

static void check_stats(const struct sim_accounts *accounts)
{
	const struct xs_stats *stats = accounts->stats;
	u64 exposed = 0;

	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		same(xs_flush_name(i), stats->flushes[i], accounts->flushes[i]);
	for (u32 i = 0; i < XS_EXPOSURE_BUCKETS; i++)
		exposed += stats->exposure[i];
	same("maps", stats->counts.maps, accounts->maps);
	same("mapped pages", stats->counts.maps + stats->counts.map_extra_pages,
	     accounts->mapped_pages);
	same("failed maps", stats->map_failures, accounts->map_failures);
	same("unmaps", stats->counts.unmaps, accounts->unmaps);
	same("unmapped pages", stats->counts.unmaps + stats->counts.unmap_extra_pages,
	     accounts->unmapped_pages);
	same("page commands", stats->commands_page, accounts->commands_page);
	same("domain commands", stats->commands_domain, accounts->commands_domain);
	same("bad unmaps", stats->counts.bad_unmaps, accounts->bad_unmaps);
	same("entries of the window", stats->counts.identity_writes, shadow.entries);
	same("copied maps", stats->counts.copied_maps, accounts->copied_maps);
	same("copied unmaps", stats->counts.copied_unmaps, accounts->copied_unmaps);
	/* The exposure of stuck pages is unknown. */
	same("exposed pages", exposed + accounts->unstuck,
	     stats->counts.immediate_pages + stats->flushed_pages);
	same("stuck pages", accounts->stuck, shadow.stuck);
	check_exposure(stats);
	same("live pages", (u64)accounts->leak_check, accounts->live_pages);
}

/*
 * The reported age of a batch is at most the time since the first unmap into the empty batch,
 * and at least the age of the oldest flushed page.
 */
static void check_age(const struct sim_event *event, const struct sim_flush *flush)
{
	u64 age_ns = event->now_ns - shadow.cpus[flush->cpu].begun_ns;
	u64 least_ns = shadow.cpus[event->cpu].flushed_age_ns;

	if (flush->cause == XS_FLUSH_UNMAP)
		return;
	if (flush->age_ns < least_ns)
		sim_fail("accounts", "a flush of CPU %u says that its oldest page has waited for %llu ns, and it has for %llu",
			 flush->cpu, (unsigned long long)flush->age_ns,
			 (unsigned long long)least_ns);
	if (flush->age_ns > age_ns)
		sim_fail("accounts", "a flush of CPU %u says that its oldest page has waited for %llu ns, and none has for %llu",
			 flush->cpu, (unsigned long long)flush->age_ns, (unsigned long long)age_ns);
}

/* Under traffic, a reading misses no page, and counts no page as flushed before the unmap. */
static void check_reading(const struct sim_reading *reading)
{
	const struct xs_counts *counts = &reading->stats->counts;
	s64 least = (s64)(reading->mapped_least - reading->unmapped_most);
	s64 most = (s64)(reading->mapped_most - reading->unmapped_least);
	u64 flushed = reading->stats->flushed_pages + counts->immediate_pages;

	if (reading->live < 0 || reading->live < least || reading->live > most)
		sim_fail("accounts", "the engine says that %lld pages are mapped, it is %lld to %lld",
			 (long long)reading->live, (long long)least, (long long)most);
	if (reading->alone && reading->stuck != shadow.stuck)
		sim_fail("accounts", "the engine says that %llu pages are stuck, and %llu are",
			 (unsigned long long)reading->stuck, (unsigned long long)shadow.stuck);
	if (flushed > xs_counts_unmapped(counts))
		sim_fail("accounts", "the engine says that %llu pages of %llu unmapped ones are flushed",
			 (unsigned long long)flushed,
			 (unsigned long long)xs_counts_unmapped(counts));
}

/*
 * Maps of all sizes were tried and have failed. The engine may leave unused only remainders of
 * blocks: less than a quarter of a block that is too small to be searched, and less than half
 * of each mapping's order-n range.
 */
static void check_full(void)
{
	for (u32 block = 1; block < sim.config.blocks; block++) {
		u32 free = 0;

		for (u32 i = 0; i < BLOCK_PAGES; i++)
			free += shadow.pages[block * BLOCK_PAGES + i].state == SHADOW_FREE;
		if (free >= 3 * BLOCK_PAGES / 4)
			sim_fail("accounts", "%u pages of block %u are free, and not handed out", free, block);
	}
}

/*
 * Unmaps of the window that were not flushed, as others had the page, or had deferred it: an unmap
 * that left the page to drivers that had it throughout is one of these, and each flush of a page is
 * that of another unmap.
 */
static void check_kept(const struct xs_counts *counts)
{
	if (counts->kept_unmaps < shadow.kept ||
	    counts->kept_unmaps > shadow.unmaps - shadow.flushes)
		sim_fail("accounts", "the engine says that %llu unmaps were kept, it is %llu to %llu",
			 (unsigned long long)counts->kept_unmaps, (unsigned long long)shadow.kept,
			 (unsigned long long)(shadow.unmaps - shadow.flushes));
}

static void check_rest(const struct sim_accounts *accounts)
{
	check_stats(accounts);
	if (!accounts->end)
		return;
	same("pages left", accounts->live_pages, 0);
	same("memory left", accounts->memory_out, 0);
	same("flushed pages",
	     accounts->stats->flushed_pages + accounts->stats->counts.immediate_pages +
		     accounts->stats->counts.kept_unmaps,
	     accounts->unmapped_pages);
	check_kept(&accounts->stats->counts);
	if (shadow_oldest())
		sim_fail("accounts", "IOVA page %u is never flushed", shadow_oldest());
}

void check_accounts(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_FLUSH:
		check_age(event, (const struct sim_flush *)(size_t)event->b);
		break;
	case EV_READING:
		check_reading((const struct sim_reading *)(size_t)event->b);
		break;
	case EV_FULL:
		check_full();
		break;
	case EV_LISTED:
		if (event->pages)
			sim_fail("accounts", "%u blocks are on the lists of CPU %u and open", event->pages,
				 event->cpu);
		break;
	case EV_ACCOUNTS:
		check_rest((const struct sim_accounts *)(size_t)event->b);
		break;
	}
}
