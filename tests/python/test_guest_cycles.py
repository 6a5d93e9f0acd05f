# SPDX-License-Identifier: GPL-2.0-only
"""Repeated attach, traffic and detach on each kernel: nothing stays behind, and the kernel's own path works."""

from __future__ import annotations

import os
from functools import cache

import pytest
from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()

# The disk's cycles are faster, so they share a guest with the module's.
GUESTS = ("igb", "nvme|module")


def machines(cycles: int, kernel: str = DEFAULT) -> list[guests.Machine]:
    settings: dict[str, str | int] = {"CYCLES": cycles}
    timeout_s = 240 + 6 * cycles
    return [guests.Machine(("cycles",), each, kernel=kernel, settings=settings, timeout_s=timeout_s) for each in GUESTS]


SHORT = machines(30)
LONG = machines(int(os.environ.get("CYCLES", "1000")))
OTHERS = [name for name in KERNELS if name != DEFAULT]
# From 64 cycles on, a page leaked per cycle is found.
OTHER_CYCLES = 70
CASES = [(index, case) for index, what in enumerate(SHORT) for case in what.cases()]


@cache
def outcomes(long: bool) -> list[guests.Outcome]:
    return guests.boot(*(LONG if long else SHORT))


@pytest.mark.guest
@pytest.mark.parametrize(("index", "case"), CASES)
def test_cycles(index: int, case: str) -> None:
    outcomes(False)[index].check(case)


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize(("index", "case"), CASES)
def test_many_cycles(index: int, case: str) -> None:
    outcomes(True)[index].check(case)


@cache
def outcomes_on(kernel: str) -> list[guests.Outcome]:
    return guests.boot(*machines(OTHER_CYCLES, kernel))


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize("kernel", OTHERS)
@pytest.mark.parametrize(("index", "case"), CASES)
def test_cycles_on_another_kernel(kernel: str, index: int, case: str) -> None:
    outcomes_on(kernel)[index].check(case)
