# SPDX-License-Identifier: GPL-2.0-only
"""Recordings from files of trace-cmd: the tracepoints `dma:*` of Linux 6.12 and later, or else `iommu:map` and `unmap`.

`trace-cmd report` reads the file, once for the facts of the header and once for the events, so memory is bounded. Raw
fields are read, which do not depend on the kernel's formats for people. What tracepoints do not tell is not guessed:
the header lists it, as for tracepoints that `xsmmu record` reads.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from xsmmu import trace_write
from xsmmu.errors import UserError
from xsmmu.machine import shown
from xsmmu.trace import EVERY_CPU, KINDS, LOST

MISSING: Final = (
    *("polls", "two-step calls", "addresses of unmapped lists", "pages of coherent memory", "queues"),
    *("memory that cannot be held", "IOMMU groups"),
)
MISSING_IOMMU: Final = (*MISSING, "devices", "directions", "coherent memory and registers told apart", "lists")
"""Of a file with `iommu:map` and `iommu:unmap` only."""

_MAP, _UNMAP, _MAP_LIST, _ENTRY, _ALLOC, _FREE, _SYNC_CPU, _SYNC_DEVICE = (
    KINDS.index(name) for name in ("map", "unmap", "map_list", "entry", "alloc", "free", "sync_cpu", "sync_device")
)
_FAILED, _SKIP_SYNC, _MMIO = 0x04, 0x08, 0x10
_DMA_ATTR_SKIP_CPU_SYNC, _DMA_ATTR_MMIO = 1 << 5, 1 << 10
_MAPPING_ERROR: Final = (1 << 64) - 1
_NO_DIRECTION: Final = 0
_PAGE_SHIFT: Final = 12
_FRAME_SHIFT: Final = 21
_FRAMES_ALL: Final = 1 << 40
_END: Final = 1 << 64
_DEVICES: Final = 1 << 16

_MAGIC: Final = b"\x17\x08\x44tracing"

_POINTS: Final = {
    "dma_map_page": _MAP,
    "dma_map_phys": _MAP,
    "dma_map_resource": _MAP,
    "dma_unmap_page": _UNMAP,
    "dma_unmap_phys": _UNMAP,
    "dma_unmap_resource": _UNMAP,
    "dma_map_sg": _MAP_LIST,
    "dma_map_sg_err": _MAP_LIST,
    "dma_unmap_sg": LOST,
    "dma_alloc": _ALLOC,
    "dma_alloc_pages": _ALLOC,
    "dma_alloc_sgt": _ALLOC,
    "dma_free": _FREE,
    "dma_free_pages": _FREE,
    "dma_free_sgt": _FREE,
    "dma_sync_single_for_cpu": _SYNC_CPU,
    "dma_sync_single_for_device": _SYNC_DEVICE,
    "dma_sync_sg_for_cpu": _SYNC_CPU,
    "dma_sync_sg_for_device": _SYNC_DEVICE,
}
"""Tracepoints of `dma:`, and the kind of their events; one with too little in it becomes a lost event."""

# The name of a task has up to 15 bytes of any kind, and stands in 16 columns before the number. Flags follow the CPU:
# behind it in trace-cmd 3.3, after a blank where they are asked for.
_LINE: Final = re.compile(r"^.{0,16}-\d+ +\[(\d+)\]\S* +(?:\S+ +)?(\d+)\.(\d{9}): +(\w+): +(.*)$", re.DOTALL)
_DROPPED: Final = re.compile(r"^CPU:(\d+) \[(?:(\d+) )?EVENTS DROPPED\]")
_FIELD: Final = re.compile(r"(\w+)=(ARRAY\[[^]]*\]|\S*)")


class Traced(NamedTuple):
    """An event of a tracepoint, or without a name a loss of a CPU, of `number` events if that is known."""

    ns: int
    cpu: int
    name: str
    fields: dict[str, str]
    number: int = 0

    def value(self, name: str, without: int | None = None) -> int:
        """A number; `without` if the tracepoint has no such field."""
        if without is not None and name not in self.fields:
            return without
        try:
            found = int(self.fields[name], 0)
        except (KeyError, ValueError):
            found = -1
        if not 0 <= found < _END:
            raise self.wrong(name)
        return found

    def values(self, name: str, size: int) -> list[int]:
        """An array of numbers, which is printed as bytes."""
        text = self.fields.get(name, "")
        try:
            data = bytes.fromhex(text.removeprefix("ARRAY[").removesuffix("]").replace(",", " "))
        except ValueError:
            data = b""
        if not text.startswith("ARRAY[") or len(data) % size:
            raise self.wrong(name)
        return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]

    def wrong(self, name: str) -> UserError:
        """An error: a field is not as a kernel writes it."""
        found = f"{name}={shown(self.fields[name])}" if name in self.fields else f"no {name}"
        return UserError(
            f"an event {self.name} of CPU {self.cpu} at {self.ns / 1e9:.9f} s has {found}: the file is damaged, or of "
            "a newer kernel: record again, or update xsmmu",
            code="bad-recording",
        )


def _is_ours(name: str, fields: dict[str, str]) -> bool:
    """Whether an event is of `dma:` or `iommu:`; the report has no names of systems."""
    if name in _POINTS:
        return "device" in fields
    return (name == "map" and fields.keys() >= {"iova", "paddr", "size"}) or (
        name == "unmap" and fields.keys() >= {"iova", "size", "unmapped_size"}
    )


def _within(event: Traced) -> Traced:
    """The event; an error if it does not fit the format of recordings."""
    if event.cpu >= EVERY_CPU or event.ns >= _END or event.number >= _END:
        raise UserError(
            f"the file has an event of CPU {event.cpu} at {event.ns} ns, which no kernel writes: record again",
            code="bad-recording",
        )
    return event


def _report(file: Path) -> Iterator[Traced]:
    """The events of a file, in the order of time."""
    program = shutil.which("trace-cmd")
    if not program:
        raise UserError("this needs trace-cmd, which is not installed: apt install trace-cmd", code="not-installed")
    argv = [program, "report", "-N", "-R", "-t", "-i", str(file.absolute())]
    last = 0
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, encoding="latin-1", errors="strict"
        ) as process,
    ):
        assert process.stdout
        try:
            begun = process.stdout.readline().startswith("cpus=")
            for line in process.stdout if begun else ():
                if found := _DROPPED.match(line):
                    yield _within(Traced(last, int(found[1]), "", {}, int(found[2] or 0)))
                elif (found := _LINE.match(line)) and (found[4] in _POINTS or found[4] in ("map", "unmap")):
                    fields = dict(_FIELD.findall(found[5]))
                    # The report merges CPUs by time; clocks of CPUs may differ.
                    last = max(last, int(found[2]) * 10**9 + int(found[3]))
                    if _is_ours(found[4], fields):
                        yield _within(Traced(last, int(found[1]), found[4], fields))
        except GeneratorExit:
            process.kill()
            raise
        status = process.wait()
        errors.seek(0)
        said = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    if status or not begun:
        raise UserError(
            f"trace-cmd cannot read {shown(str(file))}: record again, or cut the file no earlier", said, code="no-file"
        )


def _check_machine(file: Path) -> None:
    """Refuse files of machines that cannot be imported, which the head of the file tells."""
    with file.open("rb") as stream:
        head = stream.read(64)
    _version, _, rest = head.removeprefix(_MAGIC).partition(b"\0")
    if not head.startswith(_MAGIC) or len(rest) < 6:
        raise UserError(f"{shown(str(file))} is no file of trace-cmd: name a trace.dat", code="no-file")
    # After the version: whether the machine is big endian, the size of its long, the size of its pages.
    if rest[0]:
        raise UserError(f"{shown(str(file))} is of a big-endian machine, and only little-endian ones can be imported")
    page_bytes = int.from_bytes(rest[2:6], "little")
    if page_bytes != 1 << _PAGE_SHIFT:
        raise UserError(f"{shown(str(file))} has pages of {page_bytes} bytes, and only pages of 4096 can be imported")


# ---- facts for the header ----


@dataclass
class Facts:
    """What the header tells of a file."""

    devices: dict[str, int] = field(default_factory=dict)
    """Numbers of the devices by name."""
    physical: Counter[str] = field(default_factory=Counter)
    """Buffers of a device that have their physical address."""
    mapped: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    cpus: int = 1
    memory_end: int = 1
    begin_ns: int | None = None

    @property
    def is_iommu(self) -> bool:
        """Whether only `iommu:map` and `unmap` tell of maps."""
        return not self.devices

    def is_physical(self, device: str) -> bool:
        """Whether the addresses of a device are physical ones, as far as known.

        Those of bounce buffers are physical, too, and not of the buffer; so most decide. Of a device that has mapped no
        buffer nothing is known, and its addresses are treated as physical.
        """
        return 2 * self.physical[device] >= self.mapped[device]


def facts_of(file: Path) -> Facts:
    """Read a file for the header."""
    facts = Facts()
    for event in _report(file):
        facts.cpus = max(facts.cpus, event.cpu + 1)
        if facts.begin_ns is None:
            facts.begin_ns = event.ns
        if not event.name:
            continue
        facts.points[event.name] += 1
        if event.name not in _POINTS:
            if event.name == "map":
                facts.memory_end = max(facts.memory_end, event.value("paddr") + event.value("size"))
            continue
        device = event.fields["device"]
        facts.devices.setdefault(device, len(facts.devices))
        for phys, iova, size in _pairs(event):
            if not _is_mmio(event):
                facts.memory_end = max(facts.memory_end, phys + size)
            facts.mapped[device] += 1
            facts.physical[device] += phys == iova
        if len(facts.devices) > _DEVICES:
            raise UserError(f"the file has more than {_DEVICES:,} devices: record again", code="bad-recording")
    return facts


def _is_mmio(event: Traced) -> bool:
    return "_resource" in event.name or bool(event.value("attrs", 0) & _DMA_ATTR_MMIO)


def _pairs(event: Traced) -> Iterator[tuple[int, int, int]]:
    """Physical address, address for the device and size of what a call has mapped."""
    if _POINTS[event.name] == _MAP and event.value("dma_addr") != _MAPPING_ERROR:
        yield event.value("phys_addr"), event.value("dma_addr"), event.value("size")
    elif event.name == "dma_map_sg":
        arrays = event.values("phys_addrs", 8), event.values("dma_addrs", 8), event.values("lengths", 4)
        yield from zip(*arrays, strict=False)


class Identities:
    """A random permutation of 2 MiB frames, of which only those in use are drawn."""

    def __init__(self, memory_end: int) -> None:
        frames = min(memory_end - 1, (_FRAMES_ALL << _FRAME_SHIFT) - 1) >> _FRAME_SHIFT
        self.frames = 1 << max(1, frames.bit_length())
        self._drawn: dict[int, int] = {}
        self._taken: set[int] = set()

    def _frame(self, frame: int) -> int:
        first, end = (0, self.frames) if frame < self.frames else (self.frames, _FRAMES_ALL)
        while frame not in self._drawn:
            drawn = first + secrets.randbelow(end - first)
            if drawn not in self._taken:
                self._taken.add(drawn)
                self._drawn[frame] = drawn
        return self._drawn[frame]

    def address(self, address: int) -> int:
        """The identity of an address; no address but 0 becomes 0."""
        frame = address >> _FRAME_SHIFT
        if not address or frame >= _FRAMES_ALL:
            return address
        return (self._frame(frame) + 1) << _FRAME_SHIFT | address & ((1 << _FRAME_SHIFT) - 1)

    @property
    def pages(self) -> int:
        """The end of identities of memory, in pages."""
        return (self.frames + 1) << (_FRAME_SHIFT - _PAGE_SHIFT)


# ---- events ----


class _Importer:
    """Events of a recording, from those of tracepoints."""

    def __init__(self, facts: Facts, writer: trace_write.Writer) -> None:
        self.facts = facts
        self.identities = Identities(facts.memory_end)
        self.kinds: Counter[str] = Counter()
        self.devices: Counter[int] = Counter()
        self.pages: Counter[str] = Counter()
        self.lost = 0
        self.last_ns = 0
        self._physical = {name for name in facts.devices if facts.is_physical(name)}
        self._cpu_ns: dict[int, int] = {}
        self._live: dict[int, int] = {}
        self._writer = writer

    def add(self, event: Traced) -> None:
        """Write what an event of a tracepoint tells."""
        before = self._cpu_ns.get(event.cpu, 0)
        ns = event.ns - (self.facts.begin_ns or 0)
        if not event.name:
            # A loss without a number names no CPU (docs/trace.md).
            cpu = event.cpu if event.number else EVERY_CPU
            self._put(event, LOST, size=event.number, span=max(0, ns - before), cpu=cpu)
        elif event.name not in _POINTS:
            self._count_iommu(event)
            if self.facts.is_iommu:
                self._iommu(event)
        elif _POINTS[event.name] == LOST:
            self._put(event, LOST, size=1)
        elif _POINTS[event.name] == _MAP_LIST:
            self._list(event)
        else:
            self._call(event, _POINTS[event.name])
        self._cpu_ns[event.cpu] = ns

    def _put(
        self, event: Traced, kind: int, *, iova: int = 0, phys: int = 0, size: int = 0, span: int = 0, flags: int = 0,
        cpu: int | None = None,
    ) -> None:  # fmt: skip
        name = event.fields.get("device", "")
        device = self.facts.devices.get(name, 0)
        page = self.identities.address(phys) >> _PAGE_SHIFT
        iova = self.identities.address(iova) if name in self._physical else iova
        offset = phys & ((1 << _PAGE_SHIFT) - 1)
        self.last_ns = event.ns - (self.facts.begin_ns or 0)
        cpu = event.cpu if cpu is None else cpu
        self._writer.add((self.last_ns, iova, page, size, span, 0, offset, cpu, device, kind, flags))
        self.kinds[KINDS[kind]] += 1
        if kind == LOST:
            self.lost += size
            return
        self.devices[device] += 1
        if kind in (_MAP, _ENTRY, _ALLOC) and not flags & _FAILED:
            self.pages["mapped"] += _pages(phys if kind == _ENTRY else iova, size)
        elif kind in (_UNMAP, _FREE):
            self.pages["unmapped"] += _pages(iova, size)

    def _flags(self, event: Traced) -> int:
        attrs = event.value("attrs", 0)
        return (
            event.value("dir") & 3
            | (_SKIP_SYNC if attrs & _DMA_ATTR_SKIP_CPU_SYNC else 0)
            | (_MMIO if _is_mmio(event) else 0)
        )

    def _call(self, event: Traced, kind: int) -> None:
        if "dma_addrs" in event.fields:
            iova, size = next(iter(event.values("dma_addrs", 8)), 0), sum(event.values("lengths", 4))
        else:
            iova, size = event.value("addr" if kind == _UNMAP else "dma_addr"), event.value("size")
        phys, flags = event.value("phys_addr") if kind == _MAP else 0, self._flags(event)
        failed = kind == _MAP and iova == _MAPPING_ERROR
        if kind == _ALLOC and "virt_addr" in event.fields:
            failed = not event.value("virt_addr")
        if failed:
            iova, flags = 0, flags | _FAILED
        if kind in (_ALLOC, _FREE):
            # The direction of coherent memory says nothing, and no recorder has it.
            flags &= ~3
        self._put(event, kind, iova=iova, phys=phys, size=size, flags=flags)

    def _list(self, event: Traced) -> None:
        """A list and its entries; of entries that were merged for the device, pages and sizes are not known."""
        failed = event.name == "dma_map_sg_err"
        pages, flags = event.values("phys_addrs", 8), self._flags(event)
        iovas, sizes = ([], []) if failed else (event.values("dma_addrs", 8), event.values("lengths", 4))
        count = len(pages)
        first = iovas[0] if iovas else 0
        flags |= _FAILED if failed else 0
        self._put(event, _MAP_LIST, iova=first, size=sum(sizes), span=count, flags=flags)
        for at, phys in enumerate(() if failed else pages):
            has = at < len(iovas) and at < len(sizes)
            size = sizes[at] if has else 0
            self._put(event, _ENTRY, iova=iovas[at] if has else 0, phys=phys, size=size, span=size, flags=flags)
        # The kernel tells of 128 entries.
        if (rest := event.value("full_nents", 0) - count) > 0:
            self._put(event, LOST, size=rest)

    def _count_iommu(self, event: Traced) -> None:
        name = "size" if event.name == "map" else "unmapped_size"
        self.pages[f"iommu {event.name}"] += event.value(name) >> _PAGE_SHIFT

    def _iommu(self, event: Traced) -> None:
        """An unmap ends all maps in its range, of which a list has several."""
        iova, size = event.value("iova"), event.value("size")
        if event.name == "map":
            self._live[iova] = size
            self._put(event, _MAP, iova=iova, phys=event.value("paddr"), size=size, flags=_NO_DIRECTION)
            return
        end = iova + size
        while iova < end:
            part = min(self._live.pop(iova, end - iova), end - iova)
            self._put(event, _UNMAP, iova=iova, size=part, flags=_NO_DIRECTION)
            iova += part or end - iova

    def summary(self) -> dict[str, Any]:
        """The recording's summary; the kernel's own count if the file has both sets of tracepoints."""
        check: dict[str, Any] = {"by": "none", "note": "the file has no iommu:map and iommu:unmap beside dma:*"}
        if not self.facts.is_iommu and (self.facts.points["map"] or self.facts.points["unmap"]):
            pairs = {
                "mapped_pages": [self.pages["mapped"], self.pages["iommu map"]],
                "unmapped_pages": [self.pages["unmapped"], self.pages["iommu unmap"]],
            }
            note = "the tracepoints count all devices, and name none; pages of unmapped lists are not known"
            equal = all(ours == theirs for ours, theirs in pairs.values())
            check = {"by": "iommu:map and iommu:unmap", "note": note, **pairs, "equal": equal}
        names = [*self.facts.devices] or [IOMMU]
        return {
            "events": sum(count for name, count in self.kinds.items() if name != KINDS[LOST]),
            "by_kind": {name: self.kinds[name] for name in KINDS if self.kinds[name]},
            "lost": self.lost,
            "seconds": self.last_ns / 1e9,
            "devices": [{"address": name, "events": self.devices[at]} for at, name in enumerate(names)],
            "check": check,
        }


IOMMU: Final = "all devices of the IOMMU"
"""In the place of a device's name, where tracepoints name none."""


