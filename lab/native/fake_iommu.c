// SPDX-License-Identifier: GPL-2.0-only
/*
 * An IOMMU that translates nothing, and two PCI devices behind it that do nothing, so that a
 * map and an unmap cost exactly what software does for them. Page tables are the generic ones in
 * the format of VT-d's second stage. An invalidation works as queued invalidation does (VT-d
 * specification, 6.5.2): a descriptor in a ring of 256, a wait descriptor behind it that names a
 * status word, the tail register, and a wait for the status word under the queue's lock. The
 * waiting CPU does the device's part when wait_ns have passed.
 */
#include <linux/generic_pt/iommu.h>
#include <linux/init.h>
#include <linux/iommu.h>
#include <linux/math64.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>
#include <linux/timex.h>
#include <linux/timekeeping.h>

#include "../../../drivers/iommu/iommu-pages.h"
#include "virt-pci.h"

MODULE_IMPORT_NS("GENERIC_PT_IOMMU");

#define QUEUE_ENTRIES	256
#define BATCH_ENTRIES	16
#define ADDRESS_BITS	48
#define TOP_LEVEL	3	/* four levels */
#define MASK_MAX_LG2	18	/* of a page-selective command, as CAP_REG.MAMV */

/* Descriptors: type, granularity (spec 6.5.2.3 and 6.5.2.8). */
#define TYPE_MASK	0xfull
#define TYPE_IOTLB	0x2ull
#define TYPE_WAIT	0x5ull
#define GRANULARITY(d)	((d) >> 4 & 3)
#define IOTLB_GLOBAL	(1ull << 4)
#define IOTLB_DOMAIN	(2ull << 4)
#define IOTLB_PAGE	(3ull << 4)
#define IOTLB_DRAIN	(3ull << 6)
#define IOTLB_ID(id)	((u64)(id) << 16)
#define WAIT_STATUS	(1ull << 5)
#define WAIT_FENCE	(1ull << 6)
#define WAIT_DATA(v)	((u64)(v) << 32)

enum { STATUS_FREE, STATUS_PENDING, STATUS_DONE };

struct descriptor {
	u64 low, high;
};

/* Registers are memory here. On hardware the write of the tail is uncached. */
struct fake_iommu {
	struct iommu_device iommu;

	raw_spinlock_t lock;		/* guards all below but @wait_ticks and @wait_ns */
	struct descriptor *queue;
	u32 *status;
	u32 head, tail, free;		/* of the driver */

	u32 tail_register;
	u32 device_head;		/* of the device */
	u64 commands[4];		/* by granularity */

	u64 wait_ticks;
	u32 wait_ns;
};

struct fake_domain {
	union {
		struct iommu_domain domain;
		struct pt_iommu iommu;
		struct pt_iommu_vtdss table;
	};
	spinlock_t lock;		/* guards @batch and @batched */
	u16 id;
	struct descriptor batch[BATCH_ENTRIES];
	u32 batched;
};
PT_IOMMU_CHECK_DOMAIN(struct fake_domain, iommu, domain);
PT_IOMMU_CHECK_DOMAIN(struct fake_domain, table.iommu, domain);

static struct fake_iommu fake;

/* The device fetches descriptors up to the tail; a wait descriptor writes its status word. */
static noinline void device_run(void)
{
	u32 tail = READ_ONCE(fake.tail_register);

	while (fake.device_head != tail) {
		const struct descriptor *at = &fake.queue[fake.device_head];

		if ((at->low & TYPE_MASK) == TYPE_WAIT)
			smp_store_release((u32 *)phys_to_virt(at->high), at->low >> 32);
		else
			fake.commands[GRANULARITY(at->low)]++;
		fake.device_head = (fake.device_head + 1) % QUEUE_ENTRIES;
	}
}

static void await_status(const u32 *status)
{
	u64 ticks = READ_ONCE(fake.wait_ticks);
	u64 start = ticks ? get_cycles() : 0;

	while (smp_load_acquire(status) != STATUS_DONE) {
		if (!ticks || get_cycles() - start >= ticks)
			device_run();
		else
			cpu_relax();
	}
}

/* Frees entries in the order of the queue, up to the first that is not done. */
static void reclaim(void)
{
	while (fake.status[fake.tail] == STATUS_DONE) {
		fake.status[fake.tail] = STATUS_FREE;
		fake.tail = (fake.tail + 1) % QUEUE_ENTRIES;
		fake.free++;
	}
}

