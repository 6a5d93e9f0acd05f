# SPDX-License-Identifier: GPL-2.0-only
"""Parts of the machine model against programs and formulas of other origin.

Translation: a simulation in Python, of lists in the order of use, gives the same hits and the same reads of tables for
each access; with the sizes of gem5's SMMUv3, and replacement in turns as gem5 has, about the same number. Link: the
formulas of pcie-bench (SIGCOMM 2018) for payload and for what is under way.
"""

from __future__ import annotations

import math
import random
import re
import subprocess
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from xsmmu import trace
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import model

pytestmark = pytest.mark.early

RECORDINGS = sorted((PROJECT / "tests/trace/recordings").glob("*.xsr"))
MACHINES = sorted((PROJECT / "model/machines").glob("*.toml"))
LEVELS = 3
BITS = 9


@dataclass(frozen=True)
class Sizes:
    """Of the IOTLB, its sets, and the walk caches of levels 1 to 3."""

    entries: int
    ways: int
    upper: tuple[int, int, int]
    upper_ways: int = 0
    """0: fully associative."""


SMALL = Sizes(16, 4, (2, 3, 4))
BROADWELL = Sizes(128, 8, (16, 16, 12))
GEM5 = Sizes(2048, 4, (4, 28, 348), 4)
"""SMMUv3.py: main TLB, and walk caches of stage 1, levels 0 to 2."""

Command = tuple[int | str, ...]


# -- the simulation --------------------------------------------------------------------------------


@dataclass
class Lists:
    """Sets of ways as lists; the number used least recently, or with `in_turns` added first, stands first."""

    sets: int
    ways: int
    in_turns: bool
    lists: dict[int, list[int]] = field(default_factory=dict)

    def has(self, number: int) -> bool:
        """Whether a number is there, which counts as a use."""
        mine = self.lists.get(number % self.sets, [])
        if number not in mine:
            return False
        if not self.in_turns:
            mine.remove(number)
            mine.append(number)
        return True

    def add(self, number: int) -> None:
        """Add a number, in the place of the first if there is no room."""
        mine = self.lists.setdefault(number % self.sets, [])
        if len(mine) == self.ways:
            del mine[0]
        mine.append(number)

    def drop(self, first: int, last: int) -> None:
        """Drop numbers."""
        for key, mine in self.lists.items():
            self.lists[key] = [number for number in mine if not first <= number <= last]


