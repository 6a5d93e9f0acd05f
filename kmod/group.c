// SPDX-License-Identifier: GPL-2.0-only
/*
 * Take-over and give-back; see xsmmu.h for what a group is.
 *
 *   off       no policy chosen: the kernel's own path
 *   idle      a policy is chosen, no driver is bound
 *   attached  taken over, nothing mapped yet
 *   active    calls were counted through the engine
 *   failed    the take-over failed: the driver uses the kernel's own path
 *
 * Give-back never fails: what a driver left mapped is named, removed and
 * invalidated, so that the kernel's path finds the domain as it was.
 */
#include <linux/cpu.h>
#include <linux/device.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "compat/compat.h"
#include "xsmmu.h"

DEFINE_MUTEX(xs_mutex);
LIST_HEAD(xs_groups);
LIST_HEAD(xs_running);

/* At most this many leftovers are named. */
#define NAMED_MAX	8

/* ---- groups and devices ---- */

struct xs_device *xs_device_find(struct device *dev)
{
	struct xs_group *group;
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(group, &xs_groups, list)
		list_for_each_entry(xdev, &group->devices, list)
			if (xdev->dev == dev)
				return xdev;
	return NULL;
}

/* The group of @iommu_group, made if it is new; takes over the reference. */
static struct xs_group *group_get(struct iommu_group *iommu_group)
{
	struct xs_group *group;

	list_for_each_entry(group, &xs_groups, list) {
		if (group->iommu_group == iommu_group) {
			iommu_group_put(iommu_group);
			return group;
		}
	}
	group = kvzalloc(sizeof(*group), GFP_KERNEL);
	if (!group)
		return NULL;
	group->iommu_group = iommu_group;
	group->ops = xs_dma_ops;
	INIT_LIST_HEAD(&group->devices);
	INIT_WORK(&group->trim, xs_world_trim);
	list_add_tail(&group->list, &xs_groups);
	return group;
}

static void group_put(struct xs_group *group)
{
	if (!list_empty(&group->devices))
		return;
	list_del(&group->list);
	iommu_group_put(group->iommu_group);
	kvfree(group);
}

int xs_device_add(struct device *dev)
{
	struct iommu_group *iommu_group;
	struct xs_device *xdev;
	int error;

	lockdep_assert_held(&xs_mutex);
	if (xs_device_find(dev))
		return 0;
	iommu_group = iommu_group_get(dev);
	if (!iommu_group)
		return 0;	/* not behind an IOMMU */

	xdev = kzalloc(sizeof(*xdev), GFP_KERNEL);
	if (!xdev) {
		iommu_group_put(iommu_group);
		return -ENOMEM;
	}
	xdev->dev = dev;
	xdev->group = group_get(iommu_group);
	if (!xdev->group) {
		iommu_group_put(iommu_group);
		kfree(xdev);
		return -ENOMEM;
	}
	error = xs_sysfs_add(xdev);
	if (error) {
		group_put(xdev->group);
		kfree(xdev);
		return error;
	}
	list_add_tail(&xdev->list, &xdev->group->devices);
	return 0;
}

void xs_device_remove(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;

	lockdep_assert_held(&xs_mutex);
	xs_sysfs_remove(xdev);
	list_del(&xdev->list);
	kfree(xdev);
	group_put(group);
}

/* Bridges and the like have drivers that do no DMA or manage it themselves. */
static bool uses_dma_api(struct device *dev)
{
	struct device_driver *driver = READ_ONCE(dev->driver);

	return driver && !to_pci_driver(driver)->driver_managed_dma;
}

/* ---- take-over ---- */

/* What a peer's memory windows occupy on the bus must not be an IOVA. */
static int reserve_windows(struct xs_group *group, struct pci_dev *pdev)
{
	struct xs_space *space = &group->engine.space;
	struct pci_host_bridge *bridge = pci_find_host_bridge(pdev->bus);
	struct resource_entry *window;
	int error = 0;
	u64 next = 0;

	resource_list_for_each_entry(window, &bridge->windows)
		if (!error && resource_type(window->res) == IORESOURCE_MEM)
			error = xs_space_reserve(space, window->res->start -
							window->offset,
						 window->res->end -
							window->offset);
	if (list_empty(&bridge->dma_ranges))
		return error;
	/* All but these, which are sorted. */
	resource_list_for_each_entry(window, &bridge->dma_ranges) {
		u64 start = window->res->start - window->offset;

		if (!error && start > next)
			error = xs_space_reserve(space, next, start - 1);
		next = window->res->end - window->offset + 1;
	}
	if (!error && next)
		error = xs_space_reserve(space, next, U64_MAX);
	return error;
}

