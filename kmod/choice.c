// SPDX-License-Identifier: GPL-2.0-only
/*
 * Choices of policies for groups, by the operator or by the rules given at load, and the
 * choices that are refused.
 *
 * A choice of the operator is remembered by the addresses of the group's devices as long as
 * the module is loaded, so the choice applies again after a re-plug, and to a virtual function
 * that is made anew. If devices of a group have different choices, the last choice counts.
 * Vendor, device and class are remembered, too: if another device is at the address, the
 * choice is dropped and the rules apply. Rules never change a choice of the operator. If rules
 * differ for devices of one group, the highest level counts. A choice may be `auto`: auto.c is
 * then asked again whenever its facts may have changed.
 */
#include <linux/cc_platform.h>
#include <linux/dma-map-ops.h>
#include <linux/pci.h>
#include <linux/security.h>
#include <linux/slab.h>

#include "xsmmu.h"

/* A choice of the operator, for one device. @number: sequence number of the choice. */
struct remembered {
	struct list_head list;
	struct xs_address address;
	u16 vendor;
	u16 device;
	u32 class;
	struct xs_choice choice;
	u64 number;
};

static LIST_HEAD(memory);
static u64 choices;

/*
 * Lowest level that may be chosen. A policy counts with its level for drivers that are not
 * batch-aware.
 */
static enum xs_level floor_level;

/* ---- floor ---- */

bool xs_choice_is_allowed(const struct xs_policy *policy)
{
	return xs_policy_level(policy, false) >= floor_level;
}

static int set_floor(const char *name)
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

const char *xs_choice_floor(void)
{
	return xs_level_name(floor_level);
}

/* ---- choices of the operator ---- */

bool xs_address_is(const struct xs_address *address, struct pci_dev *pdev)
{
	return address->domain == pci_domain_nr(pdev->bus) &&
	       address->bus == pdev->bus->number &&
	       address->devfn == pdev->devfn;
}

static struct remembered *find(struct pci_dev *pdev)
{
	struct remembered *found;

	list_for_each_entry(found, &memory, list)
		if (xs_address_is(&found->address, pdev))
			return found;
	return NULL;
}

/* As find(), but drops a choice that was made for another device at the same address. */
static struct remembered *find_own(struct xs_device *xdev)
{
	struct pci_dev *pdev = to_pci_dev(xdev->dev);
	struct remembered *found = find(pdev);
	const char *name = "none";

	if (!found || (found->vendor == pdev->vendor &&
		       found->device == pdev->device &&
		       found->class == pdev->class))
		return found;
	if (found->choice.policy)
		name = found->choice.is_auto ? "auto" :
					       found->choice.policy->name;
	dev_warn(xdev->dev, "xsmmu: the choice of %s is dropped: it was for device %04x:%04x of class %06x, which was at this address before: choose again\n",
		 name, found->vendor, found->device, found->class);
	list_del(&found->list);
	kfree(found);
	return NULL;
}

/* Without memory for a record, the choice is lost when the device is removed. */
static void remember(struct xs_group *group)
{
	struct remembered *found;
	struct xs_device *xdev;

	group->chosen = ++choices;
	list_for_each_entry(xdev, &group->devices, list) {
		struct pci_dev *pdev = to_pci_dev(xdev->dev);

		if (xdev->gone)
			continue;
		found = find(pdev);
		if (!found) {
			found = kzalloc(sizeof(*found), GFP_KERNEL);
			if (!found)
				return;
			found->address.domain = pci_domain_nr(pdev->bus);
			found->address.bus = pdev->bus->number;
			found->address.devfn = pdev->devfn;
			list_add(&found->list, &memory);
		}
		found->vendor = pdev->vendor;
		found->device = pdev->device;
		found->class = pdev->class;
		found->number = group->chosen;
		found->choice.policy = group->policy;
		found->choice.is_auto = group->auto_line;
		found->choice.tuning = group->tuning;
		found->choice.direct = group->direct;
	}
}

/* ---- refusals ---- */

static int refuse(struct xs_device *xdev, int error, const char *why)
{
	dev_err(xdev->dev, "xsmmu: refused: %s\n", why);
	return error;
}

