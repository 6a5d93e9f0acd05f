# SPDX-License-Identifier: GPL-2.0-only
"""How long guests take: from the last runs, kept in the cache, else from typical times on an idle machine.

The longest guest begins first, so that both CPUs work to the end; and a run prints the expected time.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from xsmmu_lab.runs.experiment import Plan, Run
from xsmmu_lab.vm.machine import Mode

_FILE: Final = "lab-times.json"
BOOT: Final = "boot"
"""The name under which booting is recorded: until the first record."""

_USUAL: Final[Mapping[str, float]] = {
    BOOT: 4.0,
    "attack": 2.9,
    "fio": 1.5,
    "iperf": 8.5,
    "latency": 5.0,
    "micro": 0.5,
    "neighbour": 6.0,
    "packets": 1.9,
    "ring": 0.55,
    "verify": 2.4,
    "window": 3.0,
}
"""Approximate seconds per run of a measure, from one `make lab` on two CPUs."""

Known = dict[str, float]


def load(cache: Path, mode: Mode) -> Known:
    """Seconds per workload by full name; empty without measurements."""
    try:
        known = json.loads((cache / _FILE).read_text()).get(mode, {})
        return {str(name): float(seconds) for name, seconds in known.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def keep(cache: Path, mode: Mode, spent: Iterable[tuple[str, float]]) -> None:
    """Record the times of runs, replacing older times of the same workloads; a full cache is ignored."""
    lists: dict[str, list[float]] = {}
    for name, seconds in spent:
        lists.setdefault(name, []).append(seconds)
    known = {each: load(cache, each) for each in ("cost", "free")}
    known[mode] |= {name: round(sum(each) / len(each), 2) for name, each in lists.items()}
    part = cache / f".{_FILE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        part.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        part.replace(cache / _FILE)


def expected(plan: Plan, known: Known) -> float:
    """Expected seconds of a guest."""
    return known.get(BOOT, _USUAL[BOOT]) + sum(_of(run, known) for run in plan.runs)


def _of(run: Run, known: Known) -> float:
    return known.get(run.workload.full_name) or _USUAL.get(run.workload.measure, 3.0)


def longest_first(plans: Sequence[Plan], known: Known) -> list[Plan]:
    """The starting order of guests."""
    return sorted(plans, key=lambda plan: expected(plan, known), reverse=True)


def all_of(plans: Sequence[Plan], known: Known, jobs: int) -> float:
    """Seconds until the last guest is done, if started in this order, `jobs` at a time."""
    ends = [0.0] * min(jobs, len(plans))
    for plan in plans:
        heapq.heapreplace(ends, ends[0] + expected(plan, known))
    return max(ends, default=0.0)


def in_words(seconds: float) -> str:
    """As "30 s" or "3 min": no more precise than known."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    return f"{seconds / 60:.0f} min"
