# SPDX-License-Identifier: GPL-2.0-only
"""Decides every published statement of lab/claims.toml. `make lab EXPERIMENT=claims` calls it.

Evidence is gathered from experiments of the lab, points of the machine model, the comparison of allocators, protocols
of virtual IOMMUs, and the accepted ns. What has results of this commit is not run again, so a stopped command goes on
where it was. `--quick` runs nothing: it uses results of any commit, and names the commit.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from checks import command, guest_claims, statements
from checks.comparison import Row, Said
from checks.gathered import Gatherer
from checks.guest_claims import Guests
from checks.published import Table
from checks.statements import Evidence, List, Missing, Ran
from xsmmu import native
from xsmmu_lab.allocators.cases import ALLOCATORS
from xsmmu_lab.project import RESULTS, commit
from xsmmu_lab.report import statements as report
from xsmmu_lab.runs import claims as compared
from xsmmu_lab.runs import results
from xsmmu_lab.setup import kernels

Json = dict[str, Any]

COUNTS: Final = ("request", "kick", "exit", "user", "copy")
"""Figures of protocols, for each page under strict."""


def gathered(gatherer: Gatherer) -> Evidence:
    """All evidence."""
    gatherer.announce()
    return dataclasses.replace(
        gatherer.model(),
        protocols=guest_claims.decide(),
        allocators=gatherer.allocators(),
        machine=next(iter(native.accepted()), None),
        lab=gatherer.lab(),
    )


# -- in the lab's format ---------------------------------------------------------------------------


def as_claims(evidence: Evidence) -> list[Json]:
    """All published figures beside those here, as claims of the lab."""
    found = [claim for ran in evidence.lab.values() if isinstance(ran, Ran) for claim in ran.claims]
    found += [of_table(evidence.tables[name], evidence.rows[name], said) for name, said in evidence.said.items()]
    found += [] if isinstance(evidence.allocators, Missing) else [of_allocators(evidence.allocators)]
    return [*found, of_protocols(evidence.protocols)] if evidence.protocols else found


def _claim(head: Sequence[str], figures: Mapping[str, bool], systems: list[Json], said: list[Json]) -> Json:
    title, source, conditions, differs = head
    named = [{"name": name, "comparable": here, "above": None, "relative_to": None} for name, here in figures.items()]
    return {
        "title": title,
        "source": source,
        "conditions": conditions,
        "differs": [differs],
        "figures": named,
        "systems": systems,
        "statements": said,
    }


def _system(name: str, published: Mapping[str, float | None], measured: Mapping[str, float | None]) -> Json:
    return {"name": name, "here": None, "published": dict(published), "measured": dict(measured)}


def _check(check: compared.Check, here: Mapping[str, float | None], published: Mapping[str, float | None]) -> Json:
    return {
        "text": check.text,
        "figure": check.figure,
        "terms": [term.text for term in check.terms],
        "operators": [*check.operators],
        "measured": [term.value(here) for term in check.terms],
        "holds": check.holds(here),
        "published_holds": check.holds(published),
        "wait": None,
    }


def of_table(table: Table, rows: Sequence[Row], said: Sequence[Said]) -> Json:
    """A published table beside the model's values."""
    names = table.systems()
    here: dict[str, dict[str, float | None]] = {figure: dict.fromkeys(names) for figure in table.figures}
    for row in rows:
        here[row.figure][row.name] = row.value
    published = {figure: table.values(figure) for figure in table.figures}
    systems = [
        _system(name, {each: published[each][name] for each in here}, {each: here[each][name] for each in here})
        for name in names
    ]
    decided = {each.says: {"holds": True, "does not hold": False}.get(each.words) for each in said}
    checked = [
        {
            "says": each.says,
            "holds": decided.get(each.says),
            "wait": None,
            "checks": [_check(check, here[check.figure], published[check.figure]) for check in each.checks],
        }
        for each in table.statements
    ]
    differs = "Computed by the machine model (docs/model.md); its errors are in docs/validation.md."
    figures = {name: figure.field is not None for name, figure in table.figures.items()}
    return _claim((table.title, table.source, table.conditions, differs), figures, systems, checked)


