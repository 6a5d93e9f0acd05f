# SPDX-License-Identifier: GPL-2.0-only
"""A command of the user's as a process: with all that it starts it is one session, of which nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

from xsmmu import steps

END_S: Final = 5.0
"""How long a command that is stopped has to end by itself."""


@contextlib.contextmanager
def started(command: Sequence[str], stdout: IO[Any], stderr: IO[Any]) -> Iterator[subprocess.Popen[bytes]]:
    """It, without standard input; ended with all its children if what is done within fails, or at Ctrl-C."""
    process = None
    try:
        # A signal waits until it is known what there is to end. With a session of its own that is one group.
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
    """In a child: let signals through, whatever waits here."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