/* What nobody maps there must stay so. 0 or -ENOMEM. */
static int reserve(struct xs_group *group)
{
	struct iommu_resv_region *region, *next;
	struct xs_device *xdev;
	LIST_HEAD(regions);
	int error;

	error = iommu_get_group_resv_regions(group->iommu_group, &regions);
	list_for_each_entry_safe(region, next, &regions, list) {
		if (!error)
			error = xs_space_reserve(&group->engine.space,
						 region->start,
						 region->start +
							region->length - 1);
		kfree(region);
	}
	list_for_each_entry(xdev, &group->devices, list)
		if (!error)
			error = reserve_windows(group, to_pci_dev(xdev->dev));
	return error;
}

/* CPUs that go off-line from now on retire from the engine. */
static void run(struct xs_group *group)
{
	cpus_read_lock();
	list_add(&group->running, &xs_running);
	cpus_read_unlock();
}

/* They do no more, and none is about to. */
static void run_no_more(struct xs_group *group)
{
	cpus_read_lock();
	list_del(&group->running);
	cpus_read_unlock();
}

static const char *engine_start(struct xs_group *group, struct device *dev)
{
	struct xs_engine_config config = {
		.ops = &xs_linux_world,
		.world = group,
		.cpu_count = nr_cpu_ids,
		.policy = group->policy,
		.tuning = &group->tuning,
	};

	group->domain = iommu_get_domain_for_dev(dev);
	if (!group->domain || !(group->domain->type & __IOMMU_DOMAIN_PAGING))
		return "its IOMMU group does not translate: write DMA-FQ to /sys/kernel/iommu_groups/<group>/type first";
	if (group->domain->ops->iotlb_sync &&
	    !group->domain->ops->flush_iotlb_all)
		return "its IOMMU driver cannot invalidate a whole domain";
	/* There is per-CPU memory of possible CPUs only. */
	if (num_possible_cpus() != nr_cpu_ids)
		return "the numbers of the CPUs have gaps";
	config.start = group->domain->geometry.aperture_start;
	config.end = min(group->domain->geometry.aperture_end, XS_SPACE_END - 1) + 1;
	if (xs_world_init(group, dev))
		return "out of memory";
	if (xs_engine_init(&group->engine, &config)) {
		xs_world_exit(group);
		return "no IOVA space or out of memory";
	}
	if (reserve(group)) {
		xs_world_exit(group);
		xs_engine_destroy(&group->engine);
		return "out of memory";
	}
	/* Nothing of the kernel's own path stays cached. */
	iommu_flush_iotlb_all(group->domain);
	run(group);
	return NULL;
}

/* The group's policy, tuning and drivers are its engine's from the return on. */
static void engine_set(struct xs_group *group)
{
	struct xs_tuning tuning = group->tuning;

	tuning.batch_aware = group->aware;
	if (group->attached)
		xs_engine_set(&group->engine, group->policy, &tuning);
}

void xs_group_update_aware(struct xs_group *group)
{
	bool aware = group->attached;
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(xdev, &group->devices, list)
		if (xdev->taken && !xdev->aware)
			aware = false;
	if (aware == group->aware)
		return;
	group->aware = aware;
	engine_set(group);
}

/* Name, remove and count what is still mapped. */
static void sweep(struct xs_group *group, s64 live)
{
	int id = iommu_group_id(group->iommu_group);
	u64 iova = 0, found = 0;
	u32 mappings = 0;
	u32 pages;

	while (xs_engine_next_mapping(&group->engine, &iova, &pages)) {
		if (mappings++ < NAMED_MAX)
			pr_warn("group %d: IOVA 0x%llx is still mapped, %u pages: a driver did not unmap it\n",
				id, iova, pages);
		xs_world_sweep(group, iova, pages);
		found += pages;
		iova += (u64)pages << PAGE_SHIFT;
	}
	pr_warn("group %d: %llu pages removed at give-back, %lld expected\n", id,
		found, live);
}

