// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attach and detach; see group.h for groups. The states of a group:
 *
 *   off        no policy is chosen: the kernel's own path
 *   idle       a policy is chosen, no driver is bound
 *   attached   attached, nothing mapped yet
 *   active     the engine has counted maps
 *   orphaned   no driver is bound, but mappings of a driver are still in use
 *   failed     the attach failed: the driver uses the kernel's own path; if the group was
 *              orphaned, all maps of the driver fail
 *   stuck      the IOMMU driver could not remove pages, which devices may still access
 *   torn       drivers have unmapped mappings in part, and devices reach the rest
 *
 * The log names the mappings that a driver has left, and they are removed from the domain.
 * Once the driver's handles are all gone, too, the devices return to the kernel's own path.
 * Pages that the IOMMU driver cannot remove keep the group until they are removed, or until
 * the group has another domain.
 */
#include <linux/cpu.h>
#include <linux/device.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/stringify.h>
#include <trace/events/iommu.h>

#include <xsmmu/dma.h>

#include "attach.h"
#include "../compat/compat.h"
#include "../debug.h"
#include "../dma/misuse.h"
#include "../dma/ops.h"
#include "../log.h"
#include "../policy/auto.h"
#include "regions.h"

/*
 * Period of the check whether an orphaned group can be detached, in ticks. In the second after
 * a domain was attached somewhere, the check runs at each tick, because 6.1 changes the
 * operations of a group's devices after it has released the mutex of the group.
 */
#define ORPHAN_TICKS	(HZ / 2)
#define HURRY_TICKS	HZ

static unsigned long attached_jiffies = INITIAL_JIFFIES;
static bool look_is_due;

/* ---- engine ---- */

/* CPUs that go offline after this retire from the engine. */
static void running_add(struct xs_group *group)
{
	cpus_read_lock();
	list_add(&group->attachment.running, &xs_running);
	cpus_read_unlock();
}

/* No CPU-hotplug callback uses this engine after this returns. */
static void running_del(struct xs_group *group)
{
	cpus_read_lock();
	list_del(&group->attachment.running);
	cpus_read_unlock();
}

/* Reason why an engine cannot use @domain; NULL if an engine can. */
static const char *check_domain(struct iommu_domain *domain)
{
	if (!domain || !(domain->type & __IOMMU_DOMAIN_PAGING))
		return "its IOMMU group does not translate: write DMA-FQ to /sys/kernel/iommu_groups/<group>/type first";
	if (!(domain->pgsize_bitmap & PAGE_SIZE))
		return "its IOMMU does not support the CPU's page size";
	if (domain->ops->iotlb_sync && !domain->ops->flush_iotlb_all)
		return "its IOMMU driver cannot invalidate a whole domain";
	/* iommu_map() would choose the entry sizes. */
	if (!domain->ops->map_pages && !xs_domain_is_generic(domain))
		return "its IOMMU driver cannot map single pages";
	return NULL;
}

/* True if all devices have one IOMMU, and so one page table. */
static bool is_of_one_iommu(const struct xs_group *group,
			    const struct xs_device *xdev)
{
	struct xs_device *other;

	list_for_each_entry(other, &group->devices, list)
		if (!other->is_removed && other->seen.iommu != xdev->seen.iommu)
			return false;
	return true;
}

static struct xs_backend_config backend_config_of(const struct xs_group *group,
						  const struct xs_device *xdev)
{
	struct xs_backend_config config = {
		.domain = iommu_get_domain_for_dev(xdev->dev),
		.dev = xdev->dev,
		.iommu = &xdev->seen.like,
		.direct = group->assignment.direct,
		.policy = group->assignment.policy,
		.tuning = &group->assignment.tuning,
	};

	if (!is_of_one_iommu(group, xdev))
		config.no_direct = "its IOMMU group has more than one IOMMU";
	return config;
}

static int is_not_pci(struct device *dev, void *unused)
{
	return !dev_is_pci(dev);
}

