// SPDX-License-Identifier: GPL-2.0-only
/* The floor: see floor.h. */
#include <linux/errno.h>
#include <linux/security.h>
#include <linux/string.h>

#include <xsmmu/policy.h>

#include "../log.h"
#include "floor.h"

static enum xs_level floor_level;

bool xs_floor_allows(const struct xs_policy *policy)
{
	return xs_policy_level(policy, false) >= floor_level;
}

int xs_floor_start(const char *name)
{
	if (!*name) {
		/* No lockdown reason exists for DMA; reading device registers is the closest. */
		if (security_locked_down(LOCKDOWN_PCI_ACCESS) || xs_boot_is_strict)
			floor_level = XS_LEVEL_STRICT;
		return 0;
	}
	for (floor_level = 0; floor_level <= XS_LEVEL_STRICT; floor_level++)
		if (!strcmp(name, xs_level_name(floor_level)))
			return 0;
	pr_err("refused: unknown min_level \"%s\"; valid are none, lazy, bounded, held and strict\n",
	       name);
	return -EINVAL;
}

const char *xs_floor_name(void)
{
	return xs_level_name(floor_level);
}
