# SPDX-License-Identifier: GPL-2.0-only
"""Recordings made by hand, and their replay by xsmmu-replay."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from xsmmu_lab.setup import build, host, replay

PAGE: Final = 4096
KINDS: Final = (
    *("map", "unmap", "map_list", "entry", "unmap_list", "alloc", "free", "sync_cpu", "sync_device"),
    *("iova_alloc", "iova_link", "iova_sync", "iova_unlink", "iova_free", "poll", "lost"),
)
"""The names of enum trace_kind, from 1 on."""
TO_DEVICE, FROM_DEVICE = 1, 2
FAILED, SKIP_SYNC, MMIO, UNHELD = 4, 8, 16, 32
FIELDS: Final = ("kind", "ns", "cpu", "device", "iova", "page", "bytes", "span", "queue", "offset", "flags")
HEADER: Final = {"cpus": 4, "page_bytes": PAGE, "pages": "permuted"}


@dataclass
class Recording:
    """Events in their order; each comes `step` ns after the one before, unless a time is named."""

    step: int = 100
    ns: int = 0
    events: list[dict[str, int]] = field(default_factory=list)

    def add(self, kind: str, ns: int | None = None, **fields: int) -> Recording:
        """Add an event; fields that are not named are 0."""
        self.ns = self.ns + self.step if ns is None else ns
        self.events.append(dict.fromkeys(FIELDS, 0) | {"kind": KINDS.index(kind) + 1, "ns": self.ns} | fields)
        return self

    def map(self, number: int, pages: int = 1, **fields: int) -> Recording:
        """Map buffer `number`, at an address and in memory of its own."""
        return self.add("map", **({"iova": place(number), "page": number * 1000, "bytes": pages * PAGE} | fields))

    def unmap(self, number: int, pages: int = 1, **fields: int) -> Recording:
        """Unmap it."""
        return self.add("unmap", **({"iova": place(number), "bytes": pages * PAGE} | fields))

    def map_list(self, number: int, entries: Sequence[int], **fields: int) -> Recording:
        """Map a list of entries of so many bytes, each in memory of its own."""
        self.add("map_list", iova=place(number), bytes=sum(entries), span=len(entries), **fields)
        step, self.step = self.step, 0
        for at, size in enumerate(entries):
            self.add("entry", iova=place(number), page=number * 1000 + at * 100, bytes=size, span=size, **fields)
        self.step = step
        return self

    def unmap_list(self, number: int, entries: Sequence[int], **fields: int) -> Recording:
        """Unmap it."""
        return self.add("unmap_list", iova=place(number), bytes=sum(entries), span=len(entries), **fields)

    def poll(self, **fields: int) -> Recording:
        """A poll ends."""
        return self.add("poll", **fields)

    def lines(self) -> Iterator[str]:
        """For write-events."""
        for event in self.events:
            yield " ".join(str(event[name]) for name in FIELDS)

    def write(self, file: Path, header: dict[str, Any] | None = None) -> Path:
        """Write the recording by the writer of trace/format."""
        argv = [str(replay.writer()), str(file), json.dumps(header or HEADER)]
        done = subprocess.run(argv, input="\n".join(self.lines()), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return file


def place(number: int) -> int:
    """The recorded address of a buffer."""
    return (1 << 32) + number * 0x1000000


def polls(count: int, each: int, step: int = 100, size: int = PAGE, **fields: int) -> Recording:
    """`count` buffers in polls of `each`: mapped, unmapped, end of the poll."""
    made = Recording(step)
    for first in range(0, count, each):
        numbers = range(first, min(first + each, count))
        for number in numbers:
            made.map(number + 1, bytes=size, **fields)
        for number in numbers:
            made.unmap(number + 1, bytes=size, **fields)
        made.poll()
    return made


def anything(seed: int, count: int = 3000) -> Recording:
    """Events of all kinds, most of which fit no other."""
    draw = random.Random(seed)
    sizes = (0, 1, 512, 1500, *(n * PAGE for n in (1, 1, 1, 2, 5, 64, 65, 600)), 2**30)
    common = ("map", "unmap", "map_list", "entry", "poll")
    made = Recording()
    for _ in range(count):
        made.step = draw.choice((0, 10, 1000, 100_000))
        made.add(
            draw.choice(KINDS if draw.random() < 0.5 else common),
            cpu=draw.randrange(4) if draw.random() < 0.99 else 7,
            device=draw.randrange(3),
            iova=place(draw.randrange(12)) + draw.choice((0, 0, 0, PAGE, 512)),
            page=draw.choice((0, draw.randrange(1, 30), draw.randrange(1, 2**40))),
            bytes=draw.choice(sizes) if draw.random() < 0.9 else draw.randrange(2**20),
            span=draw.choice((0, 1, 2, 4, 6, 70)),
            offset=draw.choice((0, 0, 512, 4095)),
            flags=draw.randrange(64) if draw.random() < 0.3 else draw.randrange(3),
        )
    return made


def written(file: Path, count: int) -> Path:
    """A recording of a driver at work, of about `count` events."""
    done = host.run([str(replay.writer()), str(file), json.dumps(HEADER), str(count)], env=host.system_env())
    assert done.returncode == 0, done.stderr
    return file


@dataclass(frozen=True)
class Player:
    """A build of xsmmu-replay."""

    program: Path

    def try_(self, file: Path, policy: str, *words: str) -> tuple[int, str]:
        """Status and output."""
        return build.run_userspace(self.program, [str(file), "--policy", policy, *words])

    def __call__(self, file: Path, policy: str, *words: str) -> dict[str, Any]:
        """The figures of a replay that must not fail, without the rate."""
        status, text = self.try_(file, policy, *words)
        assert status == 0, text
        found: dict[str, Any] = json.loads(text)
        del found["rate"]
        return found
