# SPDX-License-Identifier: GPL-2.0-only
"""A writer of recordings in Python, for imports: xsmmu-record has its own (trace/format/write.c)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from xsmmu.errors import UserError
from xsmmu.files import complete
from xsmmu.trace import (
    BLOCK_EVENTS,
    EVENTS,
    FIELDS,
    HEAD,
    HEADER,
    MAGIC,
    PLAIN_MAX,
    SUMMARY,
    UNIT_BITS,
    VERSION,
    library,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LEVEL: Final = 3
_SHAPE: Final = ("kind", "flags", "cpu", "device", "queue")


def _varints(values: NDArray[np.uint64]) -> bytes:
    np = library("numpy", "apt install python3-numpy")
    lengths = np.ones(len(values), np.intp)
    for bits in range(7, 64, 7):
        lengths += values >= np.uint64(1 << bits)
    begins = np.cumsum(lengths) - lengths
    made = np.zeros(int(lengths.sum()), np.uint8)
    for at in range(int(lengths.max())):
        have = lengths > at
        part = (values[have] >> np.uint64(7 * at)) & np.uint64(0x7F)
        made[begins[have] + at] = part | np.where(lengths[have] > at + 1, 0x80, 0).astype(np.uint64)
    return bytes(made)


def _zigzag(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    np = library("numpy", "apt install python3-numpy")
    return values << np.uint64(1) ^ (np.uint64(0) - (values >> np.uint64(63)))  # type: ignore[no-any-return]


def encoded(events: NDArray[np.void]) -> bytes:
    """The contents of a block of these events."""
    np = library("numpy", "apt install python3-numpy")
    table, shape = np.unique(events[[*_SHAPE]], return_inverse=True)
    order = np.argsort(shape, kind="stable")
    sorted_events, sorted_shape = events[order], shape[order]
    units = sorted_events["iova"] >> np.uint64(UNIT_BITS)
    low = sorted_events["iova"] & np.uint64((1 << UNIT_BITS) - 1)
    # The first of each shape is a difference to 0.
    before = np.concatenate((np.zeros(1, np.uint64), units[:-1]))
    before[np.concatenate(([True], sorted_shape[1:] != sorted_shape[:-1]))] = 0
    offset = sorted_events["offset"].astype(np.uint64)
    columns = [
        np.array([len(table)], np.uint64),
        *(np.array([row[name] for name in _SHAPE], np.uint64) for row in table),
        shape.astype(np.uint64),
        np.diff(events["ns"], prepend=np.zeros(1, np.uint64))[order],
        *(_zigzag(units - before), low, sorted_events["bytes"], sorted_events["span"]),
        np.where(offset == 0, offset, np.where(offset == low, np.uint64(1), offset + np.uint64(1))),
        sorted_events["page"],
    ]
    return _varints(np.concatenate(columns).astype(np.uint64))


class Writer:
    """A file that is written; see `created`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._zstd = library("zstandard", "apt install python3-zstandard").ZstdCompressor(level=_LEVEL)
        self._sequence = 0
        self._events: list[tuple[int, ...]] = []

    def _block(self, kind: int, count: int, contents: bytes) -> None:
        if len(contents) > PLAIN_MAX:
            raise UserError("a header or summary of more than 8 MiB: record fewer devices", code="bad-recording")
        frame = self._zstd.compress(contents)
        head = (MAGIC, VERSION, kind, self._sequence, count, len(contents), len(frame), zlib.crc32(frame))
        start = HEAD.pack(*head, 0)[:-4]
        self._file.write(start + zlib.crc32(start).to_bytes(4, "little") + frame)
        self._sequence += 1

    def header(self, fields: dict[str, Any]) -> None:
        """The first block."""
        self._block(HEADER, 0, json.dumps(fields).encode())

    def add(self, event: tuple[int, ...]) -> None:
        """An event, as in FIELDS, no older than the one before."""
        self._events.append(event)
        if len(self._events) == BLOCK_EVENTS:
            self._flush()

    def _flush(self) -> None:
        np = library("numpy", "apt install python3-numpy")
        if self._events:
            self._block(EVENTS, len(self._events), encoded(np.array(self._events, list(FIELDS))))
        self._events = []

    def summary(self, fields: dict[str, Any]) -> None:
        """The last block."""
        self._flush()
        self._block(SUMMARY, 0, json.dumps(fields).encode())


@contextmanager
def created(path: Path) -> Iterator[Writer]:
    """A writer of a new file, which gets its name when complete."""
    with complete(path) as part, part.open("xb") as file:
        yield Writer(file)
