# SPDX-License-Identifier: GPL-2.0-only
"""Statistics of timed runs: intervals, dropped runs, and machines that are too noisy."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from xsmmu.errors import UserError
from xsmmu_lab.native import statistics


@pytest.mark.parametrize(
    ("count", "low", "high"), [(1, 0, 0), (5, 0, 4), (7, 0, 6), (9, 1, 7), (15, 3, 11), (21, 5, 15)]
)
def test_the_interval_contains_the_median(count: int, low: int, high: int) -> None:
    values = [float(at) for at in range(count)]
    assert statistics.middle(values[::-1]) == (count // 2, low, high)


def test_no_run_is_no_figure() -> None:
    with pytest.raises(UserError, match="no run of a case is left"):
        statistics.middle([])


def calibrated(values: Iterable[float]) -> list[dict[str, float]]:
    return [{"0": value} for value in values]


def test_runs_with_a_slow_calibration_are_dropped() -> None:
    runs = calibrated([10.7] * 8 + [14.0, 9.0])
    assert statistics.undisturbed(runs, dict) == [*runs[:8], runs[9]]
    # Each name has its own usual value.
    other = [{"1": 20.0}] * 2
    assert statistics.undisturbed([*runs, *other], dict) == [*runs[:8], runs[9], *other]
    assert statistics.undisturbed(runs[:8], dict, lambda run: run is runs[3]) == [*runs[:3], *runs[4:8]]


def test_the_usual_calibration_is_that_of_the_quietest_tenth() -> None:
    runs = calibrated([15.0] * 17 + [8.0, 8.2, 8.1])
    assert statistics.undisturbed(runs, dict) == runs[17:]
    assert statistics.undisturbed(calibrated([8.0] + [15.0] * 19), dict) != [], "a single fast run is not the usual one"
    assert len(statistics.undisturbed(calibrated([8.0] + [15.0] * 19), dict)) == 20
    assert statistics.undisturbed([], dict) == []


def test_a_noisy_machine_is_refused() -> None:
    statistics.check_most(kept=6, made=8)
    with pytest.raises(UserError, match="too noisy: 3 of 9 runs were disturbed: end other programs"):
        statistics.check_most(kept=6, made=9)
