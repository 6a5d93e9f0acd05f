# SPDX-License-Identifier: GPL-2.0-only
"""The tables of a summary, and their form on a terminal.

A `Grid` is a table without a form: the HTML report uses the same grids. On a narrow terminal a grid is split into
several tables that repeat the key columns; nothing is wrapped or cut, and nothing is said by colour alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console
from rich.text import Text

from xsmmu.native import HARDWARE_WAIT_NS
from xsmmu_lab.report import nanoseconds, statements
from xsmmu_lab.report import view as views
from xsmmu_lab.report.nanoseconds import in_us
from xsmmu_lab.report.view import (
    ALWAYS,
    KERNEL_STRICT,
    LEVELS,
    NULL,
    PASSTHROUGH,
    Attack,
    Check,
    Claim,
    Identity,
    Run,
    Statement,
    View,
    Wait,
    Workload,
    show,
    show_inv,
    show_ratios,
    show_seen,
)

_TEXT_WIDTH: Final = 120
"""Widest readable line of text, in characters; a table may be wider."""
_HEAD_WIDTH: Final = 14
"""Width in characters of a claim's headings, which are whole phrases."""


@dataclass(frozen=True)
class Column:
    """A column: a heading of one or more lines, and a cell per row."""

    head: str
    cells: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether no row has a figure in this column."""
        return all(cell in (NULL, ALWAYS) for cell in self.cells)

    @property
    def width(self) -> int:
        """Width in characters."""
        return max(len(line) for line in (*self.head.split("\n"), *self.cells))


@dataclass(frozen=True)
class Grid:
    """A table: key columns that name the row, then the figures."""

    title: str
    note: str
    keys: tuple[Column, ...]
    columns: tuple[Column, ...]

    @property
    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells, row by row."""
        return zip(*(column.cells for column in (*self.keys, *self.columns)), strict=True)

    def width(self, gap: int) -> int:
        """Width of the whole table in characters, with `gap` spaces between columns."""
        columns = (*self.keys, *self.columns)
        return sum(column.width for column in columns) + gap * (len(columns) - 1)

    def fitted(self, width: int, gap: int) -> list[Grid]:
        """The table, split into the fewest tables of at most `width` characters."""
        parts = [replace(self, columns=self.columns[:1])]
        for column in self.columns[1:]:
            wider = replace(parts[-1], columns=(*parts[-1].columns, column))
            if wider.width(gap) <= width:
                parts[-1] = wider
            else:
                parts.append(replace(self, note="continued", columns=(column,)))
        return parts


def _two_lines(name: str) -> str:
    """A workload's name as a narrow heading."""
    for mark in (" ", "-"):
        if mark in name:
            return name.replace(mark, f"{mark.strip()}\n", 1)
    return name


def _keys(names: Iterable[str], levels: Iterable[str]) -> tuple[Column, ...]:
    return Column("policy", tuple(names)), Column("level", tuple(levels))


def overview(view: View) -> Grid:
    """A row per policy and level, over all workloads."""
    rows = view.rows()
    columns: list[Column] = []

    def by_row(workload: Workload) -> list[Run | None]:
        runs = {run.row: run for run in workload.runs}
        return [runs.get(row) for row in rows]

    micro = view.main_micro
    if micro:
        runs = by_row(micro)
        if view.waits:
            columns.append(
                Column(f"{micro.name}\nns/page", tuple(show(r.ns_at(HARDWARE_WAIT_NS) if r else None) for r in runs))
            )
        columns.append(Column(f"{view.cost_word}\n/page", tuple(show(r.page_sum if r else None) for r in runs)))
        columns.append(Column("inv/\npage", tuple(show_inv(r.inv_per_page if r else None) for r in runs)))
    columns.append(Column("exp.\nmax us", tuple(show_seen(row[1], view.seen(row)) for row in rows)))
    for workload in view.workloads:
        if workload.kind == "micro" and workload is not micro:
            continue
        ratios = [view.relative(workload, r) if r else None for r in by_row(workload)]
        columns.append(Column(_two_lines(workload.name), show_ratios(ratios)))
    return Grid(
        "All workloads at one look",
        _overview_note(view),
        _keys((row[0] for row in rows), (row[1] for row in rows)),
        tuple(column for column in columns if not column.empty),
    )


