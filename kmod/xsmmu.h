/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declarations that the files of the module share.
 *
 * A struct xs_group is an IOMMU group. The devices of a group share an address space, and so a
 * policy and, while any of them has a driver, an engine. A policy is chosen while no driver is
 * bound. The group is attached when the first driver binds: the DMA operations of its devices
 * become those of the module. The group is detached when the last driver is gone and nothing is
 * mapped any more. The engine works on the group's default domain, in which the IOMMU core has
 * already mapped the reserved regions. Nothing else allocates IOVAs in the domain meanwhile,
 * because all devices of the group that do DMA use the engine.
 *
 * Memory that a driver has allocated may be freed long after the driver is gone. Until then the
 * group is orphaned: the devices keep the module's operations and the engine keeps its records,
 * but the module no longer uses the domain, which may change or go.
 *
 * Locks, outermost first:
 *
 *   device_lock()	guards the DMA bits of struct device (see attach.c)
 *   xs_mutex		guards the list of groups and all state of groups and devices, except the
 *			engine; sleeps, and is never taken on the DMA path
 *   group mutex	of the IOMMU core; held where iommu_group_for_each_dev() calls back
 *   group->trimming	guards the pool's chunks, the retries of removals and changes of the domain
 *
 * CPU-hotplug callbacks do not take xs_mutex: the IOMMU core waits for CPU hotplug with the group
 * mutex held, and the module takes the group mutex with xs_mutex held. xs_running changes with
 * xs_mutex and cpus_read_lock() held, so a CPU-hotplug callback may read the list.
 */
#ifndef XSMMU_KMOD_H
#define XSMMU_KMOD_H

#include <linux/dma-map-ops.h>
#include <linux/hrtimer.h>
#include <linux/jump_label.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>

#include <xsmmu/engine.h>

#include "debug.h"
#include "dma/misuse.h"
#include "dma/ops.h"
#include "domain/domain.h"
#include "iommu/iommu.h"
#include "log.h"

#define XS_MSI_PAGES	8

