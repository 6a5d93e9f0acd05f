# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu top`: a live screen with a line per IOMMU group under a policy, and a page for a selected group.

activity.py computes the figures; this file lays out lines for the terminal's size, and handles keys.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from textwrap import wrap
from typing import Final

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from xsmmu import activity, calibration, complete, machine, module, output
from xsmmu.activity import CAUSES, Activity, Reading
from xsmmu.calibration import Calibration
from xsmmu.digits import duration, percent, ratio, short
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.module import KINDS, Sample
from xsmmu.terminal import Keyboard

_LOOK_S: Final = 0.25
"""Seconds until a changed terminal size is noticed."""
_PASSING: Final = ("no-policy", "no-module", "not-offered", "device-gone")
"""Errors that may pass while the screen is on."""
_NAME_MIN: Final = 13
_ESTIMATED: Final = "~cpu%"
"""Title of the column cpu% without a calibration."""
_KEYS: Final = "s sort  r reverse  space pause  up/down select  Enter open  q quit"
_KEYS_OF_ONE: Final = "space pause  up/down next group  Esc back"


# ---- columns ----


@dataclass(frozen=True)
class Column:
    """A column of the table; the first column, with device and names, takes the remaining width."""

    title: str
    width: int
    value: Callable[[Activity], float | str | None]
    text: Callable[[float | None], str] = short

    def cell(self, row: Activity) -> str:
        """Cell of a row, padded."""
        value = self.value(row)
        if isinstance(value, str):
            return f"{value:<{self.width}.{self.width}}"
        return f"{self.text(value):>{self.width}.{self.width}}"

    def head(self) -> str:
        """Title, padded."""
        return f"{self.title:<{self.width}}" if self.title in ("policy", "level") else f"{self.title:>{self.width}}"


COLUMNS: Final = (
    Column("policy", 6, lambda row: row.last.sample.path[0]),
    Column("level", 7, lambda row: row.last.sample.path[1]),
    Column("maps/s", 6, lambda row: row.per_s("maps")),
    Column("unmap/s", 7, lambda row: row.per_s("unmaps")),
    Column("pages/s", 7, lambda row: row.per_s("unmapped_pages")),
    Column("inv/s", 5, lambda row: row.invalidations_per_s),
    Column("inv/page", 8, lambda row: row.invalidations_per_page, ratio),
    Column("at once", 7, lambda row: row.share_at_once, percent),
    Column("held", 5, lambda row: row.now("held_pages")),
    Column("live", 5, lambda row: row.now("live_pages")),
    Column("p99", 6, lambda row: row.exposure_p99_ns, duration),
    Column("max", 6, lambda row: row.exposure_max_ns, duration),
    Column("bound", 6, lambda row: row.last.sample.bound_ns, duration),
    Column("cpu%", 5, lambda row: row.cpu_share, percent),
)
FIRST_SORT: Final = 5
"""Index of the first sort column, pages/s; 0 is the device."""
_DROPPED: Final = (
    *("live", "unmap/s", "at once", "held", "maps/s", "level", "inv/s", "policy", "bound", "max", "p99", "pages/s"),
)
"""Columns to drop on a narrow terminal, in this order; a group's page has all figures."""


def columns(width: int, calibrated: bool, policies: Iterable[str] = ()) -> list[Column]:
    """Columns that fit; names of the kernel's modes are longer than names of policies."""
    longest = max(map(len, policies), default=0)
    found = [replace(each, width=max(each.width, longest)) if each.title == "policy" else each for each in COLUMNS]
    kept = [column for column in found if calibrated or column.title != "cpu%" or width > 100]
    for title in _DROPPED:
        if _NAME_MIN + sum(column.width + 1 for column in kept) <= width:
            break
        kept = [column for column in kept if column.title != title]
    return kept


def names(row: Activity) -> tuple[str, str, str]:
    """Names of the group's devices: with addresses, without addresses, and the first name only."""
    devices = [Device(address) for address in row.key]
    full = ", ".join(" ".join((*each.names, each.address)) for each in devices)
    brief = ", ".join(" ".join(each.names) or each.address for each in devices)
    first = (devices[0].names or (devices[0].address,))[0]
    return full, brief, first if len(devices) == 1 else f"{first} +{len(devices) - 1}"


# ---- the screen ----


