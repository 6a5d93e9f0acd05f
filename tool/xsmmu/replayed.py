# SPDX-License-Identifier: GPL-2.0-only
"""Results of replays for people: the figures of the table and of the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import click

from xsmmu import output, trace
from xsmmu.digits import duration, ratio, short
from xsmmu.machine import shown

Result = Mapping[str, Any]
"""A replay as in the JSON of `xsmmu replay`, with its file."""

KERNEL: Final = ("kernel-strict", "kernel-lazy")
"""Models of the kernel's own modes."""
COLUMNS: Final = (
    "POLICY",
    "LEVEL",
    "COMMANDS/PAGE",
    "EXPOSED p50",
    "p99",
    "MAX",
    "HELD PAGES",
    "TABLES",
    "REGIONS/1000",
)


def name(result: Result) -> str:
    """The policy, and whether the driver was replayed as batch-aware."""
    return f"{result['policy']} (aware)" if result["aware"] else str(result["policy"])


def row(result: Result) -> list[str]:
    """A line of the table."""
    exposed = result["exposure_ns"]
    return [
        name(result),
        result["level"],
        ratio(result["commands_per_page_unmapped"]),
        *(duration(exposed[quantile]) for quantile in ("p50", "p99", "max")),
        short(result["memory_held_pages"]["max"]),
        short(result["table_pages"]["max"]),
        short(result["regions_per_1000_maps"]),
    ]


LINES: Final = "LINES/PAGE"
"""Column of transfers of cache lines, with --counts."""


def transfers(result: Result) -> str:
    """Transfers of lines between CPUs for each page unmapped; the kernel's modes have none."""
    return ratio(result["lines"]["transfers_per_page_unmapped"]) if "lines" in result else "-"


def traffic(result: Result) -> str:
    """What the recording has."""
    return (
        f"{result['events']:,} events in {result['recording_ns'] / 1e9:.3f} s, "
        f"{result['pages_mapped']:,} pages mapped, {result['pages_unmapped']:,} unmapped"
    )


UNDERSTATED: Final = (
    "too few commands if the driver maps slab memory, as for heads of sent packets: the module cannot hold this memory "
    "and flushes each unmap of it at once; this recording does not say which memory is slab"
)
"""Of a replay at level held, if the recorder did not know such memory."""


def notes(results: Sequence[Result]) -> Iterator[str]:
    """What a reader must know of a recording; a note that is not true of all replays names those of which it is."""
    found: dict[str, list[str]] = {}
    for result in results:
        for note in _notes(result):
            found.setdefault(note, []).append(name(result))
    for note, names in found.items():
        yield note if len(names) == len(results) else f"{', '.join(names)}: {note}"


def header_of(result: Result) -> Mapping[str, Any]:
    """The recording's header; empty if it is no JSON object."""
    try:
        found = json.loads(result.get("header", ""))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _notes(result: Result) -> Iterator[str]:
    if result["level"] == "held" and not result["unheld_known"]:
        yield UNDERSTATED
    header = header_of(result)
    missing = header.get("missing")
    if isinstance(missing, list) and missing:
        names = ", ".join(shown(str(each)) for each in missing)
        yield f"the recorder did not see, and the replay does not have: {names}"
    if warning := trace.unknown_pages(header):
        yield warning
    damage = result["damage"]
    if not result["events"]:
        yield "the recording has no events: nothing was replayed"
    if damage["cut"]:
        yield "the recording is cut: its end is missing, and what stands behind the last whole block is left out"
    if damage["blocks"]:
        yield f"{damage['blocks']:,} damaged blocks ({damage['bytes']:,} bytes) were left out"
    if damage["lost_events"]:
        yield f"the recorder lost {damage['lost_events']:,} events"
    for kind, left in result["not_replayed"].items():
        first = left["first"]
        yield (
            f"{left['count']:,} x {kind.replace('_', ' ')}, first at event {first['event']:,} "
            f"({first['ns'] / 1e9:.6f} s, CPU {first['cpu']}, device {first['device']}, address {first['iova']:#x})"
        )


def by_file(results: Iterable[Result]) -> Iterator[tuple[str, list[Result]]]:
    """The results of each recording, by its name for people: control characters and wrong UTF-8 are escaped."""
    for file, mine in groupby(results, key=lambda result: str(result["file"])):
        yield shown(file), list(mine)


def print_tables(results: Iterable[Result]) -> None:
    """A table for each recording, with its notes."""
    for number, (file, mine) in enumerate(by_file(results)):
        if number:
            click.echo()
        click.echo(f"{file}: {traffic(mine[0])}")
        if any("lines" in result for result in mine):
            output.table([*COLUMNS, LINES], [[*row(result), transfers(result)] for result in mine])
        else:
            output.table(COLUMNS, [row(result) for result in mine])
        for note in notes(mine):
            click.echo(f"note: {note}")
