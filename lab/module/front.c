// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI driver and its files: /sys/kernel/debug/xsmmu_lab/<bdf>/<workload>, and
 * /sys/kernel/debug/xsmmu_lab/clock for measurements by user space. identity.h has the third file.
 *
 * Writing parameters (`key=value ...`, blanks between) to a workload's file runs the workload. The
 * write returns when the run has ended; a failed run returns a negative errno after one log line.
 * Reading gives the result of the last run, a JSON object in a single line; -ENODATA without a
 * result, also after a run that failed.
 *
 * The machine allows a single run at a time, because a second run would distort the figures of the
 * first: the second run gets -EBUSY. A reader waits for the run. Unbinding ends a run early
 * (-ENODEV) and then waits until the files are idle; an open file keeps the module loaded.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/tick.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>

#include <xsmmu/dma.h>

#include "identity.h"
#include "latency.h"
#include "neighbour.h"
#include "testdev.h"

static bool batch_aware;
module_param(batch_aware, bool, 0644);
MODULE_PARM_DESC(batch_aware, "be a batch-aware driver of devices bound from now on");

#define LAB_RESULT_BYTES 2048
#define LAB_PARAMS_MAX_BYTES 256

static const struct lab_workload *const workloads[] = {
	&lab_micro, &lab_attack, &lab_neighbour, &lab_page_cache, &lab_latency, &lab_watch,
	&lab_receive, &lab_transmit, &lab_storage,
};

struct lab_file {
	struct lab_device *dev;
	const struct lab_workload *workload;
	size_t length_bytes;	/* of result; 0: none. Under run_lock */
	char result[LAB_RESULT_BYTES];
};

/* Held during a run, and while a result is read. */
static DEFINE_MUTEX(run_lock);

static struct dentry *root_folder;

static int file_run(struct lab_file *file, char *params)
{
	struct seq_buf result;
	int ret;

	file->length_bytes = 0;
	seq_buf_init(&result, file->result, sizeof(file->result));
	ret = file->workload->run(file->dev, strim(params), &result);
	if (ret)
		return ret;
	seq_buf_printf(&result, "\n");
	if (seq_buf_has_overflowed(&result)) {
		dev_err(&file->dev->pdev->dev, "%s: the result is longer than %d bytes\n",
			file->workload->name, LAB_RESULT_BYTES);
		return -EOVERFLOW;
	}
	file->length_bytes = result.len;
	return 0;
}

static ssize_t file_write(struct file *filp, const char __user *from, size_t count, loff_t *pos)
{
	struct lab_file *file = filp->private_data;
	struct device *dev = &file->dev->pdev->dev;
	char *params;
	int ret;

	if (count > LAB_PARAMS_MAX_BYTES) {
		dev_err(dev, "%s: parameters longer than %d bytes\n", file->workload->name,
			LAB_PARAMS_MAX_BYTES);
		return -E2BIG;
	}
	params = memdup_user_nul(from, count);
	if (IS_ERR(params))
		return PTR_ERR(params);

	if (mutex_trylock(&run_lock)) {
		ret = file_run(file, params);
		mutex_unlock(&run_lock);
	} else {
		dev_err(dev, "%s: another run is going on: wait for its end\n", file->workload->name);
		ret = -EBUSY;
	}
	kfree(params);
	/* *pos stays, so that the same file descriptor can then read the result from its start. */
	return ret ? ret : count;
}

static ssize_t file_read(struct file *filp, char __user *to, size_t count, loff_t *pos)
{
	struct lab_file *file = filp->private_data;
	ssize_t ret;

	ret = mutex_lock_interruptible(&run_lock);
	if (ret)
		return ret;
	if (file->length_bytes)
		ret = simple_read_from_buffer(to, count, pos, file->result, file->length_bytes);
	else
		ret = -ENODATA;
	mutex_unlock(&run_lock);
	return ret;
}

static const struct file_operations file_ops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = file_read,
	.write = file_write,
	.llseek = default_llseek,
};

