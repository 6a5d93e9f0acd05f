# SPDX-License-Identifier: GPL-2.0-only
"""A user's command as a session of its own, so that all of its children can be ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

from xsmmu import steps

END_S: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""


@contextlib.contextmanager
def started(command: Sequence[str], stdout: IO[Any], stderr: IO[Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command without standard input; an exception in the context ends the command and all children."""
    process = None
    try:
        # Signals are blocked until `process` is set. The new session makes the command a process group.
        with steps.later(*steps.STOPPING):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=_unblock,
            )
        yield process
    except BaseException:
        with steps.later(*steps.STOPPING):
            if process:
                _end(process)
        raise


def _unblock() -> None:
    """Unblock signals in the child."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
