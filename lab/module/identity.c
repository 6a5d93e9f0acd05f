// SPDX-License-Identifier: GPL-2.0-only
/*
 * Static 1:1 tables: see identity.h.
 *
 * A choice for a group only waits for a driver. The bus notifies this file after the kernel has set
 * up the device's DMA, and before the probe. Then all memory is mapped, and the device gets the
 * direct path. If a step fails, what was done is undone, and the device stays on the kernel's own
 * path, which translates and protects; the file has the reason.
 *
 * A resource of the driver undoes all this after the driver has gone and its own resources are
 * freed. Until then a second use of the group's default domain keeps the domain.
 *
 * The table covers what the kernel calls System RAM when the first driver is bound, widened to
 * whole leaves, and neither memory that is added later nor memory of devices: an access there is a
 * fault. A leaf that would overlap a reserved region (the window of MSI writes, a region that the
 * kernel has mapped 1:1) is replaced by smaller leaves. A reserved page in memory that the kernel
 * has not mapped 1:1 is an error.
 */
#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/dma-direct.h>
#include <linux/ioport.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>

#include "../../kmod/compat/compat.h"
#include "identity.h"

static ulong identity_reserved;
module_param(identity_reserved, ulong, 0600);
MODULE_PARM_DESC(identity_reserved, "for tests: an address that counts as reserved in 1:1 tables made from now on (default 0: none)");

/* Sizes of leaves, largest first, and the words for them. */
static const struct {
	u64 bytes;
	const char *word;
} leaves[] = { { SZ_1G, "1g" }, { SZ_2M, "2m" }, { SZ_4K, "4k" } };

#define LEAVES		ARRAY_SIZE(leaves)
#define SMALLEST	(LEAVES - 1)
#define TABLE_LG2	9	/* a page of the table has 512 entries */
#define GROWING_BYTES	BIT_ULL(39)	/* what the root describes before it grows */

/* Where the kernel maps MSI pages on demand, if the IOMMU translates MSI writes. */
#define MSI_PAGES_START	(SZ_4G - SZ_64M)

/* Leaves of one size in a row. */
struct extent {
	struct list_head list;
	u64 start, end;
	u64 mapped_end;		/* the leaves below are in the table */
	u32 leaf;		/* index in leaves[] */
};

/* A chosen group. */
struct identity {
	struct list_head list;
	struct iommu_group *group;
	u32 leaf;		/* index in leaves[] */
	u32 drivers;		/* bound to devices of the group, and using the table */
	bool is_mapped;
	bool is_stuck;		/* the IOMMU driver could not remove the table's leaves */
	const char *failure;	/* why the last bind left the device on the kernel's own path */

	/* While mapped, or stuck. */
	struct iommu_domain *domain;
	struct list_head extents;
	struct list_head regions;	/* of the group, while the extents are planned */
	u64 counts[LEAVES];
	u64 kernel_pages;	/* reserved pages in memory, which the kernel has mapped 1:1 */
	u64 table_pages;
	u64 set_up_ns;
};

/* The resource of a bound driver. */
struct binding {
	struct identity *identity;
	const struct dma_map_ops *ops;	/* the device's own */
	bool iommu;			/* the device's own selector of the path, see compat.h */
};

/* Guards all of the above. Taken inside a device's lock. */
static DEFINE_MUTEX(identity_lock);
static LIST_HEAD(identities);

static struct identity *identity_of(struct device *dev)
{
	struct iommu_group *group = iommu_group_get(dev);
	struct identity *identity, *found = NULL;

	lockdep_assert_held(&identity_lock);
	list_for_each_entry(identity, &identities, list)
		if (identity->group == group)
			found = identity;
	iommu_group_put(group);
	return found;
}

/* ---- the plan ---- */

static int note_end(struct resource *memory, void *end)
{
	*(u64 *)end = max_t(u64, *(u64 *)end, memory->end + 1);
	return 0;
}

static u64 memory_end(void)
{
	u64 end = 0;

	walk_iomem_res_desc(IORES_DESC_NONE, IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY, 0, -1, &end,
			    note_end);
	return end;
}

