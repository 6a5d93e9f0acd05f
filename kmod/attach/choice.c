// SPDX-License-Identifier: GPL-2.0-only
/* Choices for a group, and the choices that are refused: see choice.h. */
#include <linux/iommu.h>
#include <linux/pci.h>

#include "attach.h"
#include "choice.h"
#include "../log.h"
#include "../policy/remembered.h"
#include "state.h"

/* ---- refusals ---- */

static int refuse(struct xs_device *xdev, int error, const char *why)
{
	dev_err(xdev->dev, "xsmmu: refused: %s\n", why);
	return error;
}

static int check_group(const struct xs_group *group)
{
	const char *why;
	struct xs_device *xdev = xs_group_refusal(group, &why);

	return xdev ? refuse(xdev, -EOPNOTSUPP, why) : 0;
}

/* A group changes between the kernel's own path and the module only without drivers. */
static int check_unbound(struct xs_group *group, const struct xs_policy *policy)
{
	struct xs_device *xdev;

	if (policy && group->assignment.policy)
		return 0;
	list_for_each_entry(xdev, &group->devices, list) {
		if (xdev->is_removed)
			continue;
		if (xs_device_has_driver(xdev))
			return refuse(xdev, -EBUSY,
				      "a driver is bound: unbind the drivers of its whole IOMMU group first");
		xdev->on_kernel_path = false;
	}
	return 0;
}

/* @floor: name of the floor if @policy is below it, or NULL. */
static int check_floor(struct xs_group *group, const struct xs_policy *policy,
		       const char *floor)
{
	if (!floor)
		return 0;
	pr_err("group %d: refused: %s is %s, and min_level is %s\n",
	       iommu_group_id(group->iommu_group), policy->name,
	       xs_level_name(xs_policy_level(policy, false)), floor);
	return -EPERM;
}

static int check_orphaned(struct xs_group *group, const struct xs_policy *policy)
{
	if (policy || !xs_group_is_attached(group) || group->attachment.drivers)
		return 0;
	pr_err("group %d: refused: the group is orphaned, and %lld pages are still in use after their driver has gone: close the programs that use the memory, then try again\n",
	       iommu_group_id(group->iommu_group), xs_group_live(group));
	return -EBUSY;
}

static int check_copies(struct xs_group *group, u32 copy_bytes)
{
	if (!copy_bytes || !xs_group_cannot_copy(group))
		return 0;
	pr_err("group %d: refused: copying can begin only while no driver is bound: unbind the drivers of the whole IOMMU group first\n",
	       iommu_group_id(group->iommu_group));
	return -EBUSY;
}

/* Checks that the group can have @next, which the operator has chosen. */
static int check_choice(struct xs_group *group, const struct xs_assignment *next,
			const char *floor)
{
	int error = 0;

	if (next->policy)
		error = check_group(group);
	if (!error && next->policy)
		error = check_copies(group, next->tuning.copy_bytes);
	if (error || xs_assignment_equals(next, &group->assignment))
		return error;
	error = check_floor(group, next->policy, floor);
	if (!error)
		error = check_orphaned(group, next->policy);
	return error ? error : check_unbound(group, next->policy);
}

/* ---- choices of the operator ---- */

/* Puts a choice of the operator in force, and remembers it for each device of the group. */
static void assign_and_remember(struct xs_group *group,
				const struct xs_assignment *next)
{
	struct xs_device *xdev;

	xs_group_assign(group, next);
	list_for_each_entry(xdev, &group->devices, list)
		if (!xdev->is_removed)
			xs_remembered_set(to_pci_dev(xdev->dev), next);
}

int xs_group_choose(struct xs_group *group, const struct xs_policy *policy,
		    bool is_auto)
{
	struct xs_request request = { .policy = policy, .is_auto = is_auto,
				      .direct = group->assignment.direct };
	struct xs_situation situation;
	struct xs_assignment next;
	const char *floor;
	int error;

	lockdep_assert_held(&xs_mutex);
	xs_group_end_orphan(group, NULL);
	xs_group_look(group);
	if (policy)
		request.tuning = xs_tuning_default(policy);
	situation = xs_group_situation(group);
	next = xs_decide_choice(&situation, &request, &floor);
	error = check_choice(group, &next, floor);
	if (!error)
		assign_and_remember(group, &next);
	return error;
}