/* Takes a dma_ops instance and makes the engine. Returns the reason of a failure, or NULL. */
static const char *engine_make(struct xs_group *group, struct xs_device *xdev)
{
	struct xs_backend_config config = backend_config_of(group, xdev);
	struct xs_attachment *attachment = &group->attachment;
	const char *failure;

	attachment->instance = xs_instance_get(&group->backend,
					       group->assignment.tuning.copy_bytes);
	if (!attachment->instance)
		return __stringify(XS_INSTANCES) " IOMMU groups are attached, the most that this version serves: unset the policy of another group first";
	failure = xs_backend_init(&group->backend, &config);
	if (!failure &&
	    (xs_regions_reserve(group) ||
	     (!xs_group_cannot_copy(group) &&
	      xs_engine_add_pool(&group->backend.engine)))) {
		xs_backend_exit(&group->backend, NULL);
		failure = "out of memory";
	}
	if (failure) {
		xs_instance_put(attachment->instance);
		attachment->instance = NULL;
		return failure;
	}
	attachment->is_active = false;
	attachment->geometry = config.domain->geometry;
	return NULL;
}

/*
 * Checks that the group can be attached, and attaches it. A driver is about to probe, and the
 * device is locked and its domain pinned, so the domain is the domain of the last
 * xs_group_look(). The same holds in engine_resume().
 */
static const char *engine_start(struct xs_group *group, struct xs_device *xdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(xdev->dev);
	const char *failure = check_domain(domain);

	if (failure)
		return failure;
	if (xs_attach_is_deferred(xdev->dev))
		return "it still uses the page tables of an earlier kernel";
	if (iommu_group_for_each_dev(group->iommu_group, NULL, is_not_pci))
		return "its IOMMU group has a device that is not a PCI device";
	failure = xs_regions_check(group, domain);
	if (!failure)
		failure = engine_make(group, xdev);
	if (failure)
		return failure;
	running_add(group);
	__module_get(THIS_MODULE);
	return NULL;
}

/* A driver has come while the group is orphaned. The group may have another domain by now. */
static const char *engine_resume(struct xs_group *group, struct xs_device *xdev)
{
	struct xs_backend_config config = backend_config_of(group, xdev);
	const struct iommu_domain_geometry *before = &group->attachment.geometry;
	const char *failure = check_domain(config.domain);

	if (failure)
		return failure;
	if (config.domain->geometry.aperture_start != before->aperture_start ||
	    config.domain->geometry.aperture_end != before->aperture_end)
		return "the address range of its IOMMU group has changed since the group was attached";
	if (xs_backend_retry_in(&group->backend, config.domain))
		return "its IOMMU driver could not remove pages from this domain: for a new domain " XS_NEW_DOMAIN("<group>");
	failure = xs_regions_check(group, config.domain);
	if (failure)
		return failure;
	return xs_backend_enter(&group->backend, &config) ?
		"its IOMMU driver could not map the bounce buffers, or is out of memory" : NULL;
}

/* Ends the engine. Nothing is mapped, and no driver is bound. */
static void engine_stop(struct xs_group *group)
{
	running_del(group);
	xs_backend_exit(&group->backend, &group->stats.sum);
	xs_stats_add(&group->stats.past, &group->stats.sum);
	xs_instance_put(group->attachment.instance);
	group->attachment.instance = NULL;
}

/* ---- assignment ---- */

/*
 * The DMA core skips dma_sync_*() for a device that was bound without copying, so copying cannot
 * begin later.
 */
bool xs_group_cannot_copy(const struct xs_group *group)
{
	lockdep_assert_held(&xs_mutex);
	return xs_group_is_attached(group) &&
	       !xs_instance_copies(&group->attachment.instance->ops);
}

struct xs_tuning xs_group_tuning(const struct xs_group *group)
{
	struct xs_tuning tuning = group->assignment.tuning;

	lockdep_assert_held(&xs_mutex);
	tuning.batch_aware = group->attachment.is_aware;
	/*
	 * A rule, or an earlier choice for a device that has joined late, may have set copy_bytes.
	 */
	if (xs_group_cannot_copy(group))
		tuning.copy_bytes = 0;
	return tuning;
}

/* Gives policy, tunables and batch awareness to the engine; they are in force on return. */
static void set_engine(struct xs_group *group)
{
	struct xs_tuning tuning = xs_group_tuning(group);
	struct xs_backend *backend = &group->backend;

	if (!xs_group_is_attached(group))
		return;
	/* No trim may run meanwhile. */
	mutex_lock(&backend->work_lock);
	xs_engine_set(&backend->engine, group->assignment.policy, &tuning);
	mutex_unlock(&backend->work_lock);
}

