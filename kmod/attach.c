// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attach and detach; see xsmmu.h for groups. The states of a group:
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
#include <trace/events/iommu.h>

#include <xsmmu/dma.h>

#include "compat/compat.h"
#include "xsmmu.h"

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

/*
 * Called for a range of IOVAs, both bounds inclusive. A return value other than 0 ends the
 * walk.
 */
typedef int (*xs_call_t)(u64 start, u64 last, void *data);

/* Calls @call for the memory windows of the bus: an IOVA in a window would reach a peer. */
static int each_window(struct pci_dev *pdev, xs_call_t call, void *data)
{
	struct pci_host_bridge *bridge = pci_find_host_bridge(pdev->bus);
	struct resource_entry *window;
	int end = 0;
	u64 next = 0;

	resource_list_for_each_entry(window, &bridge->windows)
		if (!end && resource_type(window->res) == IORESOURCE_MEM)
			end = call(window->res->start - window->offset,
				   window->res->end - window->offset, data);
	if (list_empty(&bridge->dma_ranges))
		return end;
	/* All addresses outside these windows, which are sorted. */
	resource_list_for_each_entry(window, &bridge->dma_ranges) {
		u64 start = window->res->start - window->offset;

		if (!end && start > next)
			end = call(next, start - 1, data);
		next = window->res->end - window->offset + 1;
	}
	if (!end && next)
		end = call(next, U64_MAX, data);
	return end;
}

/* Calls @call for all ranges in which the engine must not map. */
static int each_reserved(struct xs_group *group, const struct list_head *regions,
			 xs_call_t call, void *data)
{
	struct iommu_resv_region *region;
	struct xs_device *xdev;
	int end = 0;

	list_for_each_entry(region, regions, list)
		if (!end)
			end = call(region->start,
				   region->start + region->length - 1, data);
	list_for_each_entry(xdev, &group->devices, list)
		if (!end)
			end = each_window(to_pci_dev(xdev->dev), call, data);
	return end;
}

static int reserve(u64 start, u64 last, void *space)
{
	return xs_space_reserve(space, start, last);
}

static int go_below(u64 start, u64 last, void *data)
{
	u64 *top = data;
	bool within = *top - start <= last - start && start;

	if (within)
		*top = start - 1;
	return within;
}

/*
 * Where the IOMMU translates interrupt writes, the kernel maps the pages that the writes go
 * to, MSI pages, in the group's domain, where they stay as long as the domain. The IOVAs come
 * from the kernel's own allocator, which does not know the engine's IOVAs. They are not in the
 * IOMMU_RESV_SW_MSI region, which is for other domains. check_stale_mappings() finds the MSI
 * pages that exist. The next MSI page is either at the start of that allocator, the top of 4
 * GiB, or at an IOVA that the allocator has used before.
 */
#define MSI_PAGE_BYTES	(64ULL << 20)

static bool has_msi_pages(const struct list_head *regions)
{
	struct iommu_resv_region *region;

	list_for_each_entry(region, regions, list)
		if (region->type == IOMMU_RESV_SW_MSI)
			return true;
	return false;
}

static int reserve_msi_pages(struct xs_group *group,
			     const struct list_head *regions)
{
	struct xs_space *space = &group->backend.engine.space;
	u64 top = XS_LOW_LAST;
	int error = 0;

	for (u32 i = 0; i < group->msi_page_count && !error; i++)
		error = xs_space_reserve(space, group->msi_pages[i],
					 group->msi_pages[i]);
	if (error || !has_msi_pages(regions))
		return error;
	while (each_reserved(group, regions, go_below, &top))
		;
	return xs_space_reserve(space, top - min(top, MSI_PAGE_BYTES - 1), top);
}

static void free_regions(struct list_head *regions)
{
	struct iommu_resv_region *region, *next;

	list_for_each_entry_safe(region, next, regions, list)
		kfree(region);
}

/* Reserves all ranges in which the engine must not map, MSI pages included. 0 or -ENOMEM. */
static int reserve_regions(struct xs_group *group)
{
	LIST_HEAD(regions);
	int error;

	error = iommu_get_group_resv_regions(group->iommu_group, &regions);
	if (!error)
		error = each_reserved(group, &regions, reserve,
				      &group->backend.engine.space);
	if (!error)
		error = reserve_msi_pages(group, &regions);
	free_regions(&regions);
	return error;
}

