# SPDX-License-Identifier: GPL-2.0-only
"""The checkout that the lab works on: what it builds, and its own files."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
LAB = PROJECT / "lab"
PYTHONPATH = os.pathsep.join(str(PROJECT / folder) for folder in ("tool", "lab", "scripts"))
"""Where the Python packages of the checkout are, for programs that it starts."""
