/* SPDX-License-Identifier: GPL-2.0-only */
/* Probes on the functions by which a driver unmaps: what one unmaps is seen as it is. */
#ifndef XSMMU_LAB_PROBE_H
#define XSMMU_LAB_PROBE_H

#include <linux/device.h>
#include <linux/kprobes.h>

/* @at_entry returns 1 where the return is of no interest; @at_return may be NULL. */
#define LAB_PROBE(function, at_entry, at_return, data) { \
	.kp.symbol_name = function, \
	.entry_handler = at_entry, \
	.handler = at_return, \
	.data_size = sizeof(data), \
	.maxactive = 32, \
}

/**
 * lab_probes_set() - set probes; an error is told
 * @dev: for whom
 * @probes: the probes
 * @count: how many
 * @of_kernel: how many of them, the first ones, are on functions of the kernel; the others are on
 *	functions of xsmmu.ko, which need not be loaded
 *
 * Return: 0, or what failed; none is set then.
 */
int lab_probes_set(struct device *dev, struct kretprobe *probes, u32 count, u32 of_kernel);
void lab_probes_unset(struct kretprobe *probes, u32 count);

/* How many hits were missed, since their CPU was in another probe. */
u64 lab_probes_missed(const struct kretprobe *probes, u32 count);

/* The device that a function is called for, its first argument. */
struct device *lab_probe_owner(struct pt_regs *regs);

/* Does another device share @dev's group, and so its domain? */
bool lab_probe_is_neighbour(const struct device *dev, const struct device *owner);

#endif
