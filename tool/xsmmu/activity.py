# SPDX-License-Identifier: GPL-2.0-only
"""Rates and exposure of an IOMMU group between two readings of the module's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xsmmu import exposure, module
from xsmmu.calibration import Calibration
from xsmmu.digits import duration
from xsmmu.machine import Device
from xsmmu.module import KINDS, Sample

CAUSES = ("unmap", "block", "poll", "full", "time", "explicit", "drain")
"""Causes of flushes, in the order of core/include/xsmmu/policy.h."""


@dataclass(frozen=True)
class Reading:
    """One reading of all files of a group."""

    sample: Sample
    exposure: Mapping[int, int]
    """Number of pages, by the largest ns of their bucket."""
    exposure_max_ns: int


def read(device: Device, sample: Sample | None = None) -> Reading:
    """Read the files of a device; `sample` is a reading of its statistics that was taken just now."""
    rows = module.exposure_ns(device)
    return Reading(sample or module.read(device), dict(rows), module.exposure_max_ns(device) or 0)


def quantile(pages: Mapping[int, int], part: float) -> int | None:
    """The smallest bucket bound that covers a share `part` of all pages; None without pages."""
    left = sum(pages.values()) * part
    if not left:
        return None
    for bound in sorted(pages):
        left -= pages[bound]
        if left <= 1e-9:
            break
    return bound


@dataclass(frozen=True)
class Activity:
    """The activity of a group between two readings."""

    device: Device
    """A device of the group; its files were read."""
    first: Reading
    last: Reading
    calibration: Calibration | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The group's addresses, for use as a key."""
        return self.last.sample.devices

    @property
    def seconds(self) -> float:
        """Seconds between the readings."""
        return (self.last.sample.time_ns - self.first.sample.time_ns) / 1e9

    def moved(self, statistic: str) -> int | None:
        """Growth of a counter; None if the loaded module has no such counter."""
        first, last = (reading.sample.stats.get(statistic) for reading in (self.first, self.last))
        return None if first is None or last is None else last - first

    def per_s(self, statistic: str) -> float | None:
        """Growth of a counter per second; None without a second reading or without such a counter."""
        moved = self.moved(statistic)
        return None if moved is None or self.seconds <= 0 else moved / self.seconds

    def now(self, statistic: str) -> int | None:
        """Value of a gauge."""
        return self.last.sample.stats.get(statistic)

    @property
    def invalidations_per_s(self) -> float | None:
        """Invalidation commands of all kinds per second."""
        kinds = [self.per_s(f"inv_{kind}") for kind in KINDS]
        return None if None in kinds else sum(rate for rate in kinds if rate is not None)

    @property
    def invalidations_per_page(self) -> float | None:
        """Invalidation commands per unmapped page."""
        pages = self.per_s("unmapped_pages")
        return self.invalidations_per_s / pages if pages and self.invalidations_per_s is not None else None

    @property
    def share_at_once(self) -> float | None:
        """Share of the unmapped pages that were flushed inside their unmap."""
        return exposure.share_at_once(self.moved("unmapped_pages"), self.moved("deferred_pages"))

    @property
    def is_late(self) -> bool:
        """Whether a page stayed reachable beyond the bound."""
        return exposure.is_late(self.exposure_max_ns, self.last.sample.bound_ns, exact=False)

    def notes(self, name: str) -> list[str]:
        """Explanations of unusual figures, for a group called `name`."""
        sample = self.last.sample
        found = []
        said = exposure.at_once(*sample.path, self.share_at_once, self.invalidations_per_page)
        if said:
            found.append(f"{name}: inv/page: {said}")
        if self.is_late:
            beside = f"a page stayed reachable for {duration(self.exposure_max_ns)}, beyond {duration(sample.bound_ns)}"
            found.append(f"{name}: {beside}: xsmmu doctor {self.device.address} lists likely causes")
        return found

    @property
    def exposure(self) -> dict[int, int]:
        """Pages by bucket, between the readings."""
        grown = {bound: pages - self.first.exposure.get(bound, 0) for bound, pages in self.last.exposure.items()}
        return {bound: pages for bound, pages in grown.items() if pages > 0}

    def _within(self, bound: int | None) -> int | None:
        # The bound of a bucket may exceed the longest exposure ever seen.
        return None if bound is None else min(bound, self.last.exposure_max_ns or bound)

    @property
    def exposure_p99_ns(self) -> int | None:
        """The 99th percentile of exposure, to the width of a bucket."""
        return self._within(quantile(self.exposure, 0.99))

    @property
    def exposure_max_ns(self) -> int | None:
        """The longest exposure, to the width of a bucket."""
        return self._within(max(self.exposure, default=None))

    @property
    def cpu_share(self) -> float | None:
        """Share of a CPU that maps and unmaps take, estimated by the calibration."""
        cost = self.calibration.policies.get(self.last.sample.path[0]) if self.calibration else None
        maps, unmaps = self.per_s("maps"), self.per_s("unmaps")
        return cost.share(maps, unmaps) if cost and maps is not None and unmaps is not None else None
