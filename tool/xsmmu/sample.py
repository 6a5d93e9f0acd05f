# SPDX-License-Identifier: GPL-2.0-only
"""Rates of maps and unmaps, counted by the kernel's tracepoints, and estimated costs.

Linux 6.12 and later trace each call of the DMA API with the device (`dma:`). Older kernels trace only changes of page
tables (`iommu:`) without a device, so all devices are summed up. A trace instance of our own leaves other tracing
undisturbed. Kernels with histograms count in the kernel; for other kernels the events are read.
"""

from __future__ import annotations

import errno
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from xsmmu import calibration, kernel, machine, output, status
from xsmmu.calibration import Calibration
from xsmmu.errors import UserError
from xsmmu.machine import Device, root, sysfs

KINDS: Final = ("page", "phys", "sg", "resource")
"""Suffixes of the tracepoints dma_map_KIND and dma_unmap_KIND; newer kernels have phys instead of page and resource."""
EVERYONE: Final = "all devices"
"""Placeholder for kernels that do not trace the device."""

Counts = Mapping[tuple[str, str], int]
"""Counts by device and by `map` or `unmap`."""

_BUFFER_KIB: Final = 4096
_STEP_S: Final = 0.1
_ROW: Final = re.compile(r"^\{ device: (\S+)\s*\} hitcount:\s*(\d+)", re.MULTILINE)
_HITS: Final = re.compile(r"^\s*Hits: (\d+)", re.MULTILINE)
_EVENT: Final = re.compile(r": dma_(map|unmap)_(?:" + "|".join(KINDS) + r"): (\S+) dir=")
_CHANGE: Final = re.compile(r": (map|unmap): IOMMU: iova=")
_LOST: Final = re.compile(r"\[LOST (\d+) EVENTS\]")


def parse_histogram(content: str) -> Counter[str]:
    """Hits by device in an event's file `hist`."""
    found: Counter[str] = Counter()
    for device, hits in _ROW.findall(content):
        found[device] += int(hits)
    return found


def parse_hits(content: str) -> int:
    """Total hits in an event's file `hist`."""
    return sum(int(hits) for hits in _HITS.findall(content))


def parse_events(content: str) -> tuple[Counter[tuple[str, str]], int]:
    """Counts of events in `trace_pipe`, and the number of dropped events."""
    found: Counter[tuple[str, str]] = Counter()
    for way, device in _EVENT.findall(content):
        found[device, way] += 1
    for way in _CHANGE.findall(content):
        found[EVERYONE, way] += 1
    return found, sum(int(count) for count in _LOST.findall(content))


# ---- the trace instance ----


def _tracing() -> Path:
    return sysfs() / "kernel/tracing"


def _make(folder: Path) -> None:
    folder.mkdir()


def _remove(folder: Path) -> None:
    folder.rmdir()


def _remove_left(instances: Path) -> None:
    """Remove instances of killed commands."""
    for folder in instances.glob("xsmmu-*"):
        number = folder.name.removeprefix("xsmmu-")
        if number.isdigit() and not (root("proc") / number).exists():
            for trigger in folder.glob("events/*/*/trigger"):
                _stop_histogram(trigger.parent)
            _remove(folder)


@contextmanager
def instance() -> Iterator[Path]:
    """A trace instance that is removed at the end."""
    instances = _tracing() / "instances"
    if kernel.lockdown() == "confidentiality":
        raise UserError(
            "the kernel is locked down (confidentiality) and forbids tracing: leave out --sample", code="no-tracing"
        )
    if not instances.is_dir():
        missing = f"does not exist: mount -t tracefs none {_tracing()}"
        reason = "is readable for root only: try sudo" if os.geteuid() else missing
        raise UserError(f"the kernel's tracing ({instances}) {reason}", code="no-tracing")
    folder = instances / f"xsmmu-{os.getpid()}"
    try:
        _remove_left(instances)
        _make(folder)
    except OSError as error:
        why = "only root may do so: try sudo" if error.errno in (errno.EACCES, errno.EPERM) else error.strerror
        raise UserError(f"cannot create the trace instance {folder}: {why}", code="no-tracing") from None
    try:
        yield folder
    finally:
        _remove(folder)


