# SPDX-License-Identifier: GPL-2.0-only
"""Devices at work on two CPUs: unload, unbind, unplug, reset, live changes, CPUs that come and go; on each kernel."""

from __future__ import annotations

from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()


def machine(pattern: str, kernel: str) -> guests.Machine:
    # The lab gives its kernels a clock rate that is right only with -icount; 0 makes them measure the rate.
    return guests.Machine(("load",), pattern, mode="free", kernel=kernel, words=("tsc_early_khz=0",), timeout_s=900)


# Cases of draining; and, for each of the other kernels, the cases in which the kernel may differ.
SHORT = {f"drain {DEFAULT}": machine("^(rmmod|unbind|unplug)_", DEFAULT)}
SHORT |= {f"unplug {name}": machine("^unplug_disk_", name) for name in KERNELS if name != DEFAULT}
LONG = {f"other {DEFAULT}": machine("^(?!rmmod_|unbind_|unplug_)", DEFAULT)}
LONG |= {f"load {name}": machine("", name) for name in KERNELS if name != DEFAULT}
MACHINES = {**SHORT, **LONG}
test_load = guests.each_case(MACHINES, SHORT)
