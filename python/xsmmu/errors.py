# SPDX-License-Identifier: GPL-2.0-only
"""The one error that ends a command: a message for people, and what to show below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class LabError(Exception):
    """What was wrong, what was expected, what to do; `lines` are the guest's last lines, or a tool's."""

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.lines = tuple(lines)

    def __str__(self) -> str:
        return self.message


class GuestError(LabError):
    """A run failed in a guest or after it, so the consoles and raw results are worth keeping."""


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> LabError:
    """An error for a name that is not in a list, which names the list."""
    return LabError(f"unknown {kind} '{name}': choose from {', '.join(valid)}")
