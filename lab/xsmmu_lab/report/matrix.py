# SPDX-License-Identifier: GPL-2.0-only
"""The page of a matrix: a row per IOMMU and kernel, a column per policy. Terminal, HTML, Markdown.

A cell is an IOMMU and a kernel, with a summary or with the reason for the missing summary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from xsmmu_lab.report import page
from xsmmu_lab.report.table import Column, Grid, print_grid
from xsmmu_lab.report.view import AWARE, named
from xsmmu_lab.vm.iommu import IOMMUS

Json = Mapping[str, Any]

PAGE: Final = "matrix.html"
MARKDOWN: Final = "matrix.md"
_NONE: Final = "-"

_AWARE_NOTE: Final = "(aware): with a batch-aware driver; the others' is not."
_NOTES: Final = (
    "Cost: guest instructions to map and unmap a page, in a ring of 1,024; beside it, relative to the kernel's strict "
    "and lazy modes on the same IOMMU and kernel. Emulated invalidations complete at once: on hardware a "
    "policy that invalidates for each page (kernel-strict, strict, copy) waits for each, and costs a multiple of "
    "kernel-lazy, whatever its instructions.",
    "Attack: the level, and for how long after an unmap a device still reached memory, of a hundred thousand attempts "
    "and more; a level that was disproved would have failed the run, and so would a write to the padding of a list.",
    "Counts: the module's own count of commands is the hardware model's in each run: kind by kind, or where its trace "
    "has but one kind, in all.",
    "Work: a disk whose data was written, read back and compared; a NIC that received for a second.",
)


def notes(made: Sequence[Grid]) -> list[str]:
    """The notes that apply to the grids; measures that were not run get no note."""
    titles = [each.title for each in made]
    is_aware = any(column.head.endswith(named("", AWARE)) for each in made for column in each.columns)
    said = [note for note in _NOTES if note.partition(":")[0] in titles]
    return [_AWARE_NOTE, *said] if is_aware else said


def _column(run: Json) -> str:
    """A policy under a batch-aware driver has its own column, because the level differs."""
    return named(str(run["policy"]), str(run["driver"]))


def _page_sum(run: Json | None) -> float | None:
    if not run or run["map_instructions_per_page"] is None:
        return None
    return float(run["map_instructions_per_page"] + run["unmap_instructions_per_page"])


def cost(run: Json | None, runs: Mapping[tuple[str, str], Json]) -> str:
    """The cost as in `611 0.24 0.30`."""
    value = _page_sum(run)
    if value is None:
        return _NONE
    words = [f"{value:,.0f}"]
    for policy in ("kernel-strict", "kernel-lazy"):
        other = _page_sum(runs.get(("micro", policy)))
        words.append(f"{value / other:.2f}" if other else _NONE)
    return " ".join(words)


def attack(run: Json | None, _runs: Mapping[tuple[str, str], Json]) -> str:
    """The attack's result as in `held 875 us`."""
    if not run:
        return _NONE
    found = run["attack"]
    if not found["landed"]:
        return f"{run['level']} 0"
    if run["level"] == "none":
        return "none always"
    return f"{run['level']} {found['last_landed_ns']['max'] / 1000:,.0f} us"


def work(run: Json | None, runs: Mapping[tuple[str, str], Json]) -> str:
    """The devices that received their data, as in `disk, NIC`."""
    done = ["disk"] if run else []
    done += ["NIC"] if run and ("net-rx", _column(run)) in runs else []
    return ", ".join(done) or _NONE


_GRIDS: Final[tuple[tuple[str, str, Callable[[Json | None, Mapping[tuple[str, str], Json]], str]], ...]] = (
    ("Cost", "micro", cost),
    ("Attack", "attack", attack),
    ("Work", "nvme-verify", work),
)


def _by_place(summary: Json) -> dict[tuple[str, str], Json]:
    found: dict[tuple[str, str], Json] = {}
    for each in summary["runs"]:
        place = each["workload"], _column(each)
        if place in found:
            raise ValueError(f"two runs of {place[0]} under {place[1]}: the matrix has room for one")
        found[place] = each
    return found


