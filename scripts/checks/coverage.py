# SPDX-License-Identifier: GPL-2.0-only
"""Branch coverage of core/ by its unit tests and the simulated world together; `make coverage`.

A branch is one outcome, true or false, of one condition in the source (clang counts conditions there, so neither
inlining nor macros multiply branches). Branches that neither program takes are listed in tests/unit/uncovered.toml with
a reason: an unlisted missed branch is a failure, and so is a listed branch that is taken.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from checks import command, sim
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, root

LIST = PROJECT / "tests/unit/uncovered.toml"
WANTED_PERCENT = 95.0

_FLAGS = ("-O0", "-fprofile-instr-generate", "-fcoverage-mapping", "-fprofile-update=atomic", "-Wno-error")
_UNIT_FLAGS = (
    *("-std=gnu11", "-Wno-unused-parameter", "-Icore/include", "-Itests/unit", "-pthread"),
    '-DXS_PLATFORM="platform_unit.h"',
)
_BRANCHES = 4
"""The kind of a branch region in an export of llvm-cov."""


@dataclass(frozen=True, order=True)
class Branch:
    """One outcome of a condition."""

    file: str
    line: int
    column: int
    outcome: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} is never {str(self.outcome).lower()}"


@dataclass(frozen=True)
class Explained:
    """An entry of tests/unit/uncovered.toml: the outcomes that a line of code misses, and the reason."""

    file: str
    code: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}: {self.code}"


def explained(path: Path = LIST) -> list[Explained]:
    """All entries of the list."""
    return [Explained(**entry) for entry in tomllib.loads(path.read_text()).get("uncovered", [])]


def measure(tools: root.Root, console: Console) -> dict[Branch, int]:
    """How often each branch of core/ was taken."""
    taken: dict[Branch, int] = {}
    for program, runs in ((_unit(tools), _unit_runs()), (_simulation(tools), _simulation_runs())):
        with console.status(f"coverage: {program.name}"):
            for branch, count in _run(tools, program, runs).items():
                taken[branch] = taken.get(branch, 0) + count
    return taken


def _unit(tools: root.Root) -> Path:
    files = sorted(str(file.relative_to(PROJECT)) for file in (PROJECT / "tests/unit").glob("*.c"))
    return build.userspace(tools, "unit", files, (*_UNIT_FLAGS, *_FLAGS), compiler="clang-19")


def _unit_runs() -> list[Sequence[str]]:
    return [("percent=100",)]


def _simulation(tools: root.Root) -> Path:
    return sim.compiled(tools, compiler="clang-19", flags=_FLAGS)


def _simulation_runs() -> list[Sequence[str]]:
    plain = [("--policy", policy, "--seeds", "2", "--events", "200000") for policy in sim.POLICIES]
    return [*plain, ("--policy", "any", "--swarm", "--seeds", "40", "--events", "50000")]


def _run(tools: root.Root, program: Path, runs: Iterable[Sequence[str]]) -> dict[Branch, int]:
    with tempfile.TemporaryDirectory(prefix="coverage-", dir=tools.path / "tmp") as folder:
        for words in runs:
            env = {**host.system_env(), "LLVM_PROFILE_FILE": f"{folder}/%p.profraw"}
            done = host.run([str(program), *words], env=env, timeout=1200)
            if done.returncode != 0:
                said = (done.stdout + done.stderr).splitlines()
                raise UserError(f"{program.name} {' '.join(words)} failed", said[-20:])
        inside, merged = tools.inside(Path(folder)), f"{tools.inside(Path(folder))}/merged"
        raw = [f"{inside}/{file.name}" for file in sorted(Path(folder).glob("*.profraw"))]
        _llvm(tools, "llvm-profdata-19", "merge", "-o", merged, *raw)
        text = _llvm(tools, "llvm-cov-19", "export", "-skip-functions", "-instr-profile", merged, tools.inside(program))
    return _branches(json.loads(text))


def _llvm(tools: root.Root, *argv: str) -> str:
    done = tools.run(argv)
    if done.returncode != 0:
        raise UserError(f"{argv[0]} failed", done.stderr.splitlines()[-20:])
    return done.stdout


def _branches(export: Any) -> dict[Branch, int]:
    """The branches of core/ in an export of llvm-cov; a file that is included by a path goes by its place in core/."""
    found: dict[Branch, int] = {}
    for file in export["data"][0]["files"]:
        name = re.search(r"(?:^|/)(core/[^.].*)$", str(file["filename"]))
        if not name:
            continue
        for line, column, _, _, true, false, _, _, kind in file["branches"]:
            assert kind == _BRANCHES
            for outcome, count in ((True, true), (False, false)):
                branch = Branch(name[1], line, column, outcome)
                found[branch] = found.get(branch, 0) + count
    return found


def faults(missed: Iterable[Branch], listed: Sequence[Explained], source_dir: Path = PROJECT) -> list[str]:
    """Missed branches without an entry, and entries without a missed branch."""
    left = list(listed)
    result = []
    for branch in missed:
        code = (source_dir / branch.file).read_text().splitlines()[branch.line - 1].strip()
        entries = [each for each in listed if (each.file, each.code) == (branch.file, code)]
        if not entries:
            result.append(f"{branch}: {code}")
        left = [each for each in left if each not in entries]
    return result + [f"{each} is explained in {LIST.name}, and is not missed" for each in left]


@click.command()
def report() -> int:
    """Print the coverage of each file and the missed branches."""
    console, progress = Console(soft_wrap=True), Console(stderr=True)
    taken = measure(root.ensure(host.cache_dir(), progress), progress)
    listed = explained()
    missed = sorted(branch for branch, count in taken.items() if not count)
    table = Table("file", "branches", "taken", "%")
    for name in (*sorted({branch.file for branch in taken}), ""):
        mine = [branch for branch in taken if name in ("", branch.file)]
        hit = sum(1 for branch in mine if taken[branch])
        table.add_row(name or "all", str(len(mine)), str(hit), f"{100 * hit / len(mine):.1f}")
    console.print(table)
    for each in listed:
        console.print(f"not covered: {each}\n    {each.why}", markup=False, highlight=False)
    wrong = faults(missed, listed)
    for line in wrong:
        console.print(line, markup=False, highlight=False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(command.run(report, "checks.coverage"))