def _compared(view: View) -> bool:
    """Whether any cost can be given relative to passthrough."""
    return any(w.relative(run, PASSTHROUGH) is not None for w in view.workloads for run in w.runs)


def _overview_note(view: View) -> str:
    at = f" with a wait of {in_us(HARDWARE_WAIT_NS)} for each invalidation" if view.waits else ""
    parts = []
    if view.main_micro and view.waits:
        parts.append(f"ns/page: map + unmap{at}, estimated; instructions: the same without the wait")
    elif view.main_micro and view.cost_word:
        parts.append(f"{view.cost_word}/page: map + unmap")
    if view.attacks:
        parts.append("exp.: exposure that a device saw")
    if _compared(view):
        parts.append(f"x: cost relative to passthrough{', with the same wait' if view.waits else ''}")
    return "; ".join(parts)


def details(workload: Workload) -> Grid:
    """A row per run of a workload."""
    runs = workload.runs

    def column(head: str, cell: Callable[[Run], str]) -> Column:
        return Column(head, tuple(cell(run) for run in runs))

    def ratio(head: str, policy: str) -> Column:
        return Column(head, show_ratios([workload.relative(run, policy) for run in runs]))

    def exposure(value: float | None, run: Run) -> str:
        return ALWAYS if run.level == "none" else show(value)

    columns = [
        column(f"ns at\n{in_us(HARDWARE_WAIT_NS)}", lambda run: show(run.ns_at(HARDWARE_WAIT_NS))),
        column("map", lambda run: show(run.map_cost)),
        column("unmap", lambda run: show(run.unmap_cost)),
        column("sum", lambda run: show(run.page_sum)),
    ]
    if any(run.cost != run.page_sum for run in runs):
        columns.append(column("cost", lambda run: show(run.cost)))
    columns.append(column("cost,\nleast..most", lambda run: _range(run.cost_range)))
    columns += [
        ratio("x pass\nthrough", PASSTHROUGH),
        ratio("x kernel\nstrict", KERNEL_STRICT),
        column("inv/\npage", lambda run: show_inv(run.inv_per_page)),
        column("exp.\np99 us", lambda run: exposure(run.exposure.p99_us, run)),
        column("exp.\nmax us", lambda run: exposure(run.exposure.max_us, run)),
        *_attack(workload),
        _throughput(runs),
    ]
    unit = _in_words(workload.cost_unit)
    return Grid(
        workload.name,
        f"cost in {unit}" if unit else "",
        _keys((run.name for run in runs), (run.level for run in runs)),
        tuple(column for column in columns if not column.empty),
    )


def _range(ends: tuple[float, float] | None) -> str:
    return NULL if ends is None else f"{show(ends[0])}..{show(ends[1])}"


def _in_words(unit: str | None) -> str | None:
    if unit is None:
        return None
    what, _, per = unit.partition("/")
    return f"{what} per {per}"


def _attack(workload: Workload) -> list[Column]:
    attacks = [run.attack for run in workload.runs]
    if not any(attacks):
        return []

    def column(head: str, value: Callable[[Attack], float | None]) -> Column:
        return Column(head, tuple(show(value(attack)) if attack else NULL for attack in attacks))

    return [
        column("writes\ntried", lambda attack: attack.attempts),
        column("before\nflush", lambda attack: attack.before_flush),
        column("writes\nlanded", lambda attack: attack.landed),
        column("given\nback", lambda attack: attack.given_back),
        Column("landed\nlast us", tuple(show_seen(r.level, r.attack) for r in workload.runs)),
    ]


def _throughput(runs: Sequence[Run]) -> Column:
    units = {run.throughput_unit for run in runs if run.throughput is not None}
    if len(units) == 1:
        return Column(f"throughput\n{units.pop() or ''}".rstrip(), tuple(show(r.throughput) for r in runs))
    return Column(
        "throughput",
        tuple(
            NULL if r.throughput is None else f"{show(r.throughput)} {r.throughput_unit or ''}".strip() for r in runs
        ),
    )


