# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu compare` in a guest whose time is instructions: the command ranks policies as the lab does."""

from __future__ import annotations

from functools import cache

import pytest
from tests.python import guests, operator_tool

from xsmmu_lab.runs.experiment import Needs

NETWORK = Needs(("virtio_net", "e1000e", "igb"), ("usr/bin/ip", "usr/bin/iperf3"), "net_init")
MACHINE = guests.Machine(("compare",), needs=(NETWORK,), files=lambda _source: operator_tool.files(), timeout_s=900)


@cache
def outcome() -> guests.Outcome:
    return guests.boot(MACHINE)[0]


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize("case", MACHINE.cases())
def test_compare(case: str) -> None:
    outcome().check(case)
    print("\n".join(outcome().console[case]))
