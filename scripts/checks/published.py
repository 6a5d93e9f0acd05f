# SPDX-License-Identifier: GPL-2.0-only
"""Published tables (model/published/*.toml), with the source, the unit and the error of reading each figure.

A table has figures, series and statements. A series is a system's values of a figure, one for each value of the axis;
without an axis a series has one value. A value is a number, a pair [low, high] where the source gives a range, or nan
where the source has none. `field` is the figure's place in a result of xsmmu-model, which `scale` turns into the
figure's unit; a figure without a field is not computed by a point. A statement is checked as in claims of the lab
(runs/claims.py); a system of a table with an axis is named system@value.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from xsmmu.errors import UserError, unknown_name
from xsmmu_lab.project import PROJECT
from xsmmu_lab.runs import claims, words
from xsmmu_lab.runs.words import NotEmpty, Positive, Text

FOLDER: Final = PROJECT / "model/published"
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Value = float | Annotated[list[float], msgspec.Meta(min_length=2, max_length=2)]
Setting = int | str


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What changes along a series."""

    unit: Text
    values: Annotated[tuple[float, ...], NotEmpty]
    times: dict[str, int] = {}
    """By how much a parameter is multiplied, if not by 1."""
    parameters: tuple[str, ...] = ()
    """Names in model/parameters.toml that have the value; none if the values are repetitions."""


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A quantity."""

    unit: Text
    error: NotNegative
    """Largest error of reading a value off, in the unit."""
    title: str = ""
    field: str | None = None
    """Place in the model's result, such as counters.inv_per_page."""
    scale: Positive = 1.0
    of: str | None = None
    """The figure is a ratio: of the field with the row's policy, and with this one."""
    seconds: Positive | None = None
    """Of a count in so many seconds: the model's count is of the time that it measures."""


class SeriesTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A system's values of a figure, in a file."""

    system: Text
    figure: Text
    values: Annotated[tuple[Value, ...], NotEmpty]
    policy: str | None = None
    """Policy that gives the row; None if no run of the model does."""
    driver: str | None = None
    """The driver's file, if it is not that of the machine: research systems have their own."""
    machine: str | None = None
    workload: str | None = None
    """Of the row, if not the table's."""
    set: dict[str, Setting] = {}
    """Parameters of the row that differ from the files."""
    use: Literal["seen", "fit", "input", "asked"] = "seen"
    """`fit`: the model was fitted to it. `input`: given to the model. `seen`: known to the authors of the model.
    `asked`: a statement needs it, and no value is published."""
    gives: str | None = None
    """Of an input: the parameter that has this value, in thousandths of the unit, in all rows of the same place."""


class TableFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file."""

    title: Text
    source: Text
    section: Text
    conditions: Text
    figure: dict[str, Figure]
    series: Annotated[tuple[SeriesTable, ...], NotEmpty]
    machine: str | None = None
    workload: str | None = None
    set: dict[str, Setting] = {}
    """Parameters of all rows that differ from the files."""
    axis: Axis | None = None
    statement: tuple[claims.StatementTable, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A published value; `at` is the axis' value, None without an axis."""

    figure: str
    system: str
    policy: str | None
    driver: str | None
    machine: str | None
    workload: str | None
    set: Mapping[str, Setting]
    use: str
    gives: str | None
    at: float | None
    low: float
    high: float
    """A single value has the same at both ends."""

    @property
    def value(self) -> float:
        """The middle."""
        return (self.low + self.high) / 2

    @property
    def name(self) -> str:
        """As in a statement's checks."""
        return self.system if self.at is None else f"{self.system}@{self.at:g}"


@dataclass(frozen=True)
class Table:
    """A published table; `name` is the file's."""

    name: str
    title: str
    source: str
    section: str
    conditions: str
    machine: str | None
    workload: str | None
    set: Mapping[str, Setting]
    axis: Axis | None
    figures: Mapping[str, Figure]
    cells: tuple[Cell, ...]
    statements: tuple[claims.Statement, ...]

    def of(self, figure: str) -> Iterator[Cell]:
        """The values of a figure."""
        return (cell for cell in self.cells if cell.figure == figure)

    def inputs(self, at: float | None) -> dict[str, int]:
        """Parameters that the table gives at a place of its axis."""
        mine = (cell for cell in self.cells if cell.gives and cell.at == at)
        return {cell.gives: round(1000 * cell.value) for cell in mine if cell.gives}

    def systems(self) -> list[str]:
        """The names that checks may use."""
        places = [None] if self.axis is None else [*self.axis.values]
        named = dict.fromkeys(cell.system for cell in self.cells)
        return [system if at is None else f"{system}@{at:g}" for system in named for at in places]

    def values(self, figure: str) -> dict[str, float | None]:
        """The published values of a figure by the names of checks."""
        found: dict[str, float | None] = dict.fromkeys(self.systems())
        return found | {cell.name: cell.value for cell in self.of(figure) if cell.use != "asked"}


def read(file: Path) -> Table:
    """Read a file. Raises UserError, which names the file and the place."""
    try:
        found = words.read(TableFile, tomllib.loads(file.read_text()))
        return _table(file.stem, found)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{file}: {error}") from None
    except UserError as error:
        raise UserError(f"{file}: {error.message}") from None


def tables(folder: Path = FOLDER) -> dict[str, Table]:
    """All tables by name."""
    return {file.stem: read(file) for file in sorted(folder.glob("*.toml"))}


def _table(name: str, found: TableFile) -> Table:
    cells = tuple(cell for at, row in enumerate(found.series) for cell in _cells(found, row, f"series[{at}]"))
    table = Table(
        name,
        found.title,
        found.source,
        found.section,
        found.conditions,
        found.machine,
        found.workload,
        found.set,
        found.axis,
        found.figure,
        cells,
        (),
    )
    keys = [(cell.figure, cell.name) for cell in cells]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"figure '{key[0]}' has two values of {key[1]}: remove one")
    figures, systems = [*found.figure], table.systems()
    statements = tuple(
        claims.Statement(
            row.says,
            tuple(claims.read_check(text, f"statement[{at}]", figures, systems) for text in row.checks),
        )
        for at, row in enumerate(found.statement)
    )
    return dataclasses.replace(table, statements=statements)


def _cells(table: TableFile, row: SeriesTable, where: str) -> Iterator[Cell]:
    if row.figure not in table.figure:
        raise UserError(f"{where}: {unknown_name('figure', row.figure, table.figure).message}")
    places: tuple[float | None, ...] = table.axis.values if table.axis else (None,)
    if len(row.values) != len(places):
        raise UserError(f"{where}: {len(row.values)} values, but the axis has {len(places)}: give one for each")
    for at, value in zip(places, row.values, strict=True):
        low, high = value if isinstance(value, list) else (value, value)
        if low > high:
            raise UserError(f"{where}: range [{low:g}, {high:g}] ends before it begins")
        if math.isnan(low) == (row.use == "asked"):
            files = (row.machine or table.machine, row.workload or table.workload)
            yield Cell(
                row.figure, row.system, row.policy, row.driver, *files, row.set, row.use, row.gives, at, low, high
            )
