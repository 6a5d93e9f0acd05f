# SPDX-License-Identifier: GPL-2.0-only
"""The checkout that the lab builds and reads its own files from."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
LAB = PROJECT / "lab"
PYTHONPATH = os.pathsep.join(str(PROJECT / folder) for folder in ("tool", "lab", "scripts"))
"""The folders of the checkout's Python packages, for child processes."""
