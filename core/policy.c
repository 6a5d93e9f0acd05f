// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The table of policies, and properties of a row.
 *
 * The level is computed, not stored, so that a row cannot claim more than its choices give.
 */
#include <xsmmu/engine.h>

#define XS_DEFERRED (XS_FLUSH_BIT(XS_FLUSH_FULL) | XS_FLUSH_BIT(XS_FLUSH_TIME))

const struct xs_policy xs_policies[] = {
	{
		.name = "copy",
		.placement = XS_PLACE_PAGE,
		.flushes = XS_FLUSH_BIT(XS_FLUSH_UNMAP),
		.scope = XS_SCOPE_RANGE,
		.hold = XS_HOLD_IOVA,
		.window_us = 1000,
		.batch_pages = 1,
		.copy_bytes = 4096,
	}, {
		.name = "strict",
		.placement = XS_PLACE_PAGE,
		.flushes = XS_FLUSH_BIT(XS_FLUSH_UNMAP),
		.scope = XS_SCOPE_RANGE,
		.hold = XS_HOLD_IOVA,
		.window_us = 1000,
		.batch_pages = 1,
	}, {
		.name = "lazy",
		.placement = XS_PLACE_PAGE,
		.flushes = XS_DEFERRED,
		.scope = XS_SCOPE_DOMAIN,
		.hold = XS_HOLD_IOVA,
		.window_us = 10000,
		.batch_pages = 256,
	}, {
		.name = "fands",
		.placement = XS_PLACE_BLOCK,
		.flushes = XS_DEFERRED | XS_FLUSH_BIT(XS_FLUSH_BLOCK) |
			 XS_FLUSH_BIT(XS_FLUSH_EXPLICIT),
		.scope = XS_SCOPE_RANGE,
		.hold = XS_HOLD_IOVA,
		.window_us = 1000,
		.batch_pages = 1024,
	}, {
		.name = "xsmmu",
		.placement = XS_PLACE_PAGE,
		.flushes = XS_DEFERRED | XS_FLUSH_BIT(XS_FLUSH_POLL) |
			 XS_FLUSH_BIT(XS_FLUSH_EXPLICIT),
		.scope = XS_SCOPE_DOMAIN,
		.hold = XS_HOLD_PAGES,
		.window_us = 1000,
		.batch_pages = 1024,
	}, {
		.name = "fused",
		.placement = XS_PLACE_BLOCK,
		.flushes = XS_DEFERRED | XS_FLUSH_BIT(XS_FLUSH_POLL) |
			 XS_FLUSH_BIT(XS_FLUSH_EXPLICIT),
		.scope = XS_SCOPE_AUTO,
		.hold = XS_HOLD_PAGES,
		.window_us = 1000,
		.batch_pages = 1024,
	}, {
		.name = "strict-identity",
		.placement = XS_PLACE_IDENTITY,
		.flushes = XS_FLUSH_BIT(XS_FLUSH_UNMAP),
		.scope = XS_SCOPE_RANGE,
		.hold = XS_HOLD_IOVA,
		.window_us = 1000,
		.batch_pages = 1,
	}, {
		.name = "fused-identity",
		.placement = XS_PLACE_IDENTITY,
		.flushes = XS_DEFERRED | XS_FLUSH_BIT(XS_FLUSH_POLL) |
			 XS_FLUSH_BIT(XS_FLUSH_EXPLICIT),
		.scope = XS_SCOPE_AUTO,
		.hold = XS_HOLD_PAGES,
		.window_us = 1000,
		.batch_pages = 1024,
	},
};

const u32 xs_policy_count = sizeof(xs_policies) / sizeof(xs_policies[0]);

static bool xs_names_equal(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

const struct xs_policy *xs_policy_find(const char *name)
{
	for (u32 i = 0; i < xs_policy_count; i++)
		if (xs_names_equal(xs_policies[i].name, name))
			return &xs_policies[i];
	return 0;
}

enum xs_level xs_policy_level(const struct xs_policy *policy, bool batch_aware)
{
	if (policy->flushes & XS_FLUSH_BIT(XS_FLUSH_UNMAP))
		return XS_LEVEL_STRICT;
	if (batch_aware && xs_policy_waits(policy))
		return XS_LEVEL_STRICT;
	if (!(policy->flushes & XS_FLUSH_BIT(XS_FLUSH_TIME)))
		return XS_LEVEL_LAZY;
	if (policy->hold == XS_HOLD_PAGES)
		return XS_LEVEL_HELD;
	if (policy->flushes & ~XS_DEFERRED)
		return XS_LEVEL_BOUNDED;
	return XS_LEVEL_LAZY;
}

const char *xs_level_name(enum xs_level level)
{
	static const char *const names[] = {
		[XS_LEVEL_NONE] = "none",
		[XS_LEVEL_LAZY] = "lazy",
		[XS_LEVEL_BOUNDED] = "bounded",
		[XS_LEVEL_HELD] = "held",
		[XS_LEVEL_STRICT] = "strict",
	};

	return names[level];
}

const char *xs_flush_name(enum xs_flush_point point)
{
	static const char *const names[XS_FLUSH_COUNT] = {
		[XS_FLUSH_UNMAP] = "unmap",
		[XS_FLUSH_BLOCK] = "block",
		[XS_FLUSH_POLL] = "poll",
		[XS_FLUSH_FULL] = "full",
		[XS_FLUSH_TIME] = "time",
		[XS_FLUSH_EXPLICIT] = "explicit",
		[XS_FLUSH_DRAIN] = "drain",
	};

	return names[point];
}

struct xs_tuning xs_tuning_default(const struct xs_policy *policy)
{
	struct xs_tuning tuning = {
		.window_us = policy->window_us,
		.batch_pages = policy->batch_pages,
		.range_commands_max = 4,
		.copy_bytes = policy->copy_bytes,
		.pool_mib = XS_POOL_MIB,
	};

	return tuning;
}
