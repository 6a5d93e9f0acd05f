# SPDX-License-Identifier: GPL-2.0-only
"""The pictures of a summary: cost against exposure, and the parts of both.

A `Plot` is drawn twice: as a PNG on white, and as an SVG whose colours are CSS variables, so that one inline picture
serves a light page, a dark page and paper. Exposure and invalidations per page span decades and reach zero, where a
logarithmic axis has no place: such an axis shows zero left of a gap, and an exposure of "always" right of a gap.

Marker and colour show the level, hollow markers the kernel's own modes, and a dot in the marker a batch-aware driver.
Every picture has its figures as alternative text. A PNG names its subject, kernel and commit above the picture, because
a PNG is viewed alone.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path as MplPath

from xsmmu import colours
from xsmmu.native import HARDWARE_WAIT_NS
from xsmmu_lab.report import nanoseconds
from xsmmu_lab.report.nanoseconds import in_us
from xsmmu_lab.report.view import ALWAYS, LEVELS, Run, View, Workload, show, show_inv

INK: Final = colours.LIGHT["--ink"]
MUTED: Final = colours.LIGHT["--muted"]
GRID: Final = colours.LIGHT["--grid"]
PAPER: Final = colours.LIGHT["--paper"]
MAP_BAR: Final = colours.LIGHT["--map"]
UNMAP_BAR: Final = colours.LIGHT["--unmap"]
LEVEL_STYLE: Final[dict[str, tuple[str, str]]] = {
    level: (colours.LIGHT[f"--{level}"], marker)
    for level, marker in {"strict": "s", "held": "o", "bounded": "^", "lazy": "D", "none": "X"}.items()
}
"""Colour and marker of a level."""

CSS_NAMES: Final[dict[str, str]] = {colour: variable for variable, colour in colours.LIGHT.items()}
"""The CSS variable that replaces each colour in an SVG."""


def styles() -> tuple[str, str]:
    """The colours as CSS, on a light and on a dark page."""
    return colours.css(colours.LIGHT), colours.css(colours.DARK)


_RC: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "xsmmu",
    "text.parse_math": False,
}
_DPI: Final = 150
_WAIT: Final = in_us(HARDWARE_WAIT_NS, "µs")
"""The wait of costs in ns."""


@dataclass(frozen=True)
class Plot:
    """A picture with its name, caption and alternative text; `draw` puts the heading above, if not empty."""

    name: str
    title: str
    caption: str
    alt: str
    heading: str
    draw: Callable[[str], Figure]

    def png(self) -> bytes:
        """The content of a PNG file, on white."""
        buffer = io.BytesIO()
        with mpl.rc_context(_RC):
            self.draw(f"{self.title}. {self.heading}").savefig(
                buffer, format="png", dpi=_DPI, metadata={"Title": self.title}
            )
        return buffer.getvalue()

    def svg(self) -> str:
        """The picture as one <svg> element, for a page that defines the variables of CSS_NAMES."""
        buffer = io.StringIO()
        with mpl.rc_context(_RC):
            self.draw("").savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        return _inline(buffer.getvalue(), self.name)

    def svg_file(self) -> str:
        """The content of an SVG file for light and dark pages."""
        buffer = io.StringIO()
        with mpl.rc_context(_RC):
            self.draw(self.heading).savefig(buffer, format="svg", metadata={"Date": None})
        light, dark = styles()
        style = f"<style>:root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}</style>"
        words = f"<title>{escape(self.title)}</title><desc>{escape(self.alt)}</desc>"
        svg = _inline(buffer.getvalue(), self.name).replace(' aria-hidden="true" focusable="false"', ' role="img"', 1)
        svg = re.sub(r'style="([^"]*)"', lambda found: f"{_attributes(found[1])}{found[0]}", svg)
        return re.sub(r"(<svg[^>]*>)", rf"\g<1>{style}{words}", svg, count=1)


def _attributes(style: str) -> str:
    """The light colours of a style as attributes, for viewers without CSS variables (librsvg)."""
    names = {variable: colour for colour, variable in CSS_NAMES.items()}
    found = re.findall(r"(fill|stroke): var\((--\w+)\)", style)
    return "".join(f'{word}="{names[variable]}" ' for word, variable in found)


def _inline(svg: str, name: str) -> str:
    """An SVG document as an element: unique ids, colours by variable, the page's font, no fixed size."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = _smaller(svg)
    for colour, variable in CSS_NAMES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)


