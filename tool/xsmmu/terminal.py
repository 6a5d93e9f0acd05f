# SPDX-License-Identifier: GPL-2.0-only
"""A terminal whose keys are read one by one, as they are pressed, and which is as before afterwards."""

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
"""Where tcgetattr() has the control characters."""


def keys(typed: str) -> list[str]:
    """What was typed: up, down, enter, escape, space, or the character; other function keys are left out."""
    found = []
    for match in _KEY.finditer(typed):
        if match["arrow"]:
            found.append("up" if match["arrow"] == "A" else "down")
        elif match["one"]:
            found.append(_NAMES.get(match["one"], match["one"]))
    return found


class Keyboard:
    """The terminal behind a descriptor, in a mode where each key comes at once and is not shown.

    Ctrl-C works as before. Ctrl-Z does not stop the program: the shell would be left on its screen.
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
        """The keys that are pressed within so long, as soon as there are any; None when the terminal has gone."""
        ready, _, _ = select.select([self.descriptor], [], [], max(seconds, 0))
        if not ready:
            return []
        try:
            typed = os.read(self.descriptor, 1024)
        except OSError:
            return None
        return keys(typed.decode(errors="replace")) if typed else None