/* An attached device with a driver; NULL while the group is orphaned. */
static struct xs_device *bound_device(struct xs_group *group)
{
	struct xs_device *xdev;

	list_for_each_entry(xdev, &group->devices, list)
		if (xdev->is_bound && !xdev->is_blocked)
			return xdev;
	return NULL;
}

void xs_group_set_tables(struct xs_group *group)
{
	struct xs_device *xdev = bound_device(group);
	struct xs_backend_config config;

	lockdep_assert_held(&xs_mutex);
	if (!xs_group_is_attached(group))
		return;
	if (xdev)
		config = backend_config_of(group, xdev);
	xs_backend_set_tables(&group->backend, xdev ? &config : NULL);
}

void xs_group_log_auto(struct xs_group *group)
{
	const struct xs_auto_line *line = group->assignment.line;
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(xdev, &group->devices, list) {
		if (!line || xdev->is_removed || xdev->said_line == line ||
		    pci_is_bridge(to_pci_dev(xdev->dev)))
			continue;
		xdev->said_line = line;
		dev_info(xdev->dev, "xsmmu: auto: %s, level %s: %s\n",
			 line->policy,
			 xs_level_name(xs_policy_level(group->assignment.policy,
						       group->attachment.is_aware)),
			 line->why);
	}
}

static bool has_driver(const struct xs_group *group)
{
	struct xs_device *xdev;

	list_for_each_entry(xdev, &group->devices, list)
		if (!xdev->is_removed && xs_device_has_driver(xdev))
			return true;
	return false;
}

bool xs_group_assign(struct xs_group *group,
		     const struct xs_assignment *assignment)
{
	struct xs_assignment before = group->assignment;

	lockdep_assert_held(&xs_mutex);
	group->assignment = *assignment;
	if (xs_assignment_equals(assignment, &before))
		return false;
	/* The failed attach of a bound driver lasts until the next bind. */
	if (!has_driver(group))
		group->attachment.failure = NULL;
	if (!assignment->policy)
		return true;
	if (assignment->direct != before.direct)
		xs_group_set_tables(group);
	set_engine(group);
	xs_group_log_auto(group);
	return true;
}

void xs_group_fall_back(struct xs_group *group)
{
	struct xs_assignment strict = group->assignment;

	lockdep_assert_held(&xs_mutex);
	strict.policy = xs_policy_find("strict");
	strict.line = NULL;
	strict.tuning = xs_tuning_default(strict.policy);
	xs_group_assign(group, &strict);
}

/*
 * Updates @is_aware of a group after a driver came, went or became batch-aware, and evaluates
 * `auto` again if @is_aware has changed.
 */
static void update_aware(struct xs_group *group)
{
	bool is_aware = group->attachment.drivers;
	struct xs_situation situation;
	struct xs_assignment next;
	struct xs_device *xdev;

	list_for_each_entry(xdev, &group->devices, list)
		if (xdev->is_bound && !xdev->is_aware)
			is_aware = false;
	if (is_aware == group->attachment.is_aware)
		return;
	group->attachment.is_aware = is_aware;
	situation = xs_group_situation(group);
	next = xs_decide_again(&situation);
	if (!xs_group_assign(group, &next))
		set_engine(group);
}

int __xsmmu_set_batch_aware(struct device *dev)
{
	struct xs_device *xdev;
	int error = -ENODEV;

	mutex_lock(&xs_mutex);
	xdev = xs_device_find(dev);
	if (xdev && xdev->is_bound) {
		xdev->is_aware = true;
		update_aware(xdev->group);
		error = 0;
	}
	mutex_unlock(&xs_mutex);
	return error;
}
EXPORT_SYMBOL_GPL(__xsmmu_set_batch_aware);

/* ---- device ---- */

/*
 * The path of a device's DMA is selected by dev->dma_ops and, since 6.12, also by a bit of the
 * device. The IOMMU core writes both when a domain is attached, with the mutex of the IOMMU
 * group held. Up to 7.0 the bit shares a word with bits of the driver core, so the module
 * writes the bit only with the lock of the device held, too. The lock of the device comes
 * before xs_mutex: a bind holds the lock already, and other code that holds xs_mutex only tries
 * for the lock.
 */

