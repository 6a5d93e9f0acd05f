# SPDX-License-Identifier: GPL-2.0-only
"""No memory at any point of any path of the module: nothing is left, and the accounts balance."""

from __future__ import annotations

from functools import cache

import pytest
from tests.python import guests

NO_MEMORY = guests.Machine(("nomemory",), mode="free", aware=True, make_args=("KCFLAGS=-DXS_FAIL_NTH",))


@cache
def outcome() -> guests.Outcome:
    return guests.boot(NO_MEMORY)[0]


@pytest.mark.guest
@pytest.mark.parametrize("case", NO_MEMORY.cases())
def test_no_memory(case: str) -> None:
    outcome().check(case)
