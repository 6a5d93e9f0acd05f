# SPDX-License-Identifier: GPL-2.0-only
"""Every IOMMU with every kernel: a run of the experiment `matrix` per cell, and one page of all cells.

A cell is a results folder below results/matrix. A cell with results of this commit is not run again, so an interrupted
matrix continues. A failed or stopped cell leaves nothing there, and is run again.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from xsmmu.errors import UserError, unknown_name
from xsmmu_lab.project import PROJECT, commit, is_named
from xsmmu_lab.report import page
from xsmmu_lab.runs import experiment, results
from xsmmu_lab.setup import host, kernels, root
from xsmmu_lab.vm.guest import dies_with_us
from xsmmu_lab.vm.iommu import IOMMUS

Json = dict[str, Any]

EXPERIMENT: Final = "matrix"
_REASON_LINES: Final = 6


@dataclass(frozen=True)
class Cell:
    """An IOMMU with a kernel."""

    kernel: str
    iommu: str

    @property
    def name(self) -> str:
        """The name of the cell's folder, and in messages."""
        return f"{self.kernel}-{self.iommu}"

    @property
    def excluded(self) -> str | None:
        """The reason why the combination is impossible; None if possible."""
        iommu = IOMMUS[self.iommu]
        if self.kernel not in kernels.of(iommu.arch):
            return f"the lab has no kernel {self.kernel} for {iommu.arch.name}"
        return iommu.lacking.get(self.kernel)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell: a summary, or the reason for the missing summary."""

    cell: Cell
    summary: Json | None
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether a summary is missing although the cell is possible."""
        return self.summary is None and self.cell.excluded is None


def cells(some_kernels: Sequence[str], some_iommus: Sequence[str]) -> list[Cell]:
    """The requested cells; all if none was named."""
    known = list(kernels.table()[1])
    for name in some_kernels:
        if name not in known:
            raise unknown_name("kernel", name, known)
    for name in some_iommus:
        if name not in IOMMUS:
            raise unknown_name("IOMMU", name, IOMMUS)
    wanted = [
        Cell(kernel, iommu)
        for iommu in dict.fromkeys(some_iommus or IOMMUS)
        for kernel in dict.fromkeys(some_kernels or known)
    ]
    if all(each.excluded for each in wanted):
        raise UserError("; ".join(f"{each.name} cannot be run: {each.excluded}" for each in wanted))
    return wanted


def run(wanted: Sequence[Cell], folder: Path, jobs: int, quick: bool, console: Console) -> list[Outcome]:
    """Run the cells without results of this commit, `jobs` at a time; returns all outcomes in the order of `wanted`.

    A failed cell does not stop others. KeyboardInterrupt ends the running cells and keeps finished cells.
    """
    folder.mkdir(parents=True, exist_ok=True)
    now = commit()
    todo = [each for each in wanted if not each.excluded and _summary(folder, each, now, quick) is None]
    console.print(f"{EXPERIMENT}: {len(wanted)} cells, {len(todo)} to run, {jobs} at a time", highlight=False)
    failed = _set_up(todo, console)
    ready = [each for each in todo if each not in failed]
    outcomes: dict[Cell, Outcome] = {}
    # The pool waits for all submitted jobs, so children are ended first.
    with ThreadPoolExecutor(jobs) as pool, _children() as children:
        futures = {pool.submit(_run, each, folder, quick, children): each for each in ready}
        for done, future in enumerate(as_completed(futures), start=1):
            cell, reason = futures[future], future.result()
            # For a tree that no commit names, only the results of this run are valid.
            outcomes[cell] = _outcome(folder, cell, now, quick, reason, is_new=not is_named(now))
            said = (outcomes[cell].reason or "done").splitlines()[0]
            console.print(f"{done}/{len(ready)} {cell.name}: {said}", markup=False, highlight=False, soft_wrap=True)
    return [outcomes.get(each) or _outcome(folder, each, now, quick, failed.get(each, "")) for each in wanted]