/**
 * struct xs_group - an IOMMU group
 *
 * Lifetimes: the group exists while it has a device. The fields from @instance to @cpus describe
 * the attachment and are valid while @instance is not NULL. Unless said otherwise, a field is
 * written under xs_mutex.
 *
 * "sections" below means readers on the DMA path, which are in an RCU section of the engine or an
 * SRCU section of &xs_backend_srcu.
 *
 * @engine:	must be the first member: the engine's address is the address of its backend, the
 *		group. Has its own locks
 * @list:	entry in xs_groups
 * @running:	entry in xs_running while the group has an engine; changes under xs_mutex and
 *		cpus_read_lock()
 * @iommu_group: referenced; constant
 * @policy:	chosen policy; NULL for none
 * @auto_line:	line of the table of `auto` that chose @policy; NULL if `auto` is not in force
 * @tuning:	chosen tunables; valid if @policy is not NULL
 * @direct:	direct tables are chosen
 * @chosen:	sequence number of the operator's choice; 0 if the operator made none
 * @clean:	no stale kernel mappings: the last scan found nothing mapped below 4 GiB, the kernel
 *		maps no MSI pages in the domain, and no driver has used the kernel's own path since
 * @msi_pages:	IOVAs of MSI pages that the last scan found
 * @msi_page_count: number of @msi_pages
 * @devices:	list of struct xs_device, one for each PCI device of the group
 * @attached:	number of devices with a driver that the module serves, blocked devices
 *		included
 * @aware:	all drivers of attached devices are batch-aware
 * @instance:	the dma_ops instance of the devices; not NULL while the group has an engine
 * @domain:	the group's default domain. While the group is orphaned, and until a driver binds
 *		for which the domain translates, a blocking domain. Changes under xs_mutex and
 *		@trimming; read in sections
 * @geometry:	geometry of the default domain when the engine was made
 * @tables:	state of direct tables. @tables.on is set under xs_mutex and may be cleared in any
 *		context; read in sections
 * @root:	page table of the domain, if its driver prunes (@iommu.prunes); @root.format is NULL
 *		if the table was not found
 * @is_known:	the backend calls the domain's own operations; else it calls the IOMMU core
 * @maps_generic: a map needs only the map of the generic page tables; read in sections
 * @map_pages:	the domain operation for the map fast path; NULL if a map needs more than that
 *		operation; read in sections
 * @unmap_pages: the domain's operation that unmaps single pages; NULL if the domain has none;
 *		read in sections
 * @name:	name of the device for which the engine was made, for the log
 * @active:	the engine has counted a map
 * @strayed:	a warning was logged of an ignored call; no lock: a race logs twice
 * @torn:	a warning was logged of an unmap that does not match its mapping; no lock
 * @stuck_in:	the domain that the group left while pages could not be removed from that domain;
 *		NULL for none. Only compared, never dereferenced. Written under @trimming
 * @stuck_live:	some of the pages in @stuck_in are still mapped for a driver, and the engine does
 *		not know them as stuck: pages that are unmapped now become stuck, too. Written under
 *		@trimming; set for a mapping under @leaving
 * @left:	the previous domain, while calls that have seen it are under way; else NULL.
 *		Written under @trimming; read after @domain (see domain_left())
 * @starved:	jiffies when the IOMMU driver last had no memory for a removal; no lock
 * @partial:	number of calls that are removing ranges which may be mapped only in part, plus 1
 *		once @was_orphaned
 * @was_orphaned: the group has been orphaned since the engine was made
 * @leaves:	the group is about to be orphaned or detached, and all maps fail; read in sections
 * @leaving:	serializes removals of ranges that may be mapped only in part (remove_partial())
 * @iommu:	properties of the IOMMU; @iommu.flushes_maps is true only if the backend must flush
 *		maps itself. Read in sections
 * @generic:	the domain has generic page tables; read in sections
 * @map_flushes: map-side flushes since the group was created
 * @other_commands: commands that the engine does not count: of map-side flushes, of invalidations
 *		for freed page-table pages and after failed maps, and of removals where each removal
 *		is a command
 * @trim:	work: frees memory of the engine that is surplus
 * @retry:	work: tries again to remove stuck pages
 * @grow:	work: adds chunks to the pool
 * @shrink:	work: frees chunks of the pool that are surplus
 * @trimming:	held by the works above while they run, and where the domain changes
 * @node:	NUMA node of the device for which the engine was made
 * @cpus:	array of nr_cpu_ids; NULL outside xs_backend_init() .. xs_backend_exit()
 * @past:	sum of the statistics of earlier engines
 * @sum:	scratch for readers of statistics
 * @failure:	reason why the last attach failed; NULL if it succeeded
 */
struct xs_group {
	struct xs_backend backend;
	struct list_head list;
	struct list_head running;
	struct iommu_group *iommu_group;
	const struct xs_policy *policy;
	const struct xs_auto_line *auto_line;
	struct xs_tuning tuning;
	bool direct;
	u64 chosen;
	bool clean;
	u64 msi_pages[XS_MSI_PAGES];
	u32 msi_page_count;
	struct list_head devices;

	u32 attached;
	bool aware;
	const struct xs_ops_instance *instance;
	struct iommu_domain_geometry geometry;
	bool active;

	struct xs_stats past;
	struct xs_stats sum;
	const char *failure;
};

/**
 * struct xs_seen - the IOMMU of a device and the domain that the device is attached to, as of the
 *		    last xs_group_look()
 * @iommu:	the IOMMU; only compared, never dereferenced
 * @untried:	reason why the module does not support this kind of IOMMU; NULL if supported
 * @type:	type of the domain; IOMMU_DOMAIN_BLOCKED if no domain was found
 * @like:	properties of the IOMMU; valid if @type is a type of the DMA API
 * @unserved:	reason why an engine cannot use a domain of this device; NULL if an engine can
 * @no_tables:	reason why direct tables are not possible; NULL if they are
 */
struct xs_seen {
	const struct iommu_device *iommu;
	const char *untried;
	unsigned int type;
	struct xs_iommu like;
	const char *unserved;
	const char *no_tables;
};

