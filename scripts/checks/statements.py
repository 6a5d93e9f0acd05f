# SPDX-License-Identifier: GPL-2.0-only
"""The list of published statements, lab/claims.toml, and how evidence decides each.

A statement holds, does not hold, or cannot be said here. No verdict stands in the list: a statement without evidence
cannot be said.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from checks.comparison import Row, Said
from checks.guest_claims import Decided
from checks.published import Table
from xsmmu import native
from xsmmu.errors import UserError, unknown_name
from xsmmu_lab.project import LAB
from xsmmu_lab.report import nanoseconds
from xsmmu_lab.report import table as report
from xsmmu_lab.report import view as views
from xsmmu_lab.runs import claims, experiment, words
from xsmmu_lab.runs.words import NotEmpty, Positive, Text

Json = dict[str, Any]

FILE: Final = LAB / "claims.toml"
WAITS_NS: Final = (900.0, 2000.0)
"""Published waits for an invalidation: a statement of the lab that depends on the wait must hold at all of them."""
DECIDERS: Final = ("lab", "model", "protocols", "allocators", "native")


class Lab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A statement of an experiment's claims."""

    experiment: Text
    statement: Text
    waits: tuple[float, float] | None = None
    """Ends of the wait from which on the statement holds, in instructions."""


class Formula(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Throughput by the published misses: bits of a page / (base + misses x read)."""

    base_ns: Positive
    read_ns: Positive
    page_bits: Positive
    figures: Annotated[tuple[str, ...], NotEmpty]
    systems: Annotated[tuple[str, ...], NotEmpty]
    error: float = 0.0
    """Largest error."""
    above: str | None = None
    """Instead: the computed throughput is above this system's everywhere."""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a table of model/published: a statement, figures as "figure/system", or a formula."""

    table: Text
    statement: str | None = None
    figures: tuple[str, ...] = ()
    formula: Formula | None = None


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published statement with what decides it."""

    section: Text
    place: Text
    says: Text
    lab: Lab | None = None
    model: Model | None = None
    protocols: str | None = None
    allocators: str | None = None
    native: tuple[str, ...] = ()
    why: str = ""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source, or several about a subject."""

    name: Text
    title: Text
    source: Text
    conditions: Text


class List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    section: tuple[Section, ...]
    statement: tuple[Statement, ...]
    of: dict[str, list[Any]] = {}
    """More claims of an experiment."""


def read(file: Path = FILE) -> List:
    """Read the list. Raises UserError, which names the place."""
    try:
        found = words.read(List, tomllib.loads(file.read_text()))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{file}: {error}") from None
    except UserError as error:
        raise UserError(f"{file}: {error.message}") from None
    sections = [each.name for each in found.section]
    for number, each in enumerate(found.statement):
        where = f"{file}: statement[{number}]"
        if each.section not in sections:
            raise UserError(f"{where}: {unknown_name('section', each.section, sections).message}")
        given = [name for name in DECIDERS if getattr(each, name)]
        if len(given) > 1:
            raise UserError(f"{where}: {' and '.join(given)} decide: leave one")
        if not given and not each.why:
            raise UserError(f"{where}: nothing decides: name {', '.join(DECIDERS)}, or say why not")
    return found


def claims_of(found: List, name: str, chosen: experiment.Experiment) -> tuple[claims.Claim, ...]:
    """All claims of an experiment: its own, and those of the list."""
    return (*chosen.claims, *claims.parse(found.of.get(name, []), policies_of(chosen)))


def policies_of(chosen: experiment.Experiment) -> dict[str, list[str]]:
    """The policies of each workload, as claims.parse() wants them."""
    return {each.full_name: [policy for policy in chosen.policies if each.names(policy)] for each in chosen.workloads}


# -- evidence --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """An experiment's claims, compared with its runs."""

    commit: str
    claims: Sequence[Json]


@dataclass(frozen=True)
class Missing:
    """The reason why there is no evidence."""

    why: str


@dataclass(frozen=True)
class Evidence:
    """All that decides."""

    lab: Mapping[str, Ran | Missing] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    said: Mapping[str, Sequence[Said]] = field(default_factory=dict)
    not_run: Mapping[str, Missing] = field(default_factory=dict)
    """Tables with points that were not run."""
    protocols: Sequence[Decided] = ()
    allocators: Json | Missing = field(default_factory=lambda: Missing("not run"))
    machine: native.Machine | None = None


@dataclass(frozen=True)
class Verdict:
    """`holds` is None if it cannot be said."""

    holds: bool | None
    by: str
    figures: str = ""
    why: str = ""


def decide(found: List, evidence: Evidence) -> list[Json]:
    """All statements for summary.json."""
    return [_entry(each, _verdict(each, evidence)) for each in found.statement]


def _entry(statement: Statement, verdict: Verdict) -> Json:
    why = [verdict.why, statement.why]
    return {
        "section": statement.section,
        "place": statement.place,
        "says": statement.says,
        "holds": verdict.holds,
        "by": verdict.by,
        "figures": verdict.figures,
        "why": "; ".join(dict.fromkeys(each for each in why if each)),
    }


def _verdict(statement: Statement, evidence: Evidence) -> Verdict:
    for name, decides in _BY.items():
        if wanted := getattr(statement, name):
            return decides(wanted, evidence)
    return Verdict(None, "no evidence")


def _all(found: Sequence[bool | None]) -> bool | None:
    return False if False in found else None if None in found or not found else True


# -- by the lab ------------------------------------------------------------------------------------


def _by_lab(wanted: Lab, evidence: Evidence) -> Verdict:
    ran = evidence.lab.get(wanted.experiment, Missing("not run"))
    if isinstance(ran, Missing):
        return Verdict(None, f"lab, {wanted.experiment}", why=ran.why)
    by = f"lab, {wanted.experiment}, commit {ran.commit[:8]}"
    (statement,) = [
        each for claim in ran.claims for each in claim["statements"] if each["says"] == wanted.statement
    ] or [None]
    if statement is None:
        raise UserError(f"{FILE}: {wanted.experiment} has no statement '{wanted.statement}'")
    checks = [report.reckoning(views.check(each), "instructions") for each in statement["checks"]]
    holds, why = _at_waits(statement)
    if wanted.waits:
        holds, why = _first_wait(statement["wait"], wanted.waits)
    if holds is None and statement["checks"] and not why:
        why = "a figure was not measured"
    return Verdict(holds, by, "; ".join(checks), why)


def _at_waits(statement: Json) -> tuple[bool | None, str]:
    """Whether a statement holds at all published waits, where it depends on the wait."""
    wait = statement["wait"]
    if wait is None or statement["holds"] is None:
        return statement["holds"], ""
    if wait["never"]:
        return False, ""
    rate = nanoseconds.rate().per_ns
    least, most = wait["least"] / rate, float("inf") if wait["most"] is None else wait["most"] / rate
    if least <= WAITS_NS[0] and WAITS_NS[1] <= most:
        return True, "" if statement["holds"] else f"at published waits ({_ns(WAITS_NS)}), not without a wait"
    if most < WAITS_NS[0] or WAITS_NS[1] < least:
        return False, f"at published waits ({_ns(WAITS_NS)})" if statement["holds"] else ""
    return None, f"it depends on the wait: from {least:,.0f} ns on" if least > WAITS_NS[
        0
    ] else f"only to {most:,.0f} ns"


def _ns(ends: tuple[float, float]) -> str:
    return f"{ends[0]:,.0f} to {ends[1]:,.0f} ns"


def _first_wait(wait: Json | None, ends: tuple[float, float]) -> tuple[bool | None, str]:
    if wait is None:
        return None, "the costs or the commands were not measured"
    if wait["never"]:
        return False, "it holds with no wait"
    return ends[0] <= wait["least"] <= ends[1], f"from {wait['least']:,.0f} instructions on"


# -- by the model ----------------------------------------------------------------------------------


def _by_model(wanted: Model, evidence: Evidence) -> Verdict:
    table = evidence.tables.get(wanted.table)
    if table is None:
        raise unknown_name("published table", wanted.table, evidence.tables)
    if wanted.formula:
        return _by_formula(wanted.formula, table)
    by = f"model, {wanted.table}"
    if wanted.table in evidence.not_run:
        return Verdict(None, by, why=evidence.not_run[wanted.table].why)
    if wanted.statement is not None:
        found = {each.says: each for each in evidence.said.get(wanted.table, ())}
        if wanted.statement not in found:
            raise unknown_name(f"statement of {wanted.table}", wanted.statement, found)
        said = found[wanted.statement]
        holds = {"holds": True, "does not hold": False}.get(said.words)
        why = "the model computes no such figure" if said.words == "cannot be said here" else said.words
        return Verdict(holds, by, said.figures, why if holds is None else "")
    return _by_rows(wanted, evidence.rows.get(wanted.table, ()), by)


def _by_rows(wanted: Model, rows: Sequence[Row], by: str) -> Verdict:
    chosen: list[Row] = []
    for name in wanted.figures:
        mine = [row for row in rows if f"{row.figure}/{row.name.partition('@')[0]}" == name]
        if not mine:
            raise UserError(f"{FILE}: {wanted.table} has no figure '{name}'")
        chosen += mine
    verdicts = [row.verdict for row in chosen]
    holds = _all([{"hit": True, "miss": False}.get(each) for each in verdicts])
    kinds = {each: verdicts.count(each) for each in dict.fromkeys(verdicts)}
    why = ", ".join(f"{count} {each}" for each, count in kinds.items())
    return Verdict(holds, by, ", ".join(map(_row, chosen)), why)


def _row(row: Row) -> str:
    value = "-" if row.value is None else f"{row.value:.3g}"
    return f"{row.figure}, {row.name}: {row.published:.3g} published, {value} here"


def _by_formula(formula: Formula, table: Table) -> Verdict:
    """The throughput by the published misses, beside the published throughput."""
    at = {(each.figure, each.system, each.at): each.value for each in table.cells}
    figures, found = [], []
    for system in formula.systems:
        for place in table.axis.values if table.axis else (None,):
            misses = sum(
                at["l1" if (name, system, place) not in at else name, system, place] for name in formula.figures
            )
            value = formula.page_bits / (formula.base_ns + misses * formula.read_ns)
            published = at["throughput", formula.above or system, place]
            beside = formula.above or "published"
            figures.append(f"{system}@{place:g}: {value:.1f} by the formula, {published:g} {beside}")
            found.append(value > published if formula.above else abs(value / published - 1) <= formula.error)
    why = f"above {formula.above}" if formula.above else f"within {formula.error:.0%}"
    return Verdict(_all(found), f"formula, {table.name}", "; ".join(figures), f"{why} at {sum(found)} of {len(found)}")


# -- by the others ---------------------------------------------------------------------------------


def _by_protocols(wanted: str, evidence: Evidence) -> Verdict:
    found = {each.says: each for each in evidence.protocols}
    if wanted not in found:
        raise unknown_name("statement about virtual IOMMUs", wanted, found)
    said = found[wanted]
    return Verdict(said.holds, "protocols", said.figures, said.why)


def _by_allocators(wanted: str, evidence: Evidence) -> Verdict:
    if isinstance(evidence.allocators, Missing):
        return Verdict(None, "allocators", why=evidence.allocators.why)
    found = {each["says"]: each for each in evidence.allocators["claims"]}
    by = f"allocators, commit {evidence.allocators['commit'][:8]}"
    if wanted not in found:
        return Verdict(None, by, why="these results are older than the statement")
    said = found[wanted]
    figures = "; ".join(
        f"{name}: {', '.join(f'{system} {value:g}' for system, value in values.items() if value is not None)}"
        for name, values in said["figures"].items()
    )
    return Verdict(said["holds"], by, figures, said["why"])


AWARE: Final = ", batch-aware"


def _by_native(wanted: Sequence[str], evidence: Evidence) -> Verdict:
    """Checks of "ns" of policies, with `, batch-aware` for such drivers."""
    machine = evidence.machine
    if machine is None:
        return Verdict(None, "make native", why="no accepted figures")
    drivers = {row.policy + (AWARE if row.driver == "batch-aware" else "") for row in machine.rows if row.is_plain()}
    ns: dict[str, float | None] = {
        name: machine.ns_at(native.HARDWARE_WAIT_NS, name.removesuffix(AWARE), _driver(name))
        for name in sorted(drivers)
    }
    checks = [claims.read_check(text, str(FILE), ["ns"], [*ns]) for text in wanted]
    named = dict.fromkeys(term.system for check in checks for term in check.terms if term.system)
    figures = ", ".join(f"{name} {ns[name]:.3g}" for name in named)
    by = f"make native, {machine.cpu}, commit {machine.commit[:8]}"
    return Verdict(_all([check.holds(ns) for check in checks]), by, f"ns at a wait of 1 us: {figures}")


def _driver(name: str) -> str:
    return "batch-aware" if name.endswith(AWARE) else "unmodified"


_BY: Final[Mapping[str, Callable[[Any, Evidence], Verdict]]] = {
    "lab": _by_lab,
    "model": _by_model,
    "protocols": _by_protocols,
    "allocators": _by_allocators,
    "native": _by_native,
}
