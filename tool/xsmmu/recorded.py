# SPDX-License-Identifier: GPL-2.0-only
"""A recording of the DMA API (docs/trace.md) as the workload of the machine model.

A recording shows buffers: sizes, how many are mapped at once, which are unmapped, the work of polls. So parameters of
rings and requests are derived. It does not show connections, windows and round trips, nor what the machine could do
without an IOMMU: these are given by the user, or assumed with ranges, and the table of parameters says which.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from xsmmu import output, trace
from xsmmu.errors import UserError
from xsmmu.machine import shown
from xsmmu.model_files import NIC, Described, Given, Parameters, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PAGE: Final = 4096
DRIVES: Final = "drives"
TO_DEVICE, FROM_DEVICE = 1, 2
FAILED: Final = 4
ETHERNET: Final = 22
"""Bytes of a frame that are not the IP packet: addresses, type, VLAN tag, checksum."""
LARGEST_BLOCK: Final = 131_072
SENT: Final = 0.25
"""A machine sends if it sends more than this part of what it receives."""
MOST_EVENTS: Final = 20_000_000
"""Of which buffers are derived: they take 1.1 GB of memory."""
CONTROL: Final = 512
"""Smaller buffers of disks are no data."""
SEVERAL_PACKETS: Final = "0x15b3"
"""Vendor of NICs with several packets in a descriptor."""
_CLASSES: Final = {"0x02": NIC, "0x01": DRIVES}

_ASSUMED: Final[Mapping[str, tuple[int, tuple[int, int] | None, str]]] = {
    "mtu_bytes": (1500, None, "Ethernet's usual size"),
    "off_mbps": (0, None, "not measured: the throughput with iommu=pt makes the prediction better"),
    "base_rtt_ns": (30_000, (15_000, 60_000), "two hosts and a switch"),
    "initial_window": (10, None, "Linux: TCP_INIT_CWND"),
    "loss_permille": (500, None, "DCTCP and Reno halve the window at a loss"),
    "window_bytes": (1 << 20, (1 << 19, 1 << 22), "Linux: half of tcp_rmem's 6 MiB, and less after truesize"),
    "read_bytes": (131_072, None, "iperf: 128 KiB"),
    "gro_bytes": (65_536, None, "Linux: GRO_LEGACY_MAX_SIZE"),
    "request_bytes": (0, None, "applications only read"),
    "request_ns": (0, None, "applications only read"),
}
"""What no recording shows: value, range, reason."""


@dataclass
class Recorded:
    """What a recording shows."""

    file: Path
    device: str
    given: dict[str, Given] = field(default_factory=dict)
    facts: list[str] = field(default_factory=list)
    """In words, for people: rates, batches, recycling."""

    def derive(self, name: str, value: float, source: str) -> None:
        """A parameter that the recording shows."""
        self.given[name] = Given(math.floor(value), "measured", source, None)

    def assume(self, name: str, value: int, ends: tuple[int, int] | None, source: str) -> None:
        """A parameter that it does not show."""
        self.given.setdefault(name, Given(value, "assumed", source, ends))


# -- reading ---------------------------------------------------------------------------------------


def read(file: Path) -> Recorded:
    """Derive what a recording shows. A recording with losses is refused."""
    np = trace.numpy()
    try:
        recording = trace.Recording(file)
    except OSError as error:
        raise UserError(
            f"cannot read {shown(str(file))} ({error.strerror}): name a recording", code="no-file"
        ) from None
    with recording:
        kept, count, lost = _kept(recording)
        header, damage, summary = recording.header, recording.damage, recording.summary
    events = np.concatenate(kept) if kept else np.zeros(0, list(trace.FIELDS))
    _check(file, header, events, lost or _losses(summary or {}, damage))
    found = Recorded(file, _device(file, header))
    seconds = max(int(events["ns"][-1]) - int(events["ns"][0]), 1) / 1e9
    right = events[(events["flags"] & FAILED) == 0]
    (_nic if found.device == NIC else _drives)(found, header, right, seconds)
    if count > len(events):
        found.facts.append(f"long: all is derived from the first {len(events):,} of {count:,} events")
    return found


def _kept(recording: trace.Recording) -> tuple[list[NDArray[np.void]], int, str]:
    """The first events, the number of all, and the first loss in words."""
    kept: list[NDArray[np.void]] = []
    count, lost = 0, ""
    for events in recording.events():
        if count < MOST_EVENTS:
            kept.append(events)
        count += len(events)
        gaps = events[events["kind"] == trace.LOST]
        if len(gaps) and not lost:
            lost = f"{int(gaps['bytes'].sum()):,} events are lost {int(gaps['ns'][0]) / 1e9:.6f} s after its begin"
    return kept, count, lost


def _losses(summary: Mapping[str, Any], damage: trace.Damage) -> str:
    """Losses that no event tells."""
    if damage.blocks or damage.bytes:
        return "a part is damaged"
    return "its summary counts lost events" if summary.get("lost") else ""


def _check(file: Path, header: Mapping[str, Any], events: NDArray[np.void], lost: str) -> None:
    where = shown(str(file))
    if lost:
        raise UserError(
            f"{where}: {lost}, and missing buffers would look like smaller rings: record again, with more --ring-kib",
            code="bad-recording",
        )
    if header.get("page_bytes", PAGE) != PAGE:
        raise UserError(
            f"{where}: pages of {header['page_bytes']!r} bytes: the model has pages of 4,096", code="bad-model"
        )
    if not _has(events, "map", "map_list"):
        raise UserError(f"{where}: nothing was mapped: record while the device works", code="bad-recording")


def _devices(header: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The header is from elsewhere: what is no list of devices is none."""
    found = header.get("devices")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _has(events: Any, *kinds: str) -> bool:
    """Whether there are events of some kinds."""
    return bool(trace.numpy().isin(events["kind"], [trace.KINDS.index(kind) for kind in kinds]).any())


