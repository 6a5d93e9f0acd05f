# SPDX-License-Identifier: GPL-2.0-only
"""The simulated world (sim/): runs of each policy, repeatability, mutants that must be caught, fuzzing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from checks import pages, sim
from checks.mutants import Mutant
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import host, root

pytestmark = pytest.mark.early

# Devices' observations under each policy in the plain world: nothing weaker than the level, and all that the level
# permits.
OBSERVED = {
    "copy": "strict",
    "strict": "strict",
    "lazy": "bounded",
    "fands": "bounded",
    "xsmmu": "held",
    "fused": "held",
}


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


@pytest.fixture(scope="session")
def program(tools: root.Root) -> Path:
    return sim.compiled(tools)


def ran(outcome: sim.Outcome) -> sim.Outcome:
    """A run without failure. The line that repeats a failed run may stand before a long trace."""
    if outcome.status != 0:
        pytest.fail(f"{outcome.text[-6000:]}\nreplay: {outcome.replay or 'none'}")
    return outcome


def test_a_failure_shows_the_line_that_repeats_it() -> None:
    line = "make sim SEED=1 POLICY=lazy EVENTS=500000"
    with pytest.raises(pytest.fail.Exception, match=line):
        ran(sim.Outcome(1, f"FAIL points: x\nreplay: {line}\n" + "a step\n" * 5000, 0.1))


def make(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a replay line, without the variables of a make above."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("world", [(), ("--swarm",)], ids=["plain", "swarm"])
def test_same_seed_same_run(program: Path, world: tuple[str, ...]) -> None:
    words = ("--policy", "fused", "--events", "100000", *world)
    first, second = (ran(sim.run(program, *words, "--seed", "7")) for _ in range(2))
    assert first.digest
    assert first.digest == second.digest
    assert ran(sim.run(program, *words, "--seed", "8")).digest != first.digest


@pytest.mark.parametrize("policy", sim.POLICIES)
def test_five_seconds_of(program: Path, policy: str) -> None:
    words = ("--policy", policy, "--seeds", "1000000", "--events", "500000", "--seconds", "5")
    text = ran(sim.run(program, *words)).text
    assert f"observed {OBSERVED.get(policy, '')}" in text


def test_ten_seconds_of_any_world(program: Path) -> None:
    words = ("--swarm", "--policy", "any", "--seeds", "1000000", "--events", "100000", "--seconds", "10")
    ran(sim.run(program, *words))


@pytest.mark.parametrize("page", pages.LARGER)
def test_larger_pages(tools: root.Root, page: str) -> None:
    words = ("--swarm", "--policy", "any", "--seeds", "1000000", "--events", "100000", "--seconds", "3")
    ran(sim.run(sim.compiled(tools, ("-O1",), page=page), *words))


def test_replay_line_repeats_the_failure() -> None:
    command = ["make", "sim", "SEED=1", "POLICY=any", "EVENTS=50000", "SWARM=1", "MUTANT=double-release"]
    first = make(command)
    assert first.returncode != 0
    line = re.search(r"^replay: (make sim .*)", first.stdout, re.MULTILINE)
    assert line, first.stdout
    assert line[1].split() == command
    again = make(line[1].split())
    assert again.stdout.split("shrunk")[0] == first.stdout.split("shrunk")[0]
    steps = re.search(r"^shrunk from \d+ to (\d+) steps", first.stdout, re.MULTILINE)
    assert steps
    assert int(steps[1]) < 20


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("checks.sim mutants NOSUCH", "no mutant is called NOSUCH"),
        ("checks.sim run --mutant NOSUCH", "no mutant is called NOSUCH"),
        ("checks.sim run --seed -1", "'-1' is not a whole number"),
        ("checks.sim run --seed 99999999999999999999", "is not a whole number"),
        ("checks.sim run --events 0", "'0' is not a whole number"),
        ("checks.sim run --policy nosuch", "nosuch"),
        ("checks.sim run --policy any", "needs SWARM=1"),
        ("checks.sim long --billions 0", "'0' is not a number above 0"),
        ("checks.sim fuzz --seconds 0", "'0' is not a whole number"),
        ("checks.scale count --cpus 65", "'65' is not a whole number from 1 to 64"),
        ("checks.scale count --policies nosuch", "'nosuch' is none of copy"),
        ("checks.scale ageing --maps 0", "'0' is not a whole number"),
        ("checks.scale ageing --maps 1e99", "'1e99' is not a whole number"),
        ("checks.scale ageing --maps 1e5,1e3", "not in ascending order"),
        ("checks.litmus run nosuch", "no litmus program is called nosuch"),
        ("checks.litmus mutants NOSUCH", "no mutant is called NOSUCH"),
        ("checks.litmus orders slot_one", "give no names"),
    ],
)
def test_what_is_wrong_is_named(words: str, text: str) -> None:
    command = [sys.executable, "-m", *words.split()]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode != 0
    assert text in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_mutant_that_does_not_fit_fails() -> None:
    mutant = Mutant("none", "", "core/engine.c", "no such text", "")
    with pytest.raises(UserError, match="does not fit"), sim.MUTANTS.planted(mutant):
        pass


@pytest.mark.parametrize("policy", sim.POLICIES)
def test_five_seconds_of_fuzzing(tools: root.Root, policy: str) -> None:
    ran(sim.fuzz(tools, policy, None, 5))


def test_fuzzer_finds_a_planted_bug_and_its_line_repeats_it(tools: root.Root) -> None:
    outcome = sim.fuzz_canary(tools)
    assert outcome.checker, outcome.text[-3000:]
    again = make(outcome.replay.split())
    assert again.returncode != 0
    assert f"FAIL {outcome.checker}:" in again.stdout


@pytest.mark.long
def test_a_billion_operations() -> None:
    subprocess.run(["make", "sim-long", "N=1"], cwd=PROJECT, check=True)
