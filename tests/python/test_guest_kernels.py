# SPDX-License-Identifier: GPL-2.0-only
"""Every kind of mapping on every kernel; tracepoints on the default one, a smoke test on the others."""

from __future__ import annotations

from functools import cache

import pytest
from tests.python import guests

from xsmmu import kernels

pytestmark = pytest.mark.long

DEFAULT, KERNELS = kernels.table()
TRACE = guests.Machine(("trace", "rude"))
SMOKE = {name: guests.Machine(("smoke", "rude"), kernel=name) for name in KERNELS if name != DEFAULT}
SMOKE_CASES = [(name, case) for name, what in SMOKE.items() for case in what.cases()]


@cache
def outcomes() -> dict[str, guests.Outcome]:
    return dict(zip(SMOKE, guests.boot(*SMOKE.values()), strict=True))


@cache
def traced() -> guests.Outcome:
    return guests.boot(TRACE)[0]


@pytest.mark.guest
@pytest.mark.parametrize("case", TRACE.cases())
def test_trace(case: str) -> None:
    traced().check(case)


@pytest.mark.guest
@pytest.mark.parametrize(("kernel", "case"), SMOKE_CASES)
def test_smoke(kernel: str, case: str) -> None:
    outcomes()[kernel].check(case)
