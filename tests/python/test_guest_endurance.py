# SPDX-License-Identifier: GPL-2.0-only
"""Each IOMMU under all actions of drivers and operators: torture, every use of the DMA API, cycles, CPUs.

A release's page in docs/releases lists the tests that passed.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from tests.python import guests
from tests.python import test_guest_many_cpus as many_cpus
from tests.python import test_guest_torture as torture
from tests.python.test_guest_iommus import SETTINGS

from xsmmu_lab.setup import kernels
from xsmmu_lab.vm.iommu import IOMMUS

SEED, TORTURE_S, CYCLES = (
    int(os.environ.get(name, default)) for name, default in (("SEED", "1"), ("TORTURE_S", "120"), ("CYCLES", "50"))
)
CPUS = 4

pytestmark = [pytest.mark.guest, pytest.mark.long]
on_each = pytest.mark.parametrize("name", IOMMUS)


def kernel_of(name: str) -> str:
    """The default kernel, or the first that can use this IOMMU."""
    default, known = kernels.table()
    return next(each for each in (default, *known) if each not in IOMMUS[name].lacking)


def whole(name: str, machine: guests.Machine) -> guests.Outcome:
    """Boot the machine with this IOMMU; all its cases must pass."""
    machine = replace(machine, kernel=kernel_of(name), iommu=name, settings={**machine.settings, **SETTINGS[name]})
    [outcome] = guests.boot(machine)
    wrong = [f"{case}: {what}" for case, failures in outcome.failures.items() for what in failures]
    assert not wrong, "\n".join(wrong)
    for case in machine.cases():
        outcome.check(case)
    assert outcome.error is None, outcome.error
    return outcome


@on_each
def test_torture(name: str) -> None:
    outcome = whole(name, torture.machine(SEED, TORTURE_S, NO_SUSPEND=IOMMUS[name].no_suspend))
    assert re.search(r"torture: seed \d+, \d+ acts", "\n".join(outcome.console["torture"]))


@on_each
def test_rude(name: str) -> None:
    whole(name, guests.Machine(("rude",), timeout_s=1200))


@on_each
def test_cycles(name: str) -> None:
    whole(name, guests.Machine(("cycles",), settings={"CYCLES": CYCLES}, timeout_s=240 + 12 * CYCLES))


@on_each
def test_several_cpus(name: str) -> None:
    whole(name, many_cpus.guest(2, 15, cpus=CPUS))


ASLEEP = guests.Machine(("suspend",), mode="free", words=torture.WORDS)


@pytest.mark.parametrize("name", [name for name, iommu in IOMMUS.items() if iommu.no_suspend])
def test_a_suspend_that_torture_leaves_out_is_the_kernels_failure(name: str) -> None:
    """Without the module the same guest works, and hangs when suspended; else torture must suspend the guest."""
    [outcome] = guests.boot(replace(ASLEEP, kernel=kernel_of(name), iommu=name))
    assert outcome.error is not None, f"a guest with {name} can be suspended now: its no_suspend is out of date"
    assert "work_without_the_module" in outcome.failures
    assert outcome.running == "suspend_without_the_module", outcome.error.lines