const char *xs_device_refusal(const struct xs_device *xdev)
{
	const struct pci_dev *pdev = to_pci_dev(xdev->dev);

	if (xdev->seen.untried)
		return xdev->seen.untried;
	if (xdev->seen.unserved)
		return xdev->seen.unserved;
	/* The kernel's own path first shares memory with the host. */
	if (cc_platform_has(CC_ATTR_GUEST_MEM_ENCRYPT))
		return "the memory of this guest is encrypted, and devices cannot read it";
	/* Devices that are plugged in behind an external-facing port are untrusted. */
	if (pdev->untrusted || pdev->external_facing)
		return "untrusted (external-facing) device: leave its IOMMU group to the kernel's own path (policy none), which is strict for such devices and copies partial pages";
	if (!dev_is_dma_coherent(xdev->dev))
		return "its DMA is not coherent with the CPU's caches";
	return NULL;
}

struct xs_device *xs_group_refusal(const struct xs_group *group,
				   const char **why)
{
	struct xs_device *xdev;

	if (group->instance)
		return NULL;
	list_for_each_entry(xdev, &group->devices, list) {
		*why = xdev->gone ? NULL : xs_device_refusal(xdev);
		if (*why)
			return xdev;
	}
	return NULL;
}

static int check_group(const struct xs_group *group)
{
	const char *why;
	struct xs_device *xdev = xs_group_refusal(group, &why);

	return xdev ? refuse(xdev, -EOPNOTSUPP, why) : 0;
}

/* A group changes between the kernel's own path and the module only without drivers. */
static int check_unbound(struct xs_device *xdev)
{
	if (xs_device_has_driver(xdev))
		return refuse(xdev, -EBUSY,
			      "a driver is bound: unbind the drivers of its whole IOMMU group first");
	xdev->on_kernel_path = false;
	return 0;
}

static int check_floor(struct xs_group *group, const struct xs_policy *policy)
{
	if (!policy || xs_choice_is_allowed(policy))
		return 0;
	pr_err("group %d: refused: %s is %s, and min_level is %s\n",
	       iommu_group_id(group->iommu_group), policy->name,
	       xs_level_name(xs_policy_level(policy, false)),
	       xs_level_name(floor_level));
	return -EPERM;
}

static int check_orphaned(struct xs_group *group, const struct xs_policy *policy)
{
	if (policy || !group->instance || group->attached)
		return 0;
	pr_err("group %d: refused: it is orphaned, as %lld pages are still in use after their driver has gone\n",
	       iommu_group_id(group->iommu_group), xs_group_live(group));
	return -EBUSY;
}

/* With operations that do not copy, the DMA core skips dma_sync_*() calls, too. */
bool xs_group_cannot_copy(const struct xs_group *group)
{
	return group->instance && !xs_instance_copies(&group->instance->ops);
}

struct xs_tuning xs_group_tuning(const struct xs_group *group)
{
	struct xs_tuning tuning = group->tuning;

	tuning.batch_aware = group->aware;
	/*
	 * A rule, or an earlier choice for a device that has joined late, may have set copy_bytes.
	 */
	if (xs_group_cannot_copy(group))
		tuning.copy_bytes = 0;
	return tuning;
}

static int check_copies(struct xs_group *group, u32 copy_bytes)
{
	if (!copy_bytes || !xs_group_cannot_copy(group))
		return 0;
	pr_err("group %d: refused: copying begins before a driver does: unbind the drivers of the whole IOMMU group first\n",
	       iommu_group_id(group->iommu_group));
	return -EBUSY;
}

/* ---- choosing ---- */

/* A device of the group that was not removed; NULL if there is none. */
static struct xs_device *any_device(struct xs_group *group)
{
	struct xs_device *xdev;

	list_for_each_entry(xdev, &group->devices, list)
		if (!xdev->gone)
			return xdev;
	return NULL;
}

/* An attached device with a driver; NULL while the group is orphaned. */
static struct xs_device *bound_device(struct xs_group *group)
{
	struct xs_device *xdev;

	list_for_each_entry(xdev, &group->devices, list)
		if (xdev->bound && !xdev->blocked)
			return xdev;
	return NULL;
}

