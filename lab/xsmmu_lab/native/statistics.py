# SPDX-License-Identifier: GPL-2.0-only
"""Statistics of timed runs: disturbed runs are dropped, and the others give a median and an interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from xsmmu.errors import UserError

APART: Final = 0.08
"""Largest excess of a run's calibration over the usual calibration, as a part of the latter."""
_USUAL: Final = 0.1
"""The part of all runs whose calibration may be below the usual one. Not half: a neighbour on the other hyperthread may
slow most runs."""
_DROPPED_MAX: Final = 0.25
"""Largest part of the runs that may be disturbed where their number is fixed; with more, the machine is too noisy."""
REMEDY: Final = "end other programs, or take another machine or other CPUs (taskset)"
_CONFIDENCE: Final = 0.95

R = TypeVar("R")


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """The median with an interval: (median, low, high).

    The interval is the narrowest pair of order statistics that contains the median of the distribution with a
    probability of at least 95 %, whatever the distribution is. Fewer than six values give the smallest and the largest.
    """
    if not values:
        raise UserError(f"no run of a case is left: the machine is too noisy: {REMEDY}")
    ordered = sorted(values)
    count = len(ordered)
    for outside in range(count // 2, 1, -1):
        # The probability that less than `outside` of the values are on one side of the median.
        missed = 2 * sum(math.comb(count, less) for less in range(outside)) / 2**count
        if 1 - missed >= _CONFIDENCE:
            return statistics.median(ordered), ordered[outside - 1], ordered[-outside]
    return statistics.median(ordered), ordered[0], ordered[-1]


def undisturbed(
    runs: Sequence[R],
    calibration: Callable[[R], Mapping[Any, float]],
    is_disturbed: Callable[[R], bool] = lambda _: False,
) -> list[R]:
    """The runs in which no calibration is slower than usual.

    `calibration` gives a run's calibrations by name, such as a CPU; each is compared with a low quantile of that name
    over all runs. `is_disturbed` finds disturbances that calibrations do not show.
    """
    found: dict[Any, list[float]] = {}
    for run in runs:
        for name, value in calibration(run).items():
            found.setdefault(name, []).append(value)
    most = {name: (1 + APART) * sorted(values)[int(_USUAL * len(values))] for name, values in found.items()}

    def is_usual(run: R) -> bool:
        return all(value <= most[name] for name, value in calibration(run).items())

    return [run for run in runs if is_usual(run) and not is_disturbed(run)]


def check_most(kept: int, made: int) -> None:
    """Raise UserError if too many of a fixed number of runs are disturbed."""
    if made - kept > _DROPPED_MAX * made:
        raise UserError(f"this machine is too noisy: {made - kept} of {made} runs were disturbed: {REMEDY}")
