# SPDX-License-Identifier: GPL-2.0-only
"""Predictions for people: figures with intervals, the limit, the table and its notes.

A figure's value is the median of the seeds. Its interval is that of all runs: all seeds, and all sets of parameters
that could be true. A throughput is determined if the interval is within 10 % of the value.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final

import click

from xsmmu import guide, output
from xsmmu.digits import duration
from xsmmu.model_files import Scene

Result = Mapping[str, Any]
Json = dict[str, Any]

OFF: Final = "kernel-off"
"""The kernel without an IOMMU."""
WIDEST: Final = 0.10
"""Widest interval of a determined figure, on each side, as a part of the value."""
NEAR: Final = 1.01
"""Throughputs with a smaller ratio are not called different."""
GAIN: Final = 1.05
"""A lift is shown from this ratio of throughputs on."""
LINK: Final = "link"
FULL: Final = 0.95
"""Use of a link that is full."""
LIMITS: Final[Mapping[str, str]] = {
    "link": "the network link",
    "pcie": "PCIe",
    "walks": "page walks",
    "queue": "the invalidation queue",
    "lock": "the queue's lock",
    "cpu": "the CPU",
    "sender": "the sender",
    "drive": "the drives",
}
ALWAYS: Final = "always"
"""The exposure without an IOMMU."""
NOT_DETERMINED: Final = "not determined"


# -- figures ---------------------------------------------------------------------------------------


Columns = Mapping[str, Sequence[float]]
"""Figures of runs: by the figure's place in a result, such as counters.inv_per_page, a number of each run."""


def columns_of(runs: Sequence[Result]) -> dict[str, list[float]]:
    """The figures that all runs have."""
    flat = [dict(_flat(run)) for run in runs]
    return {place: [run[place] for run in flat] for place in flat[0] if all(place in run for run in flat)}


def _flat(result: Result, before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in result.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, int | float):
            yield before + name, value


def interval(column: Sequence[float], seeds: int) -> Json:
    """A figure of runs, which begin with those of the seeds."""
    value, low, high = statistics.median(column[:seeds]), min(column), max(column)
    return {"value": value, "low": low, "high": high, "determined": is_determined(value, low, high)}


def is_determined(value: float, low: float, high: float) -> bool:
    """Whether an interval is narrow enough."""
    return low >= (1 - WIDEST) * value and high <= (1 + WIDEST) * value


def figures(columns: Columns, seeds: int) -> Json:
    """All figures of a point."""

    def below(before: str) -> dict[str, Sequence[float]]:
        mine = {place.removeprefix(before): column for place, column in columns.items() if place.startswith(before)}
        return {name: column for name, column in mine.items() if "." not in name}

    def intervals(before: str) -> Json:
        return {name: interval(column, seeds) for name, column in below(before).items() if name not in _NO_FIGURES}

    limits = {name: statistics.fmean(column[:seeds]) for name, column in below("limits.").items()}
    return {
        **intervals(""),
        "exposure_us": intervals("exposure_us."),
        "limits": limits,
        "limit": _limit(limits),
        "counters": intervals("counters."),
        "commands": intervals("counters.commands."),
        "runs_gbps": [*columns["throughput_gbps"]],
        "runs": len(columns["throughput_gbps"]),
        "seeds": seeds,
    }


def _limit(limits: Mapping[str, float]) -> str | None:
    """What limits: the link only if it is full, as its share is the link's use; else the largest of the others."""
    others = {name: share for name, share in limits.items() if name != LINK or share >= FULL}
    found = others if any(others.values()) else limits
    return max(found, key=lambda name: found[name]) if any(found.values()) else None


_NO_FIGURES: Final = ("seed", "events")


# -- words -----------------------------------------------------------------------------------------


