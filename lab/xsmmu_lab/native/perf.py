# SPDX-License-Identifier: GPL-2.0-only
"""`make native PERF=1`: the functions and the locked instructions in which a policy spends its time.

The host's perf samples the process of User-Mode Linux by a timer; a virtual machine's CPU may have no counters. The
guest names its own functions, and objdump the instructions.
"""

from __future__ import annotations

import bisect
import contextlib
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from xsmmu.errors import UserError, unknown_name
from xsmmu_lab import policies
from xsmmu_lab.native import build, machine, plan
from xsmmu_lab.native.build import Machine
from xsmmu_lab.setup import host
from xsmmu_lab.setup.root import Root, ensure

_RUNS: Final = 64
_POLLS: Final = 256
"""Polls of a run. Many short runs, because one poll that takes long makes micro leave gaps between all later ones."""
_FREQUENCY: Final = 10000
_FUNCTION_MAX: Final = 1 << 14
"""Bytes of a function without a next one: what lies behind is the host's."""
_SHARE_MIN: Final = 0.005
_ASIDE: Final = re.compile(
    r"lab_clock|await_edge|loop_ticks|median_ticks|swaps_ticks|work_ticks|calibrate|poll_quietly|part_meet"
)
"""Functions of the bench that belong to no map and unmap."""
_PATH: Final = re.compile(r"xs_|\[xsmmu|dma|iommu|pt_|vtdss|iova|lab_poll|map_all|unmap_all|napi|gro")
"""Functions of the DMA path, and of the poll around it."""
_LOCKED: Final = re.compile(r"^\s*lock |^\s*xchg .*\(")


@dataclass(frozen=True)
class Symbol:
    """A function of the guest."""

    start: int
    name: str
    module: str


@dataclass(frozen=True)
class Profile:
    """Where the samples of a case are."""

    case: plan.Case
    samples: int
    functions: list[tuple[str, str, float]]
    """Function, module and share, the largest first."""
    locked: list[tuple[str, str, float]]
    """Function, instruction and share."""


def cases_of(policy: str, wait_ns: int) -> list[plan.Case]:
    """The plain cases of a policy, by kind of driver."""
    found = [case for case in plan.cases((wait_ns,), quick=True) if case.policy == policy]
    if not found:
        names = [*plan.KERNEL, *(name + end for name in policies.names() for end in ("", "-direct"))]
        raise unknown_name("policy", policy, names)
    return found


def program() -> str:
    """The host's perf, which can sample other processes. Raises UserError without it."""
    found = shutil.which("perf", path=host.system_env()["PATH"])
    if not found:
        raise UserError("there is no perf on this machine: install it (on Debian linux-perf)")
    tried = host.run([found, "record", "-e", "cpu-clock", "-o", "/dev/null", "--", "true"], env=host.system_env())
    if tried.returncode != 0:
        raise UserError(
            "perf may not sample here: run as root, or lower /proc/sys/kernel/perf_event_paranoid to 1",
            tried.stderr.splitlines(),
        )
    return found


@contextlib.contextmanager
def _recording(perf: str, pid: int, data: Path) -> Iterator[None]:
    words = [perf, "record", "-q", "-e", "cpu-clock", "-F", str(_FREQUENCY), "-o", str(data), "-p", str(pid)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=host.system_env())
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def profile(made: Machine, tools: Root, case: plan.Case, cpu: int) -> Profile:
    """Run a case for some seconds, and say where the time went."""
    perf = program()
    symbols: list[Symbol] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "symbols":
            symbols.extend(symbols_of(event["symbols"]))

    lines = iter(["symbols", *[case.line(_POLLS)] * _RUNS])
    with tempfile.TemporaryDirectory(prefix="xsmmu-perf-") as folder:
        data = Path(folder) / "data"
        machine.boot(made, lines, [cpu], on_event, lambda pid: _recording(perf, pid, data))
        said = host.run([perf, "script", "-i", str(data), "-F", "ip"], env=host.system_env())
    if said.returncode != 0:
        raise UserError("perf cannot read its own samples", said.stderr.splitlines())
    return counted(case, [int(word, 16) for word in said.stdout.split()], symbols, Listing(made, tools))


def symbols_of(text: str) -> list[Symbol]:
    """Functions in the form of /proc/kallsyms, by address."""
    found = []
    for line in filter(None, text.split(",")):
        address, name, *module = line.split()
        found.append(Symbol(int(address, 16), name, module[0].strip("[]") if module else ""))
    return sorted(found, key=lambda symbol: symbol.start)


