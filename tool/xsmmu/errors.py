# SPDX-License-Identifier: GPL-2.0-only
"""The error that ends a command: a message for people, more lines of output, and a code for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class UserError(Exception):
    """A fact and a remedy; `lines` are the last lines of output of a guest or a program.

    `code` is printed with `-o json` (docs/tool.md lists the codes). `status` is the exit status; by default 2 for code
    `usage` and 1 for other codes.
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
    """A run failed in or after the guest; consoles and raw results are kept."""


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """An error for a name that is not in a list."""
    return UserError(f"unknown {kind} '{name}': choose from {', '.join(valid)}", code="unknown-name")
