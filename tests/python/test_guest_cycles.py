# SPDX-License-Identifier: GPL-2.0-only
"""Attach, traffic, detach, again and again: nothing stays behind, and the kernel's own path works afterwards."""

from __future__ import annotations

import os
from functools import cache

import pytest
from tests.python import guests

# The disk's cycles are the faster ones, so they share a guest with the module's.
GUESTS = ("igb", "nvme|module")


def machines(cycles: int) -> list[guests.Machine]:
    timeout_s = 240 + 6 * cycles
    return [
        guests.Machine(("cycles",), pattern, settings={"CYCLES": cycles}, timeout_s=timeout_s) for pattern in GUESTS
    ]


SHORT = machines(30)
LONG = machines(int(os.environ.get("CYCLES", "1000")))
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
