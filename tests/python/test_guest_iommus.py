# SPDX-License-Identifier: GPL-2.0-only
"""The module on each IOMMU: sent and counted commands are equal, and nothing stays mapped in the device.

Lists may have holes, and a device writes to the holes.
"""

from __future__ import annotations

from tests.python import guests

from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS

# In caching mode and similar modes the kernel's default is DMA.
DMA: dict[str, str | int] = {"GROUP_TYPE": "DMA"}
SETTINGS = {name: DMA if iommu.flushes_maps else {} for name, iommu in IOMMUS.items()}

SHORT = {
    name: guests.Machine(
        ("counts", "rude", "auto", "padding", "interrupts"),
        "^commands_|^removals_|^every_kind_of_mapping$|^auto_of_a_(nic|disk)|^auto_before_|^padding_|^interrupts_|^mismatched_",
        iommu=name,
        settings=SETTINGS[name],
        timeout_s=600,
    )
    for name in IOMMUS
}
LONG = {
    name: guests.Machine(("smoke", "copy"), iommu=name, settings=SETTINGS[name], timeout_s=1200)
    for name in IOMMUS
    if name != DEFAULT_IOMMU
}
# One IOMMU per driver; `make matrix` and the long tests have all of them.
QUICK = ("vtd-first-cm", "amd", "virtio")
test_iommu = guests.each_case(SHORT, QUICK)

test_iommu_for_long = guests.each_case(LONG, ())
