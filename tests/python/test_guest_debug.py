# SPDX-License-Identifier: GPL-2.0-only
"""The module on a kernel that checks memory, locks, DMA calls and leaks (`make lab-debug`).

The kernels are those of lab/kernels.toml that are built here, each once from a stock kernel's source: up to half an
hour.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

import pytest
from tests.python import guests

from xsmmu_lab.setup import kernels
from xsmmu_lab.vm.machine import Mode

pytestmark = pytest.mark.long

PART_S = int(os.environ.get("TORTURE_S", "600"))
SEED = int(os.environ.get("SEED", "1"))


# The kernel's own checker reports a driver's leftovers, and unmaps without a map, as errors.
LATE = (
    "handles|a_driver_comes|a_device_goes|a_map_|the_type_changes|what_the_kernels|orphaned|somebody_else|given_back|"
    "references|late_unmaps|beside_one|one_page|a_part_of_a_page|bad_unmap|mismatched"
)
# micro's rounds take an hour here, and this kernel makes no virtual functions.
LEFT_OUT = "micro|a_virtual_function"


def machine(
    topics: tuple[str, ...],
    pattern: str = "",
    mode: Mode = "free",
    aware: bool = False,
    dma_words: tuple[str, ...] = ("dma_debug_entries=262144",),
) -> guests.Machine:
    words = ("kmemleak=on", *dma_words, "no_console_suspend")
    return guests.Machine(
        (*topics, "debug"),
        pattern,
        mode=mode,
        aware=aware,
        words=(*words, "tsc_early_khz=0") if mode == "free" else words,
        # Everything is twenty times slower here, and unbounded loads slow the rest down.
        settings={"SEED": SEED, "TORTURE_S": PART_S, "NET_RATE": "100K", "DISK_RATE": 50, "SLOWER": 10},
        timeout_s=3600 + 4 * PART_S,
        quiet_s=900,
    )


MACHINES = {
    "calls": machine(("smoke", "rude"), f"^(?!{LATE}|{LEFT_OUT})", mode="cost"),
    "late": machine(("rude",), f"^({LATE}|no_memory)", mode="cost", dma_words=("dma_debug=off",)),
    "copy": machine(
        ("copy",),
        f"^(?!{LEFT_OUT}|bursts|checkers|dma_api)",
        mode="cost",
        dma_words=("dma_debug=off", "init_on_alloc=0"),
    ),
    "aware": machine(("aware",), "^(?!aware_on_passthrough)", mode="cost", aware=True),
    "lifetimes": machine(("rude", "lifetimes"), "^life_", dma_words=("dma_debug=off", "tsc_early_khz=0")),
    "load": machine(("load",)),
    "torture": machine(("load", "torture"), "^(torture|checkers|dma_api|no_memory)"),
}
CASES = [(kernel, name, case) for kernel in kernels.own() for name, what in MACHINES.items() for case in what.cases()]


@cache
def outcome(kernel: str, name: str) -> guests.Outcome:
    return guests.boot(replace(MACHINES[name], kernel=kernel))[0]


@pytest.mark.guest
@pytest.mark.parametrize(("kernel", "name", "case"), CASES)
def test_debug_kernel(kernel: str, name: str, case: str) -> None:
    outcome(kernel, name).check(case)
