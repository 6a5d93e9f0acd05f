# SPDX-License-Identifier: GPL-2.0-only
"""The ring workloads in a guest: every kind of driver, on every kernel."""

from __future__ import annotations

from functools import cache

import pytest
from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
MACHINES = {name: guests.Machine(("ring",), kernel=name, aware=True, timeout_s=600) for name in KERNELS}


@cache
def outcome(kernel: str) -> guests.Outcome:
    return guests.boot(MACHINES[kernel])[0]


@pytest.mark.guest
@pytest.mark.parametrize("case", MACHINES[DEFAULT].cases())
def test_ring(case: str) -> None:
    outcome(DEFAULT).check(case)


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize("case", MACHINES[DEFAULT].cases())
@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != DEFAULT])
def test_ring_on_other_kernels(kernel: str, case: str) -> None:
    outcome(kernel).check(case)