static void set_tables(struct xs_group *group, bool direct)
{
	struct xs_device *xdev = bound_device(group);
	struct xs_backend_config config;

	group->direct = direct;
	if (!group->instance)
		return;
	if (xdev)
		config = xs_group_backend_config(group, xdev);
	xs_backend_set_tables(&group->backend, xdev ? &config : NULL);
}

/* Evaluates `auto`, if `auto` is chosen. */
static void resolve(const struct xs_group *group, struct xs_choice *choice)
{
	if (!choice->is_auto)
		return;
	choice->line = xs_auto_find(group);
	choice->policy = xs_policy_find(choice->line->policy);
	choice->tuning = xs_tuning_default(choice->policy);
}

static void set(struct xs_group *group, const struct xs_choice *choice)
{
	group->policy = choice->policy;
	group->auto_line = choice->line;
	group->failure = NULL;
	if (!choice->policy)
		return;
	group->tuning = choice->tuning;
	if (group->direct != choice->direct)
		set_tables(group, choice->direct);
	xs_group_set(group);
}

/* True if making @choice, with its defaults, would change nothing. */
static bool is_chosen(const struct xs_group *group, const struct xs_choice *choice)
{
	const struct xs_tuning *now = &group->tuning, *then = &choice->tuning;

	return choice->policy == group->policy &&
	       choice->line == group->auto_line &&
	       (!choice->policy ||
		(now->window_us == then->window_us &&
		 now->batch_pages == then->batch_pages &&
		 now->range_commands_max == then->range_commands_max &&
		 now->copy_bytes == then->copy_bytes &&
		 now->pool_mib == then->pool_mib));
}

int xs_group_choose(struct xs_group *group, const struct xs_policy *policy,
		    bool is_auto)
{
	struct xs_choice choice = { .policy = policy, .is_auto = is_auto,
				    .direct = group->direct };
	struct xs_device *xdev;
	int error = 0;

	lockdep_assert_held(&xs_mutex);
	xs_group_end_orphan(group, NULL);
	xs_group_look(group);
	if (policy)
		choice.tuning = xs_tuning_default(policy);
	resolve(group, &choice);
	policy = choice.policy;
	if (policy)
		error = check_group(group);
	if (!error && policy)
		error = check_copies(group, choice.tuning.copy_bytes);
	if (!error && is_chosen(group, &choice)) {
		remember(group);
		return 0;
	}
	if (!error)
		error = check_floor(group, policy);
	if (!error)
		error = check_orphaned(group, policy);
	list_for_each_entry(xdev, &group->devices, list)
		if (!error && !xdev->gone && (!policy || !group->policy))
			error = check_unbound(xdev);
	if (error)
		return error;
	set(group, &choice);
	xs_auto_say(group);
	remember(group);
	return 0;
}

void xs_group_be_strict(struct xs_group *group)
{
	struct xs_choice strict = { .policy = xs_policy_find("strict"),
				    .direct = group->direct };

	strict.tuning = xs_tuning_default(strict.policy);
	set(group, &strict);
}

bool xs_tuning_is_valid(const struct xs_tuning *tuning)
{
	return tuning->window_us && tuning->window_us <= XS_WINDOW_MAX_US &&
	       tuning->batch_pages &&
	       tuning->batch_pages <= XS_BATCH_MAX_PAGES &&
	       tuning->range_commands_max &&
	       tuning->range_commands_max <= XS_RANGES_MAX &&
	       tuning->copy_bytes <= XS_BOUNCE_MAX_BYTES &&
	       tuning->pool_mib >= XS_CHUNK_BYTES >> 20 &&
	       tuning->pool_mib <= XS_POOL_MAX_MIB;
}

static int check_change(const struct xs_group *group)
{
	return group->policy ? check_group(group) : -ENODATA;
}

int xs_group_tune(struct xs_group *group, const struct xs_tuning *tuning,
		  bool copies)
{
	int error;

	lockdep_assert_held(&xs_mutex);
	if (group->auto_line)
		return -ENODATA;
	if (group->policy && !xs_tuning_is_valid(tuning))
		return -ERANGE;
	error = check_change(group);
	if (!error && copies)
		error = check_copies(group, tuning->copy_bytes);
	if (error)
		return error;
	group->tuning = *tuning;
	xs_group_set(group);
	remember(group);
	return 0;
}

