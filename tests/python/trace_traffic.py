# SPDX-License-Identifier: GPL-2.0-only
"""Made-up events like those of iperf3 and fio, to measure the size of recordings and to test the file format.

IOVAs come as from Linux's caches: per CPU two magazines of 128 and a depot, last in first out, for each power of two;
behind a flush queue of 256 if lazy. `block` is this project's own placement: blocks of 64 pages in order.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

PAGE: Final = 4096
MAGAZINE: Final = 128
QUEUE: Final = 256
PFN_BITS: Final = 30
"""Bits of a page's identity: of a machine with 4 TiB of memory, in 4 KiB pages."""

MAP, UNMAP, MAP_LIST, ENTRY, UNMAP_LIST, ALLOC, FREE, SYNC_CPU, SYNC_DEVICE = range(1, 10)
POLL: Final = 15
LOST: Final = 16
TO_DEVICE, FROM_DEVICE = 1, 2


class Event(NamedTuple):
    """struct trace_event."""

    ns: int
    iova: int = 0
    page: int = 0
    bytes: int = 0
    span: int = 0
    queue: int = 0
    offset: int = 0
    cpu: int = 0
    device: int = 0
    kind: int = 0
    flags: int = 0


EVENT: Final = struct.Struct("<QQQQQIIHHBB2x")


def packed(events: list[Event]) -> bytes:
    """The events as structures of an x86-64 or arm64 machine."""
    return b"".join(EVENT.pack(*event) for event in events)


def unpacked(data: bytes) -> list[Event]:
    """The opposite of packed()."""
    return [Event(*fields) for fields in EVENT.iter_unpack(data)]


@dataclass
class _Cpu:
    loaded: list[int] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)


class Iovas:
    """IOVAs of one domain, as an allocator hands them out."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.top = 1 << 20
        self.caches: dict[tuple[int, int], _Cpu] = {}
        self.depots: dict[int, list[list[int]]] = {}
        self.queues: dict[int, list[tuple[int, int]]] = {}
        self.blocks: dict[int, list[int]] = {}
        self.live: dict[int, int] = {}
        self.free: list[int] = []

    def take(self, cpu: int, pages: int) -> int:
        """The first page of a range."""
        if self.mode == "block" and pages == 1:
            return self._take_in_block(cpu)
        order = (pages - 1).bit_length()
        cache = self.caches.setdefault((cpu, order), _Cpu())
        if not cache.loaded and cache.previous:
            cache.loaded, cache.previous = cache.previous, cache.loaded
        if not cache.loaded and self.depots.get(order):
            cache.loaded = self.depots[order].pop()
        if cache.loaded:
            return cache.loaded.pop()
        self.top -= 1 << order
        return self.top

    def give(self, cpu: int, first: int, pages: int) -> None:
        """Free a range."""
        if self.mode == "block" and pages == 1:
            self._give_in_block(first)
        elif self.mode == "lazy":
            queue = self.queues.setdefault(cpu, [])
            queue.append((first, pages))
            if len(queue) == QUEUE:
                for each in queue:
                    self._cache(cpu, *each)
                queue.clear()
        else:
            self._cache(cpu, first, pages)

    def _cache(self, cpu: int, first: int, pages: int) -> None:
        order = (pages - 1).bit_length()
        cache = self.caches.setdefault((cpu, order), _Cpu())
        if len(cache.loaded) == MAGAZINE:
            cache.loaded, cache.previous = cache.previous, cache.loaded
        if len(cache.loaded) == MAGAZINE:
            self.depots.setdefault(order, []).append(cache.loaded)
            cache.loaded = []
        cache.loaded.append(first)

    def _take_in_block(self, cpu: int) -> int:
        mine = self.blocks.setdefault(cpu, [])
        if not mine:
            if self.free:
                block = self.free.pop()
            else:
                self.top = (self.top - 64) // 64 * 64
                block = self.top
            mine.extend(range(block + 63, block - 1, -1))
            self.live[block // 64] = 64
        return mine.pop()

    def _give_in_block(self, first: int) -> None:
        self.live[first // 64] -= 1
        if not self.live[first // 64]:
            self.free.append(first // 64 * 64)


class World:
    """A clock and memory."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ns = 0
        self.events: list[Event] = []
        self.identities: dict[int, int] = {}
        self.frames = 1 << 14
        self.stack = list(range(self.frames))
        self.random.shuffle(self.stack)

    def add(self, mean_ns: float, kind: int, **fields: int) -> None:
        """Append an event so long after the one before; the time varies by a fifth, and sometimes by far more."""
        jitter = self.random.lognormvariate(0, 0.2) + (self.random.random() < 0.02) * self.random.expovariate(0.2)
        self.ns += max(1, int(mean_ns * jitter))
        self.events.append(Event(self.ns, kind=kind, **fields))

    def identity(self, frame: int) -> int:
        """The keyed permutation: regions of 2 MiB change places, and pages in them."""
        if frame not in self.identities:
            self.identities[frame] = self.random.getrandbits(PFN_BITS)
        return self.identities[frame]

    def new_page(self) -> int:
        """A page from the CPU's list of free pages, the last freed first."""
        if not self.stack:
            self.stack.extend(range(self.frames, self.frames + 512))
            self.frames += 512
        return self.stack.pop()

    def free_page(self, page: int) -> None:
        """Give a page back; a few go elsewhere."""
        if self.random.random() < 0.02:
            self.stack.insert(self.random.randrange(len(self.stack)), page)
        else:
            self.stack.append(page)


