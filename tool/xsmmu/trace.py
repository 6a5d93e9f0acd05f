# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu trace`: what is in a recording of the DMA API, and exports for other programs.

The reader follows docs/trace.md, not the C code in trace/format: tests compare the two.
"""

from __future__ import annotations

import importlib
import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import click

from xsmmu import output
from xsmmu.errors import UserError
from xsmmu.machine import shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC: Final = b"\x89XSMMU\r\n"
VERSION: Final = 1
HEADER, EVENTS, SUMMARY = 1, 2, 3
"""Types of blocks."""

BLOCK_EVENTS: Final = 65536
PLAIN_MAX: Final = 8 << 20
PACKED_MAX: Final = PLAIN_MAX + (1 << 17)
FLAGS: Final = 0x3F
UNIT_BITS: Final = 12

KINDS: Final = (
    *("", "map", "unmap", "map_list", "entry", "unmap_list", "alloc", "free", "sync_cpu", "sync_device"),
    *("iova_alloc", "iova_link", "iova_sync", "iova_unlink", "iova_free", "poll", "lost"),
)
LOST: Final = KINDS.index("lost")
EVERY_CPU: Final = 0xFFFF
"""CPU of an event `lost` that is of all CPUs."""

FIELDS: Final = (
    *(("ns", "<u8"), ("iova", "<u8"), ("page", "<u8"), ("bytes", "<u8"), ("span", "<u8"), ("queue", "<u4")),
    *(("offset", "<u4"), ("cpu", "<u2"), ("device", "<u2"), ("kind", "u1"), ("flags", "u1")),
)
"""Fields of an event, and their types."""

HEAD: Final = struct.Struct("<8sHHIIIIII")
_READ_BYTES: Final = 1 << 18


def library(name: str, remedy: str) -> Any:
    """A Python library that only recordings need; without it, an error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"this needs the Python library {name}, which is not installed: {remedy}") from None


def numpy() -> Any:
    """The library of arrays."""
    return library("numpy", "apt install python3-numpy")


class _Head(NamedTuple):
    """The head of a block."""

    magic: bytes
    version: int
    type: int
    sequence: int
    events: int
    plain: int
    packed: int
    crc: int
    own_crc: int

    @property
    def size(self) -> int:
        """Bytes of the block."""
        return HEAD.size + self.packed


@dataclass
class Damage:
    """The parts of a file that were left out."""

    blocks: int = 0
    bytes: int = 0
    cut: bool = False


class _WrongError(Exception):
    """The contents of a block are no events."""


def _varints(data: bytes) -> NDArray[np.uint64]:
    """All varints of a block's contents."""
    np = numpy()
    found = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(found < 0x80)
    if not len(ends) or ends[-1] != len(found) - 1:
        raise _WrongError
    begins = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - begins + 1
    longest = int(lengths.max())
    if longest > 10 or (found[ends[lengths == 10]] > 1).any():
        raise _WrongError
    values = np.zeros(len(ends), np.uint64)
    for at in range(longest):
        have = lengths > at
        part = (found[begins[have] + at] & 0x7F).astype(np.uint64)
        values[have] |= part << np.uint64(7 * at)
    return values  # type: ignore[no-any-return]