def _hundredths(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _smaller(svg: str) -> str:
    """The same picture with coordinates in hundredths of a point, without unused ids, empty groups and clips."""
    used = set(re.findall(r"#([\w-]+)", svg))
    svg = re.sub(r'\sid="([\w-]+)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r'\sclip-path="[^"]*"', "", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{3,}", _hundredths, tag[0]), svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    svg = re.sub(r"(?<=[\d.])\s+(?=[LMQCz])|(?<=[LMQCz])\s+(?=[-\d])", "", svg)
    while (smaller := re.sub(r"<g>\s*(<(?:use|path|text)[^>]*(?:/>|>[^<]*</text>))\s*</g>", r"\1", svg)) != svg:
        svg = smaller
    return re.sub(r"<defs>\s*</defs>\s*|<g>\s*</g>\s*", "", svg)


# -- axes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Decades:
    """A logarithmic axis with a place for zero on the left, and for "always" on the right.

    Places are decimal logarithms; `low` is a whole decade, `high` leaves room for a marker.
    """

    low: int
    high: float
    last_decade: int

    @classmethod
    def around(cls, values: Iterable[float]) -> _Decades:
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        low = math.floor(min(logs))
        high = max(max(logs) + 0.25, low + 1.0)
        return cls(low, high, math.floor(high))

    @property
    def zero(self) -> float:
        return self.low - max(0.8, 0.22 * (self.high - self.low))

    @property
    def always(self) -> float:
        return self.high + 0.7

    def place(self, value: float) -> float:
        return math.log10(value) if value > 0 else self.zero

    def dress(self, ax: Axes, name: Callable[[float], str], most: int, always: bool = False) -> None:
        """Ticks, gaps and limits of the horizontal axis, with at most `most` decades named."""
        decades = range(self.low, self.last_decade + 1)
        step = math.ceil(len(decades) / most)
        named = [n for n in decades if (self.last_decade - n) % step == 0]
        ticks: dict[float, str] = {self.zero: "0", **{float(n): name(10.0**n) for n in named}}
        if always:
            ticks[self.always] = ALWAYS
        ax.set_xticks(list(ticks), list(ticks.values()))
        minor = [n + math.log10(k) for n in decades for k in range(2, 10)]
        ax.set_xticks([n for n in [*minor, *decades] if n not in named and n <= self.high], minor=True)
        ax.set_xlim(self.zero - 0.45, self.always + 0.45 if always else self.high)
        for n in named:
            ax.axvline(n, color=GRID, linewidth=0.7, zorder=0)
        _break(ax, (self.zero + self.low) / 2)
        if always:
            _break(ax, (self.always + self.high) / 2)


def _break(ax: Axes, x: float) -> None:
    """Two strokes through the horizontal axis, which mark an interrupted scale."""
    place = ax.get_xaxis_transform()
    ax.plot([x], [0], transform=place, marker="s", ms=4.5, color=PAPER, clip_on=False, zorder=5)
    stroke = [(-0.5, -1.0), (0.5, 1.0)]
    for shift in (-2.2, 2.2):
        marker = MplPath([(0.3 * shift + dx, dy) for dx, dy in stroke])
        ax.plot(
            [x],
            [0],
            transform=place,
            marker=marker,
            ms=9,
            color=MUTED,
            markeredgewidth=0.9,
            clip_on=False,
            zorder=6,
        )


def _time(us: float) -> str:
    for unit, scale in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if us >= scale:
            return f"{us / scale:g} {unit}"
    return f"{us * 1e3:g} ns"


def _dot(ax: Axes, x: float, y: float, run: Run, size: float = 6) -> None:
    """Mark a run: hollow for a kernel mode, with a dot for a batch-aware driver."""
    colour, marker = LEVEL_STYLE[run.level]
    ax.plot(
        [x],
        [y],
        marker,
        markersize=size,
        markerfacecolor=colour if run.ours else PAPER,
        markeredgecolor=colour,
        markeredgewidth=1.4,
        clip_on=False,
        zorder=4,
    )
    if run.aware:
        ax.plot([x], [y], "o", markersize=size * 0.4, color=PAPER, markeredgewidth=0, clip_on=False, zorder=5)


