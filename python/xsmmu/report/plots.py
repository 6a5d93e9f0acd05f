# SPDX-License-Identifier: GPL-2.0-only
"""The pictures of a summary: cost against exposure, and what each is made of.

A `Plot` is drawn twice: as a PNG on white, and as an SVG whose colours are CSS variables, so that
one inline picture serves a light page, a dark page and paper. Exposure and invalidations per page
span decades and reach zero, which a logarithm cannot show: such an axis has a place of its own for
zero, left of a gap, and exposure one for "always", right of a gap.

A level is told by marker and colour, the kernel's own modes by hollow markers, and every picture
has its figures in words as alternative text.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path as MplPath
from matplotlib.transforms import Bbox

from xsmmu.report.view import ALWAYS, LEVELS, PASSTHROUGH, Run, View, Workload, show, show_inv

INK: Final = "#1b1f25"
MUTED: Final = "#5a6370"
GRID: Final = "#dfe3e8"
PAPER: Final = "#fefefe"
MAP_BAR: Final = "#9db4cc"
UNMAP_BAR: Final = "#3c5a7d"
LEVEL_STYLE: Final[dict[str, tuple[str, str]]] = {
    "strict": ("#0b62a4", "s"),
    "held": ("#00785a", "o"),
    "bounded": ("#a86400", "^"),
    "lazy": ("#c43e00", "D"),
    "none": ("#6a6a6a", "X"),
}
"""Colour and marker of a level."""

CSS_NAMES: Final[dict[str, str]] = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--paper",
    MAP_BAR: "--map",
    UNMAP_BAR: "--unmap",
    **{colour: f"--{level}" for level, (colour, _) in LEVEL_STYLE.items()},
}
"""The CSS variable that takes each colour's place in an SVG."""

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
    "svg.fonttype": "path",
    "svg.hashsalt": "xsmmu",
    "text.parse_math": False,
}
_DPI: Final = 150


@dataclass(frozen=True)
class Plot:
    """A picture with its name, its caption and the same in words."""

    name: str
    title: str
    caption: str
    alt: str
    draw: Callable[[], Figure]

    def png(self) -> bytes:
        """The picture on white, as a PNG file's content."""
        buffer = io.BytesIO()
        with mpl.rc_context(_RC):
            self.draw().savefig(buffer, format="png", dpi=_DPI, metadata={"Title": self.title})
        return buffer.getvalue()

    def svg(self) -> str:
        """The picture as one <svg> element for a page that defines the variables of CSS_NAMES."""
        buffer = io.StringIO()
        with mpl.rc_context(_RC):
            self.draw().savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        return _inline(buffer.getvalue(), self.name)


def _inline(svg: str, name: str) -> str:
    """An SVG document as an element: ids of its own, colours by variable, no fixed size."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for colour, variable in CSS_NAMES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)


# -- axes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Decades:
    """A logarithmic axis with a place for zero on its left, and for "always" on its right.

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
    """Two strokes through the horizontal axis: the scale is interrupted here."""
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


def _dot(ax: Axes, x: float, y: float, run: Run, size: float = 6, around: bool = False) -> None:
    """Mark a run. With `around`, a hollow marker shows around a full one that has the same place."""
    colour, marker = LEVEL_STYLE[run.level]
    ring = around and not run.ours
    ax.plot(
        [x],
        [y],
        marker,
        markersize=size * 1.25 if ring else size,
        markerfacecolor=colour if run.ours else "none" if ring else PAPER,
        markeredgecolor=PAPER if run.ours and around else colour,
        markeredgewidth=0.6 if run.ours and around else 1.4,
        clip_on=False,
        zorder=5 if ring else 4,
    )


def _legend(levels: Iterable[str], baselines: bool) -> list[Line2D]:
    def key(colour: str, marker: str, face: str, label: str) -> Line2D:
        return Line2D(
            [], [], linestyle="", marker=marker, color=colour, markerfacecolor=face, markersize=6, label=label
        )

    there = set(levels)
    keys = [key(*LEVEL_STYLE[level], LEVEL_STYLE[level][0], level) for level in LEVELS if level in there]
    if baselines:
        keys.append(key(INK, "o", "none", "hollow: the kernel's own"))
    return keys


# -- cost against exposure -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    run: Run
    cost: float
    exposure_us: float | None
    """None: always."""
    seen: bool
    open_ended: bool

    def words(self) -> str:
        time = ALWAYS if self.exposure_us is None else f"{show(self.exposure_us)} µs"
        return f"{self.run.name} ({self.run.level}) costs {show(self.cost)}, exposure {time}"


