# SPDX-License-Identifier: GPL-2.0-only
"""The picture of `make allocators`: memory accesses and the longest wait, by allocator and number of CPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from xsmmu_lab.report import page
from xsmmu_lab.report.plots import GRID, INK, MAP_BAR, MUTED, UNMAP_BAR, Plot

Json = dict[str, Any]

WORKLOAD: Final = "sizes-33"
NAME: Final = "allocators"
_SHADES: Final = (MAP_BAR, UNMAP_BAR, INK)
"""From few CPUs to many."""
_PANELS: Final = (
    ("memory accesses a pair", "accesses_per_pair"),
    ("line transfers a pair", "transfers_per_pair"),
    ("longest wait for a lock, us", "longest_wait_us"),
)
_NONE: Final = 0.1
"""Where zero stands, on a logarithmic axis."""


def plot(summary: Json) -> Plot | None:
    """The picture; None if its workload was not counted."""
    rows = [row for row in summary["rows"] if row["workload"] == WORKLOAD and row["counted"]]
    if not rows:
        return None
    return Plot(
        NAME,
        "Allocators of IOVAs",
        "Counts of the model: a ring of 1,024 buffers a CPU, one in 16 of 2 to 64 pages, a third freed on another CPU.",
        "Dot plot of allocators. " + " ".join(_words(row) for row in rows),
        f"{WORKLOAD}, commit {summary['commit'][:12]}",
        _drawn(rows),
    )


def _words(row: Json) -> str:
    counts = "; ".join(
        f"{each['cpus']} CPUs {each['accesses_per_pair']:g} accesses, {each['longest_wait_us']:g} us"
        for each in row["counted"]
    )
    return f"{row['allocator']}: {counts}."


def _drawn(rows: list[Json]) -> Callable[[str], Figure]:
    cpus = [counts["cpus"] for counts in rows[0]["counted"]]
    shades = dict(zip(cpus, _SHADES[-len(cpus) :], strict=True))

    def draw(heading: str) -> Figure:
        figure = Figure(figsize=(9, 0.5 + 0.34 * len(rows)), layout="constrained")
        axes = figure.subplots(1, len(_PANELS), sharey=True)
        for ax, (title, key) in zip(axes, _PANELS, strict=True):
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(numticks=6))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value > _NONE else "0"))
            ax.grid(axis="x", color=GRID)
            ax.set_title(title)
            ax.set_yticks(range(len(rows)), [row["allocator"] for row in rows])
            for place, row in enumerate(rows):
                for counts in row["counted"]:
                    ax.plot(max(counts[key], _NONE), place, "o", color=shades[counts["cpus"]], markersize=6)
            ax.tick_params(colors=MUTED)
        axes[0].invert_yaxis()
        keys = [Line2D([], [], marker="o", ls="", color=shade, label=f"{n} CPUs") for n, shade in shades.items()]
        figure.legend(handles=keys, loc="outside upper left", ncols=len(keys), title=heading or None, alignment="left")
        return figure

    return draw


def write(summary: Json, folder: Path) -> list[Path]:
    """Write the picture into a folder, as PNG and SVG; returns the files."""
    made = plot(summary)
    if not made:
        return []
    files = {folder / f"{NAME}.png": made.png(), folder / f"{NAME}.svg": made.svg_file().encode()}
    for path, content in files.items():
        page.replace(path, content)
    return list(files)
