# SPDX-License-Identifier: GPL-2.0-only
"""Claims: figures that others published about a system, beside figures measured here.

An experiment carries its claims as data (`[[claim]]`, in the words of `ClaimTable`): the compared figures; the systems
with their published figures and the corresponding run; and statements with checks. A check compares a figure of several
systems, as in ``inv/page: FANDS < 0.5 * xSMMU <= 0.1``. Whether a check holds is computed separately from measured and
from published figures, and stored nowhere else.

A published figure may be a list with a value per window of time; the median counts. A figure without `measured` is not
comparable: only the published figures are shown. With `above` both sides are a system's excess over the named system,
with `relative_to` both sides are in units of that system's figure.

A cost is the work of software; hardware adds a wait for each invalidation command. A figure with known `commands` is
therefore a line over the wait, and a check of such a figure gives the waits for which the check holds, in the cost's
unit (`Wait`).
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import msgspec

from xsmmu.errors import UserError, unknown_name
from xsmmu_lab.project import LAB
from xsmmu_lab.runs import words
from xsmmu_lab.runs.words import NotEmpty, Positive, Text

Json = dict[str, Any]

RESULTS_SCHEMA_PATH = LAB / "results.schema.json"

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}

_SIGN = {"<": -1.0, "<=": -1.0, ">": 1.0, ">=": 1.0}

_OPERATOR = re.compile(r"\s+(<=|>=|<|>)\s+")
_TERM = re.compile(r"(?:(?P<factor>[\d.]+)\s*\*\s*)?(?P<system>.+)")


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column: `measured`, `per` and `commands` are paths in a run's entry, such as cost.value."""

    name: Text
    """The column's heading."""
    measured: str | None = None
    """None if the figure is not comparable."""
    per: str | None = None
    """The divisor of `measured`."""
    commands: str | None = None
    """For a cost: the invalidation commands per unit of the cost."""
    above: str | None = None
    """Name of a system; figures are the excess over that system."""
    relative_to: str | None = None
    """Name of a system; both sides are in units of that system's figure."""


class SystemTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row in a file."""

    name: Text
    here: Annotated[str, msgspec.Meta(pattern="^[^@]+@[^@]+$")] | None = None
    """policy@workload/variant"""
    published: dict[str, Positive | Annotated[list[Positive], NotEmpty]] = {}


class StatementTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claimed statement in a file."""

    says: Text
    checks: Annotated[tuple[str, ...], NotEmpty] = ()


class ClaimTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `[[claim]]` of a file."""

    title: Text
    source: Text
    """The publication and its authors."""
    conditions: Text
    """Hardware, kernel and workload of the publication."""
    differs: Annotated[tuple[Text, ...], NotEmpty]
    """The differences here, with reasons."""
    figure: Annotated[tuple[Figure, ...], NotEmpty]
    system: Annotated[tuple[SystemTable, ...], NotEmpty]
    statement: tuple[StatementTable, ...] = ()


@dataclass(frozen=True)
class System:
    """A row. `here` is (workload's full name, policy); None if no run corresponds."""

    name: str
    here: tuple[str, str] | None
    published: Mapping[str, float | Sequence[float]]


@dataclass(frozen=True)
class Line:
    """A cost as a function of the wait for an invalidation: `cost` without a wait, plus `commands` times the wait."""

    cost: float
    commands: float

    def plus(self, factor: float, other: Line) -> Line:
        """This line plus `factor` times another line."""
        return Line(self.cost + factor * other.cost, self.commands + factor * other.commands)


@dataclass(frozen=True)
class Wait:
    """The waits for an invalidation at which a check holds: `least` to `most`, which may be infinite.

    Empty if `least` is above `most`. At an end the two costs are equal.
    """

    least: float = 0.0
    most: float = math.inf

    def both(self, other: Wait) -> Wait:
        """The waits in both ranges."""
        return Wait(max(self.least, other.least), min(self.most, other.most))

    def as_json(self) -> Json:
        """For summary.json: `never`, and the ends; an infinite `most` is null."""
        never = self.least >= self.most
        return {
            "never": never,
            "least": None if never else self.least,
            "most": None if never or math.isinf(self.most) else self.most,
        }


@dataclass(frozen=True)
class Term:
    """A side of a comparison: a number, or a factor of a system's figure."""

    text: str
    factor: float
    system: str | None

    def value(self, figures: Mapping[str, float | None]) -> float | None:
        """The term's value, given every system's figure."""
        if self.system is None:
            return self.factor
        figure = figures[self.system]
        return None if figure is None else self.factor * figure

    def line(self, lines: Mapping[str, Line | None], unit: Line) -> Line | None:
        """The term's cost as a line over the wait; a number is a multiple of `unit`."""
        line = unit if self.system is None else lines[self.system]
        return None if line is None else Line(self.factor * line.cost, self.factor * line.commands)


@dataclass(frozen=True)
class Check:
    """A figure of several terms; each pair of neighbours is compared."""

    text: str
    figure: str
    terms: tuple[Term, ...]
    operators: tuple[str, ...]

    def holds(self, figures: Mapping[str, float | None]) -> bool | None:
        """Whether the check holds for the systems' figures; None if a figure is unknown."""
        values = [term.value(figures) for term in self.terms]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        pairs = zip(self.operators, pairwise(known), strict=True)
        return all(OPERATORS[operator](*pair) for operator, pair in pairs)

    def wait(self, lines: Mapping[str, Line | None], unit: Line) -> Wait | None:
        """The waits at which the check holds; None if a cost or its commands are unknown."""
        ends = [term.line(lines, unit) for term in self.terms]
        known = [line for line in ends if line is not None]
        if len(known) < len(ends):
            return None
        found = Wait()
        for operator, (one, other) in zip(self.operators, pairwise(known), strict=True):
            found = found.both(_wait(operator, other.plus(-1.0, one)))
        return found


@dataclass(frozen=True)
class Statement:
    """A claim in words, with the checks that decide whether the claim holds."""

    says: str
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Claim:
    """All claims of a source that an experiment compares with its runs."""

    title: str
    source: str
    conditions: str
    differs: tuple[str, ...]
    figures: tuple[Figure, ...]
    systems: tuple[System, ...]
    statements: tuple[Statement, ...]


# -- reading ----------------------------------------------------------------------------------------------------------


def parse(rows: Any, runs: Mapping[str, Sequence[str]]) -> tuple[Claim, ...]:
    """Read `claim` of an experiment; `runs` has the policies per workload's full name. Raises UserError."""
    found = words.read(tuple[ClaimTable, ...], rows, "claim")
    return tuple(_claim(row, f"claim[{index}]", runs) for index, row in enumerate(found))


def _claim(row: ClaimTable, where: str, runs: Mapping[str, Sequence[str]]) -> Claim:
    names = [each.name for each in row.figure]
    systems = tuple(_system(each, f"{where}.system[{at}]", names, runs) for at, each in enumerate(row.system))
    known = [each.name for each in systems]
    for kind, given in (("figure", names), ("system", known)):
        if len(given) != len(set(given)):
            raise UserError(f"{where}: two {kind}s have the same name")
    for each in row.figure:
        _check_figure(each, f"{where}.figure '{each.name}'", known)
    statements = tuple(
        Statement(each.says, tuple(read_check(text, f"{where}.statement[{at}]", names, known) for text in each.checks))
        for at, each in enumerate(row.statement)
    )
    return Claim(row.title, row.source, row.conditions, row.differs, row.figure, systems, statements)


def _system(row: SystemTable, where: str, figures: Sequence[str], runs: Mapping[str, Sequence[str]]) -> System:
    for name in row.published:
        if name not in figures:
            raise _in(where, unknown_name("figure", name, figures))
    if row.here is None:
        return System(row.name, None, row.published)
    policy, _, workload = row.here.partition("@")
    if workload not in runs:
        raise _in(where, unknown_name("workload", workload, runs))
    if policy not in runs[workload]:
        raise _in(where, unknown_name(f"policy of {workload}", policy, runs[workload]))
    return System(row.name, (workload, policy), row.published)


def _check_figure(figure: Figure, where: str, systems: Sequence[str]) -> None:
    if figure.per and not figure.measured:
        raise UserError(f"{where}: 'per' needs 'measured'")
    for base in (figure.above, figure.relative_to):
        if base is not None and base not in systems:
            raise _in(where, unknown_name("system", base, systems))
    for path in (figure.measured, figure.per, figure.commands):
        if path and not _in_results(path):
            raise UserError(f"{where}: a run has no '{path}'; {RESULTS_SCHEMA_PATH.name} lists the fields of a run")
    if figure.commands and (figure.measured != "cost.value" or figure.per):
        raise UserError(f"{where}: 'commands' are added to a cost: they need measured = \"cost.value\" and no 'per'")


def _in_results(path: str) -> bool:
    """Whether a run's entry may have a value at this path."""
    schema = json.loads(RESULTS_SCHEMA_PATH.read_text())
    at = schema["$defs"]["run"]
    for part in path.split("."):
        if "$ref" in at:
            at = schema["$defs"][at["$ref"].rpartition("/")[2]]
        if "properties" not in at:
            return "object" in at.get("type", ())  # the schema leaves the content open
        if part not in at["properties"]:
            return False
        at = at["properties"][part]
    return True


def read_check(text: str, where: str, figures: Sequence[str], systems: Sequence[str]) -> Check:
    """Read a check, such as ``inv/page: FANDS < 0.5 * xSMMU``; `where` is its place in messages. Raises UserError."""
    figure, colon, rest = text.partition(": ")
    if not colon:
        raise UserError(f"{where}: '{text}' must begin with a figure and ': '")
    if figure not in figures:
        raise _in(where, unknown_name("figure", figure, figures))
    parts = _OPERATOR.split(rest)
    if len(parts) < 3:
        raise UserError(f"{where}: '{text}' compares nothing: use {', '.join(OPERATORS)} with spaces around")
    return Check(text, figure, tuple(_term(part, where, systems) for part in parts[::2]), tuple(parts[1::2]))


def _term(text: str, where: str, systems: Sequence[str]) -> Term:
    match = _TERM.fullmatch(text.strip())
    if match and match["system"] in systems:
        return Term(text.strip(), float(match["factor"] or 1), match["system"])
    try:
        return Term(text.strip(), float(text), None)
    except ValueError:
        raise _in(where, unknown_name("system", text.strip(), systems)) from None


def _in(where: str, error: UserError) -> UserError:
    return UserError(f"{where}: {error.message}")


# -- comparing --------------------------------------------------------------------------------------------------------


def compare(claims: Sequence[Claim], entries: Mapping[tuple[str, str], Json]) -> list[Json]:
    """The claims for summary.json, beside the entries of the runs, by (workload's full name, policy)."""
    return [_compare(claim, entries) for claim in claims]


def _compare(claim: Claim, entries: Mapping[tuple[str, str], Json]) -> Json:
    published = {each.name: _published(claim, each) for each in claim.figures}
    measured = {each.name: _measured(claim, each, entries) for each in claim.figures}
    lines = {each.name: _lines(claim, each, entries) for each in claim.figures if each.commands}
    return {
        "title": claim.title,
        "source": claim.source,
        "conditions": claim.conditions,
        "differs": list(claim.differs),
        "figures": [
            {
                "name": each.name,
                "comparable": each.measured is not None,
                "above": each.above,
                "relative_to": each.relative_to,
            }
            for each in claim.figures
        ],
        "systems": [
            {
                "name": system.name,
                "here": {"workload": system.here[0], "policy": system.here[1]} if system.here else None,
                "published": {name: values[system.name] for name, values in published.items()},
                "measured": {name: values[system.name] for name, values in measured.items()},
            }
            for system in claim.systems
        ],
        "statements": [_decide(each, published, measured, lines) for each in claim.statements],
    }


Figures = Mapping[str, Mapping[str, float | None]]
Lines = Mapping[str, tuple[Mapping[str, Line | None], Line]]
"""By figure: every system's line, and the line of the number 1."""


def _decide(statement: Statement, published: Figures, measured: Figures, lines: Lines) -> Json:
    waits = [check.wait(*lines[check.figure]) if check.figure in lines else None for check in statement.checks]
    checks = [
        {
            "text": check.text,
            "figure": check.figure,
            "terms": [term.text for term in check.terms],
            "operators": list(check.operators),
            "measured": [term.value(measured[check.figure]) for term in check.terms],
            "holds": check.holds(measured[check.figure]),
            "published_holds": check.holds(published[check.figure]),
            "wait": wait.as_json() if wait else None,
        }
        for check, wait in zip(statement.checks, waits, strict=True)
    ]
    found = [check["holds"] for check in checks]
    holds = False if False in found else None if None in found or not found else True
    return {"says": statement.says, "holds": holds, "wait": _waits(checks, waits), "checks": checks}


def _waits(checks: Sequence[Json], waits: Sequence[Wait | None]) -> Json | None:
    """The waits at which all checks hold; None if unknown, or if no check depends on a wait."""
    if any(
        check["holds"] is None or (not wait and not check["holds"]) for check, wait in zip(checks, waits, strict=True)
    ):
        return None
    known = [wait for wait in waits if wait]
    found = Wait()
    for wait in known:
        found = found.both(wait)
    return found.as_json() if known else None


def _published(claim: Claim, figure: Figure) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for system in claim.systems:
        value = system.published.get(figure.name)
        values[system.name] = value if value is None or isinstance(value, int | float) else statistics.median(value)
    return _based(values, figure)


def _measured(claim: Claim, figure: Figure, entries: Mapping[tuple[str, str], Json]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for system in claim.systems:
        entry = entries.get(system.here) if system.here else None
        values[system.name] = _value(entry, figure) if entry else None
    return _based(values, figure)


def _based(values: dict[str, float | None], figure: Figure) -> dict[str, float | None]:
    if figure.above is not None:
        floor = values[figure.above]
        values = {name: None if value is None or floor is None else value - floor for name, value in values.items()}
    if figure.relative_to is None:
        return values
    base = values[figure.relative_to]
    return {name: value / base if value is not None and base else None for name, value in values.items()}


def _value(entry: Json, figure: Figure) -> float | None:
    value = _at(entry, figure.measured) if figure.measured else None
    if value is None or figure.per is None:
        return value
    per = _at(entry, figure.per)
    return value / per if per else None


def _at(entry: Json, path: str) -> float | None:
    at: Any = entry
    for part in path.split("."):
        at = at.get(part) if isinstance(at, dict) else None
    return None if at is None else float(at)


def _lines(
    claim: Claim, figure: Figure, entries: Mapping[tuple[str, str], Json]
) -> tuple[dict[str, Line | None], Line]:
    """Every system's cost over the wait per command, and the line of the number 1."""
    lines: dict[str, Line | None] = {}
    for system in claim.systems:
        entry = entries.get(system.here) if system.here else None
        cost, commands = (_at(entry, path or "") if entry else None for path in (figure.measured, figure.commands))
        lines[system.name] = None if cost is None or commands is None else Line(cost, commands)
    if figure.above is not None:
        floor = lines[figure.above]
        lines = {name: line and floor and line.plus(-1.0, floor) for name, line in lines.items()}
    unit = lines[figure.relative_to] if figure.relative_to else Line(1.0, 0.0)
    if unit is None or unit.cost <= 0 or unit.commands < 0:
        return dict.fromkeys(lines), Line(1.0, 0.0)  # a divisor that is not positive would reverse a comparison
    return lines, unit


def _wait(operator: str, difference: Line) -> Wait:
    """The waits at which 0 compares thus with a difference: where the difference is on the right side of 0."""
    side = Line(-_SIGN[operator] * difference.cost, -_SIGN[operator] * difference.commands)
    if side.commands == 0:
        return Wait() if OPERATORS[operator](0.0, difference.cost) else Wait(math.inf)
    equal = max(0.0, -side.cost / side.commands)
    return Wait(least=equal) if side.commands > 0 else Wait(most=equal)
