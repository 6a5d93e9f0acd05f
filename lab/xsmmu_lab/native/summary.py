# SPDX-License-Identifier: GPL-2.0-only
"""The file with the results of a measurement."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

SUMMARY: Final = "summary.json"


def write(summary: dict[str, Any], folder: Path) -> None:
    """Replace the summary in a folder, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{SUMMARY}-{os.getpid()}"
    try:
        part.write_text(json.dumps(summary, indent=1) + "\n")
        part.rename(folder / SUMMARY)
    finally:
        part.unlink(missing_ok=True)
