# SPDX-License-Identifier: GPL-2.0-only
"""The litmus programs (tests/litmus/), their mutants, and the memory orders that the engine does not need.

The programs are small and use the engine itself; they are explored exhaustively under a weak memory model. `make
litmus` calls `python -m checks.litmus run|mutants|orders [NAME...]`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from checks import command
from checks.mutants import Mutant, Mutants
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, root

FOLDER = "tests/litmus"
PARTS = ("core", FOLDER, "sim/world/coroutine.c", "sim/world/coroutine.h")
MUTANTS = Mutants(f"{FOLDER}/mutants.toml", PARTS)
SECONDS = 600
"""An upper limit for any program or mutant."""

_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
_INCLUDES = (f"-I{FOLDER}", f"-I{FOLDER}/programs", "-Isim/world", "-Icore/include")
_FLAGS = ("-std=gnu11", "-g", "-mpopcnt", *_WARNINGS, *_INCLUDES, '-DXS_PLATFORM="platform_litmus.h"')
_TESTED = ("-O1", "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", "-fno-builtin")
"""Compiler flags for code under test: the explorer is called before each plain access."""

_OBJECT = ("-r", "-nostdlib")
_MUTABLE = (f"{FOLDER}/path.c", f"{FOLDER}/programs/blocks.c")
"""The engine, and the program with access to its inner parts: the files that a mutant can change."""

_LINE = re.compile(r"^(?P<name>\w+) +(?P<verdict>ok|FAILED)  (?P<states>\d+) states, .*?, (?P<seconds>[\d.]+) s")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a program; `text` has the reason of a failure, and the whole failed run."""

    name: str
    passed: bool
    states: int
    seconds: float
    text: str

    @property
    def why(self) -> str:
        """The failure, in a line."""
        return self.text.split("\n")[0].split(" s: ", 1)[-1] if not self.passed else ""

    @property
    def bounded(self) -> bool:
        """Whether the exploration was not complete."""
        return self.why.startswith(("BOUND", "more than"))


@dataclass(frozen=True, order=True)
class Order:
    """An order of an access of the engine, and a weaker one in its stead."""

    file: str
    function: str
    text: str
    order: str
    weaker: str

    def __str__(self) -> str:
        return f"{self.file}: {self.function}(): {self.text}: {self.order} -> {self.weaker}"


def needless(source_dir: Path = PROJECT) -> dict[Order, str]:
    """Orders that no program needs, and why: tests/litmus/orders.toml."""
    table = tomllib.loads((source_dir / FOLDER / "orders.toml").read_text())
    return {Order(**{key: entry[key] for key in entry if key != "why"}): entry["why"] for entry in table["order"]}


def _explorer(tools: root.Root) -> str:
    """The explorer as an object, as called inside the root."""
    files = [f"{FOLDER}/{name}.c" for name in ("explore", "memory_model", "locks", "races", "history")]
    files.append("sim/world/coroutine.c")
    parts = (*files, f"{FOLDER}/explore.h", f"{FOLDER}/inside.h", "sim/world/coroutine.h")
    built = build.userspace(tools, "explorer.o", files, (*_FLAGS, "-O2", *_OBJECT), parts=parts, runs=False)
    return tools.inside(built)


def _tested(tools: root.Root) -> str:
    """The engine, its world and the programs as an object."""
    programs = sorted((PROJECT / FOLDER / "programs").glob("*.c"))
    files = [f"{FOLDER}/path.c", f"{FOLDER}/litmus_world.c", *(f"{FOLDER}/programs/{file.name}" for file in programs)]
    flags = (*_FLAGS, *_TESTED, *_OBJECT)
    return tools.inside(build.userspace(tools, "tested.o", files, flags, parts=PARTS, runs=False))


def compiled(tools: root.Root) -> Path:
    """All programs in one executable."""
    parts = (f"{FOLDER}/explore.h",)
    return build.userspace(tools, "litmus", [_tested(tools), _explorer(tools)], parts=parts)


def compiled_mutant(tools: root.Root, mutant: Mutant) -> Path:
    """The same with a mutant. Of two definitions the linker takes the first, which is the mutant's."""
    flags = (*_FLAGS, *_TESTED, "-Wno-error", "-nodefaultlibs", "-Wl,-z,muldefs")
    libraries = (_tested(tools), _explorer(tools), "-lc", "-lgcc")
    with MUTANTS.planted(mutant) as source_dir:
        return build.userspace(
            tools, "litmus", _MUTABLE, flags, source_dir=source_dir, parts=PARTS, libraries=libraries
        )