def long(seconds: float) -> str:
    """A time for people: 40 s, 12 minutes, 3.5 hours, 12 days."""
    for unit, scale in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.1f} {unit}" if seconds < 10 * scale else f"{seconds / scale:,.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"


def level(policy: str) -> str:
    """The level of a policy; a batch-aware driver makes a policy with a flush of the driver strict."""
    base = policy.removesuffix("-aware").removesuffix("-direct")
    own = {OFF: "none", "kernel-strict": "strict", "kernel-lazy": "lazy"}
    if base in own:
        return own[base]
    aware = policy.endswith("-aware") and base in ("xsmmu", "fused", "fands")
    return "strict" if aware else guide.POLICIES[base].level


def spread(found: Mapping[str, Any], digits: int = 1) -> str:
    """An interval for people."""
    low, high = f"{found['low']:.{digits}f}", f"{found['high']:.{digits}f}"
    return low if low == high else f"{low}-{high}"


def throughput(result: Result) -> str:
    """The throughput in Gb/s, and whether it is determined."""
    found = result["throughput_gbps"]
    return f"{found['value']:.1f}" + ("" if found["determined"] else f", {NOT_DETERMINED}")


def limit(result: Result) -> str:
    """What limits, with its share of the time."""
    name = result["limit"]
    return f"{LIMITS.get(name, name)} ({100 * result['limits'][name]:.0f} %)" if name else ""


def lifts(result: Result) -> list[str]:
    """The changes that raise the throughput, the best first."""
    now = result["throughput_gbps"]["value"]
    found = [each for each in result["lifts"] if each["throughput_gbps"] > GAIN * now]
    found.sort(key=lambda each: -float(each["throughput_gbps"]))
    return [f"{each['words']} ({each['throughput_gbps']:.1f} Gb/s)" for each in found]


def settled(result: Result) -> str:
    """What a longer time gives, if that is another throughput; else nothing."""
    longer = result.get("longer")
    if not longer:
        return ""
    time_ms, gbps = longer["time_ms"], longer["throughput_gbps"]
    if is_determined(result["throughput_gbps"]["value"], gbps, gbps):
        return ""
    return f"has not settled in {result['time_ms']} ms: {time_ms} ms give {gbps:.1f} Gb/s; add --ms {time_ms} or more"


_ALSO: Final = {"transmit_gbps": "SENT GBIT/S", "kiops": "K IOPS"}
"""Figures of some machines."""


def also_of(results: Sequence[Result]) -> list[str]:
    """The figures beside the throughput that are not 0."""
    return [name for name in _ALSO if any(result.get(name, {}).get("value") for result in results)]


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def row(result: Result, also: Sequence[str] = ()) -> list[str]:
    """A line of the table."""
    exposed, drops = result["exposure_us"].get("p99"), result["drops_share"]
    never = ALWAYS if result["policy"] == OFF else "-"
    inv = result["counters"].get("inv_per_page")
    return [
        *(str(value) for value in result["at"].values()),
        result["policy"],
        level(result["policy"]),
        throughput(result),
        spread(result["throughput_gbps"]),
        *(_short(result[name]["value"]) for name in also),
        f"{100 * result['cpu_share']['value']:.0f}",
        f"{100 * drops['value']:.2f}",
        duration(1000 * exposed["value"]) if exposed else never,
        f"{inv['value']:.3f}" if inv else "-",
        limit(result),
    ]


def rows(results: Sequence[Result]) -> list[list[str]]:
    """The lines of the table."""
    also = also_of(results)
    return [row(result, also) for result in results]


def columns(results: Sequence[Result]) -> list[str]:
    """The heads of the table."""
    swept = [name.upper() for name in results[0]["at"]]
    heads = ["POLICY", "LEVEL", "GBIT/S", "INTERVAL", *(_ALSO[name] for name in also_of(results))]
    return [*swept, *heads, "CPU %", "DROPS %", "EXPOSED p99", "INV/PAGE", "LIMIT"]


def notes(results: Sequence[Result]) -> Iterator[str]:
    """Explanations of the table."""
    for result in results:
        if result["lifts"]:
            found = lifts(result)
            raises = f"raised by {'; '.join(found)}" if found else "raised by none of the changes that were tried"
            yield f"{result['policy']}: limited by {limit(result) or 'nothing'}, {raises}"
        if late := settled(result):
            yield f"{result['policy']}: {late}"
    for place, mine in groupby(results, key=lambda result: result["at"]):
        yield from _order(place, list(mine))
    unknown = [result for result in results if not result["throughput_gbps"]["determined"]]
    if unknown:
        yield (
            f"{len(unknown)} of {len(results)} throughputs are not determined: parameters that are as likely give more "
            "than 10 % more or less; measure the parameters with a range (docs/model.md)"
        )


def _order(place: Mapping[str, Any], results: Sequence[Result]) -> Iterator[str]:
    """The policies by throughput; intervals may overlap, as a set of parameters that slows one slows others, too."""
    if len(results) < 2:
        return
    ordered = sorted(results, key=lambda result: -float(result["throughput_gbps"]["value"]))
    said = ordered[0]["policy"]
    for one, other in pairwise(ordered):
        said += f" {'>' if _is_faster(one, other) else '~'} {other['policy']}"
    where = f"{', '.join(f'{name}={value}' for name, value in place.items())}: " if place else ""
    yield f"{where}{said} (>: at least 1 % faster with each set of parameters that could be true)"


def _is_faster(one: Result, other: Result) -> bool:
    runs = zip(one["runs_gbps"], other["runs_gbps"], strict=True)
    return all(mine > NEAR * theirs for mine, theirs in runs)


def print_table(scene: Scene, results: Sequence[Result]) -> None:
    """The table and its notes."""
    for part in (scene.machine, scene.driver, scene.workload):
        click.echo(f"{part.part}: {part.title}")
    output.table(columns(results), rows(results))
    for note in notes(results):
        click.echo(f"note: {note}")


def by_policy(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The results of each policy."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result["policy"], []).append(result)
    return found
