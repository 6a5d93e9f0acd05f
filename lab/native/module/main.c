// SPDX-License-Identifier: GPL-2.0-only
/*
 * xsmmu_native.ko: a driver of the fake IOMMU's devices, unmodified or batch-aware, that runs the
 * workload `micro` on one or several CPUs at the same time, and a calibration of the CPU.
 *
 * The driver takes a device by driver_override only, and gives it a folder xsmmu_native:
 *
 * - cpus: the number of CPUs that run `micro`, from CPU 0 on;
 * - micro: parameters are written, and the results of the last run are read, one JSON object
 *   per CPU and line;
 * - calibration: each read measures, and gives one JSON object.
 */
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/dma-mapping.h>
#include <linux/kthread.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/sysfs.h>
#include <linux/timekeeping.h>

#include <xsmmu/dma.h>

#include "clock.h"
#include "device.h"

#define CPUS_MAX	2
#define RESULT_BYTES	1536	/* of one CPU; all fit into a page */
#define SWAPS		100000
#define STRETCHES	16

static bool batch_aware;
module_param(batch_aware, bool, 0644);
MODULE_PARM_DESC(batch_aware, "be a batch-aware driver of devices bound from now on");

/* A CPU's part of a run. */
struct part {
	struct lab_device dev;
	struct native *native;
	char *params;
	struct seq_buf result;
	char text[RESULT_BYTES];
	int ret;
};

struct native {
	/* Under run_lock. */
	u32 cpus;
	bool has_result;
	struct part parts[CPUS_MAX];

	atomic_t waiting, running;
	struct completion done;
};

static DEFINE_MUTEX(run_lock);

/* All parts begin together: a CPU that runs alone measures something else. */
static int part_run(void *context)
{
	struct part *part = context;
	struct native *native = part->native;

	atomic_dec(&native->waiting);
	while (atomic_read(&native->waiting))
		cond_resched();
	part->ret = lab_micro.run(&part->dev, part->params, &part->result);
	if (atomic_dec_and_test(&native->running))
		complete(&native->done);
	return 0;
}

static int part_start(struct part *part, u32 cpu, const char *text, size_t count)
{
	struct task_struct *task;

	part->params = kmemdup_nul(text, count, GFP_KERNEL);
	if (!part->params)
		return -ENOMEM;
	seq_buf_init(&part->result, part->text, sizeof(part->text));
	task = kthread_create_on_cpu(part_run, part, cpu, "xsmmu_native/%u");
	if (IS_ERR(task))
		return PTR_ERR(task);
	wake_up_process(task);
	return 0;
}

static int run_all(struct native *native, const char *text, size_t count)
{
	int ret = 0, started = 0;
	u32 i;

	native->has_result = false;
	atomic_set(&native->waiting, native->cpus);
	atomic_set(&native->running, native->cpus);
	reinit_completion(&native->done);
	for (i = 0; i < native->cpus; i++) {
		ret = part_start(&native->parts[i], i, text, count);
		if (ret)
			break;
		started++;
	}
	/* Parts that did not start count as done, so that no other waits for them. */
	atomic_sub(native->cpus - started, &native->waiting);
	if (!atomic_sub_and_test(native->cpus - started, &native->running))
		wait_for_completion(&native->done);
	for (i = 0; i < native->cpus; i++) {
		kfree(native->parts[i].params);
		native->parts[i].params = NULL;
		ret = ret ?: native->parts[i].ret;
		if (!ret && seq_buf_has_overflowed(&native->parts[i].result))
			ret = -EOVERFLOW;
	}
	native->has_result = !ret;
	return ret;
}

static ssize_t micro_store(struct device *self, struct device_attribute *attribute,
			   const char *text, size_t count)
{
	struct native *native = dev_get_drvdata(self);
	int ret;

	mutex_lock(&run_lock);
	ret = run_all(native, text, count);
	mutex_unlock(&run_lock);
	return ret ? ret : count;
}

static ssize_t micro_show(struct device *self, struct device_attribute *attribute, char *text)
{
	struct native *native = dev_get_drvdata(self);
	ssize_t length = 0;
	u32 i;

	mutex_lock(&run_lock);
	for (i = 0; native->has_result && i < native->cpus; i++)
		length += sysfs_emit_at(text, length, "%s\n",
					seq_buf_str(&native->parts[i].result));
	mutex_unlock(&run_lock);
	return length ? length : -ENODATA;
}
static DEVICE_ATTR_ADMIN_RW(micro);

