/* SPDX-License-Identifier: GPL-2.0-only */
/* Probes on the functions that a driver calls to unmap. They observe unmodified drivers. */
#ifndef XSMMU_LAB_PROBE_H
#define XSMMU_LAB_PROBE_H

#include <linux/device.h>
#include <linux/kprobes.h>

/* @at_entry returns 1 to skip @at_return; @at_return may be NULL. */
#define LAB_PROBE(function, at_entry, at_return, data) { \
	.kp.symbol_name = function, \
	.entry_handler = at_entry, \
	.handler = at_return, \
	.data_size = sizeof(data), \
	.maxactive = 32, \
}

/**
 * lab_probes_set() - register probes
 * @dev: device for log lines
 * @probes: the probes
 * @count: number of @probes
 * @of_kernel: number of the first probes that are on functions of the kernel; the other probes are
 *	on functions of xsmmu.ko, which need not be loaded
 *
 * Context: process, may sleep.
 * Return: 0, or a negative errno after a log line; then no probe is registered.
 */
int lab_probes_set(struct device *dev, struct kretprobe *probes, u32 count, u32 of_kernel);

/**
 * lab_probes_unset() - unregister probes
 * @probes: the probes; probes that are not registered are skipped
 * @count: number of @probes
 *
 * Context: process, may sleep.
 */
void lab_probes_unset(struct kretprobe *probes, u32 count);

/**
 * lab_probes_missed() - number of missed hits
 * @probes: the probes
 * @count: number of @probes
 *
 * A hit is missed if its CPU is in another probe, or if too many returns are pending.
 *
 * Context: any.
 * Return: sum over all registered probes.
 */
u64 lab_probes_missed(const struct kretprobe *probes, u32 count);

/**
 * lab_probe_owner() - device argument of a probed function
 * @regs: registers at the entry of the function
 *
 * Context: any.
 * Return: first argument of the function.
 */
struct device *lab_probe_owner(struct pt_regs *regs);

/**
 * lab_probe_is_neighbour() - check whether two devices share an IOMMU group, and so a domain
 * @dev: the lab's device
 * @owner: device of the probed function
 *
 * Context: any.
 * Return: true if @owner is another device of @dev's group.
 */
bool lab_probe_is_neighbour(const struct device *dev, const struct device *owner);

#endif
