# SPDX-License-Identifier: GPL-2.0-only
"""Virtual IOMMUs: requests, kicks, exits and copies of a protocol, counted by running the protocol's state machine.

model/virtual/protocols.toml has the tables and explains states, events and actions. Traffic is a ring of pages that are
mapped, used by the device and unmapped, with the flushes of a mode. An event that a table does not allow ends the run,
and so does a page that becomes free while the device may still reach it: a count of a wrong table is no count.
Counts are exact; prices of the actions (model/virtual/machines) make times of them.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from xsmmu import model_files, output
from xsmmu.errors import UserError, unknown_name
from xsmmu.model_files import Described, Value

STATES: Final = ("free", "written", "known", "cached", "stale")
EVENTS: Final = ("map", "sync", "dma", "unmap", "invalidate", "flush")
ACTIONS: Final = (
    *("request", "kick", "poll", "device", "copy", "erase", "scan", "walk", "fetch", "fault", "command", "forget"),
)
PLACES: Final = ("user", "kernel", "hardware")
EACH: Final = ("copy", "erase", "walk")
"""Actions for each page of an event; others are for all pages at once."""
LAZY: Final = 255
"""Unmaps of a CPU between two flushes of the kernel's lazy mode."""
POLL: Final = 64
"""Pages of a poll of a batch-aware driver."""
MODES: Final = ("strict", "lazy", "aware")

Counts = Mapping[str, float]


@dataclass(frozen=True)
class Protocol:
    """A table: by state and event, the actions and the next state."""

    name: str
    title: str
    backend: str
    device: str
    queue: int
    rows: Mapping[tuple[str, str], tuple[tuple[str, ...], str]]

    def allows(self, event: str) -> bool:
        """Whether the table has the event in any state."""
        return any(each == event for _, each in self.rows)


def protocols(file: Path | None = None) -> dict[str, Protocol]:
    """All protocols by name."""
    file = file or model_files.folder() / "virtual/protocols.toml"
    try:
        found = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{file}: {error}: take the file of this version", code="bad-model") from None
    made = {}
    for name, table in found.items():
        try:
            made[name] = _protocol(name, table)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{file}: {name}: {error}", code="bad-model") from None
    return made


def _protocol(name: str, table: Mapping[str, Any]) -> Protocol:
    rows: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {}
    for state, event, actions, after in table["rows"]:
        for kind, word, known in (("state", state, STATES), ("event", event, EVENTS), ("state", after, STATES)):
            _check(kind, word, known)
        for action in actions:
            _check("action", action, ACTIONS)
        if (state, event) in rows:
            raise ValueError(f"two rows of {event} in {state}")
        rows[state, event] = (tuple(actions), after)
    for place in ("backend", "device"):
        _check(place, table[place], PLACES)
    return Protocol(name, table["title"], table["backend"], table["device"], int(table["queue"]), rows)


def _check(kind: str, word: str, known: Sequence[str]) -> None:
    if word not in known:
        raise ValueError(f"unknown {kind} '{word}': choose from {', '.join(known)}")


# -- runs ------------------------------------------------------------------------------------------


@dataclass
class World:
    """A guest, a host and a device that follow a protocol."""

    protocol: Protocol
    counts: Counter[str] = field(default_factory=Counter)
    states: dict[int, str] = field(default_factory=dict)
    """State of each page that is not free."""
    reached: set[int] = field(default_factory=set)
    """Pages that the device may reach."""
    waiting: int = 0
    """Requests in the queue that the host has not read."""

    def do(self, event: str, pages: Sequence[int]) -> None:
        """An event of pages that are all in the same state."""
        states = {self.states.get(page, "free") for page in pages}
        for state in states:
            mine = [page for page in pages if self.states.get(page, "free") == state]
            row = self.protocol.rows.get((state, event))
            if row is None:
                raise UserError(f"{self.protocol.name}: a page is {state}, where there is no {event}", code="bad-model")
            self._step(event, mine, *row)

    def _step(self, event: str, pages: Sequence[int], actions: Iterable[str], after: str) -> None:
        for action in actions:
            self._act(action, pages)
        if event == "dma":
            self.reached.update(pages)
        for page in pages:
            self.states[page] = after
        if after == "free":
            left = self.reached.intersection(pages)
            if left:
                raise UserError(
                    f"{self.protocol.name}: {len(left)} pages are free, and the device reaches them", code="bad-model"
                )
            for page in pages:
                del self.states[page]

    def _act(self, action: str, pages: Sequence[int]) -> None:
        self.counts[action] += len(pages) if action in EACH else 1
        if action == "request":
            if self.waiting == self.protocol.queue:
                self._act("kick", ())
            self.waiting += 1
        elif action == "kick":
            self._handle()
            self._leave(self.protocol.backend)
        elif action == "poll":
            self._leave(self.protocol.backend)
        elif action == "device":
            self._leave(self.protocol.device)
        elif action == "fault":
            self._leave("kernel")
        elif action == "fetch":
            self._handle()
            self.states.update({page: "known" for page, state in self.states.items() if state == "written"})
        elif action == "scan":
            self.counts["scan"] += sum(state != "stale" for state in self.states.values()) - 1
        elif action in ("command", "forget"):
            self.reached.difference_update(pages)

    def _handle(self) -> None:
        self.counts["handled"] += self.waiting
        self.waiting = 0

    def _leave(self, place: str) -> None:
        """Leave the guest, if the register is not hardware's."""
        if place == "hardware":
            self.counts["doorbell"] += 1
            return
        self.counts["exit"] += 1
        self.counts["user"] += place == "user"