static void submit(const struct descriptor *descriptors, u32 count)
{
	unsigned long flags;
	u32 at, wait, i;

	raw_spin_lock_irqsave(&fake.lock, flags);
	/* One entry stays free: a full queue would look like an empty one. */
	while (fake.free < count + 2) {
		raw_spin_unlock_irqrestore(&fake.lock, flags);
		cpu_relax();
		raw_spin_lock_irqsave(&fake.lock, flags);
	}
	at = fake.head;
	for (i = 0; i < count; i++) {
		fake.queue[at] = descriptors[i];
		WRITE_ONCE(fake.status[at], STATUS_PENDING);
		at = (at + 1) % QUEUE_ENTRIES;
	}
	wait = at;
	WRITE_ONCE(fake.status[wait], STATUS_PENDING);
	fake.queue[wait].low = TYPE_WAIT | WAIT_STATUS | WAIT_FENCE | WAIT_DATA(STATUS_DONE);
	fake.queue[wait].high = virt_to_phys(&fake.status[wait]);
	fake.head = (wait + 1) % QUEUE_ENTRIES;
	fake.free -= count + 1;
	/* The device sees the descriptors before it sees the tail. */
	dma_wmb();
	WRITE_ONCE(fake.tail_register, fake.head);

	await_status(&fake.status[wait]);

	for (i = 0; i < count; i++)
		fake.status[(wait - 1 - i) % QUEUE_ENTRIES] = STATUS_DONE;
	reclaim();
	raw_spin_unlock_irqrestore(&fake.lock, flags);
}

static void batch_send(struct fake_domain *domain)
{
	submit(domain->batch, domain->batched);
	memset(domain->batch, 0, sizeof(domain->batch));
	domain->batched = 0;
}

static void send_one(struct fake_domain *domain, u64 low, u64 high)
{
	unsigned long flags;

	spin_lock_irqsave(&domain->lock, flags);
	domain->batch[domain->batched++] = (struct descriptor) {
		.low = TYPE_IOTLB | IOTLB_DRAIN | IOTLB_ID(domain->id) | low,
		.high = high,
	};
	batch_send(domain);
	spin_unlock_irqrestore(&domain->lock, flags);
}

static struct fake_domain *fake_domain(struct iommu_domain *domain)
{
	return container_of(domain, struct fake_domain, domain);
}

static void fake_flush_all(struct iommu_domain *domain)
{
	send_one(fake_domain(domain), IOTLB_DOMAIN, 0);
}

/* One command for the smallest aligned power of two of pages that contains the range. */
static void fake_sync(struct iommu_domain *domain, struct iommu_iotlb_gather *gather)
{
	u32 lg2 = fls64((gather->start ^ gather->end) >> PAGE_SHIFT);
	bool keeps_tables = iommu_pages_list_empty(&gather->freelist);

	if (lg2 > MASK_MAX_LG2)
		send_one(fake_domain(domain), IOTLB_DOMAIN, 0);
	else
		send_one(fake_domain(domain), IOTLB_PAGE,
			 (gather->start & -(PAGE_SIZE << lg2)) | (u64)keeps_tables << 6 | lg2);
	iommu_put_pages_list(&gather->freelist);
}

static void fake_free(struct iommu_domain *domain)
{
	pt_iommu_deinit(&fake_domain(domain)->iommu);
	kfree(fake_domain(domain));
}

static int fake_attach(struct iommu_domain *domain, struct device *dev, struct iommu_domain *old)
{
	dev_iommu_priv_set(dev, domain);
	return 0;
}

static const struct iommu_domain_ops fake_domain_ops = {
	IOMMU_PT_DOMAIN_OPS(vtdss),
	.attach_dev = fake_attach,
	.flush_iotlb_all = fake_flush_all,
	.iotlb_sync = fake_sync,
	.free = fake_free,
};

static struct iommu_domain *fake_alloc(struct device *dev)
{
	static atomic_t last_id;
	struct pt_iommu_vtdss_cfg cfg = {
		.common.features = BIT(PT_FEAT_FLUSH_RANGE),
		.common.hw_max_vasz_lg2 = ADDRESS_BITS,
		.common.hw_max_oasz_lg2 = 52,
		.top_level = TOP_LEVEL,
	};
	struct fake_domain *domain = kzalloc_obj(*domain, GFP_KERNEL);
	int ret;

	if (!domain)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&domain->lock);
	domain->id = atomic_inc_return(&last_id);
	domain->domain.ops = &fake_domain_ops;
	domain->iommu.nid = NUMA_NO_NODE;
	ret = pt_iommu_vtdss_init(&domain->table, &cfg, GFP_KERNEL);
	if (ret) {
		kfree(domain);
		return ERR_PTR(ret);
	}
	return &domain->domain;
}

static const struct iommu_domain_ops fake_fixed_ops = {
	.attach_dev = fake_attach,
};

static struct iommu_domain fake_identity = {
	.type = IOMMU_DOMAIN_IDENTITY,
	.ops = &fake_fixed_ops,
};

static struct iommu_domain fake_blocked = {
	.type = IOMMU_DOMAIN_BLOCKED,
	.ops = &fake_fixed_ops,
};

/* kmod/iommu/fake.c of xsmmu has the same declaration. */
phys_addr_t fake_iommu_table(struct device *dev);

/* Returns the physical address of the first page table of @dev, or 0. */
phys_addr_t fake_iommu_table(struct device *dev)
{
	struct iommu_domain *domain = dev_iommu_priv_get(dev);
	struct pt_iommu_vtdss_hw_info info;

	if (!domain || domain->ops != &fake_domain_ops)
		return 0;
	pt_iommu_vtdss_hw_info(&fake_domain(domain)->table, &info);
	return info.ssptptr;
}
EXPORT_SYMBOL_GPL(fake_iommu_table);

