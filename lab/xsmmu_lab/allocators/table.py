# SPDX-License-Identifier: GPL-2.0-only
"""The summary of `make allocators` on a terminal: two tables for each workload, and the claims."""

from __future__ import annotations

from typing import Any, Final

import click

from xsmmu import output
from xsmmu_lab.allocators.cases import WORKLOADS

Json = dict[str, Any]

VERDICTS: Final = {True: "holds", False: "does not hold", None: "cannot be said here"}


def show(summary: Json) -> None:
    """Print the summary."""
    for name in dict.fromkeys(row["workload"] for row in summary["rows"]):
        rows = [row for row in summary["rows"] if row["workload"] == name]
        click.echo(f"{name}: {WORKLOADS[name].says}")
        _show_times(rows)
        click.echo()
        _show_counts(rows)
        click.echo()
    for claim in summary["claims"]:
        click.echo(f"{VERDICTS[claim['holds']]}: {claim['says']} ({claim['source']})")
        for figure, values in claim["figures"].items():
            known = ", ".join(f"{name} {value:g}" for name, value in values.items() if value is not None)
            click.echo(f"  {figure}: {known or 'not measured'}")
    click.echo(
        f"\n{summary['cpu']}, {len(summary['cpu_numbers'])} CPUs; {summary['kept']:,} mappings stay throughout."
        "\nns: CPU time of a thread for a map and a free, median of the runs. *: threads share CPUs, so waits contain"
        "\nthose for a CPU. ~: fewer than half of the runs had their CPUs for themselves."
        "\nModelled CPUs: see docs/older.md. Compare ratios only: nanoseconds are those of this CPU."
    )


def _ns(times: Json) -> str:
    disturbed = "~" if 2 * times["quiet"] < times["runs"] else ""
    return f"{disturbed}{times['ns_per_pair']:,.1f}{'*' if times['shared'] else ''}"


def _number(value: float | None, form: str = ",.1f") -> str | None:
    return None if value is None else f"{value:{form}}"


def _show_times(rows: list[Json]) -> None:
    threads = [times["threads"] for times in rows[0]["timed"]]
    lines = []
    for row in rows:
        last = row["timed"][-1] if row["timed"] else None
        lines.append(
            [
                row["allocator"],
                _number(row["instructions_per_pair"], ",.0f"),
                *(_ns(times) for times in row["timed"]),
                *([_number(last["contended_per_pair"], ".3f"), _number(last["longest_wait_us"])] if last else []),
            ]
        )
    waits = [f"contended, {threads[-1]}", f"longest wait us, {threads[-1]}"] if threads else []
    heads = [f"ns, {n} thread{'s' if n > 1 else ''}" for n in threads]
    output.table(["allocator", "instructions", *heads, *waits], lines)


def _show_counts(rows: list[Json]) -> None:
    lines = []
    for row in rows:
        lines += [[row["allocator"], str(counts["cpus"]), *cells_of(counts)] for counts in row["counted"]]
    output.table(["allocator", "modelled CPUs", *COUNT_HEADS], lines)


COUNT_HEADS: Final = (
    *("accesses", "transfers", "locks", "contended", "longest wait us", "nodes at rest", "levels at rest"),
    *("nodes", "levels", "spread", "2 MiB regions"),
)
"""Heads of the cells of counts; those of a pair come first."""


def cells_of(counts: Json) -> list[str | None]:
    """The counts of a row, below COUNT_HEADS."""
    shapes = [counts[when] or {"nodes": None, "levels": None} for when in ("rest", "load")]
    return [
        _number(counts["accesses_per_pair"]),
        _number(counts["transfers_per_pair"], ".3f"),
        _number(counts["locks_per_pair"], ".2f"),
        _number(counts["contended_per_pair"], ".4f"),
        _number(counts["longest_wait_us"]),
        *(_number(shape[key], form) for shape in shapes for key, form in (("nodes", ",d"), ("levels", ".1f"))),
        _number(counts["spread"], ".2f"),
        _number(counts["regions"], ",d"),
    ]
