// SPDX-License-Identifier: GPL-2.0-only
/*
 * xsmmu: IOMMU protection without its price, per device, at run time.
 *
 * The module follows devices and drivers by notifiers of the PCI bus. A device gains its sysfs
 * folder when the device appears. It is attached just before its driver probes, and detached
 * with the last of the resources that the driver leaves to be freed (see attach.c). Loading
 * the module changes nothing for any device until the operator or a parameter chooses a
 * policy.
 */
#include <linux/cpuhotplug.h>
#include <linux/crash_dump.h>
#include <linux/device.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/suspend.h>
#include <linux/utsname.h>

#include "attach/attach.h"
#include "attach/choice.h"
#include "compat/range.h"
#include "dma/ops.h"
#include "log.h"
#include "policy/floor.h"
#include "policy/remembered.h"
#include "policy/rules.h"
#include "sysfs.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

static char *policy = "none";
module_param(policy, charp, 0444);
MODULE_PARM_DESC(policy, "NAME: appends the rules class:02=NAME;*=strict, so network devices get NAME, all others strict; auto: appends *=auto (default none)");

static char *rules = "";
module_param(rules, charp, 0444);
MODULE_PARM_DESC(rules, "which devices get which policy: MATCH=POLICY[,TUNABLE:VALUE...];...");

static char *min_level = "";
module_param(min_level, charp, 0444);
MODULE_PARM_DESC(min_level, "lowest level that may be chosen: none, lazy, bounded, held or strict; empty: strict if the kernel's own path is strict, else none");

static bool any_kernel;
module_param(any_kernel, bool, 0444);
MODULE_PARM_DESC(any_kernel, "load on a kernel that is newer than this version supports (default no)");

static enum cpuhp_state hotplug_state;

/*
 * Checks the running kernel, because with CONFIG_MODVERSIONS a kernel loads a module that was
 * built for another kernel.
 */
static bool is_newer(const char *release)
{
	unsigned int major, minor;

	return sscanf(release, "%u.%u", &major, &minor) != 2 ||
	       major > XS_NEWEST_MAJOR ||
	       (major == XS_NEWEST_MAJOR && minor > XS_NEWEST_MINOR);
}

/*
 * A newer kernel may have changed behaviour behind the same declarations, and an unmap may
 * leave the device its access.
 */
static int check_kernel(void)
{
	const char *release = init_utsname()->release;

	if (!is_newer(release))
		return 0;
	if (any_kernel) {
		pr_warn("kernel %s is newer than %d.%d, the newest kernel that this version supports, and any_kernel is set: no level is certain\n",
			release, XS_NEWEST_MAJOR, XS_NEWEST_MINOR);
		return 0;
	}
	pr_err("refused: kernel %s is newer than %d.%d, the newest kernel that this version supports: install a later xsmmu, or load with any_kernel=1\n",
	       release, XS_NEWEST_MAJOR, XS_NEWEST_MINOR);
	return -EOPNOTSUPP;
}

/*
 * The parameter policy stands for two more rules; for `auto` one rule is enough, because
 * `auto` knows NICs itself.
 */
static int read_policy(void)
{
	bool is_auto;
	char *text;
	int error;

	error = xs_floor_start(min_level);
	if (error)
		return error;
	if (!strcmp(policy, "none"))
		return xs_rules_start(rules);
	is_auto = !strcmp(policy, "auto");
	if (!is_auto && !xs_policy_find(policy)) {
		pr_err("refused: unknown policy \"%s\"; valid are none, auto, copy, strict, lazy, fands, xsmmu, fused, strict-identity and fused-identity\n",
		       policy);
		return -EINVAL;
	}
	text = is_auto ? kasprintf(GFP_KERNEL, "%s;*=auto", rules) :
			 kasprintf(GFP_KERNEL, "%s;class:02=%s;*=strict", rules,
				   policy);
	if (!text)
		return -ENOMEM;
	error = xs_rules_start(text);
	kfree(text);
	return error;
}

static void stop_policy(void)
{
	xs_rules_stop();
	xs_remembered_stop();
}

