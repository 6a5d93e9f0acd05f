# SPDX-License-Identifier: GPL-2.0-only
"""Runs of cases, and rows with a median and an interval."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xsmmu.errors import UserError
from xsmmu_lab.native.plan import AWARE, KERNEL, PASSTHROUGH, Case
from xsmmu_lab.native.statistics import middle

_SWAP: Final = "cmpxchg_ps"
_CALIBRATIONS: Final = (_SWAP, "work_ps")


@dataclass(frozen=True)
class Run:
    """One run of a case."""

    case: Case
    level: str
    map_ns: float
    unmap_ns: float
    calibrations: Mapping[tuple[int, int, str], float]
    """Picoseconds, by the number of running CPUs, the CPU, and the kind with before or after."""
    waited: float
    """Part of the time for which another program had the CPU."""
    pages: int
    sent: tuple[int, int, int]
    """Commands that the fake IOMMU received: page-selective, domain-selective, global."""
    counted: tuple[int, int, int] | None
    """The same, as the module counted them; None for the kernel's modes."""

    @property
    def ns(self) -> float:
        """Of a map and an unmap of a page."""
        return self.map_ns + self.unmap_ns

    @property
    def cmpxchg_ns(self) -> float:
        """Time of a locked compare-and-swap."""
        return statistics.median(ps for (_, _, kind), ps in self.calibrations.items() if _SWAP in kind) / 1000


def run_of(event: Mapping[str, Any], case: Case) -> Run:
    """The run of a case, from its event; checks that both counts of commands agree, and that choices were used."""
    parts, calibrated = event["micro"], event["calibration"]
    ran = (event["policy"], event["driver"], event["wait_ns"], event["cpus"], len(parts), len(calibrated))
    if ran != (case.policy, case.driver, case.wait_ns, case.cpus, case.cpus, case.cpus):
        raise UserError(f"User-Mode Linux ran {event['policy']} where {case.policy} was next")
    if any(part["translated"] == (case.policy == PASSTHROUGH) for part in parts):
        raise UserError(f"{case.policy}: the kernel translates as another mode does")
    counted = event["counted"]
    run = Run(
        case=case,
        level=event["level"],
        map_ns=statistics.mean(part["map_ns_per_page"] for part in parts),
        unmap_ns=statistics.mean(part["unmap_ns_per_page"] for part in parts),
        calibrations={
            (case.cpus, cpu, f"{kind} {when}"): ps
            for cpu, of_cpu in enumerate(calibrated)
            for kind in _CALIBRATIONS
            for when, ps in zip(("before", "after"), of_cpu[kind], strict=True)
        },
        waited=event["waited"],
        pages=sum(part["pages_unmapped"] for part in parts),
        sent=_three(event["sent"]),
        counted=None if counted is None else _three(counted),
    )
    if case.policy not in KERNEL and run.counted != run.sent:
        raise UserError(f"{case.policy}: the module counts {run.counted} commands, and the IOMMU was sent {run.sent}")
    _check_use(case, *event["used"])
    return run


def _check_use(case: Case, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Raise if a run did not use a choice that the case is named after; by the module's file `used`."""
    choices = (
        (case.tables == "direct", "direct tables", "direct_pages"),
        (case.copies, "copying", "copied_maps"),
        (case.driver == AWARE, "the deferred unmaps of its driver", "deferred_pages"),
    )
    for is_chosen, what, name in choices:
        if is_chosen and after.get(name, 0) <= before.get(name, 0):
            raise UserError(f"{case}: the run did not use {what}: {name} stayed {before.get(name, 0)}")


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    page, domain, everything = values
    return page, domain, everything


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
                "level": of_case[0].level,
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