class Receiver:
    """A NIC's receive queue that maps and unmaps each buffer (e1000e)."""

    def __init__(self, world: World, iovas: Iovas, cpu: int, device: int = 0) -> None:
        self.world, self.iovas, self.cpu, self.device = world, iovas, cpu, device
        self.ring: deque[tuple[int, int]] = deque()
        self.held: deque[int] = deque()
        self.fill(256)

    def fill(self, count: int) -> None:
        """Map buffers."""
        for _ in range(count):
            page, iova = self.world.new_page(), self.iovas.take(self.cpu, 1)
            self.ring.append((iova, page))
            self.world.add(
                180,
                MAP,
                iova=iova * PAGE,
                page=self.world.identity(page),
                bytes=PAGE,
                cpu=self.cpu,
                device=self.device,
                flags=FROM_DEVICE,
                queue=40 + self.cpu,
            )

    def poll(self) -> None:
        """A NAPI poll: unmap, refill by 16; the stack frees pages later."""
        done = self.world.random.choice((3, 8, 16, 22, 31, 40, 64))
        unfilled = 256 - len(self.ring)
        for _ in range(min(done, len(self.ring))):
            iova, page = self.ring.popleft()
            self.world.add(
                210,
                UNMAP,
                iova=iova * PAGE,
                bytes=PAGE,
                cpu=self.cpu,
                device=self.device,
                flags=FROM_DEVICE,
                queue=40 + self.cpu,
            )
            self.iovas.give(self.cpu, iova, 1)
            self.held.append(page)
            unfilled += 1
            if unfilled == 16:
                self.fill(16)
                unfilled = 0
        while len(self.held) > 200:
            self.world.free_page(self.held.popleft())
        self.world.add(150, POLL, cpu=self.cpu, queue=40 + self.cpu, bytes=done, device=self.device)
        self.world.ns += int(self.world.random.expovariate(1 / 20000))


