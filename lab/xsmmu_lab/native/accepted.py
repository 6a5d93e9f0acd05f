# SPDX-License-Identifier: GPL-2.0-only
"""Writes the rows of a run into the tree, as the accepted figures of this model of CPU."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from xsmmu import files, native
from xsmmu.errors import UserError
from xsmmu_lab.native.summary import rows_of
from xsmmu_lab.project import is_named

_OF_MACHINE = ("cpu", "kernel", "commit", "cmpxchg_ns")


def check_tree(commit: str) -> None:
    """Raise unless the commit names the whole tree."""
    if not is_named(commit):
        raise UserError(
            "the tree has changes without a commit, and accepted figures name one: commit first, then measure again"
        )


def accept(summary: dict[str, Any], file: Path = native.FILE) -> None:
    """Replace the figures of the summary's model of CPU."""
    check_tree(summary["commit"])
    keys = [field.name for field in fields(native.Row)]
    rows = tuple(native.Row(**{key: row[key] for key in keys}) for row in rows_of(summary))
    found = native.Machine(**{key: summary[key] for key in _OF_MACHINE}, rows=rows)
    others = [machine for machine in native.parse(file.read_text()) if machine.cpu != found.cpu]
    files.replace(file, text_of(sorted([*others, found], key=lambda machine: machine.cpu)))


def text_of(machines: Iterable[native.Machine]) -> str:
    """The file's text: one row a line, so that a difference of two versions is readable."""
    parts = []
    for machine in machines:
        head = ", ".join(f'"{key}": {json.dumps(getattr(machine, key))}' for key in _OF_MACHINE)
        rows = ",\n".join(f"   {json.dumps(asdict(row))}" for row in machine.rows)
        parts.append(f'  {{{head}, "rows": [\n{rows}\n  ]}}')
    found = ",\n".join(parts)
    return f'{{\n "schema": "{native.SCHEMA}",\n "machines": [\n{found}\n ]\n}}\n'
