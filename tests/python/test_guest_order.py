# SPDX-License-Identifier: GPL-2.0-only
"""Page-table pages that a map of many pages would replace, and ranges that a driver does not align: on each kernel, as
each kernel's driver does it in its own way (docs/kernels.md). What the host counts is what the module counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
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
# Its driver warns of a range of the first stage that is not aligned. Such ranges of a batch-aware driver's block are
# flushed where there is no memory to defer them.
MACHINES["unaligned 6.1"] = replace(NO_MEMORY, pattern="^each_failure$", kernel="6.1", iommu="vtd-first", timeout_s=900)
outcome = guests.booted_once(MACHINES)


@pytest.mark.guest
@pytest.mark.parametrize(("name", "case"), guests.parameters(MACHINES, [f"order {DEFAULT} vtd"]))
def test_order(name: str, case: str) -> None:
    outcome(name).check(case)
