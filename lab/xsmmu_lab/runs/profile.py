# SPDX-License-Identifier: GPL-2.0-only
"""The distribution of a call's instructions: QEMU's gdb stub single-steps a guest through a function.

The guest runs the lab module's `micro` workload. First the guest sends its symbols and waits; the host sets a
breakpoint, resumes the guest, counts hits, and steps through one call. A steady call says more than an average: each
instruction has an address, so each belongs to a function.
"""

from __future__ import annotations

import asyncio
import bisect
import difflib
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from xsmmu.errors import UserError, unknown_name
from xsmmu_lab.arch import AMD64
from xsmmu_lab.runs import experiment
from xsmmu_lab.runs import run as lab
from xsmmu_lab.setup import host, kernels, root
from xsmmu_lab.vm.guest import Boot, Guest, Record
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS
from xsmmu_lab.vm.machine import DEVICES

RING = 1024
"""Pages that a round of `micro` maps and then unmaps."""
TIMEOUT_S = 900
MAX_STEPS = 200_000

_RSP, _RIP = 7, 16
_COUNTED = (
    "Counted: instructions executed from the function's first until it has returned, each in the function it stands"
    " in (callees apart; a repeated string instruction counts once a repetition), with interrupts held off."
)

_PLAN = """\
session_open {policy} {device.driver} unmodified {device.bdf}
arguments ring={ring} rounds={rounds}
grep ' [tTwW] ' /proc/kallsyms | sed 's/\\t/ /; s/.*/{{"event":"symbol","line":"&"}}/' >&3
# Waits for the host: a break on the marker port reads as one byte.
exec 4</dev/ttyS1
stty raw -echo <&4
emit '{{"event":"ready"}}'
dd bs=1 count=1 <&4 >/dev/null 2>&1
work micro
session_close
"""


@dataclass(frozen=True)
class Part:
    """A function's share of a call."""

    function: str
    module: str
    instructions: int
    share: float


@dataclass(frozen=True)
class Profile:
    """A call by function, the largest first."""

    kernel: str
    iommu: str
    policy: str
    function: str
    call: int
    instructions: int
    parts: tuple[Part, ...]


class EndedError(Exception):
    """The guest ended while the stub was in use; the guest's own records give the reason."""


class Stub:
    """A client of the remote serial protocol, sufficient to step through x86-64 code."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def request(self, command: str) -> str:
        """Send a packet and return the reply; a stub replies with nothing to an unknown packet."""
        body = command.encode()
        try:
            self._writer.write(b"$%b#%02x" % (body, sum(body) & 255))
            await self._reader.readuntil(b"$")  # acknowledgements are skipped: a local socket loses nothing
            reply = (await self._reader.readuntil(b"#"))[:-1]
            checksum = int(await self._reader.readexactly(2), 16)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise EndedError from None
        if sum(reply) & 255 != checksum:
            raise UserError(f"the gdb stub's reply to '{command}' arrived damaged")
        self._writer.write(b"+")
        text = reply.decode("ascii")
        if text[:1] in ("W", "X"):
            raise EndedError
        if not text or (len(text) == 3 and text.startswith("E")):
            raise UserError(f"the gdb stub refused '{command}' ({text or 'unknown'})")
        return text

    async def place(self) -> tuple[int, int]:
        """The instruction pointer and the stack pointer."""
        registers = bytes.fromhex((await self.request("g"))[: 16 * (_RIP + 1)])
        rip, rsp = (int.from_bytes(registers[8 * n : 8 * n + 8], "little") for n in (_RIP, _RSP))
        return rip, rsp

    async def call(self) -> Counter[int]:
        """Step from a function's first instruction to its return; counts executions of each address."""
        rip, entry_rsp = await self.place()
        return_to = int.from_bytes(bytes.fromhex(await self.request(f"m{entry_rsp:x},8")), "little")
        seen: Counter[int] = Counter()
        rsp = entry_rsp
        while (rip, rsp) != (return_to, entry_rsp + 8):
            seen[rip] += 1
            if seen.total() > MAX_STEPS:
                raise UserError(f"the call did not return within {MAX_STEPS:,} instructions: choose a smaller function")
            await self.request("s")
            rip, rsp = await self.place()
        return seen

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


class Symbols:
    """The functions of /proc/kallsyms, by name and by address."""

    def __init__(self, lines: Iterable[str]) -> None:
        found: dict[int, tuple[str, str]] = {}
        self._places: dict[str, dict[int, str]] = {}
        for address, _, name, *module in map(str.split, lines):
            entry = (name, module[0].strip("[]") if module else "kernel")
            found.setdefault(int(address, 16), entry)
            self._places.setdefault(name, {})[int(address, 16)] = entry[1]
        self._addresses = sorted(found)
        self._entries = [found[address] for address in self._addresses]

    def address(self, name: str) -> int:
        """The function's first address; the module's own function wins over others of the same name."""
        places = self._places.get(name, {})
        own = [address for address, module in places.items() if module == "xsmmu"]
        choice = own or list(places)
        if not choice:
            raise unknown_name("function", name, difflib.get_close_matches(name, self._places) or ["/proc/kallsyms"])
        if len(choice) > 1:
            raise UserError(f"{len(choice)} functions are named '{name}': choose a function with a unique name")
        return choice[0]

    def parts(self, seen: Counter[int]) -> tuple[Part, ...]:
        """Executed addresses, by function."""
        counts: Counter[tuple[str, str]] = Counter()
        for address, count in seen.items():
            index = bisect.bisect_right(self._addresses, address) - 1
            counts[self._entries[index] if index >= 0 else ("?", "?")] += count
        return tuple(Part(*entry, count, count / seen.total()) for entry, count in counts.most_common())


