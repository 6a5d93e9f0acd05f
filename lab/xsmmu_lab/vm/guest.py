# SPDX-License-Identifier: GPL-2.0-only
"""One guest: boot it, read its results, watch its console, and never leave it behind.

A guest speaks over four channels, all of them inherited file descriptors, so nothing is left in the file system: its
console (kept in a log and searched for fatal lines and unexpected faults), its results (JSON lines over a virtio port),
QEMU's trace (fed to the oracle) and QMP. A guest ends well only if it said `done` and powered off by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import math
import os
import re
import shutil
import signal
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xsmmu.errors import GuestError, UserError
from xsmmu_lab.vm import cpus, machine
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS
from xsmmu_lab.vm.oracle import Oracle

Record = dict[str, Any]
RecordHandler = Callable[["Guest", Record], Awaitable[None]]

FATAL = re.compile(
    r"WARNING: |BUG: |\bOops\b|Kernel panic|general protection fault|soft lockup|hard LOCKUP"
    r"|(list_add|list_del) corruption|kernel BUG at|blocked for more than \d+ seconds"
    r"|rcu.*(detected stall|detected expedited stall|self-detected stall)"
    r"|xsmmu: .*\bbug\b|Out of memory|unregister_netdevice: waiting"
)

_TIMESTAMP = r"\[ *(\d+\.\d+)\]"
FAULTS_ARE = re.compile(_TIMESTAMP + r"(?:\[ *[CT]\d+\])? xsmmu-lab: faults are (expected|unexpected)$")
"""The guest's kernel message (faults_are in lab/guest/lib.sh) that says whether faults are expected.

User space may have left a line open before the message.
"""
TIMESTAMP = re.compile(_TIMESTAMP)

TAIL_LINES = 25
FATAL_LINES = 40
FAULTS_LINGER_S = 0.5
"""Seconds of the guest's clock after an attack during which faults may still be reported."""
FATAL_GRACE_S = 1.5
"""Seconds that a dying kernel may log before the guest is killed."""
KVM_PROBE_S = 10.0
PIPE_BYTES = 1 << 20
TRACE_PAUSE_S = 0.02
"""Reading each line of a trace at once would take the CPU that QEMU needs."""


@dataclass(frozen=True)
class Boot:
    """The files to boot, and time limits."""

    kernel: Path
    initramfs: Path
    mode: machine.Mode = "cost"
    accel: machine.Accel = "tcg"
    iommu: str = DEFAULT_IOMMU
    memory_mib: int = 1024
    timeout_s: float = 1200
    quiet_s: float = 180
    """A guest without console line, result and trace for so many seconds hangs."""
    words: tuple[str, ...] = ()
    """More words for the kernel's command line."""
    cpus: int = machine.FREE_CPUS
    """vCPUs of a free-running guest."""

    @property
    def has_turns(self) -> bool:
        """Whether only one of QEMU's threads works at a time, so that a single CPU of the host is best."""
        return self.mode == "cost" and self.accel == "tcg"


