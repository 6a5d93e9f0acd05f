// SPDX-License-Identifier: GPL-2.0-only
/* Probes on a driver's calls; see probe.h. */
#include "probe.h"

/* The next registration would refuse the fields that the last registration has filled in. */
static void clear(struct kretprobe *probe)
{
	probe->kp.addr = NULL;
	probe->kp.flags = 0;
}

static bool is_set(const struct kretprobe *probe)
{
	return probe->kp.addr;
}

void lab_probes_unset(struct kretprobe *probes, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		if (!is_set(&probes[i]))
			continue;
		unregister_kretprobe(&probes[i]);
		clear(&probes[i]);
	}
}

int lab_probes_set(struct device *dev, struct kretprobe *probes, u32 count, u32 of_kernel)
{
	u32 i;
	int ret;

	for (i = 0; i < count; i++) {
		ret = register_kretprobe(&probes[i]);
		if (!ret)
			continue;
		clear(&probes[i]);
		if (i >= of_kernel && ret == -ENOENT)
			continue;
		dev_err(dev, "cannot probe %s(): %d\n", probes[i].kp.symbol_name, ret);
		lab_probes_unset(probes, i);
		return ret;
	}
	return 0;
}

u64 lab_probes_missed(const struct kretprobe *probes, u32 count)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < count; i++)
		if (is_set(&probes[i]))
			sum += probes[i].nmissed + probes[i].kp.nmissed;
	return sum;
}

struct device *lab_probe_owner(struct pt_regs *regs)
{
	return (struct device *)regs_get_kernel_argument(regs, 0);
}

bool lab_probe_is_neighbour(const struct device *dev, const struct device *owner)
{
	return owner != dev && owner->iommu_group == dev->iommu_group;
}