def _points(view: View, workload: Workload) -> list[_Point]:
    found = []
    for run in workload.runs:
        if run.cost is None:
            continue
        attack = view.seen(run.row)
        if run.level == "none":
            found.append(_Point(run, run.cost, None, True, False))
        elif attack and attack.max_us is not None:
            found.append(_Point(run, run.cost, attack.max_us, True, attack.open_ended))
        elif run.exposure.max_us is not None:
            found.append(_Point(run, run.cost, run.exposure.max_us, False, False))
    return found


def _cost_against_exposure(view: View) -> Plot | None:
    workload = view.main_micro
    points = _points(view, workload) if workload else []
    if not workload or not any(point.exposure_us is not None for point in points):
        return None
    unit = view.cost_word or ""

    def draw() -> Figure:
        fig, ax = _single(7.2, 4.6)
        scale = _Decades.around(p.exposure_us for p in points if p.exposure_us is not None)
        scale.dress(ax, _time, 6, always=any(p.exposure_us is None for p in points))
        ax.set_ylim(0, max(p.cost for p in points) * 1.12 or 1)
        ax.yaxis.grid(True)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.set_xlabel("longest exposure after an unmap (further left is safer)")
        ax.set_ylabel(f"map + unmap, {unit} per 4 KiB page (lower is cheaper)")
        places = [scale.always if p.exposure_us is None else scale.place(p.exposure_us) for p in points]
        for point, x in zip(points, places, strict=True):
            _dot(ax, x, point.cost, point.run, 8, around=True)
        fig.legend(
            handles=_legend((p.run.level for p in points), any(not p.run.ours for p in points)),
            loc="outside upper left",
            ncols=6,
            handletextpad=0.1,
            columnspacing=1.2,
        )
        _label(fig, ax, [(x, p.cost, _point_label(p)) for p, x in zip(points, places, strict=True)])
        return fig

    unseen = [p.run.name for p in points if not p.seen]
    return Plot(
        "cost-exposure",
        "Cost against exposure",
        f"Cost is map + unmap of {workload.name}. Exposure is the longest time after an unmap at which a "
        "device that kept trying could still write to the page. Cheap and safe is the lower left corner."
        + (f" Marked *, not attacked: the module's own histogram ({', '.join(unseen)})." if unseen else ""),
        f"Scatter plot of {unit} per page against longest exposure. " + "; ".join(p.words() for p in points) + ".",
        draw,
    )


def _point_label(point: _Point) -> str:
    return point.run.name + ("" if point.seen else "*") + (" (or longer)" if point.open_ended else "")


def _label(fig: Figure, ax: Axes, labels: Sequence[tuple[float, float, str]]) -> None:
    """Name points where there is room: near first, by a thin line where it must be far."""
    canvas: Any = FigureCanvasAgg(fig)
    fig.set_dpi(_DPI)
    canvas.draw()
    renderer = canvas.get_renderer()
    frame = ax.get_window_extent(renderer)
    unit = _DPI / 72
    centres = [ax.transData.transform((x, y)) for x, y, _ in labels]
    taken = [Bbox.from_bounds(x - 6 * unit, y - 6 * unit, 12 * unit, 12 * unit) for x, y in centres]
    for (px, py), (x, y, text) in zip(centres, labels, strict=True):
        best: tuple[float, Any] | None = None
        for rank, (dx, dy, ha) in enumerate(_candidates()):
            note = ax.annotate(
                text,
                (x, y),
                (dx, dy),
                textcoords="offset points",
                ha=ha,
                va="center",
                fontsize=9,
                arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 5}
                if math.hypot(dx, dy) > 16
                else None,
            )
            box = note.get_window_extent(renderer)
            own = Bbox.from_bounds(
                px + dx * unit - (box.width if ha == "right" else box.width / 2 if ha == "center" else 0),
                py + dy * unit - 6 * unit,
                box.width,
                12 * unit,
            )
            hits = sum(own.overlaps(other) for other in taken)
            outside = own.x0 < frame.x0 or own.x1 > frame.x1 + 40 * unit or own.y0 < frame.y0
            score = hits * 100 + outside * 50 + rank
            if best is None or score < best[0]:
                if best is not None:
                    best[1][0].remove()
                best = (score, (note, own))
            else:
                note.remove()
        if best is not None:
            taken.append(best[1][1])


def _candidates() -> list[tuple[float, float, str]]:
    """Places for a label as offsets in points from its marker, best first."""
    near = [(9.0, 0.0, "left"), (-9.0, 0.0, "right"), (0.0, 12.0, "center"), (0.0, -12.0, "center")]
    far = [
        (dx, dy, "left" if dx > 0 else "right")
        for dy in (14.0, -14.0, 24.0, -24.0, 36.0, -36.0)
        for dx in (14.0, -14.0)
    ]
    return near + far


