# SPDX-License-Identifier: GPL-2.0-only
"""`make native`: build User-Mode Linux, measure in it, and write results/native/summary.json."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from xsmmu import kernel, output
from xsmmu.errors import UserError
from xsmmu_lab.native import accepted, build, figures, machine, page, plan
from xsmmu_lab.native.engine import siblings
from xsmmu_lab.native.rounds import Rounds
from xsmmu_lab.native.statistics import middle
from xsmmu_lab.native.summary import by_wait, on_several, write
from xsmmu_lab.project import RESULTS, commit
from xsmmu_lab.setup import host
from xsmmu_lab.setup.root import ensure

FOLDER: Final = RESULTS / "native"
_SHOWN_EACH: Final = 16
"""Runs between two updates of the progress, which looks at all runs until then."""


@dataclass(frozen=True)
class Options:
    """The measurement."""

    waits: Sequence[int] = plan.WAITS_NS
    rounds: int = plan.ROUNDS
    quick: bool = False
    cpus: Sequence[int] = ()
    """CPUs of the host; by default one of each of the last two cores that this process may use."""
    output: Path = FOLDER
    accept: bool = False
    """Write the rows into the tree."""


def run(options: Options, console: Console) -> dict[str, Any]:
    """Measure, and write the summary. Raises if the machine is too noisy on one CPU.

    Several CPUs need a quieter machine than one does, so their rows are left out, with the reason, if only they are
    too noisy.
    """
    cpus, measured = _cpus(options.cpus), commit()
    if options.accept:
        accepted.check_tree(measured)
    _check_clock()
    made = build.machine(ensure(host.cache_dir(), console), console)
    cases = plan.cases(options.waits, options.quick)
    found = measure(made, cases, options.rounds, cpus[-1:], console)
    kept = found.quiet()
    summary: dict[str, Any] = {
        "cpu": kernel.model() or "unknown",
        "kernel": made.release,
        "commit": measured,
        "rounds": options.rounds,
        "runs": len(found.runs),
        "dropped": len(found.runs) - len(kept),
        "cmpxchg_ns": round(middle([each.cmpxchg_ns for each in kept])[0], 2),
        "rows": figures.rows(kept, cases),
    }
    if not options.quick:
        summary["several_cpus"] = _on_several(made, options, cpus, console)
    write(summary, options.output)
    page.write(summary, options.output)
    if options.accept:
        accepted.accept(summary)
    return summary


def _on_several(made: build.Machine, options: Options, cpus: Sequence[int], console: Console) -> dict[str, Any]:
    """Rows of one and of several CPUs of one boot, or the reason why there are none."""
    if len(cpus) < 2:
        return {"rows": [], "why_none": "one CPU was asked for, or this process may use one core only"}
    cases = plan.on_cpus(len(cpus), options.waits)
    try:
        found = measure(made, cases, options.rounds, cpus, console)
    except UserError as error:
        return {"rows": [], "why_none": error.message}
    kept = found.quiet()
    return {"rows": figures.rows(kept, cases), "runs": len(found.runs), "dropped": len(found.runs) - len(kept)}


def measure(
    made: build.Machine, cases: Sequence[plan.Case], wanted: int, cpus: Sequence[int], console: Console
) -> Rounds:
    """Boots, pinned to these CPUs of the host, with as many quiet runs of each case as wanted."""
    rounds = Rounds(plan.in_order_of_runs(cases), wanted)
    where = f"User-Mode Linux on {len(cpus)} CPU{'s' * (len(cpus) > 1)}"
    with console.status(f"{where}: booting") as status:

        def show() -> None:
            if len(rounds.runs) % _SHOWN_EACH == 0:
                status.update(f"{where}: {rounds.progress()}")

        for boots, of_round in enumerate(rounds.rounds()):
            machine.pad(made, boots)
            run_cases(made, of_round, cpus, rounds.runs, show)
    return rounds


def run_cases(
    made: build.Machine,
    cases: Iterator[plan.Case],
    cpus: Sequence[int],
    runs: list[figures.Run],
    show: Callable[[], None] = lambda: None,
) -> None:
    """Boot once, run cases and append the runs."""
    asked: list[plan.Case] = []

    def lines() -> Iterator[str]:
        for case in cases:
            asked.append(case)
            yield case.line()

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "run":
            runs.append(figures.run_of(event, asked[-1]))
            show()

    machine.boot(made, lines(), cpus, on_event)


def show(summary: dict[str, Any]) -> None:
    """Print a line for each policy and driver, with a column for each wait, and the rows of several CPUs."""
    keys = ("policy", "driver", "ring", "pages", "bytes", "list", "walk_mib")
    waits, found = by_wait(summary["rows"], keys)
    lines = []
    for line, of_line in found.items():
        cells = [f"{of_line[wait]['ns_per_page']:.1f}" if wait in of_line else None for wait in waits]
        first = of_line[min(of_line)]
        lines.append([*line, *cells, f"{first['low']:.1f} to {first['high']:.1f}", f"{first['inv_per_page']:.4f}"])
    output.table([*keys, *(f"wait {wait}" for wait in waits), f"interval at {waits[0]}", "inv/page"], lines)
    if "several_cpus" in summary:
        _show_several(summary["several_cpus"])
    click.echo(
        f"\nns a page, map and unmap; {summary['cpu']}, Linux {summary['kernel']}; a locked compare-and-swap takes"
        f" {summary['cmpxchg_ns']} ns; {summary['dropped']} of {summary['runs']} runs were dropped as disturbed.\n"
        "Quote ratios of one run: the nanoseconds are those of this CPU."
    )


def _show_several(several: dict[str, Any]) -> None:
    if not several["rows"]:
        click.echo(f"\nNo rows of several CPUs: {several['why_none']}.")
        return
    lines = []
    for one, row in on_several(several):
        ratio = f"{row['ns_per_page'] / one['ns_per_page']:.2f}"
        cells = [f"{each['ns_per_page']:.1f}" for each in (one, row)]
        lines.append([row["policy"], row["driver"], row["cpus"], row["wait_ns"], *cells, ratio])
    click.echo()
    output.table(["policy", "driver", "cpus", "wait", "ns on one", "ns on all", "ratio"], lines)


def _cpus(asked: Sequence[int], core_of: Callable[[int], str] = siblings) -> list[int]:
    allowed = sorted(os.sched_getaffinity(0))
    if len(set(asked)) != len(asked) or len(asked) > plan.CPUS_MAX:
        raise UserError(
            f"{len(asked)} CPUs are asked for, but a run has one CPU or two different CPUs: give --cpu once or twice"
        )
    for cpu in asked:
        if cpu not in allowed:
            raise UserError(f"this process may not run on CPU {cpu}, but on {', '.join(map(str, allowed))}")
    # Two CPUs of one core share its units, and would look like CPUs that wait for each other.
    return [*asked] or sorted({core_of(cpu): cpu for cpu in allowed}.values())[-plan.CPUS_MAX :]


def _check_clock(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    if not flags or "constant_tsc" not in flags[1].split():
        raise UserError("this CPU has no clock of constant rate (constant_tsc), so nothing can be timed: use another")
