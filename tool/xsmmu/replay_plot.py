# SPDX-License-Identifier: GPL-2.0-only
"""The picture of a replayed recording, as SVG: commands for each page against exposure.

Both figures span decades and reach zero, where a logarithmic axis has no place: zero stands before the first decade,
behind a dotted line. Shape and colour of a marker show the level; a hollow marker is a mode of the kernel, a dot in a
marker is a batch-aware driver. Markers of the same place stand side by side and share a label.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from xsmmu import guide
from xsmmu.digits import duration, ratio
from xsmmu.replayed import KERNEL, Result, name

WIDTH: Final = 840
HEIGHT: Final = 480
LEFT: Final = 80
RIGHT: Final = 810
TOP: Final = 50
BOTTOM: Final = 420
NEAR: Final = 14
"""Markers closer than this stand side by side."""
ROW: Final = 14
"""Height of a line of a label."""
GLYPH: Final = 6.8
"""Upper bound of a letter's mean width."""
LETTERS: Final = 34
"""Width of a label."""

SHAPES: Final = {
    "strict": '<rect x="-5" y="-5" width="10" height="10"/>',
    "held": '<circle r="5.5"/>',
    "bounded": '<path d="M0 -6L6 5H-6Z"/>',
    "lazy": '<path d="M0 -6.5L6.5 0L0 6.5L-6.5 0Z"/>',
    "none": '<path d="M-5 -5L5 5M5 -5L-5 5"/>',
}
"""Marker of a level, around the origin."""


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis from `begin` to `end`, with a place for zero if a value is zero."""

    low: int
    high: int
    begin: float
    end: float
    with_zero: bool

    @classmethod
    def of(cls, values: Sequence[float], begin: float, end: float) -> Axis:
        """The axis on which all values have a place."""
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        low = math.floor(min(logs))
        return cls(low, max(math.ceil(max(logs)), low + 1), begin, end, any(value <= 0 for value in values))

    def _at(self, share: float) -> float:
        return self.begin + share * (self.end - self.begin)

    @property
    def gap(self) -> float:
        """Where the dotted line stands."""
        return self._at(0.12)

    def place(self, value: float) -> float:
        """The place of a value."""
        if value <= 0:
            return self._at(0.07)
        first = self._at(0.16) if self.with_zero else self.begin
        return first + (self.end - first) * (math.log10(value) - self.low) / (self.high - self.low)

    def ticks(self, named: Callable[[float], str]) -> list[tuple[float, str]]:
        """Places and names of zero and of at most eight decades."""
        step = math.ceil((self.high - self.low + 1) / 8)
        decades = [10.0**n for n in range(self.low, self.high + 1) if (self.high - n) % step == 0]
        found = [(self.place(value), named(value)) for value in decades]
        return [(self.place(0), "0"), *found] if self.with_zero else found


@dataclass(frozen=True)
class Box:
    """A part of the picture that must stay free of other text."""

    x: float
    y: float
    width: float
    height: float

    def covers(self, other: Box) -> bool:
        """Whether the boxes overlap."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


def words(results: Sequence[Result]) -> str:
    """The picture in words: all of its points."""
    return "; ".join(_words(result) for result in results)


def _words(result: Result) -> str:
    commands, exposed = result["commands_per_page_unmapped"], result["exposure_ns"]["p99"]
    return f"{name(result)} ({result['level']}): {ratio(commands)} commands a page, p99 of exposure {duration(exposed)}"


def svg(results: Sequence[Result], number: int) -> str:
    """The picture of a recording; `number` makes its ids unique in the page."""
    across = Axis.of([result["exposure_ns"]["p99"] for result in results], LEFT, RIGHT - 20)
    up = Axis.of([result["commands_per_page_unmapped"] for result in results], BOTTOM, TOP + 40)
    return "\n".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title-{number} words-{number}">',
            f'<title id="title-{number}">Commands for each page against exposure</title>',
            f'<desc id="words-{number}">{escape(words(results))}</desc>',
            *_legend(results),
            *_across(across),
            *_up(up),
            *_points(results, across, up),
            "</svg>",
        ]
    )