class Counting(Protocol):
    """A method of counting."""

    lost: int
    """Number of events missing in the counts."""

    def step(self) -> None:
        """Called often while counting."""

    def stop(self) -> None:
        """Stop counting and keep the counts."""

    def counts(self) -> Counts:
        """The counts."""

    def close(self) -> None:
        """Release the instance."""


def _events(folder: Path) -> dict[Path, str]:
    """Events to count, with `map` or `unmap`; events with a device if available."""
    kinds = {f"dma/dma_{way}_{kind}": way for way in ("map", "unmap") for kind in KINDS}
    for candidates in (kinds, {"iommu/map": "map", "iommu/unmap": "unmap"}):
        found = {folder / "events" / name: way for name, way in candidates.items()}
        found = {event: way for event, way in found.items() if event.is_dir()}
        if {*found.values()} == {"map", "unmap"}:
            return found
    raise UserError(
        "this kernel traces neither dma: nor iommu: events: leave out --sample; xsmmu top shows groups under a policy",
        code="no-tracing",
    )


def _keys(event: Path) -> str:
    return "device" if event.parent.name == "dma" else "size"


def _trigger(event: Path, word: str) -> None:
    # Mode "w" would truncate and clear the existing triggers.
    with (event / "trigger").open("a") as file:
        file.write(f"{word}\n")


def _stop_histogram(event: Path) -> None:
    if "hist:" in (machine.text(event / "trigger") or ""):
        _trigger(event, f"!hist:keys={_keys(event)}")


class Histograms:
    """Counts in the kernel, by histogram triggers."""

    lost = 0

    def __init__(self, events: Mapping[Path, str]) -> None:
        self.events = events
        try:
            for event in events:
                _trigger(event, f"hist:keys={_keys(event)}")
        except BaseException:
            self.close()
            raise

    def step(self) -> None:
        """Nothing to do: the kernel counts."""

    def stop(self) -> None:
        """Nothing to do: counts() reads all files at once."""

    def counts(self) -> Counts:
        """Counts from the histograms."""
        found: Counter[tuple[str, str]] = Counter()
        for event, way in self.events.items():
            content = (event / "hist").read_text()
            if _keys(event) == "device":
                for device, hits in parse_histogram(content).items():
                    found[device, way] += hits
            else:
                found[EVERYONE, way] += parse_hits(content)
        return found

    def close(self) -> None:
        """Remove the triggers, which keep the instance in use."""
        for event in self.events:
            _stop_histogram(event)


