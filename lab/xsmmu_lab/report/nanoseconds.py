# SPDX-License-Identifier: GPL-2.0-only
"""Nanoseconds for counts of instructions, by the accepted figures of `make native`.

The lab counts the instructions of `micro` on a stock kernel; `make native` times `micro` on a real CPU. Both together
give instructions a nanosecond. The two kernels are compiled with different options, so the rate is no property of the
CPU alone. The rate was measured for maps and unmaps only, not for a driver or a network or block stack.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from xsmmu import native

KERNEL: Final = "7.2"
"""The stock kernel of INSTRUCTIONS; `make native` builds the same version."""
INSTRUCTIONS: Final[Mapping[tuple[str, str], int]] = {
    ("passthrough", "none"): 183,
    ("kernel-strict", "unmodified"): 2982,
    ("kernel-lazy", "unmodified"): 2516,
    ("copy", "unmodified"): 2692,
    ("strict", "unmodified"): 2638,
    ("lazy", "unmodified"): 1399,
    ("fands", "unmodified"): 1283,
    ("xsmmu", "unmodified"): 1356,
    ("fused", "unmodified"): 1178,
    ("strict-direct", "unmodified"): 1320,
    ("fused-direct", "unmodified"): 396,
    ("fused", "batch-aware"): 1065,
    ("fused-direct", "batch-aware"): 282,
}
"""Instructions to map and unmap a page, by policy and driver: `micro`, ring of 1,024, VT-d (docs/matrix.md)."""

_WAITS_MAX: Final = 0.25
"""A row whose waits take a larger part of its time measures the wait, not instructions."""


@dataclass(frozen=True)
class Rate:
    """Instructions a nanosecond: the median over the policies, the least and the most."""

    per_ns: float
    least: float
    most: float
    cpu: str
    kernel: str

    @property
    def short(self) -> str:
        """The rate in a few words."""
        return f"{self.per_ns:.3g} instructions a ns"

    @property
    def words(self) -> str:
        """The rate with its range and origin."""
        return (
            f"{self.short} (the median over the policies, {self.least:.3g} to {self.most:.3g}: instructions of micro "
            f"on Linux {KERNEL}, divided by the nanoseconds of make native on {self.cpu}, Linux {self.kernel}; "
            "xsmmu/native.json)"
        )

    def ns(self, instructions: float, commands: float, wait_ns: float) -> float:
        """Nanoseconds of a cost with its commands' waits."""
        return instructions / self.per_ns + commands * wait_ns


def rate_of(machine: native.Machine) -> Rate:
    """The rate by the figures of one machine."""
    found = []
    for (policy, driver), instructions in INSTRUCTIONS.items():
        for row in machine.plain(policy, driver)[:1]:
            waits_ns = row.inv_per_page * row.wait_ns
            if waits_ns <= _WAITS_MAX * row.ns_per_page:
                found.append(instructions / (row.ns_per_page - waits_ns))
    return Rate(statistics.median(found), min(found), max(found), machine.cpu, machine.kernel)


@cache
def _accepted() -> Rate:
    return rate_of(native.accepted()[0])


def rate() -> Rate:
    """The rate by the first machine of the accepted figures."""
    return _accepted()


def in_us(ns: float, unit: str = "us") -> str:
    """A wait in microseconds."""
    return f"{ns / 1000:g} {unit}"