class Guest:
    """A virtual machine, from start to power-off."""

    def __init__(self, name: str, qemu: Sequence[str], boot: Boot, folder: Path, on_record: RecordHandler) -> None:
        self.name = name
        self.oracle = Oracle(IOMMUS[boot.iommu])
        self.doing = "booting"
        """The guest's current activity, for messages."""
        self.began = 0.0
        """Time at which QEMU was started (time.monotonic())."""
        self.statements = 0
        """Number of the guest's messages about expected faults."""
        self._iommu = IOMMUS[boot.iommu]
        self._faults_until = -math.inf
        """End of expected faults, by the timestamps of the guest's kernel; inf while faults are expected."""
        self._qemu = qemu
        self._boot = boot
        self._folder = folder
        self._on_record = on_record
        self._tail: deque[str] = deque(maxlen=400)
        self._lines = 0
        """Number of console lines so far."""
        self._failure: list[str] = []
        """The first fatal line and the following lines of the kernel."""
        self._done = False
        self._progress = math.inf
        """Time of the last activity; inf before the guest runs."""
        self._markers_seen = asyncio.Condition()
        self._qmp: asyncio.StreamWriter | None = None
        self._deleted: dict[str, asyncio.Event] = {}
        """For each device that was unplugged, an event that QEMU has removed the device."""
        self._process: asyncio.subprocess.Process | None = None

    def tail(self, lines: int = TAIL_LINES) -> list[str]:
        """The console's last lines."""
        return list(self._tail)[-lines:]

    async def run(self) -> None:
        """Boot, handle every record, return when the guest has powered off; raises `UserError` on any failure."""
        with cpus.own() if self._boot.has_turns else contextlib.nullcontext() as cpu:
            await self._run_on(cpu)

    async def _run_on(self, cpu: int | None) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        disk = self._folder / f".{self.name}.disk"
        try:
            with disk.open("wb") as file:
                file.truncate(len(machine.DATA_DISKS) * machine.DATA_DISK_BYTES)
            async with asyncio.timeout(self._boot.timeout_s):
                await self._run(disk, cpu)
        except TimeoutError:
            raise self._error(f"not done after {self._boot.timeout_s:.0f} s") from None
        except OSError as error:
            raise self._error(f"cannot run: {error}") from None
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        finally:
            await self._kill()
            disk.unlink(missing_ok=True)

    async def qmp(self, execute: str, **arguments: str) -> None:
        """Send a QMP command, such as device_del. An error reply ends the run.

        A device is plugged in only after QEMU has removed all unplugged devices, which is later than in the guest,
        because the new device may reuse a slot.
        """
        assert self._qmp
        if execute == "device_del":
            self._deleted[arguments["id"]] = asyncio.Event()
        if execute == "device_add":
            for deleted in self._deleted.values():
                await deleted.wait()
        self._qmp.write(json.dumps({"execute": execute, "arguments": arguments}).encode() + b"\n")
        await self._qmp.drain()

    async def wait_for_marker(self, number: int) -> None:
        """Wait until the oracle has seen marker `number`; the guest's own record may overtake the trace."""
        async with self._markers_seen:
            try:
                async with asyncio.timeout(30):
                    await self._markers_seen.wait_for(lambda: self.oracle.markers >= number)
            except TimeoutError:
                raise self._error(f"marker {number} never appeared in QEMU's trace") from None

    async def _run(self, disk: Path, cpu: int | None) -> None:
        console_read, console_write = _pipe()
        trace_read, trace_write = _pipe()
        result, result_far = socket.socketpair()
        qmp, qmp_far = socket.socketpair()
        far_ends = (console_write, trace_write, result_far.detach(), qmp_far.detach())
        ends = machine.Endpoints(console_write, far_ends[2], far_ends[3], trace_write, disk)
        try:
            self._process = await self._spawn(ends, far_ends, cpu)
        finally:
            for fd in far_ends:
                os.close(fd)
        replies, self._qmp = await asyncio.open_connection(sock=qmp)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._talk(replies, self._qmp))
            stop = group.create_task(self._stop_when_quiet())
            await self._read_all(console_read, trace_read, result)
            await self._process.wait()
            stop.cancel()
        self._check_end()

    async def _read_all(self, console: int, trace: int, result: socket.socket) -> None:
        with (self._folder / f"{self.name}.console.log").open("wb") as log:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_console(console, log))
                group.create_task(self._read_trace(trace))
                group.create_task(self._read_results(result))

    async def _spawn(self, ends: machine.Endpoints, fds: Sequence[int], cpu: int | None) -> asyncio.subprocess.Process:
        boot = self._boot
        self.began = time.monotonic()
        arguments = machine.qemu_arguments(
            boot.mode, boot.accel, boot.iommu, boot.memory_mib, self.oracle.events, ends, boot.cpus
        )
        arguments += machine.boot_arguments(boot.kernel, boot.initramfs, boot.iommu, boot.words)
        with (self._folder / f"{self.name}.qemu.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *dies_with_us(),
                *cpus.stay_on(cpu),
                *self._qemu,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=tuple(fds),
                start_new_session=True,
            )

    async def _read_console(self, fd: int, log: Any) -> None:
        rest = b""
        async for data in _chunks(fd):
            log.write(data)
            log.flush()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._console_line(line)
        if rest:
            self._console_line(rest)

    def _console_line(self, text: bytes) -> None:
        line = text.decode(errors="replace").rstrip()
        self._tail.append(line)
        self._lines += 1
        if self._failure:
            self._failure.append(line)
        elif said := FAULTS_ARE.search(line):
            self._expect_faults(said[2] == "expected", float(said[1]))
        elif FATAL.search(line) or (self._iommu.faults.search(line) and not self._is_expected(line)):
            self._failure.append(line)
            asyncio.get_running_loop().call_later(FATAL_GRACE_S, self._kill_now)

    def _expect_faults(self, expected: bool, now: float) -> None:
        if expected == (self._faults_until == math.inf):
            word = "expected" if expected else "unexpected"
            raise self._error(f"said twice that faults are {word}: a part of its kernel's log is lost")
        self._faults_until = math.inf if expected else now + FAULTS_LINGER_S
        self.statements += 1

    def _is_expected(self, fault: str) -> bool:
        """Whether a fault is a refused access while such faults were expected.

        Later lines are judged by their timestamp, except a fault in a line that user space left open.
        """
        if not self._iommu.refusals.search(fault):
            return False
        said = TIMESTAMP.match(fault)
        return self._faults_until == math.inf or (said is not None and float(said[1]) < self._faults_until)

    async def _read_trace(self, fd: int) -> None:
        # A shallow pipe would be full before the end of a pause.
        deep = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) >= PIPE_BYTES
        async for data in _chunks(fd, TRACE_PAUSE_S if deep else 0.0):
            before = self.oracle.markers
            self.oracle.feed(data)
            if self.oracle.markers != before:
                async with self._markers_seen:
                    self._markers_seen.notify_all()

    async def _read_results(self, end: socket.socket) -> None:
        rest = b""
        with (self._folder / f"{self.name}.jsonl").open("wb") as raw:
            async for data in _chunks(end.detach()):
                raw.write(data)
                raw.flush()
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    await self._record(line)

    async def _record(self, line: bytes) -> None:
        self._progress = time.monotonic()
        try:
            record = json.loads(line)
            event = record["event"]
        except (ValueError, TypeError, KeyError):
            raise self._error(f"sent a result that is no JSON object with an event: {line[:200]!r}") from None
        if event == "error":
            raise self._error(str(record.get("message")), record.get("lines", ()))
        if event == "done":
            self._done = True
        if event == "qmp":
            await self.qmp(record["execute"], **record.get("arguments", {}))
        await self._on_record(self, record)

    async def _talk(self, replies: asyncio.StreamReader, commands: asyncio.StreamWriter) -> None:
        commands.write(b'{"execute":"qmp_capabilities"}\n')
        with contextlib.suppress(ConnectionError):
            async for line in replies:
                self._reply(json.loads(line))
        commands.close()

    def _reply(self, reply: Record) -> None:
        if "error" in reply:
            raise self._error(f"QEMU refused a command: {reply['error']['desc']}")
        if reply.get("event") == "DEVICE_DELETED" and (deleted := self._deleted.get(reply["data"].get("device", ""))):
            deleted.set()

    async def _stop_when_quiet(self) -> None:
        lines, markers = 0, 0
        self._progress = time.monotonic()
        while True:
            await asyncio.sleep(1)
            seen = (self._lines, self.oracle.markers)
            if seen != (lines, markers):
                lines, markers = seen
                self._progress = time.monotonic()
            if time.monotonic() - self._progress > self._boot.quiet_s:
                raise self._error(f"hangs: nothing happened for {self._boot.quiet_s:.0f} s")

    def _check_end(self) -> None:
        assert self._process
        if self._failure:
            raise self._error("")
        if not self._done:
            log = self._folder / f"{self.name}.qemu.log"
            said = log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []
            said += [line.decode(errors="replace") for line in self.oracle.other_lines[-5:]]
            code = self._process.returncode
            raise self._error(f"stopped before it was done (QEMU ended with {code})", [*said, *self.tail()])
        if self._faults_until == math.inf:
            raise self._error("never said that faults are unexpected again: a part of its kernel's log is lost")

    def _error(self, message: str, lines: Sequence[str] = ()) -> GuestError:
        """An error that names the guest. A dying kernel's messages come before consequential errors."""
        if self._failure:
            return GuestError(
                f"guest {self.name} failed ({self.doing}): {self._failure[0].strip()}", self._failure[:FATAL_LINES]
            )
        return GuestError(f"guest {self.name} ({self.doing}): {message}", lines or self.tail())

    def _kill_now(self) -> None:
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)

    async def _kill(self) -> None:
        self._kill_now()
        if self._process:
            await self._process.wait()