# -- rows of policies ------------------------------------------------------------------------------


def _single(width: float, height: float) -> tuple[Figure, Axes]:
    fig = Figure(figsize=(width, height), layout="constrained")
    return fig, fig.add_subplot()


def _row_places(rows: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Heights of rows, from the top down, with room for a level's name above its first row."""
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
    """A grid of panels, one for each workload, that share the rows of policies on their left."""
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
    """Write each level's name, small, above the first of its policies."""
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


def _level_key(fig: Figure, rows: Sequence[tuple[str, str]], runs: Iterable[Run]) -> None:
    fig.legend(
        handles=_legend((level for _, level in rows), any(not run.ours for run in runs)),
        loc="outside upper left",
        ncols=6,
        handletextpad=0.1,
        columnspacing=1.2,
    )


def _map_and_unmap(view: View) -> Plot | None:
    workloads = [w for w in view.workloads if any(run.page_sum is not None for run in w.runs)]
    workloads.sort(key=lambda w: w.ring or 0)
    if not workloads:
        return None
    rows = _rows_of(view, workloads)
    unit = view.cost_word or ""

    def draw() -> Figure:
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
        fig.legend(handles=handles, loc="outside upper left", ncols=2, handletextpad=0.1, columnspacing=1.2)
        fig.supxlabel(f"{unit} per 4 KiB page", fontsize=9)
        return fig

    return Plot(
        "map-unmap",
        "What a page costs to map and to unmap",
        "The unmap includes its share of the syncs. Policies stand by level, strictest first.",
        "Bars of map plus unmap cost per page. "
        + " ".join(
            f"{w.name}: "
            + "; ".join(f"{r.name} {show(r.map_cost)} + {show(r.unmap_cost)}" for r in w.runs if r.page_sum is not None)
            + "."
            for w in workloads
        ),
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

    def draw() -> Figure:
        fig, axes, places = _panels(rows, workloads, 4, 1.9)
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
        _level_key(fig, rows, [run for w in workloads for run in w.runs])
        fig.supxlabel("invalidation commands per unmapped 4 KiB page (log scale)", fontsize=9)
        return fig

    return Plot(
        "invalidations",
        "Invalidations per page",
        "Commands that the IOMMU had to execute, of any kind, for each 4 KiB page unmapped. A command's "
        "own price differs by kind and by hardware, so fewer is not always cheaper. "
        "No marker: no figure.",
        "Dot plot of invalidation commands per unmapped page. "
        + _in_words(workloads, lambda _, run: run.inv_per_page, show_inv),
        draw,
    )


def _relative_cost(view: View) -> Plot | None:
    workloads = [
        w for w in view.workloads if w.kind != "micro" and any(w.relative(r, PASSTHROUGH) is not None for r in w.runs)
    ]
    if not workloads:
        return None
    rows = _rows_of(view, workloads)
    ratios = [r for w in workloads for run in w.runs if (r := w.relative(run, PASSTHROUGH)) is not None]

    def draw() -> Figure:
        fig, axes, places = _panels(rows, workloads, 4, 1.9)
        low, high = min(1.0, *ratios), max(1.0, *ratios)
        room = (high - low) * 0.06 or 0.01
        for ax, workload in zip(axes, workloads, strict=True):
            ax.set_xlim(low - room, high + (high - low) * 0.34 + room)
            ax.locator_params(axis="x", nbins=4)
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
            ax.axvline(1.0, color=MUTED, linewidth=0.9, zorder=1)
            for run in workload.runs:
                ratio = workload.relative(run, PASSTHROUGH)
                if ratio is None:
                    continue
                y = places[run.row]
                ax.plot([1.0, ratio], [y, y], color=MUTED, linewidth=0.9, zorder=2)
                if run.relative_range:
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
        _level_key(fig, rows, [run for w in workloads for run in w.runs])
        fig.supxlabel(f"{view.cost_word} for the same work, relative to passthrough", fontsize=9)
        return fig

    return Plot(
        "relative-cost",
        "What a workload costs, relative to passthrough",
        "The whole path of the workload, driver and network or block stack included: 1x is the cost without an IOMMU.",
        "Dot plot of cost relative to passthrough. "
        + _in_words(workloads, lambda w, run: w.relative(run, PASSTHROUGH), lambda v: f"{v:.3f}"),
        draw,
    )


def _rows_of(view: View, workloads: Sequence[Workload]) -> list[tuple[str, str]]:
    """The rows that these workloads have, in the order of all rows."""
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
    """The pictures for which the summary has figures; the one that matters first."""
    makers = (_cost_against_exposure, _map_and_unmap, _relative_cost, _inv_per_page)
    return [plot for make in makers if (plot := make(view))]
