# SPDX-License-Identifier: GPL-2.0-only
"""The report of a summary: one HTML file that needs nothing else, and its pictures as PNGs.

Everything comes from the summary, so a report can be made again from an old ``summary.json``.
A file appears under its name only when it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from xsmmu.report import table
from xsmmu.report import view as views
from xsmmu.report.plots import Plot, plots
from xsmmu.report.table import Grid
from xsmmu.report.view import LEVELS, View

NAME: Final = "report.html"
_TEMPLATES: Final = Path(__file__).parent / "templates"


def write(summary: Mapping[str, object], folder: Path) -> Path:
    """Write report.html and <picture>.png into `folder`, and return the report's path.

    Raises view.SummaryError, before it writes anything, if the summary cannot be shown truthfully.
    """
    view = views.read(summary)
    pictures = plots(view)
    files = {f"{picture.name}.png": picture.png() for picture in pictures}
    files[NAME] = _html(view, pictures).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _replace(folder / name, content)
    return folder / NAME


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _html(view: View, pictures: list[Plot]) -> str:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = lambda picture: Markup(picture.svg())
    environment.filters["heading"] = _heading
    environment.filters["by_level"] = _by_level
    environment.globals |= {"verdict": table.verdict, "reckoning": table.reckoning}
    levels = {run.level for workload in view.workloads for run in workload.runs}
    compared, lacking, wrong = view.oracle_agreement()
    return environment.get_template("report.html.j2").render(
        view=view,
        facts=table.facts(view),
        overview=table.overview(view) if view.workloads else None,
        details=[table.details(workload) for workload in view.workloads],
        claims=[(claim, table.claim(claim)) for claim in view.claims],
        pictures=pictures,
        levels={level: promise for level, promise in LEVELS.items() if level in levels},
        notes=table.notes(view),
        oracle=table.oracle(view),
        oracle_state="wrong" if wrong else "right" if compared and not lacking else "open",
    )


def _heading(text: str) -> Markup:
    """A column's heading in HTML; microseconds get their sign."""
    lines = (line.replace(" us", " µs") for line in text.split("\n"))
    return Markup("<br>").join(lines)


def _by_level(grid: Grid) -> list[list[tuple[str, ...]]]:
    """A grid's rows, cut where the level changes."""
    return [list(rows) for _, rows in groupby(grid.rows, key=lambda row: row[1])]