/* CPUs that go off-line after this retire from the engine. */
static void run(struct xs_group *group)
{
	cpus_read_lock();
	list_add(&group->running, &xs_running);
	cpus_read_unlock();
}

/* No CPU-hotplug callback uses this engine after this returns. */
static void run_no_more(struct xs_group *group)
{
	cpus_read_lock();
	list_del(&group->running);
	cpus_read_unlock();
}

/* Reason why an engine cannot use @domain; NULL if an engine can. */
static const char *check_domain(struct iommu_domain *domain)
{
	if (!domain || !(domain->type & __IOMMU_DOMAIN_PAGING))
		return "its IOMMU group does not translate: write DMA-FQ to /sys/kernel/iommu_groups/<group>/type first";
	if (!(domain->pgsize_bitmap & PAGE_SIZE))
		return "its IOMMU has no pages of the size that the CPU's have";
	if (domain->ops->iotlb_sync && !domain->ops->flush_iotlb_all)
		return "its IOMMU driver cannot invalidate a whole domain";
	/* iommu_map() would choose the entry sizes. */
	if (!domain->ops->map_pages && !xs_domain_is_generic(domain))
		return "its IOMMU driver cannot map single pages";
	return NULL;
}

static bool is_in_region(const struct list_head *regions, u64 iova)
{
	struct iommu_resv_region *region;

	list_for_each_entry(region, regions, list)
		if (iova - region->start < region->length)
			return true;
	return false;
}

/* The kernel's own path allocates IOVAs below this address while there is room. */
#define STALE_MAPPINGS_END	BIT_ULL(32)

/*
 * True for memory of the machine or of a device. A page of registers beside memory may have a
 * struct page, too.
 */
static bool is_memory(u64 phys)
{
	unsigned long pfn = PHYS_PFN(phys);

	return page_is_ram(pfn) ||
	       (pfn_valid(pfn) && is_zone_device_page(pfn_to_page(pfn)));
}

/*
 * Checks for an MSI page: not memory, in a domain where the kernel maps MSI pages. Remembers
 * the page.
 */
static bool is_msi_page(struct xs_group *group, const struct list_head *regions,
			u64 iova, u64 phys)
{
	if (!has_msi_pages(regions) || is_memory(phys) ||
	    group->msi_page_count == XS_MSI_PAGES)
		return false;
	group->msi_pages[group->msi_page_count++] = iova;
	return true;
}

/*
 * Reason to refuse a domain in which a driver has left mappings of the kernel's own path; NULL
 * if there are none. Only the kernel's own path can unmap them, and the engine must not map at
 * their IOVAs.
 */
static const char *check_stale_mappings(struct xs_group *group,
					struct iommu_domain *domain)
{
	u64 end = min(domain->geometry.aperture_end, STALE_MAPPINGS_END - 1);
	/*
	 * The kernel's own path maps in the IOMMU's smallest pages, which may be smaller than the
	 * CPU's.
	 */
	u64 step = max_t(u64, BIT_ULL(__ffs(domain->pgsize_bitmap)), SZ_4K);
	u64 iova = domain->geometry.aperture_start;
	const char *failure = NULL;
	LIST_HEAD(regions);

	if (group->clean)
		return NULL;
	group->msi_page_count = 0;
	if (iommu_get_group_resv_regions(group->iommu_group, &regions))
		failure = "out of memory";
	for (; !failure && iova < end; iova += step) {
		u64 phys;

		if (IS_ALIGNED(iova, XS_BLOCK_BYTES))
			cond_resched();
		phys = iommu_iova_to_phys(domain, iova);
		if (phys && !is_in_region(&regions, iova) &&
		    !is_msi_page(group, &regions, iova, phys))
			failure = "a driver has left memory mapped on the kernel's own path: close what uses it; or for a new domain " XS_NEW_DOMAIN("<group>");
	}
	/* The kernel may map more MSI pages at any time. */
	group->clean = !failure && !has_msi_pages(&regions);
	free_regions(&regions);
	return failure;
}

/* True if all devices have one IOMMU, and so one page table. */
static bool is_of_one_iommu(const struct xs_group *group,
			    const struct xs_device *xdev)
{
	struct xs_device *other;

	list_for_each_entry(other, &group->devices, list)
		if (!other->gone && other->seen.iommu != xdev->seen.iommu)
			return false;
	return true;
}

