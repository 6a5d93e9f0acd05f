# SPDX-License-Identifier: GPL-2.0-only
"""Statistics of several runs: median and spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from xsmmu.digits import precise

SOUND: Final = 6
"""Number of runs with the true median in their range at 95 % probability (1 - 2 * 0.5^n), for any distribution."""
OUTLIER: Final = 14.826
"""Threshold in median deviations: ten standard deviations of a normal distribution, as in hyperfine."""
NOISE: Final = 0.01
"""Share of the median below which a deviation is no outlier, however close the other runs are."""


def column(rows: Sequence[Mapping[str, float | None]], name: str) -> list[float]:
    """Known values of a quantity, in order."""
    return [value for row in rows if (value := row[name]) is not None]


def spread(values: Sequence[float], base: Sequence[float]) -> dict[str, float | None] | None:
    """Median, median absolute deviation, least and largest value, and the ratio to the baseline's median."""
    if not values:
        return None
    median = statistics.median(values)
    baseline = statistics.median(base) if base else None
    return {
        "median": median,
        "mad": statistics.median(abs(value - median) for value in values),
        "min": min(values),
        "max": max(values),
        "relative": median / baseline if baseline else None,
    }


def few(runs: int, option: str) -> Iterator[str]:
    """A warning if there are too few runs."""
    if runs < SOUND:
        yield (
            f"{runs} run{'' if runs == 1 else 's'} of each policy: too few to know the spread, so that a small "
            f"difference may be chance: use {option} {SOUND} or more"
        )


def outliers(values: Sequence[float], resolution: float = 0.0) -> list[int]:
    """Indices of outliers; a difference up to `resolution` is none."""
    if not values:
        return []
    median = statistics.median(values)
    mad = statistics.median(abs(value - median) for value in values)
    least = max(OUTLIER * mad, resolution, NOISE * abs(median))
    return [at for at, value in enumerate(values) if abs(value - median) > least]


def disturbed(name: str, quantity: str, values: Sequence[float], resolution: float = 0.0) -> Iterator[str]:
    """A warning about outliers; an outlier in the first round may only need a warm-up."""
    found = outliers(values, resolution)
    if found:
        said = ", ".join(f"{precise(values[at])} in round {at + 1}" for at in found)
        help_ = "use more --warmup" if found == [0] else "repeat on an idle machine"
        yield f"{name}: outliers of {quantity}: {said}, the median is {precise(statistics.median(values))}: {help_}"
