# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu lab compare` of nanoseconds: one table of several files, a column for each file.

A file is a summary of `make native`, `make native-engine` or `make lab`, a document of `xsmmu bench -o json`, or the
accepted figures (tool/xsmmu/native.json). Nanoseconds of two machines cannot be compared, but ratios can: each figure
stands beside its ratio to the kernel's lazy mode of the same file, or to another base where a file has no such row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from xsmmu import output
from xsmmu.errors import UserError
from xsmmu.native import HARDWARE_WAIT_NS
from xsmmu_lab.native.plan import PAGE, PASSTHROUGH, RING
from xsmmu_lab.native.summary import SUMMARY, rows_of
from xsmmu_lab.report import nanoseconds
from xsmmu_lab.report import view as views

Json = dict[str, Any]

BASES: Final = ("kernel-lazy", PASSTHROUGH, "lazy")
"""Policies to which ratios are given; a file's base is the first that the file has."""


@dataclass(frozen=True)
class Shape:
    """The work of a row, apart from the policy and the driver."""

    bytes: int = PAGE
    pages: int = 1
    ring: int = RING
    list: int = 0
    walk_mib: int = 0
    cpus: int = 1
    elsewhere_percent: int = 0

    @property
    def words(self) -> str:
        """The differences from a single page of a large ring."""
        named = (
            (f"{self.bytes:,} bytes", self.bytes != PAGE),
            (f"{self.pages} pages", self.pages != 1),
            (f"ring {self.ring:,}", self.ring != RING),
            (f"list {self.list}", self.list != 0),
            ("cold caches", self.walk_mib != 0),
            (f"{self.cpus} CPUs", self.cpus != 1),
            (f"{self.elsewhere_percent} % elsewhere", self.elsewhere_percent != 0),
        )
        return ", ".join(words for words, is_named in named if is_named)


Place = tuple[str, str, Shape]
"""Policy, driver, shape: what a row is of, in any file."""


@dataclass(frozen=True)
class Figure:
    """Nanoseconds to map and unmap a page."""

    ns_per_page: float
    low: float | None
    high: float | None
    inv_per_page: float | None


@dataclass(frozen=True)
class Column:
    """One file, or one machine of the accepted figures."""

    path: str
    kind: str
    """The command that made the file."""
    cpu: str | None
    kernel: str | None
    commit: str | None
    wait_ns: float | None
    """The wait for an invalidation; None: the waits of the machine's own IOMMU."""
    figures: Mapping[Place, Figure]
    estimated: bool = False
    """Whether instructions were counted."""

    @property
    def base(self) -> str | None:
        """The policy to which ratios are given."""
        names = {policy for policy, _, _ in self.figures}
        return next((base for base in BASES if base in names), None)

    def relative(self, place: Place) -> float | None:
        """The ratio to the base in the same shape."""
        figure = self.figures.get(place)
        driver = "none" if self.base == PASSTHROUGH else "unmodified"
        base = self.figures.get((self.base, driver, place[2])) if self.base else None
        return figure.ns_per_page / base.ns_per_page if figure and base and base.ns_per_page else None

    @property
    def words(self) -> str:
        """The file's facts."""
        wait = "its own waits" if self.wait_ns is None else f"wait {self.wait_ns:,.0f} ns"
        named = (self.path, self.kind, self.cpu, self.kernel and f"Linux {self.kernel}", wait)
        rate = f"instructions at {nanoseconds.rate().short}" if self.estimated else None
        return ", ".join(word for word in (*named, rate) if word)


# -- reading ---------------------------------------------------------------------------------------


def is_lab(document: Any) -> bool:
    """Whether a document is a summary of `make lab`."""
    return isinstance(document, dict) and "runs" in document and "rows" not in document


def load(path: Path) -> Any:
    """The JSON of a file, or of the summary in a folder."""
    file = path / SUMMARY if path.is_dir() else path
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        raise UserError(f"{file} does not exist: name a file or a folder of results") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): name a file or a folder of results") from None
    except ValueError as error:
        raise UserError(
            f"{file} is no JSON document ({error}): name results of the lab, or output of xsmmu bench -o json"
        ) from None


def columns(path: Path, document: Any, wait_ns: int | None = None) -> list[Column]:
    """The columns of a file, at a wait; without one, at the file's only wait, or at 1,000 ns of several.

    A machine's own waits stand for any wait.
    """
    reader = _reader(document)
    if not reader:
        kinds = "a summary of make lab, make native or make native-engine, or output of xsmmu bench -o json"
        raise UserError(f"{path} is none of the files that can be compared: name {kinds}")
    try:
        found = reader(path, document, wait_ns)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} has content of an unknown form ({type(error).__name__}: {error}): measure again with this version"
        ) from None
    if any(not column.figures for column in found):
        raise UserError(f"{path} has no figure of a page: name another file")
    return found


def _reader(document: Any) -> Callable[[Path, Json, int | None], list[Column]] | None:
    if not isinstance(document, dict):
        return None
    if is_lab(document):
        return _of_lab
    schema = document.get("schema")
    if schema == "xsmmu.native/1":
        return _of_accepted
    if schema == "xsmmu.bench/1":
        return _of_bench
    if "rows" in document and "cmpxchg_ns" in document:
        return _of_native if schema is None else _of_engine
    return None


