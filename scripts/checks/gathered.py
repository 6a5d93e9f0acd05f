# SPDX-License-Identifier: GPL-2.0-only
"""Evidence for published statements: results that exist, or that are made now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from checks import published
from checks.comparison import Points, points_of, rows_of, statements_of
from checks.statements import Evidence, List, Missing, Ran, claims_of, policies_of
from xsmmu.errors import UserError
from xsmmu_lab.allocators import claims as of_allocators
from xsmmu_lab.allocators import run as allocators
from xsmmu_lab.project import RESULTS, is_named
from xsmmu_lab.runs import claims, experiment, results
from xsmmu_lab.runs import run as the_run
from xsmmu_lab.setup import kernels, model

Json = dict[str, Any]
Entries = Mapping[tuple[str, str], Json]

FOLDER: Final = RESULTS / "claims"
"""Results of runs that the command has made."""
REPEAT: Final = "make lab EXPERIMENT=claims"


class Gatherer:
    """Gathers evidence. With `quick` nothing is run, and results of any commit count."""

    def __init__(self, found: List, now: str, quick: bool, jobs: int, console: Console) -> None:
        self.list, self.now, self.quick, self.jobs, self.console = found, now, quick, jobs, console
        self.failures: list[str] = []

    def missing(self, why: str) -> Missing:
        """Evidence that a failed run does not give."""
        self.failures.append(why)
        return Missing(f"the run failed: {why}")

    def counts(self, commit: str) -> bool:
        """Whether results of a commit are evidence."""
        return self.quick or (commit == self.now and is_named(self.now))

    def say(self, text: str) -> None:
        """Progress."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    # -- experiments -----------------------------------------------------------------------------

    def experiments(self) -> list[str]:
        """The experiments that statements name."""
        return [*dict.fromkeys(each.lab.experiment for each in self.list.statement if each.lab)]

    def lab(self) -> dict[str, Ran | Missing]:
        """The claims of all experiments."""
        return {name: self.kept(name) or self.ran(name) for name in self.experiments()}

    def announce(self) -> None:
        """What will be run."""
        names = self.experiments()
        todo = [name for name in names if self.kept(name) is None]
        if not self.quick:
            left = f"{len(todo)} to run ({', '.join(todo)})" if todo else "all with results of this commit"
            self.say(
                f"claims: {len(self.list.statement)} statements; points of the model and allocators without results"
                f" first, then {len(names)} experiments, {left}; the same command continues after a stop"
            )

    def kept(self, name: str) -> Ran | None:
        """The newest results of an experiment that count, if they have what its claims compare."""
        chosen = experiment.load(name)
        wanted = claims_of(self.list, name, chosen)
        places = {system.here for claim in wanted for system in claim.systems if system.here}
        best: Ran | None = None
        for summary in summaries(name):
            entries = entries_of(chosen, summary)
            if not self.counts(summary["commit"]) or not places & entries.keys():
                continue
            ran = Ran(summary["commit"], claims.compare(wanted, entries))
            if places <= entries.keys():
                return ran
            best = best or ran
        return best if self.quick else None

    def ran(self, name: str) -> Ran | Missing:
        """Results that are made now."""
        if self.quick:
            return Missing(f"not run: {REPEAT} without QUICK runs it")
        # Of the comparison of all policies, only what the list compares.
        wanted = claims.parse(self.list.of.get(name, []), policies_of(experiment.load(name)))
        here = [system.here for claim in wanted for system in claim.systems if system.here]
        options = the_run.Options(
            experiment=name,
            workloads=tuple(dict.fromkeys(workload for workload, _ in here)),
            policies=tuple(dict.fromkeys(policy for _, policy in here)),
            jobs=self.jobs,
            output=FOLDER,
        )
        try:
            the_run.run(options, self.console)
        except UserError as error:
            self.say(f"{name}: {error.message}")
            return self.missing(error.message)
        found = next(summaries(name))
        chosen = experiment.load(name)
        return Ran(found["commit"], claims.compare(claims_of(self.list, name, chosen), entries_of(chosen, found)))

    # -- the rest --------------------------------------------------------------------------------

    def model(self) -> Evidence:
        """The tables, with rows and statements of the model."""
        tables = published.tables()
        used = {each.model.table for each in self.list.statement if each.model}
        points = Points(tables, model.compiled(), self.jobs)
        wanted = {
            name: [point for cell in table.cells for point in points_of(table, cell)]
            for name, table in tables.items()
            if name in used
        }
        all_ = [point for mine in wanted.values() for point in mine]
        found = points.kept(all_) if self.quick else points.run(all_)
        possible = points.units(all_)
        lacking = {
            name for name, mine in wanted.items() if any(each in possible and each not in found for each in mine)
        }
        return Evidence(
            tables=tables,
            rows={name: [*rows_of(tables[name], found)] for name in used if name in tables},
            said={name: [*statements_of(tables[name], found)] for name in used if name in tables},
            not_run=dict.fromkeys(lacking, Missing(f"not run: {REPEAT} without QUICK runs it")),
        )

    def allocators(self) -> Json | Missing:
        """The comparison of allocators."""
        for folder in (allocators.FOLDER, FOLDER / "allocators"):
            with contextlib.suppress(OSError, ValueError, UserError):
                summary: Json = allocators.load(folder)
                if self.counts(summary["commit"]):
                    return summary
        if self.quick:
            return Missing(f"not run: make allocators or {REPEAT} without QUICK runs it")
        workloads = tuple(dict.fromkeys(figure.workload for figure in of_allocators.FIGURES))
        options = allocators.Options(threads=(1,), workloads=workloads, rounds=1, output=FOLDER / "allocators")
        try:
            return allocators.run(options, self.console)
        except UserError as error:
            return self.missing(error.message)


def summaries(name: str, folders: Sequence[Path] = (RESULTS, FOLDER)) -> Iterator[Json]:
    """The summaries of an experiment on the usual kernel, the newest first."""
    found = [file for folder in folders for file in folder.glob(f"20*/{results.SUMMARY}")]
    kernel = kernels.named(None)
    for file in sorted(found, key=lambda file: file.parent.name, reverse=True):
        with contextlib.suppress(UserError):
            summary = results.load(file)
            if summary["experiment"] == name and summary["kernel"].startswith(f"{kernel}."):
                yield summary


def entries_of(chosen: experiment.Experiment, summary: Json) -> Entries:
    """A summary's runs by (workload's full name, policy)."""
    found: dict[tuple[str, str], Json] = {}
    for run in summary["runs"]:
        for each in chosen.workloads:
            same = (run["workload"], run["driver"], run.get("iommu")) == (each.name, each.driver, each.iommu)
            if same and all(run.get(name) == value for name, value in each.labels.items()):
                found[each.full_name, run["policy"]] = run
    return found
