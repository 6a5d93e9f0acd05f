# SPDX-License-Identifier: GPL-2.0-only
"""Two results side by side: the cost of each run before and after, and whether the change exceeds the usual spread.

Results of repeated runs (`lab run --repeat`) contain their spread: a cost has changed if the two ranges are disjoint.
For other runs docs/figures.md ("How sure") gives the spread of a workload's cost between runs. micro is exact and ring
nearly so; any difference there comes from the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from xsmmu.errors import UserError
from xsmmu_lab.report.view import named
from xsmmu_lab.runs import figures

Json = dict[str, Any]

_SPREAD: Final[Mapping[tuple[str, str | None], float]] = {
    ("micro", None): 0.0,
    ("ring", None): 0.002,
    ("net-tx", None): 0.023,
    ("net-pps", None): 0.023,
    ("nvme", "4k-batch"): 0.023,
    ("net-rx", None): 0.042,
    ("nvme", None): 0.08,
}
"""By workload, and by variant if the variant has its own spread: in units of the cost under passthrough."""

_ROUNDING: Final = 1e-6
_FACTS: Final = ("time", "commit", "kernel", "iommu", "qemu", "accel", "command")


@dataclass(frozen=True)
class Change:
    """A run in both results. `changed` is None if the spread of such runs is unknown."""

    workload: str
    policy: str
    driver: str
    unit: str
    before: float
    after: float
    percent: float
    changed: bool | None


@dataclass(frozen=True)
class Comparison:
    """The runs in both results, and the runs in only one."""

    before: Json
    after: Json
    runs: tuple[Change, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]

    def as_dict(self) -> Json:
        """The comparison for JSON."""
        return {"schema": "xsmmu.lab-compare/1", **asdict(self)}


def compare(before: Json, after: Json) -> Comparison:
    """Compare two summaries. Raises UserError if their costs have different units, or if they share no run."""
    if before["accel"] != after["accel"]:
        raise UserError(
            f"costs by {before['accel']} and by {after['accel']} cannot be compared: run one of them again "
            "with the accelerator of the other (--accel)"
        )
    old, new = _by_place(before), _by_place(after)
    runs = tuple(_change(each, new[place]) for place, each in old.items() if place in new)
    if not runs:
        raise UserError("the two results have no run with a cost in common: compare those of the same workloads")
    return Comparison(
        {fact: before[fact] for fact in _FACTS},
        {fact: after[fact] for fact in _FACTS},
        runs,
        tuple(" ".join(place) for place in old if place not in new),
        tuple(" ".join(place) for place in new if place not in old),
    )


def _by_place(summary: Json) -> dict[tuple[str, str, str], Json]:
    """The runs with a cost, by workload, policy and driver."""
    return {
        (_workload(each), each["policy"], each["driver"]): each
        for each in summary["runs"]
        if figures.cost_of(each) is not None
    }


def _workload(each: Json) -> str:
    words = [str(each[key]) for key in ("ring", "device", "variant") if key in each]
    words += [each["iommu"]] if each.get("iommu", "vtd") != "vtd" else []
    return " ".join([each["workload"], *words])


def _change(old: Json, new: Json) -> Change:
    before, after = figures.cost_of(old), figures.cost_of(new)
    assert before is not None
    assert after is not None
    return Change(
        workload=_workload(old),
        policy=old["policy"],
        driver=old["driver"],
        unit=old["cost"]["unit"] if old["cost"] else "instructions/page",
        before=before,
        after=after,
        percent=(after - before) / before * 100 if before else 0.0,
        changed=_has_changed(old, new, after - before),
    )


def _has_changed(old: Json, new: Json, difference: float) -> bool | None:
    ranges = [each["repeats"]["cost"] for each in (old, new) if each.get("repeats")]
    if len(ranges) == 2:
        (least, most), (other_least, other_most) = ranges
        return bool(most < other_least or other_most < least)
    kind = old["workload"]
    spread = _SPREAD.get((kind, old.get("variant")), _SPREAD.get((kind, None)))
    if spread is None:
        return None
    cost = figures.cost_of(old) or 0.0
    passthrough = cost / old["relative_to_passthrough"] if old["relative_to_passthrough"] else cost
    return abs(difference) > spread * passthrough + _ROUNDING * cost


_WORDS: Final = {True: "changed", False: "", None: "not known"}


def render(comparison: Comparison, console: Console, only_changed: bool = False) -> None:
    """Print the comparison as a table, with its facts above."""
    for fact in _FACTS[:-1]:
        old, new = comparison.before[fact], comparison.after[fact]
        console.print(
            f"{fact}: {old}" if old == new else f"{fact}: {old} -> {new}", markup=False, highlight=False, soft_wrap=True
        )
    table = Table("workload", "policy", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("before", "after", "%"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    shown = [each for each in comparison.runs if each.changed or not only_changed]
    for each in shown:
        costs = (f"{each.before:,.2f}", f"{each.after:,.2f}", f"{each.percent:+.2f}")
        table.add_row(each.workload, named(each.policy, each.driver), *costs, _WORDS[each.changed])
    if shown:
        console.print(table)
    changed = sum(each.changed is True for each in comparison.runs)
    console.print(f"{changed} of {len(comparison.runs)} costs changed by more than runs differ by", highlight=False)
    _missing(comparison.only_before, "before", console)
    _missing(comparison.only_after, "after", console)


def _missing(names: Sequence[str], side: str, console: Console) -> None:
    if names:
        console.print(f"only {side}: {', '.join(names)}", markup=False, highlight=False, soft_wrap=True)