int xs_group_choose_tables(struct xs_group *group, bool direct)
{
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
	set_tables(group, direct);
	remember(group);
	return 0;
}

static bool is_stronger(const struct xs_choice *choice,
			const struct xs_group *group)
{
	return choice->policy &&
	       (!group->policy || xs_policy_level(choice->policy, false) >
					  xs_policy_level(group->policy, false));
}

/*
 * Applies the choice of a rule if it does not lower the level. The rule of a blocked device
 * does not change its group.
 */
static void follow(struct xs_device *xdev, const struct xs_choice *rule)
{
	struct xs_choice choice;

	if (!rule)
		return;
	choice = *rule;
	resolve(xdev->group, &choice);
	if (is_stronger(&choice, xdev->group) &&
	    !(xdev->group->instance && xs_device_refusal(xdev)))
		set(xdev->group, &choice);
}

/* Applies an earlier choice for the device, which is newer than the choice for its group. */
static void recall(struct xs_device *xdev, const struct remembered *before)
{
	struct xs_choice choice = before->choice;

	resolve(xdev->group, &choice);
	/* A device that joins a group with an engine cannot lower the group's level. */
	if (!xdev->group->instance || is_stronger(&choice, xdev->group))
		set(xdev->group, &choice);
	xdev->group->chosen = before->number;
}

static bool weakens(const struct xs_choice *choice, const struct xs_group *group)
{
	return xs_policy_level(choice->policy, group->aware) <
	       xs_policy_level(group->policy, group->aware);
}

bool xs_group_decide_again(struct xs_group *group)
{
	struct xs_choice choice = { .is_auto = true, .direct = group->direct };

	lockdep_assert_held(&xs_mutex);
	if (!group->auto_line)
		return false;
	resolve(group, &choice);
	if (choice.line == group->auto_line ||
	    (group->instance && weakens(&choice, group)))
		return false;
	set(group, &choice);
	xs_auto_say(group);
	return true;
}

/* Applies the earlier choice for the device, or the rules, to its group. */
static void find_choice(struct xs_device *xdev, bool binds)
{
	struct pci_dev *pdev = to_pci_dev(xdev->dev);
	struct remembered *before = find_own(xdev);

	if (xs_others_use_kernel_path(xdev) ||
	    xs_device_has_driver(xdev) != binds)
		return;
	if (before && before->number > xdev->group->chosen)
		recall(xdev, before);
	if (!xdev->group->chosen)
		follow(xdev, xs_rules_find(pdev, binds ?
					   xdev->dev->driver->name : NULL));
}

/*
 * Leaves a group to the kernel's own path if the module cannot attach one of its devices,
 * whatever a rule says or the operator chose before that device came. The choice applies again
 * at the next device add or bind after the device has gone. Logged again only if the reason
 * for the device changes.
 */
static void pass_over(struct xs_group *group)
{
	static const struct xs_choice none;
	struct xs_device *xdev;
	const char *why;

	xdev = group->policy ? xs_group_refusal(group, &why) : NULL;
	if (!xdev)
		return;
	if (xdev->passed_over != why)
		dev_warn(xdev->dev, "xsmmu: %s is chosen for IOMMU group %d and passed over: %s\n",
			 group->auto_line ? "auto" : group->policy->name,
			 iommu_group_id(group->iommu_group), why);
	xdev->passed_over = why;
	set(group, &none);
	group->chosen = 0;
}

void xs_device_choose(struct xs_device *xdev, bool binds)
{
	lockdep_assert_held(&xs_mutex);
	find_choice(xdev, binds);
	pass_over(xdev->group);
	xs_group_decide_again(xdev->group);
	xs_auto_say(xdev->group);
}

int xs_choice_start(const char *rules, const char *min_level)
{
	int error = set_floor(min_level);

	return error ? error : xs_rules_start(rules);
}

void xs_choice_stop(void)
{
	struct remembered *found, *next;

	xs_rules_stop();
	list_for_each_entry_safe(found, next, &memory, list)
		kfree(found);
	INIT_LIST_HEAD(&memory);
}
