// SPDX-License-Identifier: GPL-2.0-only
/* The histogram's buckets, and sums. */
#include <xsmmu/stats.h>

#include "harness.h"

/* Find the bucket that counts @ns by searching. */
static u32 bucket_of(struct xs_stats *stats, u64 ns)
{
	u32 found = XS_EXPOSURE_BUCKETS;

	xs_stats_expose(stats, ns, 3);
	for (u32 i = 0; i < XS_EXPOSURE_BUCKETS; i++) {
		if (!stats->exposure[i])
			continue;
		CHECK(found == XS_EXPOSURE_BUCKETS && stats->exposure[i] == 3);
		found = i;
	}
	if (CHECK(found < XS_EXPOSURE_BUCKETS))
		stats->exposure[found] = 0;
	return found;
}

static void check_bucket(struct xs_stats *stats, u64 ns)
{
	u32 bucket = bucket_of(stats, ns);
	u64 last = xs_stats_bucket_last_ns(bucket);

	if (ns >> XS_EXPOSURE_MAX_LG2) {
		CHECK(bucket == XS_EXPOSURE_BUCKETS - 1);
		return;
	}
	CHECK(ns <= last);
	CHECK((last - ns) * 4 <= ns || last == ns);
	CHECK(!bucket || xs_stats_bucket_last_ns(bucket - 1) < ns);
}

static void bounds(void)
{
	struct xs_stats *stats = test_alloc(sizeof(*stats));

	for (u64 ns = 0; ns < 5000; ns++)
		check_bucket(stats, ns);
	for (u32 lg2 = 12; lg2 < 64; lg2++)
		for (u64 part = 0; part < 8; part++)
			for (u64 near = 0; near < 3; near++)
				check_bucket(stats, (1ULL << lg2) - 1 + near +
						     (part << (lg2 - 3)));
	CHECK(stats->exposure_max_ns == (1ULL << 63) + 1 + (7ULL << 60));
	for (u32 i = 1; i < XS_EXPOSURE_BUCKETS; i++)
		CHECK(xs_stats_bucket_last_ns(i) >
		      xs_stats_bucket_last_ns(i - 1));
	test_free(stats);
}

/* A sum adds every word of @b to @a, except the maximum and its owner. */
static void sums(void)
{
	struct xs_stats *a = test_alloc(sizeof(*a));
	struct xs_stats *b = test_alloc(sizeof(*b));
	u64 *wa = (u64 *)a, *wb = (u64 *)b;

	for (u32 i = 0; i < sizeof(*a) / sizeof(u64); i++) {
		wa[i] = i;
		wb[i] = 1000 + 3 * i;
	}
	xs_stats_add(a, b);
	for (u32 i = 0; i < sizeof(*a) / sizeof(u64); i++)
		CHECK(&wa[i] == (u64 *)&a->counts.cpu ||
		      wa[i] == (&wa[i] == &a->exposure_max_ns ?
				1000 + 3 * i : 1000 + 4 * i));
	a->exposure_max_ns = ~0ULL;
	xs_stats_add(a, b);
	CHECK(a->exposure_max_ns == ~0ULL);
	CHECK(xs_counts_mapped(&b->counts) ==
	      b->counts.maps + b->counts.map_extra_pages);
	CHECK(xs_counts_unmapped(&b->counts) ==
	      b->counts.unmaps + b->counts.unmap_extra_pages);
	test_free(a);
	test_free(b);
}

/* Pages flushed inside unmaps count as immediate, and add no exposure. */
static void immediate(void)
{
	struct xs_stats *sum = test_alloc(sizeof(*sum));
	struct xs_counts counts = { .immediate = 3, .immediate_pages = 5,
				    .immediate_page = 7, .immediate_domain = 11,
				    .immediate_global = 13 };
	u64 *words = (u64 *)sum, total = 0;

	xs_stats_add_immediate(sum, &counts);
	CHECK(sum->flushes[XS_FLUSH_UNMAP] == 3 && sum->exposure[0] == 5);
	CHECK(sum->commands_page == 7 && sum->commands_domain == 11);
	CHECK(sum->commands_global == 13);
	for (u32 i = 0; i < sizeof(*sum) / sizeof(u64); i++)
		total += words[i];
	CHECK(total == 3 + 5 + 7 + 11 + 13);
	test_free(sum);
}

const struct test stats_tests[] = {
	{ "stats_bounds", bounds },
	{ "stats_sums", sums },
	{ "stats_immediate", immediate },
	{ NULL, NULL },
};
