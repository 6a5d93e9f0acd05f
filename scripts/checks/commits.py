# SPDX-License-Identifier: GPL-2.0-only
"""The form of commits: `area: imperative` in at most 72 characters, and a body."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

SUBJECT_MOST = 72
_SUBJECT = re.compile(r"[\w./*-]+(?:, [\w./*-]+)*: [a-z]\S*(?: \S+)+")
_OLD = "b5947b1"
"""The last commit before this check; earlier commits have other forms."""


def findings(folder: Path, old: str = _OLD) -> Iterator[str]:
    """Faults of the commits after `old` in a checkout; none if git does not know `old`."""
    log = ["git", "-C", str(folder), "log", "--no-merges", "--format=%h%x00%s%x00%b%x1e", f"{old}..HEAD"]
    said = subprocess.run(log, capture_output=True, text=True, check=False)
    for entry in said.stdout.split("\x1e") if said.returncode == 0 else ():
        if entry.strip():
            name, subject, body = entry.strip().split("\0")
            yield from (f"commit {name}: {fault}" for fault in faults(subject, body))


def faults(subject: str, body: str) -> Iterator[str]:
    """Faults of one message."""
    if len(subject) > SUBJECT_MOST:
        yield f"the subject has {len(subject)} characters: at most {SUBJECT_MOST}"
    if not _SUBJECT.fullmatch(subject):
        yield f"the subject '{subject}' is not 'area: imperative'"
    if not body.strip():
        yield "there is no body: say why, and how it was checked"