def _text(x: float, y: float, said: str, place: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{place}"{more}>{escape(said)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="{kind}"/>'


def _across(axis: Axis) -> list[str]:
    made = [_line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")]
    for x, said in axis.ticks(_time):
        made += [_line(x, TOP, x, BOTTOM, "grid"), _text(x, BOTTOM + 20, said, "middle")]
    if axis.with_zero:
        made.append(_line(axis.gap, TOP, axis.gap, BOTTOM, "gap"))
    made.append(_text((LEFT + RIGHT) / 2, HEIGHT - 12, "p99 of exposure after an unmap (left is safer)", "middle"))
    return made


def _up(axis: Axis) -> list[str]:
    made = [_line(LEFT, TOP, LEFT, BOTTOM, "axis")]
    for y, said in axis.ticks(lambda value: f"{value:.{max(0, -round(math.log10(value)))}f}"):
        made += [_line(LEFT, y, RIGHT, y, "grid"), _text(LEFT - 8, y + 4, said, "end")]
    if axis.with_zero:
        made.append(_line(LEFT, axis.gap, RIGHT, axis.gap, "gap"))
    middle = (TOP + BOTTOM) / 2
    turned = f' transform="rotate(-90 16 {middle:.1f})"'
    made.append(_text(16, middle, "commands for each page unmapped (down is cheaper)", "middle", turned))
    return made


def _time(ns: float) -> str:
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= scale:
            return f"{ns / scale:g} {unit}"
    return f"{ns:g} ns"


def _marker(x: float, y: float, level: str, hollow: bool, dot: bool, said: str = "") -> str:
    kind = f"{level} kernel" if hollow else level
    shape = SHAPES.get(level, SHAPES["held"])
    inside = '<circle r="2" class="dot"/>' if dot else ""
    title = f"<title>{escape(said)}</title>" if said else ""
    return f'<g transform="translate({x:.1f} {y:.1f})" class="{kind}">{title}{shape}{inside}</g>'


def _legend(results: Sequence[Result]) -> list[str]:
    there = {result["level"] for result in results}
    keys = [(level, level, False, False) for level in guide.LEVELS if level in there]
    if any(result["policy"] in KERNEL for result in results):
        keys.append(("hollow: the kernel's (a model)", "any", True, False))
    if any(result["aware"] for result in results):
        keys.append(("dot: batch-aware", "any", False, True))
    made, x = [], float(LEFT + 6)
    for said, level, hollow, dot in keys:
        made += [_marker(x, 20, level, hollow, dot), _text(x + 12, 24, said)]
        x += 36 + GLYPH * len(said)
    return made


def _points(results: Sequence[Result], across: Axis, up: Axis) -> list[str]:
    groups = _groups(
        (across.place(result["exposure_ns"]["p99"]), up.place(result["commands_per_page_unmapped"]), result)
        for result in results
    )
    markers: list[str] = []
    boxes: list[tuple[Box, list[str]]] = []
    for group in groups:
        y, width = group[0][1], NEAR * len(group)
        begin = max(group[0][0] - width / 2, LEFT + 4)
        boxes.append((Box(begin, y - 7, width, 14), [name(result) for *_, result in group]))
        for at, (*_, result) in enumerate(group):
            kernel, x = result["policy"] in KERNEL, begin + NEAR * (at + 0.5)
            markers.append(_marker(x, y, result["level"], kernel, result["aware"], _words(result)))
    return [*_labels(boxes), *markers]


def _groups(places: Iterable[tuple[float, float, Result]]) -> list[list[tuple[float, float, Result]]]:
    """Points that would cover each other."""
    groups: list[list[tuple[float, float, Result]]] = []
    for point in places:
        for group in groups:
            if math.dist(point[:2], group[0][:2]) < NEAR:
                group.append(point)
                break
        else:
            groups.append([point])
    return groups


def _labels(markers: Sequence[tuple[Box, list[str]]]) -> list[str]:
    """The names beside their markers; a name that is not next to them has a line to them."""
    leads: list[str] = []
    texts: list[str] = []
    taken = [box for box, _ in markers]
    for marker, names in sorted(markers, key=lambda each: each[0].y):
        lines = textwrap.wrap(", ".join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in names), LETTERS)
        width = GLYPH * max(map(len, lines))
        x = min(max(marker.x + (marker.width - width) / 2, LEFT + 4), WIDTH - 4 - width)
        box = _free(Box(x, marker.y - ROW * len(lines) - 4, width, ROW * len(lines)), taken)
        taken.append(box)
        middle, below = box.x + box.width / 2, box.y + box.height
        if not marker.y - 12 < below < marker.y + 2 * ROW + box.height:
            leads.append(_line(middle, below, marker.x + marker.width / 2, marker.y, "lead"))
        for at, line in enumerate(lines):
            texts.append(_text(middle, box.y + ROW * (at + 1) - 3, line, "middle", ' class="name"'))
    return [*leads, *texts]


def _free(wanted: Box, taken: Sequence[Box]) -> Box:
    """The nearest free place above or below the wanted one."""
    for step in range(0, BOTTOM - TOP, 4):
        for y in (wanted.y - step, wanted.y + step):
            box = Box(wanted.x, y, wanted.width, wanted.height)
            if TOP - 8 <= y <= BOTTOM - wanted.height and not any(box.covers(other) for other in taken):
                return box
    return wanted
