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

#include "iommu/iommu.h"
#include "tables/tables.h"

#undef pr_fmt
#define pr_fmt(fmt) "xsmmu: " fmt

struct xs_group;

#define XS_MSI_PAGES	8

typedef int (*xs_map_pages_t)(struct iommu_domain *domain, unsigned long iova,
			      phys_addr_t phys, size_t page_bytes, size_t pages,
			      int prot, gfp_t gfp, size_t *mapped);

/**
 * struct xs_group_cpu - per-CPU state of the backend of an attached group
 * @lock:	serializes the starts of @timer; taken with interrupts off
 * @timer:	fires when the oldest deferred unmap of the CPU reaches the window
 * @dirty:	entry in the list of groups that the end of the CPU's next NAPI poll flushes; only
 *		the CPU itself changes the list, with interrupts off
 * @group:	constant
 * @cpu:	constant
 */
struct xs_group_cpu {
	spinlock_t lock;
	struct hrtimer timer;
	struct list_head dirty;
	struct xs_group *group;
	u32 cpu;
};

/**
 * struct xs_group_commands - invalidation commands that the engine does not count
 * @page:	page-selective commands
 * @domain:	domain-selective commands
 */
struct xs_group_commands {
	atomic64_t page;
	atomic64_t domain;
};

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
	struct xs_engine engine;
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
	struct iommu_domain *domain;
	struct iommu_domain_geometry geometry;
	struct xs_tables tables;
	struct xs_root root;
	bool is_known;
	bool maps_generic;
	xs_map_pages_t map_pages;
	size_t (*unmap_pages)(struct iommu_domain *domain, unsigned long iova,
			      size_t page_bytes, size_t pages,
			      struct iommu_iotlb_gather *gather);
	char name[32];
	bool active;
	bool strayed;
	bool torn;
	const struct iommu_domain *stuck_in;
	bool stuck_live;
	struct iommu_domain *left;
	unsigned long starved;
	atomic_t partial;
	bool was_orphaned;
	bool leaves;
	spinlock_t leaving;
	struct xs_iommu iommu;
	bool generic;
	atomic64_t map_flushes;
	struct xs_group_commands other_commands;
	struct work_struct trim;
	struct delayed_work retry;
	struct work_struct grow;
	struct delayed_work shrink;
	struct mutex trimming;
	int node;
	struct xs_group_cpu *cpus;

	struct xs_stats past;
	struct xs_stats sum;
	const char *failure;
};

static_assert(offsetof(struct xs_group, engine) == 0);

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

/* ---- instances.c ---- */

/*
 * Number of groups that can be attached at a time. Each has two instances: the operations of
 * one map all buffers, and the operations of the other copy small buffers (copy.c).
 */
#define XS_INSTANCES	256

/**
 * struct xs_ops_instance - the dma_ops of the devices of one group; constant
 * @ops:	DMA operations, the same in all instances of a kind
 * @group:	where to find the group, without a look-up
 */
struct xs_ops_instance {
	struct dma_map_ops ops;
	struct xs_group **group;
};
extern const struct xs_ops_instance xs_ops_instances[2 * XS_INSTANCES];
extern struct xs_group *xs_instance_groups[XS_INSTANCES];

/* DMA operations of blocked devices: every map and every allocation fails. */
extern const struct dma_map_ops xs_blocked_ops;

/* Checks whether @ops are the operations of an instance. Context: any. */
static inline bool xs_is_instance(const struct dma_map_ops *ops)
{
	return (uintptr_t)ops - (uintptr_t)xs_ops_instances < sizeof(xs_ops_instances);
}

/* Checks whether @ops copy small buffers. Context: any. */
static inline bool xs_instance_copies(const struct dma_map_ops *ops)
{
	return (uintptr_t)ops - (uintptr_t)&xs_ops_instances[XS_INSTANCES] <
	       sizeof(xs_ops_instances) / 2;
}

/* Checks whether @ops are operations of the module. Context: any. */
static inline bool xs_is_ours(const struct dma_map_ops *ops)
{
	return xs_is_instance(ops) || ops == &xs_blocked_ops;
}

/* The group of an instance; NULL if the group was detached. Context: any. */
static inline struct xs_group *xs_instance_group(const struct dma_map_ops *ops)
{
	return *container_of(ops, struct xs_ops_instance, ops)->group;
}

/**
 * xs_group_of - the group of an attached device, for callers that hold a mapping
 * @dev: the device
 *
 * A group with a mapping is not detached.
 *
 * Context: any.
 */
static inline struct xs_group *xs_group_of(struct device *dev)
{
	return xs_instance_group(dev->dma_ops);
}