def _set_up(todo: Sequence[Cell], console: Console) -> dict[Cell, str]:
    """Fetch the files that cells boot; returns the reasons of failure. A failure stops no other cell."""
    missing: dict[tuple[str, str], str] = {}
    for arch, name in dict.fromkeys(map(_boots, todo)):
        try:
            kernels.ensure(root.ensure(host.cache_dir(), console, root.OF_GUESTS[arch]), name, console)
        except UserError as error:
            missing[arch, name] = error.message
            console.print(f"{name} for {arch}: {error.message}", markup=False, highlight=False, soft_wrap=True)
    return {each: missing[_boots(each)] for each in todo if _boots(each) in missing}


def _boots(cell: Cell) -> tuple[str, str]:
    return IOMMUS[cell.iommu].arch.name, cell.kernel


class _Children:
    """Running processes, which are ended together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """The exit status and standard error; a command after `end` is not started."""
        with self._lock:
            if self._ended:
                return -signal.SIGINT, ""
            process = subprocess.Popen(
                # When a matrix is killed its children must not go on, because the next matrix would run the same cells.
                [*dies_with_us("TERM"), *command],
                cwd=PROJECT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        _, said = process.communicate()
        with self._lock:
            self._running.discard(process)
        return process.returncode, said

    def end(self) -> None:
        """Send SIGTERM, on which each process cleans up as on Ctrl-C; background jobs ignore SIGINT."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.terminate()


@contextlib.contextmanager
def _children() -> Iterator[_Children]:
    children = _Children()
    try:
        yield children
    finally:
        children.end()


def _run(cell: Cell, folder: Path, quick: bool, children: _Children) -> str:
    """The reason of the failure; empty on success."""
    # The child runs in the checkout, whatever the current directory.
    place = (folder / cell.name).absolute()
    command = [sys.executable, "-m", "xsmmu", "lab", "run", "--experiment", EXPERIMENT, "--jobs", "1"]
    command += ["--kernel", cell.kernel, "--iommu", cell.iommu, "--output", str(place), *(["--quick"] if quick else [])]
    status, said = children.run(command)
    lines = [line for line in said.splitlines() if line.startswith("xsmmu: ")] or said.splitlines()[-_REASON_LINES:]
    return "\n".join(lines) or f"ended with status {status}" if status else ""


def _latest(folder: Path, cell: Cell) -> Json | None:
    with contextlib.suppress(UserError, OSError):
        return results.load(folder / cell.name / results.LATEST)
    return None


def _summary(folder: Path, cell: Cell, now: str, quick: bool) -> Json | None:
    """The cell's latest results, if of this commit and of the same extent."""
    summary = _latest(folder, cell)
    if summary is None or summary["commit"] != now or not is_named(now):
        return None
    enough = quick or any(each["workload"] == "attack" for each in summary["runs"])
    return summary if enough else None


def _outcome(folder: Path, cell: Cell, now: str, quick: bool, reason: str, *, is_new: bool = False) -> Outcome:
    if reason := cell.excluded or reason:
        return Outcome(cell, None, reason)
    summary = _latest(folder, cell) if is_new else _summary(folder, cell, now, quick)
    return Outcome(cell, summary, "" if summary else "has no results of this commit")


def policies() -> tuple[str, ...]:
    """The columns of the page."""
    return experiment.load(EXPERIMENT).policies


def as_dict(outcomes: Sequence[Outcome]) -> Json:
    """For JSON: all summaries, and the reasons for missing ones."""
    return {
        "schema": "xsmmu.matrix/1",
        "cells": [
            {"kernel": each.cell.kernel, "iommu": each.cell.iommu, "reason": each.reason, "summary": each.summary}
            for each in outcomes
        ],
    }


def store(outcomes: Sequence[Outcome], folder: Path) -> Json:
    """Write matrix.json; returns its content."""
    made = as_dict(outcomes)
    page.replace(folder / "matrix.json", (json.dumps(made, indent=1) + "\n").encode())
    return made
