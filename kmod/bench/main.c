// SPDX-License-Identifier: GPL-2.0-only
/*
 * xsmmu_bench.ko, for `xsmmu bench`: the cost of maps and unmaps for a driver on a device of a
 * server.
 *
 * A PCI driver that binds to no device by itself: the operator names a device by address,
 * through driver_override. The driver maps memory for the device and unmaps it. The device
 * does no DMA: it is told of no mapping, the driver writes to no device-specific registers,
 * and the device is no bus master.
 *
 * A bound device has a file xsmmu_bench/micro. A write of parameters (`key=value ...`, see
 * micro.c) runs the workload. The write returns when the run has ended, with a negative errno
 * and one log line if the run has failed. A read returns the result of the last run, one JSON
 * object in one line, or -ENODATA if there is none, as after a failed run. Only one run at a
 * time is possible on the machine, because runs would disturb each other's figures; a second
 * run gets -EBUSY. Unbinding the driver ends a run early (-ENODEV).
 *
 * The files are in sysfs, because a locked-down kernel does not open files of debugfs.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "device.h"

#define RESULT_BYTES 2048

struct bench {
	struct lab_device dev;
	size_t length_bytes;	/* length of result, 0: none; under run_lock */
	char result[RESULT_BYTES];
};

/* Held during a run, and while a result is read. */
static DEFINE_MUTEX(run_lock);

static int bench_run(struct bench *bench, char *params)
{
	struct seq_buf result;
	int ret;

	bench->length_bytes = 0;
	seq_buf_init(&result, bench->result, sizeof(bench->result));
	ret = lab_micro.run(&bench->dev, strim(params), &result);
	if (ret)
		return ret;
	seq_buf_printf(&result, "\n");
	if (seq_buf_has_overflowed(&result)) {
		pci_err(bench->dev.pdev, "the result is longer than %d bytes\n", RESULT_BYTES);
		return -EOVERFLOW;
	}
	bench->length_bytes = result.len;
	return 0;
}

static ssize_t micro_store(struct device *self, struct device_attribute *attribute,
			   const char *text, size_t count)
{
	struct bench *bench = dev_get_drvdata(self);
	char *params;
	int ret;

	params = kmemdup_nul(text, count, GFP_KERNEL);
	if (!params)
		return -ENOMEM;
	if (mutex_trylock(&run_lock)) {
		ret = bench_run(bench, params);
		mutex_unlock(&run_lock);
	} else {
		dev_err(self, "micro: another run is going on: wait for its end\n");
		ret = -EBUSY;
	}
	kfree(params);
	return ret ? ret : count;
}

static ssize_t micro_show(struct device *self, struct device_attribute *attribute, char *text)
{
	struct bench *bench = dev_get_drvdata(self);
	ssize_t ret = mutex_lock_interruptible(&run_lock);

	if (ret)
		return ret;
	ret = bench->length_bytes;
	memcpy(text, bench->result, ret);
	mutex_unlock(&run_lock);
	return ret ? ret : -ENODATA;
}
static DEVICE_ATTR_ADMIN_RW(micro);

static struct attribute *bench_attributes[] = {
	&dev_attr_micro.attr,
	NULL
};

static const struct attribute_group bench_group = {
	.name = KBUILD_MODNAME,
	.attrs = bench_attributes,
};

static int bench_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct bench *bench;
	int ret;

	bench = devm_kzalloc(&pdev->dev, sizeof(*bench), GFP_KERNEL);
	if (!bench)
		return -ENOMEM;
	bench->dev.pdev = pdev;
	/* The device must be awake: an invalidation waits for a device that has a TLB. */
	ret = pcim_enable_device(pdev);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "cannot enable the device\n");
	pci_clear_master(pdev);
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "no 64-bit DMA\n");
	ret = lab_poll_create(&bench->dev.poll);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "no net device for NAPI\n");
	pci_set_drvdata(pdev, bench);
	ret = sysfs_create_group(&pdev->dev.kobj, &bench_group);
	if (ret)
		lab_poll_destroy(&bench->dev.poll);
	return ret;
}

static void bench_remove(struct pci_dev *pdev)
{
	struct bench *bench = pci_get_drvdata(pdev);

	WRITE_ONCE(bench->dev.leaving, true);
	sysfs_remove_group(&pdev->dev.kobj, &bench_group);	/* waits for readers and writers */
	lab_poll_destroy(&bench->dev.poll);
}

static struct pci_driver bench_driver = {
	.name = KBUILD_MODNAME,
	.id_table = NULL,	/* binds only by driver_override */
	.probe = bench_probe,
	.remove = bench_remove,
};
module_pci_driver(bench_driver);

MODULE_DESCRIPTION("What DMA maps and unmaps cost on a device of this machine, for xsmmu bench");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