/**
 * xs_group_now - the group of a device that may have been detached
 * @dev: the device
 *
 * For callers without a mapping, such as a late thread of the driver.
 *
 * Context: an RCU section of the engine or an SRCU section of &xs_backend_srcu. The group stays
 * until the end of the section.
 * Return: the group; NULL if the device is not attached.
 */
static inline struct xs_group *xs_group_now(struct device *dev)
{
	const struct dma_map_ops *ops = READ_ONCE(dev->dma_ops);

	return xs_is_instance(ops) ? xs_instance_group(ops) : NULL;
}

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

/* ---- debug.c ---- */

/* Checks whether the parameter debug is set. Context: any. */
DECLARE_STATIC_KEY_FALSE(xs_debug_key);
#define xs_debug_on()	static_branch_unlikely(&xs_debug_key)

/**
 * xs_debug_unmap - record an unmap without a flush
 * @dev: the device, with the mapping still in place
 * @iova: first byte
 * @bytes: length
 *
 * Context: any.
 */
void xs_debug_unmap(struct device *dev, u64 iova, u64 bytes);

/**
 * xs_debug_flush - check the unmaps that a flush has covered
 * @dev: the device that was flushed
 *
 * Context: any.
 */
void xs_debug_flush(struct device *dev);

/**
 * xs_debug_map - record a map without a flush
 * @dev: the device
 * @iova: first byte of the mapping
 *
 * Context: any.
 */
void xs_debug_map(struct device *dev, u64 iova);

/**
 * xs_debug_flush_maps - forget the maps that a map-side flush has covered
 * @dev: the device that was flushed
 * @everywhere: the flush covers the maps of all CPUs, not only of the calling CPU
 *
 * Context: any.
 */
void xs_debug_flush_maps(struct device *dev, bool everywhere);

/**
 * xs_debug_forget - forget a device that is being detached
 * @dev: the device; all its unmaps are flushed
 *
 * Context: any.
 */
void xs_debug_forget(struct device *dev);

/* ---- backend.c ---- */

/*
 * For DMA calls that are not in an RCU section of the engine: calls that take long, calls of
 * several steps, and the work after a free. A group and its domain outlive the section.
 */
extern struct srcu_struct xs_backend_srcu;

/* The backend of the engine: see <xsmmu/backend.h>. */
extern const struct xs_backend_ops xs_linux_backend;

/**
 * xs_backend_map_unflushed - flag for maps that one later flush covers
 * @group: the group
 *
 * Context: a section, or xs_mutex.
 * Return: XS_MAP_UNFLUSHED if the IOMMU needs map-side flushes: a map with this flag must be
 * followed by xs_backend_flush_maps(). Else 0.
 */
u32 xs_backend_map_unflushed(const struct xs_group *group);

/**
 * xs_backend_flush_maps - flush the maps of a range that were made with XS_MAP_UNFLUSHED
 * @group: the group
 * @iova: first byte
 * @pages: length
 *
 * Context: a section; does not sleep.
 * Return: 0 or a negative errno.
 */
int xs_backend_flush_maps(struct xs_group *group, u64 iova, u32 pages);

/**
 * xs_backend_unmap_partial - unmap a range that has holes, and flush
 * @group: the group
 * @iova: first byte
 * @pages: length
 *
 * Context: a section; does not sleep.
 * Return: false if the IOMMU driver could not remove all pages: the caller must not free the
 * memory.
 */
bool xs_backend_unmap_partial(struct xs_group *group, u64 iova, u32 pages);

/**
 * xs_backend_undo - undo a map of several parts, one of which has failed
 * @group: the group
 * @iova: first byte of the range that the engine has reserved
 * @pages: length
 * @error: result of the failed part: a negative errno or XS_MAP_LEFT
 *
 * Context: a section; does not sleep.
 * Return: false if the IOMMU driver could not remove all pages: the caller must not free the
 * memory.
 */
bool xs_backend_undo(struct xs_group *group, u64 iova, u32 pages, int error);

/**
 * xs_backend_sweep - remove and invalidate pages that the engine has no mapping of
 * @group: the group
 * @iova: first byte
 * @pages: length; the range may be mapped in part
 *
 * Context: any.
 * Return: 0, or a negative errno if a page is still mapped.
 */
int xs_backend_sweep(struct xs_group *group, u64 iova, u32 pages);

/**
 * xs_backend_prune - free the page-table pages that are only for a range
 * @group: the group
 * @iova: first byte
 * @pages: length; no page of the range is mapped
 *
 * Context: any.
 * Return: 0 if no such page-table page is left, or if the driver frees none; -ENOMEM.
 */