/**
 * struct xs_device - a PCI device behind an IOMMU
 *
 * All fields are guarded by xs_mutex, except where said.
 *
 * @list:	entry in the devices of @group
 * @dev:	the device; referenced while @taken
 * @group:	the group; constant
 * @seen:	result of the last xs_group_look()
 * @on_kernel_path: the device has a driver that uses the kernel's own path, or had a driver that
 *		failed to probe
 * @bound:	the device has a driver that the module serves, or the device is @blocked
 * @aware:	the driver is batch-aware
 * @taken:	the device's DMA operations are those of the module
 * @gone:	the device was removed; the structure stays until the group is detached
 * @blocked:	the device cannot be attached, but its group is: all its maps fail
 * @claimed:	a use of the default domain is held, so nobody can change the group's type
 * @told:	the line of `auto` that was last logged for the device
 * @passed_over: the reason that was last logged for leaving the group to the kernel's own path
 * @dma:	the kernel's own DMA operations and DMA bit while @taken, to be restored. @dma.iommu
 *		may be restored later, under the lock of @dev: see xs_device_settle()
 * @removed:	entry in the list of devices that the kernel is releasing from their IOMMU; guarded
 *		by removed_lock in attach.c
 * @removed_ops: DMA operations to restore after that release; guarded by removed_lock
 * @kobj:	the folder xsmmu/ of the device in sysfs; NULL if it could not be made
 * @stats:	the folder xsmmu/stats/ of the device in sysfs
 */
struct xs_device {
	struct list_head list;
	struct device *dev;
	struct xs_group *group;
	struct xs_seen seen;
	bool on_kernel_path;
	bool bound;
	bool aware;
	bool taken;
	bool gone;
	bool blocked;
	bool claimed;
	const struct xs_auto_line *told;
	const char *passed_over;
	struct {
		const struct dma_map_ops *ops;
		bool iommu;
	} dma;
	struct list_head removed;
	const struct dma_map_ops *removed_ops;
	struct kobject *kobj;
	struct kobject *stats;
};

extern struct mutex xs_mutex;
extern struct list_head xs_groups;
extern struct list_head xs_running;

/* ---- group.c ---- */

/**
 * xs_device_find - find the xs_device of a device in all groups
 * @dev: the device
 *
 * Context: xs_mutex.
 * Return: the device, or NULL if none is known or the device was removed.
 */
struct xs_device *xs_device_find(struct device *dev);

/**
 * xs_group_device - find the xs_device of a device in one group
 * @group: the group
 * @dev: the device
 *
 * Context: xs_mutex.
 * Return: the device, or NULL if none is known or the device was removed.
 */
struct xs_device *xs_group_device(const struct xs_group *group,
				  struct device *dev);

/**
 * xs_group_look - update @seen of each device of a group
 * @group: the group
 *
 * Called when a device appears, when a driver is about to probe, after a domain was attached, and
 * when the operator chooses. No other code follows dev->iommu of a device without a driver. A
 * device that is being removed is skipped: xs_device_remove() comes before the kernel releases the
 * device from its IOMMU.
 *
 * Context: xs_mutex; takes the mutex of the IOMMU group and sleeps.
 */
void xs_group_look(struct xs_group *group);

/**
 * xs_device_add - make the xs_device of a PCI device, and its group if the group is new
 * @dev: the device
 *
 * Does nothing for a known device, or for a device that is not behind an IOMMU.
 *
 * Context: xs_mutex; sleeps.
 */
void xs_device_add(struct device *dev);

/**
 * xs_device_remove - forget a device that is being removed
 * @xdev: the device; freed now, or when its group is detached
 *
 * Called before the kernel releases the device from its IOMMU. May free the group.
 *
 * Context: xs_mutex; sleeps.
 */
void xs_device_remove(struct xs_device *xdev);

/**
 * xs_group_clean - free the removed devices of a group, and the group if it has no other device
 * @group: a group without an engine
 *
 * Context: xs_mutex.
 */
void xs_group_clean(struct xs_group *group);