def _counts(cell: Json) -> str:
    ours = [each for each in cell["summary"]["runs"] if each["invalidations"] is not None]
    return f"{len(ours)} {'in all' if IOMMUS[cell['iommu']].one_kind else 'by kind'}"


def grids(cells: Sequence[Json], policies: Sequence[str]) -> list[Grid]:
    """A grid per question; cells without results appear in `reasons`."""
    there = [each for each in cells if each["summary"]]
    keys = (
        Column("IOMMU", tuple(each["iommu"] for each in there)),
        Column("kernel", tuple(each["kernel"] for each in there)),
    )
    made: list[Grid] = []
    for title, workload, say in _GRIDS:
        places = [_by_place(each["summary"]) for each in there]
        columns = [
            Column(policy, tuple(say(place.get((workload, policy)), place) for place in places))
            for policy in (*policies, *(named(each, AWARE) for each in policies))
        ]
        made.append(Grid(title, "", keys, tuple(each for each in columns if not each.empty)))
    made.append(Grid("Counts", "", keys, (Column("runs equal", tuple(map(_counts, there))),)))
    return [each for each in made if each.columns and there]


def reasons(cells: Sequence[Json]) -> list[tuple[str, str]]:
    """Cells without results, with the reasons."""
    return [(f"{each['kernel']}-{each['iommu']}", each["reason"]) for each in cells if not each["summary"]]


def kinds(cells: Sequence[Json]) -> list[tuple[str, str]]:
    """The IOMMUs' short names with their descriptions."""
    return [(name, IOMMUS[name].words) for name in dict.fromkeys(each["iommu"] for each in cells)]


def render(cells: Sequence[Json], policies: Sequence[str], console: Console) -> None:
    """Print the page to a terminal."""
    made = grids(cells, policies)
    for grid in made:
        print_grid(grid, console)
    for name, reason in reasons(cells):
        console.print(Text(f"{name}: {reason}"), soft_wrap=True)
    for note in notes(made):
        console.print(Text(note))


def _made(cells: Sequence[Json]) -> str:
    commits = sorted({_short(str(each["summary"]["commit"])) for each in cells if each["summary"]})
    return ", ".join(commits) or "none"


def _short(commit: str) -> str:
    """A short hash; `-dirty` stays visible."""
    name, dirty, _ = commit.partition("-dirty")
    return name[:12] + dirty


def html(cells: Sequence[Json], policies: Sequence[str]) -> str:
    """The page as HTML."""
    environment = page.templates()
    environment.tests["startswith"] = str.startswith
    made = grids(cells, policies)
    return environment.get_template("matrix.html.j2").render(
        grids=made,
        reasons=reasons(cells),
        kinds=kinds(cells),
        notes=notes(made),
        commit=_made(cells),
    )


def markdown(cells: Sequence[Json], policies: Sequence[str]) -> str:
    """The page as Markdown for the docs."""
    lines = ["# Every IOMMU and kernel", "", f"Made by `make matrix` at commit {_made(cells)}, in QEMU's models.", ""]
    lines += [f"- `{name}`: {words}" for name, words in kinds(cells)]
    made = grids(cells, policies)
    for grid in made:
        columns = (*grid.keys, *grid.columns)
        lines += ["", f"## {grid.title}", "", "| " + " | ".join(each.head for each in columns) + " |"]
        lines += ["|" + "---|" * len(columns), *("| " + " | ".join(row) + " |" for row in grid.rows)]
    lines += [""] + [f"- {name}: {reason}" for name, reason in reasons(cells)]
    return "\n".join([*lines, "", *notes(made), ""])


def write(cells: Sequence[Json], policies: Sequence[str], folder: Path) -> Path:
    """Write the HTML and Markdown pages into `folder`; returns the path of the HTML page."""
    for name, content in ((PAGE, html(cells, policies)), (MARKDOWN, markdown(cells, policies))):
        page.replace(folder / name, content.encode())
    return folder / PAGE
