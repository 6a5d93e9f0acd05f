# SPDX-License-Identifier: GPL-2.0-only
"""The page of `xsmmu replay --html`: one file, which loads nothing, for light and dark screens and for paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from xsmmu import files, guide, html_page, replay_auto, replay_lines, replay_plot, replayed
from xsmmu.replayed import KERNEL, Result

PAGE: Final = html_page.Kind("xsmmu replay", "xsmmu: replayed recordings", "Cost and exposure of recorded DMA traffic")


def write(page: Path, results: Sequence[Result]) -> None:
    """Write the page atomically."""
    files.replace(page, html(results))


def html(results: Sequence[Result]) -> str:
    """The content of the page."""
    return PAGE.html([*_recordings(results), *_reading(results)])


def _recordings(results: Sequence[Result]) -> Iterator[str]:
    for number, (file, mine) in enumerate(replayed.by_file(results), 1):
        yield f"<h2>{escape(file)}</h2>"
        yield f'<p class="sub">{escape(replayed.traffic(mine[0]))}</p>'
        yield f"<figure>\n{replay_plot.svg(mine, number)}\n</figure>"
        yield from _table(file, mine)
        yield "<h3>What auto would choose</h3>"
        yield from _list(replay_auto.choices(mine[0].get("header", "")), "The recording does not describe its devices.")
        yield "<h3>Over time</h3>"
        yield f"<figure>\n{replay_lines.timelines(mine, number)}\n</figure>"
        yield "<h3>Lifetimes of mappings</h3>"
        yield f"<figure>\n{replay_lines.lifetimes(mine[0], number)}\n</figure>"
        yield "<h3>Notes</h3>"
        yield from _list(replayed.notes(mine), "Nothing: all events of the recording.")


def _list(lines: Iterable[str], otherwise: str) -> Iterator[str]:
    found = [f"<li>{escape(line)}</li>" for line in lines]
    yield "\n".join(["<ul>", *found, "</ul>"]) if found else f"<p>{otherwise}</p>"


def _table(file: str, results: Sequence[Result]) -> Iterator[str]:
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="All replays of {escape(file)}">'
    yield "<table>"
    yield "<caption>All replays</caption>"
    heads = ["policy", "level", "commands a page", "exposed p50", "exposed p99", "exposed max"]
    heads += ["most held pages", "most table pages", "regions a 1,000 maps"]
    counted = any("lines" in result for result in results)
    heads += ["transfers of lines a page"] if counted else []
    cells = [f'<th scope="col"{_key(at)}>{head}</th>' for at, head in enumerate(heads)]
    yield f"<thead><tr>{''.join(cells)}</tr></thead>"
    yield "<tbody>"
    for result in results:
        first, *others = map(escape, [*replayed.row(result), *([replayed.transfers(result)] if counted else [])])
        cells = [f"<td{_key(at)}>{cell}</td>" for at, cell in enumerate(others, 1)]
        yield f'<tr><th scope="row">{first}</th>{"".join(cells)}</tr>'
    yield "</tbody>"
    yield "</table>"
    yield "</div>"


def _key(column: int) -> str:
    return ' class="key"' if column < 2 else ""


def _reading(results: Sequence[Result]) -> Iterator[str]:
    yield "<h2>How to read the figures</h2>"
    yield (
        "<p>Commands a page: invalidation commands for each page unmapped, which cost a wait each. Exposure: time from "
        "the unmap to the flush that covers the page; p99: 99 % of the pages are exposed no longer. Quantiles are at "
        "most 1/64 too large. A flush takes no time in a replay, and timers are never late.</p>"
    )
    if any(result["aware"] for result in results):
        yield "<p>(aware): as if the driver were batch-aware; the driver keeps the memory until its flush.</p>"
    if any("lines" in result for result in results):
        yield (
            "<p>Transfers of lines a page: transfers of cache lines of the engine's memory between CPUs for each page "
            "unmapped, in the first million events of the recording; the kernel's modes are not counted.</p>"
        )
    if any(result["policy"] in KERNEL for result in results):
        yield (
            "<p>kernel-strict and kernel-lazy are models of the kernel's own modes: their table pages and regions are "
            "estimates, and flushes of kernel-lazy's timer may be a tick of the kernel (1 to 10 ms) away.</p>"
        )
    yield "<p>Levels, strictest first. Memory that a driver has unmapped from its device</p>"
    yield "<dl>"
    there = {result["level"] for result in results}
    for level, meaning in guide.LEVELS.items():
        if level in there:
            yield f"<dt>{level}</dt><dd>{escape(meaning)}</dd>"
    yield "</dl>"
