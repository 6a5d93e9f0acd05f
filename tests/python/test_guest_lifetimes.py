# SPDX-License-Identifier: GPL-2.0-only
"""Devices, IOMMU groups and domains come and go beside readers and holders of locks, on each kernel.

VT-d with a page table that is not found, of either stage, is tested here, too.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest
from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT = kernels.table()[0]
MACHINES = {
    name: guests.Machine(
        ("rude", "lifetimes"), "^life_", mode="free", kernel=name, words=("tsc_early_khz=0",), timeout_s=900
    )
    for name in kernels.stock_names()
}
UNKNOWN = {
    "vtd": ("commands_of_ranges", "every_kind_of_mapping"),
    "vtd-first": ("commands_of_ranges", "every_kind_of_mapping"),
    "vtd-cm": ("unknown_stage_in_caching_mode",),
}
test_lifetimes = guests.each_case(MACHINES, [DEFAULT])


@cache
def unknown(iommu: str) -> guests.Outcome:
    changes = {"	if (is_vmd(pdev->bus))\n": "	if (true)\n"}
    with tempfile.TemporaryDirectory(prefix="xsmmu-test-") as folder:
        source = guests.broken_sources(Path(folder), "kmod/iommu/vtd_table.c", changes)
        what = guests.Machine(("counts", "rude", "lifetimes"), iommu=iommu, source=source, timeout_s=600)
        return guests.boot(what, only=UNKNOWN[iommu])[0]


@pytest.mark.guest
@pytest.mark.parametrize(("iommu", "case"), [(iommu, case) for iommu, names in UNKNOWN.items() for case in names])
def test_unknown_stage(iommu: str, case: str) -> None:
    unknown(iommu).check(case)