def identities(view: View) -> list[Grid]:
    """A row per static 1:1 table; no grid without one."""
    tables = view.identities
    if not tables:
        return []

    def column(head: str, cell: Callable[[Identity], str]) -> Column:
        return Column(head, tuple(map(cell, tables)))

    columns = (
        column("devices", lambda each: each.devices),
        column("leaves", lambda each: " + ".join(f"{n:,} x {size}" for size, n in each.leaves.items() if n)),
        column("mapped\nMiB", lambda each: show(None if each.mapped_bytes is None else each.mapped_bytes >> 20)),
        column("pages of\ntables", lambda each: show(each.table_pages)),
        column("the same by\nthe kernel", lambda each: show(each.by_kernel)),
        column("set-up\n" + (tables[0].set_up_unit or ""), lambda each: show(each.set_up)),
    )
    note = "the level is none; pages of 4 KiB below the root, by the leaves and by the kernel's counter of such pages"
    keys = _keys((each.policy for each in tables), ("none" for _ in tables))
    return [Grid("Static 1:1 tables", note, keys, tuple(each for each in columns if not each.empty))]


def claim(claimed: Claim) -> Grid:
    """A row per system: the published figures and the figures measured here."""
    systems = claimed.systems
    columns: list[Column] = []
    for figure in claimed.figures:
        head = f"{figure.name}, above {figure.above}" if figure.above else figure.name
        head += f", x of {figure.relative_to}" if figure.relative_to else ""
        sides = [("published", [each.published[figure.name] for each in systems])]
        if figure.comparable:
            sides.append(("here", [each.measured[figure.name] for each in systems]))
        for side, values in sides:
            if side == "here" or any(value is not None for value in values):
                cells = tuple(map(show_inv if _is_small(sides) else show, values))
                columns.append(Column("\n".join([*textwrap.wrap(head, _HEAD_WIDTH), side]), cells))
    return Grid(
        claimed.title,
        "",
        (
            Column("system", tuple(each.name for each in systems)),
            Column("here", tuple(each.here or NULL for each in systems)),
        ),
        tuple(columns),
    )


def _is_small(sides: Iterable[tuple[str, Iterable[float | None]]]) -> bool:
    """Whether all values are about 1 or below, where the leading digits matter."""
    return all(0 <= value < 2 for _, values in sides for value in values if value is not None)


def verdict(statement: Statement, unit: str | None) -> str:
    """Whether a statement holds here, in words; `unit` is the unit of a cost."""
    if statement.holds is None:
        return "not measured here" if statement.checks else "cannot be said here"
    found = "holds here" if statement.holds else "does not hold here"
    return found + _waits(statement.wait, statement.holds, unit)


def _waits(wait: Wait | None, holds: bool | None, unit: str | None) -> str:
    """The waits for an invalidation for which a check holds; empty if the software's cost alone decides."""
    if wait is None or unit is None or holds is None:
        return ""
    if wait.never:
        return "" if holds else ", whatever the wait for an invalidation"
    if wait.most is None:
        if not wait.least:
            return "" if holds else "; it holds with any wait for an invalidation"
        return f"; it holds where the wait for an invalidation is more than {_wait(wait.least, unit)}"
    if not wait.least:
        return f"; it holds where the wait for an invalidation is less than {_wait(wait.most, unit)}"
    return f"; it holds where the wait for an invalidation is {_wait(wait.least, unit)} to {_wait(wait.most, unit)}"


def _wait(wait: float, unit: str) -> str:
    if unit != "instructions":
        return f"{show(wait)} {unit}"
    rate = nanoseconds.rate()
    return f"{show(wait / rate.per_ns)} ns ({wait:,.0f} instructions, at {rate.short})"


