// SPDX-License-Identifier: GPL-2.0-only
/* Which checkers an event goes to; see check.h. */
#include <string.h>

#include "check.h"

#define CHECKERS_OF_EVENT	5

typedef void (*checker)(const struct sim_event *event);

/* The order of checkers is that of how telling their words are. */
static const checker checkers[EV_KINDS][CHECKERS_OF_EVENT] = {
	[EV_FREED] = { check_pages },
	[EV_HANDED] = { check_iova, check_exact },
	[EV_MAPPED] = { check_exact },
	[EV_UNMAPPED] = { check_level, check_pages },
	[EV_ENTRY] = { check_iova },
	[EV_REMOVED] = { check_exact },
	[EV_TABLE_FREED] = { check_tables },
	[EV_SYNCED] = { check_stale },
	[EV_ACCESS] = { check_tables, check_stale, check_exact, check_pages, check_level },
	[EV_REFUSED] = { check_exact },
	[EV_RETURN] = { check_points },
	[EV_TIME] = { check_bound, check_points },
	[EV_ACCOUNTS] = { check_accounts },
};

void check_begin(void)
{
	/* Pages that this run has no IOVAs for stay as they are: never used. */
	memset(&shadow, 0, offsetof(struct shadow, pages) +
	       sim.config.blocks * BLOCK_PAGES * sizeof(shadow.pages[0]));
	for (u32 i = 0; i < sim.config.blocks * BLOCK_PAGES; i++)
		shadow.pages[i].memory = EV_NO_MEMORY;
}

void check_event(const struct sim_event *event)
{
	const checker *at = checkers[event->kind];

	shadow.number++;
	for (u32 i = 0; i < CHECKERS_OF_EVENT && at[i]; i++)
		at[i](event);
	shadow_event(event);
}
