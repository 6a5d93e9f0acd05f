/* SPDX-License-Identifier: GPL-2.0-only */
/* Reports of a group: state, level and statistics. */
#ifndef XSMMU_STATE_H
#define XSMMU_STATE_H

#include "group.h"

/**
 * xs_group_level - protection level that a group has now
 * @group: the group
 *
 * Context: xs_mutex.
 * Return: the level; XS_LEVEL_NONE if the group is not attached, is blocked, or has stuck pages.
 */
enum xs_level xs_group_level(const struct xs_group *group);

/**
 * xs_group_state - name of the state of a group, as in the sysfs file `state`
 * @group: the group
 *
 * Context: xs_mutex.
 * Return: a constant string.
 */
const char *xs_group_state(struct xs_group *group);

/**
 * xs_group_live - number of pages that drivers have mapped
 * @group: the group
 *
 * Context: xs_mutex.
 * Return: pages; 0 without an engine.
 */
s64 xs_group_live(struct xs_group *group);

/**
 * xs_group_sum - statistics of a group since it was created, over all its engines
 * @group: the group
 * @sum: result
 *
 * Context: xs_mutex.
 */
void xs_group_sum(struct xs_group *group, struct xs_stats *sum);

#endif
