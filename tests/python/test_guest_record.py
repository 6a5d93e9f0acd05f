# SPDX-License-Identifier: GPL-2.0-only
"""Recordings of NICs and disks, on each kernel, by the program of the package: every call is there.

The case `cost` prints a row of the table in docs/record.md: instructions of a map, an unmap, and their mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.python import guests

from xsmmu_lab.arch import AMD64
from xsmmu_lab.setup import kernels, packages
from xsmmu_lab.vm.guest import Record
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS

DEFAULT, OTHERS = kernels.table()[0], ("6.1", "7.2")


def hears(record: Record) -> list[str]:
    print(f"\n| {record['kernel']} | {record['map']} | {record['unmap']} | {record['mean']} |", flush=True)
    return []


def machine(pattern: str, kernel: str, iommu: str = DEFAULT_IOMMU) -> guests.Machine:
    def files(_source: Path) -> Mapping[str, bytes]:
        return packages.programs(IOMMUS[iommu].arch, "xsmmu-record")

    # The goal is 450 instructions an event; arm64 has a longer way into a program.
    settings: dict[str, str | int] = {"GOAL": 450 if IOMMUS[iommu].arch == AMD64 else 520}
    return guests.Machine(
        *(("record",), pattern),
        kernel=kernel,
        iommu=iommu,
        settings=settings,
        files=files,
        hears=hears,
        timeout_s=1800,
    )


SHORT = {f"record {DEFAULT}": machine("^nic_one_by_one$", DEFAULT)}
LONG = {f"more {DEFAULT}": machine("^(?!nic_one_by_one$)", DEFAULT)}
# 6.1 has no tracepoints of the DMA API.
LONG |= {f"record {name}": machine("^(?!tracepoints$)" if name == "6.1" else "", name) for name in OTHERS}
LONG["record arm64"] = machine("^(nic|disk)_|^bad_input$|^cost$", DEFAULT, "smmuv3")
MACHINES = {**SHORT, **LONG}
test_record = guests.each_case(MACHINES, SHORT)