/* The xs_device of a device, made if it is new; NULL if the device is not behind an IOMMU. */
static struct xs_device *get_device_of(struct device *dev)
{
	struct xs_device *xdev = xs_device_find(dev);

	if (xdev)
		return xdev;
	xdev = xs_device_add(dev);
	if (xdev && xs_sysfs_add(xdev))
		dev_warn(dev, "xsmmu: no sysfs folder: out of memory\n");
	return xdev;
}

static int follow(struct notifier_block *block, unsigned long event, void *data)
{
	struct device *dev = data;
	struct xs_device *xdev;

	if (event == BUS_NOTIFY_REMOVED_DEVICE) {
		xs_device_released(dev);
		return NOTIFY_DONE;
	}
	mutex_lock(&xs_mutex);
	switch (event) {
	case BUS_NOTIFY_ADD_DEVICE:
		xdev = get_device_of(dev);
		if (xdev)
			xs_device_appear(xdev);
		break;
	case BUS_NOTIFY_BIND_DRIVER:
		/* Some devices have no IOMMU group before their first driver comes. */
		xdev = get_device_of(dev);
		if (xdev)
			xs_device_bind(xdev);
		break;
	/* A failed probe is notified before the managed resources of the driver are freed. */
	case BUS_NOTIFY_UNBOUND_DRIVER:
		xdev = xs_device_find(dev);
		if (xdev)
			xdev->on_kernel_path = false;
		break;
	}
	mutex_unlock(&xs_mutex);
	return NOTIFY_DONE;
}

/*
 * The IOMMU core follows the bus as well. It makes dev->iommu of a device before this notifier
 * runs, and releases dev->iommu before this notifier runs.
 */
static struct notifier_block follower = { .notifier_call = follow };

/*
 * Forgets a device before the IOMMU core releases the device. So while xs_mutex is held,
 * dev->iommu of a device that xs_device_find() finds does not go.
 */
static void remove(struct xs_device *xdev)
{
	xs_sysfs_remove(xdev);
	xs_device_remove(xdev);
}

static int forget(struct notifier_block *block, unsigned long event, void *data)
{
	struct xs_device *xdev;

	if (event != BUS_NOTIFY_REMOVED_DEVICE)
		return NOTIFY_DONE;
	mutex_lock(&xs_mutex);
	xdev = xs_device_find(data);
	if (xdev)
		remove(xdev);
	mutex_unlock(&xs_mutex);
	return NOTIFY_DONE;
}

static struct notifier_block forgetter = {
	.notifier_call = forget,
	.priority = INT_MAX,
};

/*
 * The unmaps that an offline CPU has deferred, and the memory that it caches, must not wait
 * for it.
 */
static int cpu_dead(unsigned int cpu)
{
	struct xs_group *group;

	list_for_each_entry(group, &xs_running, attachment.running) {
		xs_backend_forget_cpu(&group->backend, cpu);
		xs_engine_retire_cpu(&group->backend.engine, cpu);
	}
	return 0;
}

/*
 * The clock of the window stops in a suspend, so little should wait for a flush: only the
 * unmaps that drivers defer between this notification and their own suspend.
 */
static int suspending(struct notifier_block *block, unsigned long event,
		      void *data)
{
	struct xs_group *group;

	if (event != PM_SUSPEND_PREPARE && event != PM_HIBERNATION_PREPARE)
		return NOTIFY_DONE;
	mutex_lock(&xs_mutex);
	list_for_each_entry(group, &xs_groups, list)
		if (xs_group_is_attached(group))
			xs_engine_flush(&group->backend.engine, XS_FLUSH_DRAIN);
	mutex_unlock(&xs_mutex);
	return NOTIFY_DONE;
}

static struct notifier_block suspender = { .notifier_call = suspending };

static int add_one(struct device *dev, void *unused)
{
	get_device_of(dev);
	return 0;
}

/* Runs when all devices are known, because a bound driver counts for its whole group. */
static int choose_for_one(struct device *dev, void *unused)
{
	struct xs_device *xdev = xs_device_find(dev);

	if (xdev)
		xs_device_appear(xdev);
	return 0;
}

