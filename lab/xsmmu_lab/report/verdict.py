# SPDX-License-Identifier: GPL-2.0-only
"""The first questions of a reader: are the counts trustworthy, did the levels hold, and which policy is cheapest?

All answers are computed from the summary. The lab refuses results that disprove a level, but this module checks again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from xsmmu.native import HARDWARE_WAIT_NS
from xsmmu_lab.report import table
from xsmmu_lab.report.nanoseconds import in_us
from xsmmu_lab.report.table import Column, Grid
from xsmmu_lab.report.view import BASELINES, LEVELS, NULL, PASSTHROUGH, Run, View, Workload, show

State = Literal["right", "wrong", "open"]

_TRAFFIC: Final = ("ring", "net-rx", "net-tx", "net-pps", "nvme")
"""Kinds of workloads that do a driver's work; a mean covers these."""


@dataclass(frozen=True)
class Finding:
    """A sentence with its state."""

    state: State
    text: str


def findings(view: View) -> list[Finding]:
    """The findings about the whole summary."""
    compared, lacking, wrong = view.oracle_agreement()
    state: State = "wrong" if wrong else "right" if compared and not lacking else "open"
    return [Finding(state, table.oracle(view)), _levels(view)]


def _levels(view: View) -> Finding:
    """Whether any attack disproved a level."""
    attacked = [(w, run, run.attack) for w in view.attacks for run in w.runs if run.attack]
    if not attacked:
        return Finding("open", "Levels: not attacked in this run.")
    strict = [attack.landed for _, run, attack in attacked if run.level == "strict"]
    held = [attack.given_back for _, run, attack in attacked if run.level == "held"]
    wrong = [
        f"{run.name} under {workload.name}"
        for workload, run, attack in attacked
        if (run.level == "strict" and (attack.landed or attack.later)) or (run.level == "held" and attack.given_back)
    ]
    if wrong:
        return Finding("wrong", f"Levels DISPROVED by an attack: {'; '.join(wrong)}.")
    tried = sum(attack.attempts or 0 for _, _, attack in attacked)
    parts = []
    if strict:
        parts.append(f"none landed at level strict ({len(strict)} runs)")
    if held:
        parts.append(f"none in a page that was given back at level held ({len(held)} runs)")
    said = f": {', '.join(parts)}" if parts else ""
    return Finding(
        "right", f"Levels: not disproved by {tried:,} writes to unmapped memory in {len(attacked)} runs{said}."
    )


def cheapest(view: View) -> Grid | None:
    """The module's cheapest policy of each level: by the page, by the page with batch-aware drivers, by all traffic.

    Counts of instructions are compared with a wait for each invalidation.
    """
    micro, rows = view.main_micro, []
    traffic = _traffic(view)
    for level in LEVELS:
        plain, aware = (_least(view, micro, level, aware) if micro else None for aware in (False, True))
        means = ((mean, name) for (name, at), mean in traffic.items() if at == level and name not in BASELINES)
        mean = min(means, default=None)
        if level != "none" and (plain or aware or mean):
            rows.append(
                (level, *_named(plain), *_named(aware), *((mean[1], f"{mean[0]:.3f}x") if mean else (NULL, NULL)))
            )
    if not rows:
        return None
    units = ("ns\na page", f"{view.cost_word}\na page")
    kinds = ("a page,\nunmodified driver", "a page,\nbatch-aware driver", "all traffic,\nunmodified drivers")
    heads = (
        *("level", kinds[0], *units, kinds[1], *units),
        *(kinds[2], f"cost, x {PASSTHROUGH}:\ngeometric mean"),
    )
    columns = [Column(head, cells) for head, cells in zip(heads, zip(*rows, strict=True), strict=True)]
    kept = (columns[0], *(column for column in columns[1:] if not column.empty))
    waits = f", with a wait of {in_us(HARDWARE_WAIT_NS)} for each invalidation" if view.waits else ""
    note = "instructions: without the wait" if view.waits else ""
    return Grid(f"The cheapest policy of each level{waits}", note, kept[:1], kept[1:])


def _least(view: View, workload: Workload, level: str, aware: bool) -> Run | None:
    ours = [run for run in workload.runs if run.policy not in BASELINES and run.page_sum is not None]
    runs = [run for run in ours if (run.level, run.aware) == (level, aware)]
    at_wait = {run.name: run.ns_at(HARDWARE_WAIT_NS) for run in runs}
    if view.waits and None not in at_wait.values():
        return min(runs, key=lambda run: at_wait[run.name] or 0.0, default=None)
    return min(runs, key=lambda run: run.page_sum or 0.0, default=None)


def _named(run: Run | None) -> tuple[str, str, str]:
    return (run.policy, show(run.ns_at(HARDWARE_WAIT_NS)), show(run.page_sum)) if run else (NULL, NULL, NULL)


def _traffic(view: View) -> dict[tuple[str, str], float]:
    """Geometric means of the cost relative to passthrough, for rows that were run under all counted workloads."""
    workloads = [w for w in view.workloads if w.kind in _TRAFFIC and _ratios(view, w, (PASSTHROUGH, "none"))]
    means = {}
    for row in view.rows():
        ratios = [ratio for w in workloads for ratio in _ratios(view, w, row)]
        if workloads and len(ratios) == len(workloads):
            means[row] = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return means


def _ratios(view: View, workload: Workload, row: tuple[str, str]) -> Iterable[float]:
    runs = (run for run in workload.runs if run.row == row and not run.aware)
    return [ratio for run in runs if (ratio := view.relative(workload, run))]
