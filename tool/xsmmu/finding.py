# SPDX-License-Identifier: GPL-2.0-only
"""A finding of `xsmmu doctor`: severity, reason and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEVELS: Final = ("ok", "note", "risk", "blocks")
"""Levels by increasing severity."""


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    level: str
    """A word of LEVELS."""
    check: str
    """Name of the check, for programs."""
    subject: str
    """`machine`, `group N`, or a device's address."""
    reason: str
    remedy: str | None = None
    """A command or a setting that solves the problem."""
