# SPDX-License-Identifier: GPL-2.0-only
"""Published statements about virtual IOMMUs, decided by the counts and times of their protocols (xsmmu.virtual).

A statement holds, does not hold, or cannot be said here. Each has the figures that decide, and the reason. A statement
about time holds if it holds for all sets of prices of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from xsmmu import virtual
from xsmmu.errors import UserError
from xsmmu.virtual import LAZY, POLL, Machine, Protocol, Values
from xsmmu_lab.project import PROJECT

FOLDER: Final = PROJECT / "model/virtual"
X86: Final = FOLDER / "machines/kvm-x86.toml"
ARM: Final = FOLDER / "machines/kvm-arm64.toml"
STUDY: Final = "Linux mailing list, VT-d caching mode"
VIRTIO: Final = "virtio-iommu and vhost-iommu, mailing lists"
NESTED: Final = "nested VT-d on Linux 6.12"


@dataclass(frozen=True)
class Decided:
    """A statement; `holds` is None if it cannot be said here."""

    says: str
    source: str
    holds: bool | None
    figures: str
    why: str

    @property
    def words(self) -> str:
        """The verdict."""
        return {True: "holds", False: "does not hold", None: "cannot be said here"}[self.holds]


class Guests:
    """Protocols with the machines of both architectures."""

    def __init__(self) -> None:
        self.all = virtual.protocols(FOLDER / "protocols.toml")
        self.x86, self.arm = virtual.machine(X86), virtual.machine(ARM)

    def counts(self, name: str, mode: str = "strict", machine: Machine | None = None) -> dict[str, float]:
        """For each page."""
        return virtual.traffic(self.all[name], mode, int((machine or self.x86).values["ring"]))

    def wait(self, name: str, mode: str = "strict") -> Callable[[Values], float]:
        """Time of a page, by prices."""
        found = self.counts(name, mode)
        return lambda values: virtual.wait_ns(found, values)


def _range(found: Mapping[str, float], digits: int = 0) -> str:
    return f"{found['value']:,.{digits}f} ({found['low']:,.{digits}f} to {found['high']:,.{digits}f})"


def _always(found: Mapping[str, float], limit: float = 1.0) -> bool | None:
    """Whether a ratio is above the limit for all sets; None if for some."""
    return True if found["low"] > limit else None if found["high"] > limit else False


def decide() -> list[Decided]:
    """All statements."""
    guests = Guests()
    parts = (_caching, _uses, _shared, _ideas, _nested)
    return [each for part in parts for each in part(guests)]


def _caching(guests: Guests) -> Iterator[Decided]:
    strict, lazy = guests.wait("vtd-caching"), guests.wait("vtd-caching", "lazy")
    ring = int(guests.x86.values["ring"])

    def pages(values: Values) -> float:
        """Mapped pages from which on the scans of lazy cost more than the exits of strict."""
        without = lazy(values) - ring * int(values["scan_ns"]) / LAZY
        return (strict(values) - without) * LAZY / int(values["scan_ns"])

    from_pages = guests.x86.interval(pages)
    yield Decided(
        "shadowed second-stage tables make strict cheaper than lazy in caching mode",
        STUDY,
        False if from_pages["low"] > ring else None,
        f"a page, strict {strict(guests.x86.values):,.0f} ns, lazy {lazy(guests.x86.values):,.0f} ns with {ring:,}"
        f" mapped pages; strict is cheaper from {_range(from_pages)} mapped pages on",
        "a flush of the domain makes the host visit all entries, a flush of a page does not; so it depends on how many"
        " pages stay mapped (two NIC drivers are said to leave tens of thousands)",
    )
    ratio = guests.x86.interval(lambda values: guests.wait("vtd-first-stage")(values) / _lazy_first(guests, values))
    yield Decided(
        "with first-stage tables, which are not shadowed, lazy is right",
        STUDY,
        _always(ratio),
        f"a page, strict takes {_range(ratio)} times as long as lazy",
        "no entry is visited in a flush of the domain: the tables are the guest's own",
    )
    page_ns = int(guests.x86.values["page_cpu_ns"]) + int(guests.x86.values["map_cpu_ns"])
    often = guests.x86.interval(lambda values: (51 / 39.3 - 1) * page_ns / guests.wait("vtd-first-stage")(values))
    yield Decided(
        "first-stage tables in caching mode: lazy has 51 Gb/s, strict 39.3",
        STUDY,
        None,
        f"the ratio of 1.30 needs {_range(often, 3)} invalidations for each page received",
        "cores and invalidations for each page are not published; recycled pages are not unmapped",
    )


def _lazy_first(guests: Guests, values: Values) -> float:
    return guests.wait("vtd-first-stage", "lazy")(values)


def _uses(guests: Guests) -> Iterator[Decided]:
    world = virtual.World(guests.all["virtio-map-user"])
    world.do("map", [0])
    world.do("sync", [0])
    world.counts.clear()
    for _ in range(1000):
        world.do("dma", [0])
    left = sum(world.counts.values())
    yield Decided(
        "static maps: only the set-up matters",
        VIRTIO,
        left == 0,
        f"{left} requests, kicks and exits in 1,000 uses of a mapped page",
        "MAP and UNMAP are sent by map and unmap alone",
    )
    gains = {
        name: guests.wait(name)(guests.x86.values) / guests.wait(name, "lazy")(guests.x86.values) for name in OWNED
    }
    yield Decided(
        "kernel-owned devices: lazy makes dynamic maps fast",
        VIRTIO,
        all(gain > 1.5 for gain in gains.values()),
        ", ".join(f"{name}: strict takes {gain:,.1f} times as long" for name, gain in gains.items()),
        "with MAP requests, which lazy does not defer, half of the exits stay",
    )
    found = guests.counts("virtio-map-user", "lazy")
    share = 1 / found["kick"]
    yield Decided(
        "with over-commit, invalidate-on-map must be fast, too",
        VIRTIO,
        share > 0.5,
        f"{100 * share:.1f} % of the kicks under lazy are those of maps",
        "lazy defers the unmap's kick and not the map's",
    )
    yield from _svm(guests)


OWNED: Final = ("virtio-map-user", "virtio-map-kernel", "virtio-shared-kernel")


def _svm(guests: Guests) -> Iterator[Decided]:
    protocol = guests.all["shared-address-space"]
    try:
        virtual.traffic(protocol, "lazy", 8)
        refused = False
    except UserError:
        refused = True
    found = guests.counts("shared-address-space")
    yield Decided(
        "shared address spaces: each destructive change needs a synchronous invalidation",
        VIRTIO,
        refused and found["command"] == 1,
        f"{found['command']:g} invalidation for each page that is taken away; a deferred flush is refused",
        "the kernel gives the page to a new owner as soon as the change returns",
    )
    fault = guests.x86.interval(lambda values: _fault_ns(values) / virtual.wait_ns(found, values))
    yield Decided(
        "shared address spaces: fault reporting must be fast",
        VIRTIO,
        _always(fault, 0.5),
        f"a first use by a fault is {_range(fault, 2)} of the time of a page",
        "a page is reached by a fault first, which leaves the guest twice",
    )


def _fault_ns(values: Values) -> float:
    names = ("exit_ns", "exit_ns", "fault_ns", "request_ns", "handle_ns")
    return sum(int(values[name]) for name in names)


def _shared(guests: Guests) -> Iterator[Decided]:
    emulated, kernel = (guests.counts(name, machine=guests.arm) for name in ("smmu-emulated", "virtio-shared-kernel"))
    most = guests.arm.interval(lambda values: virtual.wait_ns(emulated, values) / virtual.wait_ns(kernel, values))
    one = guests.arm.interval(lambda values: _ratio(emulated, kernel, values, 1.0))
    yield Decided(
        "vhost-iommu with shared tables is faster than an emulated vSMMU in user space, strict",
        VIRTIO,
        _always(one),
        f"{_range(one, 2)} times with an invalidation for each page; exits {emulated['exit']:g} and {kernel['exit']:g},"
        f" to user space {emulated['user']:g} and {kernel.get('user', 0):g}",
        "each exit of the emulated one goes on to user space, and the guest polls a trapped register",
    )
    for name, published in (("TCP_STREAM", 1.8), ("TCP_MAERTS", 5.5)):
        needed = _invalidations(guests, emulated, kernel, published)
        many = "no number of invalidations" if needed is None else f"{needed:.2f} invalidations a page"
        yield Decided(
            f"vhost-iommu with shared tables is {published} times as fast on {name}",
            VIRTIO,
            None,
            f"needs {many} with these prices; at most {_range(most, 2)} times with very many",
            "neither the machine nor the number of invalidations is published",
        )


def _ratio(slow: virtual.Counts, fast: virtual.Counts, values: Values, often: float) -> float:
    """Throughput of one protocol in units of the other's, with so many invalidations a page, of one CPU."""
    page_ns = int(values["page_cpu_ns"]) + int(values["map_cpu_ns"])
    return (page_ns + often * virtual.wait_ns(slow, values)) / (page_ns + often * virtual.wait_ns(fast, values))


