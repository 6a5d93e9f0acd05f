# SPDX-License-Identifier: GPL-2.0-only
"""Duration of calls, and of disabled interrupts, compared with the kernel's own path: in instructions."""

from __future__ import annotations

from functools import cache

import pytest
from tests.python import guests

LATENCY = guests.Machine(("latency",))


@cache
def outcome() -> guests.Outcome:
    return guests.boot(LATENCY)[0]


@pytest.mark.guest
@pytest.mark.parametrize("case", LATENCY.cases())
def test_latency(case: str) -> None:
    outcome().check(case)