class _Profiler:
    """Receives the guest's records, and steps through the call when the guest is ready."""

    def __init__(self, socket: Path, function: str, call: int) -> None:
        self._socket, self._function, self._call = socket, function, call
        self._lines: list[str] = []
        self.release = ""
        self.hits = 0
        self.parts: tuple[Part, ...] = ()

    async def on_record(self, guest: Guest, record: Record) -> None:
        if record["event"] == "boot":
            self.release = record["release"]
        elif record["event"] == "symbol":
            self._lines.append(record["line"])
        elif record["event"] == "ready":
            guest.doing = f"at call {self._call:,} of {self._function}"
            symbols = Symbols(self._lines)
            address = symbols.address(self._function)
            stub = Stub(*await asyncio.open_unix_connection(self._socket))
            try:
                self.parts = symbols.parts(await self._one_call(guest, stub, address))
            except EndedError:
                pass
            finally:
                stub.close()

    async def _one_call(self, guest: Guest, stub: Stub, address: int) -> Counter[int]:
        await stub.request(f"Z1,{address:x},1")
        await guest.qmp("chardev-send-break", id="marker")
        while True:
            await stub.request("c")
            self.hits += 1
            if self.hits == self._call:
                break
            await stub.request("s")
        await stub.request(f"z1,{address:x},1")
        seen = await stub.call()
        await stub.request("D")  # the guest continues to its checked end
        return seen


def run(
    kernel_name: str | None, policy: str, function: str, call: int, console: Console, iommu: str = DEFAULT_IOMMU
) -> Profile:
    """Profile one call; leaves nothing behind. Raises UserError."""
    if policy not in experiment.POLICIES:
        raise unknown_name("policy", policy, experiment.POLICIES)
    if iommu not in IOMMUS:
        raise unknown_name("IOMMU", iommu, IOMMUS)
    if IOMMUS[iommu].arch != AMD64:
        raise UserError(
            f"a profile steps through {AMD64.name} code, and guests with {iommu} run other code: choose another IOMMU"
        )
    the_root = root.ensure(host.cache_dir(), console)
    kernel = kernels.ensure(the_root, kernel_name, console)
    ours = lab.modules(the_root, kernel, (policy,))
    plan = _PLAN.format(policy=policy, device=DEVICES["testdev"], ring=RING, rounds=call // RING + 2)
    image = lab.image(the_root, kernel, (), ours, plan, iommu=iommu)
    boot = Boot(kernel.vmlinuz, image, iommu=iommu, timeout_s=TIMEOUT_S, quiet_s=TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="xsmmu-profile-") as work:
        socket = Path(work) / "gdb"
        profiler = _Profiler(socket, function, call)
        qemu = [*the_root.qemu_command(), "-gdb", f"unix:{socket},server=on,wait=off"]
        guest = Guest("profile", qemu, boot, Path(work), profiler.on_record)
        with console.status(f"{kernel.release}, {policy}: call {call:,} of {function}"):
            asyncio.run(_run(guest))
    if not profiler.parts:
        advice = f"choose --calls up to {profiler.hits}" if profiler.hits else "choose another function"
        raise UserError(f"{function} was called {profiler.hits:,} times only in the run, not {call:,}: {advice}")
    total = sum(part.instructions for part in profiler.parts)
    return Profile(profiler.release, IOMMUS[iommu].words, policy, function, call, total, profiler.parts)


async def _run(guest: Guest) -> None:
    with lab.interruptible({guest.name: guest}):
        await guest.run()


def render(profile: Profile, console: Console) -> None:
    """Print the profile as a table, with total and counts."""
    table = Table(show_footer=True)
    table.add_column("function", "total", overflow="fold")
    table.add_column("module")
    table.add_column("instructions", f"{profile.instructions:,}", justify="right")
    table.add_column("share", "100.0%", justify="right")
    for part in profile.parts:
        table.add_row(part.function, part.module, f"{part.instructions:,}", f"{part.share:.1%}")
    where = f"{profile.policy} on {profile.kernel}, {profile.iommu}"
    what = f"{profile.function}, call {profile.call:,} of micro ring={RING}: {where}"
    console.print(what, highlight=False, soft_wrap=True)
    console.print(table)
    console.print(_COUNTED, highlight=False)
