# SPDX-License-Identifier: GPL-2.0-only
"""The summary of `make native-engine` on a terminal: a table for each share of pages unmapped elsewhere."""

from __future__ import annotations

from typing import Any

import click

from xsmmu import output

Json = dict[str, Any]

_KEYS = ("policy", "driver", "bytes")


def show(summary: Json) -> None:
    """Print the summary."""
    rows = summary["rows"]
    for share in sorted({row["elsewhere_percent"] for row in rows}):
        mine = [row for row in rows if row["elsewhere_percent"] == share]
        click.echo(f"Nanoseconds to map and unmap a page, {share} % of the pages unmapped on another CPU")
        _show_share(mine)
        click.echo()
    most = max(row["rounds"] for row in rows)
    runs = sum(row["rounds"] + row["dropped"] for row in rows)
    interval = "contains the true median with a probability of 95 %" if most > 5 else "smallest and largest run"
    click.echo(
        f"{summary['cpu']}; a locked compare and swap takes {summary['cmpxchg_ns']} ns; wait of a command"
        f" {rows[0]['wait_ns']} ns.\nMedians of {most} runs;"
        f" {sum(row['dropped'] for row in rows)} of {runs} runs were disturbed and are left out.\n"
        f"range: {interval}. transfers: cache lines from other CPUs, per page, as"
        " `make scale` counts.\nCompare ratios only: nanoseconds are those of this CPU."
    )


def _show_share(rows: list[Json]) -> None:
    cpus = sorted({row["cpus"] for row in rows})
    most = cpus[-1]
    found = {(*(row[key] for key in _KEYS), row["cpus"]): row for row in rows}
    lines = []
    for line in dict.fromkeys(tuple(row[key] for key in _KEYS) for row in rows):
        last = found[(*line, most)]
        cells = [f"{found[(*line, count)]['ns_per_page']:.1f}" for count in cpus]
        transfers = last["transfers_per_page"]
        lines.append(
            [
                *line,
                *cells,
                f"{last['low']:.1f} to {last['high']:.1f}",
                None if transfers is None else f"{transfers:.3f}",
                f"{last['inv_per_page']:.4f}",
            ]
        )
    head = [f"{count} CPU{'s' if count > 1 else ''}" for count in cpus]
    output.table([*_KEYS, *head, f"range, {head[-1]}", "transfers", "inv/page"], lines)
