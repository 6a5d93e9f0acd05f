# SPDX-License-Identifier: GPL-2.0-only
"""Points of the machine model beside published values: rows with errors and verdicts, baselines, statements."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from checks.published import Cell, Figure, Table
from xsmmu import model_files, predict, predicted, units
from xsmmu.model_files import Parameters, Scene, Value
from xsmmu_lab.project import PROJECT, RESULTS
from xsmmu_lab.runs.claims import Check

MODEL: Final = PROJECT / "model"
KEPT: Final = RESULTS / "validate"
"""Results of points."""
SEEDS: Final = predict.SEEDS
TIME_MS: Final = predict.TIME_MS
MEASURED_MS: Final = TIME_MS * 3 // 4
"""The first quarter of a point is a warm-up, which does not count."""
GOALS: Final[Mapping[str, float]] = {"fs-flows": 0.10, "fs-rings": 0.10, "fs-ablation": 0.25}
"""Largest error of a throughput, by table; of others 20 %."""
GOAL: Final = 0.20
COUNTERS: Final = 0.15
"""Largest error of a counter."""
READ_NS: Final = 236
"""Of the baseline: a read of a page table, from the slope of the strict row."""
PAGE_BITS: Final = 32_768
RATES: Final = ("Gb/s", "MiB/s", "M IOPS", "ratio")
"""Units of throughputs: a value is no hit unless its interval is narrow enough."""

Results = Mapping["Point", predicted.Columns]
"""The figures of each point's runs: of the seeds, then of the sets of parameters."""


# -- points -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """What gives a published value: a point of the model."""

    machine: str
    workload: str
    driver: str | None
    policy: str
    changes: tuple[tuple[str, Value], ...]


def point_of(table: Table, cell: Cell) -> Point | None:
    """The point of a cell; None if the model has no machine, workload or policy for it."""
    if not (cell.machine and cell.workload and cell.policy):
        return None
    changes: dict[str, Value] = {**table.set, **table.inputs(cell.at), **cell.set}
    if table.axis and cell.at is not None:
        changes |= {name: int(cell.at) * table.axis.times.get(name, 1) for name in table.axis.parameters}
    return Point(cell.machine, cell.workload, cell.driver, cell.policy, tuple(changes.items()))


def points_of(table: Table, cell: Cell) -> list[Point]:
    """The points of a cell: of a ratio two."""
    point, beside = point_of(table, cell), table.figures[cell.figure].of
    if point is None:
        return []
    return [point, replace(point, policy=beside)] if beside else [point]


def column_of(table: Table, cell: Cell, results: Results) -> list[float] | None:
    """The figure of each run, in the published unit; None if it is not computed."""
    figure = table.figures[cell.figure]
    columns = [results.get(point, {}).get(figure.field or "") for point in points_of(table, cell)]
    found = [column for column in columns if column]
    if not found or len(found) < len(columns):
        return None
    scaled = [value * scale_of(figure) for value in found[0]]
    return [one / other for one, other in zip(found[0], found[1], strict=True)] if figure.of else scaled


class Points:
    """Runs points; a point of several figures runs once."""

    def __init__(self, tables: Mapping[str, Table], program: Path, jobs: int) -> None:
        self.tables, self.program, self.jobs = tables, program, jobs
        self.known: Parameters = model_files.parameters(MODEL / "parameters.toml")
        self.fits = model_files.fits(self.known, MODEL / "fits.toml")

    def scene(self, point: Point) -> Scene | None:
        """The files of a point; None if one does not exist."""
        machine, workload = MODEL / f"machines/{point.machine}.toml", MODEL / f"workloads/{point.workload}.toml"
        driver = MODEL / f"drivers/{point.driver}.toml" if point.driver else None
        if not all(file.is_file() for file in (machine, workload, driver or machine)):
            return None
        return model_files.scene(machine, workload, driver, self.known)

    def unit(self, point: Point, time_ms: int = TIME_MS) -> predict.Unit | None:
        """The unit of work of a point; None if a file does not exist."""
        scene = self.scene(point)
        if scene is None:
            return None
        sets = model_files.possible(scene, self.fits)
        best = model_files.best(scene, self.fits)
        plan = predict.Plan(scene, sets, SEEDS, time_ms, explores=False, best=best)
        return predict.Unit(plan, point.policy, point.changes)

    def units(self, points: Iterable[Point]) -> dict[Point, predict.Unit]:
        """The units of work of all points with files."""
        return {point: unit for point in dict.fromkeys(points) if (unit := self.unit(point))}

    def kept(self, points: Iterable[Point]) -> dict[Point, predicted.Columns]:
        """The figures of points that were run before."""
        wanted, cache = self.units(points), units.Cache(KEPT)
        keys = predict.keys_of([*wanted.values()], self.program)
        found = {point: cache.get(keys[unit]) for point, unit in wanted.items()}
        return {point: result["columns"] for point, result in found.items() if result}

    def run(self, points: Iterable[Point]) -> dict[Point, predicted.Columns]:
        """The figures of each point."""
        wanted = self.units(points)
        found = predict.predict_all([*wanted.values()], units.Cache(KEPT), self.jobs, self.program)
        return {point: found[unit]["columns"] for point, unit in wanted.items()}