/**
 * xs_others_use_kernel_path - check whether a driver of another device in the group uses the
 *			       kernel's own path
 * @xdev: the device
 *
 * Context: xs_mutex.
 * Return: true if such a driver is bound. A driver that is about to probe and waits for xs_mutex
 * does not count.
 */
bool xs_others_use_kernel_path(struct xs_device *xdev);

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

/**
 * xs_device_has_driver - check whether a device has a driver that uses the DMA API
 * @xdev: the device
 *
 * Drivers of bridges do not use the DMA API, or manage DMA themselves, but not all of them declare
 * driver_managed_dma (shpchp).
 *
 * Context: xs_mutex.
 */
static inline bool xs_device_has_driver(const struct xs_device *xdev)
{
	struct device_driver *driver;
	bool has;

	/* The driver may be unbound, and its module unloaded, without xs_mutex. */
	rcu_read_lock();
	driver = READ_ONCE(xdev->dev->driver);
	has = driver && !to_pci_driver(driver)->driver_managed_dma;
	rcu_read_unlock();
	return has && !pci_is_bridge(to_pci_dev(xdev->dev));
}

/* ---- attach.c ---- */

/**
 * xs_device_bind - attach a device before its driver probes, if a policy is chosen
 * @xdev: the device; the kernel has set up its DMA path
 *
 * Logs the reason if the device is not attached.
 *
 * Context: the lock of the device and xs_mutex; sleeps.
 */
void xs_device_bind(struct xs_device *xdev);

/**
 * xs_device_settle - restore the DMA bit of a detached device
 * @xdev: the device
 *
 * Does the part of a detach that had to wait because the lock of the device was taken.
 *
 * Context: the lock of the device and xs_mutex; sleeps.
 */
void xs_device_settle(struct xs_device *xdev);

/**
 * xs_device_leave - prepare for the release of an attached device from its IOMMU
 * @xdev: the device, with @taken set
 *
 * Context: xs_mutex, before the IOMMU core releases the device.
 */
void xs_device_leave(struct xs_device *xdev);

/**
 * xs_device_left - restore the DMA operations of a device that was released from its IOMMU
 * @dev: the device
 *
 * The kernel may have reset the DMA operations in the release. On return they are those of the
 * device's group again, because coherent memory of the device may be freed at any time. Does
 * nothing for a device that was not attached.
 *
 * Context: any that may take a spinlock; takes no mutex.
 */
void xs_device_left(struct device *dev);

/**
 * xs_look_is_due - check whether a domain was attached after the last look at all groups
 *
 * Context: any.
 */
bool xs_look_is_due(void);

/**
 * xs_group_end_orphan - detach a group if it is orphaned and nothing is mapped any more
 * @group: the group; freed if it is detached and has no device left
 * @locked: device that the caller has locked, or NULL
 *
 * Context: xs_mutex; sleeps.
 */
void xs_group_end_orphan(struct xs_group *group, struct device *locked);

/**
 * xs_group_set - give the policy, the tunables and the batch awareness of a group to its engine
 * @group: the group
 *
 * They are in force on return. Does nothing without an engine.
 *
 * Context: xs_mutex; may sleep.
 */
void xs_group_set(struct xs_group *group);

/**
 * xs_group_update_aware - update @aware of a group after a driver came, went or became batch-aware
 * @group: the group
 *
 * Evaluates `auto` again if @aware has changed.
 *
 * Context: xs_mutex; may sleep.
 */
void xs_group_update_aware(struct xs_group *group);

/**
 * xs_group_backend_config - where a group's backend is to map
 * @group: the group
 * @xdev: a device of the group that has a driver, or that a driver is about to probe
 *
 * Context: xs_mutex, after xs_group_look().
 */
struct xs_backend_config xs_group_backend_config(const struct xs_group *group,
						 const struct xs_device *xdev);

/**
 * xs_attach_init - make the workqueue of orphaned groups and follow domain changes
 *
 * Context: module load.
 * Return: 0 or a negative errno.
 */
int xs_attach_init(void);

/**
 * xs_attach_exit - undo xs_attach_init()
 *
 * Context: module load or unload, when no group has an engine; sleeps.
 */
