# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu watch`: activity of each group between readings of the module's statistics, a line per group, for logs.

The lab prints the same figures as the two lines that the research trees log every 10 seconds: totals and rates of
invalidations by kind; then IOVA pages unmapped, and invalidations and domain invalidations per page.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from xsmmu import activity, complete, machine, module, output
from xsmmu.activity import Activity, Reading
from xsmmu.digits import duration, percent
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.module import KINDS, Sample


@dataclass(frozen=True)
class Window:
    """Activity between two readings."""

    first: Sample
    last: Sample

    @property
    def seconds(self) -> float:
        """Seconds between the readings."""
        return (self.last.time_ns - self.first.time_ns) / 1e9

    def moved(self, statistic: str) -> int:
        """Growth of a counter."""
        return self.last.stats[statistic] - self.first.stats[statistic]

    def as_dict(self) -> dict[str, Any]:
        """Figures by name; a ratio without pages is None."""
        kinds = {kind: self.moved(f"inv_{kind}") for kind in KINDS}
        pages = self.moved("unmapped_pages")
        total = sum(kinds.values())
        return {
            "devices": list(self.last.devices),
            "policy": self.last.policy,
            "level": self.last.level,
            "state": self.last.state,
            "seconds": self.seconds,
            "invalidations": kinds,
            "invalidations_per_s": total / self.seconds if self.seconds else None,
            "unmapped_pages": pages,
            "unmapped_pages_per_s": pages / self.seconds if self.seconds else None,
            "invalidations_per_page": total / pages if pages else None,
            "domain_invalidations_per_page": kinds["domain"] / pages if pages else None,
        }

    def lines(self) -> tuple[str, str]:
        """Both lines, without the device's name."""
        figures = self.as_dict()
        kinds = "  ".join(
            f"{kind} {count:,} ({_rate(count, self.seconds)})" for kind, count in figures["invalidations"].items()
        )
        total = sum(figures["invalidations"].values())
        pages = figures["unmapped_pages"]
        return (
            f"invalidations {total:,} ({_rate(total, self.seconds)})  {kinds}",
            f"IOVA pages unmapped {pages:,} ({_rate(pages, self.seconds)})"
            f"  inv/page {_ratio(figures['invalidations_per_page'])}"
            f"  domain/page {_ratio(figures['domain_invalidations_per_page'])}",
        )


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}/s" if seconds > 0 else "-"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def figures(found: Activity) -> dict[str, Any]:
    """All figures of an interval, as JSON fields."""
    sample = found.last.sample
    window = Window(found.first.sample, sample).as_dict()
    path, level = sample.path
    return {
        "time": _time(),
        "names": _names(sample),
        **window,
        "path": path,
        "level": level,
        "deferred_pages": found.moved("deferred_pages"),
        "exposure_p99_ns": found.exposure_p99_ns,
        "exposure_max_ns": found.exposure_max_ns,
        "exposure_bound_ns": sample.bound_ns,
    }


def line(found: Activity) -> str:
    """An interval as a line for people."""
    sample, seconds = found.last.sample, found.seconds
    window = Window(found.first.sample, sample)
    total, pages = sum(window.moved(f"inv_{kind}") for kind in KINDS), window.moved("unmapped_pages")
    kinds = " ".join(f"{kind} {_rate(window.moved(f'inv_{kind}'), seconds)}" for kind in KINDS)
    share = found.share_at_once
    return "  ".join(
        [
            f"{_time()} {','.join(_names(sample)) or ','.join(sample.devices)} {' '.join(sample.path)}",
            f"pages {_rate(pages, seconds)}",
            f"inv {_rate(total, seconds)} ({kinds})",
            f"inv/page {_ratio(total / pages if pages else None)}",
            f"at once {percent(share)}{'' if share is None else '%'}",
            f"p99 {duration(found.exposure_p99_ns)}",
            f"max {duration(found.exposure_max_ns)}",
            f"bound {duration(sample.bound_ns)}{' EXCEEDED' if found.is_late else ''}",
        ]
    )


def _time() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _names(sample: Sample) -> list[str]:
    """Names of the group's devices."""
    return [name for address in sample.devices for name in Device(address).names]


def windows(wanted: tuple[Device, ...], interval_s: float, count: int | None) -> Iterator[Activity]:
    """Activity of each group in each interval; `count` intervals, or without end."""

    def read(device: Device, members: Iterable[str]) -> Reading | None:
        # A group may lose a device that the user has not named.
        return activity.read(device) if wanted else module.of_group(activity.read, map(Device, members))

    found = {device: read(device, sample.devices) for device, sample in module.groups(wanted).items()}
    last = {device: reading for device, reading in found.items() if reading}
    rounds = 0
    while count is None or rounds < count:
        time.sleep(interval_s)
        rounds += 1
        before, last = last, {}
        for device, first in before.items():
            if reading := read(device, first.sample.devices):
                last[device] = reading
                if not module.began_anew(first.sample, reading.sample):
                    yield Activity(device, first, reading)
        if not last:
            raise UserError("no device has a policy any more: choose a policy with xsmmu set", code="no-policy")


@click.command()
@click.argument("device", nargs=-1, shell_complete=complete.devices)
@click.option(
    "--interval", type=output.Seconds(0.01, 86_400), default=10.0, show_default=True, help="Seconds between lines."
)
@click.option("--count", type=click.IntRange(1), help="Number of intervals.")
@output.option
def watch(device: tuple[str, ...], interval: float, count: int | None, form: str) -> None:
    """Print a line per interval and IOMMU group: unmapped pages, invalidations, and exposure beside its bound.

    DEVICE is an address, an interface or a disk; without DEVICE, all groups with a policy are watched. `at once` is the
    percentage of pages flushed inside their unmap; `EXCEEDED` follows a bound that was exceeded.

    \b
    Examples:
      xsmmu watch
      xsmmu watch eth1 --interval 1
      xsmmu watch -o jsonl --count 6 >> xsmmu.log
    """
    if form == "json" and count is None:
        raise UserError(
            "-o json without --count has no end: add --count, or use -o jsonl, which prints each line at once",
            code="usage",
        )
    found = windows(tuple(machine.find(name) for name in device), interval, count)
    if form != "table":
        output.emit(form, "watch", "windows", map(figures, found))
        return
    for each in found:
        sys.stdout.write(f"{line(each)}\n")
        sys.stdout.flush()