def reckoning(check: Check, unit: str | None) -> str:
    """A check with the figures that decide the check; `unit` is the unit of a cost."""
    small = all(0 <= value < 2 for value in check.measured if value is not None)

    def term(text: str, value: float | None) -> str:
        try:
            float(text)
        except ValueError:
            return f"{text} ({(show_inv if small else show)(value)})"
        return text

    terms = [term(*each) for each in zip(check.terms, check.measured, strict=True)]
    words = [terms[0]]
    for operator, each in zip(check.operators, terms[1:], strict=True):
        words += [operator, each]
    found = {None: "not measured", True: "true", False: "false"}[check.holds]
    published = {None: "", True: "; as published", False: "; not so by the published figures"}[check.published_holds]
    return f"{check.figure}: {' '.join(words)}: {found}{published}{_waits(check.wait, check.holds, unit)}"


def notes(view: View) -> list[str]:
    """Notes that a reader needs to interpret the figures."""
    found = []
    if view.cost_word == "instructions":
        found.append(
            "Cost is guest instructions (-icount: one instruction is one nanosecond of guest time). "
            "Throughput and exposure are in guest time. Emulated invalidations complete at once: instructions are "
            "software cost. On hardware a CPU waits for each invalidation, 0.9 to 2 us by published figures."
        )
        if view.waits:
            found.append(
                f"Costs at a wait of {in_us(HARDWARE_WAIT_NS)} are estimates: instructions at "
                f"{nanoseconds.rate().words}, and {HARDWARE_WAIT_NS:,} ns for each invalidation. "
                "The code of drivers and of the network and block stacks was not timed: if it executes fewer "
                "instructions a ns than micro, then waits are a smaller part of its cost than shown."
            )
        found += _spreads(view)
    elif view.cost_word == "ns":
        found.append("Cost is nanoseconds on this machine, not instructions: compare within one run.")
    else:
        found.append(
            f"Accelerator {view.accel or 'not recorded'}: the clock of an emulated guest measures "
            "the emulator, so costs and throughput are omitted."
        )
    repeats = max((run.repeats for w in view.workloads for run in w.runs), default=1)
    if repeats > 1:
        found.append(
            f"Each run was measured {repeats} times, with all others in between. Shown is the one in the middle by "
            "cost (of an attack, the one with the longest exposure), and the least and the most of all."
        )
    if any(run.exposure.max_us is not None for w in view.workloads for run in w.runs):
        found.append(
            "Exposure (exp.) of a workload: the module's histogram, from unmap until no stale translation can exist."
        )
    if view.attacks:
        found.append(
            "Exposure (exp.) of the overview, and last landed: what a device saw that kept writing to an "
            'unmapped address (0: no write landed; ">": until the attack ended). Of the writes that landed, those '
            "given back hit pages that nobody had a reference of any more, or that someone else had by then; "
            "those before flush could still land, as a batch-aware driver had not flushed yet."
        )
    if _compared(view):
        found.append('"x": cost relative to passthrough (1x: as cheap) or to kernel-strict.')
    elif view.cost_word:
        found.append('"x": cost relative to kernel-strict (1x: as cheap); passthrough was not run.')
    found.append(f'"{NULL}": does not apply or was not measured.')
    return found


def _spreads(view: View) -> list[str]:
    """How far the figures depend on the host."""
    spreads: dict[float, list[str]] = {}
    for workload in view.workloads:
        if workload.spread:
            spreads.setdefault(workload.spread, []).append(workload.name)
    same = "The costs of micro and ring are the same on any host."
    if not spreads:
        return [same] if any(w.kind in ("micro", "ring") for w in view.workloads) else []
    parts = (f"{spread:g}x ({', '.join(names)})" for spread, names in sorted(spreads.items()))
    return [
        f"{same} Those of the others depend on when the host runs QEMU's devices. Relative to passthrough, their "
        f"instructions differed between three runs by up to {'; '.join(parts)}: smaller differences say nothing."
    ]


def oracle(view: View) -> str:
    """Whether the counts of invalidations are trustworthy."""
    compared, lacking, wrong = view.oracle_agreement()
    if wrong:
        worst = "; ".join(
            f"{m.workload} {m.policy}: {m.kind} {m.counted:,} counted, {m.oracle:,} seen by the hardware" for m in wrong
        )
        return f"Invalidations DISAGREE with the hardware model's count: {worst}."
    if not compared:
        return "Invalidations: no run has both the module's count and the hardware model's."
    rest = f"; runs of the module's policies that lack one of the two: {lacking}" if lacking else ""
    return (
        f"Invalidations: in all {compared} runs that have both, the module's count and the "
        f"hardware model's are equal, kind by kind{rest}."
    )


