// SPDX-License-Identifier: GPL-2.0-only
/* See records.h. */
#include "model.h"
#include "records.h"

#define FIRST_ROOM	1024u

static void grow(struct records *all, size_t bytes)
{
	all->room = all->room ? 2 * all->room : FIRST_ROOM;
	all->memory = model_again(all->memory, all->room * bytes);
	all->spare = model_again(all->spare, all->room * sizeof(*all->spare));
}

u32 records_take(struct records *all, size_t bytes)
{
	if (all->spare_count)
		return all->spare[--all->spare_count];
	if (all->count + 1 >= all->room)
		grow(all, bytes);
	return ++all->count;
}

void records_give(struct records *all, u32 number)
{
	all->spare[all->spare_count++] = number;
}