def of_allocators(summary: Json) -> Json:
    """The comparison of allocators."""
    figures: dict[str, dict[str, float | None]] = {}
    for each in summary["claims"]:
        figures |= each["figures"]
    systems = [
        _system(name, dict.fromkeys(figures), {figure: values.get(name) for figure, values in figures.items()})
        for name in ALLOCATORS
    ]
    said = [
        {
            "says": each["says"],
            "holds": each["holds"],
            "wait": None,
            "checks": [
                _check(check, figures[check.figure], dict.fromkeys(ALLOCATORS))
                for text in each["checks"]
                for check in (compared.read_check(text, "allocators", [*figures], [*ALLOCATORS]),)
            ],
        }
        for each in summary["claims"]
    ]
    head = ("Allocators of IOVAs", "Linux mailing list", "See each statement.", "Counts of a model of CPUs.")
    return _claim(head, dict.fromkeys(figures, True), systems, said)


def of_protocols(decided: Sequence[guest_claims.Decided]) -> Json:
    """Virtual IOMMUs: what a page costs under strict."""
    guests = Guests()
    systems = []
    for name in guests.all:
        found = guests.counts(name)
        systems.append(_system(name, dict.fromkeys(COUNTS), {each: found.get(each, 0.0) for each in COUNTS}))
    said: list[Json] = [{"says": each.says, "holds": each.holds, "wait": None, "checks": []} for each in decided]
    head = ("Virtual IOMMUs", "Linux mailing lists", "See each statement.", "Counts of protocols (docs/model.md).")
    return _claim(head, dict.fromkeys(COUNTS, True), systems, said)


def summary_of(found: List, evidence: Evidence, time: str, at: str) -> Json:
    """The results, as those of an experiment."""
    return {
        "schema": 1,
        "time": time,
        "commit": at,
        "kernel": kernels.named(None),
        "iommu": "Intel VT-d",
        "qemu": "none",
        "accel": "tcg-icount",
        "experiment": "claims",
        "command": shlex.join(["make", "lab", "EXPERIMENT=claims", *(["QUICK=1"] if "--quick" in sys.argv else [])]),
        "versions": {},
        "runs": [],
        "sections": [msgspec.to_builtins(each) for each in found.section],
        "statements": statements.decide(found, evidence),
        "claims": as_claims(evidence),
    }


# -- the command -----------------------------------------------------------------------------------


@click.command()
@click.option("--quick", is_flag=True, help="Run nothing: results of any commit, protocols, and points that were run.")
@click.option("--jobs", type=click.IntRange(1, 1024), default=os.cpu_count() or 1, help="Guests or points at a time.")
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS, help="Folder for results.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def claims(quick: bool, jobs: int, output: Path, as_json: bool) -> int:
    """Decide every published statement: holds, does not hold, or cannot be said here."""
    found, now = statements.read(), commit()
    gatherer = Gatherer(found, now, quick, jobs, Console(stderr=True))
    evidence = gathered(gatherer)
    with results.Results(output) as folder:
        summary = summary_of(found, evidence, folder.time.isoformat(timespec="seconds"), now)
        folder.write(summary)
        (folder.folder / report.NAME).write_text(report.markdown(summary))
        made = folder.finish()
    if as_json:
        click.echo(json.dumps(summary, indent=1))
    else:
        report.render(summary, Console(width=None if sys.stdout.isatty() else 100))
        click.echo(f"\n{made / report.NAME}")
    for each in gatherer.failures:
        click.echo(f"failed: {each}", err=True)
    return 1 if gatherer.failures else 0


if __name__ == "__main__":
    sys.exit(command.run(claims, "checks.claims", "interrupted: the same command goes on where it was"))