def _legend(levels: Iterable[str], runs: Iterable[Run]) -> list[Line2D]:
    def key(colour: str, marker: str, face: str, label: str) -> Line2D:
        return Line2D(
            [], [], linestyle="", marker=marker, color=colour, markerfacecolor=face, markersize=6, label=label
        )

    there, runs = set(levels), list(runs)
    keys = [key(*LEVEL_STYLE[level], LEVEL_STYLE[level][0], level) for level in LEVELS if level in there]
    if any(not run.ours for run in runs):
        keys.append(key(INK, "o", "none", "hollow: the kernel's own"))
    if any(run.aware for run in runs):
        keys.append(key(INK, "o", PAPER, "dot: batch-aware driver"))
        keys[-1].set(markeredgewidth=2.2, markersize=5.5)
    return keys


# -- cost against exposure -------------------------------------------------------------------------


_FRONTIERS: Final[tuple[tuple[bool, Literal["-", "--"]], ...]] = ((False, "-"), (True, "--"))
"""The lines of the frontiers without and with batch-aware drivers."""


@dataclass(frozen=True)
class _Point:
    run: Run
    cost: float
    exposure_us: float | None
    """None means always exposed."""
    seen: bool
    open_ended: bool

    def words(self) -> str:
        time = ALWAYS if self.exposure_us is None else f"{show(self.exposure_us)} µs"
        counted = f" ({show(self.run.cost)} instructions)" if self.cost != self.run.cost else ""
        return f"{self.run.name} ({self.run.level}) costs {show(self.cost)}{counted}, exposure {time}"


def _points(view: View, workload: Workload) -> list[_Point]:
    found = []
    for run in workload.runs:
        cost = run.ns_at(HARDWARE_WAIT_NS) if view.waits else run.cost
        if cost is None or run.copies:
            continue
        attack = view.seen(run.row)
        if run.level == "none":
            found.append(_Point(run, cost, None, True, False))
        elif attack and attack.max_us is not None:
            found.append(_Point(run, cost, attack.max_us, True, attack.open_ended))
        elif run.exposure.max_us is not None:
            found.append(_Point(run, cost, run.exposure.max_us, False, False))
    return found


def _cost_against_exposure(view: View) -> Plot | None:
    workload = view.main_micro
    points = _points(view, workload) if workload else []
    if not workload or not any(point.exposure_us is not None for point in points):
        return None
    unit = f"ns per page at a wait of {_WAIT}" if view.waits else f"{view.cost_word or ''} per page"

    def draw(heading: str) -> Figure:
        fig, ax = _single(8.4, 5.4)
        scale = _Decades.around(p.exposure_us for p in points if p.exposure_us is not None)
        scale.dress(ax, _time, 6, always=any(p.exposure_us is None for p in points))
        _cost_axis(ax, [p.cost for p in points])
        ax.set_xlabel("longest exposure after an unmap (further left is safer)")
        ax.set_ylabel(f"map + unmap, {unit} (lower is cheaper)")
        places = [scale.always if p.exposure_us is None else scale.place(p.exposure_us) for p in points]
        keys = _legend((p.run.level for p in points), (p.run for p in points))
        stairs: list[tuple[float, float]] = []
        for aware, style in _FRONTIERS:
            mine = [(x, p.cost) for p, x in zip(points, places, strict=True) if p.run.aware == aware or not p.run.ours]
            line = _frontier(mine)
            if any(p.run.aware == aware and p.run.ours for p in points):
                stairs += line
                ax.plot(*zip(*line, strict=True), linestyle=style, color=MUTED, linewidth=1.0, zorder=2)
                name = "frontier, batch-aware" if aware else "frontier"
                keys.append(Line2D([], [], linestyle=style, color=MUTED, linewidth=1.0, label=name))
        _key(fig, keys, 5, heading)
        places = _apart(fig, ax, [(x, p.cost) for p, x in zip(points, places, strict=True)])
        for point, x in zip(points, places, strict=True):
            _dot(ax, x, point.cost, point.run, 8)
        _label(fig, ax, [(x, p.cost, _point_label(p)) for p, x in zip(points, places, strict=True)], stairs)
        return fig

    unseen = [p.run.name for p in points if not p.seen]
    early = (
        ", which begins at the unmap, not at a batch-aware driver's flush" if any(p.run.aware for p in points) else ""
    )
    return Plot(
        "cost-exposure",
        "Cost against exposure",
        f"Cost is map + unmap of {workload.name}{_waiting(view)}. Exposure is the longest time after an unmap at "
        "which a device that kept trying could still write to the page. Cheap and safe is the lower left corner; what "
        "is on a frontier has nothing below and left of it. Points that would cover each other stand side by side. "
        "Policies that copy small buffers are not here: these are whole pages, which are mapped."
        + (f" Marked *, not attacked: the module's own histogram{early} ({', '.join(unseen)})." if unseen else ""),
        f"Scatter plot of {unit} against longest exposure. " + "; ".join(p.words() for p in points) + ".",
        _heading(view),
        draw,
    )