struct xs_backend_config xs_group_backend_config(const struct xs_group *group,
						 const struct xs_device *xdev)
{
	struct xs_backend_config config = {
		.domain = iommu_get_domain_for_dev(xdev->dev),
		.dev = xdev->dev,
		.iommu = &xdev->seen.like,
		.direct = group->direct,
	};

	if (!is_of_one_iommu(group, xdev))
		config.no_direct = "its IOMMU group has more than one IOMMU";
	return config;
}

static const char *engine_make(struct xs_group *group, struct xs_device *xdev,
			       struct iommu_domain *domain)
{
	struct xs_backend_config backend_config = xs_group_backend_config(group, xdev);
	struct xs_engine_config config = {
		.ops = &xs_linux_backend,
		.backend = &group->backend,
		.cpu_count = nr_cpu_ids,
		.policy = group->policy,
		.tuning = &group->tuning,
		.start = domain->geometry.aperture_start,
		.end = min(domain->geometry.aperture_end, XS_SPACE_END - 1) + 1,
	};

	/* Per-CPU memory exists only for possible CPUs. */
	if (num_possible_cpus() != nr_cpu_ids)
		return "the numbers of the CPUs have gaps";
	if (xs_backend_init(&group->backend, &backend_config))
		return "out of memory";
	config.remembers = group->backend.domain.iommu.kicks || XS_REFUSES;
	if (xs_engine_init(&group->backend.engine, &config)) {
		xs_backend_exit(&group->backend);
		return "no IOVA space or out of memory";
	}
	if (reserve_regions(group) || (xs_instance_copies(&group->instance->ops) &&
			       xs_engine_add_pool(&group->backend.engine))) {
		xs_backend_exit(&group->backend);
		xs_engine_destroy(&group->backend.engine);
		return "out of memory";
	}
	group->geometry = domain->geometry;
	return NULL;
}

static int is_stranger(struct device *dev, void *unused)
{
	return !dev_is_pci(dev);
}

/*
 * Makes the engine. A driver is about to probe, and the device is locked and claimed, so the
 * domain is the domain of the last xs_group_look(). The same holds in engine_resume().
 */
static const char *engine_start(struct xs_group *group, struct xs_device *xdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(xdev->dev);
	const char *failure = check_domain(domain);

	if (failure)
		return failure;
	if (xs_attach_is_deferred(xdev->dev))
		return "it still uses the tables of another kernel";
	if (iommu_group_for_each_dev(group->iommu_group, NULL, is_stranger))
		return "its IOMMU group has a device that is not a PCI device";
	failure = check_stale_mappings(group, domain);
	if (failure)
		return failure;
	group->instance = xs_instance_get(&group->backend, group->tuning.copy_bytes);
	if (!group->instance)
		return "too many IOMMU groups are attached already";
	failure = engine_make(group, xdev, domain);
	if (failure) {
		xs_instance_put(group->instance);
		group->instance = NULL;
		return failure;
	}
	/* Invalidates cached translations of the kernel's own path. */
	xs_backend_flush(&group->backend);
	run(group);
	__module_get(THIS_MODULE);
	return NULL;
}

/* A driver has come while the group is orphaned. The group may have another domain by now. */
static const char *engine_resume(struct xs_group *group, struct xs_device *xdev)
{
	struct xs_backend_config config;
	struct iommu_domain *domain = iommu_get_domain_for_dev(xdev->dev);
	const char *failure = check_domain(domain);

	if (failure)
		return failure;
	if (domain->geometry.aperture_start != group->geometry.aperture_start ||
	    domain->geometry.aperture_end != group->geometry.aperture_end)
		return "its IOMMU group has other addresses than before";
	if (group->backend.stuck_in)
		xs_backend_retry_in(&group->backend, domain);
	if (xs_backend_is_stuck(&group->backend))
		return "its IOMMU driver could not remove pages from this domain: for a new one " XS_NEW_DOMAIN("<group>");
	failure = check_stale_mappings(group, domain);
	if (failure)
		return failure;
	config = xs_group_backend_config(group, xdev);
	if (xs_backend_enter(&group->backend, &config))
		return "out of memory";
	xs_backend_flush(&group->backend);
	return NULL;
}