@dataclass
class Screen:
    """The shown state, changed by keys."""

    interval_s: float
    calibration: Calibration | None = None
    rows: list[Activity] = field(default_factory=list)
    began: dict[tuple[str, ...], Reading] = field(default_factory=dict)
    """First reading of each group; the group's page counts exposure from there."""
    message: str = ""
    sort: int = FIRST_SORT
    reverse: bool = False
    paused: bool = False
    chosen: tuple[str, ...] | None = None
    """Selected group; None for the first group."""
    is_open: bool = False
    bar: str = "█"

    def ordered(self) -> list[Activity]:
        """Rows in display order: largest numbers first, words in alphabetical order, unknown values last."""
        if not self.sort:
            return sorted(self.rows, key=lambda row: row.key, reverse=self.reverse)
        value = COLUMNS[self.sort - 1].value
        known = [row for row in self.rows if value(row) is not None]
        words = any(isinstance(value(row), str) for row in known)
        # Equal rows are sorted by device in both directions.
        known.sort(key=lambda row: row.key)
        known.sort(key=lambda row: value(row), reverse=self.reverse == words)  # type: ignore[arg-type,return-value]
        return known + sorted((row for row in self.rows if value(row) is None), key=lambda row: row.key)

    def selected(self, rows: Sequence[Activity]) -> int:
        """Index of the selected row."""
        return next((index for index, row in enumerate(rows) if row.key == self.chosen), 0)

    @property
    def shows_one(self) -> bool:
        """Whether a group's page is shown; the group may have gone."""
        return self.is_open and any(row.key == self.chosen for row in self.rows)

    def press(self, key: str) -> bool:
        """Handle a key; False ends the program."""
        if key in ("q", "escape"):
            going = self.shows_one
            self.is_open = False
            return going
        rows = self.ordered()
        if key == "space":
            self.paused = not self.paused
        elif key == "s":
            self.sort = (self.sort + 1) % (1 + len(COLUMNS))
        elif key == "r":
            self.reverse = not self.reverse
        elif key in ("up", "k", "down", "j") and rows:
            step = 1 if key in ("down", "j") else -1
            self.chosen = rows[min(max(self.selected(rows) + step, 0), len(rows) - 1)].key
        elif key == "enter" and rows:
            self.chosen = rows[self.selected(rows)].key
            self.is_open = True
        return True

    def lines(self, width: int, height: int) -> list[Text]:
        """Lines of the whole screen."""
        rows = self.ordered()
        if self.shows_one:
            body = self._page(rows[self.selected(rows)], width, height - 2)
        else:
            body = self._table(rows, width, height - 2)
        body = body[: height - 2]
        body += [Text() for _ in range(height - 2 - len(body))]
        keys = _KEYS_OF_ONE if self.shows_one else _KEYS
        return [self._title(width), *body, Text(f"{keys:<{width}.{width}}", style="reverse")]

    def _title(self, width: int) -> Text:
        by = ("device", *(column.title for column in COLUMNS))[self.sort]
        count = f"{len(self.rows)} group{'' if len(self.rows) == 1 else 's'}"
        words = f"xsmmu top  {count}, every {self.interval_s:g} s, sorted by {by}{', reversed' if self.reverse else ''}"
        title = Text(words, style="bold")
        if self.paused:
            title.append("  PAUSED", style="bold yellow")
        title.truncate(width)
        return title

    def _table(self, rows: Sequence[Activity], width: int, height: int) -> list[Text]:
        measured = self.calibration is not None and self.calibration.is_measured
        kept = columns(width, measured, [row.last.sample.path[0] for row in rows])
        called = [names(row) for row in rows]
        # Only as wide as needed, so that figures stay close to the names.
        longest = max((cell_len(texts[0]) for texts in called), default=0)
        left = min(width - sum(column.width + 1 for column in kept), max(longest, _NAME_MIN))
        by = COLUMNS[self.sort - 1] if self.sort else None
        head = Text(f"{'device':<{left}.{left}}", style="underline bold" if by is None else "bold")
        for column in kept:
            is_by = by is not None and column.title == by.title
            title = column.head() if measured or column.title != "cpu%" else _ESTIMATED
            head.append(" ").append(title, style="underline" if is_by else "")
        if not rows:
            return [head, Text(self.message[:width], style="yellow")]
        at = self.selected(rows)
        room = max(height - 1, 1)
        start = min(max(at - room + 1, 0), max(len(rows) - room, 0))
        lines = [head]
        for index in range(start, min(start + room, len(rows))):
            name = next((text for text in called[index] if cell_len(text) <= left), called[index][-1])
            cells = " ".join([set_cell_size(name, left), *(column.cell(rows[index]) for column in kept)])
            lines.append(Text(cells, style="reverse" if index == at else "", no_wrap=True))
        notes = [note for row in rows for note in row.notes(names(row)[2])]
        said = [part for note in notes for part in wrap(note, width)]
        return [*lines, *([Text(), *(Text(line, style="yellow") for line in said)] if said else [])]

    # ---- a group's page ----

    def _page(self, row: Activity, width: int, height: int) -> list[Text]:
        began = Activity(row.device, self.began.get(row.key, row.first), row.last)
        figures = [Text(line, no_wrap=True) for line in self._figures(row, began, width)]
        figures[0].stylize("bold")
        half = max(width // 2 - 1, 20)
        room = height - len(figures) - 1
        pages = {f"<= {duration(bound)}": float(count) for bound, count in octaves(began.exposure, room).items()}
        left = _bars("flushes by cause, a second", _flushes(row), half, self.bar)
        right = _bars("pages by exposure, since the start", pages, width - half - 2, self.bar)
        pairs = zip_longest(left, right, fillvalue="")
        return [*figures, *(Text(f"{one:<{half}.{half}}  {two}"[:width], no_wrap=True) for one, two in pairs)]

    def _figures(self, row: Activity, began: Activity, width: int) -> list[str]:
        sample = row.last.sample
        devices = [Device(address) for address in row.key]
        labels = [f"{each.label} {f'[{each.driver}]' if each.driver else 'no driver'}" for each in devices]
        tunables = "  ".join(f"{key}={value}" for key, value in (sample.tunables or {}).items())
        kinds = "  ".join(f"{kind} {short(row.per_s(f'inv_{kind}'))}" for kind in KINDS)
        path, level = sample.path
        chosen = "" if path == sample.policy or sample.policy == "none" else f"  {sample.policy} chosen"
        once = f", {percent(row.share_at_once)} % at once" if row.share_at_once is not None else ""
        mapped, unmapped = short(row.per_s("mapped_pages")), short(row.per_s("unmapped_pages"))
        lines = [
            ", ".join(labels),
            f"{path}  level {level}{chosen}  state {sample.state}  tables {sample.tables}",
            tunables,
            "",
            f"calls a second     {short(row.per_s('maps'))} maps, {short(row.per_s('unmaps'))} unmaps",
            f"pages a second     {mapped} mapped, {unmapped} unmapped{once}",
            f"commands a second  {kinds}; {ratio(row.invalidations_per_page)} for each page",
            f"pages now          {short(row.now('live_pages'))} mapped, {short(row.now('held_pages'))} held",
            f"exposure           p99 {duration(row.exposure_p99_ns)}, max {duration(row.exposure_max_ns)}, "
            f"bound {duration(sample.bound_ns)}",
            f"since the start    p99 {duration(began.exposure_p99_ns)}, max {duration(began.exposure_max_ns)}",
            f"CPU, bad unmaps    {_cpu(row)}; {short(row.now('bad_unmaps'))} bad unmaps",
            *_origin(row),
            *row.notes(names(row)[2]),
            "",
        ]
        return [part for line in lines for part in (wrap(line, width) or [""])]


def _cpu(row: Activity) -> str:
    """Share of a CPU, or the reason why the share is unknown."""
    path = row.last.sample.path[0]
    if not row.calibration:
        return "not calibrated: run xsmmu bench DEVICE --save"
    if path not in row.calibration.policies:
        return f"not calibrated for {path}: run xsmmu bench DEVICE --save"
    if row.last.sample.state not in module.TAKEN:
        return f"unknown under {path}, because the module does not count calls there"
    return f"{percent(row.cpu_share)} % of one, estimated"


def _origin(row: Activity) -> list[str]:
    """The origin of an estimate without a calibration."""
    if not row.calibration or row.calibration.is_measured:
        return []
    return [f"CPU: estimated by {row.calibration.origin}"]


def _flushes(row: Activity) -> dict[str, float]:
    rates = {cause: row.per_s(f"flush_{cause}") for cause in CAUSES}
    return {cause: rate for cause, rate in rates.items() if rate is not None}


def octaves(pages: Mapping[int, int], room: int) -> dict[int, int]:
    """Pages by powers of two of ns, without gaps; on a low screen the shortest are merged."""
    if not pages:
        return {}
    found: dict[int, int] = {}
    lowest = max(min(pages).bit_length(), max(pages).bit_length() - max(room, 1) + 1)
    for bound, count in pages.items():
        place = max(bound.bit_length(), lowest)
        found[place] = found.get(place, 0) + count
    return {(1 << place) - 1: found.get(place, 0) for place in range(lowest, max(found) + 1)}


def _bars(title: str, values: Mapping[str, float], width: int, bar: str) -> list[str]:
    """Title, and lines of label, figure and bar."""
    if not values:
        return [f"{title}: none"]
    label = max(len(word) for word in values)
    left = max(width - label - 10, 1)
    largest = max(values.values())
    lines = [title]
    for word, value in values.items():
        # A value above zero gets at least a short bar.
        length = max(round(left * value / largest), 1) if value else 0
        lines.append(f"  {word:>{label}} {short(value):>5} {bar * length}".rstrip())
    return lines


# ---- the command ----


class Watching:
    """Reads all groups repeatedly into a screen."""

    def __init__(self, screen: Screen, wanted: tuple[Device, ...]) -> None:
        self.screen = screen
        self.wanted = wanted
        self.last: dict[tuple[str, ...], Reading] = {}

    def step(self) -> None:
        """Take a reading; a paused screen keeps its rows."""
        found = module.groups(self.wanted).items()
        readings = [(device, reading) for device, sample in found if (reading := self._read(device, sample))]
        rows = []
        # A calibration may be made while the screen is on.
        costs = self.screen.calibration = calibration.costs()
        for device, reading in readings:
            group = reading.sample.devices
            # For a new group too, or a group that was missing for some readings.
            first = self.last.get(group, reading)
            if module.began_anew(first.sample, reading.sample):
                first = self.screen.began[group] = reading
            self.screen.began.setdefault(group, reading)
            self.last[group] = reading
            rows.append(Activity(device, first, reading, costs))
        if not self.screen.paused:
            self.screen.rows = rows

    def _read(self, device: Device, sample: Sample) -> Reading | None:
        def look(at: Device) -> Reading:
            return activity.read(at, sample)

        return look(device) if self.wanted else module.unless_gone(look, device)

    def try_step(self) -> None:
        """As step(); passing errors are shown, and the loop goes on."""
        try:
            self.step()
        except UserError as error:
            if error.code not in _PASSING:
                raise
            if not self.screen.paused:
                self.screen.rows = []
            self.screen.message = error.message


def _run(screen: Screen, watching: Watching, console: Console) -> None:
    shown: tuple[int, int] = (0, 0)
    due = time.monotonic() + screen.interval_s
    with (
        Keyboard(sys.stdin.fileno()) as keyboard,
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        pressed: list[str] | None = []
        while pressed is not None and all(screen.press(key) for key in pressed):
            read = time.monotonic() >= due
            if read:
                watching.try_step()
                due = max(due + screen.interval_s, time.monotonic())
            size = (console.width, console.height)
            if read or pressed or size != shown:
                shown = size
                live.update(Group(*screen.lines(*size)), refresh=True)
            pressed = keyboard.read(min(due - time.monotonic(), _LOOK_S))


@click.command()
@click.argument("device", nargs=-1, shell_complete=complete.devices)
@click.option(
    "--interval", type=output.Seconds(0.1, 3600), default=1.0, show_default=True, help="Seconds between readings."
)
def top(device: tuple[str, ...], interval: float) -> None:
    """Show live activity: a line for each IOMMU group with a policy, or for the group of each DEVICE.

    Columns: maps, unmaps, unmapped pages and invalidation commands per second; commands per page; percentage of pages
    flushed inside their unmap (at once); pages held until their flush, and mapped pages; exposure of unmapped pages in
    the last interval (p99, max) and its bound; estimated share of a CPU for maps and unmaps: by costs of this machine
    if xsmmu bench --save has measured them, else (~cpu%) by figures of another machine at a wait of 1 us for each
    invalidation. Narrow terminals show fewer columns.

    Keys: s sorts by the next column, r reverses, space pauses, arrows or j and k select, Enter opens the selected group
    with its exposure and the causes of its flushes, Esc goes back, q quits.

    \b
    Examples:
      xsmmu top
      xsmmu top eth1 nvme0n1 --interval 5
    """
    console = Console(highlight=False)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or console.is_dumb_terminal:
        raise UserError("top needs a terminal: for logs and pipes use xsmmu watch", code="no-terminal")
    screen = Screen(interval, bar="█" if console.encoding.lower().startswith("utf") else "#")
    watching = Watching(screen, tuple(machine.find(each) for each in device))
    watching.step()
    try:
        _run(screen, watching, console)
    except KeyboardInterrupt:
        return