static const struct dma_map_ops *our_ops(const struct xs_device *xdev)
{
	return xdev->is_blocked ? &xs_blocked_ops : &xdev->group->attachment.instance->ops;
}

/* Sets the module's DMA operations, again if a change of the group's type has reset them. */
static void set_module_ops(struct xs_device *xdev)
{
	struct device *dev = xdev->dev;
	const struct dma_map_ops *ops = our_ops(xdev);

	if (dev->dma_ops == ops)
		return;
	if (!xs_is_ours(dev->dma_ops))
		xdev->dma.ops = dev->dma_ops;
	set_dma_ops(dev, ops);
}

/* Sets the DMA bits as the module needs them. The device is locked. */
static void take_bits(struct xs_device *xdev)
{
	device_lock_assert(xdev->dev);
	if (xs_instance_copies(our_ops(xdev)))
		xs_dma_skip_no_sync(xdev->dev);
	xdev->dma.iommu |= xs_dma_iommu_clear(xdev->dev);
}

/*
 * Restores the DMA bit for the present type of the group. The device and its IOMMU group are
 * locked.
 */
static void restore_bits(struct xs_device *xdev)
{
	struct iommu_domain *domain = xs_locked_domain(xdev->dev);

	device_lock_assert(xdev->dev);
	if (xdev->dma.iommu)
		xs_dma_iommu_restore(xdev->dev, domain &&
				     domain->type & __IOMMU_DOMAIN_DMA_API);
	xdev->dma.iommu = false;
}

static int settle_one(struct device *dev, void *xdev)
{
	if (dev == ((struct xs_device *)xdev)->dev)
		restore_bits(xdev);
	return 0;
}

/*
 * If the lock of the device could not be taken when its group was detached, the device has no
 * driver, or waits for xs_mutex to bind a driver. So the bit is right before the driver's
 * probe.
 */
void xs_device_settle(struct xs_device *xdev)
{
	lockdep_assert_held(&xs_mutex);
	if (!xdev->is_attached && xdev->dma.iommu)
		iommu_group_for_each_dev(xdev->group->iommu_group, xdev, settle_one);
}

/*
 * Devices that the kernel is releasing from their IOMMU. On VT-d up to 6.12 the kernel sets
 * dma_ops to NULL then, which selects the direct mapping. A free through the direct mapping
 * would take the IOVA of coherent memory for a physical address, and free memory of others.
 * The list has a lock of its own, because xs_mutex may be held for long.
 */
static LIST_HEAD(releasing_devices);
static DEFINE_SPINLOCK(release_lock);

/* Prepares for the release of an attached device from its IOMMU, which comes after this. */
static void device_leave(struct xs_device *xdev)
{
	set_module_ops(xdev);
	xdev->is_removed = true;
	xdev->release_ops = our_ops(xdev);
	spin_lock(&release_lock);
	list_add(&xdev->released, &releasing_devices);
	spin_unlock(&release_lock);
}

void xs_device_released(struct device *dev)
{
	struct xs_device *xdev;

	spin_lock(&release_lock);
	list_for_each_entry(xdev, &releasing_devices, released) {
		if (xdev->dev != dev)
			continue;
		set_dma_ops(dev, xdev->release_ops);
		list_del_init(&xdev->released);
		break;
	}
	spin_unlock(&release_lock);
}

/*
 * Detaches a device that was removed, or that has left the IOMMU core's group. Its DMA bit is
 * not restored.
 */
static void detach_removed(struct xs_device *xdev)
{
	spin_lock(&release_lock);
	list_del_init(&xdev->released);
	set_dma_ops(xdev->dev, xdev->dma.ops);
	spin_unlock(&release_lock);
}

/*
 * A device that was never attached is freed at once. The mappings of other devices may be in
 * use.
 */
void xs_device_remove(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;

	lockdep_assert_held(&xs_mutex);
	if (xdev->is_attached)
		device_leave(xdev);
	else
		xs_device_free(xdev);
	if (!xs_group_is_attached(group))
		xs_group_clean(group);
}

static void dma_forget(struct xs_device *xdev)
{
	xdev->is_attached = false;
	xs_debug_forget(xdev->dev);
	put_device(xdev->dev);
}

