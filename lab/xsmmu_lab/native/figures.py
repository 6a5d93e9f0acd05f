# SPDX-License-Identifier: GPL-2.0-only
"""Rows with a median and an interval, from the runs with an undisturbed calibration."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xsmmu.errors import UserError
from xsmmu_lab.native.plan import KERNEL, PASSTHROUGH, Case
from xsmmu_lab.native.statistics import DROPPED_MAX, REMEDY, middle, undisturbed

_PASSTHROUGH_APART: Final = 0.32
"""Largest distance of a passthrough run from the median, as a part of the latter, for most runs."""


@dataclass(frozen=True)
class Run:
    """One run of a case."""

    case: Case
    map_ns: float
    unmap_ns: float
    cmpxchg_ns: float
    pages: int
    sent: tuple[int, int, int]
    """Commands that the fake IOMMU received: page-selective, domain-selective, global."""
    counted: tuple[int, int, int] | None
    """The same, as the module counted them; None for the kernel's modes."""

    @property
    def ns(self) -> float:
        """Of a map and an unmap of a page."""
        return self.map_ns + self.unmap_ns


def run_of(event: Mapping[str, Any], case: Case) -> Run:
    """The run of a case, from its event; checks that both counts of commands agree."""
    parts, calibration = event["micro"], event["calibration"]
    ran = (event["policy"], event["driver"], event["wait_ns"], event["cpus"], len(parts))
    if ran != (case.policy, case.driver, case.wait_ns, case.cpus, case.cpus):
        raise UserError(f"User-Mode Linux ran {event['policy']} where {case.policy} was next")
    if any(part["translated"] == (case.policy == PASSTHROUGH) for part in parts):
        raise UserError(f"{case.policy}: the kernel translates as another mode does")
    counted = event["counted"]
    run = Run(
        case=case,
        map_ns=statistics.mean(part["map_ns_per_page"] for part in parts),
        unmap_ns=statistics.mean(part["unmap_ns_per_page"] for part in parts),
        cmpxchg_ns=calibration["median_ps"] / 1000,
        pages=sum(part["pages_unmapped"] for part in parts),
        sent=_three(event["sent"]),
        counted=None if counted is None else _three(counted),
    )
    if case.policy not in KERNEL and run.counted != run.sent:
        raise UserError(f"{case.policy}: the module counts {run.counted} commands, and the IOMMU was sent {run.sent}")
    return run


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    page, domain, everything = values
    return page, domain, everything


def quiet(runs: Sequence[Run]) -> list[Run]:
    """The runs whose calibration is near the median of all. Raises if the machine is too noisy for any to count."""
    kept = undisturbed(runs, lambda run: {"cmpxchg": run.cmpxchg_ns})
    for case in dict.fromkeys(run.case for run in kept if run.case.policy == PASSTHROUGH):
        values = [run.ns for run in kept if run.case == case]
        usual = statistics.median(values)
        far = [value for value in values if abs(value - usual) > _PASSTHROUGH_APART * usual]
        if len(far) > DROPPED_MAX * len(values):
            span = f"{min(values):.1f} to {max(values):.1f} ns a page"
            raise UserError(f"this machine is too noisy: passthrough takes {span}: {REMEDY}")
    return kept


def rows(runs: Sequence[Run], cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A row for each case, in their order."""
    found = []
    for case in cases:
        of_case = [run for run in runs if run.case == case]
        median, low, high = middle([run.ns for run in of_case])
        found.append(
            {
                "policy": case.policy,
                "driver": "none" if case.policy == PASSTHROUGH else case.driver,
                "tables": case.tables,
                "bytes": case.bytes,
                "pages": case.pages,
                "ring": case.ring,
                "list": case.list,
                "walk_mib": case.walk_mib,
                "cpus": case.cpus,
                "wait_ns": case.wait_ns,
                "ns_per_page": round(median, 1),
                "low": round(low, 1),
                "high": round(high, 1),
                "map_ns": round(statistics.median(run.map_ns for run in of_case), 1),
                "unmap_ns": round(statistics.median(run.unmap_ns for run in of_case), 1),
                "inv_per_page": round(sum(sum(run.sent) for run in of_case) / sum(run.pages for run in of_case), 4),
            }
        )
    return found
