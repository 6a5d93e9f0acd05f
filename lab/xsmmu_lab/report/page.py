# SPDX-License-Identifier: GPL-2.0-only
"""The report of a summary: a self-contained HTML file, its pictures as PNGs, and the first picture as SVG.

Everything comes from the summary, so a report can be made again from an old ``summary.json``. A file appears under its
name only when it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from xsmmu.native import HARDWARE_WAIT_NS
from xsmmu_lab.report import heat, nanoseconds, table, verdict
from xsmmu_lab.report import view as views
from xsmmu_lab.report.heat import Heat, Row
from xsmmu_lab.report.plots import Plot, plots
from xsmmu_lab.report.table import Grid
from xsmmu_lab.report.view import LEVELS, View

NAME: Final = "report.html"
INLINE: Final = ("cost-exposure", "map-unmap")
"""Pictures inside the page; the page shows the figures of other pictures as tables, with links to the pictures."""

_TEMPLATES: Final = Path(__file__).parent / "templates"


def write(summary: Mapping[str, object], folder: Path) -> Path:
    """Write report.html, <picture>.png and cost-exposure.svg into `folder`; returns the report's path.

    Raises view.SummaryError before writing anything if the summary cannot be shown truthfully.
    """
    view = views.read(summary)
    pictures = plots(view)
    page = html(view, pictures)
    files = {f"{picture.name}.png": picture.png() for picture in pictures}
    files |= {f"{picture.name}.svg": picture.svg_file().encode() for picture in pictures[:1]}
    files[NAME] = page.encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        replace(folder / name, content)
    return folder / NAME


def templates() -> Environment:
    """The templates of pages; an undefined name is an error."""
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def replace(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def html(view: View, pictures: list[Plot]) -> str:
    """The content of report.html."""
    environment = templates()
    environment.filters["svg"] = lambda picture: Markup(picture.svg())
    environment.filters["heading"] = _heading
    environment.filters["by_level"] = _by_level
    environment.globals |= {"verdict": table.verdict, "reckoning": table.reckoning}
    levels = {run.level for workload in view.workloads for run in workload.runs}
    return environment.get_template("report.html.j2").render(
        view=view,
        facts=table.facts(view),
        findings=verdict.findings(view),
        cheapest=verdict.cheapest(view),
        costs=heat.costs(view),
        invalidations=heat.invalidations(view),
        ratio_steps=heat.RATIO_STEPS,
        rate=nanoseconds.rate(),
        wait_ns=HARDWARE_WAIT_NS,
        details=[*(table.details(workload) for workload in view.workloads), *table.identities(view)],
        claims=[(claim, table.claim(claim)) for claim in view.claims],
        pictures={picture.name: picture for picture in pictures},
        inline=INLINE,
        levels={level: promise for level, promise in LEVELS.items() if level in levels},
        notes=table.notes(view),
    )


def _heading(text: str) -> Markup:
    """A column's heading in HTML, with "us" as a micro sign."""
    lines = (line.replace(" us", " µs") for line in text.split("\n"))
    return Markup("<br>").join(lines)


def _by_level(grid: Grid | Heat) -> list[list[tuple[str, ...]] | list[Row]]:
    """A table's rows, grouped by level."""
    if isinstance(grid, Heat):
        return [list(rows) for _, rows in groupby(grid.rows, key=lambda row: row.level)]
    return [list(rows) for _, rows in groupby(grid.rows, key=lambda row: row[1])]
