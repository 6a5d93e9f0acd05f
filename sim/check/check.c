// SPDX-License-Identifier: GPL-2.0-only
/* Dispatches events to checkers; see check.h. */
#include <string.h>

#include "check.h"

void check_begin(void)
{
	u32 end = sim_end_page();

	/* Pages beyond this run's IOVAs are never used and keep their state. */
	memset(&shadow, 0, offsetof(struct shadow, pages) + end * sizeof(shadow.pages[0]));
	for (u32 i = 0; i < end; i++)
		shadow.pages[i].memory = EV_NO_MEMORY;
}

/* The most informative checker comes first. */
static void ask(const struct sim_event *event)
{
	switch (event->kind) {
	case EV_POLICY:
		check_change(event);
		break;
	case EV_FREED:
		check_pages(event);
		break;
	case EV_HANDED:
		check_exact(event);
		/* fall through */
	case EV_ENTRY:
	case EV_MAP_END:
		check_iova(event);
		break;
	case EV_UNMAPPED:
		check_pages(event);
		/* fall through */
	case EV_LEFT:
		check_level(event);
		check_points(event);
		break;
	case EV_MAPPED:
	case EV_REMOVED:
	case EV_REFUSED:
	case EV_STUCK:
		check_exact(event);
		break;
	case EV_TABLE_FREED:
		check_tables(event);
		break;
	case EV_FLUSHED:
		check_stale(event);
		break;
	case EV_FLUSH:
		check_sent(event);
		check_tables(event);
		check_points(event);
		check_accounts(event);
		break;
	case EV_ACCESS:
		check_tables(event);
		check_stale(event);
		check_exact(event);
		check_pages(event);
		check_level(event);
		break;
	case EV_TIME:
		check_bound(event);
		/* fall through */
	case EV_RETURN:
		check_points(event);
		break;
	case EV_ACCOUNTS:
		check_tables(event);
		check_accounts(event);
		break;
	}
}

void check_event(const struct sim_event *event)
{
	shadow.number++;
	if (event->kind == EV_NAMED_END || event->kind == EV_PART_REMOVED ||
	    event->kind == EV_ACCESS)
		check_torn(event);
	if (event->kind == EV_MAP_FLUSH)
		check_sent(event);
	else if (event->kind == EV_READING || event->kind == EV_FULL || event->kind == EV_LISTED)
		check_accounts(event);
	else
		ask(event);
	shadow_event(event);
}
