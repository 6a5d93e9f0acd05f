# SPDX-License-Identifier: GPL-2.0-only
"""A terminal in a mode that delivers single keys; the earlier mode is restored afterwards."""

from __future__ import annotations

import os
import re
import select
import termios
import tty
from typing import Any, Final, Self

_KEY: Final = re.compile(r"\x1b[\[O](?P<arrow>[AB])|(?P<other>\x1b[\[O][0-9;]*[A-Za-z~])|(?P<one>.)", re.DOTALL)
_NAMES: Final = {"\x1b": "escape", "\r": "enter", "\n": "enter", " ": "space"}
_MODES: Final = 6
"""Index of the control characters in tcgetattr()."""


def keys(typed: str) -> list[str]:
    """Names of typed keys: up, down, enter, escape, space, or a character; other function keys are dropped."""
    found = []
    for match in _KEY.finditer(typed):
        if match["arrow"]:
            found.append("up" if match["arrow"] == "A" else "down")
        elif match["one"]:
            found.append(_NAMES.get(match["one"], match["one"]))
    return found


class Keyboard:
    """A terminal that delivers each key at once without echo.

    Ctrl-C works. Ctrl-Z is disabled, because the shell would be left on the alternate screen.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.before: list[Any] = []

    def __enter__(self) -> Self:
        self.before = termios.tcgetattr(self.descriptor)
        tty.setcbreak(self.descriptor)
        modes = termios.tcgetattr(self.descriptor)
        modes[_MODES][termios.VSUSP] = b"\0"
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, modes)
        return self

    def __exit__(self, *_error: object) -> None:
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self.before)

    def read(self, seconds: float) -> list[str] | None:
        """Keys pressed within a time, as soon as there are any; None if the terminal has hung up."""
        ready, _, _ = select.select([self.descriptor], [], [], max(seconds, 0))
        if not ready:
            return []
        try:
            typed = os.read(self.descriptor, 1024)
        except OSError:
            return None
        return keys(typed.decode(errors="replace")) if typed else None
