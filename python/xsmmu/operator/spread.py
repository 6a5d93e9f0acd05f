# SPDX-License-Identifier: GPL-2.0-only
"""What several runs say of one quantity: its middle, and how far they lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


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