def _device(file: Path, header: Mapping[str, Any]) -> str:
    """NICs or drives, by the PCI class."""
    kinds = {_CLASSES.get(str(each.get("class", ""))[:4], "") for each in _devices(header)}
    if kinds in ({NIC}, {DRIVES}):
        return kinds.pop()
    said = "devices of several kinds" if len(kinds) > 1 else "no NIC and no disk"
    raise UserError(f"{shown(str(file))}: {said}: record NICs or disks, each by themselves", code="bad-recording")


def _kind(events: NDArray[np.void], *kinds: str) -> NDArray[np.void]:
    found: NDArray[np.void] = events[trace.numpy().isin(events["kind"], [trace.KINDS.index(kind) for kind in kinds])]
    return found


def _towards(events: NDArray[np.void], direction: int) -> NDArray[np.void]:
    found: NDArray[np.void] = events[(events["flags"] & 3) == direction]
    return found


def _live(maps_and_unmaps: NDArray[np.void]) -> tuple[int, bool]:
    """Most buffers that were mapped at once, and whether the recording has seen the map of each."""
    np = trace.numpy()
    begins = np.isin(maps_and_unmaps["kind"], [trace.KINDS.index(kind) for kind in ("map", "map_list")])
    live = np.cumsum(np.where(begins, 1, -1))
    least = min(0, int(live.min())) if len(live) else 0
    return (int(live.max()) - least if len(live) else 0), least == 0


# -- NICs ------------------------------------------------------------------------------------------


def _nic(found: Recorded, header: Mapping[str, Any], events: NDArray[np.void], seconds: float) -> None:
    np = trace.numpy()
    polls = _kind(events, "poll")
    working = polls[polls["bytes"] > 0]
    queues = len(np.unique(working["queue"])) if len(working) else 1
    packets = int(working["bytes"].sum())
    if len(working):
        found.derive("queues", queues, f"NAPI ids with packets in {len(working):,} polls")
        found.facts.append(
            f"batches: {packets / len(working):.1f} packets in a poll that has any, at most {working['bytes'].max()}"
        )
    received = _towards(_kind(events, "map", "unmap"), FROM_DEVICE)
    if len(received):
        _ring(found, header, received, queues)
        last = int(working["ns"][-1]) if len(working) else int(events["ns"][-1])
        _recycling(found, received[received["ns"] <= last], packets)
    _sending(found, _towards(_kind(events, "map"), TO_DEVICE), packets, seconds)
    rate = f"{packets / seconds:,.0f} packets received in a second, over {seconds:.2f} s"
    found.facts.append(f"rate: {rate}; the model's senders are as fast as they may")
    flows = max(queues, 1)
    found.assume("flows", flows, (flows, 8 * flows), "connections are not recorded: one to eight for each queue")
    for name, row in _ASSUMED.items():
        found.assume(name, *row)
    if "send_flows" not in found.given:
        found.derive("send_flows", 0, "little is sent")


def _ring(found: Recorded, header: Mapping[str, Any], received: NDArray[np.void], queues: int) -> None:
    """The ring by the size of buffers that has the most memory; heads of split packets are smaller."""
    np = trace.numpy()
    sizes, counts = np.unique(received["bytes"], return_counts=True)
    size = int(sizes[np.argmax(sizes * counts)])
    most, whole = _live(received[received["bytes"] == size])
    pages = math.ceil(size / PAGE)
    if size % PAGE and size < 65_536:
        found.derive("mtu_bytes", size - ETHERNET, f"receive buffers of {size:,} bytes")
    found.facts.append(f"buffers: {size:,} bytes, {pages} page{'s' if pages > 1 else ''} each; {most:,} mapped at once")
    vendors = {str(each.get("vendor")) for each in _devices(header)}
    if vendors & {SEVERAL_PACKETS}:
        found.facts.append("descriptors: several packets in one, which the driver's file describes")
        return
    found.derive("descriptor_packets", 1, "a buffer is a packet's in drivers of this vendor")
    found.derive("descriptor_pages", pages, f"receive buffers of {size:,} bytes")
    found.derive("stride_bytes", PAGE, "a packet begins a buffer")
    if whole:
        found.derive("ring", most / queues, f"buffers mapped at once: {most:,}; queues: {queues}")
    else:
        found.facts.append("the ring is not shown: it was filled before the recording began")


