// SPDX-License-Identifier: GPL-2.0-only
/* Invariant 6: the accounts balance, and agree with what the world saw. */
#include "check.h"

static void same(const char *what, u64 engine, u64 world)
{
	if (engine != world)
		sim_fail("accounts", "%s: the engine says %llu, the world %llu", what,
			 (unsigned long long)engine, (unsigned long long)world);
}

static void check_ledger(const struct sim_accounts *accounts)
{
	const struct xs_ledger *ledger = accounts->ledger;
	u64 syncs = 0, exposed = 0;

	for (u32 i = 0; i < XS_SYNC_COUNT; i++)
		syncs += ledger->syncs[i];
	for (u32 i = 0; i < XS_EXPOSURE_BUCKETS; i++)
		exposed += ledger->exposure[i];
	same("maps", ledger->counts.maps, accounts->maps);
	same("mapped pages", ledger->counts.maps + ledger->counts.map_extra_pages,
	     accounts->mapped_pages);
	same("failed maps", ledger->map_failures, accounts->map_failures);
	if (ledger->counts.unmaps + accounts->unmaps_spread < accounts->unmaps ||
	    ledger->counts.unmaps > accounts->unmaps + accounts->unmaps_spread)
		same("unmaps", ledger->counts.unmaps, accounts->unmaps);
	same("unmapped pages", ledger->counts.unmaps + ledger->counts.unmap_extra_pages,
	     accounts->unmapped_pages);
	same("page commands", ledger->commands_page, accounts->commands_page);
	same("domain commands", ledger->commands_domain, accounts->commands_domain);
	same("syncs", syncs, accounts->syncs);
	same("exposed pages", exposed, ledger->counts.direct_pages + ledger->synced_pages);
	/* A page may die while its block is being listed, with interrupts off. */
	if (ledger->exposure_max_ns + accounts->off_ns < shadow.exposed_max_ns)
		sim_fail("accounts", "exposure: the engine says %llu ns at most, the world saw %llu",
			 (unsigned long long)ledger->exposure_max_ns,
			 (unsigned long long)shadow.exposed_max_ns);
	same("live pages", (u64)accounts->audit, accounts->live_pages);
}

void check_accounts(const struct sim_event *event)
{
	const struct sim_accounts *accounts = (const struct sim_accounts *)(size_t)event->b;

	check_ledger(accounts);
	if (!accounts->end)
		return;
	same("pages left", accounts->live_pages, 0);
	same("memory left", accounts->memory_out, 0);
	same("synced pages", accounts->ledger->synced_pages + accounts->ledger->counts.direct_pages,
	     accounts->unmapped_pages);
	if (shadow_oldest())
		sim_fail("accounts", "IOVA page %u is never synced", shadow_oldest());
}