static ssize_t cpus_store(struct device *self, struct device_attribute *attribute,
			  const char *text, size_t count)
{
	struct native *native = dev_get_drvdata(self);
	u32 cpus;
	int ret = kstrtou32(text, 10, &cpus);

	if (ret)
		return ret;
	if (!cpus || cpus > CPUS_MAX || cpus > num_online_cpus())
		return -ERANGE;
	mutex_lock(&run_lock);
	native->cpus = cpus;
	native->has_result = false;
	mutex_unlock(&run_lock);
	return count;
}
static DEVICE_ATTR_WO(cpus);

/* Locked compare-and-swaps, each of which depends on the one before. */
static u64 swaps_ticks(void)
{
	atomic64_t at = ATOMIC64_INIT(0);
	u64 start = lab_clock();
	s64 seen = 0;
	u32 i;

	for (i = 0; i < SWAPS; i++)
		seen = atomic64_cmpxchg(&at, seen, seen + 1) + 1;
	return lab_clock() - start;
}

static int u64_compare(const void *a, const void *b)
{
	u64 left = *(const u64 *)a, right = *(const u64 *)b;

	return left < right ? -1 : left > right;
}

/* Picoseconds of a swap, the least and the median of several stretches; the clock in kHz. */
static ssize_t calibration_show(struct device *self, struct device_attribute *attribute, char *text)
{
	u64 start_ns = ktime_get_ns(), start = lab_clock();
	u64 ticks[STRETCHES], khz;
	u32 i;

	for (i = 0; i < STRETCHES; i++) {
		preempt_disable();
		ticks[i] = swaps_ticks();
		preempt_enable();
	}
	khz = div64_u64((lab_clock() - start) * 1000000, ktime_get_ns() - start_ns);
	sort(ticks, STRETCHES, sizeof(*ticks), u64_compare, NULL);
	return sysfs_emit(text, "{\"least_ps\":%llu,\"median_ps\":%llu,\"clock_khz\":%llu}\n",
			  div64_u64(ticks[0] * (1000000000 / SWAPS), khz),
			  div64_u64(ticks[STRETCHES / 2] * (1000000000 / SWAPS), khz), khz);
}
static DEVICE_ATTR_RO(calibration);

static struct attribute *native_attributes[] = {
	&dev_attr_cpus.attr,
	&dev_attr_micro.attr,
	&dev_attr_calibration.attr,
	NULL
};

static const struct attribute_group native_group = {
	.name = KBUILD_MODNAME,
	.attrs = native_attributes,
};

static void polls_destroy(struct native *native, u32 count)
{
	while (count--)
		lab_poll_destroy(&native->parts[count].dev.poll);
}

static int native_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct native *native = devm_kzalloc(&pdev->dev, sizeof(*native), GFP_KERNEL);
	int ret;
	u32 i;

	if (!native)
		return -ENOMEM;
	native->cpus = 1;
	init_completion(&native->done);
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "no 64-bit DMA\n");
	if (batch_aware)
		xsmmu_set_batch_aware(&pdev->dev);
	for (i = 0; i < CPUS_MAX; i++) {
		struct part *part = &native->parts[i];

		part->native = native;
		part->dev.pdev = pdev;
		part->dev.batch_aware = batch_aware;
		ret = lab_poll_create(&part->dev.poll);
		if (ret) {
			polls_destroy(native, i);
			return dev_err_probe(&pdev->dev, ret, "no net device for NAPI\n");
		}
	}
	pci_set_drvdata(pdev, native);
	ret = sysfs_create_group(&pdev->dev.kobj, &native_group);
	if (ret)
		polls_destroy(native, CPUS_MAX);
	return ret;
}

static void native_remove(struct pci_dev *pdev)
{
	struct native *native = pci_get_drvdata(pdev);
	u32 i;

	for (i = 0; i < CPUS_MAX; i++)
		WRITE_ONCE(native->parts[i].dev.leaving, true);
	sysfs_remove_group(&pdev->dev.kobj, &native_group);	/* waits for readers and writers */
	polls_destroy(native, CPUS_MAX);
}

static struct pci_driver native_driver = {
	.name = KBUILD_MODNAME,
	.id_table = NULL,	/* only by driver_override */
	.probe = native_probe,
	.remove = native_remove,
};
module_pci_driver(native_driver);

MODULE_DESCRIPTION("DMA maps and unmaps behind the fake IOMMU of make native");
MODULE_LICENSE("GPL");
