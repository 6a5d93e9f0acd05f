# SPDX-License-Identifier: GPL-2.0-only
"""Pictures of predictions, as SVG: throughputs of all policies, or along a parameter that changes.

Colours show levels. A thin line is the interval of a value; a hollow marker is a value that is not determined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from xsmmu import predicted
from xsmmu.predicted import Result

WIDTH: Final = 840
LEFT: Final = 150
RIGHT: Final = 690
TOP: Final = 30
ROW: Final = 24
HEIGHT: Final = 420
LABEL: Final = 14
"""Height of a label."""


def most(results: Sequence[Result]) -> float:
    """The end of the axis of throughput: a round number above all intervals."""
    highest = max(result["throughput_gbps"]["high"] for result in results)
    step = 1.0
    while step * 10 < highest:
        step *= 10
    return next(step * each for each in (1, 2, 5, 10) if step * each >= highest)


def said(result: Result) -> str:
    """A value in words."""
    found = result["throughput_gbps"]
    place = "".join(f" at {name} {value}" for name, value in result["at"].items())
    value = f"{found['value']:.1f} Gb/s, {predicted.spread(found)}"
    return f"{result['policy']}{place}: {value}{'' if found['determined'] else ', ' + predicted.NOT_DETERMINED}"


def _text(x: float, y: float, words: str, place: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{place}"{more}>{escape(words)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="{kind}"/>'


def _marker(x: float, y: float, result: Result) -> str:
    kind = predicted.level(result["policy"])
    hollow = "" if result["throughput_gbps"]["determined"] else " kernel"
    inside = f'<title>{escape(said(result))}</title><circle r="5"/>'
    return f'<g transform="translate({x:.1f} {y:.1f})" class="{kind}{hollow}">{inside}</g>'


def _begin(height: float, number: int, title: str, results: Sequence[Result]) -> list[str]:
    words = "; ".join(map(said, results))
    return [
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="title-{number} words-{number}">',
        f'<title id="title-{number}">{escape(title)}</title>',
        f'<desc id="words-{number}">{escape(words)}</desc>',
    ]


def rows(results: Sequence[Result], number: int) -> str:
    """A row for each policy; `number` makes ids unique in the page."""
    end, bottom = most(results), TOP + ROW * len(results)
    made = _begin(bottom + 40, number, "Throughput of each policy", results)
    for part in range(5):
        x = LEFT + (RIGHT - LEFT) * part / 4
        made += [_line(x, TOP, x, bottom, "grid"), _text(x, bottom + 18, f"{end * part / 4:g}", "middle")]
    made.append(_text((LEFT + RIGHT) / 2, bottom + 36, "Gb/s", "middle"))
    for at, result in enumerate(results):
        found, y = result["throughput_gbps"], TOP + ROW * (at + 0.5)
        x, low, high = (LEFT + (RIGHT - LEFT) * found[name] / end for name in ("value", "low", "high"))
        made += [_text(LEFT - 10, y + 4, result["policy"], "end"), _line(low, y, high, y, "axis")]
        made += [_marker(x, y, result), _text(RIGHT + 12, y + 4, predicted.limit(result))]
    return "\n".join([*made, "</svg>"])


def lines(parameter: str, unit: str, results: Sequence[Result], number: int) -> str:
    """A line for each policy along a parameter, with the parameter's values at equal distances."""
    places = list(dict.fromkeys(result["at"][parameter] for result in results))
    end, bottom, right = most(results), HEIGHT - 60, RIGHT
    made = _begin(HEIGHT, number, f"Throughput along {parameter}", results)
    across = {value: 70 + (right - 70) * (at + 0.5) / len(places) for at, value in enumerate(places)}
    for part in range(5):
        y = bottom - (bottom - TOP) * part / 4
        made += [_line(70, y, right, y, "grid"), _text(62, y + 4, f"{end * part / 4:g}", "end")]
    made.append(_text(70, TOP - 10, "Gb/s"))
    step = -(-len(places) // 12)
    for at, value in enumerate(places):
        if at % step == 0:
            made.append(_text(across[value], bottom + 18, str(value), "middle"))
    made.append(_text((70 + right) / 2, bottom + 40, f"{parameter} ({unit})" if unit else parameter, "middle"))
    ends = []
    for policy, mine in predicted.by_policy(results).items():
        points = [(across[each["at"][parameter]], _up(each, end, bottom)) for each in mine]
        made += _series(policy, mine, points, end, bottom)
        ends.append((points[-1][1], policy))
    return "\n".join([*made, *_labels(ends, right), "</svg>"])


def _up(result: Result, end: float, bottom: float, name: str = "value") -> float:
    return bottom - (bottom - TOP) * float(result["throughput_gbps"][name]) / end


def _series(policy: str, mine: Sequence[Result], points: Any, end: float, bottom: float) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    made = [f'<g class="{predicted.level(policy)}"><polyline points="{path}" fill="none"/></g>']
    for (x, y), result in zip(points, mine, strict=True):
        low, high = (_up(result, end, bottom, name) for name in ("low", "high"))
        made += [_line(x, low, x, high, "axis"), _marker(x, y, result)]
    return made


def _labels(ends: list[tuple[float, str]], right: float) -> list[str]:
    """Names at the ends of lines, apart from each other."""
    made, last = [], -LABEL * 1.0
    for y, policy in sorted(ends):
        last = max(y + 4, last + LABEL)
        made.append(_text(right + 8, last, policy, "start", ' class="name"'))
    return made


def groups(parameter: str, results: Sequence[Result]) -> dict[tuple[Any, ...], list[Result]]:
    """The results for each combination of all other parameters."""
    found: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        others: Mapping[str, Any] = result["at"]
        found.setdefault(tuple((n, v) for n, v in others.items() if n != parameter), []).append(result)
    return found