/*
 * While drivers use the default domain, the group's type cannot change and the domain cannot
 * go. The bus ends the driver's own use before managed resources are freed, and so before the
 * detach. So the module holds a second use until the detach. If the device has a
 * dma_range_map, dma_configure() would leak the first map when called again, and the module
 * does without a use. Returns the reason of a failure, or NULL.
 */
static const char *pin_domain(struct xs_device *xdev)
{
	struct device *dev = xdev->dev;
	int error;

	if (dev->dma_range_map)
		return NULL;
	error = dev->bus->dma_configure(dev);
	xdev->pins_domain = !error;
	if (error == -EBUSY)
		return "its IOMMU group has another owner";
	return error ? "its bus could not configure its DMA: unbind its driver and bind it again" :
		       NULL;
}

/* Called while dev->driver is still set. */
static void unpin_domain(struct xs_device *xdev)
{
	if (xdev->pins_domain)
		xdev->dev->bus->dma_cleanup(xdev->dev);
	xdev->pins_domain = false;
}

/* ---- detach ---- */

/*
 * True if VFIO, or a driver with a domain of its own, owns the group, or while the device is
 * being reset: the kernel's own path must not be restored then. The mutex of the IOMMU group
 * is held, so the type does not change.
 */
static bool has_foreign_domain(struct device *dev)
{
	struct iommu_domain *domain = xs_locked_domain(dev);

	return domain && domain->type != IOMMU_DOMAIN_IDENTITY &&
	       !(domain->type & __IOMMU_DOMAIN_DMA_API);
}

static struct xs_device *attached_device(struct xs_group *group, struct device *dev)
{
	struct xs_device *xdev = xs_group_device(group, dev);

	return xdev && xdev->is_attached ? xdev : NULL;
}

/* Argument of restore_device(): a group, and the device that the caller has locked, or NULL. */
struct detaching {
	struct xs_group *group;
	struct device *locked;
};

/*
 * All devices of the group have one domain, so either all return to the kernel's own path, or
 * none. The mutex of the IOMMU group is held.
 */
static int restore_device(struct device *dev, void *data)
{
	const struct detaching *detaching = data;
	struct xs_device *xdev = attached_device(detaching->group, dev);

	if (has_foreign_domain(dev))
		return -EBUSY;
	if (!xdev)
		return 0;
	if (xs_is_ours(dev->dma_ops))
		set_dma_ops(dev, xdev->dma.ops);
	if (dev == detaching->locked) {
		restore_bits(xdev);
	} else if (device_trylock(dev)) {
		restore_bits(xdev);
		device_unlock(dev);
	}
	return 0;
}

/*
 * A change of the group's type resets the operations of its devices to the kernel's own. If a
 * device cannot be locked, the next check tries again. The mutex of the IOMMU group is held.
 */
static int set_again(struct device *dev, void *group)
{
	struct xs_device *xdev = attached_device(group, dev);

	if (!xdev)
		return 0;
	set_module_ops(xdev);
	if (device_trylock(dev)) {
		take_bits(xdev);
		device_unlock(dev);
	}
	return 0;
}

/*
 * The mutex of the IOMMU group is held, so the domain, which is the domain of all devices,
 * stays. While VFIO or another owner has the group, the default domain is kept for later, and
 * nothing is tried.
 */
static int retry_stuck(struct device *dev, void *data)
{
	struct iommu_domain *domain = xs_locked_domain(dev);
	struct xs_group *group = data;

	if (domain && !has_foreign_domain(dev))
		xs_backend_retry_in(&group->backend, domain);
	return 1;
}

/* Tries again to remove the pages that are stuck in the domain that the group has left. */
static void retry_stuck_pages(struct xs_group *group)
{
	if (!group->backend.stuck_in)
		return;
	group->stale.is_clean = false;
	if (!iommu_group_for_each_dev(group->iommu_group, group, retry_stuck))
		xs_backend_retry_in(&group->backend, NULL);
}

/*
 * Detaches a group. Returns false if the group cannot be detached now; then all maps fail.
 * Frees @group if no device of the group is left. A thread of a driver may still be calling
 * in: the detach waits for its map, or the map fails if the thread finds the group detached.
 * The caller holds the lock of @locked.
 */