def _recycling(found: Recorded, received: NDArray[np.void], packets: int) -> None:
    """Whether buffers are used again while mapped."""
    unmapped = len(_kind(received, "unmap"))
    if not packets:
        return
    share = unmapped / packets
    found.facts.append(f"recycling: {unmapped:,} buffers were unmapped for {packets:,} packets")
    source = f"{unmapped:,} buffers were unmapped for {packets:,} packets received"
    if share >= 0.5:
        found.given["driver"] = Given("none", "measured", source, None)
    elif "descriptor_packets" in found.given:
        found.given["driver"] = Given("page_pool", "measured", source, None)


def _sending(found: Recorded, sent: NDArray[np.void], packets: int, seconds: float) -> None:
    np = trace.numpy()
    total = int(sent["bytes"].sum())
    found.facts.append(f"sent: {total * 8 / seconds / 1e9:.3f} Gb/s in {len(sent):,} buffers")
    mtu = int(found.given["mtu_bytes"].value) if "mtu_bytes" in found.given else _ASSUMED["mtu_bytes"][0]
    if total <= SENT * packets * mtu or not total:
        return
    flows = int(found.given["queues"].value) if "queues" in found.given else 1
    found.assume("send_flows", flows, (flows, 8 * flows), "it sends; connections are not recorded")
    large = sent["bytes"][sent["bytes"] >= PAGE]
    if len(large):
        sizes, counts = np.unique(large, return_counts=True)
        size = int(sizes[np.argmax(sizes * counts)])
        found.derive("fragment_bytes", min(size, 65_536), f"most of what is sent is in buffers of {size:,} bytes")


# -- drives ----------------------------------------------------------------------------------------


def _drives(found: Recorded, header: Mapping[str, Any], events: NDArray[np.void], seconds: float) -> None:
    np = trace.numpy()
    requests = _kind(events, "map", "map_list", "unmap", "unmap_list")
    requests = requests[requests["bytes"] >= CONTROL]
    maps = _kind(requests, "map", "map_list")
    if not len(maps):
        raise UserError(
            f"{shown(str(found.file))}: no request was mapped: record while disks work", code="bad-recording"
        )
    jobs = len(np.unique(maps["cpu"]))
    most, _ = _live(requests)
    mean = float(maps["bytes"].mean())
    block = min(LARGEST_BLOCK, max(CONTROL, round(mean / CONTROL) * CONTROL))
    found.derive("jobs", jobs, f"CPUs that have mapped {len(maps):,} requests")
    found.derive("depth", max(1, math.ceil(most / jobs)), f"most requests that were mapped at once: {most:,}")
    found.derive(
        "block_bytes", block, f"mean of requests of {int(maps['bytes'].min()):,} to {int(maps['bytes'].max()):,}"
    )
    read = len(_towards(maps, FROM_DEVICE)) / len(maps)
    devices = len(_devices(header))
    found.facts += [
        f"requests: {read:.0%} read, the rest writes; the model's drives read",
        f"rate: {len(maps) / seconds:,.0f} requests in a second, {maps['bytes'].sum() / seconds / 2**20:,.1f} MiB/s",
        f"drives: {devices} in the recording; the machine's file says how many there are",
    ]


# -- as a workload ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """A recording as a workload."""

    described: Described
    rows: list[dict[str, Any]]
    """The parameters, with their origin: derived, given, assumed."""
    facts: list[str]


def workload(file: Path, known: Parameters, own: Described | None) -> Workload:
    """The workload. What the recording shows has priority over the user's file `own`, and that over assumptions."""
    found = read(file)
    if own and own.device != found.device:
        raise UserError(f"{own.file}: device is {own.device}, and the recording is of {found.device}", code="bad-model")
    derived = {name: each for name, each in found.given.items() if each.how == "measured"}
    given = {**found.given, **(own.given if own else {}), **derived}
    given = {name: each for name, each in given.items() if name in known}
    for name, each in given.items():
        if fault := known[name].fault(each.value):
            raise UserError(f"{shown(str(file))}: {name}: {fault}: the model cannot carry it", code="bad-model")
    rows = [*_rows(given, known, own, derived)]
    described = Described(file, "workload", f"recording {shown(str(file))}", None, given, {}, found.device)
    return Workload(described, rows, found.facts)


def _rows(
    given: Mapping[str, Given], known: Parameters, own: Described | None, derived: Mapping[str, Given]
) -> Iterator[dict[str, Any]]:
    for name, each in given.items():
        how = "derived" if name in derived else "given" if own and name in own.given else "assumed"
        value: Value = each.value
        yield {"parameter": name, "value": value, "unit": known[name].unit, "how": how, "source": each.source}


def print_table(found: Workload) -> None:
    """The parameters and facts, for people."""
    names = ("parameter", "value", "unit", "how", "source")
    output.table(names, [[row[name] for name in names] for row in found.rows])
    for fact in found.facts:
        click.echo(f"recorded: {fact}")
    if assumed := [row["parameter"] for row in found.rows if row["how"] == "assumed"]:
        click.echo(f"assumed: {', '.join(assumed)}: give what you know by --workload W.toml")
    click.echo()
