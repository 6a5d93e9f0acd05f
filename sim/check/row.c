// SPDX-License-Identifier: GPL-2.0-only
/*
 * Expected behaviour of each policy. The rows repeat docs/levels.md, so that a changed row of
 * the policy table is detected; a policy missing here is expected to do as the policy table
 * says.
 */
#include <string.h>

#include "check.h"

static const struct {
	const char *name;
	struct check_row row;
} said[] = {
	{ "copy", { POINT_UNMAP, SENDS_RANGES } },	/* mappings that are not copied */
	{ "strict", { POINT_UNMAP, SENDS_RANGES } },	/* pages left from the previous policy */
	{ "lazy", { 0, SENDS_DOMAIN } },
	{ "fands", { POINT_BLOCK, SENDS_RANGES } },
	{ "xsmmu", { POINT_POLL, SENDS_DOMAIN } },
	{ "fused", { POINT_POLL, SENDS_SET } },
};

static const u32 sends_by_scope[] = {
	[XS_SCOPE_RANGE] = SENDS_RANGES,
	[XS_SCOPE_DOMAIN] = SENDS_DOMAIN,
	[XS_SCOPE_AUTO] = SENDS_SET,
};

struct check_row check_row_of(u32 number)
{
	const struct xs_policy *policy = &xs_policies[number];
	struct check_row row = { .sends = sends_by_scope[policy->scope] };

	for (u32 i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		if (!strcmp(said[i].name, policy->name))
			return said[i].row;
	if (policy->flushes & XS_FLUSH_BIT(XS_FLUSH_POLL))
		row.points |= POINT_POLL;
	if (policy->flushes & XS_FLUSH_BIT(XS_FLUSH_BLOCK))
		row.points |= POINT_BLOCK;
	if (policy->flushes & XS_FLUSH_BIT(XS_FLUSH_UNMAP))
		row.points |= POINT_UNMAP;
	return row;
}
