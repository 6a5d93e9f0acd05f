# SPDX-License-Identifier: GPL-2.0-only
"""No memory at any point of any path of the module: nothing is left, and the statistics balance."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
NO_MEMORY = guests.Machine(("nomemory",), mode="free", aware=True, make_args=("KCFLAGS=-DXS_FAIL_NTH",))
CASES = [
    pytest.param(name, case, marks=() if name == DEFAULT else pytest.mark.long)
    for name in KERNELS
    for case in NO_MEMORY.cases()
]


@cache
def outcome(kernel: str) -> guests.Outcome:
    return guests.boot(replace(NO_MEMORY, kernel=kernel))[0]


@pytest.mark.guest
@pytest.mark.parametrize(("kernel", "case"), CASES)
def test_no_memory(kernel: str, case: str) -> None:
    outcome(kernel).check(case)