static bool has_memory(u64 start, u64 bytes)
{
	return region_intersects(start, bytes, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
	       REGION_DISJOINT;
}

static bool is_reserved(const struct identity *identity, u64 start, u64 bytes)
{
	const struct iommu_resv_region *region;
	u64 from, end;

	if (identity_reserved && identity_reserved - start < bytes)
		return true;
	list_for_each_entry(region, &identity->regions, list) {
		from = region->type == IOMMU_RESV_SW_MSI ? MSI_PAGES_START : region->start;
		end = region->type == IOMMU_RESV_SW_MSI ? SZ_4G : region->start + region->length;
		if (start < end && from < start + bytes)
			return true;
	}
	return false;
}

static const char *plan_leaf(struct identity *identity, u64 start, u32 leaf)
{
	u64 bytes = leaves[leaf].bytes;
	struct extent *extent;

	identity->counts[leaf]++;
	if (!list_empty(&identity->extents)) {
		extent = list_last_entry(&identity->extents, struct extent, list);
		if (extent->leaf == leaf && extent->end == start) {
			extent->end += bytes;
			return NULL;
		}
	}
	extent = kzalloc(sizeof(*extent), GFP_KERNEL);
	if (!extent)
		return "out of memory";
	*extent = (struct extent) { .start = start, .end = start + bytes, .mapped_end = start,
				    .leaf = leaf };
	list_add_tail(&extent->list, &identity->extents);
	return NULL;
}

static const char *plan_reserved(struct identity *identity, u64 start)
{
	if (iommu_iova_to_phys(identity->domain, start) != start)
		return "a reserved region is in memory, and not mapped 1:1";
	identity->kernel_pages++;
	return NULL;
}

/* Plans the leaves of [@start, @end), at most leaves[@leaf] large. NULL, or why that failed. */
static const char *plan(struct identity *identity, u64 start, u64 end, u32 leaf)
{
	u64 bytes = leaves[leaf].bytes;
	const char *failure = NULL;

	for (; start < end && !failure; start += bytes) {
		cond_resched();
		if (!has_memory(start, bytes))
			continue;
		if (leaf >= identity->leaf && !is_reserved(identity, start, bytes))
			failure = plan_leaf(identity, start, leaf);
		else if (leaf < SMALLEST)
			failure = plan(identity, start, start + bytes, leaf + 1);
		else
			failure = plan_reserved(identity, start);
	}
	return failure;
}

/*
 * Only the kernel's own path can unmap what a driver has left mapped there, and the table must not
 * replace it. That path maps below 4 GiB while there is room.
 */
static const char *check_vacant(const struct identity *identity)
{
	u64 iova, end = max(memory_end(), SZ_4G);

	for (iova = 0; iova < end; iova += SZ_4K) {
		if (IS_ALIGNED(iova, SZ_2M))
			cond_resched();
		if (iommu_iova_to_phys(identity->domain, iova) &&
		    !is_reserved(identity, iova, SZ_4K))
			return "a driver has left memory mapped on the kernel's own path";
	}
	return NULL;
}

static const char *plan_all(struct identity *identity)
{
	const char *failure = "out of memory";

	INIT_LIST_HEAD(&identity->regions);
	if (!iommu_get_group_resv_regions(identity->group, &identity->regions))
		failure = check_vacant(identity) ?:
			  plan(identity, 0, memory_end(), 0);
	iommu_put_resv_regions(NULL, &identity->regions);
	return failure;
}

/* ---- the table ---- */

/* Number of pages of the table that map BIT(@shift) bytes each. */
static u64 count_tables_of(const struct identity *identity, u32 shift)
{
	const struct extent *extent;
	u64 first, last, next = 0, pages = 0;

	list_for_each_entry(extent, &identity->extents, list) {
		first = max(extent->start >> shift, next);
		last = (extent->end - 1) >> shift;
		if (leaves[extent->leaf].bytes >> shift || last < first)
			continue;
		pages += last - first + 1;
		next = last + 1;
	}
	return pages;
}

/* Number of pages of the table below the root, which belongs to the domain. */
static u64 count_tables(const struct identity *identity)
{
	u64 last = identity->domain->geometry.aperture_end, pages = 0;
	u32 shift;

	/* The root of a table without a limit grows with the addresses (AMD-Vi). */
	if (last == U64_MAX)
		last = max(memory_end(), GROWING_BYTES) - 1;
	for (shift = ilog2(SZ_2M); shift < 64 && last >> shift; shift += TABLE_LG2)
		pages += count_tables_of(identity, shift);
	return pages;
}

/* Maps leaf by leaf, because a larger call would be given larger leaves. */
static const char *map_extent(struct identity *identity, struct extent *extent)
{
	u64 bytes = leaves[extent->leaf].bytes;

	while (extent->mapped_end < extent->end) {
		if (iommu_map(identity->domain, extent->mapped_end, extent->mapped_end, bytes,
			      IOMMU_READ | IOMMU_WRITE, GFP_KERNEL))
			return "its IOMMU driver could not map all memory";
		extent->mapped_end += bytes;
		cond_resched();
	}
	return NULL;
}

static const char *map_extents(struct identity *identity)
{
	u64 start_ns = ktime_get_ns();
	struct extent *extent;
	const char *failure = NULL;

	list_for_each_entry(extent, &identity->extents, list)
		failure = failure ?: map_extent(identity, extent);
	identity->set_up_ns = ktime_get_ns() - start_ns;
	identity->table_pages = count_tables(identity);
	return failure;
}

/* Returns false if the IOMMU driver did not remove all leaves. None crosses a multiple of 1 GiB. */
static bool unmap_extent(struct identity *identity, const struct extent *extent)
{
	u64 start, bytes;

	for (start = extent->start; start < extent->mapped_end; start += bytes) {
		bytes = min(ALIGN(start + 1, SZ_1G), extent->mapped_end) - start;
		if (iommu_unmap(identity->domain, start, bytes) != bytes)
			return false;
		cond_resched();
	}
	return true;
}

/* Removes the table. If that fails, the group is stuck: it keeps its domain, and its level none. */
static void table_remove(struct identity *identity)
{
	struct extent *extent, *next;

	list_for_each_entry(extent, &identity->extents, list)
		if (!unmap_extent(identity, extent))
			identity->is_stuck = true;
	identity->is_mapped = identity->is_stuck;
	if (identity->is_stuck) {
		pr_err("xsmmu_lab: the 1:1 table of IOMMU group %d could not be removed, and stays\n",
		       iommu_group_id(identity->group));
		return;
	}
	list_for_each_entry_safe(extent, next, &identity->extents, list)
		kfree(extent);
	INIT_LIST_HEAD(&identity->extents);
}

static const char *check_domain(const struct identity *identity)
{
	const struct iommu_domain *domain = identity->domain;

	if (!(domain->pgsize_bitmap & SZ_4K) ||
	    !(domain->pgsize_bitmap & leaves[identity->leaf].bytes))
		return "its IOMMU has no leaves of this size";
	if (domain->geometry.aperture_start || memory_end() - 1 > domain->geometry.aperture_end)
		return "its domain does not reach all memory";
	return NULL;
}

static const char *table_make(struct identity *identity, struct device *dev)
{
	const char *failure;

	memset(identity->counts, 0, sizeof(identity->counts));
	identity->kernel_pages = 0;
	identity->domain = iommu_get_domain_for_dev(dev);
	failure = check_domain(identity) ?: plan_all(identity) ?: map_extents(identity);
	identity->is_mapped = true;
	if (failure)
		table_remove(identity);
	return failure;
}

/* ---- drivers ---- */

/* False for bridges and VFIO. */
static bool uses_default_domain(struct device_driver *driver)
{
	return !to_pci_driver(driver)->driver_managed_dma;
}

/* True unless the kernel's own path serves the device: then another module has attached it. */
static bool is_attached_elsewhere(struct device *dev, bool iommu)
{
	const struct dma_map_ops *ops = dev->dma_ops;

#if defined(XS_HAVE_DEV_FLAG_DMA_IOMMU) || defined(XS_HAVE_DMA_IOMMU_BIT)
	return !iommu || ops;
#else
	/* The kernel's own operations map memory of peer devices, and those of xsmmu do not. */
	return !ops || !(ops->flags & DMA_F_PCI_P2PDMA_SUPPORTED);
#endif
}

static const char *check_device(struct device *dev, bool iommu)
{
	if (to_pci_dev(dev)->untrusted)
		return "it is untrusted";
	if (is_attached_elsewhere(dev, iommu))
		return "it is not on the kernel's own path, or its IOMMU group does not translate";
	if (phys_to_dma(dev, 0))
		return "its addresses are not physical addresses";
	return NULL;
}

/* A second use of the group's default domain, so that nobody can change the group's type. */
static const char *pin_domain(struct device *dev)
{
	return dev->bus->dma_configure(dev) ? "its bus could not configure its DMA" : NULL;
}

static void driver_gone(struct device *dev, void *data)
{
	struct binding *binding = data;
	struct identity *identity = binding->identity;

	mutex_lock(&identity_lock);
	set_dma_ops(dev, binding->ops);
	xs_dma_iommu_restore(dev, binding->iommu);
	if (!--identity->drivers)
		table_remove(identity);
	if (!identity->is_stuck) {
		dev->bus->dma_cleanup(dev);
		module_put(THIS_MODULE);
	}
	mutex_unlock(&identity_lock);
}

/* Called with the lock of the device. NULL, or the reason of a failure. */
static const char *attach(struct identity *identity, struct device *dev, struct binding *binding)
{
	const char *failure;

	binding->identity = identity;
	binding->ops = dev->dma_ops;
	binding->iommu = xs_dma_iommu_clear(dev);
	failure = check_device(dev, binding->iommu) ?: pin_domain(dev);
	if (failure)
		goto out_restore;
	if (!identity->is_mapped)
		failure = table_make(identity, dev);
	/* After a failure that left the group stuck, the device reaches memory in any case. */
	if (failure && !identity->is_stuck) {
		dev->bus->dma_cleanup(dev);
		goto out_restore;
	}
	xs_dma_iommu_clear(dev);	/* set again by pin_domain() */
	set_dma_ops(dev, NULL);
	identity->drivers++;
	devres_add(dev, binding);
	return NULL;
out_restore:
	xs_dma_iommu_restore(dev, binding->iommu);
	return failure;
}

static void driver_comes(struct identity *identity, struct device *dev)
{
	const char *failure = "out of memory, or the module is being unloaded";
	struct binding *binding = devres_alloc(driver_gone, sizeof(*binding), GFP_KERNEL);

	if (binding && try_module_get(THIS_MODULE)) {
		failure = attach(identity, dev, binding);
		if (failure)
			module_put(THIS_MODULE);
	}
	identity->failure = failure;
	if (!failure)
		return;
	devres_free(binding);
	if (identity->is_mapped)
		dev_err(dev, "xsmmu_lab: the device reaches all memory by its group's 1:1 table, but uses the kernel's own path: %s\n",
			failure);
	else
		dev_err(dev, "xsmmu_lab: no 1:1 table, the device stays on the kernel's own path: %s\n",
			failure);
}

static int follow(struct notifier_block *block, unsigned long event, void *data)
{
	struct device *dev = data;
	struct identity *identity;

	if (event != BUS_NOTIFY_BIND_DRIVER || !uses_default_domain(dev->driver))
		return NOTIFY_DONE;
	mutex_lock(&identity_lock);
	identity = identity_of(dev);
	if (identity)
		driver_comes(identity, dev);
	mutex_unlock(&identity_lock);
	return NOTIFY_DONE;
}

/* Runs after xsmmu's, so that a device that xsmmu has attached is seen to be so. */
static struct notifier_block follower = { .notifier_call = follow, .priority = -1 };

/* ---- the file ---- */

/* -EBUSY for a device with a driver that uses the group's default domain. */
static int has_driver(struct device *dev, void *unused)
{
	struct device_driver *driver;
	int ret = 0;

	rcu_read_lock();
	driver = READ_ONCE(dev->driver);
	if (driver && (!dev_is_pci(dev) || uses_default_domain(driver)))
		ret = -EBUSY;
	rcu_read_unlock();
	return ret;
}

static void forget(struct identity *identity)
{
	list_del(&identity->list);
	iommu_group_put(identity->group);
	kfree(identity);
}

/* Chooses leaves for the group of @dev; LEAVES: none. */
static int choose(struct device *dev, u32 leaf)
{
	struct identity *identity = identity_of(dev);
	struct iommu_group *group = iommu_group_get(dev);
	int ret = group ? iommu_group_for_each_dev(group, NULL, has_driver) : -ENODEV;

	if (!ret && identity && (identity->drivers || identity->is_stuck))
		ret = -EBUSY;
	if (ret)
		goto out_put;
	if (identity)
		forget(identity);
	if (leaf == LEAVES)
		goto out_put;
	identity = kzalloc(sizeof(*identity), GFP_KERNEL);
	if (!identity) {
		ret = -ENOMEM;
		goto out_put;
	}
	identity->group = group;
	identity->leaf = leaf;
	INIT_LIST_HEAD(&identity->extents);
	list_add_tail(&identity->list, &identities);
	return 0;
out_put:
	iommu_group_put(group);
	return ret;
}

static int choose_by_name(const char *bdf, const char *word)
{
	struct device *dev = bus_find_device_by_name(&pci_bus_type, NULL, bdf);
	u32 leaf = 0;
	int ret;

	if (!dev) {
		pr_err("xsmmu_lab: identity: no PCI device %s\n", bdf);
		return -ENODEV;
	}
	while (leaf < LEAVES && strcmp(word, leaves[leaf].word))
		leaf++;
	if (leaf == LEAVES && strcmp(word, "none")) {
		dev_err(dev, "xsmmu_lab: identity: %s is unknown, expected 4k, 2m, 1g or none\n", word);
		ret = -EINVAL;
	} else {
		mutex_lock(&identity_lock);
		ret = choose(dev, leaf);
		mutex_unlock(&identity_lock);
		if (ret)
			dev_err(dev, "xsmmu_lab: identity: refused: %s\n",
				ret == -ENODEV ? "it has no IOMMU group" :
				ret == -EBUSY  ? "its IOMMU group has a driver, or a 1:1 table" :
						 "out of memory");
	}
	put_device(dev);
	return ret;
}

static ssize_t identity_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	char text[32] = "", bdf[16], word[8];

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	if (sscanf(text, "%15s %7s", bdf, word) != 2)
		return -EINVAL;
	return choose_by_name(bdf, word) ?: count;
}