def traffic(protocol: Protocol, mode: str, ring: int, static: int = 0) -> dict[str, float]:
    """Counts for each page of a ring that is refilled behind the device, beside static pages that stay mapped.

    `lazy` flushes after LAZY unmaps; `aware` flushes a poll's unmaps at once, and so the maps of the refill.
    """
    batch = {"strict": 1, "lazy": LAZY, "aware": POLL}[mode]
    ring, batches = max(ring, batch), 4
    world = World(protocol)
    for page in range(ring + static):
        world.do("map", [page])
        world.do("sync", [page])
    world.waiting = 0  # requests of the set-up that no kick has announced
    world.counts.clear()
    for number in range(batches):
        oldest = range(number * batch, (number + 1) * batch)
        newest = range(static + ring + number * batch, static + ring + (number + 1) * batch)
        _turn(world, mode, oldest, newest)
    return {name: count / (batches * batch) for name, count in sorted(world.counts.items()) if count}


def _turn(world: World, mode: str, oldest: range, newest: range) -> None:
    """Use the oldest pages and take them away, and map new ones."""
    for page, new in zip(oldest, newest, strict=True):
        world.do("dma", [page])
        world.do("unmap", [page])
        if mode == "strict":
            world.do("invalidate", [page])
        world.do("map", [new])
        if mode != "aware":
            world.do("sync", [new])
    if mode != "strict":
        world.do("flush", oldest)
    if mode == "aware":
        world.do("sync", newest)


def micro(protocol: Protocol, mode: str, ring: int, rounds: int) -> dict[str, int]:
    """Counts of the lab's workload micro: in each round a ring is mapped, and then unmapped as a whole; no DMA.

    Mode `poll` flushes at the end of a round, as the module's policies do at the end of a poll; `aware` also makes
    all maps of a round visible at once, and `strict-aware` these alone. The queue of `lazy` outlives rounds.
    """
    world = World(protocol)
    deferred: list[int] = []
    for number in range(rounds):
        pages = range(number * ring, (number + 1) * ring)
        for page in pages:
            world.do("map", [page])
            if not mode.endswith("aware"):
                world.do("sync", [page])
        if mode.endswith("aware"):
            world.do("sync", pages)
        for page in pages:
            if mode == "lazy" and len(deferred) == LAZY:
                world.do("flush", deferred)
                deferred = []
            world.do("unmap", [page])
            deferred.append(page)
            if mode.startswith("strict"):
                world.do("invalidate", deferred)
                deferred = []
        if mode in ("poll", "aware"):
            world.do("flush", deferred)
            deferred = []
    return dict(world.counts)


# -- times -----------------------------------------------------------------------------------------

PRICES: Final[Mapping[str, str]] = {
    "exit": "exit_ns",
    "user": "user_ns",
    "doorbell": "doorbell_ns",
    "request": "request_ns",
    "handled": "handle_ns",
    "copy": "copy_ns",
    "erase": "copy_ns",
    "scan": "scan_ns",
    "walk": "walk_ns",
    "command": "command_ns",
    "fault": "fault_ns",
}
"""The price of a count; other counts are parts of these."""
PAGE_BITS: Final = 32_768

Values = Mapping[str, Value]


