// SPDX-License-Identifier: GPL-2.0-only
/* The policy table, and the level of each row and of unusual rows. */
#include <xsmmu/policy.h>

#include "harness.h"

/* The table of DESIGN, row by row. */
static const struct {
	const char *name;
	enum xs_level unmodified, batch_aware;
	bool deferring;
	u32 copy_bytes;
} expected[] = {
	{ "copy", XS_LEVEL_STRICT, XS_LEVEL_STRICT, false, 4096 },
	{ "strict", XS_LEVEL_STRICT, XS_LEVEL_STRICT, false, 0 },
	{ "lazy", XS_LEVEL_LAZY, XS_LEVEL_LAZY, true, 0 },
	{ "fands", XS_LEVEL_BOUNDED, XS_LEVEL_STRICT, true, 0 },
	{ "xsmmu", XS_LEVEL_HELD, XS_LEVEL_STRICT, true, 0 },
	{ "fused", XS_LEVEL_HELD, XS_LEVEL_STRICT, true, 0 },
};

static void rows(void)
{
	const u32 count = sizeof(expected) / sizeof(expected[0]);
	const u32 bound = XS_FLUSH_BIT(XS_FLUSH_TIME) | XS_FLUSH_BIT(XS_FLUSH_FULL);

	for (u32 i = 0; i < count; i++) {
		const struct xs_policy *row = xs_policy_find(expected[i].name);

		if (!CHECK(row))
			return;
		CHECK(xs_policy_level(row, false) == expected[i].unmodified);
		CHECK(xs_policy_level(row, true) == expected[i].batch_aware);
		CHECK(((row->flushes & bound) == bound) == expected[i].deferring);
		CHECK(row->copy_bytes == expected[i].copy_bytes);
	}
	for (u32 i = 0; i < xs_policy_count; i++) {
		CHECK(xs_policy_find(xs_policies[i].name) == &xs_policies[i]);
		CHECK(xs_policies[i].window_us && xs_policies[i].batch_pages);
	}
}

static void names(void)
{
	const enum xs_level levels[] = { XS_LEVEL_NONE, XS_LEVEL_LAZY,
					 XS_LEVEL_BOUNDED, XS_LEVEL_HELD,
					 XS_LEVEL_STRICT };

	CHECK(!xs_policy_find("") && !xs_policy_find("stric") &&
	      !xs_policy_find("strictt") && !xs_policy_find("none"));
	for (u32 i = 0; i < 5; i++)
		CHECK(xs_level_name(levels[i])[0] == "nlbhs"[i]);
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		CHECK(xs_flush_name(i)[0] == "ubpfted"[i]);
}

/*
 * A simple model of the level: each level lists requirements. A row gets the strongest level
 * with requirements that the row meets.
 */
static enum xs_level level_of(u32 flushes, enum xs_hold hold, bool aware)
{
	const u32 time = XS_FLUSH_BIT(XS_FLUSH_TIME);
	const u32 asked = XS_FLUSH_BIT(XS_FLUSH_EXPLICIT);
	const u32 soon = XS_FLUSH_BIT(XS_FLUSH_POLL) | asked |
			 XS_FLUSH_BIT(XS_FLUSH_BLOCK) |
			 XS_FLUSH_BIT(XS_FLUSH_DRAIN);

	if (flushes & XS_FLUSH_BIT(XS_FLUSH_UNMAP) || (aware && flushes & asked))
		return XS_LEVEL_STRICT;
	if (flushes & time && hold == XS_HOLD_PAGES)
		return XS_LEVEL_HELD;
	if (flushes & time && flushes & soon)
		return XS_LEVEL_BOUNDED;
	return XS_LEVEL_LAZY;
}

/* Every set of flush points: never stronger than the model, and monotonic. */
static void odd_rows(void)
{
	for (u32 flushes = 0; flushes < 1u << XS_FLUSH_COUNT; flushes++)
		for (u32 hold = XS_HOLD_IOVA; hold <= XS_HOLD_PAGES; hold++) {
			const struct xs_policy row = { .flushes = flushes,
						       .hold = hold };
			enum xs_level plain = xs_policy_level(&row, false);
			enum xs_level aware = xs_policy_level(&row, true);

			CHECK(plain == level_of(flushes, hold, false));
			CHECK(aware == level_of(flushes, hold, true));
			CHECK(aware >= plain);
			CHECK(plain > XS_LEVEL_NONE);
		}
}

const struct test policy_tests[] = {
	{ "policy_rows", rows },
	{ "policy_names", names },
	{ "policy_odd_rows", odd_rows },
	{ NULL, NULL },
};
