# SPDX-License-Identifier: GPL-2.0-only
"""Tables in /proc, with names as bytes, and the ancestors of this process."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from xsmmu import machine


def lines(name: str) -> list[str]:
    """Lines of a file of /proc; empty if not readable."""
    try:
        # The kernel escapes only blank, tab, newline and \ in paths.
        return os.fsdecode((machine.root("proc") / name).read_bytes()).split("\n")
    except OSError:
        return []


def words(line: str) -> list[str]:
    """Words of a line; other whitespace of Python may be part of a name."""
    return re.split("[ \t]+", line)


_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def unescaped(word: str) -> str:
    """A name without escapes."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), word)


def variable(name: str) -> str | None:
    """Environment variable of this session; sudo drops the variable, but ancestors still have it."""
    if name in os.environ:
        return os.environ[name]
    for process in _above():
        try:
            found = _variable(machine.root("proc") / process, name)
        except OSError:
            return None
        if found is not None:
            return found
    return None


def variables(name: str) -> set[str]:
    """Values of an environment variable in all readable processes."""
    found = set()
    for process in machine.root("proc").glob("[0-9]*"):
        # A process may end at any time.
        with contextlib.suppress(OSError):
            found.add(_variable(process, name) or "")
    return found - {""}


def _variable(process: Path, name: str) -> str | None:
    begin = f"{name}=".encode()
    found = (each for each in (process / "environ").read_bytes().split(b"\0") if each.startswith(begin))
    return next((each[len(begin) :].decode(errors="replace") for each in found), None)


def elsewhere() -> str | None:
    """Ancestor in another network namespace."""
    own = _network_of("self")
    for process in _above():
        if (its := _network_of(process)) and own and its != own:
            return f"{machine.text(machine.root('proc') / process / 'comm')} ({process})"
    return None


def _network_of(process: str) -> str | None:
    try:
        return (machine.root("proc") / process / "ns/net").readlink().name
    except OSError:
        return None


def _above() -> Iterator[str]:
    """Ancestors of this process, without init."""
    process = os.getppid()
    while process > 1:
        yield str(process)
        status = machine.text(machine.root("proc") / str(process) / "status") or ""
        parent = re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE)
        process = int(parent[1]) if parent else 0
