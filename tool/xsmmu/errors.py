# SPDX-License-Identifier: GPL-2.0-only
"""The one error that ends a command: a message for people, what to show below it, and a word for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class UserError(Exception):
    """What was wrong, what was expected, what to do; `lines` are the guest's last lines, or a tool's.

    `code` is the word that `-o json` gives for it (the list is in docs/tool.md); `status` is the command's: 1, or 2 for
    a wrong command line (`usage`), where it is not said.
    """

    def __init__(
        self, message: str, lines: Sequence[str] = (), code: str = "failed", status: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.lines = tuple(lines)
        self.code = code
        self.status = status or (2 if code == "usage" else 1)

    def __str__(self) -> str:
        return self.message


class GuestError(UserError):
    """A run failed in a guest or after it, so the consoles and raw results are worth keeping."""


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """An error for a name that is not in a list, which names the list."""
    return UserError(f"unknown {kind} '{name}': choose from {', '.join(valid)}", code="unknown-name")
