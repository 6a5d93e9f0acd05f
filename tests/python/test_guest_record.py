# SPDX-License-Identifier: GPL-2.0-only
"""Recordings of NICs and disks, on each kernel: every call is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.python import guests

from xsmmu_lab.setup import kernels, trace

DEFAULT, OTHERS = kernels.table()[0], ("6.1", "7.2")


def files(_source: Path) -> Mapping[str, bytes]:
    return {"bin/xsmmu-record": trace.recorder().read_bytes()}


def machine(pattern: str, kernel: str) -> guests.Machine:
    return guests.Machine(("record",), pattern, kernel=kernel, files=files, timeout_s=900)


SHORT = {f"record {DEFAULT}": machine("^nic_one_by_one$", DEFAULT)}
LONG = {f"more {DEFAULT}": machine("^(?!nic_one_by_one$)", DEFAULT)}
# 6.1 has no tracepoints of the DMA API.
LONG |= {f"record {name}": machine("^(?!tracepoints$)" if name == "6.1" else "", name) for name in OTHERS}
MACHINES = {**SHORT, **LONG}
test_record = guests.each_case(MACHINES, SHORT)
