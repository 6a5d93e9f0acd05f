// SPDX-License-Identifier: GPL-2.0-only
/* Reports of a group: state, level and statistics. */
#include <linux/iommu.h>

#include "attach.h"
#include "../log.h"
#include "state.h"

/*
 * A negative balance is a bug of the module. It is reported once, and the group continues with
 * policy strict, which defers nothing.
 */
static void check_balance(struct xs_group *group)
{
	struct xs_engine *engine = &group->backend.engine;

	if (group->assignment.policy == xs_policy_find("strict") ||
	    xs_engine_live_pages(engine) >= 0 || xs_engine_is_balanced(engine))
		return;
	pr_err("group %d: bug: more pages were unmapped than mapped: the policy is now strict\n",
	       iommu_group_id(group->iommu_group));
	xs_group_fall_back(group);
}

s64 xs_group_live(struct xs_group *group)
{
	lockdep_assert_held(&xs_mutex);
	if (!xs_group_is_attached(group))
		return 0;
	return max_t(s64, xs_engine_live_pages(&group->backend.engine), 0);
}

void xs_group_sum(struct xs_group *group, struct xs_stats *sum)
{
	lockdep_assert_held(&xs_mutex);
	memset(sum, 0, sizeof(*sum));
	if (xs_group_is_attached(group)) {
		check_balance(group);
		xs_engine_stats(&group->backend.engine, sum);
	}
	xs_stats_add(sum, &group->stats.past);
	sum->commands_page += atomic64_read(&group->backend.counts.page);
	sum->commands_domain += atomic64_read(&group->backend.counts.domain);
}

/* True if the group has pages that the IOMMU driver could not remove. */
static bool is_stuck(const struct xs_group *group)
{
	return group->backend.stuck_in ||
	       (xs_group_is_attached(group) && xs_engine_stuck_pages(&group->backend.engine));
}

enum xs_level xs_group_level(const struct xs_group *group)
{
	lockdep_assert_held(&xs_mutex);
	if (!group->attachment.drivers ||
	    xs_backend_has_no_domain(&group->backend) || is_stuck(group))
		return XS_LEVEL_NONE;
	return xs_policy_level(group->assignment.policy,
			       group->attachment.is_aware);
}

const char *xs_group_state(struct xs_group *group)
{
	lockdep_assert_held(&xs_mutex);
	if (!group->assignment.policy)
		return "off";
	if (is_stuck(group))
		return "stuck";
	if (group->attachment.failure)
		return "failed";
	if (!group->attachment.drivers)
		return xs_group_is_attached(group) ? "orphaned" : "idle";
	/* Devices reach pages that their driver considers unmapped. */
	if (xs_engine_torn_pages(&group->backend.engine))
		return "torn";
	/*
	 * Anybody may read the state at any rate, so the locks for statistics are taken only until
	 * the group is active.
	 */
	if (!group->attachment.is_active) {
		xs_engine_stats(&group->backend.engine, &group->stats.sum);
		group->attachment.is_active = group->stats.sum.counts.maps ||
				group->stats.sum.counts.copied_maps;
	}
	return group->attachment.is_active ? "active" : "attached";
}