/* Nothing is mapped, and no driver is bound. */
static void engine_stop(struct xs_group *group)
{
	run_no_more(group);
	/* Waits for calls that have seen the module's operations. No device has them any more. */
	xs_engine_settle(&group->backend.engine);
	xs_backend_exit(&group->backend);
	xs_engine_leak_check(&group->backend.engine, &group->sum);
	xs_backend_flush(&group->backend);
	xs_stats_add(&group->past, &group->sum);
	xs_engine_destroy(&group->backend.engine);
	group->backend.domain.now = NULL;
	xs_instance_put(group->instance);
	group->instance = NULL;
}

void xs_group_set(struct xs_group *group)
{
	struct xs_tuning tuning = xs_group_tuning(group);

	if (group->instance)
		xs_engine_set(&group->backend.engine, group->policy, &tuning);
}

void xs_group_update_aware(struct xs_group *group)
{
	bool aware = group->attached;
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(xdev, &group->devices, list)
		if (xdev->bound && !xdev->aware)
			aware = false;
	if (aware == group->aware)
		return;
	group->aware = aware;
	if (!xs_group_decide_again(group))
		xs_group_set(group);
}

int __xsmmu_set_batch_aware(struct device *dev)
{
	struct xs_device *xdev;
	int error = -ENODEV;

	mutex_lock(&xs_mutex);
	xdev = xs_device_find(dev);
	if (xdev && xdev->bound) {
		xdev->aware = true;
		xs_group_update_aware(xdev->group);
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
	return xdev->blocked ? &xs_blocked_ops : &xdev->group->instance->ops;
}

/* Sets the module's DMA operations, again if a change of the group's type has reset them. */
static void take_ops(struct xs_device *xdev)
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

static int settle(struct device *dev, void *xdev)
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
	if (!xdev->taken && xdev->dma.iommu)
		iommu_group_for_each_dev(xdev->group->iommu_group, xdev, settle);
}

/*
 * Devices that the kernel is releasing from their IOMMU. On VT-d up to 6.12 the kernel sets
 * dma_ops to NULL then, which selects the direct mapping. A free through the direct mapping
 * would take the IOVA of coherent memory for a physical address, and free memory of others.
 * The list has a lock of its own, because xs_mutex may be held for long.
 */
static LIST_HEAD(removed_devices);
static DEFINE_SPINLOCK(removed_lock);

void xs_device_leave(struct xs_device *xdev)
{
	take_ops(xdev);
	xdev->gone = true;
	xdev->removed_ops = our_ops(xdev);
	spin_lock(&removed_lock);
	list_add(&xdev->removed, &removed_devices);
	spin_unlock(&removed_lock);
}

void xs_device_left(struct device *dev)
{
	struct xs_device *xdev;

	spin_lock(&removed_lock);
	list_for_each_entry(xdev, &removed_devices, removed) {
		if (xdev->dev != dev)
			continue;
		set_dma_ops(dev, xdev->removed_ops);
		list_del_init(&xdev->removed);
		break;
	}
	spin_unlock(&removed_lock);
}

/*
 * Detaches a device that was removed, or that has left the IOMMU core's group. Its DMA bit is
 * not restored.
 */
static void gone_detach(struct xs_device *xdev)
{
	spin_lock(&removed_lock);
	list_del_init(&xdev->removed);
	set_dma_ops(xdev->dev, xdev->dma.ops);
	spin_unlock(&removed_lock);
}

static void dma_forget(struct xs_device *xdev)
{
	xdev->taken = false;
	xs_debug_forget(xdev->dev);
	put_device(xdev->dev);
}

/*
 * While drivers use the default domain, the group's type cannot change and the domain cannot
 * go. The bus ends the driver's own use before managed resources are freed, and so before the
 * detach. So the module holds a second use until the detach. If the device has a
 * dma_range_map, dma_configure() would leak the first map when called again, and the module
 * does without a use.
 */
static bool claim(struct xs_device *xdev)
{
	struct device *dev = xdev->dev;

	if (!dev->dma_range_map)
		xdev->claimed = !dev->bus->dma_configure(dev);
	return xdev->claimed || dev->dma_range_map;
}

/* Called while dev->driver is still set. */
static void unclaim(struct xs_device *xdev)
{
	if (xdev->claimed)
		xdev->dev->bus->dma_cleanup(xdev->dev);
	xdev->claimed = false;
}

/* ---- detach ---- */

