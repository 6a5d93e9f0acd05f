# SPDX-License-Identifier: GPL-2.0-only
"""One boot of User-Mode Linux, a process that is ended by SIGKILL: it spins after SIGTERM."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from xsmmu.errors import UserError
from xsmmu_lab.native.build import Machine

MEMORY: Final = "256M"
"""The code model of the kernel and its modules allows no more."""
_SILENT_S: Final = 60
_OUTPUT_MAX_BYTES: Final = 16 << 20
_LAST_LINES: Final = 20


def boot(machine: Machine, plan: str, cpus: Sequence[int], on_event: Callable[[dict[str, Any]], None]) -> None:
    """Boot with a plan, pinned to these CPUs of the host, and hand over each event until it is done."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="xsmmu-native-", dir=shared if shared.is_dir() else None) as name:
        folder = Path(name)
        machine.image.add("plan", plan.encode())
        (folder / "image").write_bytes(machine.image.archive())
        argv = [
            str(machine.program),
            f"mem={MEMORY}",
            f"ncpus={len(cpus)}",
            "seccomp=on",
            f"initrd={folder / 'image'}",
            f"uml_dir={folder}/",
            *("con=null", "con0=null,fd:1", "loglevel=5", "panic=-1"),
        ]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": name, "HOME": name},
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
        try:
            _listen(process, on_event)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _listen(process: subprocess.Popen[bytes], on_event: Callable[[dict[str, Any]], None]) -> None:
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    rest, total, heard = b"", 0, time.monotonic()
    while True:
        ready, _, _ = select.select([descriptor], [], [], 1.0)
        if not ready:
            if time.monotonic() - heard > _SILENT_S:
                raise UserError(f"User-Mode Linux was silent for {_SILENT_S} s", list(last))
            continue
        data = os.read(descriptor, 1 << 16)
        total += len(data)
        if not data:
            raise UserError("User-Mode Linux ended early", list(last))
        if total > _OUTPUT_MAX_BYTES:
            raise UserError("User-Mode Linux floods its console", list(last))
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            last.append(text)
            if not text.startswith("@"):
                continue
            heard = time.monotonic()
            event = _event(text)
            if event["event"] == "error":
                raise UserError(f"in User-Mode Linux: {event['message']}", list(last)[:-1])
            if event["event"] == "done":
                return
            on_event(event)


def _event(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text[1:])
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise UserError("User-Mode Linux printed a line that is no event", [text])
    return event
