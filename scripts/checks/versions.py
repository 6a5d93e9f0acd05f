# SPDX-License-Identifier: GPL-2.0-only
"""Versions of the machine model that were compared, in model/validation.toml: hashes of sources, and figures."""

from __future__ import annotations

import hashlib
import math
import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from checks.comparison import MODEL, Row
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT

FILE: Final = MODEL / "validation.toml"


_DECIDE: Final = (
    *("model/*.[ch]", "model/*.toml", "model/machines/*", "model/drivers/*", "model/workloads/*"),
    *("trace/engine/*.[ch]", "core/*.[ch]", "core/include/xsmmu/*.h"),
)
"""Files that decide about figures."""


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A state of the model that was compared."""

    number: int
    reason: str
    commit: str
    fit: str
    """Commit of the fit."""
    files: dict[str, str]
    """Hash of each file that decides about figures."""
    figures: dict[str, list[float]] = {}
    """Value, low and high of each row that was computed."""


class _All(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: tuple[Version, ...] = ()


def versions(file: Path = FILE) -> list[Version]:
    """All versions, the oldest first."""
    if not file.exists():
        return []
    try:
        return [*msgspec.convert(tomllib.loads(file.read_text()), _All).version]
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UserError(f"{file}: {error}: restore the file by git") from None


def inputs() -> dict[str, str]:
    """Hashes of the sources and inputs of the model."""
    found = sorted(file for pattern in _DECIDE for file in PROJECT.glob(pattern) if file != FILE)
    return {str(file.relative_to(PROJECT)): hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in found}


def key(row: Row) -> str:
    """The name of a row in a version."""
    return f"{row.table}/{row.figure}/{row.name}"


def figures(rows: Iterable[Row]) -> dict[str, list[float]]:
    """The figures of a version."""
    return {
        key(row): [round(each, 6) for each in (row.value, row.low, row.high)]
        for row in rows
        if row.value is not None and row.low is not None and row.high is not None
    }


def check_unchanged(last: Version | None, now: Mapping[str, str]) -> None:
    """Refuse a model that differs from the last version."""
    if last is None:
        raise UserError("the model was never compared: make validate ACCEPT='the first comparison'")
    changed = [name for name in {**last.files, **now} if last.files.get(name) != now.get(name)]
    if changed:
        raise UserError(
            f"{changed[0]}{f' and {len(changed) - 1} more files' if len(changed) > 1 else ''} changed since version"
            f" {last.number}: give the change a version with make validate ACCEPT='REASON', which keeps the old errors",
            [f"changed: {name}" for name in changed],
        )


def text_of(all_: Sequence[Version]) -> str:
    """The content of model/validation.toml."""
    lines = [
        "# SPDX-License-Identifier: GPL-2.0-only",
        "#",
        "# Made by `make validate ACCEPT=REASON`: each state of the model that was compared with the published tables.",
    ]
    for version in all_:
        lines += ["", "[[version]]", f"number = {version.number}", f"reason = {_quoted(version.reason)}"]
        lines += [f'commit = "{version.commit}"', f'fit = "{version.fit}"', "", "[version.files]"]
        lines += [f"{_quoted(name)} = {_quoted(value)}" for name, value in version.files.items()]
        lines += ["", "[version.figures]"]
        lines += [f"{_quoted(name)} = {list(map(float, found))}" for name, found in version.figures.items()]
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def fit_commit() -> str:
    """The commit that has made the fit."""
    argv = ["git", "-C", str(PROJECT), "log", "-1", "--format=%h", "--", "model/fits.toml"]
    found = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    return found or "none"


def differences(last: Version, now: Mapping[str, Sequence[float]]) -> list[str]:
    """Figures that are not those of the version, although nothing has changed."""
    return [
        f"{name}: {found} is {now.get(name)} here"
        for name, found in last.figures.items()
        if name not in now or any(not math.isclose(a, b, rel_tol=1e-9) for a, b in zip(found, now[name], strict=True))
    ]
