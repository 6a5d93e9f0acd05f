# SPDX-License-Identifier: GPL-2.0-only
"""A disk and a NIC at work while policies change, drivers, devices and CPUs come and go, and the machine suspends.

A minute in `make test`; an hour in parts of two minutes, each with a seed, in `make test-long`, and one such part on
each other kernel; the same on the debug kernels by `make lab-debug`. To repeat a part: `SEED=7 TORTURE_S=120 make test
TESTS=...`.
"""

from __future__ import annotations

import os
from functools import cache

import pytest
from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
WORDS = ("tsc_early_khz=0", "no_console_suspend")
SHORT_S, PART_S = (int(os.environ.get("TORTURE_S", default)) for default in ("60", "120"))
SEEDS = range(1, 31)


def machine(seed: int, seconds: int, kernel: str = DEFAULT, **settings: str | int) -> guests.Machine:
    """The tortured machine; more settings name the limits of a kind of machine."""
    return guests.Machine(
        ("load", "torture"),
        "^torture",
        mode="free",
        kernel=kernel,
        words=WORDS,
        make_args=("KCFLAGS=-DXS_FAIL_NTH",),
        settings={"SEED": seed, "TORTURE_S": seconds, **settings},
        timeout_s=600 + 2 * seconds,
    )


@cache
def outcome(seed: int, seconds: int, kernel: str = DEFAULT) -> guests.Outcome:
    return guests.boot(machine(seed, seconds, kernel))[0]


@pytest.mark.guest
def test_torture() -> None:
    outcome(int(os.environ.get("SEED", "1")), SHORT_S).check("torture")


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_more_torture(seed: int) -> None:
    outcome(seed, PART_S).check("torture")


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != DEFAULT])
def test_torture_on_another_kernel(kernel: str) -> None:
    outcome(int(os.environ.get("SEED", "1")), PART_S, kernel).check("torture")