def simulated(sizes: Sizes, commands: Iterable[Command], in_turns: bool = False) -> list[int]:
    """The reads of tables of each access."""
    tlb = Lists(sizes.entries // sizes.ways, sizes.ways, in_turns)
    ways = [sizes.upper_ways or entries for entries in sizes.upper]
    upper = [Lists(n // w, w, in_turns) for n, w in zip(sizes.upper, ways, strict=True)]
    found = []
    for command, *numbers in commands:
        first = int(numbers[0]) if numbers else 0
        if command == "a":
            found.append(_reads(tlb, upper, first))
        elif command == "d":
            tlb.drop(first, int(numbers[1]))
        else:
            for each in upper:
                each.lists.clear()
    return found


def _reads(tlb: Lists, upper: Sequence[Lists], page: int) -> int:
    if tlb.has(page):
        return 0
    tlb.add(page)
    # The leaf entry, and above it each table whose place no walk cache has, from below.
    reads = 1
    for level in reversed(range(LEVELS)):
        number = page >> BITS * (LEVELS - level)
        if upper[level].has(number):
            break
        upper[level].add(number)
        reads += 1
    return reads


# -- the model -------------------------------------------------------------------------------------


def fed(sizes: Sizes, commands: Iterable[Command], *, pcie: tuple[int, int, int] = (8000, 0, 512), **more: int) -> str:
    """The output of the model's parts."""
    program = model.compiled(more=("tests/model/feed.c",), name="feed")
    translation = (sizes.entries, sizes.ways, *sizes.upper, more.get("walkers", 1), more.get("read_ns", 100))
    head = (*translation, *pcie, more.get("iommu", 1))
    text = f"{' '.join(map(str, head))}\n" + "".join(f"{' '.join(map(str, command))}\n" for command in commands)
    return subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=120).stdout


def reads(sizes: Sizes, commands: Iterable[Command]) -> list[int]:
    return [int(line) for line in fed(sizes, commands).split()]


def visits(seed: int, count: int = 6000) -> list[Command]:
    """Rings that move, pages far apart, and flushes of all kinds."""
    chance = random.Random(seed)
    base = chance.randrange(1 << 30)
    made: list[Command] = []
    for at in range(count):
        kind = chance.random()
        page = (
            base + at // 8 + chance.randrange(64)
            if kind < 0.7
            else base + (chance.randrange(4000) << chance.choice((0, 9, 18)))
        )
        made.append(("a", page))
        if kind < 0.05:
            made.append(("d", page, page + chance.choice((0, 0, 63, 5000))))
            if kind < 0.025:
                made.append(("t",))
    return made


def replayed(file: Path) -> list[Command]:
    """A recording as accesses: each page when it is mapped and before it is unmapped, and a flush at each unmap."""
    made: list[Command] = []
    kinds = {name: trace.KINDS.index(name) for name in ("map", "unmap", "map_list", "unmap_list")}
    with trace.Recording(file) as recording:
        for events in recording.events():
            for event in events:
                first = int(event["iova"]) >> 12
                last = (int(event["iova"]) + max(int(event["bytes"]), 1) - 1) >> 12
                if event["kind"] in kinds.values():
                    made += [("a", page) for page in range(first, last + 1)]
                if event["kind"] in (kinds["unmap"], kinds["unmap_list"]):
                    made += [("d", first, last), ("t",)]
    return made


@pytest.mark.parametrize("sizes", [SMALL, BROADWELL], ids=["small", "broadwell"])
@pytest.mark.parametrize("seed", range(4))
def test_each_access_has_the_reads_of_the_simulation(sizes: Sizes, seed: int) -> None:
    commands = visits(seed)
    mine = reads(sizes, commands)
    assert len({*mine}) == 5, "hits, and walks of 1 to 4 reads"
    assert mine == simulated(sizes, commands)


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_recordings_have_the_reads_of_the_simulation(file: Path) -> None:
    commands = replayed(file)
    assert sum(command[0] == "a" for command in commands) > 500
    for sizes in (SMALL, BROADWELL):
        assert reads(sizes, commands) == simulated(sizes, commands)


@pytest.mark.parametrize("seed", range(3))
def test_misses_are_about_those_of_gem5(seed: int) -> None:
    """gem5 evicts in turns, in sets of 4 ways; the walk caches of the model are fully associative."""
    commands = visits(seed, 20_000)
    mine, gem5 = reads(GEM5, commands), simulated(GEM5, commands, in_turns=True)
    misses = [sum(read > 0 for read in each) for each in (mine, gem5)]
    assert misses[0] == pytest.approx(misses[1], rel=0.1)
    assert sum(mine) == pytest.approx(sum(gem5), rel=0.1)


# -- the link --------------------------------------------------------------------------------------

PAYLOAD = 256
WRITE_HEAD = 24
"""Bytes of a write beside its data: framing, link layer, header."""


def on_the_wire(size: int) -> int:
    """pcie-bench: bytes that a write of so many bytes takes."""
    return -(-size // PAYLOAD) * WRITE_HEAD + size


def gbps_of(generation: str, lanes: int) -> float:
    """The rate of a link after its coding."""
    rate = {"3.0": 8.0, "4.0": 16.0, "5.0": 32.0}[generation]
    return rate * lanes * 128 / 130


def written(count: int, size: int, pcie: tuple[int, int, int], **more: int) -> float:
    """Bits a ns of many writes without the begin; their pages share no table and no set of the IOTLB for long."""
    pages = [at % 500 << 27 for at in range(count)]
    lines = fed(BROADWELL, [("w", page, size) for page in pages], pcie=pcie, **{"iommu": 0, **more}).split()
    begins = [*map(int, lines[::2])]
    half = count // 2
    return (count - 1 - half) * size * 8 / (begins[-1] - begins[half])


@pytest.mark.parametrize("size", [64, 256, 1024, 4096])
@pytest.mark.parametrize("mbps", [50_000, 115_000])
def test_a_link_carries_its_payload(size: int, mbps: int) -> None:
    """Times are whole ns, so small writes are rounded."""
    assert written(4000, size, (mbps, 0, 1 << 20)) == pytest.approx(mbps / 1000, rel=0.005 + 1 / (size * 8000 / mbps))


@pytest.mark.parametrize(("under_way", "latency"), [(4096, 1000), (8192, 1000), (16384, 2000), (65536, 500)])
def test_what_is_under_way_bounds_the_rate(under_way: int, latency: int) -> None:
    """pcie-bench: bytes under way by the time of each; of in-order packets of 256 bytes."""
    found = written(4000, PAYLOAD, (126_000, latency, under_way))
    each = math.ceil(PAYLOAD * 8 / 126)  # the model's times are whole ns
    assert found == pytest.approx(min(PAYLOAD * 8 / each, under_way * 8 / (latency + each)), rel=0.03)


@pytest.mark.parametrize("read_ns", [100, 235])
def test_walks_bound_the_rate(read_ns: int) -> None:
    """Every write misses, all caches: four reads each, one after the other, by one walker."""
    found = written(2000, 4096, (126_000, 0, 1 << 20), iommu=1, read_ns=read_ns)
    assert found == pytest.approx(min(126.0, 4096 * 8 / (4 * read_ns)), rel=0.01)


LINKS = [
    (file.stem, name, row)
    for file in MACHINES
    for name, row in tomllib.loads(file.read_text())["parameters"].items()
    if name in ("pcie_mbps", "drive_mbps") and re.search(r"PCIe [345]\.0 x\d+", row["source"])
]


@pytest.mark.parametrize(("machine", "name", "row"), LINKS, ids=[f"{link[0]}-{link[1]}" for link in LINKS])
def test_no_link_is_faster_than_its_lanes(machine: str, name: str, row: dict[str, Any]) -> None:
    """Of what the lanes carry, the payload is what heads leave; the link layer takes up to 8 % more."""
    named = re.search(r"PCIe ([345]\.0) x(\d+)", row["source"])
    assert machine and name and named
    payload = 1000 * gbps_of(named[1], int(named[2])) * PAYLOAD / on_the_wire(PAYLOAD)
    assert 0.75 * payload <= row["value"] <= 1.001 * payload


def test_payload_of_links_that_pcie_bench_has_measured() -> None:
    """57.88 Gb/s of 62.96 are left of 3.0 x8 by the link layer; 256 bytes then have 24 bytes of heads."""
    assert gbps_of("3.0", 8) == pytest.approx(62.96, abs=0.06)
    assert on_the_wire(64) == 88 and on_the_wire(1024) == 1120
