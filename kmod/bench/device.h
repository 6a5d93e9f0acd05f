/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device that workloads run on.
 *
 * For the kernel, and for a module that attaches the device's DMA, the driver of the device is
 * an ordinary driver: it uses the public DMA API, and knows nothing of policies. So its
 * figures are those of an unmodified driver; with @batch_aware, those of a batch-aware driver.
 *
 * Two modules contain this folder: xsmmu_bench, for servers, and the lab's module, which has
 * more workloads, attacks included.
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
 * struct lab_workload - a workload that can run on a device
 * @name: name of the workload's file, and prefix of its log lines
 * @run: parses @params (and may overwrite them), runs, and prints one JSON object without a newline
 *	to @result. Process context, may sleep; the caller serialises runs over all devices.
 *	Returns 0 or a negative errno, after one log line. Must call lab_device_interrupted() at
 *	least every 100 ms.
 */
struct lab_workload {
	const char *name;
	int (*run)(struct lab_device *dev, char *params, struct seq_buf *result);
};

extern const struct lab_workload lab_micro;

/**
 * lab_device_interrupted() - check whether the current run must end
 * @dev: the device of the run
 * @workload: for the log line
 *
 * Return: 0, or after one log line -ENODEV while the driver is being unbound and -EINTR when the
 * writer has a signal pending.
 */
int lab_device_interrupted(const struct lab_device *dev, const char *workload);

/**
 * lab_device_translated() - check whether an IOMMU translates for a device
 * @dev: the device
 *
 * Return: false in passthrough or without an IOMMU, where the device reaches all memory anyway.
 */
bool lab_device_translated(const struct lab_device *dev);

#endif
