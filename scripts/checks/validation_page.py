# SPDX-License-Identifier: GPL-2.0-only
"""The page of `make validate`: docs/validation.md."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from checks import guest_claims
from checks.comparison import RATES, READ_NS, SEEDS, TIME_MS, Row, Said, baselines
from checks.published import Table
from checks.versions import Version, key
from xsmmu import model_files

VERDICTS: Final = ("hit", "fitted", "miss", "not determined", "not computed", "input")


def _percent(error: float | None) -> str:
    return "" if error is None else f"{100 * error:+.1f} %"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def _spread(row: Row) -> str:
    return "" if row.low is None or row.high is None else f"{_number(row.low)} to {_number(row.high)}"


def table_lines(table: Table, rows: Sequence[Row], old: Sequence[Version]) -> Iterator[str]:
    """A published table with the model's values."""
    yield f"### {table.title}"
    yield ""
    yield f"{table.source}. {table.conditions}."
    yield ""
    heads = ["", "published", "model", "interval", "error", "verdict", "same as off", "of misses"]
    heads += [f"error of version {version.number}" for version in old]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for cell, row in zip((each for each in table.cells if each.use != "asked"), rows, strict=True):
        title = table.figures[cell.figure].title or cell.figure
        beside = baselines(table, cell) if cell.figure == "throughput" and cell.system != "off" else None
        cells = [f"{title}, {row.name}, {row.unit}", _number(row.published), _number(row.value), _spread(row)]
        cells += [_percent(row.error), row.verdict]
        cells += [_percent(beside.same_as_off), _percent(beside.of_misses)] if beside else ["", ""]
        cells += [_percent(_old_error(version, row)) for version in old]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _old_error(version: Version, row: Row) -> float | None:
    found = version.figures.get(key(row))
    return found[0] / row.published - 1 if found and row.published else None


def summary_lines(rows: Iterable[Row]) -> Iterator[str]:
    """How many rows of each table are hits."""
    yield "| table | figures | " + " | ".join(VERDICTS) + " | median error | largest |"
    yield "|" + "---|" * (len(VERDICTS) + 4)
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.table, "rates" if row.unit in RATES else "others"), []).append(row)
    for (table, kind), mine in groups.items():
        counts = [sum(row.verdict == verdict for row in mine) for verdict in VERDICTS]
        errors = [abs(row.error) for row in mine if row.error is not None and row.use != "input"]
        ends = [f"{100 * each:.0f} %" for each in (statistics.median(errors), max(errors))] if errors else ["", ""]
        yield f"| {table} | {kind} | {' | '.join(str(count or '') for count in counts)} | {' | '.join(ends)} |"


def nearer(tables: Mapping[str, Table], rows: Sequence[Row]) -> str:
    """In how many throughputs a baseline is nearer than the model."""
    cells = {(name, cell.figure, cell.name): cell for name, table in tables.items() for cell in table.cells}
    said = []
    for title, field in (("*of misses*", "of_misses"), ("*same as off*", "same_as_off")):
        found = [
            (abs(error), abs(row.error))
            for row in rows
            if row.figure == "throughput" and row.error is not None and row.use != "input"
            for error in (getattr(baselines(tables[row.table], cells[row.table, row.figure, row.name]), field),)
            if error is not None
        ]
        said.append(f"{title} is nearer than the model in {sum(a < b for a, b in found)} of {len(found)} throughputs")
    return f"{'; '.join(said)}. A model that is worth its parameters must beat both."


def page(
    tables: Mapping[str, Table], rows: Sequence[Row], said: Sequence[Said], all_: Sequence[Version], sets: int
) -> str:
    """docs/validation.md."""
    last, old = all_[-1], all_[:-1]
    by_table: dict[str, list[Row]] = {}
    for row in rows:
        by_table.setdefault(row.table, []).append(row)
    lines = [
        "# The machine model beside published tables",
        "",
        f"Made by `make validate`. Version {last.number}: {last.reason}. Structure, ranges and inputs at commit"
        f" {last.commit[:8]}; the fit at {last.fit}; {len(last.files)} files, together"
        f" {hashlib.sha256(str(sorted(last.files.items())).encode()).hexdigest()[:16]}.",
        "",
        "The fit reads one row, strict by the number of flows: its throughput, and with a fourth of the weight its"
        " misses. The authors of the model had all"
        f" other tables in sight when they designed the model. An interval is that of {SEEDS} seeds, of {TIME_MS} ms"
        f" each, and of the {sets} sets of parameters that fit this row within 10 %; for other machines, and for"
        f" parameters that the fit leaves open, of {model_files.SAMPLES} sets that are spread over the ranges of the"
        f" files. [model.md](model.md#how-to-read-the-table) says which points do not settle in {TIME_MS} ms. Few sets"
        " fit, so the intervals of the fitted machine are too narrow rather than too wide. A"
        " throughput whose interval is wider than 10 % on a side is not determined, and no hit. A hit is within the"
        " goal: 10 % for throughputs of the fitted machine, 25 % for the ablation, 20 % elsewhere, 15 % for counters,"
        " and the error of reading the value off. *Not computed*: the model has no such machine, device or figure.",
        "",
        "Two baselines need no model: the throughput is that without an IOMMU (*same as off*), or it is 32,768 bits /"
        f" ({READ_NS} ns x M) with M the published misses a page (*of misses*), but not above off.",
        "",
        "## Hits",
        "",
        *summary_lines(rows),
        "",
        nearer(tables, rows),
        "",
        "## Published statements",
        "",
        "| table | statement | | figures |",
        "|---|---|---|---|",
        *(f"| {each.table} | {each.says} | {each.words} | {each.figures} |" for each in said),
        "",
        "### Virtual IOMMUs",
        "",
        "Decided by counts and times of [protocols](model.md#virtual-iommus).",
        "",
        "| statement | | figures | reason |",
        "|---|---|---|---|",
        *(f"| {each.says} | {each.words} | {each.figures} | {each.why} |" for each in guest_claims.decide()),
        "",
        "## Tables",
        "",
    ]
    for name, mine in by_table.items():
        lines += table_lines(tables[name], mine, old)
    return "\n".join(lines).rstrip() + "\n"