def _waiting(view: View) -> str:
    """How a cost with a wait was estimated."""
    if not view.waits:
        return ""
    rate = nanoseconds.rate().words
    return f", with {HARDWARE_WAIT_NS:,} ns for each invalidation, and its instructions in ns at {rate}"


def _point_label(point: _Point) -> str:
    return point.run.name + ("" if point.seen else "*") + (" (or longer)" if point.open_ended else "")


def _cost_axis(ax: Axes, costs: Sequence[float]) -> None:
    """A logarithmic vertical axis for costs; a cost of zero stands at the foot."""
    least, most = min((c for c in costs if c > 0), default=1.0), max(*costs, 1.0)
    ax.set_yscale("log")
    ax.set_ylim(least / 1.5, most * 1.4)
    ticks = [k * 10.0**n for n in range(-3, 10) for k in (1, 2, 5)]
    ax.set_yticks([tick for tick in ticks if least / 1.5 <= tick <= most * 1.4])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    ax.minorticks_off()
    ax.yaxis.grid(True)


def _frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The staircase of the least cost at each exposure or below."""
    stairs: list[tuple[float, float]] = []
    for x, cost in sorted(points):
        if not stairs:
            stairs.append((x, cost))
        elif cost < stairs[-1][1]:
            stairs += [(x, stairs[-1][1]), (x, cost)]
    return stairs


def _apart(fig: Figure, ax: Axes, points: Sequence[tuple[float, float]]) -> list[float]:
    """Horizontal places at which no marker covers another marker."""
    fig.set_dpi(_DPI)
    canvas: Any = FigureCanvasAgg(fig)
    canvas.draw()
    unit, step = _DPI / 72, 10.0
    found: list[tuple[float, float]] = []
    for x, y in points:
        px, py = (float(value) for value in ax.transData.transform((x, y)))
        shifts = [side * n * step * unit for n in range(len(points)) for side in (1, -1)]
        found.append(
            next(
                (px + shift, py)
                for shift in shifts
                if all(math.hypot(px + shift - ox, py - oy) >= 0.9 * step * unit for ox, oy in found)
            )
        )
    return [float(ax.transData.inverted().transform(place)[0]) for place in found]


class _Box(NamedTuple):
    """A rectangle in pixels."""

    x0: float
    y0: float
    x1: float
    y1: float

    def overlapped(self, others: Sequence[_Box]) -> int:
        """The number of other boxes that overlap this box."""
        x0, y0, x1, y1 = self
        return sum(x0 <= other[2] and other[0] <= x1 and y0 <= other[3] and other[1] <= y1 for other in others)


def _label(
    fig: Figure, ax: Axes, labels: Sequence[tuple[float, float, str]], stairs: Sequence[tuple[float, float]]
) -> None:
    """Label points where there is room, off the stairs: beside the point, or farther away with a thin line."""
    canvas: Any = FigureCanvasAgg(fig)
    canvas.draw()
    renderer = canvas.get_renderer()
    unit, frame = _DPI / 72, ax.get_window_extent(renderer)
    centres = [tuple(map(float, ax.transData.transform((x, y)))) for x, y, _ in labels]
    taken = [_Box(x - 5 * unit, y - 5 * unit, x + 5 * unit, y + 5 * unit) for x, y in centres]
    lines: list[_Box] = []
    corners = [tuple(map(float, ax.transData.transform(corner))) for corner in stairs]
    for (x0, y0), (x1, y1) in pairwise(corners):
        if x0 == x1 or y0 == y1:
            lines.append(_Box(min(x0, x1), min(y0, y1) - unit, max(x0, x1) + unit, max(y0, y1) + unit))
    for at in sorted(range(len(labels)), key=lambda n: -centres[n][1]):
        (px, py), text = centres[at], labels[at][2]
        note = ax.annotate(text, (px, py), xycoords="figure pixels", fontsize=8)
        width = note.get_window_extent(renderer).width
        note.remove()
        best: tuple[float, float, float, str, _Box] | None = None
        for dx, dy, ha in _candidates():
            left = px + dx * unit - (width if ha == "right" else width / 2 if ha == "center" else 0)
            box = _Box(left, py + (dy - 5) * unit, left + width, py + (dy + 5) * unit)
            hits, struck = box.overlapped(taken), box.overlapped(lines)
            outside = box.x0 < frame.x0 or box.x1 > fig.bbox.x1 - 4 * unit or box.y0 < frame.y0
            steps = [n / 8 for n in range(2, 8)] if math.hypot(dx, dy) > _NEAR else []
            way = [_Box(px + dx * unit * n, py + dy * unit * n, px + dx * unit * n, py + dy * unit * n) for n in steps]
            crossed = sum(place.overlapped(taken) for place in way)
            score = hits * 100 + outside * 500 + struck * 5 + crossed * 5 + math.hypot(dx, dy) / 10
            if best is None or score < best[0]:
                best = (score, dx, dy, ha, box)
        if best is None:
            continue
        _, dx, dy, ha, box = best
        taken.append(box)
        side = {"left": 0.0, "center": 0.5, "right": 1.0}[ha]
        arrow = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 5, "relpos": (side, 0.5)}
        ax.annotate(
            text,
            labels[at][:2],
            (dx, dy),
            textcoords="offset points",
            ha=ha,
            va="center",
            fontsize=8,
            arrowprops=arrow if math.hypot(dx, dy) > _NEAR else None,
        )


_NEAR: Final = 10.0
"""Distance in points up to which a label needs no line to its marker."""


def _candidates() -> list[tuple[float, float, str]]:
    """Places for a label, as offsets in points from its marker."""
    heights = [float(11 * n * side) for n in range(12) for side in (1, -1)]
    beside = [(dx, dy, "left" if dx > 0 else "right") for dy in heights for dx in (9.0, -9.0, 20.0, -20.0, 34.0, -34.0)]
    return [*beside, (0.0, 12.0, "center"), (0.0, -12.0, "center")]


# -- rows of policies ------------------------------------------------------------------------------


def _single(width: float, height: float) -> tuple[Figure, Axes]:
    fig = Figure(figsize=(width, height), layout="constrained")
    return fig, fig.add_subplot()


def _key(fig: Figure, keys: Sequence[Line2D], columns: int, heading: str) -> None:
    """The legend above a picture, and the heading above the legend, if not empty."""
    legend = fig.legend(
        handles=list(keys),
        loc="outside upper left",
        ncols=columns,
        handletextpad=0.3,
        columnspacing=1.2,
        title=heading or None,
        alignment="left",
        title_fontproperties={"size": 9, "weight": "bold"},
    )
    legend.get_title().set_color(INK)


def _heading(view: View) -> str:
    """Kernel and commit of the figures."""
    parts = (f"Linux {view.kernel}" if view.kernel else "", f"commit {view.commit[:12]}" if view.commit else "")
    return ", ".join(part for part in (*parts, view.accel) if part)


def _row_places(rows: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Heights of rows from the top down, with room for a level's name above the level's first row."""
    places: dict[tuple[str, str], float] = {}
    y = 0.0
    for number, row in enumerate(rows):
        if number and rows[number - 1][1] != row[1]:
            y -= 0.8
        places[row] = y
        y -= 1.0
    return places


