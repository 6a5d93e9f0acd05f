# SPDX-License-Identifier: GPL-2.0-only
"""Planted bugs in the module, or in e1000e's patch, are found by the cases about them (tests/guest/mutants.toml)."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from tests.python import guests, test_decide, test_unit
from tests.python.test_guest_ats import MACHINES as ATS
from tests.python.test_guest_aware import AWARE, FLUSHED
from tests.python.test_guest_aware import LONG as FLUSHED_FOR_LONG
from tests.python.test_guest_copy import LONG, SHORT
from tests.python.test_guest_drivers import DRIVERS
from tests.python.test_guest_identity import MACHINES as IDENTITY
from tests.python.test_guest_iommus import SHORT as IOMMUS
from tests.python.test_guest_lifetimes import DEFAULT
from tests.python.test_guest_lifetimes import MACHINES as LIFETIMES
from tests.python.test_guest_nomemory import NO_MEMORY
from tests.python.test_guest_order import MACHINES as ORDER
from tests.python.test_guest_refusals import REFUSALS, STRICT
from tests.python.test_guest_stuck import MACHINES as STUCK
from tests.python.test_guest_tables import MACHINES as TABLES

from checks import litmus, sim
from checks.mutants import Mutant, Mutants
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import drivers
from xsmmu_lab.setup.build import MODULE_PARTS

PATCHES = [str(file.relative_to(PROJECT)) for file in sorted(drivers.FOLDER.iterdir())]
MUTANTS = Mutants("tests/guest/mutants.toml", (*MODULE_PARTS, "lab/module", *PATCHES))
OTHERS = (REFUSALS, STRICT, AWARE, SHORT["copy"], NO_MEMORY)
MACHINES = {"lifetimes": LIFETIMES[DEFAULT], "identity": IDENTITY[DEFAULT]}
MACHINES |= {topic: machine for machine in OTHERS for topic in machine.topics}
# An older kernel does not distinguish these.
MACHINES["copy 7.2"] = LONG["copy 7.2"]
MACHINES |= {f"{topic} {name}": machine for name, machine in IOMMUS.items() for topic in machine.topics}
MACHINES |= {name: machine for name, machine in TABLES.items() if name.startswith("tables ")}
MACHINES |= ORDER
MACHINES |= {f"aware {name}": machine for name, machine in {**FLUSHED, **FLUSHED_FOR_LONG}.items()}
MACHINES |= {f"ats {name}": machine for name, machine in ATS.items()}
MACHINES |= {f"stuck {name}": machine for name, machine in STUCK.items()}
# The other topic provides functions.
MACHINES["drivers"] = DRIVERS

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "alone")
"""The process of the test, with a build folder of its own: a planted bug changes one object of the module."""

ALL = (MUTANTS, sim.MUTANTS, litmus.MUTANTS, test_unit.MUTANTS, test_decide.MUTANTS)


@pytest.mark.parametrize("mutants", ALL, ids=lambda mutants: str(mutants.file))
def test_planted_bugs_fit(mutants: Mutants) -> None:
    """Each mutant has a unique name, too."""
    named = mutants.named()
    assert len({mutant.name for mutant in named}) == len(named)
    assert all(mutants.changed(mutant) for mutant in named)


@pytest.mark.parametrize("mutant", MUTANTS.named(), ids=lambda mutant: mutant.name)
def test_planted_bugs_have_a_machine_with_their_case(mutant: Mutant) -> None:
    [program] = mutant.programs
    name, case = program.split(":")
    machine = machine_of(name)
    assert case in {each for topic in machine.topics for each in guests.cases(topic)}


def machine_of(name: str) -> guests.Machine:
    """The machine of a topic, or the machine of this name."""
    return MACHINES[name] if " " in name else MACHINES.get(name, guests.Machine((name,)))


@pytest.mark.guest
@pytest.mark.planted
@pytest.mark.parametrize("mutant", MUTANTS.named(), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    [program] = mutant.programs
    name, case = program.split(":")
    machine = replace(machine_of(name), pattern=f"^{case}$", built_in=f"mutant-{WORKER}")
    with MUTANTS.planted(mutant) as source:
        [outcome] = guests.boot(replace(machine, source=source))
    assert outcome.failures.get(case) or (outcome.error and outcome.running == case), "no test has found it"
