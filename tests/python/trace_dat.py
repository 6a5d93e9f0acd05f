# SPDX-License-Identifier: GPL-2.0-only
"""Writes trace.dat, the file of trace-cmd (man 5 trace-cmd.dat, version 6), with events of the kernel's formats."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = 4096
_HEADER_PAGE: Final = """\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;
"""
_HEADER_EVENT: Final = """\
# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
"""
_COMMON: Final = (
    *(("unsigned short", "common_type", 2), ("unsigned char", "common_flags", 1)),
    *(("unsigned char", "common_preempt_count", 1), ("int", "common_pid", 4)),
)
_TEXT: Final = "__data_loc char[]"
_U64S: Final = "__data_loc u64[]"
_U32S: Final = "__data_loc unsigned int[]"
_SIZES: Final = {_TEXT: 4, _U64S: 4, _U32S: 4, "u64": 8, "size_t": 8, "unsigned long": 8, "void *": 8, "bool": 1}
_DEVICE: Final = (_TEXT, "device")
_SIZE: Final = (("u64", "dma_addr"), ("size_t", "size"))
_DIR: Final = ("enum dma_data_direction", "dir")
_ATTRS: Final = ("unsigned long", "attrs")

FIELDS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "dma/dma_map_page": (_DEVICE, ("u64", "phys_addr"), *_SIZE, _DIR, _ATTRS),
    "dma/dma_map_resource": (_DEVICE, ("u64", "phys_addr"), *_SIZE, _DIR, _ATTRS),
    "dma/dma_unmap_page": (_DEVICE, ("u64", "addr"), ("size_t", "size"), _DIR, _ATTRS),
    "dma/dma_alloc": (_DEVICE, ("void *", "virt_addr"), *_SIZE, ("gfp_t", "flags"), _DIR, _ATTRS),
    "dma/dma_free": (_DEVICE, ("void *", "virt_addr"), *_SIZE, _DIR, _ATTRS),
    "dma/dma_map_sg": (
        *(_DEVICE, ("int", "full_nents"), ("int", "full_ents"), ("bool", "truncated")),
        *((_U64S, "phys_addrs"), (_U64S, "dma_addrs"), (_U32S, "lengths"), _DIR, _ATTRS),
    ),
    "dma/dma_unmap_sg": (_DEVICE, (_U64S, "addrs"), _DIR, _ATTRS),
    "dma/dma_sync_single_for_cpu": (_DEVICE, *_SIZE, _DIR),
    "iommu/map": (("u64", "iova"), ("u64", "paddr"), ("size_t", "size")),
    "iommu/unmap": (("u64", "iova"), ("size_t", "size"), ("size_t", "unmapped_size")),
    "sched/map": (("u64", "iova"),),
}
"""Fields of tracepoints of Linux 6.12 (include/trace/events/dma.h, iommu.h); the last is another one named `map`."""

Value = int | str | Sequence[int]


@dataclass(frozen=True)
class Traced:
    """An event, with the task that ran on the CPU."""

    ns: int
    name: str
    values: Mapping[str, Value]
    cpu: int = 0
    task: str = "iperf3"


def _section(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _format(number: int, name: str) -> bytes:
    lines = [f"name: {name.split('/')[1]}", f"ID: {number}", "format:"]
    at = 0
    for kind, field_name, size in _COMMON:
        lines.append(f"\tfield:{kind} {field_name};\toffset:{at};\tsize:{size};\tsigned:{int(kind == 'int')};")
        at += size
    lines.append("")
    for kind, field_name in FIELDS[name]:
        size = _SIZES.get(kind, 4)
        at = -(-at // size) * size
        lines.append(f"\tfield:{kind} {field_name};\toffset:{at};\tsize:{size};\tsigned:{int(kind == 'int')};")
        at += size
    # trace-cmd report -R does not read the format for people.
    return "\n".join([*lines, "", 'print fmt: "no"', ""]).encode()


def _event(number: int, event: Traced, pid: int) -> bytes:
    fixed = struct.pack("<HBBi", number, 0, 0, pid)
    end = len(fixed)
    for kind, _ in FIELDS[event.name]:
        end = -(-end // _SIZES.get(kind, 4)) * _SIZES.get(kind, 4) + _SIZES.get(kind, 4)
    more = b""
    for kind, name in FIELDS[event.name]:
        size, value = _SIZES.get(kind, 4), event.values.get(name, 0)
        fixed += bytes(-len(fixed) % size)
        if kind.startswith("__data_loc"):
            data = _dynamic(kind, value)
            more += bytes(-(end + len(more)) % 8)
            fixed += struct.pack("<HH", end + len(more), len(data))
            more += data
        else:
            assert isinstance(value, int)
            fixed += (value % (1 << 8 * size)).to_bytes(size, "little")
    data = fixed + more
    return data + bytes(-len(data) % 4)


def _dynamic(kind: str, value: Value) -> bytes:
    if isinstance(value, str):
        return value.encode() + b"\0"
    assert not isinstance(value, int)
    return struct.pack(f"<{len(value)}{'Q' if kind == _U64S else 'I'}", *value)


def _pages(events: Sequence[tuple[int, bytes]], dropped: bool) -> bytes:
    """The ring buffer of a CPU; each page has as many events as fit. `dropped`: some before the last page were lost."""
    pages: list[tuple[int, bytes]] = []
    last = 0
    for ns, data in events:
        words = len(data) // 4
        head = struct.pack("<I", words) if words <= 28 else struct.pack("<II", 0, len(data) + 4)
        if pages and len(pages[-1][1]) + len(head) + len(data) + 8 <= PAGE - 16:
            delta = ns - last
            extend = struct.pack("<II", 30 | (delta & (1 << 27) - 1) << 5, delta >> 27)
            pages[-1] = (pages[-1][0], pages[-1][1] + extend + head + data)
        else:
            pages.append((ns, head + data))
        last = ns
    made = b""
    for number, (ns, data) in enumerate(pages):
        commit = len(data) | (1 << 31 if dropped and number == len(pages) - 1 else 0)
        made += (struct.pack("<QQ", ns, commit) + data).ljust(PAGE, b"\0")
    return made


def write(file: Path, events: Sequence[Traced], cpus: int = 2, dropped: bool = False) -> Path:
    """A file with these events, which are in order of time for each CPU."""
    names = [*FIELDS]
    tasks = [*dict.fromkeys(event.task for event in events)]
    made = b"\x17\x08\x44tracing6\0" + bytes((0, 8)) + struct.pack("<I", PAGE)
    made += b"header_page\0" + _section(_HEADER_PAGE.encode()) + b"header_event\0" + _section(_HEADER_EVENT.encode())
    made += struct.pack("<I", 0)
    systems = [*dict.fromkeys(name.split("/")[0] for name in names)]
    made += struct.pack("<I", len(systems))
    for system in systems:
        mine = [name for name in names if name.startswith(f"{system}/")]
        made += system.encode() + b"\0" + struct.pack("<I", len(mine))
        for name in mine:
            made += _section(_format(names.index(name) + 300, name))
    made += struct.pack("<I", 0) * 2
    made += _section("".join(f"{100 + n} {task}\n" for n, task in enumerate(tasks)).encode())
    made += struct.pack("<I", cpus) + b"options  \0" + struct.pack("<H", 0) + b"flyrecord\0"
    place = -(-(len(made) + 16 * cpus) // PAGE) * PAGE
    data = b""
    for cpu in range(cpus):
        mine_events = [
            (event.ns, _event(names.index(event.name) + 300, event, 100 + tasks.index(event.task)))
            for event in events
            if event.cpu == cpu
        ]
        pages = _pages(mine_events, dropped)
        made += struct.pack("<QQ", place + len(data), len(pages))
        data += pages
    file.write_bytes(made.ljust(place, b"\0") + data)
    return file