def _panels(
    rows: Sequence[tuple[str, str]], workloads: Sequence[Workload], columns: int, width: float
) -> tuple[Figure, list[Axes], dict[tuple[str, str], float]]:
    """A grid of panels, one panel per workload; the panels share the policy rows on their left."""
    places = _row_places(rows)
    lowest = min(places.values())
    lines = math.ceil(len(workloads) / columns)
    columns = math.ceil(len(workloads) / lines)
    fig = Figure(
        figsize=(max(4.6, 1.6 + width * columns), lines * (1.0 + 0.2 * (2 - lowest)) + 0.4),
        layout="constrained",
    )
    axes: list[Axes] = []
    for number, workload in enumerate(workloads):
        ax = fig.add_subplot(lines, columns, number + 1)
        ax.set_ylim(lowest - 0.7, 1.2)
        ax.set_title(workload.name)
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.set_yticks(list(places.values()), [])
        if number % columns == 0:
            ax.set_yticks(list(places.values()), [policy for policy, _ in rows])
            _name_levels(ax, places)
        axes.append(ax)
    return fig, axes, places


def _name_levels(ax: Axes, places: dict[tuple[str, str], float]) -> None:
    """Write each level's name in small type above the level's first policy."""
    named: set[str] = set()
    for (_, level), y in places.items():
        if level not in named:
            named.add(level)
            ax.annotate(
                level,
                (0, y + 0.82),
                (-7, 0),
                xycoords=ax.get_yaxis_transform(),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7.5,
                fontstyle="italic",
                color=MUTED,
                annotation_clip=False,
            )


