# SPDX-License-Identifier: GPL-2.0-only
"""What `xsmmu bench --machine M.toml` writes into the file of a machine (docs/model.md): CPU times, and the wait.

The kernel's lazy mode waits once in 256 unmaps, so its times are those of the software, and what strict takes more is
the wait of a command.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from xsmmu import files, model_files
from xsmmu.errors import UserError

_TIMES: Final = (
    ("kernel_map_ns", "kernel-lazy", "map_ns"),
    ("kernel_unmap_ns", "kernel-lazy", "unmap_ns"),
    ("engine_map_ns", "lazy", "map_ns"),
    ("engine_unmap_ns", "lazy", "unmap_ns"),
)
"""Parameter, policy, figure."""
_WAITS: Final = (("kernel-strict", "kernel-lazy"), ("strict", "lazy"))
"""Policies whose unmaps differ by a command and its wait; the first that was measured counts."""


def check(file: Path) -> None:
    """Refuse a file that is none of a machine, before anything is measured."""
    if not file.exists():
        raise UserError(
            f"{file} does not exist: copy a machine to begin with, from {model_files.folder() / 'machines'}",
            code="no-file",
        )
    model_files.described(file, "machine", model_files.parameters(), whole=False)


def measured(cpus: int, ranking: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """The parameters that a bench has measured, in their units."""
    medians = {row["policy"]: row for row in ranking}

    def of(policy: str, figure: str) -> float:
        return float(medians[policy][figure]["median"])

    yield "cores", cpus
    for name, policy, figure in _TIMES:
        if policy in medians:
            yield name, round(of(policy, figure))
    for strict, lazy in _WAITS:
        if strict in medians and lazy in medians:
            yield "command_wait_ns", max(0, round(of(strict, "unmap_ns") - of(lazy, "unmap_ns")))
            return


def fill(file: Path, cpus: int, ranking: Sequence[Mapping[str, Any]], device: str) -> list[str]:
    """Replace the lines of what was measured, or add them; returns the names of the parameters."""
    known, text = model_files.parameters(), file.read_text()
    source = f"xsmmu bench {device}, {time.strftime('%Y-%m-%d')}"
    found = dict(measured(cpus, ranking))
    for name, value in found.items():
        if fault := known[name].fault(value):
            raise UserError(f"{file}: {name}: {fault}: the file is as it was", code="bad-model")
        own = "lscpu" if name == "cores" else source
        line = f'{name} = {{ value = {value}, unit = "{known[name].unit}", how = "measured", source = "{own}" }}'
        text, count = re.subn(rf"^[ \t]*{name}[ \t]*=.*$", line, text, flags=re.MULTILINE)
        if not count:
            text = re.sub(r"^(\[parameters\][^\n]*)$", rf"\1\n{line}", text, count=1, flags=re.MULTILINE)
    files.replace(file, text)
    model_files.described(file, "machine", known, whole=False)
    return [*found]