def wait_ns(counts: Counts, values: Values) -> float:
    """Time that the IOMMU's protocol takes from the guest for a page."""
    return sum(count * int(values[PRICES[name]]) for name, count in counts.items() if name in PRICES)


def lock_ns(protocol: Protocol, counts: Counts, values: Values) -> float:
    """Time for a page in which a CPU has the queue's lock: the writes of the doorbell."""
    prices = {"user": ("exit_ns", "user_ns"), "kernel": ("exit_ns",), "hardware": ("doorbell_ns",)}
    return counts.get("kick", 0) * sum(int(values[name]) for name in prices[protocol.backend])


def gbps(protocol: Protocol, counts: Counts, values: Values, queues: int = 1) -> float:
    """Throughput: of the CPUs, of the link, and of the queues, which are of one lock each."""
    page_ns = int(values["page_cpu_ns"]) + int(values["map_cpu_ns"]) + wait_ns(counts, values)
    found = min(int(values["cores"]) * PAGE_BITS / page_ns, int(values["link_mbps"]) / 1000)
    locked = lock_ns(protocol, counts, values)
    return min(found, queues * PAGE_BITS / locked) if locked else found


@dataclass(frozen=True)
class Machine:
    """A described guest and host: the values, and what else they could be."""

    described: Described
    values: Values
    sets: Sequence[Values]

    def interval(self, figure: Callable[[Values], float]) -> dict[str, float]:
        """A figure of the values, with the least and the most of all sets."""
        found = [figure({**self.values, **each}) for each in ({}, *self.sets)]
        return {"value": found[0], "low": min(found), "high": max(found)}


SAMPLES: Final = 64
"""Sets of a machine; a point takes no time."""


def machine(file: Path) -> Machine:
    """Read a machine."""
    known = model_files.parameters(model_files.folder() / "virtual/parameters.toml")
    found = model_files.described(file, "machine", known)
    values = {name: given.value for name, given in found.given.items()}
    empty: list[dict[str, Value]] = [{} for _ in range(SAMPLES)]
    return Machine(found, values, model_files.sets(model_files.ranged(found.given), empty))


# -- rows ------------------------------------------------------------------------------------------

COLUMNS: Final = (
    "PROTOCOL",
    "MODE",
    "REQUESTS",
    "KICKS",
    "EXITS",
    "TO USER",
    "COPIES",
    "COMMANDS",
    "NS",
    "INTERVAL",
    "GBIT/S",
)


def rows(found: Machine, names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """The counts and times of each protocol and mode, for a page."""
    all_ = protocols()
    for name in names or all_:
        if name not in all_:
            raise unknown_name("protocol", name, all_)
        for mode in MODES:
            if mode == "strict" or all_[name].allows("flush"):
                yield row(all_[name], mode, found)


def row(protocol: Protocol, mode: str, found: Machine) -> dict[str, Any]:
    """A protocol in a mode."""
    counts = traffic(protocol, mode, int(found.values["ring"]), int(found.values["static_pages"]))
    return {
        "protocol": protocol.name,
        "title": protocol.title,
        "mode": mode,
        "counts": counts,
        "wait_ns": found.interval(lambda values: wait_ns(counts, values)),
        "throughput_gbps": found.interval(lambda values: gbps(protocol, counts, values)),
    }


def cells(row_: Mapping[str, Any]) -> list[str]:
    """A line of the table."""
    counts, wait, rate = row_["counts"], row_["wait_ns"], row_["throughput_gbps"]
    copies = counts.get("copy", 0) + counts.get("erase", 0)
    shown = [counts.get(name, 0) for name in ("request", "kick", "exit", "user")]
    return [
        row_["protocol"],
        row_["mode"],
        *(f"{count:.3f}" for count in (*shown, copies, counts.get("command", 0))),
        f"{wait['value']:,.0f}",
        f"{wait['low']:,.0f}-{wait['high']:,.0f}",
        f"{rate['value']:.1f}",
    ]


def show(file: Path | None, form: str) -> None:
    """Print the rows of a guest; by default of an x86 guest."""
    found = machine(file or model_files.folder() / "virtual/machines/kvm-x86.toml")
    made = [*rows(found)]
    if form == "table":
        click.echo(f"{found.described.title}; for each page, ns and Gb/s of {found.values['cores']} CPUs")
        output.table(COLUMNS, map(cells, made))
    else:
        output.emit(form, "predict-virtual", "protocols", made)