class Listing:
    """Instructions of the kernel and its modules, by objdump."""

    def __init__(self, made: Machine, tools: Root) -> None:
        self._tools = tools
        self._files = {"": made.program, **{file.stem: file for file in made.modules}}
        self._modules: dict[str, dict[str, dict[int, str]]] = {}

    def of(self, symbol: Symbol, end: int) -> dict[int, str]:
        """A function's instructions, by their distance from its start."""
        if symbol.module not in self._files:
            return {}
        if symbol.module:
            if symbol.module not in self._modules:
                self._modules[symbol.module] = functions_of(self._dump(self._files[symbol.module]))
            return self._modules[symbol.module].get(symbol.name, {})
        span = (f"--start-address={symbol.start:#x}", f"--stop-address={end:#x}")
        return functions_of(self._dump(self._files[""], *span)).get(symbol.name, {})

    def _dump(self, file: Path, *options: str) -> str:
        done = self._tools.run(["objdump", "-d", "--no-show-raw-insn", *options, self._tools.inside(file)])
        return done.stdout if done.returncode == 0 else ""


def functions_of(text: str) -> dict[str, dict[int, str]]:
    """The instructions of each function in objdump's output. A name that occurs twice has none."""
    found: dict[str, dict[int, str]] = {}
    start, current = 0, dict[int, str]()
    for line in text.splitlines():
        head = re.fullmatch(r"([0-9a-f]+) <(\S+)>:", line)
        if head:
            start, current = int(head[1], 16), {}
            found[head[2]] = {} if head[2] in found else current
            continue
        at = re.match(r"\s+([0-9a-f]+):\s+(.+)", line)
        if at:
            current[int(at[1], 16) - start] = at[2].strip()
    return found


def counted(case: plan.Case, addresses: Iterable[int], symbols: Sequence[Symbol], listing: Listing) -> Profile:
    """The shares of functions and of locked instructions in the samples of the DMA path."""
    starts = [symbol.start for symbol in symbols]
    ends = [min(end, start + _FUNCTION_MAX) for start, end in pairwise([*starts, starts[-1] + _FUNCTION_MAX])]
    hits: Counter[tuple[int, int]] = Counter()
    for address in addresses:
        at = bisect.bisect_right(starts, address) - 1
        if at >= 0 and address < ends[at]:
            symbol = symbols[at]
            if not _ASIDE.search(symbol.name) and (symbol.module or _PATH.search(symbol.name)):
                hits[at, address - symbol.start] += 1
    total = sum(hits.values())
    if not total:
        raise UserError("perf saw nothing of the DMA path: try again")
    functions: Counter[tuple[str, str]] = Counter()
    locked: Counter[tuple[str, str]] = Counter()
    for at in {at for at, _ in hits}:
        symbol = symbols[at]
        of_function = {offset: count for (where, offset), count in hits.items() if where == at}
        functions[symbol.name, symbol.module] += sum(of_function.values())
        for words, count in _locked_in(listing.of(symbol, ends[at]), of_function).items():
            locked[symbol.name, words] += count
    return Profile(case, total, _shares(functions, total), _shares(locked, total))


def _locked_in(instructions: dict[int, str], hits: dict[int, int]) -> Counter[str]:
    """Samples at a locked instruction or at the next one: the timer's interrupt comes when the instruction is done."""
    found: Counter[str] = Counter()
    offsets = sorted(instructions)
    for at, offset in enumerate(offsets):
        if _LOCKED.match(instructions[offset]):
            near = [offset, *offsets[at + 1 : at + 2]]
            found[f"+{offset:#x} {instructions[offset]}"] += sum(hits.get(each, 0) for each in near)
    return found


def _shares(found: Counter[tuple[str, str]], total: int) -> list[tuple[str, str, float]]:
    return [(*key, count / total) for key, count in found.most_common() if count >= _SHARE_MIN * total]


def run(policy: str, wait_ns: int, cpu: int, console: Console) -> list[Profile]:
    """Profile a policy with each kind of driver."""
    cases = cases_of(policy, wait_ns)
    program()
    tools = ensure(host.cache_dir(), console)
    made = build.machine(tools, console)
    found = []
    for case in cases:
        with console.status(f"perf: {case}"):
            found.append(profile(made, tools, case, cpu))
    return found


def show(found: Profile, console: Console) -> None:
    """Print both tables."""
    console.print(f"{found.case}: {found.samples:,} samples of the DMA path", highlight=False)
    for title, second, rows in (("function", "module", found.functions), ("locked in", "instruction", found.locked)):
        table = Table(show_footer=True)
        table.add_column(title, overflow="fold")
        table.add_column(second, overflow="fold")
        table.add_column("share", f"{sum(share for *_, share in rows):.1%}", justify="right")
        for name, where, share in rows:
            table.add_row(name, where, f"{share:.1%}")
        console.print(table)
