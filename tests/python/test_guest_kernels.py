# SPDX-License-Identifier: GPL-2.0-only
"""Every kind of mapping on every kernel; tracepoints on the default kernel, a smoke test on the others.

The same with VT-d in caching mode, so that each map needs a flush, and on arm64.
"""

from __future__ import annotations

from functools import cache

import pytest
from tests.python import guests

from xsmmu_lab.arch import ARM64
from xsmmu_lab.setup import kernels

pytestmark = pytest.mark.long

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
# Side by side, each with a part of the processors: the total time is that of the longest.
MACHINES = {
    name: guests.Machine(("trace" if name == DEFAULT else "smoke", "rude"), kernel=name, timeout_s=600)
    for name in KERNELS
}
# In caching mode the kernel's default is DMA, and 6.1 does not change the type of a group of two.
MACHINES |= {
    f"{name}-cached": guests.Machine(
        ("smoke", "rude"), kernel=name, iommu="vtd-cm", settings={"GROUP_TYPE": "DMA"}, timeout_s=900
    )
    for name in KERNELS
}
# The expectations of xsmmu_dma_api_test are for pages of 4 KiB.
MACHINES |= {
    f"{name}-arm64": guests.Machine(
        ("smoke",) if kernels.table()[1][name].flavour else ("smoke", "rude"),
        kernel=name,
        iommu="smmuv3",
        timeout_s=900,
    )
    for name in kernels.stock_names(ARM64)
}
# The IOMMU has smaller pages than the CPU, and the kernel's own path maps the smaller pages.
MACHINES |= {
    f"{name}-smaller": guests.Machine(
        ("rude",), "^a_part_of_a_page_", kernel=name, iommu="virtio-arm64", settings={"GROUP_TYPE": "DMA"}
    )
    for name in kernels.stock_names(ARM64)
    if kernels.table()[1][name].flavour
}
CASES = [(name, case) for name, what in MACHINES.items() for case in what.cases()]


def kind_of(name: str) -> str:
    return name.rpartition("-")[2] if name.endswith(("-cached", "-arm64", "-smaller")) else ""


@cache
def outcomes(kind: str) -> dict[str, guests.Outcome]:
    names = [name for name in MACHINES if kind_of(name) == kind]
    return dict(zip(names, guests.boot(*(MACHINES[name] for name in names)), strict=True))


@pytest.mark.guest
@pytest.mark.parametrize(("kernel", "case"), CASES)
def test_kernel(kernel: str, case: str) -> None:
    outcomes(kind_of(kernel))[kernel].check(case)
