# SPDX-License-Identifier: GPL-2.0-only
"""The page of `make native`: the cost of each policy, by level, at a wait that a slider chooses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from xsmmu import native
from xsmmu_lab.native.summary import by_wait, on_several
from xsmmu_lab.report import page, plots
from xsmmu_lab.report.view import BASELINES, LEVELS, named

PAGE: Final = "report.html"
_TEMPLATE: Final = "native.html.j2"
_WAIT_MAX_NS: Final = 3000
_TICKS: Final = (1, 3)
_KERNEL_LAZY: Final = "kernel-lazy"
_SHAPE: Final = ("ring", "pages", "bytes", "list", "walk_mib")


@dataclass(frozen=True)
class Line:
    """A policy with a kind of driver, by its plain rows."""

    level: str
    rows: Sequence[native.Row]

    @property
    def name(self) -> str:
        """For people."""
        return named(self.rows[0].policy, self.rows[0].driver)

    @property
    def is_kernel(self) -> bool:
        """Whether it is a mode of the kernel."""
        return self.rows[0].policy in BASELINES

    def ns(self, wait_ns: float = native.HARDWARE_WAIT_NS) -> float:
        """Time to map and unmap a page."""
        return native.at_wait(self.rows, wait_ns)


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis for all lines at all waits of the slider. Places are percentages."""

    low: float
    high: float

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Axis:
        """An axis for these lines."""
        values = [line.ns(wait) for line in lines for wait in (0, _WAIT_MAX_NS)]
        return cls(math.log10(min(values) * 0.9), math.log10(max(values) * 1.1))

    def place(self, ns: float) -> float:
        """The place of a time."""
        return round(100 * (math.log10(ns) - self.low) / (self.high - self.low), 2)

    def ticks(self) -> list[int]:
        """Times with a name on the axis."""
        found = (tick * 10**power for power in range(6) for tick in _TICKS)
        return [ns for ns in found if self.low <= math.log10(ns) <= self.high]


def _row(row: dict[str, Any]) -> native.Row:
    return native.Row(**{field.name: row[field.name] for field in fields(native.Row)})


def lines(summary: dict[str, Any]) -> list[Line]:
    """The lines of single pages in a large ring on one CPU, strictest level first, then cheapest first."""
    rows = [(row["level"], _row(row)) for row in summary["rows"]]
    plain = [(level, row) for level, row in rows if row.is_plain()]
    keys = dict.fromkeys((level, row.policy, row.driver) for level, row in plain)
    found = [
        Line(key[0], sorted((row for level, row in plain if (level, row.policy, row.driver) == key), key=_wait))
        for key in keys
    ]
    return sorted(found, key=lambda line: ([*LEVELS].index(line.level), line.ns()))


def _wait(row: native.Row) -> int:
    return row.wait_ns


def shapes(summary: dict[str, Any]) -> tuple[list[int], list[list[str]]]:
    """All rows of one CPU: their waits, and a line for each case with its times."""
    waits, found = by_wait(summary["rows"], ("policy", "driver", *_SHAPE))
    return waits, [
        [
            named(policy, driver),
            *map(str, shape),
            *(f"{of[wait]['ns_per_page']:.1f}" if wait in of else "" for wait in waits),
        ]
        for (policy, driver, *shape), of in found.items()
    ]


def several(boot: dict[str, Any]) -> Iterator[list[str]]:
    """Cases on one and on several CPUs, with the ratio of their times."""
    for one, row in on_several(boot):
        ns = one["ns_per_page"], row["ns_per_page"]
        name = named(row["policy"], row["driver"])
        yield [name, str(row["cpus"]), *(f"{each:.1f}" for each in ns), f"{ns[1] / ns[0]:.2f}"]


def html(summary: dict[str, Any]) -> str:
    """The page."""
    found = lines(summary)
    waits, cases = shapes(summary)
    boot = summary.get("several_cpus", {})
    return (
        page.templates()
        .get_template(_TEMPLATE)
        .render(
            summary=summary,
            lines=found,
            lazy=next((line for line in found if line.rows[0].policy == _KERNEL_LAZY), None),
            levels={level: promise for level, promise in LEVELS.items() if any(line.level == level for line in found)},
            axis=Axis.of(found),
            wait=native.HARDWARE_WAIT_NS,
            wait_max=_WAIT_MAX_NS,
            measured=sorted({row.wait_ns for line in found for row in line.rows}),
            waits=waits,
            cases=cases,
            shape=_SHAPE,
            several=list(several(boot)),
            why_none=boot.get("why_none", ""),
            styles=plots.styles(),
        )
    )


def write(summary: dict[str, Any], folder: Path) -> Path:
    """Write the page into a folder."""
    page.replace(folder / PAGE, html(summary).encode())
    return folder / PAGE
