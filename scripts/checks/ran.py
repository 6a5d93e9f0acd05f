# SPDX-License-Identifier: GPL-2.0-only
"""What was run on what: docs/ran.json, and the table in docs/use.md that is made of it.

`python -m checks.ran` takes over what a whole `make matrix` has in results/matrix, docs/matrix.md too, and what long
tests have noted in results/ran.json, then writes the table again. What a result replaces is the same thing's on the
same kernel and IOMMU.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from checks import command
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.report import matrix as matrix_page
from xsmmu_lab.runs import matrix
from xsmmu_lab.runs.run import is_named

NOTED: Final = PROJECT / "results" / "ran.json"
MATRIX: Final = PROJECT / "results" / "matrix" / "matrix.json"
MATRIX_PAGE: Final = PROJECT / "docs" / "matrix.md"
KEPT: Final = PROJECT / "docs" / "ran.json"
PAGE: Final = PROJECT / "docs" / "use.md"
FIRST: Final = "<!-- made by python -m checks.ran -->\n"
LAST: Final = "<!-- end -->\n"

_WORKLOADS: Final = {"micro": "micro", "attack": "attack", "nvme-verify": "disk", "net-rx": "NIC"}
WHATS: Final = (*_WORKLOADS.values(), "rude", "torture", "cycles", "CPUs")
"""Columns."""


@dataclass(frozen=True)
class Entry:
    """One thing that was run on a kernel and an IOMMU."""

    what: str
    kernel: str
    iommu: str
    commit: str
    command: str
    result: str

    @property
    def place(self) -> tuple[str, str, str]:
        """What it is the result of."""
        return self.iommu, self.kernel, self.what

    def as_dict(self) -> dict[str, str]:
        """As in the file."""
        return asdict(self)


def load(path: Path) -> list[Entry]:
    """Nothing, if it is not there."""
    return [Entry(**each) for each in json.loads(path.read_text())] if path.exists() else []


def of_matrix(cells: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    """How many policies were run in each cell; of attacks, how often each at least."""
    for cell in cells:
        if cell["summary"] is None:
            continue
        for workload, what in _WORKLOADS.items():
            runs = [each for each in cell["summary"]["runs"] if each["workload"] == workload]
            if not runs:
                continue
            aware = sum(each["driver"] == "batch-aware" for each in runs)
            result = f"{len(runs) - aware} policies" + (f", {aware} batch-aware" if aware else "")
            if what == "attack":
                result += f", {min(each['attack']['attempts'] for each in runs):,} times"
            yield Entry(what, cell["kernel"], cell["iommu"], cell["summary"]["commit"], "make matrix", result)


def merge(kept: Sequence[Entry], newer: Iterable[Entry]) -> list[Entry]:
    """The newer ones instead of what they replace, in the order of the table."""
    found = {each.place: each for each in (*kept, *newer)}
    for each in found.values():
        if each.what not in WHATS:
            raise UserError(f"{each.what} on {each.iommu}: the table has no such column, but {', '.join(WHATS)}")
        if not is_named(each.commit):
            raise UserError(f"{each.what} on {each.iommu}: run at {each.commit}: commit first, then run it again")
    rows = list(dict.fromkeys((each.iommu, each.kernel) for each in found.values()))
    return sorted(found.values(), key=lambda each: (rows.index(each.place[:2]), WHATS.index(each.what)))


def table(entries: Sequence[Entry]) -> str:
    """Rows are IOMMUs and kernels; below it, what was run by which command at which commit."""
    lines = ["| IOMMU | kernel | " + " | ".join(WHATS) + " |", "|" + "---|" * (len(WHATS) + 2)]
    results = {each.place: each.result for each in entries}
    for iommu, kernel in dict.fromkeys((each.iommu, each.kernel) for each in entries):
        words = [results.get((iommu, kernel, what), "-") for what in WHATS]
        lines.append(f"| {iommu} | {kernel} | " + " | ".join(words) + " |")
    lines.append("")

    def origin(entry: Entry) -> tuple[str, str]:
        return entry.command, entry.commit

    for (called, commit), group in groupby(sorted(entries, key=origin), key=origin):
        whats = {each.what for each in group}
        lines.append(f"- {', '.join(what for what in WHATS if what in whats)}: `{called}` at {commit[:12]}")
    return "\n".join([*lines, ""])


def page(text: str, entries: Sequence[Entry]) -> str:
    """The page with the table between its marks."""
    before, mark, rest = text.partition(FIRST)
    _, end, after = rest.partition(LAST)
    if not mark or not end:
        raise UserError(f"{PAGE.name} has no place for the table: it stands between {FIRST.strip()} and {LAST.strip()}")
    return before + mark + "\n" + table(entries) + "\n" + end + after


def lacks(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """The cells that a whole matrix would have, but for those that cannot be, with all workloads."""
    there: dict[tuple[str, str], set[str]] = {}
    for each in cells:
        runs = each["summary"]["runs"] if each["summary"] else []
        there[each["kernel"], each["iommu"]] = {run["workload"] for run in runs}
    wanted = [each for each in matrix.cells((), ()) if not each.excluded]
    return [each.name for each in wanted if not {*_WORKLOADS} <= there.get((each.kernel, each.iommu), set())]


def update() -> None:
    """Take over what is new, and write all files."""
    cells = json.loads(MATRIX.read_text())["cells"] if MATRIX.exists() else []
    if cells and (lacking := lacks(cells)):
        print(f"{MATRIX} is left out, as it is not whole: {', '.join(lacking)}", file=sys.stderr)
        cells = []
    entries = merge(load(KEPT), (*of_matrix(cells), *load(NOTED)))
    text = page(PAGE.read_text(), entries)
    if cells:
        MATRIX_PAGE.write_text(MATRIX.with_name(matrix_page.MARKDOWN).read_text())
    KEPT.write_text("[\n" + ",\n".join(json.dumps(each.as_dict()) for each in entries) + "\n]\n")
    PAGE.write_text(text)


if __name__ == "__main__":
    sys.exit(command.run(click.command()(update), "checks.ran"))
