# SPDX-License-Identifier: GPL-2.0-only
"""The checkout that the lab builds and reads its own files from, and the checkout's commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
LAB = PROJECT / "lab"
RESULTS = PROJECT / "results"
PYTHONPATH = os.pathsep.join(str(PROJECT / folder) for folder in ("tool", "lab", "scripts"))
"""The folders of the checkout's Python packages, for child processes."""

DIRTY = "-dirty"
_UNKNOWN = "unknown"


def commit() -> str:
    """The checkout's commit, with `-dirty` where tracked files differ; `unknown` outside of a checkout."""

    def git(*arguments: str) -> str | None:
        result = subprocess.run(["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, check=False)
        return result.stdout.strip() if result.returncode == 0 else None

    try:
        head, differences = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    except OSError:
        return _UNKNOWN
    if head is None:
        return _UNKNOWN
    # If git cannot tell, there may be differences.
    return head if differences == "" else f"{head}{DIRTY}"


def is_named(what: str) -> bool:
    """Whether `what` names a commit that the tree matched exactly, so equal names mean equal trees."""
    return what != _UNKNOWN and not what.endswith(DIRTY)
