/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A lab device: one iommu-testdev that this module drives, and the workloads that can be run on
 * it.
 *
 * To the kernel, and to any module that takes over a device's DMA, this is an ordinary driver: it
 * knows the public DMA API and nothing of policies. That is what makes its figures those of an
 * unmodified driver.
 */
#ifndef XSMMU_LAB_DEVICE_H
#define XSMMU_LAB_DEVICE_H

#include <linux/pci.h>
#include <linux/seq_buf.h>

#include "attacker.h"
#include "poll.h"

struct lab_device {
	struct pci_dev *pdev;
	struct lab_attacker attacker;
	struct lab_poll poll;
	struct dentry *folder;
	struct lab_file *files;	/* one per workload, in the order of the table in device.c */
	bool batch_aware;	/* unmap without a sync, then sync once */
	bool leaving;		/* set once, by remove(): a run must end soon */
};

/**
 * struct lab_workload - something that can be run on a lab device
 * @name: its file in debugfs, and the prefix of its log lines
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
extern const struct lab_workload lab_attack;
extern const struct lab_workload lab_neighbour;
extern const struct lab_workload lab_page_cache;
extern const struct lab_workload lab_latency;
extern const struct lab_workload lab_watch;
extern const struct lab_workload lab_receive;
extern const struct lab_workload lab_transmit;
extern const struct lab_workload lab_storage;

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