void xs_attach_exit(void);

/**
 * struct xs_address - address of a PCI device
 * @domain:	PCI domain
 * @bus:	bus number
 * @devfn:	device and function
 */
struct xs_address {
	int domain;
	u8 bus;
	u8 devfn;
};

/**
 * struct xs_choice - a policy and its tunables
 * @policy:	chosen policy; NULL for none, and with @is_auto until `auto` is evaluated
 * @is_auto:	`auto` chooses @policy and @tuning when it is evaluated for a group
 * @line:	line of the table of `auto` that chose @policy; NULL before
 * @tuning:	tunables; valid if @policy is not NULL
 * @direct:	direct tables
 */
struct xs_choice {
	const struct xs_policy *policy;
	bool is_auto;
	const struct xs_auto_line *line;
	struct xs_tuning tuning;
	bool direct;
};

/* ---- choice.c ---- */

/**
 * xs_choice_start - read the floor and the rules of the module parameters
 * @rules: text of the parameter rules
 * @min_level: text of the parameter min_level; empty for the default floor
 *
 * Context: module load, before any group exists.
 * Return: 0 or a negative errno. A log line names the invalid word.
 */
int xs_choice_start(const char *rules, const char *min_level);

/**
 * xs_choice_floor - name of the floor
 *
 * Context: any, after xs_choice_start().
 */
const char *xs_choice_floor(void);

/**
 * xs_choice_stop - free the rules and the choices of the operator
 *
 * Context: module load or unload, when no group exists.
 */
void xs_choice_stop(void);

/**
 * xs_device_choose - apply the remembered choice of a device, or the rules, to its group
 * @xdev: a device that has appeared, or that a driver is about to probe
 * @binds: a driver is about to probe
 *
 * Context: xs_mutex; may sleep.
 */
void xs_device_choose(struct xs_device *xdev, bool binds);

/**
 * xs_group_cannot_copy - check whether copying must wait until all drivers are unbound
 * @group: the group
 *
 * Context: xs_mutex.
 * Return: true if the group has an engine and its operations do not copy.
 */
bool xs_group_cannot_copy(const struct xs_group *group);

/**
 * xs_device_refusal - reason why the module cannot attach a device
 * @xdev: the device
 *
 * Context: xs_mutex, after xs_group_look().
 * Return: the reason, a constant string; NULL if the module can.
 */
const char *xs_device_refusal(const struct xs_device *xdev);

/**
 * xs_group_refusal - find the first device of a group that the module cannot attach
 * @group: the group
 * @why: result: the reason, if a device is returned
 *
 * Context: xs_mutex, after xs_group_look().
 * Return: the device; NULL if there is none, and for a group with an engine, in which such a
 * device is blocked.
 */
struct xs_device *xs_group_refusal(const struct xs_group *group,
				   const char **why);

/**
 * xs_group_be_strict - set policy strict after a fault of the module
 * @group: the group
 *
 * Context: xs_mutex; may sleep.
 */
void xs_group_be_strict(struct xs_group *group);

/**
 * xs_group_choose - make a choice of the operator
 * @group: the group
 * @policy: policy; NULL for none, and with @is_auto
 * @is_auto: let `auto` choose the policy
 *
 * Context: xs_mutex; sleeps.
 * Return: 0 or a negative errno. A log line gives the reason of a refusal.
 */
int xs_group_choose(struct xs_group *group, const struct xs_policy *policy,
		    bool is_auto);

/**
 * xs_group_decide_again - evaluate `auto` again after facts of a group have changed
 * @group: the group
 *
 * A policy below the level in force is not applied to a group that has an engine.
 *
 * Context: xs_mutex; may sleep.
 * Return: true if another line was chosen, which is in force on return.
 */
bool xs_group_decide_again(struct xs_group *group);

/**
 * xs_group_tuning - tunables that are in force for a group
 * @group: the group
 *
 * Context: xs_mutex.
 */
struct xs_tuning xs_group_tuning(const struct xs_group *group);

