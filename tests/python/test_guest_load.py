# SPDX-License-Identifier: GPL-2.0-only
"""Devices at work on two CPUs: unload, unbind, unplug, reset, live changes, CPUs that come and go."""

from __future__ import annotations

from functools import cache

import pytest
from tests.python import guests

# The lab tells its kernels a clock rate that only -icount has; 0 makes them measure it.
WORDS = ("tsc_early_khz=0",)
DRAIN = guests.Machine(("load",), "^(rmmod|unbind|unplug)_", mode="free", words=WORDS, timeout_s=900)
"""What must drain: unload, unbind, unplug."""
OTHER = guests.Machine(("load",), "^(?!rmmod_|unbind_|unplug_)", mode="free", words=WORDS, timeout_s=900)


@cache
def drained() -> guests.Outcome:
    return guests.boot(DRAIN)[0]


@cache
def others() -> guests.Outcome:
    return guests.boot(OTHER)[0]


@pytest.mark.guest
@pytest.mark.parametrize("case", DRAIN.cases())
def test_drain(case: str) -> None:
    drained().check(case)


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize("case", OTHER.cases())
def test_load(case: str) -> None:
    others().check(case)