static bool detach(struct xs_group *group, struct device *locked)
{
	struct detaching detaching = { group, locked };
	struct xs_device *xdev;

	retry_stuck_pages(group);
	if (!xs_backend_drain(&group->backend) ||
	    iommu_group_for_each_dev(group->iommu_group, &detaching,
				     restore_device))
		return false;
	list_for_each_entry(xdev, &group->devices, list) {
		if (!xdev->is_attached)
			continue;
		if (xdev->is_removed || xs_is_ours(xdev->dev->dma_ops))
			detach_removed(xdev);
		dma_forget(xdev);
	}
	engine_stop(group);
	xs_group_clean(group);
	module_put(THIS_MODULE);
	return true;
}

static void check_orphans(struct work_struct *work);
static DECLARE_DELAYED_WORK(orphan_work, check_orphans);
static struct workqueue_struct *orphan_queue;

/* True if a driver came while pages of the domain were stuck. All its maps fail. */
static bool waits_for_domain(const struct xs_group *group)
{
	return xs_group_is_attached(group) && group->attachment.drivers &&
	       group->backend.stuck_in;
}

static bool is_orphaned(const struct xs_group *group)
{
	return xs_group_is_attached(group) && !group->attachment.drivers;
}

void xs_group_end_orphan(struct xs_group *group, struct device *locked)
{
	lockdep_assert_held(&xs_mutex);
	if (is_orphaned(group))
		detach(group, locked);
}

bool xs_look_is_due(void)
{
	return READ_ONCE(look_is_due);
}

/* Looks at all groups again if a domain was attached. */
static void look_again(void)
{
	struct xs_group *group;

	if (!xchg(&look_is_due, false))
		return;
	list_for_each_entry(group, &xs_groups, list)
		xs_group_look(group);
}

static void check_orphans(struct work_struct *work)
{
	struct xs_group *group, *next;
	bool again = false;

	mutex_lock(&xs_mutex);
	look_again();
	list_for_each_entry_safe(group, next, &xs_groups, list) {
		if (waits_for_domain(group)) {
			retry_stuck_pages(group);
			again |= !!group->backend.stuck_in;
		}
		if (!is_orphaned(group))
			continue;
		if (detach(group, NULL))
			continue;
		iommu_group_for_each_dev(group->iommu_group, group, set_again);
		again = true;
	}
	mutex_unlock(&xs_mutex);
	if (again)
		queue_delayed_work(orphan_queue, &orphan_work,
				   time_before(jiffies,
					       READ_ONCE(attached_jiffies) +
					       HURRY_TICKS) ? 1 : ORPHAN_TICKS);
}

/*
 * Probe of the kernel's tracepoint attach_device_to_domain: the type of a group may have
 * changed. The IOMMU core holds the mutex of the group here, so the rest is left to a work.
 */
static void domain_attached(void *unused, struct device *dev)
{
	WRITE_ONCE(look_is_due, true);
	WRITE_ONCE(attached_jiffies, jiffies);
	mod_delayed_work(orphan_queue, &orphan_work, 0);
}

/*
 * Devres callback: the driver is gone, or its probe failed, and all managed resources of the
 * driver are freed. Managed resources are released last in, first out, and this resource was
 * added first. The notifications of the bus come either too early, before the managed DMA
 * memory of a failed probe is freed, or too late, when dev->driver is NULL.
 */
static void driver_gone(struct device *dev, void *data)
{
	struct xs_device *xdev = *(struct xs_device **)data;
	struct xs_group *group = xdev->group;

	mutex_lock(&xs_mutex);
	xdev->is_bound = false;
	xdev->is_aware = false;
	group->attachment.drivers--;
	update_aware(group);
	if (!group->attachment.drivers) {
		group->attachment.failure = NULL;
		xs_backend_mend(&group->backend);
		if (!detach(group, dev)) {
			xs_backend_leave(&group->backend);
			queue_delayed_work(orphan_queue, &orphan_work,
					   ORPHAN_TICKS);
		}
	}
	unpin_domain(xdev);
	mutex_unlock(&xs_mutex);
}

/* ---- attach ---- */

/* True if the engine maps in the group's own domain. */
static bool maps_in_domain(const struct xs_group *group)
{
	return group->attachment.drivers && !xs_backend_has_no_domain(&group->backend);
}

/*
 * Makes or resumes the engine for a device with a pinned domain. Returns the reason of a
 * failure, or NULL.
 */