/*
 * True if VFIO, or a driver with a domain of its own, owns the group, or while the device is
 * being reset: the kernel's own path must not be restored then. The mutex of the IOMMU group
 * is held, here and in the two functions below, so the type does not change.
 */
static bool has_own_domain(struct device *dev)
{
	struct iommu_domain *domain = xs_locked_domain(dev);

	return domain && domain->type != IOMMU_DOMAIN_IDENTITY &&
	       !(domain->type & __IOMMU_DOMAIN_DMA_API);
}

static struct xs_device *taken_device(struct xs_group *group, struct device *dev)
{
	struct xs_device *xdev = xs_group_device(group, dev);

	return xdev && xdev->taken ? xdev : NULL;
}

/* Argument of hand_back(): a group, and the device that the caller has locked, or NULL. */
struct given_back {
	struct xs_group *group;
	struct device *locked;
};

/*
 * All devices of the group have one domain, so either all return to the kernel's own path, or
 * none.
 */
static int hand_back(struct device *dev, void *data)
{
	const struct given_back *given = data;
	struct xs_device *xdev = taken_device(given->group, dev);

	if (has_own_domain(dev))
		return -EBUSY;
	if (!xdev)
		return 0;
	if (xs_is_ours(dev->dma_ops))
		set_dma_ops(dev, xdev->dma.ops);
	if (dev == given->locked) {
		restore_bits(xdev);
	} else if (device_trylock(dev)) {
		restore_bits(xdev);
		device_unlock(dev);
	}
	return 0;
}

/*
 * A change of the group's type resets the operations of its devices to the kernel's own. If a
 * device cannot be locked, the next check tries again.
 */
static int keep(struct device *dev, void *group)
{
	struct xs_device *xdev = taken_device(group, dev);

	if (!xdev)
		return 0;
	take_ops(xdev);
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

	if (domain && !has_own_domain(dev))
		xs_backend_retry_in(&group->backend, domain);
	return 1;
}

/* Tries again to remove stuck pages. Returns true if some are left. */
static bool is_stuck(struct xs_group *group)
{
	if (group->backend.stuck_in) {
		group->clean = false;
		if (!iommu_group_for_each_dev(group->iommu_group, group,
					      retry_stuck))
			xs_backend_retry_in(&group->backend, NULL);
	}
	return xs_backend_is_stuck(&group->backend);
}

/*
 * Detaches a group. Returns false if the group cannot be detached now; then all maps fail.
 * Frees @group if no device of the group is left. A thread of a driver may still be calling
 * in: the detach waits for its map, or the map fails if the thread finds the group detached.
 * The caller holds the lock of @locked.
 */
static bool detach(struct xs_group *group, struct device *locked)
{
	struct given_back given = { group, locked };
	struct xs_device *xdev;
	bool live;

	xs_backend_fail_maps(&group->backend);
	live = xs_engine_live(&group->backend.engine) > 0;
	/* A stopped engine cannot retry removals, so deferred unmaps are flushed first. */
	xs_engine_settle(&group->backend.engine);
	/* For the same reason chunks are freed first. */
	if (!live)
		xs_chunks_drop(&group->backend);
	if (is_stuck(group) || live ||
	    iommu_group_for_each_dev(group->iommu_group, &given, hand_back))
		return false;
	list_for_each_entry(xdev, &group->devices, list) {
		if (!xdev->taken)
			continue;
		if (xdev->gone || xs_is_ours(xdev->dev->dma_ops))
			gone_detach(xdev);
		dma_forget(xdev);
	}
	engine_stop(group);
	xs_group_clean(group);
	module_put(THIS_MODULE);
	return true;
}

static void check_orphaned(struct work_struct *work);
static DECLARE_DELAYED_WORK(orphan_work, check_orphaned);
static struct workqueue_struct *orphan_queue;

/* True if a driver came while pages of the domain were stuck. All its maps fail. */
static bool waits(const struct xs_group *group)
{
	return group->instance && group->attached && group->backend.stuck_in;
}

static bool is_orphaned(const struct xs_group *group)
{
	return group->instance && !group->attached;
}

