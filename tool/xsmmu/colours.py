# SPDX-License-Identifier: GPL-2.0-only
"""Colours of pages and pictures, by the name of a CSS variable, on light and on dark paper.

A protection level has the same colour in each picture of the tool and of the lab.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LIGHT: Final[Mapping[str, str]] = {
    "--ink": "#1b1f25",
    "--muted": "#5a6370",
    "--grid": "#dfe3e8",
    "--paper": "#fefefe",
    "--map": "#9db4cc",
    "--unmap": "#3c5a7d",
    "--strict": "#0b62a4",
    "--held": "#00785a",
    "--bounded": "#a86400",
    "--lazy": "#c43e00",
    "--none": "#6a6a6a",
}
DARK: Final[Mapping[str, str]] = {
    "--ink": "#e4e8ed",
    "--muted": "#9aa5b1",
    "--grid": "#333b45",
    "--paper": "#14181d",
    "--map": "#54708f",
    "--unmap": "#a9c6e6",
    "--strict": "#5fb0f0",
    "--held": "#3cc79c",
    "--bounded": "#e0a040",
    "--lazy": "#ff8552",
    "--none": "#a8a8a8",
}


def css(scheme: Mapping[str, str]) -> str:
    """The declarations of a scheme's variables."""
    return " ".join(f"{variable}: {colour};" for variable, colour in scheme.items())