def _invalidations(guests: Guests, slow: virtual.Counts, fast: virtual.Counts, ratio: float) -> float | None:
    """Invalidations for each page at which the ratio is reached."""
    values = guests.arm.values
    page_ns = int(values["page_cpu_ns"]) + int(values["map_cpu_ns"])
    slope = virtual.wait_ns(slow, values) - ratio * virtual.wait_ns(fast, values)
    return (ratio - 1) * page_ns / slope if slope > 0 else None


def _ideas(guests: Guests) -> Iterator[Decided]:
    protocol, found = guests.all["virtio-shared-kernel"], guests.counts("virtio-shared-kernel")
    yield _queues(guests, protocol, found)
    two, both = guests.counts("virtio-shared-ats"), guests.counts("virtio-both-tlbs")
    saved = guests.x86.interval(lambda values: 1 - virtual.wait_ns(both, values) / virtual.wait_ns(two, values))
    yield Decided(
        "idea: one request invalidates both TLBs",
        VIRTIO,
        both["kick"] < two["kick"] and saved["low"] > 0,
        f"kicks {two['kick']:g} and {both['kick']:g}; saves {_range(saved, 2)} of the time",
        "the host has the same two commands, the guest leaves once",
    )
    pages, ranges = guests.counts("virtio-map-kernel", "aware"), guests.counts("virtio-ranges", "aware")
    yield Decided(
        "idea: requests for ranges",
        VIRTIO,
        ranges["request"] < pages["request"],
        f"requests {pages['request']:g} and {ranges['request']:.3f} a page, in polls of {POLL}",
        "kicks are the same where the driver is batch-aware: fewer requests are made and handled",
    )
    plain, posted = guests.counts("virtio-map-software"), guests.counts("virtio-posted")
    yield Decided(
        "idea: posted MAP",
        VIRTIO,
        posted["kick"] < plain["kick"] and posted["exit"] < plain["exit"],
        f"kicks {plain['kick']:g} and {posted['kick']:g}, exits {plain['exit']:g} and {posted['exit']:g} a page",
        "the device fetches the request at its miss",
    )
    asks = guests.counts("virtio-shared-software")
    yield Decided(
        "software devices that ask at a miss: MAP, DMA, UNMAP cost three switches; DMA, INVAL two",
        VIRTIO,
        (plain["exit"], asks["exit"]) == (3, 2),
        f"{plain['exit']:g} and {asks['exit']:g} exits a page",
        "counted: a kick each of map, device and unmap; of device and invalidation",
    )


