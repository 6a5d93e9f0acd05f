# SPDX-License-Identifier: GPL-2.0-only
"""Read the running module's statistics, and say what happened between two readings.

The two lines are those that the research trees print into the kernel's log every 10 seconds: totals and rates of
invalidations by kind, then IOVA pages unmapped, invalidations per page and domain invalidations per page. Needs the
standard library only, so that it works on a machine without the lab.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xsmmu.errors import LabError

SYSFS = Path("/sys")
KINDS = ("page", "domain", "global")


@dataclass(frozen=True)
class Sample:
    """One reading of one IOMMU group; all devices of a group share policy and statistics."""

    time_ns: int
    devices: tuple[str, ...]
    policy: str
    level: str
    state: str
    stats: Mapping[str, int]


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


def devices(sysfs: Path = SYSFS) -> list[str]:
    """The PCI devices that the module offers policies for."""
    return sorted(path.parent.name for path in (sysfs / "bus/pci/devices").glob("*/xsmmu"))


def folder_of(device: str, sysfs: Path = SYSFS) -> Path:
    """The module's folder of a device; says what is missing where there is none."""
    found = devices(sysfs)
    if device not in found:
        if not found:
            raise LabError(
                "no device has an xsmmu folder: load the module (modprobe xsmmu), and check that the IOMMU is on "
                "(intel_iommu=on on the kernel's command line)"
            )
        raise LabError(f"no device '{device}' behind an IOMMU: choose from {', '.join(found)}")
    return sysfs / "bus/pci/devices" / device / "xsmmu"


def chosen_policy(menu: str) -> str:
    """The policy in brackets of `[none] strict lazy ...`."""
    found = re.search(r"\[([^\]]+)\]", menu)
    return found[1] if found else menu.strip()


def read(device: str, sysfs: Path = SYSFS) -> Sample:
    """Read a device's statistics now."""
    folder = folder_of(device, sysfs)
    try:
        text = {name: (folder / name).read_text().strip() for name in ("policy", "level", "state")}
        stats = {path.name: int(path.read_text()) for path in (folder / "stats").iterdir()}
    except OSError as error:
        raise LabError(f"{device}: cannot read {error.filename}: {error.strerror}") from None
    return Sample(
        time.monotonic_ns(), group(device, sysfs), chosen_policy(text["policy"]), text["level"], text["state"], stats
    )


def group(device: str, sysfs: Path = SYSFS) -> tuple[str, ...]:
    """The devices of a device's IOMMU group that the module knows."""
    members = sysfs / "bus/pci/devices" / device / "iommu_group/devices"
    names = {path.name for path in members.iterdir()} if members.is_dir() else set()
    return tuple(sorted((names & set(devices(sysfs))) | {device}))


def from_record(record: Mapping[str, Any], names: Sequence[str]) -> Sample:
    """A reading that a guest of the lab sent."""
    return Sample(
        record["now_ns"],
        tuple(names),
        chosen_policy(record["policy"]),
        record["level"],
        record["state"],
        record["stats"],
    )


def groups(wanted: str | None, sysfs: Path = SYSFS) -> list[str]:
    """One device of each group to watch: the wanted one, or all that have a policy."""
    if wanted:
        folder_of(wanted, sysfs)
        return [wanted]
    seen: set[tuple[str, ...]] = set()
    chosen = []
    for device in devices(sysfs):
        sample = read(device, sysfs)
        if sample.policy != "none" and sample.devices not in seen:
            seen.add(sample.devices)
            chosen.append(device)
    if not chosen:
        known = devices(sysfs)
        if not known:
            folder_of("", sysfs)
        raise LabError(f"no device has a policy: choose one with `xsmmu attach` for one of {', '.join(known)}")
    return chosen


def windows(wanted: str | None, interval_s: float, count: int | None, sysfs: Path = SYSFS) -> Iterator[Window]:
    """A window for each group after each interval; `count` intervals, or without end."""
    last = {device: read(device, sysfs) for device in groups(wanted, sysfs)}
    rounds = 0
    while count is None or rounds < count:
        time.sleep(interval_s)
        rounds += 1
        for device, first in last.items():
            sample = read(device, sysfs)
            last[device] = sample
            yield Window(first, sample)