static void engine_stop(struct xs_group *group)
{
	s64 live;

	run_no_more(group);
	xs_engine_sync(&group->engine, XS_SYNC_DRAIN);
	xs_world_exit(group);
	live = xs_engine_audit(&group->engine, &group->sum);
	if (live)
		sweep(group, live);
	if (live > 0) {
		/* Unmapped after all, if not by the driver. */
		group->sum.counts.unmap_extra_pages += live;
		group->sum.counts.direct_pages += live;
	}
	iommu_flush_iotlb_all(group->domain);
	xs_ledger_add(&group->past, &group->sum);
	xs_engine_destroy(&group->engine);
	group->domain = NULL;
}

/*
 * Does a driver of another device in the group use the kernel's own path, as
 * after a failed take-over? Two allocators must not share a domain.
 */
static bool uses_kernel_path(struct xs_device *xdev)
{
	struct xs_device *other;

	list_for_each_entry(other, &xdev->group->devices, list)
		if (other != xdev && !other->taken && uses_dma_api(other->dev))
			return true;
	return false;
}

static void give_back(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;

	set_dma_ops(xdev->dev, xdev->dma.ops);
	xs_dma_iommu_restore(xdev->dev, xdev->dma.iommu);
	xdev->taken = false;
	xdev->aware = false;
	if (!--group->attached)
		engine_stop(group);
	xs_group_update_aware(group);
	xs_debug_forget(xdev->dev);
	module_put(THIS_MODULE);
}

/*
 * The driver is gone, or its probe failed, and all that it had the kernel
 * manage for it is freed: managed resources go last in, first out, and this is
 * the first one. The bus's notifications come too early, before a failed
 * probe's managed DMA memory is freed, or too late, when dev->driver is NULL.
 */
static void released(struct device *dev, void *data)
{
	struct xs_device **xdev = data;

	mutex_lock(&xs_mutex);
	give_back(*xdev);
	mutex_unlock(&xs_mutex);
}

/*
 * Take over @xdev, with a reference of this module. NULL, or why not. Only the
 * first device of a group can fail: a later one would be left with the kernel's
 * allocator in the domain of ours.
 */
static const char *take_referenced(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;
	struct device *dev = xdev->dev;
	const char *failure = NULL;
	struct xs_device **resource;

	if (!group->attached && uses_kernel_path(xdev))
		return "another device of its IOMMU group uses the kernel's own path";
	if (!group->attached)
		failure = engine_start(group, dev);
	if (failure)
		return failure;
	resource = devres_alloc(released, sizeof(*resource),
				GFP_KERNEL | __GFP_NOFAIL);
	*resource = xdev;
	devres_add(dev, resource);
	xdev->dma.ops = dev->dma_ops;
	xdev->dma.iommu = xs_dma_iommu_clear(dev);
	set_dma_ops(dev, &group->ops);
	xdev->taken = true;
	group->attached++;
	xs_group_update_aware(group);
	return NULL;
}

/*
 * An unload may be on its way already: past its look at our references, and
 * waiting for the notifier that called us. It would free what is taken now.
 */
static const char *take(struct xs_device *xdev)
{
	const char *failure;

	if (!try_module_get(THIS_MODULE))
		return "the module is being unloaded";
	failure = take_referenced(xdev);
	if (failure)
		module_put(THIS_MODULE);
	return failure;
}

/* The device's driver is about to probe; the kernel's DMA path is set up. */
void xs_device_bind(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;
	const char *failure;

	lockdep_assert_held(&xs_mutex);
	if (!group->policy || xdev->taken || !uses_dma_api(xdev->dev))
		return;
	failure = take(xdev);
	if (!failure || !group->attached)
		group->failure = failure;
	if (failure)
		dev_err(xdev->dev, "xsmmu: not taken over, the kernel's own path stays: %s\n",
			failure);
}

/* ---- choosing ---- */

static int refuse(struct xs_device *xdev, int error, const char *why)
{
	dev_err(xdev->dev, "xsmmu: refused: %s\n", why);
	return error;
}

