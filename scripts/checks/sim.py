# SPDX-License-Identifier: GPL-2.0-only
"""The simulated world (sim/): builds and runs it, and plants the mutants that it must catch.

`make sim`, `mutants`, `sim-long` and `fuzz` call `python -m checks.sim run|mutants|long|fuzz`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from checks import command, fuzzing, pages
from checks.mutants import Mutant, Mutants
from xsmmu.errors import UserError
from xsmmu_lab import policies
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, root

POLICIES = policies.names()
MUTANT_OPERATIONS = 20_000_000
MUTANT_SECONDS = 60
PARTS = ("core", "sim")
MUTANTS = Mutants("sim/mutants.toml", PARTS)

_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wstrict-prototypes", "-Wvla")
_FLAGS = (
    *("-std=gnu11", "-g", *_WARNINGS, "-Wno-unused-parameter", "-mpopcnt", "-Icore/include", "-Isim/world"),
    '-DXS_PLATFORM="platform_sim.h"',
)
_FOLDERS = ("sim/world", "sim/check", "sim/run")
_FUZZ_FOLDERS = ("sim/world", "sim/check", "sim/fuzz")
_MUTABLE = ("sim/world/path.c", "sim/world/sim_iommu.c")
"""The engine, and the seam below: the files with mutants."""

_SEEDS_OF_A_MUTANT = 200
FUZZ_CANARY = "double-release"
"""The mutant that the fuzzer must find, as a test of the fuzzing."""


def _c_files(source_dir: Path, folders: Sequence[str]) -> list[str]:
    found = (file for folder in folders for file in sorted((source_dir / folder).glob("*.c")))
    return [str(file.relative_to(source_dir)) for file in found]


def compiled(
    tools: root.Root,
    flags: Sequence[str] = ("-O2", "-flto=1"),
    compiler: str = "gcc-14",
    page: str = pages.USUAL,
) -> Path:
    """xsmmu-sim as a program."""
    files = _c_files(PROJECT, _FOLDERS)
    flags = (*_FLAGS, *flags, *pages.FLAGS[page])
    return build.userspace(tools, "xsmmu-sim", files, flags, parts=PARTS, compiler=compiler)


def compiled_mutant(tools: root.Root, mutant: Mutant, page: str | None = None) -> Path:
    """xsmmu-sim with a mutant. Files without mutants are compiled once."""
    # A mutant may leave a function without a caller.
    flags = (*_FLAGS, "-O1", "-Wno-error", *pages.FLAGS[page or mutant.page])
    others = [file for file in _c_files(PROJECT, _FOLDERS) if file not in _MUTABLE]
    world = build.userspace(tools, "backend.o", others, (*flags, "-r", "-nostdlib"), parts=PARTS, runs=False)
    with MUTANTS.planted(mutant) as source_dir:
        return build.userspace(
            tools,
            "xsmmu-sim",
            _MUTABLE,
            flags,
            source_dir=source_dir,
            parts=PARTS,
            libraries=(tools.inside(world),),
        )


def compiled_fuzzer(tools: root.Root, mutant: Mutant | None = None) -> Path:
    """The fuzz target as a program, under AddressSanitizer and UndefinedBehaviorSanitizer."""
    flags = ("-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", "-Wno-error")
    with MUTANTS.planted(mutant) if mutant else nullcontext(PROJECT) as source_dir:
        return build.userspace(
            tools,
            "fuzz",
            _c_files(source_dir, _FUZZ_FOLDERS),
            (*_FLAGS, *flags),
            source_dir=source_dir,
            parts=PARTS,
            compiler="clang-19",
        )


@dataclass(frozen=True)
class Outcome:
    """The end of a run."""

    status: int
    text: str
    seconds: float

    def _found(self, pattern: str) -> str:
        match = re.search(pattern, self.text, re.MULTILINE)
        return match[1] if match else ""

    @property
    def checker(self) -> str:
        """The checker that failed, if any."""
        return self._found(r"^FAIL (\w+):")

    @property
    def operations(self) -> int:
        """Calls of the engine until the failure."""
        return int(self._found(r"^operations: (\d+)") or 0)

    @property
    def replay(self) -> str:
        """The line that repeats the failure."""
        return self._found(r"^replay: (.*)")

    @property
    def digest(self) -> str:
        """The digest of a run without a failure."""
        return self._found(r"digest ([0-9a-f]+)")


def run(program: Path, *words: str, timeout: float | None = None) -> Outcome:
    """Run xsmmu-sim, or a fuzzer."""
    started = time.monotonic()
    status, text = build.run_userspace(program, words, timeout=timeout)
    return Outcome(status, text, time.monotonic() - started)


def try_mutant(tools: root.Root, mutant: Mutant) -> Outcome:
    """Swarm runs until the mutant is caught, or the budget is used up."""
    events = MUTANT_OPERATIONS // _SEEDS_OF_A_MUTANT
    words = ["--swarm", "--policy", "any", "--seeds", str(_SEEDS_OF_A_MUTANT), "--events", str(events), "--no-shrink"]
    words += ["--mutant", mutant.name]
    return run(compiled_mutant(tools, mutant), *words, "--seconds", str(MUTANT_SECONDS), timeout=3 * MUTANT_SECONDS)


def _run_mutants(tools: root.Root, names: Sequence[str]) -> int:
    wanted = MUTANTS.named(*names)
    missed = 0
    print(f"{'mutant':<26}{'caught by':<11}{'operations':>11}{'seconds':>9}  replay")
    for mutant in wanted:
        try:
            outcome = try_mutant(tools, mutant)
        except subprocess.TimeoutExpired as error:
            missed += 1
            print(f"{mutant.name:<26}{'NO END':<11}{'':>11}{error.timeout:>9.1f}  -", flush=True)
            continue
        caught = outcome.checker or ("crash" if outcome.status not in (0, 1) else "")
        missed += not caught
        found = f"{mutant.name:<26}{caught or 'MISSED':<11}{outcome.operations:>11,}{outcome.seconds:>9.1f}"
        print(f"{found}  {outcome.replay or '-'}", flush=True)
    print(f"{missed} missed")
    return 1 if missed else 0


def fuzz_canary(tools: root.Root) -> Outcome:
    """Fuzz an engine with a bug, until the fuzzer finds the bug."""
    return fuzz(tools, "any", _mutant_named(FUZZ_CANARY), 2 * MUTANT_SECONDS)


def fuzz(tools: root.Root, policy: str, mutant: Mutant | None, seconds: int, corpus: Path | None = None) -> Outcome:
    """Fuzz for `seconds`, or until a failure; the text of a failure ends with the line that repeats it."""
    program = compiled_fuzzer(tools, mutant)
    started = time.monotonic()
    line = f"replay: make fuzz POLICY={policy}{f' MUTANT={mutant.name}' if mutant else ''} INPUT="
    found = fuzzing.run(program, ["-len_control=20", *_policy_word(policy)], seconds, line, corpus)
    return Outcome(*found, time.monotonic() - started)


def fuzz_again(tools: root.Root, policy: str, mutant: Mutant | None, packed: str) -> Outcome:
    """One input of the fuzzer, given as in its replay line."""
    content = fuzzing.unpacked(packed, "INPUT")
    program = compiled_fuzzer(tools, mutant)
    started = time.monotonic()
    return Outcome(*fuzzing.again(program, content, _policy_word(policy)), time.monotonic() - started)


def _policy_word(policy: str) -> list[str]:
    return [] if policy == "any" else [f"--policy={policy}"]


def _run_long(tools: root.Root, billions: float) -> int:
    """Run so many operations in total, swarm and plain in turn; progress is kept, and a later run continues."""
    built = compiled(tools)
    state_file = tools.cache / f"sim-long-{built.parent.name}.json"
    state = json.loads(state_file.read_text()) if state_file.exists() else {"seed": 1, "operations": 0, "seconds": 0.0}
    console = Console(soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="xsmmu-sim-") as folder:
        # A private copy: other builds may push this program out of the cache meanwhile.
        program = Path(shutil.copy2(built, folder))
        return _run_rounds(program, state, state_file, billions, console)


def _shortened(text: str, first: int = 5, last: int = 100) -> str:
    """A failure without the middle of its trace, which its replay line prints again."""
    lines = text.splitlines()
    left_out = len(lines) - first - last
    if left_out <= 0:
        return text
    middle = f"... {left_out} lines are left out: the replay line prints them"
    return "\n".join([*lines[:first], middle, *lines[-last:]])


def _run_rounds(program: Path, state: dict[str, float], state_file: Path, billions: float, console: Console) -> int:
    def one(policy: str) -> Outcome:
        words = ["--seed", str(state["seed"]), "--seeds", "20", "--events", "1000000", "--policy", policy]
        return run(program, *words, *(["--swarm"] if policy == "any" or state["seed"] % 40 == 1 else []))

    while state["operations"] < billions * 1e9:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            outcomes = list(pool.map(one, ("any", *POLICIES)))
        for outcome in outcomes:
            if outcome.status != 0:
                console.print(_shortened(outcome.text), markup=False)
                return 1
            state["operations"] += int(re.findall(r"(\d+) operations,", outcome.text)[0])
            state["seconds"] += outcome.seconds
        state["seed"] += 20
        state_file.write_text(json.dumps(state))
        done = state["operations"] / 1e9
        spent = f"{state['seconds']:.0f} s of a CPU"
        console.print(f"{done:.2f} of {billions:g} billion operations in {spent}, no violation")
    return 0


def _mutant_named(name: str) -> Mutant:
    return MUTANTS.named(name)[0]


def _billions(text: str | float) -> float:
    try:
        if float(text) > 0:
            return float(text)
    except ValueError:
        pass
    raise click.BadParameter(f"'{text}' is not a number above 0")


def _tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


_mutant = click.option("--mutant", type=_mutant_named, metavar="NAME", help=f"Of {MUTANTS.file}, built in.")


@click.group()
def sim() -> None:
    """The simulated world."""


@sim.command("run")
@click.option("--seed", type=command.whole(0, 2**63), metavar="N", default=1)
@click.option("--policy", type=click.Choice(("any", *POLICIES)), default="fused", help="any: with --swarm")
@click.option("--events", type=command.whole(1, 2**63), metavar="N", default=1_000_000)
@click.option("--swarm", is_flag=True, help="Draw the world from the seed.")
@click.option("--page", type=click.Choice(tuple(pages.FLAGS)), help="Of the CPU's; 4K, or what the mutant needs.")
@_mutant
def run_one(seed: int, policy: str, events: int, swarm: bool, page: str | None, mutant: Mutant | None) -> int:
    """One run."""
    tools = _tools()
    program = compiled_mutant(tools, mutant, page) if mutant else compiled(tools, page=page or pages.USUAL)
    if policy == "any" and not swarm:
        raise UserError("POLICY=any draws a policy from the seed: it needs SWARM=1")
    words = ["--seed", str(seed), "--policy", policy, "--events", str(events)]
    words += ["--swarm"] if swarm else []
    words += ["--mutant", mutant.name] if mutant else []
    return subprocess.run([program, *words], check=False).returncode


@sim.command("mutants")
@click.argument("names", nargs=-1)
def run_mutants(names: tuple[str, ...]) -> int:
    """Plant bugs (NAMES, or all) that the checkers must find."""
    return _run_mutants(_tools(), names)


@sim.command("long")
@click.option("--billions", type=_billions, metavar="N", default=10)
def run_long(billions: float) -> int:
    """Run until so many billions of operations are done."""
    return _run_long(_tools(), billions)


@sim.command("fuzz")
@click.option("--seconds", type=command.whole(1, 10**6), metavar="N", default=60)
@click.option("--policy", type=click.Choice(("any", *POLICIES)), default="any")
@_mutant
@click.option("--input", "packed", help="Run one input again, given as in a replay line.")
def run_fuzz(seconds: int, policy: str, mutant: Mutant | None, packed: str | None) -> int:
    """Fuzz for so long, and a canary with a bug in it, which must be found; or one input again."""
    tools = _tools()
    if packed:
        outcome = fuzz_again(tools, policy, mutant, packed)
        print(outcome.text)
        return 1 if outcome.status else 0
    corpus = tools.cache / "fuzz" / policy
    corpus.mkdir(parents=True, exist_ok=True)
    outcome = fuzz(tools, policy, mutant, seconds, corpus)
    if outcome.status != 0:
        print(outcome.text)
        return 1
    print("engine:", *re.findall(r"^Done .*", outcome.text, re.MULTILINE))
    canary = fuzz_canary(tools)
    if not canary.checker:
        print(f"the fuzzer did not find the planted bug '{FUZZ_CANARY}'")
        return 1
    print(f"canary: '{FUZZ_CANARY}' found by '{canary.checker}' in {canary.seconds:.1f} s")
    return 0


if __name__ == "__main__":
    gone_on = "interrupted; `make sim-long` goes on where it was, the others begin anew"
    sys.exit(command.run(sim, "checks.sim", gone_on))
