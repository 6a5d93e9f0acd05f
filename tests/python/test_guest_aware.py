# SPDX-License-Identifier: GPL-2.0-only
"""A batch-aware driver: the API of include/xsmmu/dma.h with and without the module's path, and its misuse."""

from __future__ import annotations

from functools import cache

import pytest
from tests.python import guests

AWARE = guests.Machine(("aware",), aware=True, words=("swiotlb=force",))


@cache
def outcome() -> guests.Outcome:
    return guests.boot(AWARE)[0]


@pytest.mark.guest
@pytest.mark.parametrize("case", AWARE.cases())
def test_aware(case: str) -> None:
    outcome().check(case)