def _map_and_unmap(view: View) -> Plot | None:
    workloads = [w for w in view.workloads if any(run.page_sum is not None for run in w.runs)]
    workloads.sort(key=lambda w: w.ring or 0)
    if not workloads:
        return None
    rows = _rows_of(view, workloads)
    unit = view.cost_word or ""

    def draw(heading: str) -> Figure:
        fig, axes, places = _panels(rows, workloads, 3, 2.6)
        longest = max(run.page_sum or 0 for w in workloads for run in w.runs) or 1
        for ax, workload in zip(axes, workloads, strict=True):
            ax.set_xlim(0, longest * 1.3)
            ax.xaxis.grid(True)
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            ax.locator_params(axis="x", nbins=4)
            for run in workload.runs:
                if run.map_cost is None or run.unmap_cost is None:
                    continue
                y, total = places[run.row], run.map_cost + run.unmap_cost
                ax.barh(y, run.map_cost, 0.72, color=MAP_BAR)
                ax.barh(y, run.unmap_cost, 0.72, left=run.map_cost, color=UNMAP_BAR)
                ax.text(total + longest * 0.02, y, show(total), va="center", fontsize=8)
        handles = [
            Line2D([], [], linestyle="", marker="s", markersize=8, color=MAP_BAR, label="map (left)"),
            Line2D([], [], linestyle="", marker="s", markersize=8, color=UNMAP_BAR, label="unmap (right)"),
        ]
        _key(fig, handles, 2, heading)
        fig.supxlabel(f"{unit} per page", fontsize=9)
        return fig

    return Plot(
        "map-unmap",
        "What a page costs to map and to unmap",
        "The unmap includes its share of the flushes. Policies stand by level, strictest first.",
        "Bars of map plus unmap cost per page. "
        + " ".join(
            f"{w.name}: "
            + "; ".join(f"{r.name} {show(r.map_cost)} + {show(r.unmap_cost)}" for r in w.runs if r.page_sum is not None)
            + "."
            for w in workloads
        ),
        _heading(view),
        draw,
    )


