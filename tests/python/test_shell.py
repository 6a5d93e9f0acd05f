# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu lab shell`: on a pseudo-terminal, as a person would use it."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time

import pytest
from click.testing import CliRunner

from xsmmu.cli import app
from xsmmu.errors import UserError

PROMPT = r"xsmmu-lab# $"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "needs a terminal"),
        (("--iommu", "amd"), "unknown IOMMU 'amd': choose from vtd"),
        (("--driver", "ixgbe"), "unknown driver 'ixgbe': choose from e1000e, igb, nvme"),
    ],
)
def test_what_is_wrong_is_said_at_once(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(app, ["lab", "shell", *words], catch_exceptions=False)


class Terminal:
    """A process on a pseudo-terminal, and what it has printed."""

    def __init__(self, *words: str) -> None:
        self.text = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, *words])

    def type(self, text: str, until: str | None, seconds: float = 120) -> str:
        """Type, wait for a pattern in what is printed since (None: for the end of the process), and return that."""
        self.text = ""
        os.write(self._fd, text.encode())
        deadline = time.monotonic() + seconds
        while until is None or not re.search(until, self.text):
            assert time.monotonic() < deadline, self.text[-3000:]
            if select.select([self._fd], [], [], 1)[0]:
                try:
                    self.text += os.read(self._fd, 65536).decode(errors="replace")
                except OSError:
                    break
        return self.text

    def status(self) -> int:
        """How it ended, once it has."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.guest
def test_a_shell_with_the_module() -> None:
    terminal = Terminal("-m", "xsmmu", "lab", "shell", "--driver", "igb")
    assert "0000:01:00.0  igb" in terminal.type("", PROMPT, 400)
    assert re.search(r"\[none\].* fused", terminal.type("cat /sys/bus/pci/devices/0000:01:00.0/xsmmu/policy\n", PROMPT))
    assert "/drivers/igb" in terminal.type("readlink /sys/bus/pci/devices/0000:01:00.0/driver\n", PROMPT)
    terminal.type("sleep 1000\n", "sleep 1000")
    terminal.type("\x03", PROMPT)
    assert "back 2" in terminal.type("echo back $((1 + 1))\n", r"back 2[\s\S]*" + PROMPT)
    terminal.type("exit\n", None)
    assert terminal.status() == 0