static int check_change(const struct xs_group *group)
{
	return group->assignment.policy ? check_group(group) : -ENODATA;
}

int xs_group_tune(struct xs_group *group, const struct xs_tuning *tuning,
		  bool copies)
{
	struct xs_assignment next = group->assignment;
	int error;

	lockdep_assert_held(&xs_mutex);
	if (next.line)
		return -ENODATA;
	if (next.policy && !xs_tuning_is_valid(tuning))
		return -ERANGE;
	error = check_change(group);
	if (!error && copies)
		error = check_copies(group, tuning->copy_bytes);
	if (error)
		return error;
	next.tuning = *tuning;
	next.number = xs_remembered_number();
	assign_and_remember(group, &next);
	return 0;
}

/* A device of the group that was not removed; NULL if there is none. */
static struct xs_device *any_device(struct xs_group *group)
{
	struct xs_device *xdev;

	list_for_each_entry(xdev, &group->devices, list)
		if (!xdev->is_removed)
			return xdev;
	return NULL;
}

int xs_group_choose_tables(struct xs_group *group, bool direct)
{
	struct xs_assignment next = group->assignment;
	struct xs_device *xdev = any_device(group);
	const char *why = NULL;
	int error;

	lockdep_assert_held(&xs_mutex);
	error = check_change(group);
	if (error)
		return error;
	xs_group_look(group);
	if (direct && xdev)
		why = xdev->seen.no_tables;
	if (why)
		return refuse(xdev, -EOPNOTSUPP, why);
	/* Choosing direct tables again restarts direct tables that have ended. */
	if (next.direct == direct)
		xs_group_set_tables(group);
	next.direct = direct;
	next.number = xs_remembered_number();
	assign_and_remember(group, &next);
	return 0;
}

/* ---- choices for a device that appears or gets a driver ---- */

/*
 * Leaves a group to the kernel's own path if the module cannot attach one of its devices,
 * whatever a rule says or the operator chose before that device came. The choice applies again
 * at the next device add or bind after the device has gone. Logged again only if the reason
 * for the device changes.
 */
static void pass_over(const struct xs_group *group, struct xs_assignment *next)
{
	struct xs_device *xdev;
	const char *why;

	xdev = next->policy ? xs_group_refusal(group, &why) : NULL;
	if (!xdev)
		return;
	if (xdev->said_refusal != why)
		dev_warn(xdev->dev, "xsmmu: %s is chosen for IOMMU group %d and passed over: %s\n",
			 next->line ? "auto" : next->policy->name,
			 iommu_group_id(group->iommu_group), why);
	xdev->said_refusal = why;
	next->policy = NULL;
	next->line = NULL;
	next->number = 0;
}

static void choose(struct xs_device *xdev, bool binds)
{
	struct xs_situation situation = xs_group_situation(xdev->group);
	struct xs_assignment next;

	if (!xs_others_use_kernel_path(xdev) &&
	    xs_device_has_driver(xdev) == binds)
		situation.now = xs_decide_device(&situation,
						 to_pci_dev(xdev->dev), binds ?
						 xdev->dev->driver->name : NULL,
						 !xs_device_refusal(xdev));
	pass_over(xdev->group, &situation.now);
	next = xs_decide_again(&situation);
	xs_group_assign(xdev->group, &next);
	xs_group_log_auto(xdev->group);
}

void xs_device_appear(struct xs_device *xdev)
{
	lockdep_assert_held(&xs_mutex);
	choose(xdev, false);
}

void xs_device_bind(struct xs_device *xdev)
{
	lockdep_assert_held(&xs_mutex);
	xs_device_prepare(xdev);
	choose(xdev, true);
	xs_device_attach(xdev);
}
