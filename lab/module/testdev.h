/* SPDX-License-Identifier: GPL-2.0-only */
/* A lab device: an iommu-testdev, which runs workloads and also attacks. */
#ifndef XSMMU_LAB_TESTDEV_H
#define XSMMU_LAB_TESTDEV_H

#include <linux/container_of.h>

#include "attacker.h"
#include "device.h"

struct lab_testdev {
	struct lab_device dev;
	struct lab_attacker attacker;
	struct dentry *folder;
	struct lab_file *files;	/* per workload, in the order of the table in front.c */
};

static inline struct lab_attacker *lab_attacker_of(struct lab_device *dev)
{
	return &container_of(dev, struct lab_testdev, dev)->attacker;
}

extern const struct lab_workload lab_attack;
extern const struct lab_workload lab_neighbour;
extern const struct lab_workload lab_page_cache;
extern const struct lab_workload lab_latency;
extern const struct lab_workload lab_watch;
extern const struct lab_workload lab_receive;
extern const struct lab_workload lab_transmit;
extern const struct lab_workload lab_storage;

#endif
