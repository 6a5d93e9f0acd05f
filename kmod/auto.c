// SPDX-License-Identifier: GPL-2.0-only
/*
 * What `auto` chooses: the first line of a table whose facts are all true of a group.
 *
 * Nothing is measured for it. Facts are what devices, IOMMU, drivers and the kernel's own path
 * are when auto is asked for, when a device or a driver comes, and when drivers become
 * batch-aware; so a machine has the same choice at each boot. It is never below held, below
 * the floor, or below what the kernel's own path of the group gives; what nothing is known of
 * is strict. A policy comes with its defaults, and the IOMMU's driver writes the tables unless
 * the operator has said otherwise: nobody has run direct tables on real hardware.
 *
 * Each line names the runs that it stands on: docs/levels.md, docs/figures.md and
 * docs/matrix.md have what they printed. Costs are instructions to map and unmap a page, 6.12:
 * software, to which hardware adds its wait for each invalidation. No line stands on a comparison
 * that a wait turns round: where strict is chosen it is for its level, whatever it costs.
 */
#include <linux/iommu.h>
#include <linux/pci.h>

#include "xsmmu.h"

/* Facts of a group: of one of its devices, of all its drivers, or of what is below. */
#define FLOOR_STRICT	BIT(0)	/* no lower level is allowed */
#define AWARE		BIT(1)	/* all drivers are batch-aware */
#define STORAGE		BIT(2)	/* a device of class 01 */
#define OTHER		BIT(3)	/* a device that is neither that nor */
#define ETHERNET	BIT(4)	/* a device of class 0200 */
#define IOMMU_UNKNOWN	BIT(5)	/* or it does not translate */
#define KERNEL_STRICT	BIT(6)	/* the type is DMA, and not DMA-FQ */
#define TOLD_OF_MAPS	BIT(7)	/* the IOMMU has to be told of each map */

static const struct xs_auto_line lines[] = {
	{
		FLOOR_STRICT, "strict",
		"min_level is strict"
	}, {
		/*
		 * Of 1,274,816 attempts none landed after the driver's flush (`make lab
		 * EXPERIMENT=attack`, docs/levels.md), as under strict; 538 for 2,010
		 * (`make lab`, docs/figures.md).
		 */
		AWARE, "fused",
		"all its drivers are batch-aware, which makes that strict, and cheaper than strict itself"
	}, {
		/*
		 * Of 1,024 pages that were verified a disk changed 919 under fused and none under
		 * strict (`xsmmu lab run --experiment attack --workload attack/page-cache`,
		 * docs/levels.md). On hardware each unmap waits, as in the kernel's strict mode.
		 */
		STORAGE, "strict",
		"it has storage, which could change data after it was verified"
	}, {
		/* No run says what depends on the data of other devices. */
		OTHER, "strict",
		"it has a device that is neither storage nor an Ethernet NIC: of such nothing is known"
	}, {
		/* Nor what an unknown IOMMU is like; the driver's bind asks again. */
		ETHERNET | IOMMU_UNKNOWN, "strict",
		"its group does not translate, or the IOMMU is not known"
	}, {
		/*
		 * vtd-cm: 2,787 for fused's 1,325, since a map's command stays (`make matrix`,
		 * docs/matrix.md); 2.00 commands per IO for 1.02 (`make lab
		 * EXPERIMENT=claim-d-mapsync`, docs/figures.md). What a hypervisor does for a
		 * command was not measured, and the kernel's own choice there is strict.
		 */
		ETHERNET | KERNEL_STRICT | TOLD_OF_MAPS, "strict",
		"the kernel's own path is strict (type DMA), and deferring saves the unmap's command only, as the IOMMU is told of each map"
	}, {
		/* kernel-strict is strict in each row of `make matrix`, Attack; fused is held. */
		ETHERNET | KERNEL_STRICT, "strict",
		"the kernel's own path is strict (type DMA)"
	}, {
		/*
		 * Lazy was asked for (type DMA-FQ). vtd-cm: 1,325 for kernel-lazy's 2,622;
		 * virtio-iommu: 2,876 for 5,308; AMD-Vi with NpCache: 1,869 for 2,678
		 * (`make matrix`, docs/matrix.md), and held for lazy (the same, Attack).
		 */
		ETHERNET | TOLD_OF_MAPS, "fused",
		"an Ethernet NIC, whose polls end what is deferred; that saves the unmap's command only, as the IOMMU is told of each map"
	}, {
		/*
		 * vtd: 610 for kernel-lazy's 2,054; first stage, in caching mode too: 612 for
		 * 2,056 (`make matrix`, docs/matrix.md); 1.199 for 1.365 of what small packets
		 * cost that are received (`make lab`, docs/figures.md); and held for lazy. Small
		 * packets that are sent cost as much (1.274 for 1.260) and wait once each, as slab
		 * memory is not held, unless copy_bytes is 256 (1.046): that is the operator's
		 * to choose, as it takes memory.
		 */
		ETHERNET, "fused",
		"an Ethernet NIC, whose polls end what is deferred"
	}, {
		0, "strict",
		"it has no device that does DMA"
	},
};

static u32 facts_of(const struct xs_device *xdev)
{
	struct pci_dev *pdev = to_pci_dev(xdev->dev);

	if (pci_is_bridge(pdev))
		return 0;
	if (pdev->class >> 16 == PCI_BASE_CLASS_STORAGE)
		return STORAGE;
	return pdev->class >> 8 == PCI_CLASS_NETWORK_ETHERNET ? ETHERNET : OTHER;
}

/* As it was at the last look: a reader of auto_policy gets here. */
static u32 facts_of_iommu(const struct xs_device *xdev)
{
	const struct xs_seen *seen = &xdev->seen;
	u32 facts = 0;

	if (seen->untried || seen->unserved ||
	    !(seen->type & __IOMMU_DOMAIN_DMA_API))
		return IOMMU_UNKNOWN;
	if (seen->type != IOMMU_DOMAIN_DMA_FQ)
		facts |= KERNEL_STRICT;
	if (seen->like.flushes_maps || seen->like.kicks)
		facts |= TOLD_OF_MAPS;
	return facts;
}

const struct xs_auto_line *xs_auto_find(const struct xs_group *group)
{
	const struct xs_auto_line *line = lines;
	struct xs_device *xdev;
	u32 facts = 0;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(xdev, &group->devices, list)
		if (!xdev->gone)
			facts |= facts_of(xdev) | facts_of_iommu(xdev);
	if (group->aware)
		facts |= AWARE;
	if (!xs_choice_is_allowed(xs_policy_find("fused")))
		facts |= FLOOR_STRICT;
	/* The last line needs none. */
	while (line->facts & ~facts)
		line++;
	return line;
}

void xs_auto_say(struct xs_group *group)
{
	const struct xs_auto_line *line = group->auto_line;
	struct xs_device *xdev;

	lockdep_assert_held(&xs_mutex);
	list_for_each_entry(xdev, &group->devices, list) {
		if (!line || xdev->gone || xdev->told == line ||
		    pci_is_bridge(to_pci_dev(xdev->dev)))
			continue;
		xdev->told = line;
		dev_info(xdev->dev, "xsmmu: auto: %s, level %s: %s\n",
			 line->policy,
			 xs_level_name(xs_policy_level(group->policy,
						       group->aware)),
			 line->why);
	}
}
