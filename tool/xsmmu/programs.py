# SPDX-License-Identifier: GPL-2.0-only
"""The programs of the package xsmmu-trace, which the tool runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from xsmmu.errors import UserError

PACKAGE: Final = "xsmmu-trace"
FOLDER_VARIABLE: Final = "XSMMU_PROGRAMS"
"""Variable with another folder of the programs, for a build that is not installed."""
_ABOVE: Final = Path(__file__).resolve().parents
PREFIX: Final = _ABOVE[min(3, len(_ABOVE) - 1)]
"""Where the tool is installed: /usr, or the PREFIX of `make install`. A copy near the root has no such folder."""
DEBIAN: Final = Path("/usr")


def find(name: str) -> Path:
    """The program of this name; an error if it is not installed.

    The tool's own prefix comes first, so that `make install` finds its own build beside an installed package.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    folders = [Path(named)] if named else [prefix / "libexec/xsmmu" for prefix in (PREFIX, DEBIAN)]
    for folder in folders:
        program = folder / name
        if program.is_file() and os.access(program, os.X_OK):
            return program
    if named:
        raise UserError(
            f"{name} is not in {named}: correct {FOLDER_VARIABLE}, or unset it to use the package {PACKAGE}",
            code="not-installed",
        )
    raise UserError(f"{name} is not installed: install the package {PACKAGE}", code="not-installed")
