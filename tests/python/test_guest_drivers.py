# SPDX-License-Identifier: GPL-2.0-only
"""Batch-aware nvme, igb and e1000e at work, with and without the module, on two CPUs."""

from __future__ import annotations

from tests.python import guests

from xsmmu_lab.runs.experiment import Needs

# The lab gives its kernels a clock rate that is right only with -icount; 0 makes them measure the rate.
DRIVERS = guests.Machine(
    ("load", "drivers"),
    pattern="^drivers_",
    mode="free",
    words=("tsc_early_khz=0",),
    needs=(*guests.DEVICES, Needs(("pktgen",))),
    patched=("nvme", "igb", "e1000e"),
    timeout_s=600,
)
test_drivers = guests.each_case({"drivers": DRIVERS}, ())