def _inv_per_page(view: View) -> Plot | None:
    workloads = [
        w
        for w in view.workloads
        if (w.kind != "micro" or w is view.main_micro)
        and w not in view.attacks
        and any(r.inv_per_page is not None for r in w.runs)
    ]
    if not workloads:
        return None
    rows = _rows_of(view, workloads)
    values = [r.inv_per_page for w in workloads for r in w.runs if r.inv_per_page is not None]

    def draw(heading: str) -> Figure:
        fig, axes, places = _panels(rows, workloads, 5, 1.9)
        scale = _Decades.around(values)
        for ax, workload in zip(axes, workloads, strict=True):
            scale.dress(ax, lambda value: f"{value:g}", 3)
            for run in workload.runs:
                if run.inv_per_page is None:
                    continue
                x, y = scale.place(run.inv_per_page), places[run.row]
                _dot(ax, x, y, run)
                right = x < (scale.low + scale.high) / 2
                ax.annotate(
                    show_inv(run.inv_per_page),
                    (x, y),
                    (7 if right else -7, 0),
                    textcoords="offset points",
                    ha="left" if right else "right",
                    va="center",
                    fontsize=7.5,
                )
        _key(fig, _legend((level for _, level in rows), (run for w in workloads for run in w.runs)), 8, heading)
        fig.supxlabel("invalidation commands per unmapped page (log scale)", fontsize=9)
        return fig

    return Plot(
        "invalidations",
        "Invalidations per page",
        "Commands that the IOMMU had to execute, of any kind, for each page unmapped. A command's "
        "own price differs by kind and by hardware, so fewer is not always cheaper. "
        "Where nothing stands there is no figure.",
        "Dot plot of invalidation commands per unmapped page. "
        + _in_words(workloads, lambda _, run: run.inv_per_page, show_inv),
        _heading(view),
        draw,
    )


def _relative_cost(view: View) -> Plot | None:
    workloads = [
        w for w in view.workloads if w.kind != "micro" and any(view.relative(w, r) is not None for r in w.runs)
    ]
    if not workloads:
        return None
    rows = _rows_of(view, workloads)
    at = f" at a wait of {_WAIT}" if view.waits else ""

    def draw(heading: str) -> Figure:
        fig, axes, places = _panels(rows, workloads, 5, 1.9)
        for ax, workload in zip(axes, workloads, strict=True):
            ratios = [r for run in workload.runs if (r := view.relative(workload, run)) is not None]
            low, high = min(1.0, *ratios), max(1.02, *ratios)
            ax.set_xlim(low - (high - low) * 0.08, high + (high - low) * 0.4)
            ax.locator_params(axis="x", nbins=3)
            ax.set_xticks(sorted({1.0, *(t for t in ax.get_xticks() if low <= t <= high and t - 1 > (high - low) / 5)}))
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
            ax.axvline(1.0, color=MUTED, linewidth=0.9, zorder=1)
            for run in workload.runs:
                ratio = view.relative(workload, run)
                if ratio is None:
                    continue
                y = places[run.row]
                ax.plot([1.0, ratio], [y, y], color=MUTED, linewidth=0.9, zorder=2)
                if run.relative_range and not view.waits:
                    ax.plot(run.relative_range, [y, y], color=MUTED, linewidth=3.5, alpha=0.5, zorder=2)
                _dot(ax, ratio, y, run)
                ax.annotate(
                    f"{ratio:.3f}" if high < 2 else f"{ratio:.2f}",
                    (max(ratio, 1.0), y),
                    (7, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=7.5,
                )
        _key(fig, _legend((level for _, level in rows), (run for w in workloads for run in w.runs)), 8, heading)
        fig.supxlabel(f"cost of the same work{at}, relative to passthrough", fontsize=9)
        return fig

    return Plot(
        "relative-cost",
        "What a workload costs, relative to passthrough",
        "The whole path of the workload, driver and network or block stack included: 1x is the cost without an IOMMU. "
        "Each panel has its own scale.",
        f"Dot plot of cost{at} relative to passthrough. "
        + _in_words(workloads, lambda w, run: view.relative(w, run), lambda v: f"{v:.3f}"),
        _heading(view),
        draw,
    )


def _rows_of(view: View, workloads: Sequence[Workload]) -> list[tuple[str, str]]:
    """The rows of these workloads, in the order of all rows."""
    there = {run.row for w in workloads for run in w.runs}
    return [row for row in view.rows() if row in there]


def _in_words(
    workloads: Iterable[Workload],
    value: Callable[[Workload, Run], float | None],
    shown: Callable[[float], str],
) -> str:
    parts = []
    for workload in workloads:
        figures = [(run.name, figure) for run in workload.runs if (figure := value(workload, run)) is not None]
        parts.append(f"{workload.name}: " + "; ".join(f"{name} {shown(figure)}" for name, figure in figures))
    return ". ".join(parts) + "."


def plots(view: View) -> list[Plot]:
    """The pictures for which the summary has figures, the most important first."""
    makers = (_cost_against_exposure, _map_and_unmap, _relative_cost, _inv_per_page)
    return [plot for make in makers if (plot := make(view))]
