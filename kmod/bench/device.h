/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device that workloads are run on.
 *
 * To the kernel, and to any module that takes over a device's DMA, its driver is an ordinary one:
 * it knows the public DMA API and nothing of policies. That is what makes its figures those of an
 * unmodified driver.
 *
 * This folder is in two modules: xsmmu_bench, which a server has, and the lab's own, which has more
 * workloads, those among them that attack.
 */
#ifndef XSMMU_BENCH_DEVICE_H
#define XSMMU_BENCH_DEVICE_H

#include <linux/pci.h>
#include <linux/seq_buf.h>

#include "poll.h"

struct lab_device {
	struct pci_dev *pdev;
	struct lab_poll poll;
	bool batch_aware;	/* unmap without a flush, then flush once */
	bool leaving;		/* set once, by remove(): a run must end soon */
};

/**
 * struct lab_workload - something that can be run on a device
 * @name: its file, and the prefix of its log lines
 * @run: parses @params (which it may overwrite), runs, and prints one JSON object without a newline
 *	to @result. Process context, may sleep; the caller serialises runs over all devices.
 *	Returns 0 or a negative errno, for which it has printed one log line. It must call
 *	lab_device_interrupted() at least every 100 ms.
 */
struct lab_workload {
	const char *name;
	int (*run)(struct lab_device *dev, char *params, struct seq_buf *result);
};

extern const struct lab_workload lab_micro;

/**
 * lab_device_interrupted() - must the current run end now?
 * @dev: the device of the run
 * @workload: for the log line
 *
 * Return: 0, or after one log line -ENODEV while the driver is being unbound and -EINTR when the
 * writer has a signal pending.
 */
int lab_device_interrupted(const struct lab_device *dev, const char *workload);

/**
 * lab_device_translated() - does an IOMMU translate for this device?
 * @dev: the device
 *
 * Return: false in passthrough (or without an IOMMU), where the device reaches all memory anyway.
 */
bool lab_device_translated(const struct lab_device *dev);

#endif
