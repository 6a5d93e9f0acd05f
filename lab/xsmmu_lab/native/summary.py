# SPDX-License-Identifier: GPL-2.0-only
"""The file with the results of a measurement, and its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from xsmmu import files

SUMMARY: Final = "summary.json"

Json = dict[str, Any]


def write(summary: Json, folder: Path) -> None:
    """Replace the summary in a folder, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(folder / SUMMARY, json.dumps(summary, indent=1) + "\n")


def rows_of(summary: Json) -> list[Json]:
    """All rows. The boot of several CPUs repeats cases of one CPU, which are left out."""
    return [*summary["rows"], *(row for _, row in on_several(summary.get("several_cpus", {})))]


def on_several(several: Json) -> Iterator[tuple[Json, Json]]:
    """Each row of several CPUs, behind the row of the same case on one CPU; `several` is the boot of several CPUs."""
    rows = several.get("rows", [])
    ones = {(row["policy"], row["driver"], row["wait_ns"]): row for row in rows if row["cpus"] == 1}
    for row in rows:
        if row["cpus"] > 1:
            yield ones[row["policy"], row["driver"], row["wait_ns"]], row


def by_wait(rows: Sequence[Json], keys: Sequence[str]) -> tuple[list[int], dict[tuple[Any, ...], dict[int, Json]]]:
    """All waits, and the rows of each case by wait; `keys` tell the cases apart."""
    found: dict[tuple[Any, ...], dict[int, Json]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), {})[row["wait_ns"]] = row
    return sorted({row["wait_ns"] for row in rows}), found