int xs_backend_prune(struct xs_group *group, u64 iova, u64 pages);

/**
 * xs_backend_map_singly - map a range by entries of one page, and flush
 * @group: the group; its drivers may be unable to map yet
 * @iova: first byte
 * @phys: physical address
 * @pages: length
 * @prot: IOMMU_* flags
 *
 * Context: any.
 * Return: 0, a negative errno, or XS_MAP_LEFT.
 */
int xs_backend_map_singly(struct xs_group *group, u64 iova, u64 phys, u32 pages,
			  u32 prot);

/**
 * xs_backend_trim - work function of @trim of a group
 * @work: @trim
 */
void xs_backend_trim(struct work_struct *work);

/**
 * xs_backend_retry - work function of @retry of a group
 * @work: the work of @retry
 */
void xs_backend_retry(struct work_struct *work);

/**
 * xs_backend_retry_in - try again to remove the pages that were stuck when the group left a domain
 * @group: an orphaned group
 * @domain: domain that the group has now, which must not go meanwhile; NULL if the group has no
 *	device left
 *
 * If @domain is another domain, its devices do not reach the pages. If @domain is another domain at
 * the same address, it has nothing mapped at their IOVAs.
 *
 * Context: xs_mutex; takes @trimming; sleeps.
 */
void xs_backend_retry_in(struct xs_group *group, struct iommu_domain *domain);

/**
 * xs_backend_is_stuck - try once to remove stuck pages, and check whether some are left
 * @group: the group
 *
 * Only xs_backend_retry_in() tries to remove the pages that are stuck in the domain that the group
 * has left.
 *
 * Context: xs_mutex; takes @trimming; sleeps.
 * Return: true if the group has unmapped pages that could not be removed.
 */
bool xs_backend_is_stuck(struct xs_group *group);

/**
 * xs_backend_count_map_flush - count a map-side flush that other code has sent
 * @group: the group
 * @range: range of the flush
 *
 * Context: any.
 */
void xs_backend_count_map_flush(struct xs_group *group,
				const struct xs_range *range);

/**
 * xs_backend_invalidate - invalidate ranges for other code than the engine, and count the commands
 * @group: the group
 * @gather: collects the removals; its page-table pages are freed
 * @ranges: ranges
 * @count: number of @ranges; 0 for the whole domain
 *
 * Context: any.
 */
void xs_backend_invalidate(struct xs_group *group, xs_gather_t *gather,
			   const struct xs_range *ranges, u32 count);

/**
 * xs_backend_flush - invalidate the whole domain; the command is not counted
 * @group: the group; nothing is sent while the group has the blocking domain
 *
 * Context: any.
 */
void xs_backend_flush(struct xs_group *group);

/**
 * xs_backend_set_tables - put the group's choice of direct tables in force
 * @group: a group with an engine
 * @xdev: a device of the group with a driver; NULL while the group is orphaned
 *
 * Context: xs_mutex; sleeps.
 */
void xs_backend_set_tables(struct xs_group *group, struct xs_device *xdev);

/**
 * xs_backend_init - set up the backend of a group for a new engine
 * @group: the group
 * @domain: default domain of the group
 * @xdev: a device of the group that a driver is about to probe
 *
 * Context: xs_mutex; sleeps.
 * Return: 0 or -ENOMEM.
 */
int xs_backend_init(struct xs_group *group, struct iommu_domain *domain,
		    struct xs_device *xdev);

/**
 * xs_backend_enter - move an orphaned group back to a domain, because a driver has come
 * @group: the group, in the blocking domain
 * @domain: default domain of the group
 * @xdev: the device that a driver is about to probe
 *
 * Context: xs_mutex; takes @trimming; sleeps.
 * Return: 0; or -ENOMEM or XS_MAP_LEFT, and the group stays in the blocking domain.
 */
int xs_backend_enter(struct xs_group *group, struct iommu_domain *domain,
		     struct xs_device *xdev);

/**
 * xs_backend_shut - make all maps fail from the return on
 * @group: the group; nothing happens in the blocking domain
 *
 * Maps that are under way have ended on return.
 *
 * Context: xs_mutex; sleeps.
 */
void xs_backend_shut(struct xs_group *group);

/**
 * xs_backend_leave - orphan a group: remove all mappings and move to the blocking domain
 * @group: the group, which has no driver left
 *
 * Names the mappings in the log.
 *
 * Context: xs_mutex; takes @trimming; sleeps.
 */
void xs_backend_leave(struct xs_group *group);