/* Makes the groups of the devices that exist now, and applies rules to them. */
static void add_all(void)
{
	mutex_lock(&xs_mutex);
	bus_for_each_dev(&pci_bus_type, NULL, NULL, add_one);
	bus_for_each_dev(&pci_bus_type, NULL, NULL, choose_for_one);
	mutex_unlock(&xs_mutex);
	if (list_empty(&xs_groups))
		pr_warn("no PCI device is behind an IOMMU: enable the IOMMU in the firmware and on the kernel command line (on Intel: intel_iommu=on)\n");
}

/* Called when no group has an engine. */
static void remove_all(void)
{
	struct xs_group *group;

	mutex_lock(&xs_mutex);
	while (!list_empty(&xs_groups)) {
		/* A group has at least one device, and is freed with its last. */
		group = list_first_entry(&xs_groups, struct xs_group, list);
		remove(list_first_entry(&group->devices,
						  struct xs_device, list));
	}
	mutex_unlock(&xs_mutex);
}

static int __init xsmmu_init(void)
{
	int error;

	/*
	 * In a crash kernel, devices may still write by the tables of the crashed kernel, until the
	 * kernel's own path is first used.
	 */
	if (is_kdump_kernel()) {
		pr_err("refused: this is a crash kernel, whose devices keep the kernel's own path\n");
		return -EPERM;
	}
	error = check_kernel();
	if (error)
		return error;
	xs_ops_init();
	xs_boot_start();
	error = read_policy();
	if (error)
		return error;
	/* The parameter reads as the floor in force. */
	if (!*min_level)
		min_level = (char *)xs_floor_name();
	error = xs_backend_start();
	if (error)
		goto stop_policy;
	error = xs_attach_init();
	if (error)
		goto stop_backend;
	error = cpuhp_setup_state_nocalls(CPUHP_BP_PREPARE_DYN, "xsmmu:dead",
					  NULL, cpu_dead);
	if (error < 0)
		goto stop_attach;
	hotplug_state = error;
	error = register_pm_notifier(&suspender);
	if (error)
		goto stop_hotplug;
	error = bus_register_notifier(&pci_bus_type, &forgetter);
	if (error)
		goto stop_suspend;
	error = bus_register_notifier(&pci_bus_type, &follower);
	if (error)
		goto stop_forgetting;
	add_all();
	return 0;

stop_forgetting:
	bus_unregister_notifier(&pci_bus_type, &forgetter);
stop_suspend:
	unregister_pm_notifier(&suspender);
stop_hotplug:
	cpuhp_remove_state_nocalls(hotplug_state);
stop_attach:
	xs_attach_exit();
stop_backend:
	xs_backend_stop();
stop_policy:
	stop_policy();
	return error;
}

/*
 * No group is attached any more. Finishes the detaches that have waited for the lock of a
 * device.
 */
static int settle(struct device *dev, void *unused)
{
	struct xs_device *xdev;

	device_lock(dev);
	mutex_lock(&xs_mutex);
	xdev = xs_device_find(dev);
	if (xdev)
		xs_device_settle(xdev);
	mutex_unlock(&xs_mutex);
	device_unlock(dev);
	return 0;
}

/* The detach of a device runs under the lock of the device until it returns. */
static int wait_for_release(struct device *dev, void *unused)
{
	device_lock(dev);
	device_unlock(dev);
	return 0;
}

static void __exit xsmmu_exit(void)
{
	/*
	 * After settle(), a new driver of a device gets the kernel's own path, also without the
	 * notifiers.
	 */
	bus_for_each_dev(&pci_bus_type, NULL, NULL, settle);
	bus_unregister_notifier(&pci_bus_type, &follower);
	bus_for_each_dev(&pci_bus_type, NULL, NULL, wait_for_release);
	remove_all();
	bus_unregister_notifier(&pci_bus_type, &forgetter);
	/* Code that has left a section may still be at its last instructions. */
	synchronize_rcu_tasks();
	unregister_pm_notifier(&suspender);
	cpuhp_remove_state_nocalls(hotplug_state);
	xs_attach_exit();
	xs_backend_stop();
	stop_policy();
}

module_init(xsmmu_init);
module_exit(xsmmu_exit);

MODULE_DESCRIPTION("IOMMU protection policies per device, at run time");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