static bool fake_capable(struct device *dev, enum iommu_cap cap)
{
	return cap == IOMMU_CAP_CACHE_COHERENCY || cap == IOMMU_CAP_DEFERRED_FLUSH;
}

static struct iommu_device *fake_probe(struct device *dev)
{
	return dev_is_pci(dev) ? &fake.iommu : ERR_PTR(-ENODEV);
}

static struct iommu_group *fake_group(struct device *dev)
{
	return pci_device_group(dev);
}

static const struct iommu_ops fake_ops = {
	.capable = fake_capable,
	.domain_alloc_paging = fake_alloc,
	.probe_device = fake_probe,
	.device_group = fake_group,
	.identity_domain = &fake_identity,
	.blocked_domain = &fake_blocked,
	.release_domain = &fake_blocked,
	.default_domain_ops = &fake_domain_ops,
	.owner = THIS_MODULE,
};

static ssize_t wait_ns_show(struct device *dev, struct device_attribute *attr, char *page)
{
	return sysfs_emit(page, "%u\n", fake.wait_ns);
}

/* Compares the tick with the kernel's clock for 20 ms. */
static ssize_t wait_ns_store(struct device *dev, struct device_attribute *attr, const char *text,
			     size_t count)
{
	u64 start = ktime_get_ns(), ticks = get_cycles(), ns;
	u32 wait;
	int ret = kstrtou32(text, 10, &wait);

	if (ret)
		return ret;
	if (wait > 1000000)
		return -ERANGE;
	do
		ns = ktime_get_ns() - start;
	while (ns < 20 * NSEC_PER_MSEC);
	ticks = get_cycles() - ticks;
	fake.wait_ns = wait;
	WRITE_ONCE(fake.wait_ticks, mul_u64_u64_div_u64(ticks, wait, ns));
	return count;
}
static DEVICE_ATTR_RW(wait_ns);

#define COUNTER(name, granularity)							\
	static ssize_t name##_show(struct device *dev, struct device_attribute *attr,	\
				   char *page)						\
	{										\
		return sysfs_emit(page, "%llx\n",					\
				  READ_ONCE(fake.commands[granularity]));		\
	}										\
	static DEVICE_ATTR_RO(name)
COUNTER(global, 1);
COUNTER(domain, 2);
COUNTER(page, 3);

static struct attribute *fake_attributes[] = {
	&dev_attr_wait_ns.attr,
	&dev_attr_global.attr,
	&dev_attr_domain.attr,
	&dev_attr_page.attr,
	NULL
};

static const struct attribute_group fake_attribute_group = {
	.name = "fake-iommu",
	.attrs = fake_attributes,
};

static const struct attribute_group *fake_attribute_groups[] = {
	&fake_attribute_group,
	NULL
};

#define CONFIG_BYTES	256
#define DEVICES		2

struct fake_pci {
	struct um_pci_device dev;
	u8 config[CONFIG_BYTES];
};

static struct fake_pci fake_devices[DEVICES];

static unsigned long config_read(struct um_pci_device *dev, unsigned int offset, int size)
{
	struct fake_pci *pci = container_of(dev, struct fake_pci, dev);
	unsigned long value = 0;

	if (offset + size <= CONFIG_BYTES)
		memcpy(&value, &pci->config[offset], size);
	return value;
}

/* Only the command register is writable: the devices have no regions. */
static void config_write(struct um_pci_device *dev, unsigned int offset, int size,
			 unsigned long value)
{
	struct fake_pci *pci = container_of(dev, struct fake_pci, dev);

	if (offset == PCI_COMMAND && size == 2)
		memcpy(&pci->config[offset], &value, size);
}

static const struct um_pci_ops fake_pci_ops = {
	.cfgspace_read = config_read,
	.cfgspace_write = config_write,
};

static int __init fake_init(void)
{
	int ret, i;

	raw_spin_lock_init(&fake.lock);
	fake.queue = (void *)get_zeroed_page(GFP_KERNEL);
	fake.status = kcalloc(QUEUE_ENTRIES, sizeof(*fake.status), GFP_KERNEL);
	fake.free = QUEUE_ENTRIES;
	if (!fake.queue || !fake.status)
		return -ENOMEM;
	ret = iommu_device_sysfs_add(&fake.iommu, NULL, fake_attribute_groups, "fake0");
	if (!ret)
		ret = iommu_device_register(&fake.iommu, &fake_ops, NULL);
	for (i = 0; !ret && i < DEVICES; i++) {
		struct fake_pci *pci = &fake_devices[i];

		pci->dev.ops = &fake_pci_ops;
		pci->config[PCI_VENDOR_ID] = 0x36;	/* 1b36:0005, QEMU's test device */
		pci->config[PCI_VENDOR_ID + 1] = 0x1b;
		pci->config[PCI_DEVICE_ID] = 0x05;
		pci->config[PCI_CLASS_DEVICE] = 0xff;
		pci->config[PCI_CLASS_DEVICE + 1] = 0x00;
		ret = um_pci_device_register(&pci->dev);
	}
	return ret;
}
late_initcall(fake_init);