class PoolReceiver:
    """A NIC's receive queue with a page pool: buffers stay mapped, and are synced."""

    def __init__(self, world: World, iovas: Iovas, cpu: int) -> None:
        self.world, self.cpu = world, cpu
        self.ring: deque[tuple[int, int]] = deque()
        self.out: deque[tuple[int, int]] = deque()
        self.pool: list[tuple[int, int]] = []
        for _ in range(1024):
            page, iova = world.new_page(), iovas.take(cpu, 1)
            self.pool.append((iova, page))
            self._event(180, MAP, (iova, page), PAGE)
        while len(self.ring) < 256:
            self.ring.append(self.pool.pop())

    def _event(self, ns: int, kind: int, buffer: tuple[int, int], count: int) -> None:
        page = self.world.identity(buffer[1]) if kind == MAP else 0
        self.world.add(
            ns,
            kind,
            iova=buffer[0] * PAGE,
            page=page,
            bytes=count,
            cpu=self.cpu,
            flags=FROM_DEVICE,
            queue=40 + self.cpu,
        )

    def poll(self) -> None:
        """A NAPI poll."""
        done = self.world.random.choice((8, 16, 31, 40, 64))
        for _ in range(done):
            buffer = self.ring.popleft()
            self._event(120, SYNC_CPU, buffer, 1514 if self.world.random.random() < 0.95 else 66)
            self.out.append(buffer)
        while len(self.out) > 300:
            self.pool.append(self.out.popleft())
        for _ in range(done):
            buffer = self.pool.pop()
            self.ring.append(buffer)
            self._event(90, SYNC_DEVICE, buffer, 1536)
        self.world.add(150, POLL, cpu=self.cpu, queue=40 + self.cpu, bytes=done)
        self.world.ns += int(self.world.random.expovariate(1 / 20000))