static int files_create(struct lab_testdev *testdev)
{
	struct pci_dev *pdev = testdev->dev.pdev;
	size_t i;

	testdev->files = devm_kcalloc(&pdev->dev, ARRAY_SIZE(workloads), sizeof(*testdev->files),
				      GFP_KERNEL);
	if (!testdev->files)
		return -ENOMEM;
	testdev->folder = debugfs_create_dir(pci_name(pdev), root_folder);
	for (i = 0; i < ARRAY_SIZE(workloads); i++) {
		testdev->files[i].dev = &testdev->dev;
		testdev->files[i].workload = workloads[i];
		debugfs_create_file(workloads[i]->name, 0600, testdev->folder, &testdev->files[i],
				    &file_ops);
	}
	return 0;
}

static int lab_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct lab_testdev *testdev;
	int ret;

	testdev = devm_kzalloc(&pdev->dev, sizeof(*testdev), GFP_KERNEL);
	if (!testdev)
		return -ENOMEM;
	testdev->dev.pdev = pdev;

	ret = pcim_enable_device(pdev);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "cannot enable the device\n");
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "no 64-bit DMA\n");
	ret = lab_attacker_create(&testdev->attacker, pdev);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "cannot map BAR 0\n");
	pci_set_master(pdev);
	testdev->dev.batch_aware = batch_aware;
	if (batch_aware)
		xsmmu_set_batch_aware(&pdev->dev);

	ret = lab_poll_create(&testdev->dev.poll);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "no net device for NAPI\n");
	ret = files_create(testdev);
	if (ret) {
		lab_poll_destroy(&testdev->dev.poll);
		return ret;
	}
	pci_set_drvdata(pdev, testdev);
	return 0;
}

static void lab_remove(struct pci_dev *pdev)
{
	struct lab_testdev *testdev = pci_get_drvdata(pdev);

	WRITE_ONCE(testdev->dev.leaving, true);
	debugfs_remove(testdev->folder);	/* waits for readers and writers */
	lab_neighbour_disarm(&testdev->dev);
	lab_watch_end(&testdev->dev);
	lab_poll_destroy(&testdev->dev.poll);
	pci_clear_master(pdev);
}

static const struct pci_device_id lab_ids[] = {
	{ PCI_DEVICE(LAB_ATTACKER_VENDOR, LAB_ATTACKER_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, lab_ids);

static struct pci_driver lab_driver = {
	.name = KBUILD_MODNAME,
	.id_table = lab_ids,
	.probe = lab_probe,
	.remove = lab_remove,
};

/*
 * `<now> <idle>`: the time, and the idle time of all CPUs, in ns. The kernel's own files show idle
 * time to user space in ticks of 10 ms only.
 */
static int clock_show(struct seq_file *seq, void *unused)
{
	u64 idle_us = 0;
	int cpu;

	for_each_online_cpu(cpu)
		idle_us += get_cpu_idle_time_us(cpu, NULL) + get_cpu_iowait_time_us(cpu, NULL);
	seq_printf(seq, "%llu %llu\n", ktime_get_ns(), idle_us * NSEC_PER_USEC);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(clock);

static int __init lab_init(void)
{
	int ret;

	root_folder = debugfs_create_dir(KBUILD_MODNAME, NULL);
	debugfs_create_file("clock", 0400, root_folder, NULL, &clock_fops);
	ret = lab_identity_init(root_folder);
	if (ret)
		goto out_remove;
	ret = pci_register_driver(&lab_driver);
	if (!ret)
		return 0;
	debugfs_remove(root_folder);
	lab_identity_exit();
	return ret;
out_remove:
	debugfs_remove(root_folder);
	return ret;
}
module_init(lab_init);

static void __exit lab_exit(void)
{
	pci_unregister_driver(&lab_driver);
	debugfs_remove(root_folder);
	lab_identity_exit();
}
module_exit(lab_exit);

MODULE_DESCRIPTION("Workloads that measure and attack IOMMU policies, on QEMU's iommu-testdev");
MODULE_LICENSE("GPL");