/**
 * xs_backend_is_blocked - check whether a group has the blocking domain
 * @group: the group
 *
 * Context: xs_mutex, @trimming or a section.
 */
bool xs_backend_is_blocked(const struct xs_group *group);

/**
 * xs_backend_exit - undo xs_backend_init()
 * @group: the group; its engine is flushed, and nothing maps or unmaps any more
 *
 * Context: xs_mutex; sleeps.
 */
void xs_backend_exit(struct xs_group *group);

/**
 * xs_backend_forget_cpu - take a group off the list of a CPU's next NAPI poll
 * @group: the group
 * @cpu: a CPU that is off-line, or the calling CPU
 *
 * Context: interrupts off if @cpu is the calling CPU.
 */
void xs_backend_forget_cpu(struct xs_group *group, u32 cpu);

/**
 * xs_backend_start - follow the ends of NAPI polls
 *
 * Context: module load.
 * Return: 0 or a negative errno.
 */
int xs_backend_start(void);

/**
 * xs_backend_stop - undo xs_backend_start()
 *
 * Context: module load or unload; sleeps.
 */
void xs_backend_stop(void);

/* ---- chunk.c ---- */

/**
 * xs_chunk_add - allocate and map a chunk; add_chunk() of <xsmmu/backend.h>
 * @backend: the group
 * @iova: where to map the chunk
 * @direction: XS_DIRECTION_*
 * @left: result: true if the map has failed and part of it could not be undone; the memory must
 *	not be freed then
 *
 * Context: @trimming; sleeps.
 * Return: the memory; NULL if the chunk could not be allocated or mapped.
 */
void *xs_chunk_add(void *backend, u64 iova, u32 direction, bool *left);

/**
 * xs_chunk_drop - unmap and free a chunk; drop_chunk() of <xsmmu/backend.h>
 * @backend: the group
 * @iova: where the chunk is mapped
 * @memory: the memory
 *
 * Context: may sleep.
 * Return: false if the IOMMU driver could not remove the chunk; the memory stays.
 */
bool xs_chunk_drop(void *backend, u64 iova, void *memory);

/**
 * xs_chunks_short - queue @grow of a group; short_of() of <xsmmu/backend.h>
 * @backend: the group
 *
 * Context: any.
 */
void xs_chunks_short(void *backend);

/**
 * xs_chunks_grow - work function of @grow of a group
 * @work: @grow
 */
void xs_chunks_grow(struct work_struct *work);

/**
 * xs_chunks_shrink - work function of @shrink of a group
 * @work: the work of @shrink
 */
void xs_chunks_shrink(struct work_struct *work);

/**
 * xs_chunks_map - map all chunks of a group into its domain
 * @group: the group
 *
 * Context: @trimming; sleeps.
 * Return: 0; a negative errno, with no chunk mapped; or XS_MAP_LEFT.
 */
int xs_chunks_map(struct xs_group *group);

/**
 * xs_chunks_unmap - remove all chunks of a group from its domain; their memory stays
 * @group: the group
 *
 * Context: @trimming; sleeps.
 * Return: false if the IOMMU driver could not remove a chunk.
 */
bool xs_chunks_unmap(struct xs_group *group);

/**
 * xs_chunks_drop - free all idle chunks of a group
 * @group: the group
 *
 * Chunks that cannot be removed become stuck.
 *
 * Context: takes @trimming; sleeps.
 */
void xs_chunks_drop(struct xs_group *group);

/*
 * Fault injection, in builds for tests only (-DXS_FAIL_NTH, main.c). xs_fails() is true for the
 * n-th allocation or map after fail_nth=n was written. xs_refuses() is true for each of the next
 * n removals after refuse=n was written. Context: any.
 */
#ifdef XS_FAIL_NTH
#define XS_REFUSES	true
bool xs_fails(void);
bool xs_refuses(void);
#else
#define XS_REFUSES	false
static inline bool xs_fails(void)
{
	return false;
}

static inline bool xs_refuses(void)
{
	return false;
}
#endif

/*
 * Tells the operator how to get a new domain, for log lines. Linux 6.1 does not change the type of
 * a group of several devices. A group is gone when all its devices are removed, and the devices get
 * another group after a rescan.
 */
#define XS_NEW_DOMAIN(group) \
	"write identity to /sys/kernel/iommu_groups/" group "/type and then DMA-FQ; if that is refused, as Linux 6.1 does for a group of several devices, write 1 to the file remove of each device in /sys/kernel/iommu_groups/" group "/devices, and then to /sys/bus/pci/rescan"

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