def _queues(guests: Guests, protocol: Protocol, found: virtual.Counts) -> Decided:
    """The cores from which on one queue limits."""

    def cores(values: Values) -> float:
        page_ns = int(values["page_cpu_ns"]) + int(values["map_cpu_ns"]) + virtual.wait_ns(found, values)
        return page_ns / virtual.lock_ns(protocol, found, values)

    limit = guests.x86.interval(cores)
    return Decided(
        "idea: several queues",
        VIRTIO,
        True if limit["high"] < 64 else None,
        f"the lock of one queue limits from {_range(limit, 1)} CPUs on, with an invalidation for each page",
        "the doorbell is written under the lock, and its exit is as long",
    )


def _nested(guests: Guests) -> Iterator[Decided]:
    values = guests.x86.values
    trapped = int(values["exit_ns"]) + int(values["user_ns"])
    yield Decided(
        "nested VT-d: a trapped doorbell costs 6 to 7 us",
        NESTED,
        None,
        f"{trapped / 1000:g} us in the machine's file",
        "an input of these times: exits are not computed",
    )
    found = guests.counts("vtd-first-stage")
    locked = virtual.lock_ns(guests.all["vtd-first-stage"], found, values)
    most = virtual.PAGE_BITS / (237.8 * locked)
    yield Decided(
        "nested VT-d: one queue lock for all cores, and a collapse between 8 and 16",
        NESTED,
        None,
        f"the lock is held for {locked:,.0f} ns; 237.8 Gb/s of 8 cores allow {most:.3f} invalidations a page received",
        "a first-in-first-out lock limits the throughput and never lowers it: the collapse needs a hold that grows with"
        " the number of waiters, which is an input",
    )