# -- rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A published value beside the model's. `value` is None if no point gives the value."""

    table: str
    figure: str
    unit: str
    name: str
    use: str
    published: float
    value: float | None
    low: float | None
    high: float | None
    goal: float
    read_off: float
    """Half a width of the published value: of reading it off, or of its range."""

    @property
    def error(self) -> float | None:
        """Of the model, as a part of the published value; None for a published 0."""
        return None if self.value is None or not self.published else self.value / self.published - 1

    @cached_property
    def verdict(self) -> str:
        """hit, miss, not determined, not computed; inputs are no predictions."""
        if self.use == "input":
            return "input"
        if self.value is None or self.low is None or self.high is None:
            return "not computed"
        near = abs(self.value - self.published) <= self.goal * abs(self.published) + self.read_off
        if self.unit in RATES and not predicted.is_determined(self.value, self.low, self.high):
            return "not determined"
        return ("fitted" if self.use == "fit" else "hit") if near else "miss"


def scale_of(figure: Figure) -> float:
    """The factor from the model's unit to the figure's."""
    return figure.scale * (1000 * figure.seconds / MEASURED_MS if figure.seconds else 1)


def rows_of(table: Table, results: Results) -> Iterator[Row]:
    """The rows of a table, in its order."""
    for cell in table.cells:
        if cell.use == "asked":
            continue
        figure = table.figures[cell.figure]
        column = column_of(table, cell, results)
        found = predicted.interval(column, SEEDS) if column else None
        value, low, high = (found[name] for name in ("value", "low", "high")) if found else (None,) * 3
        goal = GOALS.get(table.name, GOAL) if figure.unit in RATES else COUNTERS
        read_off = figure.error + (cell.high - cell.low) / 2
        yield Row(
            table.name, cell.figure, figure.unit, cell.name, cell.use, cell.value, value, low, high, goal, read_off
        )


# -- baselines --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Baselines:
    """Errors of predictions that need no model: the throughput without an IOMMU, and that of the published misses."""

    same_as_off: float | None
    of_misses: float | None


def baselines(table: Table, cell: Cell) -> Baselines:
    """The baselines of a throughput."""
    at = {(each.figure, each.system): each.value for each in table.cells if each.at == cell.at}
    off = at.get(("throughput", "off"))
    levels = [at.get((name, cell.system)) for name in ("iotlb", "l1", "l2", "l3")]
    # A table without L2 has L1 = L2.
    levels[2] = levels[1] if levels[2] is None else levels[2]
    known = [each for each in levels if each is not None]
    of_misses = PAGE_BITS / (READ_NS * sum(known)) if len(known) == len(levels) else None
    if of_misses is not None and off is not None:
        of_misses = min(off, of_misses)
    return Baselines(_error(off, cell), _error(of_misses, cell))


def _error(value: float | None, cell: Cell) -> float | None:
    return None if value is None else value / cell.value - 1


# -- statements -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """A published statement; `words` is the verdict."""

    table: str
    says: str
    words: str
    figures: str


def statements_of(table: Table, results: Results) -> Iterator[Said]:
    """Whether each statement holds for the values of the model, with each set of parameters."""
    for statement in table.statements:
        checks = [_holds(table, check, results) for check in statement.checks]
        found = [share for share, _ in checks]
        words = "holds"
        if any(share is None for share in found):
            words = "cannot be said here"
        elif any(share == 0 for share in found):
            words = "does not hold"
        elif any(share != 1 for share in found):
            words = f"not determined: holds for {100 * min(share or 0 for share in found):.0f} % of the sets"
        yield Said(table.name, statement.says, words, "; ".join(text for _, text in checks))


def _holds(table: Table, check: Check, results: Results) -> tuple[float | None, str]:
    """The share of runs for which a check holds, and its figures; None if a figure is not computed."""
    by_name: dict[str, list[float]] = {}
    for cell in table.of(check.figure):
        if column := column_of(table, cell, results):
            by_name[cell.name] = column
    shown = {name: round(statistics.median(values[:SEEDS]), 3) for name, values in by_name.items()}
    named = [term.system for term in check.terms if term.system]
    text = f"{check.text} ({', '.join(f'{name} {shown[name]:g}' for name in named if name in shown)})"
    if any(name not in by_name for name in named):
        return None, text
    most = min(len(by_name[name]) for name in named)
    runs = [{name: by_name[name][at] for name in named} for at in range(most)]
    return sum(bool(check.holds(run)) for run in runs) / most, text
