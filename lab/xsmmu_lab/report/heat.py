# SPDX-License-Identifier: GPL-2.0-only
"""Coloured tables: the cost of every policy under every workload, and the number of invalidations.

A cell's `step` (0 to 9) selects a colour and repeats the number in the cell. Costs in instructions are shown with a
wait for each invalidation; such a cell also carries the figures from which the report's slider makes the cost at
another wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from xsmmu.native import HARDWARE_WAIT_NS
from xsmmu_lab.report.view import PASSTHROUGH, Run, View, Workload, show, show_inv, show_seen

RATIO_STEPS: Final = (1.01, 1.03, 1.06, 1.12, 1.25, 1.5, 2, 4, 8)
"""Costs relative to passthrough at which a cell takes the next colour."""

INV_STEPS: Final = (1e-9, 2e-4, 2e-3, 6e-3, 2e-2, 6e-2, 0.2, 0.6, 1.0)
"""The same number of steps, for invalidation commands per page."""


@dataclass(frozen=True)
class Cell:
    """A number, its colour, and the parts of a cost."""

    text: str
    step: int
    cost: float | None = None
    commands: float | None = None
    without_wait: bool = False
    """Whether the number of invalidations is unknown, so that the ratio has no wait where others do."""


@dataclass(frozen=True)
class Row:
    """A policy at a level: figures without colour, then a cell per workload; None if the workload was not run.

    `page` is the run that the figures are of.
    """

    policy: str
    level: str
    base: bool
    figures: tuple[str, ...]
    cells: tuple[Cell | None, ...]
    page: Run | None = None


@dataclass(frozen=True)
class Heat:
    """A table: the `heads` of the figures, and each workload's name and spread."""

    heads: tuple[str, ...]
    workloads: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]


def costs(view: View) -> Heat | None:
    """Cost relative to passthrough, beside the cost per page and the exposure that a device saw."""
    workloads = [w for w in view.workloads if any(w.relative(r, PASSTHROUGH) is not None for r in w.runs)]
    micro = view.main_micro
    workloads = [w for w in workloads if w.kind != "micro" or w is micro]
    at_wait = ("ns/page",) if view.waits else ()
    heads = (*at_wait, f"{view.cost_word or 'cost'}/page", "inv/page", "exposure, max us")

    def page(row: tuple[str, str]) -> Run | None:
        return next((r for r in micro.runs if r.row == row), None) if micro else None

    def figures(row: tuple[str, str]) -> tuple[str, ...]:
        run = page(row)
        return (
            *(show(run.ns_at(HARDWARE_WAIT_NS) if run else None) for _ in at_wait),
            show(run.page_sum if run else None),
            show_inv(run.inv_per_page if run else None),
            show_seen(row[1], view.seen(row)),
        )

    def cell(workload: Workload, run: Run) -> Cell | None:
        ratio = workload.relative(run, PASSTHROUGH)
        if ratio is None:
            return None
        waiting = workload.relative_at(run, PASSTHROUGH, HARDWARE_WAIT_NS)
        parts = (None, None) if waiting is None else (run.cost, run.commands)
        shown = ratio if waiting is None else waiting
        text = f"{shown:.3f}" if shown < 2 else f"{shown:.2f}"
        return Cell(text, bisect_right(RATIO_STEPS, shown), *parts, view.waits and waiting is None)

    spreads = [f"±{w.spread:g}" if w.spread and view.cost_word == "instructions" else "" for w in workloads]
    rows = tuple(
        Row(row[0], row[1], row[0] == PASSTHROUGH, figures(row), _cells(workloads, row, cell), page(row))
        for row in view.rows()
    )
    if not rows:
        return None
    return Heat(heads, tuple((w.name, s) for w, s in zip(workloads, spreads, strict=True)), rows)


def invalidations(view: View) -> Heat | None:
    """Invalidation commands per unmapped page."""
    workloads = [w for w in view.workloads if w.kind != "micro" or w is view.main_micro]
    workloads = [w for w in workloads if w not in view.attacks and any(r.inv_per_page is not None for r in w.runs)]

    def cell(_: Workload, run: Run) -> Cell | None:
        if run.inv_per_page is None:
            return None
        return Cell(show_inv(run.inv_per_page), bisect_right(INV_STEPS, run.inv_per_page))

    found = ((row, _cells(workloads, row, cell)) for row in view.rows())
    rows = tuple(Row(*row, False, (), cells) for row, cells in found if any(cells))
    return Heat((), tuple((w.name, "") for w in workloads), rows) if rows else None


def _cells(
    workloads: Sequence[Workload], row: tuple[str, str], cell: Callable[[Workload, Run], Cell | None]
) -> tuple[Cell | None, ...]:
    runs = [next((run for run in w.runs if run.row == row), None) for w in workloads]
    return tuple(cell(w, run) if run else None for w, run in zip(workloads, runs, strict=True))