static const char *engine_for(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;
	const char *refusal = xs_device_refusal(xdev);

	if (refusal)
		return refusal;
	if (maps_in_domain(group))
		return NULL;
	if (xs_others_use_kernel_path(xdev))
		return "another device of its IOMMU group uses the kernel's own path";
	if (xs_group_is_attached(group))
		return engine_resume(group, xdev);
	return engine_start(group, xdev);
}

/*
 * Attaches @xdev. Returns NULL, or the reason why the device is not attached or cannot map.
 *
 * Only the first device of a group may stay on the kernel's own path: for a later device, the
 * kernel's allocator would use a domain that the engine uses. A later device that cannot be
 * attached is blocked, and all its maps fail: because the device is not trusted, for instance,
 * or because the domain has pages that could not be removed. While the group is orphaned, an
 * attached or blocked device stays so.
 */
static const char *attach_device(struct xs_device *xdev)
{
	struct device *dev = xdev->dev;
	struct xs_device **resource;
	const char *failure;

	failure = pin_domain(xdev) ?: engine_for(xdev);
	if (!failure)
		xdev->is_blocked = false;
	else if (!xdev->is_attached)
		xdev->is_blocked = maps_in_domain(xdev->group) || xdev->group->backend.stuck_in;
	if (failure && !xdev->is_attached && !xdev->is_blocked) {
		unpin_domain(xdev);
		return failure;
	}
	resource = devres_alloc(driver_gone, sizeof(*resource),
				GFP_KERNEL | __GFP_NOFAIL);
	*resource = xdev;
	devres_add(dev, resource);
	if (!xdev->is_attached)
		get_device(dev);
	xdev->is_attached = true;
	xdev->on_kernel_path = false;
	set_module_ops(xdev);
	take_bits(xdev);
	xdev->is_bound = true;
	xdev->group->attachment.drivers++;
	update_aware(xdev->group);
	return failure;
}

static void leave_to_kernels_path(struct xs_device *xdev)
{
	xdev->on_kernel_path = true;
	xdev->group->stale.is_clean = false;
}

void xs_device_prepare(struct xs_device *xdev)
{
	lockdep_assert_held(&xs_mutex);
	xs_group_end_orphan(xdev->group, xdev->dev);
	xs_device_settle(xdev);
	xs_group_look(xdev->group);
}

void xs_device_attach(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;
	const char *failure = "the module is being unloaded";

	lockdep_assert_held(&xs_mutex);
	if (xdev->is_bound || !xs_device_has_driver(xdev))
		return;
	if (!group->assignment.policy) {
		leave_to_kernels_path(xdev);
		return;
	}
	/*
	 * An unload may have begun: it may have checked the references of the module already, and
	 * wait for the notifier that has called this function. The unload would free the new state.
	 */
	if (try_module_get(THIS_MODULE)) {
		failure = attach_device(xdev);
		module_put(THIS_MODULE);
	}
	/* A blocked device does not change the state of an attached group. */
	if (!xdev->is_blocked && (!failure || xdev->is_bound || !group->attachment.drivers))
		group->attachment.failure = failure;
	if (failure && !xdev->is_bound)
		leave_to_kernels_path(xdev);
	if (xdev->is_blocked)
		dev_err(xdev->dev, "xsmmu: all maps fail: the IOMMU group is attached, but this device cannot be: %s\n",
			failure);
	else if (failure && xdev->is_bound)
		dev_err(xdev->dev, "xsmmu: all maps fail: memory of an earlier driver is still in use: %s\n",
			failure);
	else if (failure)
		dev_err(xdev->dev, "xsmmu: not attached, the device stays on the kernel's own path: %s\n",
			failure);
}

int xs_attach_init(void)
{
	int error;

	orphan_queue = alloc_workqueue("xsmmu", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!orphan_queue)
		return -ENOMEM;
	error = register_trace_attach_device_to_domain(domain_attached, NULL);
	if (error)
		destroy_workqueue(orphan_queue);
	return error;
}

void xs_attach_exit(void)
{
	unregister_trace_attach_device_to_domain(domain_attached, NULL);
	tracepoint_synchronize_unregister();
	cancel_delayed_work_sync(&orphan_work);
	destroy_workqueue(orphan_queue);
}
