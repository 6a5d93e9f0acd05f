# SPDX-License-Identifier: GPL-2.0-only
"""Devices at work on two CPUs: unload, unbind, unplug, reset, live changes, CPUs that come and go."""

from __future__ import annotations

from functools import cache

import pytest
from tests.python import guests

pytestmark = pytest.mark.long

# The lab tells its kernels a clock rate that only -icount has; 0 makes them measure it.
LOAD = guests.Machine(("load",), mode="free", words=("tsc_early_khz=0",), timeout_s=600)


@cache
def outcome() -> guests.Outcome:
    return guests.boot(LOAD)[0]


@pytest.mark.guest
@pytest.mark.parametrize("case", LOAD.cases())
def test_load(case: str) -> None:
    outcome().check(case)