class Lines:
    """Counts by reading the trace, a line per event."""

    def __init__(self, folder: Path, events: Mapping[Path, str]) -> None:
        self.events = events
        self.lost = 0
        self.rest = ""
        self.found: Counter[tuple[str, str]] = Counter()
        (folder / "buffer_size_kb").write_text(f"{_BUFFER_KIB}\n")
        self.pipe = os.open(folder / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            for event in events:
                (event / "enable").write_text("1\n")
        except BaseException:
            self.close()
            raise

    def step(self) -> None:
        """Read available lines for a limited time; events may arrive faster than this loop reads."""
        self._read(time.monotonic() + _STEP_S)

    def _read(self, until: float) -> None:
        while time.monotonic() < until:
            try:
                content = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                return
            if not content:
                return
            lines, _, self.rest = (self.rest + content.decode(errors="replace")).rpartition("\n")
            found, lost = parse_events(lines)
            self.found += found
            self.lost += lost

    def stop(self) -> None:
        """Disable the events, then read the rest of the buffer."""
        for event in self.events:
            (event / "enable").write_text("0\n")
        self._read(math.inf)

    def counts(self) -> Counts:
        """Counts of the lines read."""
        return Counter(self.found)

    def close(self) -> None:
        """Disable the events."""
        for event in self.events:
            (event / "enable").write_text("0\n")
        os.close(self.pipe)


@contextmanager
def counting() -> Iterator[Counting]:
    """The best method of counting on this kernel."""
    with instance() as folder:
        events = _events(folder)
        by_kernel = all((event / "hist").exists() for event in events)
        found: Counting = Histograms(events) if by_kernel else Lines(folder, events)
        try:
            yield found
        finally:
            found.close()


# ---- rates and costs ----


@dataclass(frozen=True)
class Rate:
    """Rates of a device, or of all devices together."""

    device: str
    names: tuple[str, ...]
    path: str | None
    """Path of the device's DMA, as in xsmmu status."""
    maps_per_s: float
    unmaps_per_s: float


@dataclass(frozen=True)
class Taken:
    """Result of a sample."""

    seconds: float
    rates: tuple[Rate, ...]
    lost: int
    calibration: Calibration

    @property
    def is_sum(self) -> bool:
        """Whether the kernel did not trace devices."""
        return any(rate.device == EVERYONE for rate in self.rates)

    def shares(self, rate: Rate) -> dict[str, float]:
        """Share of a CPU for a device's maps and unmaps, by policy."""
        costs = self.calibration.policies
        return {name: cost.share(rate.maps_per_s, rate.unmaps_per_s) for name, cost in costs.items()}

    def as_dict(self) -> dict[str, Any]:
        """The sample as JSON fields."""
        rows = [
            {
                "device": None if rate.device == EVERYONE else rate.device,
                "names": list(rate.names),
                "path": rate.path,
                "maps_per_s": rate.maps_per_s,
                "unmaps_per_s": rate.unmaps_per_s,
                "cpu_share": self.shares(rate) or None,
            }
            for rate in self.rates
        ]
        return {
            "seconds": self.seconds,
            "lost_events": self.lost,
            "calibrated_on": self.calibration.kernel if self.calibration.is_measured else None,
            "costs_from": self.calibration.as_dict(),
            "rates": rows,
        }


def rates(first: Counts, last: Counts, seconds: float, wanted: Sequence[Device]) -> tuple[Rate, ...]:
    """Rates between two counts, busiest first: for the given devices, or for all PCI devices in the counts."""
    moved = {key: last[key] - first.get(key, 0) for key in last}
    known = {each.address: each for each in machine.devices()}
    seen = {device for device, _ in moved}
    names = [EVERYONE] if EVERYONE in seen else [each.address for each in wanted] or [*(seen & known.keys())]
    found = []
    for name in names:
        device = known.get(name)
        maps, unmaps = (moved.get((name, way), 0) / seconds for way in ("map", "unmap"))
        path = status.row(device)["path"] if device else None
        found.append(Rate(name, device.names if device else (), path, maps, unmaps))
    return tuple(sorted(found, key=lambda rate: (-rate.maps_per_s - rate.unmaps_per_s, rate.device)))


def _wait(start: float, seconds: float, count: Counting) -> None:
    """Count until the given time after the start, with a progress bar if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("counting maps and unmaps", total=seconds)
        while (left := start + seconds - time.monotonic()) > 0:
            time.sleep(min(_STEP_S, left))
            count.step()
            progress.update(bar, completed=time.monotonic() - start)


def take(wanted: Sequence[Device], seconds: float) -> Taken:
    """Count for the given time."""
    costs = calibration.costs()
    with counting() as count:
        first, start = count.counts(), time.monotonic()
        _wait(start, seconds, count)
        end = time.monotonic()
        count.stop()
        last = count.counts()
    return Taken(end - start, rates(first, last, end - start, wanted), count.lost, costs)


def show(taken: Taken) -> None:
    """Print a sample for people."""
    policies = list(taken.calibration.policies)
    columns = ("device", "names", "path", "maps/s", "unmaps/s", *(f"{name} %" for name in policies))
    rows = [
        [
            rate.device,
            " ".join(rate.names),
            rate.path,
            f"{rate.maps_per_s:,.0f}",
            f"{rate.unmaps_per_s:,.0f}",
            *(f"{100 * share:.2f}" for share in taken.shares(rate).values()),
        ]
        for rate in taken.rates
    ]
    print(f"\nmaps and unmaps in {taken.seconds:.1f} s (a scatter list counts as one):")
    if rows:
        output.table(columns, rows)
    else:
        print("none")
    sys.stdout.flush()
    if taken.is_sum:
        print(
            "this kernel does not trace devices (Linux 6.12 and later do): the sum of all devices, by page-table "
            "changes,"
        )
        print("without devices that the module serves (see xsmmu top)")
    if taken.lost:
        print(
            f"{taken.lost:,} events were lost, because they came faster than the tool reads: the true rates are higher"
        )
    print(f"%: of a CPU, estimated by {taken.calibration.origin}")
    if not taken.calibration.is_measured and kernel.is_virtual():
        print("this is a virtual machine: an invalidation by its emulated IOMMU may take much longer than this wait")
