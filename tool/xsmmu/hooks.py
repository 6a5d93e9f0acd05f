# SPDX-License-Identifier: GPL-2.0-only
"""The user's commands around a rebind, and the wait for interfaces and disks after a bind."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Final

from xsmmu import process
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.steps import Step

NAMES_S: Final = 10.0
"""Seconds until interfaces and disks must have reappeared after a bind."""
HOOK_S: Final = 120.0
"""Seconds that a user's command may take."""


def names(devices: Iterable[Device]) -> set[str]:
    """Names of the devices' interfaces and disks."""
    # A Device caches its names, so look through new objects.
    return {name for each in devices for name in Device(each.address).names}


def wait_for(wanted: set[str], devices: Iterable[Device]) -> None:
    """Wait until the names have reappeared."""
    end = time.monotonic() + NAMES_S
    devices = list(devices)
    while missing := wanted - names(devices):
        if time.monotonic() > end:
            raise UserError(
                f"{', '.join(sorted(missing))} did not reappear within {NAMES_S:.0f} s after the bind: see the "
                "kernel log (dmesg)",
                code="names-gone",
            )
        time.sleep(0.05)


def run(
    option: str, command: str | None, remedy: str = "try the command alone in a shell, and correct the command"
) -> None:
    """Run a user's command; `remedy` ends the error of a failed command."""
    if not command:
        return
    # A file, because a background process of the command would keep a pipe open.
    with tempfile.TemporaryFile("w+") as said:
        try:
            with process.started(["sh", "-c", command], said, said) as hook:
                status = hook.wait(HOOK_S)
            how = f"ended with status {status}" if status else ""
        except subprocess.TimeoutExpired:
            how = f"took more than {HOOK_S:.0f} s"
        if how:
            said.seek(0)
            raise UserError(
                f"{option} '{command}' {how}: {remedy}",
                said.read().splitlines()[-20:],
                code="hook-failed",
            )


def around(devices: Sequence[Device], before: str | None, after: str | None) -> tuple[list[Step], list[Step]]:
    """Steps before drivers are unbound, and after drivers are bound.

    Undoing a rebind unbinds and binds too: the undo of the last step runs `before`, and the undo of the first step runs
    `after`. A failure of `after` undoes nothing, because another rebind would not help the interfaces.
    """
    if not before and not after:
        return [], []
    wanted = names(devices)
    present = " && ".join(f"[ -e {shlex.quote(str(link))} ]" for each in devices for link in each.links)

    def begin() -> None:
        run("--before", before)

    def wait() -> None:
        wait_for(wanted, devices)

    def end() -> None:
        wait()
        run("--after", after)

    def last() -> None:
        run(
            "--after",
            after,
            "all other steps are done and stay; correct the command, and run the command alone in a shell",
        )

    return [Step(_shell(before), begin, end)], [
        Step(f"until {present}; do sleep 0.1; done" if present else "", wait),
        Step(_shell(after), last, begin, keeps=True),
    ]


def _shell(command: str | None) -> str:
    return f"sh -c {shlex.quote(command)}" if command else ""
