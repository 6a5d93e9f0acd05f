// SPDX-License-Identifier: GPL-2.0-only
/* IOMMU groups, their devices, and reports of their state. */
#include <linux/device.h>
#include <linux/iommu.h>
#include <linux/slab.h>

#include "compat/compat.h"
#include "xsmmu.h"

DEFINE_MUTEX(xs_mutex);
LIST_HEAD(xs_groups);
LIST_HEAD(xs_running);

/* ---- groups and devices ---- */

struct xs_device *xs_group_device(const struct xs_group *group,
				  struct device *dev)
{
	struct xs_device *xdev;

	list_for_each_entry(xdev, &group->devices, list)
		if (xdev->dev == dev && !xdev->gone)
			return xdev;
	return NULL;
}

struct xs_device *xs_device_find(struct device *dev)
{
	struct xs_group *group;
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(group, &xs_groups, list) {
		xdev = xs_group_device(group, dev);
		if (xdev)
			return xdev;
	}
	return NULL;
}

/* The group of @iommu_group, made if it is new. Takes over the caller's reference. */
static struct xs_group *group_get(struct iommu_group *iommu_group)
{
	struct xs_group *group;

	list_for_each_entry(group, &xs_groups, list) {
		if (group->iommu_group == iommu_group) {
			iommu_group_put(iommu_group);
			return group;
		}
	}
	group = kvzalloc(sizeof(*group), GFP_KERNEL | __GFP_NOFAIL);
	group->iommu_group = iommu_group;
	INIT_LIST_HEAD(&group->devices);
	xs_backend_create(&group->backend, iommu_group_id(iommu_group));
	list_add_tail(&group->list, &xs_groups);
	return group;
}

void xs_group_clean(struct xs_group *group)
{
	struct xs_device *xdev, *next;

	list_for_each_entry_safe(xdev, next, &group->devices, list) {
		if (xdev->gone) {
			list_del(&xdev->list);
			kfree(xdev);
		}
	}
	if (!list_empty(&group->devices))
		return;
	list_del(&group->list);
	iommu_group_put(group->iommu_group);
	kvfree(group);
}

/*
 * All devices must be known: an unknown device would use the kernel's own path in an engine's
 * domain.
 */
void xs_device_add(struct device *dev)
{
	struct iommu_group *iommu_group;
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	if (xs_device_find(dev))
		return;
	iommu_group = iommu_group_get(dev);
	if (!iommu_group)
		return;	/* not behind an IOMMU */

	xdev = kzalloc(sizeof(*xdev), GFP_KERNEL | __GFP_NOFAIL);
	xdev->dev = dev;
	INIT_LIST_HEAD(&xdev->removed);
	xdev->on_kernel_path = xs_device_has_driver(xdev);
	xdev->group = group_get(iommu_group);
	list_add_tail(&xdev->list, &xdev->group->devices);
	xs_group_look(xdev->group);
	if (xs_sysfs_add(xdev))
		dev_warn(dev, "xsmmu: no sysfs folder: out of memory\n");
}

/*
 * The mutex of the IOMMU group is held, so the domain stays, and so does dev->iommu of each
 * device that is still in the IOMMU core's list of the group.
 */
static int look(struct device *dev, void *group)
{
	struct xs_device *xdev = xs_group_device(group, dev);
	struct iommu_domain *domain;
	struct xs_seen *seen;
	struct xs_root root;

	if (!xdev)
		return 0;
	seen = &xdev->seen;
	memset(seen, 0, sizeof(*seen));
	seen->type = IOMMU_DOMAIN_BLOCKED;
	seen->untried = xs_iommu_check(dev);
	seen->no_tables = seen->untried;
	if (seen->untried)
		return 0;
	seen->iommu = dev->iommu->iommu_dev;
	seen->no_tables = xs_root_find(&root, dev);
	domain = xs_locked_domain(dev);
	if (domain)
		seen->type = domain->type;
	if (seen->type & __IOMMU_DOMAIN_DMA_API)
		seen->unserved = xs_iommu_describe(&seen->like, dev, domain);
	return 0;
}

void xs_group_look(struct xs_group *group)
{
	lockdep_assert_held(&xs_mutex);
	iommu_group_for_each_dev(group->iommu_group, group, look);
}

/*
 * A device that was never attached is freed at once. The mappings of other devices may be in
 * use.
 */
void xs_device_remove(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;

	lockdep_assert_held(&xs_mutex);
	xs_sysfs_remove(xdev);
	if (xdev->taken) {
		xs_device_leave(xdev);
	} else {
		list_del(&xdev->list);
		kfree(xdev);
	}
	if (!group->instance)
		xs_group_clean(group);
}

/*
 * Two allocators must not share a domain. A driver uses the kernel's own path after a failed
 * attach, for example.
 */
bool xs_others_use_kernel_path(struct xs_device *xdev)
{
	struct xs_device *other;

	list_for_each_entry(other, &xdev->group->devices, list) {
		other->on_kernel_path &= xs_device_has_driver(other);
		if (other != xdev && !other->gone && other->on_kernel_path)
			return true;
	}
	return false;
}

/* ---- reports ---- */

/*
 * A negative balance is a bug of the module. It is reported once, and the group continues with
 * policy strict, which defers nothing.
 */
static void check_balance(struct xs_group *group)
{
	if (xs_engine_live(&group->backend.engine) >= 0 ||
	    group->policy == xs_policy_find("strict"))
		return;
	pr_err("group %d: bug: more pages unmapped than mapped; policy is now strict\n",
	       iommu_group_id(group->iommu_group));
	xs_group_be_strict(group);
}

s64 xs_group_live(struct xs_group *group)
{
	lockdep_assert_held(&xs_mutex);
	return group->instance ? xs_engine_live(&group->backend.engine) : 0;
}

void xs_group_sum(struct xs_group *group, struct xs_stats *sum)
{
	lockdep_assert_held(&xs_mutex);
	memset(sum, 0, sizeof(*sum));
	if (group->instance) {
		check_balance(group);
		xs_engine_stats(&group->backend.engine, sum);
	}
	xs_stats_add(sum, &group->past);
	sum->commands_page += atomic64_read(&group->backend.counts.page);
	sum->commands_domain += atomic64_read(&group->backend.counts.domain);
}

/* True if the group has pages that the IOMMU driver could not remove. */
static bool is_stuck(const struct xs_group *group)
{
	return group->backend.stuck_in ||
	       (group->instance && xs_engine_stuck(&group->backend.engine));
}

enum xs_level xs_group_level(const struct xs_group *group)
{
	if (!group->attached || xs_backend_is_blocked(&group->backend) || is_stuck(group))
		return XS_LEVEL_NONE;
	return xs_policy_level(group->policy, group->aware);
}

const char *xs_group_state(struct xs_group *group)
{
	if (!group->policy)
		return "off";
	if (is_stuck(group))
		return "stuck";
	if (group->failure)
		return "failed";
	if (!group->attached)
		return group->instance ? "orphaned" : "idle";
	/* Devices reach pages that their driver considers unmapped. */
	if (xs_engine_torn(&group->backend.engine))
		return "torn";
	/*
	 * Anybody may read the state at any rate, so the locks for statistics are taken only until
	 * the group is active.
	 */
	if (!group->active) {
		xs_engine_stats(&group->backend.engine, &group->sum);
		group->active = group->sum.counts.maps ||
				group->sum.counts.copied_maps;
	}
	return group->active ? "active" : "attached";
}
