# SPDX-License-Identifier: GPL-2.0-only
"""What `xsmmu doctor` found when it looked at one thing: how bad it is, why, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEVELS: Final = ("ok", "note", "risk", "blocks")
"""From what is as it should be to what stands in the way."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: str
    """One of LEVELS."""
    check: str
    """A word for programs."""
    subject: str
    """machine, group N, or a device's address."""
    reason: str
    remedy: str | None = None
    """A command or a setting."""
