# SPDX-License-Identifier: GPL-2.0-only
"""The litmus programs (tests/litmus/): all pass, each is explored to its end, and every mutant is caught."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from checks import litmus
from checks.mutants import Mutant
from xsmmu.errors import UserError
from xsmmu_lab.setup import host, root


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


def test_programs_pass(tools: root.Root) -> None:
    outcomes = litmus.explore(litmus.compiled(tools))
    assert not [outcome.text for outcome in outcomes if not outcome.passed]
    named = {name for mutant in litmus.MUTANTS.named() for name in mutant.programs}
    assert named <= {outcome.name for outcome in outcomes}


@pytest.mark.planted
@pytest.mark.parametrize("mutant", litmus.MUTANTS.named(), ids=lambda mutant: mutant.name)
def test_mutant_is_caught(tools: root.Root, mutant: Mutant) -> None:
    outcome = litmus.try_mutant(tools, mutant)
    assert not outcome.passed
    assert not outcome.bounded, outcome.why


@pytest.mark.long
def test_orders_that_are_not_needed_are_known(tools: root.Root) -> None:
    assert set(litmus.survivors(litmus.compiled(tools))) == set(litmus.needless())


def test_a_slow_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litmus, "SECONDS", 0.2)
    with pytest.raises(UserError, match=r"\(9\) have not ended in 0.2 s: end other programs"):
        litmus.explore(Path("/bin/sleep"), "9")
