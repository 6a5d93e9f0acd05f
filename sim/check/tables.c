// SPDX-License-Identifier: GPL-2.0-only
/*
 * Invariant 4: a page-table page is freed only after an invalidation without hint of the page's
 * IOVAs, and has been freed when the engine rests. A flush of a batch frees no page-table page:
 * the flush would lose the hint, and the next map would need a new page.
 */
#include "check.h"

static void check_flush(const struct sim_flush *flush)
{
	if (flush->cause != XS_FLUSH_UNMAP && flush->tables &&
	    sim.config.table_lg2 >= SIM_TABLE_LG2)
		sim_fail("tables", "the flush of a batch frees page-table pages");
}

void check_tables(const struct sim_event *event)
{
	const struct shadow_table *table;

	if (event->kind == EV_FLUSH) {
		check_flush((const struct sim_flush *)(size_t)event->b);
		return;
	}
	if (event->kind == EV_ACCESS) {
		if (event->b & ACCESS_DEAD)
			sim_fail("tables", "the IOMMU reads a freed page-table page for IOVA page %u",
				 event->page);
		return;
	}
	if (event->kind == EV_ACCOUNTS) {
		if (shadow.unlinked_count)
			sim_fail("tables", "%u page-table pages are lost", shadow.unlinked_count);
		return;
	}
	table = &shadow.tables[event->a];
	if (table->covered < table->unlinked)
		sim_fail("tables", "the table of IOVA pages %u to %u is freed while it may be cached",
			 table->page, table->page + table->pages - 1);
}
