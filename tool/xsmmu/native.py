# SPDX-License-Identifier: GPL-2.0-only
"""Accepted figures of `make native`: nanoseconds to map and unmap a page on real CPUs, by the IOMMU's wait.

The file native.json beside this module has one machine for each CPU model. `xsmmu lab native --accept` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("native.json")
SCHEMA: Final = "xsmmu.native/1"
HARDWARE_WAIT_NS: Final = 1000
"""A typical wait for an invalidation; published figures are 0.9 to 2 us."""


@dataclass(frozen=True)
class Row:
    """One case at one wait."""

    policy: str
    """As in `make lab`: fused-direct stands for direct tables."""
    driver: str
    """unmodified or batch-aware; none in passthrough."""
    tables: str
    """kernel or direct; none in passthrough."""
    bytes: int
    """Size of a buffer."""
    pages: int
    """Pages of a mapping."""
    ring: int
    list: int
    """Entries of each scatter list; 0: single mappings."""
    walk_mib: int
    """Memory that is walked between two polls, so that caches are cold."""
    cpus: int
    wait_ns: int
    ns_per_page: float
    low: float
    high: float
    """The interval low to high contains the median with a probability of 95 %."""
    map_ns: float
    unmap_ns: float
    inv_per_page: float

    def is_plain(self) -> bool:
        """Whether the case maps single whole pages in a large ring on one CPU with hot caches."""
        return (self.bytes, self.pages, self.ring, self.list, self.walk_mib, self.cpus) == (4096, 1, 1024, 0, 0, 1)


@dataclass(frozen=True)
class Machine:
    """The rows of one run, whose ratios may be quoted."""

    cpu: str
    kernel: str
    commit: str
    cmpxchg_ns: float
    """Time of a locked compare-and-swap."""
    rows: tuple[Row, ...]

    def plain(self, policy: str, driver: str = "unmodified") -> list[Row]:
        """Plain rows of a policy with a kind of driver, by wait. Passthrough has one kind of row."""
        wanted = (policy, driver if policy != "passthrough" else "none")
        found = [row for row in self.rows if row.is_plain() and (row.policy, row.driver) == wanted]
        return sorted(found, key=lambda row: row.wait_ns)

    def ns_at(self, wait_ns: float, policy: str, driver: str = "unmodified") -> float | None:
        """Nanoseconds to map and unmap a page at any wait; None without a row. See `at_wait`."""
        found = self.plain(policy, driver)
        return at_wait(found, wait_ns) if found else None


def at_wait(rows: Sequence[Row], wait_ns: float) -> float:
    """Nanoseconds at a wait, from a case's rows in the order of their waits.

    Between two measured waits the figure is linear. Below the first and above the last, each invalidation adds the
    difference of the waits.
    """
    for low, high in pairwise(rows):
        if low.wait_ns <= wait_ns <= high.wait_ns:
            part = (wait_ns - low.wait_ns) / (high.wait_ns - low.wait_ns)
            return low.ns_per_page + part * (high.ns_per_page - low.ns_per_page)
    near = rows[0] if wait_ns < rows[0].wait_ns else rows[-1]
    return near.ns_per_page + near.inv_per_page * (wait_ns - near.wait_ns)


def parse(text: str) -> tuple[Machine, ...]:
    """Machines from the file's text."""
    document = json.loads(text)
    if document["schema"] != SCHEMA:
        raise ValueError(f"the schema is {document['schema']}, not {SCHEMA}")
    return tuple(
        Machine(**{**machine, "rows": tuple(Row(**row) for row in machine["rows"])}) for machine in document["machines"]
    )


@cache
def accepted() -> tuple[Machine, ...]:
    """All machines with accepted figures."""
    return parse(FILE.read_text())


def of_cpu(model: str | None) -> Machine | None:
    """The machine with this model of CPU, if its figures are accepted."""
    return next((machine for machine in accepted() if machine.cpu == model), None)