static const char *state_of(const struct identity *identity)
{
	if (identity->is_stuck)
		return "stuck";
	if (identity->is_mapped)
		return "mapped";
	return identity->failure ? "failed" : "idle";
}

static void show_table(struct seq_file *seq, const struct identity *identity)
{
	u64 mapped_bytes = identity->kernel_pages * SZ_4K;
	u32 i;

	seq_puts(seq, ",\"leaves\":{");
	for (i = 0; i < LEAVES; i++) {
		seq_printf(seq, "%s\"%s\":%llu", i ? "," : "", leaves[i].word, identity->counts[i]);
		mapped_bytes += identity->counts[i] * leaves[i].bytes;
	}
	seq_printf(seq, "},\"mapped_bytes\":%llu,\"kernel_pages\":%llu", mapped_bytes,
		   identity->kernel_pages);
	seq_printf(seq, ",\"table_pages\":%llu,\"set_up_ns\":%llu", identity->table_pages,
		   identity->set_up_ns);
}

static int identity_show(struct seq_file *seq, void *unused)
{
	const struct identity *identity;

	mutex_lock(&identity_lock);
	list_for_each_entry(identity, &identities, list) {
		seq_printf(seq, "%d {\"leaf_bytes\":%llu,\"state\":\"%s\"",
			   iommu_group_id(identity->group), leaves[identity->leaf].bytes,
			   state_of(identity));
		if (identity->failure)
			seq_printf(seq, ",\"failure\":\"%s\"", identity->failure);
		if (identity->is_mapped)
			show_table(seq, identity);
		seq_puts(seq, "}\n");
	}
	mutex_unlock(&identity_lock);
	return 0;
}

static int identity_open(struct inode *inode, struct file *file)
{
	return single_open(file, identity_show, NULL);
}

static const struct file_operations identity_fops = {
	.owner = THIS_MODULE,
	.open = identity_open,
	.read = seq_read,
	.write = identity_write,
	.llseek = seq_lseek,
	.release = single_release,
};

bool lab_identity_has(struct device *dev)
{
	struct identity *identity;
	bool has;

	mutex_lock(&identity_lock);
	identity = identity_of(dev);
	has = identity && identity->is_mapped && !identity->failure;
	mutex_unlock(&identity_lock);
	return has;
}

int lab_identity_init(struct dentry *folder)
{
	debugfs_create_file("identity", 0600, folder, NULL, &identity_fops);
	return bus_register_notifier(&pci_bus_type, &follower);
}

void lab_identity_exit(void)
{
	struct identity *identity, *next;

	bus_unregister_notifier(&pci_bus_type, &follower);
	list_for_each_entry_safe(identity, next, &identities, list)
		forget(identity);
}
