# SPDX-License-Identifier: GPL-2.0-only
"""The oracle: the hardware model's invalidations, divided into windows by the guest's markers.

QEMU writes a line per invalidation command and per write to a serial port's registers, in order. The guest marks the
edges of a run with writes to the second port's scratch register. Lines are counted, never kept: a trace of millions of
lines costs nothing but time. The counts share no code with the module under test.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

from xsmmu.errors import GuestError
from xsmmu_lab.vm.iommu import Iommu

KINDS = ("page", "domain", "global")

MARKER_EVENT = "serial_write"
PAGE_BYTES = 4096

CANARY = 0xA5
"""The kernel writes this value to its console's scratch register on a suspend that leaves the console on."""

_MARKER = re.compile(rb"^serial_write \[0x0?7\] <- 0x([0-9a-f]+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Counts:
    """Invalidation commands by kind."""

    page: int = 0
    domain: int = 0
    global_: int = 0
    device: int = 0
    """For device TLBs, behind the IOMMU. Neither the module nor results count these."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(ours + theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))

    @property
    def total(self) -> int:
        """All commands of any kind to the IOMMU's own caches."""
        return self.page + self.domain + self.global_

    def as_dict(self) -> dict[str, int]:
        """As in results: a figure per kind."""
        return {"page": self.page, "domain": self.domain, "global": self.global_}

    @classmethod
    def from_mapping(cls, figures: Mapping[str, int]) -> Counts:
        """The inverse of `as_dict`."""
        return cls(figures["page"], figures["domain"], figures["global"], figures.get("device", 0))


@dataclass(frozen=True)
class Requests:
    """The counts of a request queue."""

    maps: int
    """Requests that map."""
    kicks: int
    """Number of notifications of the device about requests of any kind."""

    def __sub__(self, other: Requests) -> Requests:
        return Requests(self.maps - other.maps, self.kicks - other.kicks)


class Oracle:
    """Counts of a guest by window; window n lies between the guest's markers n and n + 1."""

    def __init__(self, iommu: Iommu) -> None:
        self.events = (*iommu.events, MARKER_EVENT)
        """The events that QEMU must trace."""
        self._iommu = iommu
        self._windows = [Counts()]
        self._rest = b""
        self._known = tuple(event.encode() + b" " for event in {*self.events, iommu.device_event} - {""})
        self._mapped = Mapped()
        self._mapped_at = [0]
        """Pages that were mapped in the device, at each marker."""
        self._queue = Queue()
        self._queue_at = [self._queue.copy()]
        self.other_lines: list[bytes] = []
        """Lines that are no trace event: the last few messages of QEMU itself."""

    def feed(self, data: bytes) -> None:
        """Count the next part of the trace; parts may be cut anywhere."""
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        start = 0
        for marker in _MARKER.finditer(data, 0, end):
            self._count(data, start, marker.start())
            self._mark(int(marker[1], 16))
            start = marker.end()
        self._count(data, start, end)

    def _mark(self, value: int) -> None:
        number = len(self._windows)
        if value == CANARY != number & 0xFF:
            return
        if value != number & 0xFF:
            raise GuestError(f"the trace lost its place: marker {number & 0xFF} expected, {value} found")
        self._windows.append(Counts())
        self._mapped_at.append(self._mapped.pages)
        self._queue_at.append(self._queue.copy())

    def _count(self, data: bytes, start: int, end: int) -> None:
        if start == end:
            return
        found = dict.fromkeys(KINDS, 0)
        for pattern, kind in self._iommu.commands.items():
            found[kind] += len(pattern.findall(data, start, end))
        if self._iommu.device_commands:
            found["device"] = len(self._iommu.device_commands.findall(data, start, end))
        if self._iommu.traces_maps:
            self._mapped.feed(data[start:end])
        if self._iommu.has_queue:
            self._queue.feed(data[start:end])
        if data.count(b"\n", start, end) > sum(data.count(event, start, end) for event in self._known):
            self._keep_other(data[start:end])
        self._windows[-1] += Counts.from_mapping(found)

    def _keep_other(self, data: bytes) -> None:
        other = [line for line in data.splitlines() if not line.startswith(self._known)]
        self.other_lines = (self.other_lines + other)[-20:]

    def mapped_pages(self, marker: int) -> int | None:
        """Mapped pages in the device at a marker that was seen; None if the trace does not tell."""
        return self._mapped_at[marker] if self._iommu.traces_maps else None

    @property
    def markers(self) -> int:
        """Number of markers seen."""
        return len(self._windows) - 1

    def window(self, first: int, last: int) -> Counts:
        """Commands between marker `first` and marker `last`; both must have been seen."""
        self._need(first, last)
        return sum(self._windows[first:last], Counts())

    def requests(self, first: int, last: int) -> Requests | None:
        """Requests between two markers; None if the IOMMU has no request queue."""
        self._need(first, last)
        if not self._iommu.has_queue:
            return None
        device = self._queue.device
        return self._queue_at[last].of(device) - self._queue_at[first].of(device)

    def _need(self, first: int, last: int) -> None:
        if not 1 <= first < last <= self.markers:
            raise GuestError(f"the trace has {self.markers} markers, so no window from {first} to {last}")


@dataclass
class Queue:
    """Map requests of a virtio-iommu, and notifications of queues.

    A notification names its device only by an address. The IOMMU's address is found by the requests that follow the
    notification at once: requests are executed before the notifying write returns.
    """

    maps: int = 0
    kicks: Counter[bytes] = field(default_factory=Counter)
    """Per device, of its first queue, which is the request queue."""
    device: bytes = b""

    def feed(self, data: bytes) -> None:
        """Count whole lines."""
        self.maps += len(_MAP.findall(data))
        self.kicks.update(_KICK.findall(data))
        found = None if self.device else _KICK_AND_REQUEST.search(data)
        if found:
            self.device = found[1]

    def copy(self) -> Queue:
        """A copy of the current counts."""
        return Queue(self.maps, self.kicks.copy(), self.device)

    def of(self, device: bytes) -> Requests:
        """The counts with the notifications of one device."""
        return Requests(self.maps, self.kicks[device])


_MAP = re.compile(rb"^virtio_iommu_map ", re.MULTILINE)
_KICK = re.compile(rb"^virtio_queue_notify vdev (\w+) n 0 ", re.MULTILINE)
_KICK_AND_REQUEST = re.compile(rb"^virtio_queue_notify vdev (\w+) n 0 .*\nvirtio_iommu_(?:un)?map ", re.MULTILINE)


class Mapped:
    """The mappings in the IOMMU, from the trace of maps and unmaps."""

    _EVENT = re.compile(
        rb"^virtio_iommu_(map|unmap|put_domain) (?:Free )?domain=(\d+)(?: virt_start=0x(\w+) virt_end=0x(\w+))?",
        re.MULTILINE,
    )

    def __init__(self) -> None:
        self._ends: dict[int, dict[int, int]] = {}
        """For each domain, the last address of each mapping by its first address."""

    def feed(self, data: bytes) -> None:
        """Follow whole lines.

        As in the device, an unmap removes the mappings inside its range, and a domain goes whole.
        """
        for what, domain, first, last in self._EVENT.findall(data):
            if what == b"put_domain":
                self._ends.pop(int(domain), None)
                continue
            ends = self._ends.setdefault(int(domain), {})
            start, end = int(first, 16), int(last, 16)
            if what == b"map":
                ends[start] = end
                continue
            pages = (end + 1 - start) // PAGE_BYTES
            within = range(start, end, PAGE_BYTES) if pages < len(ends) else list(ends)
            for each in within:
                if start <= each and ends.get(each, end + 1) <= end:
                    del ends[each]

    @property
    def pages(self) -> int:
        """Number of mapped pages in all domains."""
        return sum((end + 1 - start) // PAGE_BYTES for ends in self._ends.values() for start, end in ends.items())


def compare(what: str, iommu: Iommu, module: Counts, oracle: Counts) -> None:
    """Raise unless the module's counters equal the hardware model's, by kind if the model distinguishes kinds."""
    ours, theirs = module.as_dict(), oracle.as_dict()
    kinds = [*KINDS]
    if iommu.one_kind:
        ours, theirs, kinds = {"all": module.total}, {"all": oracle.total}, ["all"]
    wrong = [f"{kind}: module {ours[kind]}, QEMU {theirs[kind]}" for kind in kinds if ours[kind] != theirs[kind]]
    if wrong:
        raise GuestError(
            f"{what}: the module's invalidation counters differ from QEMU's own count ({'; '.join(wrong)}); "
            "its figures cannot be trusted"
        )


def compare_devices(what: str, expected: Counts, oracle: Counts) -> None:
    """Raise unless the number of commands to device TLBs is as expected."""
    if expected.device != oracle.device:
        raise GuestError(f"{what}: {oracle.device} commands for the device's own TLB, not {expected.device}")
