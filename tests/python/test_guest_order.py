# SPDX-License-Identifier: GPL-2.0-only
"""Page-table pages that a map of many pages replaces, and ranges that a driver does not align, on each kernel.

Each kernel's driver handles both in its own way (docs/kernels.md). The host's counts equal the module's.
"""

from __future__ import annotations

from dataclasses import replace

from tests.python import guests
from tests.python.test_guest_nomemory import NO_MEMORY

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
MACHINES = {
    f"order {kernel} {iommu}": guests.Machine(
        ("counts", "rude"),
        "^commands_of_(ranges|large_maps|copies)",
        kernel=kernel,
        iommu=iommu,
        timeout_s=900,
    )
    for kernel in KERNELS
    for iommu in ("vtd", "vtd-first")
}
# The driver warns of unaligned ranges of the first stage. Such ranges of a batch-aware driver's block are flushed if no
# memory is left to defer them.
MACHINES["unaligned 6.1"] = replace(NO_MEMORY, pattern="^each_failure$", kernel="6.1", iommu="vtd-first", timeout_s=900)
test_order = guests.each_case(MACHINES, [f"order {DEFAULT} vtd"])
