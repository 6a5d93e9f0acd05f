# SPDX-License-Identifier: GPL-2.0-only
"""Short figures for tables; `-` means unknown."""

from __future__ import annotations


def _scaled(value: float, units: str) -> str:
    steps = units.split()
    value /= 1000
    while value >= 999.5 and len(steps) > 1:
        value /= 1000
        del steps[0]
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}{steps[0]}"


def short(value: float | None) -> str:
    """A number in five characters: 0, 0.25, 999, 9,999, 12.3k, 835k, 1.25M."""
    if value is None:
        return "-"
    if value < 9.995:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:,.0f}" if value < 9999.5 else _scaled(value, "k M G T")


def duration(ns: float | None) -> str:
    """A time in six characters: 0, 850ns, 12.3us, 874us, 1.25ms."""
    if ns is None:
        return "-"
    if ns < 999.5:
        return f"{ns:.0f}ns" if ns else "0"
    return _scaled(ns, "us ms s")


def ratio(value: float | None) -> str:
    """Commands per page."""
    return "-" if value is None else f"{value:.4f}"


def percent(value: float | None) -> str:
    """Percent of a CPU."""
    return "-" if value is None else f"{100 * value:.1f}"


def precise(value: float, digits: int = 4) -> str:
    """A number with the given count of digits: 0.0125, 12.35, 9412, 12.35k, 9412M."""
    units = ["", "k", "M", "G", "T"]
    while value >= 9999.5 and len(units) > 1:
        value /= 1000
        del units[0]
    return f"{value:.{max(digits, len(str(int(value))))}g}{units[0]}"
