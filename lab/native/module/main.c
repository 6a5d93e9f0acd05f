// SPDX-License-Identifier: GPL-2.0-only
/*
 * xsmmu_native.ko: a driver of the fake IOMMU's devices, unmodified or batch-aware, that runs the
 * workload `micro` on one or several CPUs at the same time, between two calibrations of each CPU.
 *
 * The driver takes a device by driver_override only, and gives it a folder xsmmu_native:
 *
 * - cpus: the number of CPUs that run `micro`, from CPU 0 on;
 * - micro: parameters are written, and the results of the last run are read, one JSON object
 *   per CPU and line;
 * - calibration: the calibrations of the last run, in the same form. A neighbour on the other
 *   hyperthread of a core slows work that fills the core (work_ps), and may leave a locked
 *   operation (cmpxchg_ps), which waits for its own result, as it is.
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
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/sysfs.h>
#include <linux/timekeeping.h>

#include <xsmmu/dma.h>

#include "clock.h"
#include "device.h"

#define CPUS_MAX	2
#define RESULT_BYTES	1536	/* of one CPU; all fit into a page */
#define STRETCHES	8
#define SWAPS		20000	/* of a stretch */
#define STEPS		50000	/* of work, of a stretch */
#define CHAINS		4

static bool batch_aware;
module_param(batch_aware, bool, 0644);
MODULE_PARM_DESC(batch_aware, "be a batch-aware driver of devices bound from now on");

/* Where all parts wait for each other. */
enum meeting { MEETING_BEFORE, MEETING_RUN, MEETING_AFTER, MEETING_COUNT };

/* Median ticks of a stretch. */
struct calibration {
	u64 swaps, work;
};

/* A CPU's part of a run. */
struct part {
	struct lab_device dev;
	struct native *native;
	char *params;
	struct seq_buf result;
	char text[RESULT_BYTES];
	struct calibration before, after;
	u64 clock_khz;
	int ret;
};

struct native {
	/* Under run_lock. */
	u32 cpus;
	bool has_result;
	struct part parts[CPUS_MAX];

	atomic_t waiting[MEETING_COUNT], running;
	struct completion done;
};

static DEFINE_MUTEX(run_lock);

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

/* Independent chains of ordinary operations and loads, more than the CPU can begin in a cycle. */
static u64 work_ticks(void)
{
	u64 cells[CHAINS] = { 1, 2, 3, 4 }, a = 0, b = 0, c = 0, d = 0, start;
	u32 i;

	start = lab_clock();
	for (i = 0; i < STEPS; i++) {
		a = (a ^ READ_ONCE(cells[0])) + i;
		b = (b ^ READ_ONCE(cells[1])) + i;
		c = (c ^ READ_ONCE(cells[2])) + i;
		d = (d ^ READ_ONCE(cells[3])) + i;
		OPTIMIZER_HIDE_VAR(a);
		OPTIMIZER_HIDE_VAR(b);
		OPTIMIZER_HIDE_VAR(c);
		OPTIMIZER_HIDE_VAR(d);
	}
	return lab_clock() - start;
}

static int u64_compare(const void *a, const void *b)
{
	u64 left = *(const u64 *)a, right = *(const u64 *)b;

	return left < right ? -1 : left > right;
}

static u64 median_ticks(u64 (*stretch)(void))
{
	u64 ticks[STRETCHES];
	u32 i;

	for (i = 0; i < STRETCHES; i++) {
		preempt_disable();
		ticks[i] = stretch();
		preempt_enable();
	}
	sort(ticks, STRETCHES, sizeof(*ticks), u64_compare, NULL);
	return ticks[STRETCHES / 2];
}

static struct calibration calibrate(void)
{
	return (struct calibration) {
		.swaps = median_ticks(swaps_ticks),
		.work = median_ticks(work_ticks),
	};
}

/* All parts go on together: a CPU that runs alone measures something else. */
static void part_meet(struct part *part, enum meeting meeting)
{
	atomic_t *waiting = &part->native->waiting[meeting];

	atomic_dec(waiting);
	while (atomic_read(waiting)) {
		/* A part that ends its run may wait for this CPU, so this one sleeps. */
		if (meeting == MEETING_AFTER)
			schedule_timeout_idle(1);
		else
			cond_resched();
	}
}

static int part_run(void *context)
{
	struct part *part = context;
	struct native *native = part->native;
	u64 start, start_ns;

	part_meet(part, MEETING_BEFORE);
	start_ns = ktime_get_ns();
	start = lab_clock();
	part->before = calibrate();
	part_meet(part, MEETING_RUN);
	part->ret = lab_micro.run(&part->dev, part->params, &part->result);
	part_meet(part, MEETING_AFTER);
	part->after = calibrate();
	part->clock_khz = div64_u64((lab_clock() - start) * 1000000, ktime_get_ns() - start_ns);
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
	for (i = 0; i < MEETING_COUNT; i++)
		atomic_set(&native->waiting[i], native->cpus);
	atomic_set(&native->running, native->cpus);
	reinit_completion(&native->done);
	for (i = 0; i < native->cpus; i++) {
		ret = part_start(&native->parts[i], i, text, count);
		if (ret)
			break;
		started++;
	}
	/* Parts that did not start count as done, so that no other waits for them. */
	for (i = 0; i < MEETING_COUNT; i++)
		atomic_sub(native->cpus - started, &native->waiting[i]);
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

/* Picoseconds of one operation of the `count` operations that took these ticks. */
static u64 picoseconds(u64 ticks, u32 count, u64 clock_khz)
{
	return div64_u64(ticks * (1000000000 / count), clock_khz);
}

static int part_emit(const struct part *part, char *text, ssize_t length)
{
	const struct calibration *before = &part->before, *after = &part->after;
	u64 khz = part->clock_khz;

	return sysfs_emit_at(text, length,
			     "{\"cmpxchg_ps\":[%llu,%llu],\"work_ps\":[%llu,%llu],"
			     "\"clock_khz\":%llu}\n",
			     picoseconds(before->swaps, SWAPS, khz),
			     picoseconds(after->swaps, SWAPS, khz),
			     picoseconds(before->work, STEPS, khz),
			     picoseconds(after->work, STEPS, khz), khz);
}

static ssize_t calibration_show(struct device *self, struct device_attribute *attribute, char *text)
{
	struct native *native = dev_get_drvdata(self);
	ssize_t length = 0;
	u32 i;

	mutex_lock(&run_lock);
	for (i = 0; native->has_result && i < native->cpus; i++)
		length += part_emit(&native->parts[i], text, length);
	mutex_unlock(&run_lock);
	return length ? length : -ENODATA;
}
static DEVICE_ATTR_RO(calibration);

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
