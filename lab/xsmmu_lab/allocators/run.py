# SPDX-License-Identifier: GPL-2.0-only
"""Runs the programs of lab/native/allocators, and makes the summary.

Threads are timed on this machine's CPUs; everything else is counted in a model of CPUs, or by single-stepping, and is
the same on each run.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jsonschema
from rich.console import Console

from xsmmu import kernel
from xsmmu.errors import UserError
from xsmmu_lab.allocators import claims
from xsmmu_lab.allocators.build import Programs, programs
from xsmmu_lab.allocators.cases import (
    ALLOCATORS,
    COUNTED_CPUS,
    KEPT,
    QUICK,
    THREADS,
    WORKLOADS,
    Workload,
    chosen,
    threads_on,
)
from xsmmu_lab.native import engine
from xsmmu_lab.native.statistics import middle
from xsmmu_lab.native.summary import SUMMARY, write
from xsmmu_lab.project import LAB, RESULTS, commit
from xsmmu_lab.setup import host, root

Json = dict[str, Any]

FOLDER: Final = RESULTS / "allocators"
SCHEMA_PATH: Final = LAB / "allocators.schema.json"
ROUNDS: Final = 7
QUICK_CPUS: Final = (1, 8)

_COUNTED_POLLS: Final = 3
_STEPPED_POLLS: Final = 1
_TIMEOUT_S: Final = 1800
_RUNNING_MIN: Final = 950
"""Thousandths of the time for which each thread must run; less means that another program has run on its CPU."""


@dataclass(frozen=True)
class Options:
    """The options of a comparison."""

    threads: Sequence[int] | None = None
    """Numbers of threads; None for THREADS."""
    allocators: Sequence[str] = ()
    workloads: Sequence[str] = ()
    quick: bool = False
    rounds: int = ROUNDS
    output: Path = FOLDER


def call(program: Path, words: Sequence[str]) -> Json:
    """The line of JSON that a program prints."""
    what = f"{program.name} {' '.join(words)}"
    return engine.call(program, words, what, _TIMEOUT_S, "end other programs, or ask for fewer CPUs")


# -- counts ------------------------------------------------------------------------------------------------------------


def counted(program: Path, allocator: str, workload: Workload, cpus: int) -> Json:
    """The counts of the model for a number of CPUs."""
    polls = ["--warm", str(workload.warm_polls_on(cpus)), "--polls", str(_COUNTED_POLLS)]
    raw = call(program, ["--allocator", allocator, "--cpus", str(cpus), *polls, *workload.words()])
    return counts_of(raw)


def counts_of(raw: Json) -> Json:
    """The entry of a summary for a line of the program that counts."""
    pairs = (raw["maps"] + raw["unmaps"]) / 2
    locks, iova = raw["locks"], raw["iova"]
    return {
        "cpus": raw["cpus"],
        "accesses_per_pair": round(raw["accesses"] / pairs, 2),
        "transfers_per_pair": round(raw["transfers"] / pairs, 4),
        "locks_per_pair": round(locks["taken"] / pairs, 4),
        "contended_per_pair": round(locks["waits"] / pairs, 4),
        "longest_wait_us": round(locks["longest_ns"] / 1000, 2),
        "rest": _shape(raw["rest"]),
        "load": _shape(raw["load"]),
        "spread": round(64 * iova["blocks"] / iova["live_pages"], 3),
        "regions": iova["regions"],
        "live_pages": iova["live_pages"],
    }


def _shape(raw: Json) -> Json | None:
    """A tree's shape; None without a tree."""
    if not raw["nodes"]:
        return None
    return {
        "nodes": raw["nodes"],
        "levels": round(raw["depth_sum"] / raw["nodes"], 2),
        "deepest": raw["deepest"],
    }


def instructions(program: Path, allocator: str, workload: Workload) -> float:
    """Instructions of a pair on one CPU."""
    polls = ["--warm", str(workload.warm_polls), "--polls", str(_STEPPED_POLLS), "--steps"]
    raw = call(program, ["--allocator", allocator, "--cpus", "1", *polls, *workload.words()])
    return round(2 * int(raw["instructions"]) / int(raw["calls"]), 1)


# -- times -------------------------------------------------------------------------------------------------------------


def timed(program: Path, allocator: str, workload: Workload, cpus: Sequence[int]) -> Json:
    """The line of a timed run, with a thread for each of these CPUs."""
    where = ["--cpus", ",".join(map(str, cpus))]
    return call(program, ["--allocator", allocator, *where, *workload.words()])