/* May this device be taken over at all? */
static int check_device(struct xs_device *xdev)
{
	struct pci_dev *pdev = to_pci_dev(xdev->dev);

	if (pdev->untrusted || pdev->external_facing)
		return refuse(xdev, -EPERM,
			      "untrusted (external-facing) device: only the kernel's own path bounces its partial pages");
	if (!dev_is_dma_coherent(xdev->dev))
		return refuse(xdev, -EOPNOTSUPP,
			      "its DMA is not coherent with the CPU's caches");
	return 0;
}

/* Between the kernel's path and ours only while no driver uses either. */
static int check_unbound(struct xs_device *xdev)
{
	if (uses_dma_api(xdev->dev))
		return refuse(xdev, -EBUSY,
			      "a driver is bound: unbind the drivers of its whole IOMMU group first");
	return 0;
}

int xs_group_choose(struct xs_group *group, const struct xs_policy *policy)
{
	struct xs_device *xdev;
	int error;

	lockdep_assert_held(&xs_mutex);
	if (policy == group->policy)
		return 0;
	list_for_each_entry(xdev, &group->devices, list) {
		error = policy ? check_device(xdev) : 0;
		if (!error && (!policy || !group->policy))
			error = check_unbound(xdev);
		if (error)
			return error;
	}
	group->policy = policy;
	group->failure = NULL;
	if (!policy)
		return 0;
	group->tuning = xs_tuning_default(policy);
	engine_set(group);
	return 0;
}

/*
 * Choose for a new device by the module's parameter. What has no NAPI poll to
 * end would defer to the timer all the time, so anything but a network device
 * is strict, and so is a group that has one.
 */
void xs_device_choose_default(struct xs_device *xdev,
			      const struct xs_policy *policy)
{
	struct xs_group *group = xdev->group;
	bool polls = to_pci_dev(xdev->dev)->class >> 16 ==
		     PCI_BASE_CLASS_NETWORK;

	lockdep_assert_held(&xs_mutex);
	if (!polls)
		policy = xs_policy_find("strict");
	if (!xdev->dev->driver && (!group->policy || !polls))
		xs_group_choose(group, policy);
}

int xs_group_tune(struct xs_group *group, const struct xs_tuning *tuning)
{
	lockdep_assert_held(&xs_mutex);
	if (!group->policy)
		return -ENODATA;
	if (!tuning->window_us || tuning->window_us > XS_WINDOW_MAX_US ||
	    !tuning->batch_pages || tuning->batch_pages > XS_BATCH_MAX_PAGES ||
	    !tuning->range_commands_max ||
	    tuning->range_commands_max > XS_RANGES_MAX)
		return -ERANGE;
	group->tuning = *tuning;
	engine_set(group);
	return 0;
}

/* ---- what is reported ---- */

/*
 * A balance below zero is a bug of ours: it is reported once, and the group
 * goes on with the policy that defers nothing.
 */
static void check_balance(struct xs_group *group)
{
	const struct xs_policy *strict = xs_policy_find("strict");

	if (xs_engine_live(&group->engine) >= 0 || group->policy == strict)
		return;
	pr_err("group %d: bug: more pages unmapped than mapped; policy is now strict\n",
	       iommu_group_id(group->iommu_group));
	xs_group_choose(group, strict);
}

s64 xs_group_live(struct xs_group *group)
{
	lockdep_assert_held(&xs_mutex);
	return group->attached ? xs_engine_live(&group->engine) : 0;
}

void xs_group_sum(struct xs_group *group, struct xs_ledger *sum)
{
	lockdep_assert_held(&xs_mutex);
	memset(sum, 0, sizeof(*sum));
	if (group->attached) {
		check_balance(group);
		xs_engine_ledger(&group->engine, sum);
	}
	xs_ledger_add(sum, &group->past);
	sum->commands_page += atomic64_read(&group->map_syncs.page) +
			      atomic64_read(&group->prune_syncs.page);
	sum->commands_domain += atomic64_read(&group->map_syncs.domain) +
				atomic64_read(&group->prune_syncs.domain);
}

enum xs_level xs_group_level(const struct xs_group *group)
{
	if (!group->attached)
		return XS_LEVEL_NONE;
	return xs_policy_level(group->policy, group->aware);
}

const char *xs_group_state(struct xs_group *group)
{
	if (!group->policy)
		return "off";
	if (group->failure)
		return "failed";
	if (!group->attached)
		return "idle";
	xs_engine_ledger(&group->engine, &group->sum);
	return group->sum.counts.maps ? "active" : "attached";
}
