# SPDX-License-Identifier: GPL-2.0-only
"""What several runs say of one quantity: its middle, and how far they lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from xsmmu.digits import precise

SOUND: Final = 6
"""From so many runs on, their range has the true median with 95 % (1 - 2 * 0.5^n), whatever their distribution is."""
OUTLIER: Final = 14.826
"""In median deviations: ten standard deviations of a normal distribution, where hyperfine has its bound, too."""
NOISE: Final = 0.01
"""Of the median; a smaller deviation disturbs no comparison, however equal the other runs are."""


def column(rows: Sequence[Mapping[str, float | None]], name: str) -> list[float]:
    """What is known of a quantity, in order."""
    return [value for row in rows if (value := row[name]) is not None]


def spread(values: Sequence[float], base: Sequence[float]) -> dict[str, float | None] | None:
    """Median, median absolute deviation from it, least and most; and the median relative to the baseline's."""
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
    """The warning of fewer runs than say something."""
    if runs < SOUND:
        yield (
            f"{runs} run{'' if runs == 1 else 's'} of each: too few to say how far runs lie apart, so that a small "
            f"difference may be chance: use {option} {SOUND} or more"
        )


def outliers(values: Sequence[float], resolution: float = 0.0) -> list[int]:
    """The places of values that are no part of what the others are; a difference up to `resolution` says nothing."""
    if not values:
        return []
    median = statistics.median(values)
    mad = statistics.median(abs(value - median) for value in values)
    least = max(OUTLIER * mad, resolution, NOISE * abs(median))
    return [at for at, value in enumerate(values) if abs(value - median) > least]


def disturbed(name: str, quantity: str, values: Sequence[float], resolution: float = 0.0) -> Iterator[str]:
    """The warning of outliers; a first one may only lack what a warm-up fills."""
    found = outliers(values, resolution)
    if found:
        said = ", ".join(f"{precise(values[at])} in round {at + 1}" for at in found)
        help_ = "use more --warmup" if found == [0] else "run it again on a machine that does nothing else"
        yield f"{name}: outliers of {quantity}: {said}, the median is {precise(statistics.median(values))}: {help_}"
