# SPDX-License-Identifier: GPL-2.0-only
"""What was published about allocators of IOVAs, beside the figures here.

A statement holds, does not hold, or cannot be decided here; the reason is part of it. Its checks are those of the lab's
claims (runs/claims.py): a figure of several allocators, compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xsmmu_lab.allocators.cases import ALLOCATORS
from xsmmu_lab.runs import claims

Json = dict[str, Any]

STUDY: Final = "Linux mailing list, Intel IOMMU, 200-thread TCP_RR"
PROPOSAL: Final = "Linux mailing list, 2026, EPYC 9124, 32 threads"
LOAD_CPUS: Final = 8
MANY_CPUS: Final = 32


@dataclass(frozen=True)
class Figure:
    """A figure of each allocator: a value of its counts under a workload, on a number of CPUs of the model."""

    name: str
    workload: str
    cpus: int
    value: Callable[[Json], float | None]

    def of(self, rows: Sequence[Json]) -> dict[str, float | None]:
        """The figure by allocator; None where it was not measured."""
        found: dict[str, float | None] = dict.fromkeys(ALLOCATORS)
        for row in rows:
            for counts in row["counted"]:
                if (row["workload"], counts["cpus"]) == (self.workload, self.cpus):
                    found[row["allocator"]] = self.value(counts)
        return found


def _of_shape(when: str, key: str) -> Callable[[Json], float | None]:
    return lambda counts: counts[when][key] if counts[when] else None


FIGURES: Final = (
    Figure("levels at rest", "ring-33", LOAD_CPUS, _of_shape("rest", "levels")),
    Figure("nodes at rest", "ring-33", LOAD_CPUS, _of_shape("rest", "nodes")),
    Figure("nodes under load", "ring-33", LOAD_CPUS, _of_shape("load", "nodes")),
    Figure("accesses", "ring-33", LOAD_CPUS, lambda counts: float(counts["accesses_per_pair"])),
    Figure("contended", "large-33", MANY_CPUS, lambda counts: float(counts["contended_per_pair"])),
    Figure("longest wait", "large-33", MANY_CPUS, lambda counts: float(counts["longest_wait_us"])),
)


@dataclass(frozen=True)
class Statement:
    """A published statement. Without checks it cannot be decided here, and `why` says so."""

    says: str
    source: str
    why: str
    checks: tuple[str, ...] = ()
    figure: str = ""
    """The figure to show for a statement without checks."""


STATEMENTS: Final = (
    Statement(
        "Tens of thousands of static maps: 14 to 16 levels of cold pointers",
        STUDY,
        "levels: the mean depth of a node of the kernel's own tree with 30,000 mappings of a page. Whether the pointers"
        " are cold is not counted.",
        ("levels at rest: 14 <= tree <= 16",),
    ),
    Statement(
        "Merged nodes of neighbouring ranges: about 7 nodes at rest",
        STUDY,
        "The mappings that stay are made here in one go, so they need fewer nodes than those of drivers with several"
        " rings and other structures.",
        ("nodes at rest: 4 <= merged <= 14",),
    ),
    Statement(
        "Merged nodes under load: hundreds to a thousand",
        STUDY,
        f"on {LOAD_CPUS} CPUs of the model with a ring of 1,024 pages each, a third freed elsewhere. More CPUs need"
        " more nodes.",
        ("nodes under load: 200 <= merged <= 1500",),
    ),
    Statement(
        "Merging gives a third of the lost performance back",
        STUDY,
        "Their performance is the throughput of a network stack with invalidations; here an allocator runs alone. The"
        " figure is the part of the tree's memory accesses that an allocator saves; no allocator saves 1.",
        figure="saved accesses",
    ),
    Statement(
        "Wanted: magazines for IOVAs, which need fewer accesses than the tree",
        STUDY,
        "memory accesses of a map and a free, by the placement `page` of xsmmu and by Linux's magazines.",
        ("accesses: magazines < 0.5 * tree", "accesses: cached < 0.5 * tree"),
    ),
    Statement(
        "A cached order has at most 1 / 90.9 of the contentions of an uncached one (100 beside 9,089)",
        PROPOSAL,
        "order 7, which cached-2m caches and cached does not, in the model; how many allocations their run made is not"
        " published.",
        ("contended: cached > 90.9 * cached-2m",),
    ),
    Statement(
        "A cached order has at most 1 / 20.1 of the longest wait of an uncached one (9.8 us beside 196.9 us)",
        PROPOSAL,
        "order 7 in the model, whose durations are round numbers: only the ratio can be compared.",
        ("longest wait: cached > 20.1 * cached-2m",),
    ),
)


def _saved(costs: Mapping[str, float | None]) -> dict[str, float | None]:
    """The part of the tree's cost that each allocator saves."""
    tree = costs["tree"]
    return {name: round(1 - cost / tree, 3) if tree and cost is not None else None for name, cost in costs.items()}


def decide(rows: Sequence[Json], statements: Sequence[Statement] = STATEMENTS) -> list[Json]:
    """The statements for a summary."""
    figures = {figure.name: figure.of(rows) for figure in FIGURES}
    figures["saved accesses"] = _saved(figures["accesses"])
    return [_decide(each, figures) for each in statements]


def _decide(statement: Statement, figures: Mapping[str, Mapping[str, float | None]]) -> Json:
    names, systems = list(figures), list(ALLOCATORS)
    checks = [claims.read_check(text, statement.says, names, systems) for text in statement.checks]
    found = [check.holds(figures[check.figure]) for check in checks]
    shown = dict.fromkeys([*(check.figure for check in checks), *([statement.figure] if statement.figure else [])])
    return {
        "says": statement.says,
        "source": statement.source,
        "checks": list(statement.checks),
        "holds": False if False in found else None if None in found or not found else True,
        "figures": {name: dict(figures[name]) for name in shown},
        "why": statement.why,
    }
