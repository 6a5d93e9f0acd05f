// SPDX-License-Identifier: GPL-2.0-only
/*
 * The choices of `auto`: the first line of a table that has only facts that are true of the group.
 *
 * Nothing is measured for a choice. The facts are properties of the group's devices, IOMMU and
 * drivers, and of the kernel's own path. `auto` is evaluated when it is selected, on device
 * add, before probe, and when batch awareness changes, so a machine has the same choice at
 * each boot. The level is never below held, below the floor, or below the level of the group's
 * kernel path. A group of which nothing is known gets strict. A policy comes with its
 * defaults, and without direct tables unless the operator has chosen them: direct tables have
 * not been run on real hardware.
 *
 * Each line names the runs that support it; docs/levels.md, docs/figures.md and docs/matrix.md
 * have their output. Costs are instructions to map and unmap a page on 6.12, a cost of
 * software to which hardware adds its wait for each invalidation. No line depends on a
 * comparison that this wait would reverse: where strict is chosen, it is chosen for its level,
 * whatever it costs.
 */
#include <xsmmu/policy.h>

#include "auto.h"
#include "floor.h"

static const struct xs_auto_line lines[] = {
	{
		XS_FACT_FLOOR_STRICT, "strict",
		"min_level is strict"
	}, {
		/*
		 * Of 1,274,816 attacks none succeeded after the driver's flush (`make lab
		 * EXPERIMENT=attack`, docs/levels.md), the same as under strict. At a wait of 1 us
		 * for each invalidation a page costs an estimated 25.7 ns against 1,093 for strict
		 * (`make lab`, docs/figures.md).
		 */
		XS_FACT_AWARE, "fused",
		"all drivers are batch-aware: fused is then strict, at a lower cost"
	}, {
		/*
		 * Of 1,024 verified pages a disk changed 919 under fused and none under strict
		 * (`xsmmu lab run --experiment attack --workload attack/page-cache`,
		 * docs/levels.md). On hardware each unmap waits, as in the kernel's strict mode.
		 */
		XS_FACT_STORAGE, "strict",
		"storage: a disk could change data after the data was verified"
	}, {
		/* No run shows which software depends on the data of other devices. */
		XS_FACT_OTHER, "strict",
		"a device that is neither storage nor an Ethernet NIC: such devices were never tested"
	}, {
		/*
		 * No run covers an unknown IOMMU. `auto` is evaluated again when the driver binds.
		 */
		XS_FACT_ETHERNET | XS_FACT_IOMMU_UNKNOWN, "strict",
		"the group does not translate, or the IOMMU is not known"
	}, {
		/*
		 * vtd-cm: 2,787 against 1,325 for fused, because the command for a map stays (`make
		 * matrix`, docs/matrix.md); 2.00 commands per IO against 1.02 (`make lab
		 * EXPERIMENT=claim-d-mapsync`, docs/figures.md). The hypervisor's cost of a command
		 * was not measured, and the kernel's own choice is strict.
		 */
		XS_FACT_ETHERNET | XS_FACT_KERNEL_STRICT | XS_FACT_TOLD_OF_MAPS, "strict",
		"the kernel's own path is strict (type DMA); each map sends a command in any case, so deferring could save only half of the commands"
	}, {
		/*
		 * kernel-strict has level strict in each row of `make matrix`, Attack; fused has
		 * held.
		 */
		XS_FACT_ETHERNET | XS_FACT_KERNEL_STRICT, "strict",
		"the kernel's own path is strict (type DMA)"
	}, {
		/*
		 * The administrator has chosen lazy (type DMA-FQ). vtd-cm: 1,325 against 2,622 for
		 * kernel-lazy; virtio-iommu: 2,876 against 5,308; AMD-Vi with NpCache: 1,869
		 * against 2,678 (`make matrix`, docs/matrix.md). The level is held instead of lazy
		 * (the same, Attack).
		 */
		XS_FACT_ETHERNET | XS_FACT_TOLD_OF_MAPS, "fused",
		"an Ethernet NIC: its polls flush deferred unmaps; each map sends a command in any case, so deferring saves only half of the commands"
	}, {
		/*
		 * vtd: 610 against 2,054 for kernel-lazy; first stage, also in caching mode: 612
		 * against 2,056 (`make matrix`, docs/matrix.md). At a wait of 1 us receiving small
		 * packets costs 1.42x of passthrough against 1.38x (`make lab`, docs/figures.md).
		 * The level is held instead of lazy. Sending small packets costs 4.20x against
		 * 1.26x, because slab memory is not held, so that each packet waits once. With
		 * copy_bytes 256 sending costs 1.03x, which takes memory and is left to the
		 * operator (`xsmmu doctor` says how).
		 */
		XS_FACT_ETHERNET, "fused",
		"an Ethernet NIC: its polls flush deferred unmaps"
	}, {
		0, "strict",
		"no device that does DMA"
	},
};

const struct xs_auto_line *xs_auto_find(u32 facts, bool is_aware)
{
	const struct xs_auto_line *line = lines;

	if (is_aware)
		facts |= XS_FACT_AWARE;
	if (!xs_floor_allows(xs_policy_find("fused")))
		facts |= XS_FACT_FLOOR_STRICT;
	/* The last line requires no facts. */
	while (line->facts & ~facts)
		line++;
	return line;
}