def first_error(error: BaseException) -> BaseException:
    """The cause of a task group's failure: the first error of the lab's own, else the first of any kind."""
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if isinstance(leaf, UserError)), leaves[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def dies_with_us(name: str = "KILL") -> list[str]:
    """A wrapper that makes the kernel signal a child when this process dies in any way."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", name, "--"] if setpriv else []


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    # A deep pipe lets QEMU continue while this process is busy; without the permission a shallow pipe does.
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read, write


async def _chunks(fd: int, pause_s: float = 0.0) -> AsyncIterator[bytes]:
    """Data from a descriptor in chunks, until the end; then closes. After a pause the chunks are fewer and larger."""
    os.set_blocking(fd, False)
    try:
        while True:
            try:
                data = os.read(fd, PIPE_BYTES)
            except BlockingIOError:
                await _readable(fd)
                continue
            except ConnectionError:
                return
            if not data:
                return
            yield data
            await asyncio.sleep(pause_s)
    finally:
        os.close(fd)


async def _readable(fd: int) -> None:
    """Wait until there is data. The loop does not watch the descriptor between waits, which would keep it awake."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def kvm_works(qemu: Sequence[str], boot: Boot, folder: Path) -> bool:
    """Whether KVM boots this kernel; a /dev/kvm that opens may still hang before the first line."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    seen = asyncio.Event()

    async def ignore(_guest: Guest, _record: Record) -> None:
        seen.set()

    probe = Boot(boot.kernel, boot.initramfs, "free", "kvm", boot.iommu, boot.memory_mib, KVM_PROBE_S, KVM_PROBE_S)
    guest = Guest("kvm-probe", qemu, probe, folder, ignore)
    with contextlib.suppress(UserError, ExceptionGroup):
        task = asyncio.ensure_future(guest.run())
        waiter = asyncio.ensure_future(seen.wait())
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        for each in (task, waiter):
            each.cancel()
        await asyncio.gather(task, waiter, return_exceptions=True)
    return seen.is_set()