def facts(view: View) -> list[tuple[str, str]]:
    """The facts of the run: kernel, IOMMU and so on."""
    named = (
        ("kernel", view.kernel),
        ("IOMMU", view.iommu),
        ("QEMU", view.qemu),
        ("accelerator", view.accel),
        ("commit", view.commit),
        ("time", view.time),
    )
    return [(name, value) for name, value in named if value]


def render(summary: Mapping[str, object], console: Console) -> None:
    """Print a summary's tables. Raises view.SummaryError if the summary cannot be shown truthfully."""
    if "statements" in summary:
        statements.render(summary, console)
        return
    view = views.read(summary)
    _paragraph(console, ", ".join(f"{name} {value}" for name, value in facts(view)))
    if not view.workloads:
        _paragraph(console, "The summary holds no runs.")
        return
    for grid in (overview(view), *(details(workload) for workload in view.workloads), *identities(view)):
        print_grid(grid, console)
    levels = {run.level for w in view.workloads for run in w.runs}
    for level, promise in LEVELS.items():
        if level in levels:
            _paragraph(console, f"{level + ':':8} {promise}", indent=9)
    console.print()
    for note in (*notes(view), oracle(view)):
        _paragraph(console, note)
    for claimed in view.claims:
        console.print()
        _print_claim(claimed, view.cost_word, console)
    if view.command:
        _paragraph(console, f"Made by: {view.command}")


def _print_claim(claimed: Claim, unit: str | None, console: Console) -> None:
    """Print published beside measured figures, the differences, and the statements that hold."""
    grid = claim(claimed)
    print_grid(grid, console)
    _paragraph(console, f"Published: {claimed.source}. {claimed.conditions}")
    for text in claimed.differs:
        _paragraph(console, f"Differs: {text}", indent=9)
    for statement in claimed.statements:
        _paragraph(console, f'"{statement.says}": {verdict(statement, unit)}', indent=2)
        for check in statement.checks:
            _paragraph(console, f"  {reckoning(check, unit)}", indent=4)


def _paragraph(console: Console, text: str, indent: int = 0) -> None:
    """Print `text` wrapped at words, later lines indented."""
    lines = Text(text).wrap(console, min(console.width, _TEXT_WIDTH) - indent)
    for number, line in enumerate(lines):
        line.rstrip()
        console.print(Text(" " * indent if number else "") + line, soft_wrap=True)


def print_grid(grid: Grid, console: Console) -> None:
    """Print a grid; on a narrow console as several tables."""
    gap = 2 if grid.width(2) <= console.width else 1
    for part in grid.fitted(console.width, gap):
        _print(part, gap, console)


def _print(grid: Grid, gap: int, console: Console) -> None:
    """Print a grid that fits. Widths are known, so the lines are set here and do not depend on rich's version."""
    columns = (*grid.keys, *grid.columns)

    def line(cells: Iterable[str]) -> Text:
        set_cells = (
            cell.ljust(column.width) if column in grid.keys else cell.rjust(column.width)
            for cell, column in zip(cells, columns, strict=True)
        )
        return Text((" " * gap).join(set_cells).rstrip())

    heads = [column.head.split("\n") for column in columns]
    deepest = max(map(len, heads))
    padded = [[""] * (deepest - len(head)) + head for head in heads]
    rule = "-" if console.options.ascii_only else "\u2500"
    console.print(Text(grid.title, style="bold"), soft_wrap=True)
    if grid.note:
        _paragraph(console, grid.note)
    for head in zip(*padded, strict=True):
        console.print(line(head), soft_wrap=True)
    console.print(Text(rule * grid.width(gap)), soft_wrap=True)
    for row in grid.rows:
        console.print(line(row), soft_wrap=True)
    console.print()