void xs_group_end_orphan(struct xs_group *group, struct device *locked)
{
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

static void check_orphaned(struct work_struct *work)
{
	struct xs_group *group, *next;
	bool again = false;

	mutex_lock(&xs_mutex);
	look_again();
	list_for_each_entry_safe(group, next, &xs_groups, list) {
		if (waits(group))
			again |= is_stuck(group);
		if (!is_orphaned(group))
			continue;
		if (detach(group, NULL))
			continue;
		iommu_group_for_each_dev(group->iommu_group, group, keep);
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
static void released(struct device *dev, void *data)
{
	struct xs_device *xdev = *(struct xs_device **)data;
	struct xs_group *group = xdev->group;

	mutex_lock(&xs_mutex);
	xdev->bound = false;
	xdev->aware = false;
	group->attached--;
	xs_group_update_aware(group);
	if (!group->attached) {
		group->failure = NULL;
		xs_engine_flush(&group->backend.engine, XS_FLUSH_DRAIN);
		xs_backend_mend(&group->backend);
		if (!detach(group, dev)) {
			xs_backend_leave(&group->backend);
			queue_delayed_work(orphan_queue, &orphan_work,
					   ORPHAN_TICKS);
		}
	}
	unclaim(xdev);
	mutex_unlock(&xs_mutex);
}

/* ---- attach ---- */

/* True if the engine maps in the group's own domain. */
static bool is_at_work(const struct xs_group *group)
{
	return group->attached && !xs_backend_is_blocked(&group->backend);
}

/* Makes or resumes the engine for a claimed device. Returns the reason of a failure, or NULL. */
static const char *engine_for(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;
	const char *refusal = xs_device_refusal(xdev);

	if (refusal)
		return refusal;
	if (is_at_work(group))
		return NULL;
	if (xs_others_use_kernel_path(xdev))
		return "another device of its IOMMU group uses the kernel's own path";
	if (group->instance)
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
static const char *take(struct xs_device *xdev)
{
	struct device *dev = xdev->dev;
	struct xs_device **resource;
	const char *failure;

	failure = claim(xdev) ? engine_for(xdev) :
				"its IOMMU group has another owner";
	if (!failure)
		xdev->blocked = false;
	else if (!xdev->taken)
		xdev->blocked = is_at_work(xdev->group) || xdev->group->backend.stuck_in;
	if (failure && !xdev->taken && !xdev->blocked) {
		unclaim(xdev);
		return failure;
	}
	resource = devres_alloc(released, sizeof(*resource),
				GFP_KERNEL | __GFP_NOFAIL);
	*resource = xdev;
	devres_add(dev, resource);
	if (!xdev->taken)
		get_device(dev);
	xdev->taken = true;
	xdev->on_kernel_path = false;
	take_ops(xdev);
	take_bits(xdev);
	xdev->bound = true;
	xdev->group->attached++;
	xs_group_update_aware(xdev->group);
	return failure;
}

static void leave_to_kernel(struct xs_device *xdev)
{
	xdev->on_kernel_path = true;
	xdev->group->clean = false;
}

void xs_device_bind(struct xs_device *xdev)
{
	struct xs_group *group = xdev->group;
	const char *failure = "the module is being unloaded";

	lockdep_assert_held(&xs_mutex);
	xs_group_end_orphan(group, xdev->dev);
	xs_device_settle(xdev);
	xs_group_look(group);
	xs_device_choose(xdev, true);
	if (xdev->bound || !xs_device_has_driver(xdev))
		return;
	if (!group->policy) {
		leave_to_kernel(xdev);
		return;
	}
	/*
	 * An unload may have begun: it may have checked the references of the module already, and
	 * wait for the notifier that has called this function. The unload would free the new state.
	 */
	if (try_module_get(THIS_MODULE)) {
		failure = take(xdev);
		module_put(THIS_MODULE);
	}
	/* A blocked device does not change the state of an attached group. */
	if (!xdev->blocked && (!failure || xdev->bound || !group->attached))
		group->failure = failure;
	if (failure && !xdev->bound)
		leave_to_kernel(xdev);
	if (xdev->blocked)
		dev_err(xdev->dev, "xsmmu: all its maps fail, as its IOMMU group is attached, and it cannot be: %s\n",
			failure);
	else if (failure && xdev->bound)
		dev_err(xdev->dev, "xsmmu: all its maps fail, as what a driver before has left is in use still: %s\n",
			failure);
	else if (failure)
		dev_err(xdev->dev, "xsmmu: not attached, the kernel's own path stays: %s\n",
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