def _of_native(path: Path, document: Json, wait_ns: int | None) -> list[Column]:
    return [_measured(path, "make native", document, rows_of(document), wait_ns)]


def _of_engine(path: Path, document: Json, wait_ns: int | None) -> list[Column]:
    return [_measured(path, "make native-engine", document, document["rows"], wait_ns)]


def _of_accepted(path: Path, document: Json, wait_ns: int | None) -> list[Column]:
    return [_measured(path, "make native", each, each["rows"], wait_ns) for each in document["machines"]]


def _of_bench(path: Path, document: Json, wait_ns: int | None) -> list[Column]:
    if "rows" not in document:
        raise UserError(f"{path} has no rows, so an older xsmmu bench made it: run xsmmu bench again")
    found = _measured(path, "xsmmu bench", document, document["rows"], wait_ns)
    emulated = " in a virtual machine: its emulated IOMMU" if document["hypervisor"] else ""
    return [replace(found, kind=f"{found.kind}{emulated}", cpu=document["processor"])]


def _measured(path: Path, kind: str, facts: Json, rows: Sequence[Json], wait_ns: int | None) -> Column:
    waits = list(dict.fromkeys(row["wait_ns"] for row in rows))
    is_only = waits == [None] or (len(waits) == 1 and wait_ns is None)
    wait = waits[0] if is_only else _or_usual(wait_ns)
    if waits and wait not in waits:
        there = ", ".join(f"{each:g}" for each in waits)
        raise UserError(f"{path} has no rows at a wait of {wait} ns: choose --wait from {there}")
    figures = {
        (row["policy"], row["driver"], _shape(row)): Figure(
            float(row["ns_per_page"]), row["low"], row["high"], row["inv_per_page"]
        )
        for row in rows
        if row["wait_ns"] == wait
    }
    return Column(str(path), kind, facts.get("cpu"), facts.get("kernel"), facts.get("commit"), wait, figures)


def _or_usual(wait_ns: int | None) -> int:
    return HARDWARE_WAIT_NS if wait_ns is None else wait_ns


def _shape(row: Json) -> Shape:
    return Shape(**{key: row[key] for key in asdict(Shape()) if key in row})


def _of_lab(path: Path, document: Json, wait_ns: int | None) -> list[Column]:
    """Page costs of `micro`, in estimated nanoseconds."""
    view = views.read(document)
    if not view.waits:
        raise UserError(f"{path} has no counts of instructions: name results of xsmmu lab run --accel tcg")
    wait, figures = _or_usual(wait_ns), {}
    for workload in view.workloads:
        if workload.kind != "micro" or not workload.ring:
            continue
        size = workload.name.partition(" ")[2].removesuffix(" bytes").replace(",", "")
        if size and not size.isdecimal():
            continue
        shape = Shape(bytes=int(size or PAGE), ring=workload.ring)
        for run in workload.runs:
            ns = run.ns_at(wait)
            if ns is not None:
                driver = "none" if run.policy == PASSTHROUGH else run.driver
                figures[run.policy, driver, shape] = Figure(ns, None, None, run.commands)
    return [Column(str(path), "make lab", None, view.kernel, view.commit, wait, figures, estimated=True)]


# -- showing ---------------------------------------------------------------------------------------


def places(found: Sequence[Column]) -> list[Place]:
    """All rows, by shape, and otherwise in the order of the files."""
    every = list(dict.fromkeys(place for column in found for place in column.figures))
    shapes = list(dict.fromkeys([Shape(), *(shape for _, _, shape in every)]))
    return sorted(every, key=lambda place: shapes.index(place[2]))


def as_dict(found: Sequence[Column]) -> Json:
    """The table for JSON; a figure that a file does not have is null."""
    return {
        "schema": "xsmmu.lab-beside/1",
        "files": [
            {
                **{key: getattr(column, key) for key in ("path", "kind", "cpu", "kernel", "commit", "wait_ns")},
                "estimated": column.estimated,
                "base": column.base,
            }
            for column in found
        ],
        "rows": [
            {
                "policy": place[0],
                "driver": place[1],
                **asdict(place[2]),
                "figures": [
                    {**asdict(column.figures[place]), "relative": column.relative(place)}
                    if place in column.figures
                    else None
                    for column in found
                ],
            }
            for place in places(found)
        ],
    }


def show(found: Sequence[Column]) -> None:
    """Print the table and the facts of each file."""
    heads = ["policy", "driver", "buffers"]
    for number, column in enumerate(found, 1):
        heads += [f"{number}: ns", f"{number}: x {column.base or 'no base'}"]
    rows = [
        [*place[:2], place[2].words, *(cell for column in found for cell in _cells(column, place))]
        for place in places(found)
    ]
    output.table(heads, rows)
    click.echo()
    for number, column in enumerate(found, 1):
        click.echo(f"{number}: {column.words}")
    click.echo("ns: to map and unmap a page. Compare ratios only: nanoseconds are those of one machine.")
    if len(found) > 1 and not any(sum(place in column.figures for column in found) > 1 for place in places(found)):
        click.echo(f"No row is in two files: buffers differ. xsmmu bench --ring {RING} has the rows of make native.")


def _cells(column: Column, place: Place) -> tuple[str | None, str | None]:
    figure, relative = column.figures.get(place), column.relative(place)
    shown = f"{figure.ns_per_page:.1f}" if figure else None
    return shown, None if relative is None else f"{relative:.2f}"