/**
 * xs_group_tune - change the tunables of a group for the operator
 * @group: the group
 * @tuning: all tunables
 * @copies: the operator has set copy_bytes
 *
 * Context: xs_mutex; may sleep.
 * Return: 0; -ENODATA without a policy or with `auto`; -ERANGE for a value out of range; or
 * another negative errno, with a log line.
 */
int xs_group_tune(struct xs_group *group, const struct xs_tuning *tuning,
		  bool copies);

/**
 * xs_group_choose_tables - choose between direct tables and the IOMMU driver's operations
 * @group: the group
 * @direct: use direct tables
 *
 * Context: xs_mutex; sleeps.
 * Return: 0; -ENODATA without a policy; or another negative errno, with a log line.
 */
int xs_group_choose_tables(struct xs_group *group, bool direct);

/**
 * xs_choice_is_allowed - check that a policy is not below the floor
 * @policy: the policy, with its level for drivers that are not batch-aware
 *
 * Context: any, after xs_choice_start().
 */
bool xs_choice_is_allowed(const struct xs_policy *policy);

/**
 * xs_tuning_is_valid - check that all tunables are in their ranges
 * @tuning: the tunables
 *
 * Context: any.
 */
bool xs_tuning_is_valid(const struct xs_tuning *tuning);

/**
 * xs_address_is - check whether a PCI device has an address
 * @address: the address
 * @pdev: the device
 *
 * Context: any.
 */
bool xs_address_is(const struct xs_address *address, struct pci_dev *pdev);

/* ---- auto.c ---- */

/**
 * struct xs_auto_line - a line of the table of `auto`
 * @facts:	the line matches a group that has all these facts
 * @policy:	name of the policy that is chosen then
 * @why:	reason, for the log and for sysfs
 */
struct xs_auto_line {
	u32 facts;
	const char *policy;
	const char *why;
};

/**
 * xs_auto_find - find the line of `auto` for a group
 * @group: the group
 *
 * Context: xs_mutex, after xs_group_look().
 * Return: the first line that matches; never NULL.
 */
const struct xs_auto_line *xs_auto_find(const struct xs_group *group);

/**
 * xs_auto_say - log the choice of `auto` for each device, if it differs from the last logged
 * @group: the group; nothing is logged if `auto` is not in force
 *
 * Context: xs_mutex.
 */
void xs_auto_say(struct xs_group *group);

/* ---- rules.c ---- */

/**
 * xs_rules_start - read the rules
 * @text: text of the parameter rules
 *
 * Context: module load.
 * Return: 0 or a negative errno. A log line names the invalid word.
 */
int xs_rules_start(const char *text);

/**
 * xs_rules_stop - free the rules
 *
 * Context: module load or unload, when no group exists.
 */
void xs_rules_stop(void);

/**
 * xs_rules_find - find the rule for a device
 * @pdev: the device
 * @driver: name of the driver that is about to probe, or NULL
 *
 * Context: xs_mutex.
 * Return: the choice of the first rule that matches. NULL if none does, or if @driver is NULL and
 * a rule before the first match depends on the driver.
 */
const struct xs_choice *xs_rules_find(struct pci_dev *pdev, const char *driver);

/* ---- boot.c ---- */

/*
 * The administrator made the kernel's own path strict on the kernel's command line, or the command
 * line cannot be read. Constant after load.
 */
extern bool xs_boot_is_strict;

/**
 * xs_boot_start - read the command line of the kernel into xs_boot_is_strict
 *
 * Context: module load; sleeps.
 */
void xs_boot_start(void);

/* ---- sysfs.c ---- */

/**
 * xs_sysfs_add - make the folder xsmmu/ of a device
 * @xdev: the device
 *
 * Context: xs_mutex; sleeps.
 * Return: 0 or -ENOMEM.
 */
int xs_sysfs_add(struct xs_device *xdev);

/**
 * xs_sysfs_remove - remove the folder xsmmu/ of a device, and wait for its open files
 * @xdev: the device
 *
 * Context: xs_mutex; sleeps.
 */
void xs_sysfs_remove(struct xs_device *xdev);

#endif
