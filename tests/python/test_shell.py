# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu lab shell`: on a pseudo-terminal, as a user would run it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.python import guests

from xsmmu.cli import app
from xsmmu.errors import GuestError, UserError
from xsmmu_lab.runs import run as lab
from xsmmu_lab.runs import shell as the_shell
from xsmmu_lab.setup import kernels
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS

# The guest's shell may ask the terminal for the cursor's position after its prompt.
PROMPT = r"xsmmu-lab# (?:\x1b\[6n)?$"
ROWS, COLUMNS = 33, 101
STEP_S = 90


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "needs a terminal"),
        (("--iommu", "smmu"), "unknown IOMMU 'smmu': choose from vtd"),
        (("--kernel", "2.6"), "unknown kernel '2.6': choose from 6.12, 7.2"),
        (("--driver", "ixgbe"), "unknown driver 'ixgbe': choose from e1000e, igb, nvme"),
    ],
)
def test_what_is_wrong_is_said_at_once(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(app, ["lab", "shell", *words], catch_exceptions=False)


def test_a_guest_that_had_no_shell_says_why() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        the_shell._check(ours)
        its.send(b'{"event": "done"}\n{"event": "error", "message": "igb was not bound"}\n')
        with pytest.raises(GuestError, match="the guest had no shell: igb was not bound"):
            the_shell._check(ours)


class Terminal:
    """`xsmmu lab shell` on a pseudo-terminal, and its output since the last input."""

    def __init__(self, *words: str) -> None:
        self.text = self.first = ""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.pid = os.fork()
        if self.pid == 0:
            os.login_tty(slave)
            os.execv(sys.executable, [sys.executable, "-m", "xsmmu", "lab", "shell", *words])
        # The slave stays open: its settings are read when the command has ended.
        self.master, self.slave = master, slave
        self.status: int | None = None

    def type(self, text: str, until: str) -> str:
        """Type, wait for a pattern in the new output, and return the output."""
        self.text = ""
        os.write(self.master, text.encode())
        deadline = time.monotonic() + STEP_S
        while not re.search(until, self.text):
            assert time.monotonic() < deadline, self.text[-3000:]
            assert not self.ended(), self.text[-3000:]
            self._read()
        return self.text

    def _read(self) -> None:
        if select.select([self.master], [], [], 0.2)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")

    def ended(self) -> bool:
        """Whether the command has ended; `status` is its exit status."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def end(self) -> int:
        """Wait for the end of the command; returns its status."""
        deadline = time.monotonic() + STEP_S
        while not self.ended():
            assert time.monotonic() < deadline, self.text[-3000:]
            self._read()
        assert self.status is not None
        return self.status

    def children(self) -> list[int]:
        """The command's own processes."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def restored(self) -> bool:
        """Whether the terminal's settings are restored."""
        return termios.tcgetattr(self.slave) == self.before and os.get_blocking(self.slave)


@contextlib.contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    """The command, at its first prompt; ended if the test has not done so."""
    made = Terminal(*words)
    try:
        made.first = made.type("", PROMPT)
        yield made
    finally:
        if not made.ended():
            os.kill(made.pid, signal.SIGTERM)
            made.end()
        os.close(made.master)
        os.close(made.slave)


def build(iommu: str) -> None:
    """Build the guest's parts, so that a prompt takes only a boot."""
    tools = guests.tools(IOMMUS[iommu].arch)
    lab.modules(tools, kernels.ensure(tools))


@pytest.mark.guest
@pytest.mark.parametrize("iommu", [DEFAULT_IOMMU, pytest.param("smmuv3", marks=pytest.mark.long)])
def test_a_shell_with_the_module(iommu: str) -> None:
    build(iommu)
    with terminal("--driver", "igb", "--iommu", iommu) as made:
        assert "0000:01:00.0  igb" in made.first
        [qemu] = made.children()
        policy = "/sys/bus/pci/devices/0000:01:00.0/xsmmu/policy"
        assert re.search(r"\[none\].* fused", made.type(f"cat {policy}\n", PROMPT))
        assert "/drivers/igb" in made.type("readlink /sys/bus/pci/devices/0000:01:00.0/driver\n", PROMPT)
        assert f"{ROWS} {COLUMNS}" in made.type("stty size\n", PROMPT)
        # The program's own output shows that it runs; the echo of its line and the shell's output before do not match.
        made.type("echo beg''un >/tmp/begun; tail -f /tmp/begun; echo not he''re\n", r"\nbegun\s")
        assert "not here" not in made.type("\x03", PROMPT)
        assert "ended by 130" in made.type("echo ended b''y $?\n", PROMPT)
        os.write(made.master, b"exit\n")
        assert made.end() == 0
        assert made.restored()
        assert not Path(f"/proc/{qemu}").exists()


@pytest.mark.guest
@pytest.mark.parametrize("word", ["poweroff", "reboot -f", "halt"])
def test_a_word_that_people_type_to_end_a_machine(word: str) -> None:
    build(DEFAULT_IOMMU)
    with terminal() as made:
        os.write(made.master, f"{word}\n".encode())
        assert made.end() == 0
        assert made.restored()


@pytest.mark.guest
@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-A X"])
def test_it_is_ended_at_once(how: str) -> None:
    build(DEFAULT_IOMMU)
    with terminal() as made:
        [qemu] = made.children()
        if how == "SIGTERM":
            os.kill(made.pid, signal.SIGTERM)
        else:
            os.write(made.master, b"\x01x")
        assert made.end() == (130 if how == "SIGTERM" else 0)
        assert made.restored()
        assert not Path(f"/proc/{qemu}").exists()