def _pages(begin: int, size: int) -> int:
    mask = (1 << _PAGE_SHIFT) - 1
    return ((begin & mask) + size + mask) >> _PAGE_SHIFT


def _header(facts: Facts, memory_pages: int) -> dict[str, Any]:
    # No group, class or driver: what `auto` would choose is not known.
    devices = [{"name": name, "group": -1, "physical": facts.is_physical(name)} for name in facts.devices]
    prefixes = {name: "dma" if name in _POINTS else "iommu" for name in facts.points}
    return {
        "recorder": "xsmmu trace import",
        "method": "trace.dat",
        "missing": [*(MISSING_IOMMU if facts.is_iommu else MISSING)],
        "cpus": facts.cpus,
        "page_bytes": 1 << _PAGE_SHIFT,
        "memory_pages": memory_pages,
        "raw": False,
        "pages": "permuted",
        "frame_bytes": 1 << _FRAME_SHIFT,
        "pages_known": True,
        "unheld_known": False,
        "sampled": False,
        "functions": sorted(f"{prefixes[name]}:{name}" for name in facts.points),
        "devices": devices or [{"name": IOMMU, "group": -1, "physical": False}],
    }


def import_file(file: Path, out: Path) -> dict[str, Any]:
    """Write a recording of what a trace.dat has; returns the summary, with what is missing."""
    _check_machine(file)
    facts = facts_of(file)
    if not facts.points:
        raise UserError(
            f"{shown(str(file))} has no event of dma or iommu: record with trace-cmd record -e dma -e iommu"
        )
    with trace_write.created(out) as writer:
        importer = _Importer(facts, writer)
        header = _header(facts, importer.identities.pages)
        writer.header(header)
        for event in _report(file):
            importer.add(event)
        summary = importer.summary()
        writer.summary(summary)
    return {**summary, "missing": header["missing"]}


def warnings(summary: dict[str, Any]) -> Iterator[str]:
    """What a reader of the recording must know."""
    kinds, check = summary["by_kind"], summary["check"]
    if not summary["lost"] and not kinds.get("unmap") and not kinds.get("free"):
        yield "the file has no unmaps: record all events, with trace-cmd record -e dma"
    if gaps := kinds.get("lost"):
        known = f", of {summary['lost']:,} events as far as known" if summary["lost"] else ""
        yield f"{gaps:,} gaps{known}: unmaps of lists, entries of long lists, and what trace-cmd dropped"
    if not check.get("equal", True):
        ours, theirs = check["mapped_pages"]
        yield f"{ours:,} pages are mapped here, and {theirs:,} by {check['by']}: {check['note']}"