def times_of(runs: Sequence[Json]) -> Json:
    """The entry of a summary for the runs of a case."""
    quiet = [run for run in runs if run["shared"] or run["running_permille"] >= _RUNNING_MIN]
    median, low, high = middle([run["pair_ps"] / 1000 for run in quiet or runs])
    pairs = sum(run["maps"] + run["unmaps"] for run in runs) / 2
    return {
        "threads": runs[0]["threads"],
        "shared": runs[0]["shared"],
        "ns_per_pair": round(median, 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "contended_per_pair": round(sum(run["waits"] for run in runs) / pairs, 5),
        "longest_wait_us": round(statistics.median(run["longest_ns"] for run in runs) / 1000, 2),
        "quiet": len(quiet),
        "runs": len(runs),
    }


# -- the summary -------------------------------------------------------------------------------------------------------


def _cases(options: Options) -> Iterator[tuple[str, Workload]]:
    names = options.workloads or (QUICK if options.quick else ())
    workloads = [WORKLOADS[name] for name in chosen("workload", names, tuple(WORKLOADS))]
    yield from itertools.product(chosen("allocator", options.allocators, tuple(ALLOCATORS)), workloads)


def _count_all(made: Programs, options: Options, rows: Sequence[Json], console: Console) -> None:
    with console.status("counting") as status:
        for done, row in enumerate(rows):
            workload = WORKLOADS[row["workload"]]
            status.update(f"counting: {done} of {len(rows)}, {row['allocator']} under {workload.name}")
            for cpus in QUICK_CPUS if options.quick else COUNTED_CPUS:
                if cpus > 1 or not workload.elsewhere:
                    row["counted"].append(counted(made.count, row["allocator"], workload, cpus))
            if not workload.elsewhere:
                row["instructions_per_pair"] = instructions(made.step, row["allocator"], workload)


def _time_all(made: Programs, options: Options, rows: Sequence[Json], cpus: Sequence[int], console: Console) -> None:
    numbers = list(options.threads or THREADS)
    cases = [(row, n) for row in rows for n in numbers if n > 1 or not WORKLOADS[row["workload"]].elsewhere]
    runs: dict[int, list[Json]] = {at: [] for at in range(len(cases))}
    with console.status("measuring") as status:
        # Cases take turns, so a machine that changes meanwhile changes the figures of all cases.
        for turn, (at, (row, threads)) in itertools.product(range(options.rounds), enumerate(cases)):
            status.update(f"measuring: round {turn + 1} of {options.rounds}, {row['allocator']}, {threads} threads")
            where = threads_on(threads, cpus)
            runs[at].append(timed(made.time, row["allocator"], WORKLOADS[row["workload"]], where))
    for at, (row, _) in enumerate(cases):
        row["timed"].append(times_of(runs[at]))


def run(options: Options, console: Console) -> Json:
    """Compare, and write the summary."""
    rows: list[Json] = [
        {
            "allocator": name,
            "workload": workload.name,
            "elsewhere_percent": workload.elsewhere,
            "instructions_per_pair": None,
            "counted": [],
            "timed": [],
        }
        for name, workload in _cases(options)
    ]
    began_at, time = commit(), datetime.now(UTC)
    tools = root.ensure(host.cache_dir(), console)
    made = programs(tools, console)
    cpus = engine.chosen_cpus(os.sched_getaffinity(0), engine.siblings)
    _time_all(made, options, rows, cpus, console)
    _count_all(made, options, rows, console)
    summary = {
        "schema": 1,
        "time": time.strftime("%Y-%m-%dT%H-%M-%SZ"),
        "cpu": kernel.model() or "unknown",
        "cpu_numbers": cpus,
        "commit": began_at,
        "kept": KEPT,
        "rows": rows,
        "claims": claims.decide(rows),
    }
    validate(summary)
    write(summary, options.output)
    return summary


def validate(summary: Any) -> None:
    """Raise unless the summary fits lab/allocators.schema.json."""
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text()))
    error = jsonschema.exceptions.best_match(validator.iter_errors(summary))
    if error is not None:
        raise UserError(f"the summary does not fit {SCHEMA_PATH.name}: {error.json_path}: {error.message}")


def load(folder: Path) -> Json:
    """A summary that was written before. Raises OSError, ValueError or UserError."""
    summary: Json = json.loads((folder / SUMMARY).read_text())
    validate(summary)
    return summary
