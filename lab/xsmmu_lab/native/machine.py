# SPDX-License-Identifier: GPL-2.0-only
"""One boot of User-Mode Linux, a process that is ended by SIGKILL: it spins after SIGTERM."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from xsmmu.errors import UserError
from xsmmu_lab.native.build import Machine
from xsmmu_lab.vm.guest import dies_with_us

MEMORY_MIB: Final = 256
"""The code model of the kernel and its modules allows no more."""
_FOLDER_MIB: Final = MEMORY_MIB + 32
"""The memory is a file, and the image is another."""
_PAGE: Final = 4096
_PAGES: Final = 256
_STRIDE: Final = 37
_SILENT_S: Final = 60
_OUTPUT_MAX_BYTES: Final = 16 << 20
_LAST_LINES: Final = 20


def pad(machine: Machine, boots: int) -> None:
    """Give the next boot another layout of memory than the boots before; the same one for the same number of boots.

    The places of pages, slots and batches relative to each other cost up to 25 ns a page, in one layout of ten or so.
    """
    machine.image.add("pad", random.Random(boots).randbytes(_PAGE * (1 + boots * _STRIDE % _PAGES)))


def boot(
    machine: Machine,
    lines: Iterator[str],
    cpus: Sequence[int],
    on_event: Callable[[dict[str, Any]], None],
    beside: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> None:
    """Boot, pinned to these CPUs of the host, and hand over each event. The answer to an event is the next line.

    `lines` may depend on all events before. The machine is ended where they end. The field `waited` of an event is the
    part of the time since the line for which the machine was ready to run, and another program had its CPU. `beside`
    makes a context from the machine's process.
    """
    with tempfile.TemporaryDirectory(prefix="xsmmu-native-", dir=memory_folder()) as name:
        folder = Path(name)
        (folder / "image").write_bytes(machine.image.archive())
        argv = [
            *dies_with_us(),
            str(machine.program),
            f"mem={MEMORY_MIB}M",
            f"ncpus={len(cpus)}",
            "seccomp=on",
            f"initrd={folder / 'image'}",
            f"uml_dir={folder}/",
            *("con=null", "con0=fd:0,fd:1", "loglevel=5", "panic=-1", "rcupdate.rcu_expedited=1"),
        ]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": name, "HOME": name},
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
        try:
            with beside(process.pid):
                _converse(process, lines, on_event, len(cpus))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def memory_folder(places: Sequence[str] = ("/dev/shm", tempfile.gettempdir())) -> str:
    """A folder for the memory of User-Mode Linux, which executes that memory, and is killed where it has no room."""
    for place in places:
        try:
            found = os.statvfs(place)
        except OSError:
            continue
        if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= _FOLDER_MIB << 20:
            return place
    raise UserError(
        f"no folder for the memory of User-Mode Linux: it needs {_FOLDER_MIB} MiB free, without noexec, in"
        f" {' or '.join(dict.fromkeys(places))}: free some space, or name another folder in TMPDIR"
    )


def _converse(
    process: subprocess.Popen[bytes], lines: Iterator[str], on_event: Callable[[dict[str, Any]], None], cpus: int
) -> None:
    assert process.stdin is not None
    began, waited = time.monotonic_ns(), _waited_ns(process.pid)
    for event in _events(process):
        # The kernel adds a wait when it ends, so the wait may have begun before the line.
        part = (_waited_ns(process.pid) - waited) / max(time.monotonic_ns() - began, 1) / cpus
        event["waited"] = min(part, 1.0)
        on_event(event)
        line = next(lines, None)
        if line is None:
            return
        began, waited = time.monotonic_ns(), _waited_ns(process.pid)
        with contextlib.suppress(BrokenPipeError):  # the next read of its output finds the end
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()


def _waited_ns(pid: int) -> int:
    """Time that threads of a process were ready to run while another program had their CPU; 0 if not readable."""
    total = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(file.read_text().split()[1])
    return total


def _events(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Events until the machine ends. Raises for an error, an end, silence, and too much output."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    rest, total, heard = b"", 0, time.monotonic()
    while True:
        ready, _, _ = select.select([descriptor], [], [], 1.0)
        # Warnings of a kernel that hangs are no sign of life.
        if time.monotonic() - heard > _SILENT_S:
            raise UserError(f"User-Mode Linux was silent for {_SILENT_S} s", list(last))
        if not ready:
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
            yield event
            heard = time.monotonic()


def _event(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text[1:])
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise UserError("User-Mode Linux printed a line that is no event", [text])
    return event