def explore(program: Path, *words: str) -> list[Outcome]:
    """Run litmus programs."""
    try:
        status, text = build.run_userspace(program, words, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        what = f"the litmus programs ({' '.join(words) or 'all'}) have not ended in {SECONDS} s"
        raise UserError(f"{what}: end other programs, then try again") from None
    outcomes = []
    for part in re.split(r"^(?=\w+ +(?:ok|FAILED)  )", text, flags=re.MULTILINE):
        match = _LINE.match(part)
        if match:
            passed = match["verdict"] == "ok"
            outcomes.append(Outcome(match["name"], passed, int(match["states"]), float(match["seconds"]), part))
    if not outcomes or (status == 0) != all(outcome.passed for outcome in outcomes):
        if not outcomes and status == 0:
            raise UserError(f"no litmus program is called {' '.join(words)}: tests/litmus/README.md has their names")
        raise UserError(f"the litmus programs ended with status {status}", text.splitlines()[-20:])
    return outcomes


def try_mutant(tools: root.Root, mutant: Mutant) -> Outcome:
    """The failure of the first program that catches a mutant; the last outcome if none does."""
    program = compiled_mutant(tools, mutant)
    outcomes = explore(program, "--quiet", *mutant.programs)
    return next((outcome for outcome in outcomes if not outcome.passed), outcomes[-1])


# ---- orders ----

_SITE = re.compile(r"^site (\d+)\t(\w+)\t(.*)\t(\w+)\t(.*)$", re.MULTILINE)
_WEAKER = {"full": ("acq_rel", "relaxed"), "acquire": ("relaxed",), "release": ("relaxed",)}
_NOT_ORDERS = re.compile(r"^(?:lock|unlock|enter|exit)\b")
"""Sites that stand for other operations: left alone."""


def _sites(program: Path, name: str) -> dict[Order, list[str]]:
    """Weaker orders for the engine's accesses that a program meets, with the numbers of the accesses in the program."""
    found: dict[Order, list[str]] = {}
    for number, order, file, function, text in _SITE.findall(build.run_userspace(program, ["--sites", name])[1]):
        if "core/" in file and not _NOT_ORDERS.match(text):
            for weaker in _WEAKER[order]:
                key = Order(file[file.index("core/") :], function, text, order, weaker)
                found.setdefault(key, []).append(number)
    return found


def _is_needed(program: Path, name: str, order: Order, numbers: Sequence[str]) -> bool:
    words = [word for number in numbers for word in ("--weak", f"{number}={order.weaker}")]
    return not explore(program, "--quiet", *words, name)[0].passed


def survivors(program: Path, console: Console | None = None) -> list[Order]:
    """The weakest orders that no program notices, one at a time. The fastest programs are run first."""
    programs = sorted(explore(program), key=lambda outcome: outcome.states)
    needed: dict[Order, bool] = {}
    with ThreadPoolExecutor(2) as pool:
        for outcome in programs:
            sites = _sites(program, outcome.name)
            asked = {
                order: pool.submit(_is_needed, program, outcome.name, order, numbers)
                for order, numbers in sites.items()
                if not needed.get(order)
            }
            needed.update({order: answer.result() for order, answer in asked.items()})
            if console:
                console.print(f"{outcome.name}: {len(asked)} asked, {sum(needed.values())} of {len(needed)} needed")
    found = {order for order, answer in needed.items() if not answer}
    weaker = {order for order in found if replace(order, weaker="relaxed") in found - {order}}
    return sorted(found - weaker)


# ---- the output of make litmus ----


def _new_table(title: str, *right: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(title.split()[0][:-1])
    table.add_column("result")
    for name in right:
        table.add_column(name, justify="right")
    return table


def _run(tools: root.Root, console: Console, names: Sequence[str]) -> int:
    """Explore the programs."""
    outcomes = explore(compiled(tools), *names)
    table = _new_table("programs", "states", "s")
    for outcome in outcomes:
        result = "ok" if outcome.passed else "FAILED"
        table.add_row(outcome.name, result, f"{outcome.states:,}", f"{outcome.seconds:.2f}")
    console.print(table)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        console.print(outcome.text, markup=False)
    return 1 if failed else 0


def _run_mutants(tools: root.Root, console: Console, names: Sequence[str]) -> int:
    """Try the mutants, two at a time; each is compiled separately."""
    wanted = MUTANTS.named(*names)
    table = _new_table("mutants", "states", "s")
    table.add_column("by")
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda mutant: try_mutant(tools, mutant), wanted))
    missed = 0
    for mutant, outcome in zip(wanted, outcomes, strict=True):
        caught = not outcome.passed and not outcome.bounded
        missed += not caught
        row = (f"{outcome.states:,}", f"{outcome.seconds:.2f}", f"{outcome.name}: {outcome.why}")
        table.add_row(mutant.name, "caught" if caught else "MISSED", *row)
    console.print(table)
    console.print(f"{len(wanted) - missed} caught, {missed} missed, {time.monotonic() - started:.0f} s")
    return 1 if missed else 0


def _run_orders(tools: root.Root, console: Console, names: Sequence[str]) -> int:
    """The orders that are not needed, compared with the list of known ones."""
    if names:
        raise UserError("orders are asked for of all programs: give no names")
    found, known = survivors(compiled(tools), console), needless()
    for order in found:
        console.print(f"{'known' if order in known else 'NEW'}: {order}", markup=False)
    gone = [order for order in known if order not in found]
    for order in gone:
        console.print(f"GONE: {order}", markup=False)
    return 1 if gone or any(order not in known for order in found) else 0


_COMMANDS = {"run": _run, "mutants": _run_mutants, "orders": _run_orders}


@click.command()
@click.argument("what", type=click.Choice(list(_COMMANDS)))
@click.argument("names", nargs=-1)
def litmus(what: str, names: tuple[str, ...]) -> int:
    """Run programs, or mutants of the engine (NAMES, or all of them), or look for orders that are not needed."""
    console = Console(soft_wrap=True)
    return _COMMANDS[what](root.ensure(host.cache_dir(), Console(stderr=True)), console, names)


if __name__ == "__main__":
    sys.exit(command.run(litmus, "checks.litmus"))
