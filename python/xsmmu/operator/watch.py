# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu watch`: what happened between two readings of the module's statistics, for logs.

The two lines are those that the research trees print into the kernel's log every 10 seconds: totals and rates of
invalidations by kind, then IOVA pages unmapped, invalidations per page and domain invalidations per page.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from xsmmu.errors import UserError
from xsmmu.operator import complete, machine, module, output
from xsmmu.operator.machine import Device
from xsmmu.operator.module import KINDS, Sample


@dataclass(frozen=True)
class Window:
    """What happened between two readings."""

    first: Sample
    last: Sample

    @property
    def seconds(self) -> float:
        """The time between the readings."""
        return (self.last.time_ns - self.first.time_ns) / 1e9

    def moved(self, statistic: str) -> int:
        """By how much a counter grew."""
        return self.last.stats[statistic] - self.first.stats[statistic]

    def as_dict(self) -> dict[str, Any]:
        """The figures, by name; a ratio without pages is None."""
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
        """The line pair, without the device's name."""
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


def windows(wanted: tuple[Device, ...], interval_s: float, count: int | None) -> Iterator[Window]:
    """A window for each group after each interval; `count` intervals, or without end."""

    def read(device: Device, members: Iterable[str]) -> Sample | None:
        # A group goes on without one that nobody has named.
        return module.read(device) if wanted else module.of_group(module.read, map(Device, members))

    last = module.groups(wanted)
    rounds = 0
    while count is None or rounds < count:
        time.sleep(interval_s)
        rounds += 1
        before, last = last, {}
        for device, first in before.items():
            if sample := read(device, first.devices):
                last[device] = sample
                if not module.began_anew(first, sample):
                    yield Window(first, sample)
        if not last:
            raise UserError("no device is left that had a policy", code="no-policy")


@click.command()
@click.argument("device", nargs=-1, shell_complete=complete.devices)
@click.option(
    "--interval", type=output.Seconds(0.01, 86_400), default=10.0, show_default=True, help="Seconds between lines."
)
@click.option("--count", type=click.IntRange(1), help="Stop after so many intervals.")
@output.option
def watch(device: tuple[str, ...], interval: float, count: int | None, form: str) -> None:
    """Print, every interval, what the module did: invalidations by kind, pages unmapped, and ratios.

    DEVICE is an address, an interface or a disk; all that have a policy if none is named.

    \b
    Examples:
      xsmmu watch
      xsmmu watch eth1 --interval 1
      xsmmu watch -o jsonl --count 6 >> xsmmu.log
    """
    if form == "json" and count is None:
        raise UserError("-o json is one document, which ends with --count; -o jsonl has a line at once", code="usage")
    found = windows(tuple(machine.find(name) for name in device), interval, count)
    if form != "table":
        output.emit(form, "watch", "windows", (window.as_dict() for window in found))
        return
    for window in found:
        first, second = window.lines()
        last = window.last
        sys.stdout.write(f"{' '.join(last.devices)} {last.policy} ({last.level}) {window.seconds:.1f} s\n")
        sys.stdout.write(f"  {first}\n  {second}\n")
        sys.stdout.flush()
