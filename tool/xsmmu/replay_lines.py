# SPDX-License-Identifier: GPL-2.0-only
"""Pictures of a replayed recording over its time, and of how long mappings live, as SVG.

Each picture has its largest values in words, for screen readers. A row of the timelines is a policy; all panels of a
column have the same scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from xsmmu.digits import duration, short
from xsmmu.replayed import Result, name

WIDTH: Final = 840
NAMES: Final = 150
"""Width of the column of names."""
GAP: Final = 20
PANEL: Final = (WIDTH - NAMES - 2 * GAP) / 2
ROW: Final = 46
HIGH: Final = 34
"""Height of a panel in a row."""
TOP: Final = 26
BARS: Final = 200
"""Height of the picture of lifetimes."""


def _head(height: float, kind: str, number: int, title: str, words: str) -> list[str]:
    ids = f"{kind}-title-{number} {kind}-words-{number}"
    return [
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="{ids}">',
        f'<title id="{kind}-title-{number}">{escape(title)}</title>',
        f'<desc id="{kind}-words-{number}">{escape(words)}</desc>',
    ]


def _text(x: float, y: float, said: str, place: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{place}">{escape(said)}</text>'


def _area(values: Sequence[int], most: int, x: float, bottom: float, kind: str) -> str:
    """The values as steps from left to right, on a line at `bottom`."""
    step = PANEL / max(len(values), 1)
    path = [f"M{x:.1f} {bottom:.1f}"]
    for at, value in enumerate(values):
        path.append(f"V{bottom - HIGH * value / max(most, 1):.1f}H{x + step * (at + 1):.1f}")
    base = f'<line x1="{x:.1f}" y1="{bottom:.1f}" x2="{x + PANEL:.1f}" y2="{bottom:.1f}" class="axis"/>'
    return f'<g class="{kind}"><path class="area" d="{"".join(path)}V{bottom:.1f}Z"/></g>{base}'


def _most(results: Sequence[Result], line: str) -> int:
    return max((max(result["timeline"][line], default=0) for result in results), default=0)


def _rows(results: Sequence[Result]) -> Iterator[str]:
    first, second = NAMES + GAP, NAMES + 2 * GAP + PANEL
    commands, held = _most(results, "commands"), _most(results, "held_pages")
    for row, result in enumerate(results, 2):
        line, bottom = result["timeline"], TOP + ROW * row - 6
        yield _text(NAMES, bottom - 4, name(result), "end")
        yield _area(line["commands"], commands, first, bottom, result["level"])
        yield _area(line["held_pages"], held, second, bottom, result["level"])
    top = TOP + ROW + 8
    yield _text(first, top, f"commands a step, up to {short(commands)}")
    yield _text(second, top, f"most held pages, up to {short(held)}")


def timelines(results: Sequence[Result], number: int) -> str:
    """Maps and mapped pages, which all policies share; and commands and held memory of each."""
    line = results[0]["timeline"]
    time = line["step_ns"] * len(line["maps"])
    height = TOP + ROW * (len(results) + 1) + 24
    first, second = NAMES + GAP, NAMES + 2 * GAP + PANEL
    maps, mapped = _most(results[:1], "maps"), _most(results[:1], "mapped_pages")
    said = [f"{name(each)}: {_most([each], 'commands'):,} and {_most([each], 'held_pages'):,}" for each in results]
    words = f"Most in a step of {duration(line['step_ns'])}: {maps:,} maps. Commands and held pages: {'; '.join(said)}"
    return "\n".join(
        [
            *_head(height, "time", number, "Maps, commands and held memory over time", words),
            _text(first, 14, f"maps a step of {duration(line['step_ns'])}, up to {short(maps)}"),
            _text(second, 14, f"most mapped pages, up to {short(mapped)}"),
            _text(NAMES, TOP + ROW - 16, "all policies", "end"),
            _area(line["maps"], maps, first, TOP + ROW - 12, "any"),
            _area(line["mapped_pages"], mapped, second, TOP + ROW - 12, "any"),
            *_rows(results),
            *(_text(x, height - 6, "0") for x in (first, second)),
            *(_text(x + PANEL, height - 6, duration(time), "end") for x in (first, second)),
            "</svg>",
        ]
    )


def lifetimes(result: Result, number: int) -> str:
    """How many mappings live how long, by powers of two of ns."""
    life = result["lifetime_ns"]
    counts = {int(ns): count for ns, count in life["from_ns"]}
    if not counts:
        return ""
    first, last = min(counts).bit_length(), max(counts).bit_length()
    most, wide = max(counts.values()), (WIDTH - 20) / (last - first + 1)
    words = (
        f"{life['mappings']:,} mappings: half of them for {duration(life['p50'])} at most, 99 % for "
        f"{duration(life['p99'])}, the longest for {duration(life['max'])}"
    )
    made = _head(BARS, "life", number, "How long buffers are mapped", words)
    made.append(_text(10, 14, f"mappings by lifetime, up to {short(most)}"))
    every = max(1, round(60 / wide))
    for at in range(last - first + 1):
        ns, x = 1 << (first + at - 1), 10 + wide * at
        high = (BARS - 50) * counts.get(ns, 0) / most
        made.append(
            f'<g class="any"><rect class="area" x="{x:.1f}" y="{BARS - 24 - high:.1f}" width="{wide - 2:.1f}" '
            f'height="{high:.1f}"><title>{counts.get(ns, 0):,} from {duration(ns)} on</title></rect></g>'
        )
        if at % every == 0:
            made.append(_text(x, BARS - 6, duration(ns)))
    made.append(f'<line x1="10" y1="{BARS - 24}" x2="{WIDTH - 10}" y2="{BARS - 24}" class="axis"/>')
    return "\n".join([*made, "</svg>"])
