# SPDX-License-Identifier: GPL-2.0-only
"""The module on a kernel that looks for memory errors, wrong locks, wrong use of the DMA API and leaks (`make lab-debug`).

The kernel is lab/kernels.toml's `debug`, built once from the stock one's source: half an hour.
"""

from __future__ import annotations

import os
from functools import cache

import pytest
from tests.python import guests

pytestmark = pytest.mark.long

SECONDS = int(os.environ.get("TORTURE_S", "600"))
COMMON = {"kernel": "debug", "timeout_s": 3600 + 4 * SECONDS}
WORDS = ("tsc_early_khz=0", "no_console_suspend", "kmemleak=on", "dma_debug_entries=262144")
MACHINES = {
    # A driver that leaves mappings behind is an error to the kernel's own checker.
    "calls": guests.Machine(("smoke", "rude", "debug"), "^(?!leaked_mappings)", words=WORDS[2:], **COMMON),
    "load": guests.Machine(("load", "debug"), mode="free", words=WORDS, **COMMON),
    "torture": guests.Machine(
        ("load", "torture", "debug"),
        "^(torture|checkers|dma_api|no_memory)",
        mode="free",
        words=WORDS,
        settings={"SEED": int(os.environ.get("SEED", "1")), "TORTURE_S": SECONDS},
        **COMMON,
    ),
}
CASES = [(name, case) for name, what in MACHINES.items() for case in what.cases()]


@cache
def outcome(name: str) -> guests.Outcome:
    return guests.boot(MACHINES[name])[0]


@pytest.mark.guest
@pytest.mark.parametrize(("machine", "case"), CASES)
def test_debug_kernel(machine: str, case: str) -> None:
    outcome(machine).check(case)