class Sender:
    """A NIC's send queue: a head and up to 17 fragments of 32 KiB folios, unmapped in order by NAPI."""

    def __init__(self, world: World, iovas: Iovas, cpu: int, napi_cpu: int) -> None:
        self.world, self.iovas, self.cpu, self.napi_cpu = world, iovas, cpu, napi_cpu
        self.ring: deque[tuple[int, int, int]] = deque()
        self.sent: deque[int] = deque()
        self.folio, self.used = 0, 32768

    def _next_folio(self) -> None:
        """32 KiB more to send; the oldest go back."""
        self.folio, self.used = self.world.new_page() << 3, 0
        self.sent.append(self.folio >> 3)
        if len(self.sent) > 40:
            self.world.free_page(self.sent.popleft())

    def _map(self, frame: int, offset: int, count: int) -> None:
        pages = (offset % PAGE + count + PAGE - 1) // PAGE
        iova = self.iovas.take(self.cpu, pages)
        at = iova * PAGE + offset % PAGE
        self.ring.append((at, count, pages))
        # A permutation of regions of 2 MiB keeps neighbours together.
        page = self.world.identity(frame >> 3) << 3 | (frame & 7) + offset // PAGE
        self.world.add(
            260,
            MAP,
            iova=at,
            page=page,
            bytes=count,
            offset=offset % PAGE,
            cpu=self.cpu,
            flags=TO_DEVICE,
            device=0,
            queue=0,
        )

    def send(self) -> None:
        """Send segments, then poll."""
        for _ in range(self.world.random.choice((1, 2, 4, 6))):
            slab = self.world.random.randrange(64)
            self._map(0x900000 + slab // 8 * 8, slab % 8 * 512 + 0x40, self.world.random.choice((66, 66, 66, 54)))
            left = self.world.random.choice((65160, 65160, 43440, 14480, 1448))
            while left:
                if self.used == 32768:
                    self._next_folio()
                count = min(left, 32768 - self.used)
                self._map(self.folio, self.used, count)
                self.used += count
                left -= count
        done = len(self.ring) - self.world.random.choice((0, 0, 3))
        for _ in range(done):
            at, count, pages = self.ring.popleft()
            self.world.add(190, UNMAP, iova=at, bytes=count, cpu=self.napi_cpu, flags=TO_DEVICE, queue=0)
            self.iovas.give(self.napi_cpu, at // PAGE, pages)
        self.world.add(150, POLL, cpu=self.napi_cpu, queue=44, bytes=0)
        self.world.ns += int(self.world.random.expovariate(1 / 15000))


class Disk:
    """An NVMe queue under fio: requests of 4 to 64 KiB, each page anywhere, completed out of order."""

    def __init__(self, world: World, iovas: Iovas, cpu: int, fixed: bool) -> None:
        self.world, self.iovas, self.cpu = world, iovas, cpu
        self.flying: list[tuple[int, list[int], int]] = []
        self.buffers = [[world.new_page() for _ in range(16)] for _ in range(33)]
        self.fixed = fixed
        self.next = 0

    def _pages(self, count: int) -> list[int]:
        if self.fixed:
            self.next = (self.next + 1) % len(self.buffers)
            return self.buffers[self.next][:count]
        return [self.world.random.randrange(1 << 22) + (1 << 24) for _ in range(count)]

    def _submit(self) -> None:
        count = self.world.random.choice((1, 1, 2, 4, 8, 16))
        pages = [self.world.identity(page) for page in self._pages(count)]
        iova = self.iovas.take(self.cpu, count)
        where = {"cpu": self.cpu, "device": 1, "queue": 60 + self.cpu, "flags": FROM_DEVICE}
        self.flying.append((iova, pages, count))
        if count == 1:
            self.world.add(600, MAP, iova=iova * PAGE, page=pages[0], bytes=PAGE, **where)
            return
        self.world.add(600, MAP_LIST, iova=iova * PAGE, page=pages[0], bytes=PAGE * count, span=count, **where)
        for index, page in enumerate(pages):
            self.world.add(6, ENTRY, iova=(iova + index) * PAGE, page=page, bytes=PAGE, span=PAGE, **where)

    def step(self) -> None:
        """Submit until 32 fly, then complete some."""
        while len(self.flying) < 32:
            self._submit()
        for _ in range(self.world.random.choice((1, 1, 2, 4))):
            iova, _, count = self.flying.pop(self.world.random.randrange(8))
            where = {"cpu": self.cpu, "device": 1, "queue": 60 + self.cpu, "flags": FROM_DEVICE}
            if count == 1:
                self.world.add(400, UNMAP, iova=iova * PAGE, bytes=PAGE, **where)
            else:
                self.world.add(400, UNMAP_LIST, iova=iova * PAGE, bytes=PAGE * count, span=count, **where)
            self.iovas.give(self.cpu, iova, count)
        self.world.ns += int(self.world.random.expovariate(1 / 3000))


def _parts(name: str, world: World, iovas: Iovas) -> list[Callable[[], None]]:
    if name == "receive":
        return [Receiver(world, iovas, cpu).poll for cpu in range(2)]
    if name == "pool":
        return [PoolReceiver(world, iovas, cpu).poll for cpu in range(2)]
    if name == "send":
        return [Sender(world, iovas, 0, 0).send, Sender(world, iovas, 1, 2).send]
    if name == "both":
        return [Receiver(world, iovas, 0).poll, Sender(world, iovas, 1, 1).send, Sender(world, iovas, 0, 0).send]
    return [Disk(world, iovas, cpu, name == "fio-direct").step for cpu in range(2)]


NAMES: Final = ("receive", "pool", "send", "both", "fio-direct", "fio-cached")
MODES: Final = ("strict", "lazy", "block")


def traffic(name: str, mode: str, count: int, seed: int = 1) -> list[Event]:
    """So many events of one workload of NAMES, with the IOVAs of an allocator of MODES."""
    world = World(seed)
    parts = _parts(name, world, Iovas(mode))
    while len(world.events) < count:
        world.random.choice(parts)()
    return world.events[:count]


def all_traffic(count: int) -> Iterator[tuple[str, str, list[Event]]]:
    """Each workload with each allocator."""
    for name in NAMES:
        for mode in MODES:
            yield name, mode, traffic(name, mode, count)
