// SPDX-License-Identifier: GPL-2.0-only
/*
 * The commands that the world of a replay counts for an invalidation (trace/replay/world.c).
 *
 *   world-commands FREES RANGE...	prints the page-selective commands and those of the domain;
 *					FREES 1: page-table pages are freed; RANGE: PAGE+PAGES
 */
#include <stdio.h>

#include "../../trace/replay/world.c"

struct replay replay;

static void fail(void)
{
	fputs("the world has ended\n", stderr);
	exit(1);
}

void replay_violated(u32 invariant, const char *format, ...)
{
	fail();
	__builtin_unreachable();
}

void replay_stop(const char *format, ...)
{
	fail();
	__builtin_unreachable();
}

void engine_broken(const char *text)
{
	fail();
	__builtin_unreachable();
}

int main(int count, char **words)
{
	static struct world world;
	struct xs_range ranges[XS_RANGES_MAX];
	struct xs_commands sent = { 0 };
	xs_gather_t gather;
	u32 used = 0;

	backend_gather_init(&gather);
	gather.frees = count > 1 && words[1][0] == '1';
	for (int at = 2; at < count && used < XS_RANGES_MAX; at++, used++) {
		char *end;

		ranges[used].page = strtoull(words[at], &end, 10);
		ranges[used].pages = strtoull(end + 1, NULL, 10);
	}
	backend_invalidate(&world, &gather, ranges, used, &sent);
	printf("%llu %llu\n", (unsigned long long)sent.page, (unsigned long long)sent.domain);
	return gather.frees || tally.commands_page != sent.page ||
	       tally.commands_domain != sent.domain;
}