def _unzigzag(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    np = numpy()
    one = np.uint64(1)
    return (values >> one) ^ (np.uint64(0) - (values & one))  # type: ignore[no-any-return]


def _within(values: NDArray[np.uint64], most: int) -> NDArray[np.uint64]:
    if (values > numpy().uint64(most)).any():
        raise _WrongError
    return values


_SHAPE_FIELDS: Final = (("kind", len(KINDS) - 1), ("flags", FLAGS), ("cpu", 0xFFFF), ("device", 0xFFFF))


def decoded(contents: bytes, count: int) -> NDArray[np.void]:
    """The events of a block's contents. Any other contents raise _WrongError."""
    np = numpy()
    values = _varints(contents)
    shapes = int(values[0])
    if not 0 < shapes <= count or len(values) != 1 + 5 * shapes + 8 * count:
        raise _WrongError
    table = values[1 : 1 + 5 * shapes].reshape(shapes, 5)
    shape = _within(values[1 + 5 * shapes :][:count], shapes - 1).astype(np.intp)
    order = np.argsort(shape, kind="stable")
    columns = iter(values[1 + 5 * shapes + count :].reshape(7, count))
    events = np.zeros(count, list(FIELDS))
    for at, (name, most) in enumerate((*_SHAPE_FIELDS, ("queue", 0xFFFFFFFF))):
        events[name] = _within(table[:, at], most)[shape]
    if not table[:, 0].all():
        raise _WrongError
    events["ns"][order] = next(columns)
    total = np.cumsum(events["ns"])
    if (total[1:] < total[:-1]).any():
        raise _WrongError
    events["ns"] = total
    units, low = _units(_unzigzag(next(columns)), shape[order]), _within(next(columns), (1 << UNIT_BITS) - 1)
    events["iova"][order] = units << np.uint64(UNIT_BITS) | low
    events["bytes"][order], events["span"][order] = next(columns), next(columns)
    offset = _within(next(columns), 1 << 32)
    events["offset"][order] = np.where(offset == 1, low, offset - (offset > 0))
    events["page"][order] = next(columns)
    return events  # type: ignore[no-any-return]


def _units(deltas: NDArray[np.uint64], shape: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Units of IOVAs from differences, which begin anew with each shape."""
    np = numpy()
    total = np.cumsum(deltas)
    first = np.flatnonzero(np.concatenate(([True], shape[1:] != shape[:-1])))
    before = (total - deltas)[first]
    lengths = np.diff(np.concatenate((first, [len(shape)])))
    return _within(total - np.repeat(before, lengths), (1 << 64 - UNIT_BITS) - 1)


class Recording:
    """A file that is read from its begin to its end.

    `damage` and `summary` are complete after the last event.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = Damage()
        self.summary: dict[str, Any] | None = None
        self.file_bytes = 0
        self._zstd = library("zstandard", "apt install python3-zstandard")
        self._window = b""
        self._sequence = 1
        self._wrong = 0
        self._last_ns = 0
        self._lost = False
        self._file: BinaryIO = path.open("rb")
        try:
            self.header = self._header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _fill(self, wanted: int) -> int:
        """Read on until so many unused bytes are there; returns their number, less at the end of the file."""
        parts, count = [self._window], len(self._window)
        while count < wanted:
            part = self._file.read(_READ_BYTES)
            if not part:
                break
            parts.append(part)
            count += len(part)
        self._window = b"".join(parts) if len(parts) > 1 else parts[0]
        return count

    def _take(self, count: int) -> None:
        self._window = self._window[count:]
        self.file_bytes += count

    def _leave_out(self, count: int) -> None:
        self._take(count)
        self.damage.bytes += count

    def _head(self, at: int = 0) -> _Head | None:
        head = _Head(*HEAD.unpack_from(self._window, at))
        right = head.magic == MAGIC and head.version == VERSION
        right = right and zlib.crc32(self._window[at : at + 32]) == head.own_crc
        small = head.events <= BLOCK_EVENTS and head.plain <= PLAIN_MAX and head.packed <= PACKED_MAX
        return head if right and small else None

    def _contents(self, head: _Head) -> bytes:
        if self._fill(head.size) < head.size:
            raise _WrongError
        packed = self._window[HEAD.size : head.size]
        if zlib.crc32(packed) != head.crc:
            raise _WrongError
        try:
            if self._zstd.get_frame_parameters(packed).content_size != head.plain:
                raise _WrongError
            unpacked = self._zstd.ZstdDecompressor().decompress(packed, allow_extra_data=False)
            return bytes(unpacked) if head.plain else b""
        except self._zstd.ZstdError:
            raise _WrongError from None

    def _text(self, head: _Head, name: str) -> dict[str, Any]:
        try:
            found = json.loads(self._contents(head))
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        raise UserError(f"{self.path}: byte {self.file_bytes}: the {name} is no JSON object: record again")

    def _header(self) -> dict[str, Any]:
        count = self._fill(HEAD.size)
        if not count:
            raise UserError(f"{self.path}: byte 0: the file is empty: nothing was recorded")
        if self._window[:8] != MAGIC[:count]:
            raise UserError(f"{self.path}: byte 0: not a recording of xsmmu")
        version = int.from_bytes(self._window[8:10], "little") if count >= 10 else 0
        if version > VERSION:
            raise UserError(
                f"{self.path}: byte 8: format {version} is newer than format {VERSION} of this program: update xsmmu"
            )
        if count < HEAD.size:
            raise UserError(f"{self.path}: byte {count}: cut within its header: nothing can be read")
        head = self._head()
        try:
            if head and head.type == HEADER:
                found = self._text(head, "header")
                self._take(head.size)
                return found
        except _WrongError:
            pass
        message = "the header is cut or damaged: nothing tells which devices were recorded"
        raise UserError(f"{self.path}: byte 0: {message}")

    def _count_lost(self, blocks: int) -> None:
        self.damage.blocks += blocks
        self._lost |= blocks > 0
        self._wrong = 0

    def _right(self, head: _Head) -> NDArray[np.void] | None:
        """The events of the next block; None if it is the summary."""
        if head.sequence < self._sequence:
            raise _WrongError
        events = None
        if head.type == EVENTS:
            events = decoded(self._contents(head), head.events)
            if int(events["ns"][0]) < self._last_ns:
                raise _WrongError
        elif head.type == SUMMARY:
            self.summary = self._text(head, "summary")
        else:
            raise _WrongError
        self._count_lost(max(head.sequence - self._sequence, self._wrong))
        self._sequence = head.sequence + 1
        return events

    def _next_head(self) -> int:
        """Bytes of the window before the next right head, or before the last bytes, in which a head may begin."""
        at = self._window.find(MAGIC, 1)
        while 0 < at <= len(self._window) - HEAD.size and self._head(at) is None:
            at = self._window.find(MAGIC, at + 1)
        return at if at > 0 else len(self._window) - len(MAGIC) + 1

    def _blocks(self) -> Iterator[NDArray[np.void]]:
        while self._fill(HEAD.size) >= HEAD.size:
            head = self._head()
            if head is None:
                self._leave_out(self._next_head())
                continue
            try:
                events = self._right(head)
            except _WrongError:
                # A block that the end of the file cuts is not wrong.
                if self._fill(head.size) < head.size:
                    break
                self._leave_out(head.size)
                self._wrong += 1
                continue
            self._take(head.size)
            if events is None:
                break
            yield events
        while self._fill(1):
            self._leave_out(len(self._window))
        self.damage.cut = self.summary is None
        self._count_lost(self._wrong)

    def events(self) -> Iterator[NDArray[np.void]]:
        """Arrays of events, once. An event `lost` with 0 bytes stands for blocks that were left out."""
        for events in self._blocks():
            if self._lost:
                yield self._stand_in(int(events["ns"][0]))
            yield events
            self._last_ns = int(events["ns"][-1])
        if self._lost:
            yield self._stand_in(self._last_ns)

    def _stand_in(self, ns: int) -> NDArray[np.void]:
        self._lost = False
        made = numpy().zeros(1, list(FIELDS))
        made["ns"], made["span"], made["kind"] = ns, ns - self._last_ns, LOST
        return made  # type: ignore[no-any-return]


@dataclass
class Info:
    """Numbers about a recording."""

    file: str
    header: dict[str, Any]
    summary: dict[str, Any] | None = None
    file_bytes: int = 0
    events: int = 0
    lost_events: int = 0
    first_ns: int = 0
    last_ns: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    cpus: Counter[int] = field(default_factory=Counter)
    damage: Damage = field(default_factory=Damage)

    @property
    def bytes_an_event(self) -> float | None:
        """Bytes of the file for each event."""
        return round(self.file_bytes / self.events, 3) if self.events else None

    def row(self) -> dict[str, Any]:
        """The fields of the JSON document."""
        return {
            "file": self.file,
            "header": self.header,
            "summary": self.summary,
            "file_bytes": self.file_bytes,
            "events": self.events,
            "lost_events": self.lost_events,
            "bytes_an_event": self.bytes_an_event,
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
            "kinds": {name: self.kinds[name] for name in KINDS if self.kinds[name]},
            "cpus": {str(cpu): count for cpu, count in sorted(self.cpus.items())},
            "damage": {"blocks": self.damage.blocks, "bytes": self.damage.bytes, "cut": self.damage.cut},
        }


def _counts(values: NDArray[np.generic]) -> list[tuple[int, int]]:
    found, counts = numpy().unique(values, return_counts=True)
    return [*zip(found.tolist(), counts.tolist(), strict=True)]


def info_of(path: Path) -> Info:
    """Read a whole recording."""
    with Recording(path) as recording:
        found = Info(str(path), recording.header)
        for events in recording.events():
            lost = events["kind"] == LOST
            found.lost_events += int(events["bytes"][lost].sum())
            if not found.events:
                found.first_ns = int(events["ns"][0])
            found.last_ns = int(events["ns"][-1])
            # A stand-in for a lost block is not in the file. A gap of all CPUs is, with or without a number.
            of_all = events["cpu"] == EVERY_CPU
            events = events[~lost | (events["bytes"] > 0) | of_all]
            found.events += len(events)
            found.kinds.update({KINDS[kind]: count for kind, count in _counts(events["kind"])})
            found.cpus.update(dict(_counts(events["cpu"][events["cpu"] != EVERY_CPU])))
    found.summary, found.damage, found.file_bytes = recording.summary, recording.damage, recording.file_bytes
    return found


def unknown_pages(header: Mapping[str, Any]) -> str:
    """A warning if the recorder did not know the identity of pages; else nothing."""
    if header.get("pages_known") is not False:
        return ""
    why = header.get("pages_unknown", "the recording does not say why")
    return f"pages have no identity, so that memory is used again does not show: {shown(str(why))}"


def damage_text(damage: Damage) -> str:
    """The damage in words."""
    words = [f"{damage.blocks} blocks and {damage.bytes} bytes are left out"] if damage.blocks or damage.bytes else []
    words += ["no summary: the recorder did not end, or the end is missing"] if damage.cut else []
    return "; ".join(words) or "none"


@click.group("trace", cls=output.Commands)
def trace() -> None:
    """Inspect and export recordings of the DMA API."""


_out = click.option(
    "-O",
    "--output-file",
    "out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="OUT",
    help="File, or with ctf a folder, that does not exist yet.",
)
_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@trace.command("info")
@_file
@output.option
def info(file: Path, form: str) -> None:
    """Print the header, the number of events by kind and CPU, the size of an event, and damage."""
    found = info_of(file)
    if form != "table":
        output.emit_one("trace-info", found.row())
        return
    lines = [
        *(("file", shown(found.file)), ("header", json.dumps(found.header)), ("summary", json.dumps(found.summary))),
        *(("events", f"{found.events:,}"), ("lost events", f"{found.lost_events:,}")),
        *(("bytes", f"{found.file_bytes:,}"), ("bytes an event", found.bytes_an_event)),
        *(("seconds", f"{(found.last_ns - found.first_ns) / 1e9:.6f}"), ("damage", damage_text(found.damage))),
    ]
    for name, value in lines:
        click.echo(f"{name:<15} {value}")
    if warning := unknown_pages(found.header):
        click.echo(f"{'warning':<15} {warning}")
    click.echo()
    output.table(("kind", "events"), [(name, f"{count:,}") for name, count in found.row()["kinds"].items()])
    click.echo()
    output.table(("cpu", "events"), [(cpu, f"{count:,}") for cpu, count in found.row()["cpus"].items()])


@trace.command("export")
@_file
@click.option("--to", type=click.Choice(("parquet", "ctf", "perfetto")), required=True, help="Format of the output.")
@_out
def export(file: Path, to: str, out: Path) -> None:
    """Write a recording for other programs: Parquet, CTF (a folder), or JSON for Perfetto."""
    from xsmmu import trace_export

    with Recording(file) as recording:
        count = trace_export.EXPORTS[to](recording, out)
    click.echo(f"{shown(str(out))}: {count:,} events; damage: {damage_text(recording.damage)}")


@trace.command("import")
@_file
@_out
def import_(file: Path, out: Path) -> None:
    """Make a recording of a trace.dat of trace-cmd, of the tracepoints `dma:*` or else `iommu:map` and `unmap`.

    Addresses of memory are permuted as by `xsmmu record`.
    """
    from xsmmu import trace_import

    summary = trace_import.import_file(file, out)
    kinds = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in summary["by_kind"].items())
    click.echo(f"{shown(str(out))}: {summary['events']:,} events in {summary['seconds']:.1f} s: {kinds}")
    click.echo(f"not in the file: {', '.join(summary['missing'])}")
    for warning in trace_import.warnings(summary):
        click.echo(f"warning: {warning}", err=True)
